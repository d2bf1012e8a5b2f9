//! The user that `docs/stores.md` makes: it may do no more than its work, and everything is tried
//! as that user.

use backstop_testkit::servers::Redis;

/// The name and the password that it has there.
const LOGIN: &str = "backstop:SECRET@";

/// Makes the user on a server, with the rights that the page gives it. In place of `backstop` its
/// keys may begin with whatever is the prefix of a fresh store: a letter, and sixteen digits.
pub(crate) fn make_on(server: &Redis) {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stores.md");
    let page = std::fs::read_to_string(page).expect("it is there");
    let line = page
        .lines()
        .find(|line| line.starts_with("ACL SETUSER "))
        .expect("it makes a user");
    let line = line.replace("backstop:*", "t_????????????????:*");
    let said = server.cli(&line.split(' ').collect::<Vec<_>>());
    assert_eq!(said.trim(), "OK", "{line}");
}

/// The same address, as that user.
pub(crate) fn log_in(url: &str) -> String {
    url.replacen("://", &format!("://{LOGIN}"), 1)
}
