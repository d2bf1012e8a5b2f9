//! Live updates: what they renew, what they say when they cannot, and what they leave alone.

use crate::page::Page;
use crate::rules;
use crate::site::Site;
use backstop_server::events::VIEWERS_OF_ONE_MAX;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Whether it is told that there are no live updates, and why.
const LOST: &str = "document.getElementById('offline').hidden ? '' : document.getElementById('offline').textContent";

/// A source of events that does as the test says.
const SOURCE: &str = "window.EventSource = class extends EventTarget { \
static CONNECTING = 0; static OPEN = 1; static CLOSED = 2; \
constructor() { super(); window.source = this; this.turn(1, 'open'); } \
turn(state, name) { this.readyState = state; setTimeout(() => this.dispatchEvent(new Event(name))); } \
close() { this.readyState = 2; } }";

fn with_source(site: &Site, path: &str) -> Page {
    let page = Page::open();
    page.call(
        "Page.addScriptToEvaluateOnNewDocument",
        &json!({ "source": SOURCE }),
    );
    page.go(&site.at(path));
    page
}

fn has(page: &Page, role: &str, name: &str) -> bool {
    page.tree()
        .iter()
        .any(|node| node.role == role && node.name == name)
}

#[test]
fn the_head_of_a_page_is_renewed_with_the_rest() {
    let site = Site::filled(&["plain"]);
    let (page, beside) = (Page::open(), Page::open());
    page.go(&site.at("/queues/mail"));
    page.find("DisclosureTriangle", "Pause…");
    site.wait(site.backstop.changes("ada").pause(&"mail".parse().unwrap()))
        .unwrap();
    page.wait_until("it can be resumed", |page| has(page, "button", "Resume"));
    assert!(!has(&page, "DisclosureTriangle", "Pause…"));
    rules::check(&page);
    page.go(&site.at("/streams/halting/keys/plain"));
    let tag = |page: &Page| page.eval("document.querySelector('.head .tag').textContent");
    assert_eq!(tag(&page), "halted");
    beside.go(&site.at("/streams/halting/keys/plain"));
    beside.after(|| beside.click("button", "Try it again"));
    page.wait_until("it does not say halted any more", |page| {
        tag(page) != "halted"
    });
}

#[test]
fn a_source_that_comes_back_is_not_missed_and_one_that_stays_away_is() {
    let site = Site::filled(&["plain"]);
    let page = with_source(&site, "/queues");
    // As when an answer has gone on for as long as one may: the browser asks for another by itself.
    page.eval("source.turn(0, 'error')");
    page.eval("new Promise((done) => setTimeout(done, 50))");
    assert_eq!(page.eval(LOST), "");
    page.eval("source.turn(1, 'open')");
    page.eval("source.turn(0, 'error')");
    page.wait_until("it is missed", |page| {
        page.eval(LOST)
            .as_str()
            .unwrap()
            .contains("the server does not answer")
    });
    page.eval("source.turn(1, 'open')");
    page.wait_until("it is back", |page| page.eval(LOST) == "");
}

#[test]
fn who_is_turned_away_is_told_why() {
    let site = Site::filled(&["plain"]);
    let address = site.url.trim_start_matches("http://").to_owned();
    let viewers: Vec<TcpStream> = (0..VIEWERS_OF_ONE_MAX)
        .map(|_| {
            let mut viewer = TcpStream::connect(&address).unwrap();
            write!(viewer, "GET /v1/events HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
            let mut first = [0; 64];
            assert!(viewer.read(&mut first).unwrap() > 0);
            viewer
        })
        .collect();
    let page = Page::open();
    page.go(&site.at("/queues"));
    page.wait_until("it is told", |page| {
        page.eval(LOST)
            .as_str()
            .unwrap()
            .contains("20 viewers of yours are connected")
    });
    drop(viewers);
    page.wait_until("there is room again", |page| page.eval(LOST) == "");
}

#[test]
fn an_answer_that_failed_does_not_take_the_place_of_the_page() {
    let site = Site::filled(&["plain"]);
    let page = with_source(&site, "/queues");
    page.eval("(() => { window.real = window.fetch; window.fetch = async () => new Response('<h1>Gone</h1>', { status: 503 }); })()");
    page.eval("source.turn(1, 'changed')");
    page.wait_until("it is told", |page| {
        page.eval(LOST).as_str().unwrap().contains("(503)")
    });
    assert!(has(&page, "link", "mail"));
    rules::check(&page);
    page.eval("(() => { window.fetch = window.real; })()");
    page.eval("source.turn(1, 'changed')");
    page.wait_until("it is made again", |page| page.eval(LOST) == "");
}

#[test]
fn a_search_in_texts_is_not_done_again_and_again() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    for (path, is_live) in [
        ("/dead?view=letters", true),
        ("/dead?text=plain", false),
        ("/jobs?text=plain", false),
    ] {
        page.go(&site.at(path));
        assert_eq!(has(&page, "button", "Live"), is_live, "{path}");
    }
}

