//! Hostile text wherever a user's text can stand: nothing of it is ever run.

use crate::crawl::{SECTIONS, crawl};
use crate::page::Page;
use crate::site::Site;
use serde_json::Value;

/// Each would set a mark, or open a dialog, if a page took it for more than text.
const HOSTILE: [&str; 12] = [
    "<script>window.owned=1;alert(1)</script>",
    "\"><img src=x onerror=\"window.owned=1\">",
    "' onmouseover='window.owned=1' autofocus onfocus='window.owned=1' x='",
    "javascript:window.owned=1//",
    "</title></textarea></script></style><svg onload=window.owned=1>",
    "{{constructor.constructor('window.owned=1')()}}",
    "${window.owned=1}<%= window.owned=1 %>#{window.owned=1}",
    "--><iframe srcdoc='<script>parent.owned=1</script>'></iframe><!--",
    "\u{202e}gnp.exe\u{2066}\u{200f}<b onclick=window.owned=1>",
    "a\u{1}\u{8}\u{1b}[31m\r\nSet-Cookie: owned=1\r\n\r\n<script>window.owned=1</script>",
    "&lt;script&gt;window.owned=1&lt;/script&gt;&#x3C;script&#x3E;",
    "data:text/html,<script>window.owned=1</script>",
];

/// The longest text that is taken for a payload's field without being cut.
const LONG: usize = 64 << 10;

/// The names of all fields and parameters of a page.
const NAMES: &str = "JSON.stringify([...new Set([...document.querySelectorAll('[name]')].map((node) => node.name)\
.concat([...document.querySelectorAll('a[href]')].flatMap((a) => [...new URL(a.getAttribute('href'), location.href).searchParams.keys()])))])";

fn check_harmless(page: &Page) {
    let at = page.address();
    assert_eq!(
        page.eval("typeof window.owned"),
        Value::from("undefined"),
        "{at}: script of a user's text ran"
    );
    assert_eq!(page.eval("document.cookie.includes('owned')"), Value::Bool(false), "{at}");
    assert_eq!(page.dialogs(), 0, "{at}: a dialog was opened");
    let complaints = page.complaints();
    assert!(complaints.is_empty(), "{at}: {complaints:#?}");
    // A link that a click would run is as bad as one that has run.
    let schemes = "[...document.querySelectorAll('[href],[src],[action]')].every((node) => \
        /^https?:$/.test(new URL(node.getAttribute('href') ?? node.getAttribute('src') ?? node.getAttribute('action'), location.href).protocol))";
    assert_eq!(page.eval(schemes), Value::Bool(true), "{at}: an address that is no address of ours");
}

#[test]
fn text_of_users_is_text_on_every_page() {
    let long = "A<b>".repeat(LONG / 4);
    let texts: Vec<&str> = HOSTILE.into_iter().chain([long.as_str()]).collect();
    let site = Site::filled(&texts);
    let page = Page::open();
    let seen = crawl(&site, &page, check_harmless);
    assert!(seen.len() > SECTIONS.len() * 2, "{seen:#?}");
}

#[test]
fn parameters_of_an_address_are_text_on_every_page() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    for path in SECTIONS.into_iter().chain(["/queues/mail", "/streams/uptime", "/schedules/digest", "/login"])
    {
        page.go(&site.at(path));
        let names = page.eval(NAMES);
        let names: Vec<String> = serde_json::from_str(names.as_str().unwrap()).unwrap();
        for part in HOSTILE.chunks(6) {
            let mut query: Vec<String> = names
                .iter()
                .zip(part.iter().cycle())
                .map(|(name, text)| format!("{name}={}", encoded(text)))
                .collect();
            query.push(format!("{}=1", encoded(part[0])));
            page.go(&site.at(&format!("{path}?{}", query.join("&"))));
            assert!(page.status() < 500, "{} answered {}", page.address(), page.status());
            check_harmless(&page);
        }
    }
    let parts = ["/queues/", "/jobs/", "/dead/", "/streams/", "/streams/uptime/keys/", "/schedules/", "/"];
    for (text, path) in HOSTILE.into_iter().chain(HOSTILE).zip(parts.into_iter().cycle()) {
        page.go(&site.at(&format!("{path}{}", encoded(text))));
        assert!(page.status() < 500, "{} answered {}", page.address(), page.status());
        check_harmless(&page);
    }
}

fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
