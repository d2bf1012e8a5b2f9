use super::*;

fn check(address: &str, shown: &str) {
    assert_eq!(redacted(address), shown);
    assert_eq!(StoreAddress::new(address).to_string(), shown);
    assert_eq!(
        StoreAddress::new(address).hides_something(),
        address != shown
    );
    assert_eq!(
        format!("{:?}", StoreAddress::new(address)),
        format!("Address({shown})")
    );
}

#[test]
fn a_password_is_not_shown_wherever_it_stands() {
    check(
        "postgres://ada:secret@db/shop",
        "postgres://[redacted]@db/shop",
    );
    check("redis://:secret@h:6379/2", "redis://[redacted]@h:6379/2");
    check("redis://secret@h", "redis://[redacted]@h");
    check(
        "postgres://u:se@cret@db/shop",
        "postgres://[redacted]@db/shop",
    );
    check(
        "redis+cluster://u:secret@a:1,b:2",
        "redis+cluster://[redacted]@a:1,b:2",
    );
    check(
        "postgres://db/shop?user=u&password=secret",
        "postgres://db/shop?user=[redacted]&password=[redacted]",
    );
    check(
        "redis://h?auth=secret&prefix=mine",
        "redis://h?auth=[redacted]&prefix=mine",
    );
}

#[test]
fn where_nobody_can_tell_a_password_apart_nothing_is_shown() {
    check("postgres://u:se?cret@db/shop", "postgres://[redacted]");
    check(
        "postgres://db/shop?password=se@cret",
        "postgres://[redacted]",
    );
    check(
        "postgres://u:a@b?se@cret",
        "postgres://[redacted]@b?[redacted]",
    );
    check(
        "postgres://u:a@b?schema=se@cret",
        "postgres://[redacted]@b?schema=[redacted]",
    );
    check("postgres:u:secret@db", "[redacted]");
    check("host=db password=secret", "[redacted]");
}

#[test]
fn what_is_harmless_is_shown() {
    for address in [
        "",
        "backstop.db",
        "memory:",
        "sqlite:a=b@c d.db",
        "postgres://db:5432/shop?schema=jobs&sslmode=verify-full",
        "redis+cluster://a:1,b:2",
    ] {
        check(address, address);
    }
}

#[test]
fn a_text_ends_where_an_address_begins() {
    let text = "at line 1\n1 | url = \"postgres://u:se cret@db\" x\n  |   ^";
    assert_eq!(
        without_addresses(text),
        "at line 1\n1 | url = \"[redacted]\n  |   ^"
    );
    assert_eq!(without_addresses("redis://:secret@h"), "[redacted]");
}

#[test]
fn an_address_names_a_kind_of_store() {
    let cases = [
        ("memory:", Some(StoreKind::Memory)),
        ("sqlite:a.db", Some(StoreKind::Sqlite)),
        ("postgres://h", Some(StoreKind::Postgres)),
        ("postgresql:///shop?host=/run", Some(StoreKind::Postgres)),
        ("redis://h", Some(StoreKind::Redis)),
        ("rediss://h", Some(StoreKind::Redis)),
        ("redis+cluster://a,b", Some(StoreKind::Redis)),
        ("rediss+cluster://a,b", Some(StoreKind::Redis)),
        ("redis+sentinel://a,b/main", Some(StoreKind::Redis)),
        ("", None),
        ("backstop.db", None),
        ("sqlite:", None),
        ("sqlite://", None),
        ("memory:x", None),
        ("postgres:h", None),
        ("mongodb://h", None),
    ];
    for (address, kind) in cases {
        assert_eq!(StoreAddress::new(address).kind(), kind, "{address}");
    }
}

#[test]
fn a_path_may_be_relative_or_absolute() {
    let file = |address: &str| {
        StoreAddress::new(address)
            .sqlite_file()
            .and_then(Path::to_str)
            .map(str::to_owned)
    };
    assert_eq!(file("sqlite:a.db").as_deref(), Some("a.db"));
    assert_eq!(file("sqlite://a.db").as_deref(), Some("a.db"));
    assert_eq!(file("sqlite:///var/a.db").as_deref(), Some("/var/a.db"));
    assert_eq!(file("sqlite:/var/a.db").as_deref(), Some("/var/a.db"));
    assert_eq!(file("memory:"), None);
}

#[test]
fn a_parameter_is_set_once() {
    let set = |address: &str| {
        StoreAddress::new(address)
            .with_parameter("schema", "b")
            .as_written()
            .to_owned()
    };
    assert_eq!(set("postgres://h/d"), "postgres://h/d?schema=b");
    assert_eq!(
        set("postgres://h/d?sslmode=require"),
        "postgres://h/d?sslmode=require&schema=b"
    );
    assert_eq!(
        set("postgres://h/d?schema=a&x=y"),
        "postgres://h/d?x=y&schema=b"
    );
}