#[test]
fn what_is_new_is_said_once() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    page.go(&site.at("/schedules/digest"));
    page.eval("(() => { window.said = []; new MutationObserver(() => said.push(document.getElementById('said').textContent)).observe(document.getElementById('said'), { childList: true }); })()");
    let name = "digest".parse().unwrap();
    site.wait(site.backstop.changes("ada").pause_schedule(&name))
        .unwrap();
    let said = || page.eval("said.filter((text) => text.startsWith('Paused')).length");
    page.wait_until("it is said", |_| said() == 1);
    site.wait(site.backstop.draft("other").json(&1).push())
        .unwrap();
    page.eval("(() => { document.querySelector('[data-news]').isOld = true; })()");
    page.wait_until("it is renewed", |page| {
        page.eval("document.querySelector('[data-news]').isOld ?? ''") == ""
    });
    assert_eq!(said(), 1);
}

#[test]
fn selected_rows_and_a_chosen_way_of_telling_times_stay_when_the_page_is_renewed() {
    let site = Site::busy();
    let page = Page::open();
    page.go(&site.at("/jobs?queue=mail"));
    page.click_on(|page| {
        page.tree()
            .into_iter()
            .find(|node| node.role == "checkbox" && node.name.starts_with("Select 0"))
            .unwrap()
    });
    page.click("button", "Times: ago");
    let renewed = || {
        page.eval("(() => { document.querySelector('tbody tr').isOld = true; })()");
        page.wait_until("it is renewed", |page| {
            page.eval("document.querySelector('tbody tr').isOld ?? ''") == ""
        });
    };
    renewed();
    assert_eq!(
        page.eval("document.querySelectorAll('input[name=id]:checked').length"),
        1
    );
    assert_eq!(
        page.eval("document.querySelector('[data-picked]').textContent"),
        "1 selected"
    );
    let told = page.eval("document.querySelector('tbody time').textContent");
    assert!(told.as_str().unwrap().ends_with(" UTC"), "{told}");
}

/// Counts what a page asks for, and lets a test say whether it is hidden.
const HIDEABLE: &str = "(() => { window.asked = 0; window.opened = 0; window.isHidden = false; \
const ask = window.fetch, Source = window.EventSource; \
window.fetch = (...what) => { window.asked += 1; return ask(...what); }; \
window.EventSource = class extends Source { constructor(...what) { super(...what); window.opened += 1; } }; \
Object.defineProperty(document, 'hidden', { configurable: true, get: () => window.isHidden }); })()";

/// Something has changed, and it is time to look; answers how often was asked since the beginning.
const CHANGED: &str = "(() => { const later = window.setTimeout; window.setTimeout = (run) => { run(); return 0; }; \
source.dispatchEvent(new Event('changed')); window.setTimeout = later; return window.asked; })()";

fn hide(page: &Page, is_hidden: bool) {
    page.eval(&format!(
        "(() => {{ window.isHidden = {is_hidden}; document.dispatchEvent(new Event('visibilitychange')); }})()"
    ));
}

#[test]
fn a_page_that_nobody_sees_asks_for_nothing_and_goes_on_when_it_is_seen() {
    let site = Site::filled(&["plain"]);
    let page = with_source(&site, "/queues");
    page.eval(HIDEABLE);
    hide(&page, true);
    assert_eq!(page.eval("source.readyState"), 2, "no events come any more");
    assert_eq!(
        (page.eval(CHANGED), page.eval("opened")),
        (json!(0), json!(0))
    );
    hide(&page, false);
    assert_eq!(
        (page.eval("source.readyState"), page.eval("opened")),
        (json!(1), json!(1))
    );
    assert_eq!(page.eval(CHANGED), 1);
}
