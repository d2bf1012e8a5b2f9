//! Hostile text wherever a user's text can stand: nothing of it is ever run.

use crate::crawl::{ALIKE_MAX, SECTIONS, crawl};
use crate::page::Page;
use crate::site::{SECRET, Site, cut};
use backstop::JobState;
use backstop::core::amend::Filter;
use backstop::core::port::ListJobsRequest;
use serde_json::Value;

/// Each would set a mark, or open a dialog, if a page took it for more than text.
const HOSTILE: [&str; 40] = [
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
    // Ways out of an attribute, in whatever quotes it stands.
    "\" autofocus tabindex=0 onfocus=window.owned=1 x=\"",
    "` onfocus=window.owned=1 autofocus `",
    " onfocus=window.owned=1 autofocus ",
    "x\u{c}onfocus=window.owned=1\u{c}autofocus",
    "\">\"><details open ontoggle=window.owned=1>",
    "\"/><input autofocus onfocus=window.owned=1>",
    "x\" style=\"animation-name:x\" onanimationstart=\"window.owned=1",
    // Elements that run something by themselves.
    "<svg><animate onbegin=window.owned=1 attributeName=x dur=1s>",
    "<svg><script href=data:,window.owned=1 />",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.owned=1>",
    "<video><source onerror=window.owned=1>",
    "<object data=javascript:window.owned=1>",
    "<base href=//owned.example/><link rel=stylesheet href=//owned.example/x.css>",
    "<meta http-equiv=refresh content=\"0;url=javascript:window.owned=1\">",
    "<form action=javascript:window.owned=1><button autofocus>x</button>",
    "<noscript><p title=\"</noscript><img src=x onerror=window.owned=1>\">",
    "<template><script>window.owned=1</script></template><xmp><script>window.owned=1</script>",
    "<scr<script>ipt>window.owned=1</scr</script>ipt>",
    // Schemes that are not seen as such at first sight.
    "JaVaScRiPt:window.owned=1",
    "java\tscript\n:window.owned=1",
    "\u{1}javascript:window.owned=1",
    "vbscript:msgbox(1)//data:;base64,PHNjcmlwdD53aW5kb3cub3duZWQ9MTwvc2NyaXB0Pg==",
    // Escapes of other languages, which must stay what they are.
    "\\u003cscript\\u003ewindow.owned=1\\u003c/script\\u003e",
    "%3Cscript%3Ewindow.owned=1%3C/script%3E%00%0d%0aSet-Cookie:owned=1",
    "</style><style>*{background:url(javascript:window.owned=1)}</style>expression(window.owned=1)",
    "\u{ff1c}script\u{ff1e}window.owned=1\u{ff1c}/script\u{ff1e}\u{2028}\u{2029}",
    // Letters that are not seen, and names that are taken for something else.
    "\u{200b}\u{200d}\u{feff}__proto__\u{2060}constructor\u{ad}",
    "../../..\\..//owned.example/?next=//owned.example#<script>window.owned=1</script>",
];

/// Pages that name rows by their keys, and what stands before them.
const ROWS: [(&str, &str); 3] = [
    ("/sweeps/orders?look=dry", "Would get a job"),
    ("/sweeps/orders?look=compare", "Rows without a live job"),
    ("/tables", "Expired rows"),
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
    assert_eq!(
        page.eval("document.cookie.includes('owned')"),
        Value::Bool(false),
        "{at}"
    );
    assert_eq!(page.dialogs(), 0, "{at}: a dialog was opened");
    let secret = format!("document.documentElement.textContent.includes('{SECRET}')");
    assert_eq!(
        page.eval(&secret),
        Value::Bool(false),
        "{at}: a secret is shown"
    );
    let complaints = page.complaints();
    assert!(complaints.is_empty(), "{at}: {complaints:#?}");
    // A link that a click would run is as bad as one that has run.
    let schemes = "[...document.querySelectorAll('[href],[src],[action]')].every((node) => \
        /^https?:$/.test(new URL(node.getAttribute('href') ?? node.getAttribute('src') ?? node.getAttribute('action'), location.href).protocol))";
    assert_eq!(
        page.eval(schemes),
        Value::Bool(true),
        "{at}: an address that is no address of ours"
    );
}

#[test]
fn text_of_users_is_text_on_every_page() {
    let long = "A<b>".repeat(LONG / 4);
    let texts: Vec<&str> = HOSTILE.into_iter().chain([long.as_str()]).collect();
    let site = Site::filled(&texts);
    let page = Page::open();
    let seen = crawl(&site, &page, ALIKE_MAX, check_harmless);
    assert!(seen.len() > SECTIONS.len() * 2, "{seen:#?}");
    // Databases of users are asked in the background; their keys are on a page once they have
    // answered.
    for (path, said) in ROWS {
        page.wait_until(said, |page| {
            page.go(&site.at(path));
            page.text().contains(said)
        });
        check_harmless(&page);
    }
    page.go(&site.at("/workers"));
    assert!(
        page.text().contains(&format!("version {}", HOSTILE[0])),
        "{}",
        page.text()
    );
    for path in texts.iter().flat_map(|text| own_pages(&site, text)) {
        page.go(&site.at(&path));
        assert_eq!(page.status(), 200, "{path}");
        check_harmless(&page);
    }
}

/// The pages of one job, one dead letter and one key that say a text: no crawl of alike pages comes
/// to all of them.
fn own_pages(site: &Site, text: &str) -> Vec<String> {
    let job = |queue: &str, state| {
        let (queue, kind) = (
            Some(queue.parse().unwrap()),
            Some(cut(text, 100).parse().unwrap()),
        );
        let filter = Filter {
            queue,
            kind,
            state: Some(state),
            ..Filter::default()
        };
        let query = ListJobsRequest {
            filter,
            limit: 1,
            ..ListJobsRequest::default()
        };
        let found = site
            .wait(site.backstop.store().jobs(query, site.backstop.now()))
            .unwrap();
        found
            .jobs
            .first()
            .unwrap_or_else(|| panic!("no {state} job says {text:?}"))
            .id
    };
    vec![
        format!("/jobs/{}", job("failing", JobState::Retrying)),
        format!("/dead/{}", job("dying", JobState::Dead)),
        format!("/streams/uptime/keys/{}", encoded(cut(text, 200))),
    ]
}

#[test]
fn parameters_of_an_address_are_text_on_every_page() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    for path in SECTIONS.into_iter().chain([
        "/queues/mail",
        "/streams/uptime",
        "/schedules/digest",
        "/login",
    ]) {
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
            assert!(
                page.status() < 500,
                "{} answered {}",
                page.address(),
                page.status()
            );
            check_harmless(&page);
        }
    }
    let parts = [
        "/queues/",
        "/jobs/",
        "/dead/",
        "/streams/",
        "/streams/uptime/keys/",
        "/schedules/",
        "/",
    ];
    for (text, path) in HOSTILE
        .into_iter()
        .chain(HOSTILE)
        .zip(parts.into_iter().cycle())
    {
        page.go(&site.at(&format!("{path}{}", encoded(text))));
        assert!(
            page.status() < 500,
            "{} answered {}",
            page.address(),
            page.status()
        );
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
