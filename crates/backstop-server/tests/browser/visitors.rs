//! Who comes in, who stays out, and what changes while somebody looks.

use crate::page::{ENTER, Page};
use crate::rules;
use crate::site::Site;
use backstop_server::access::{NewToken, Scope, TokenRegistry};

fn token(site: &Site, scope: Scope) -> String {
    let new = NewToken {
        name: format!("{scope:?}"),
        scopes: vec![scope],
        queues: Vec::new(),
        expires_in: None,
    };
    site.wait(TokenRegistry::of(&site.backstop).create("tests", new))
        .unwrap()
        .token
}

fn log_in(page: &Page, token: &str) {
    page.fill("textbox", "Token", token);
    page.after(|| page.press_key(ENTER));
}

#[test]
fn a_token_opens_a_session_and_logging_out_ends_it() {
    for page in [Page::open(), Page::open().without_script()] {
        let site = Site::guarded();
        page.go(&site.at("/queues"));
        assert!(
            page.address().starts_with(&site.at("/login")),
            "{}",
            page.address()
        );
        rules::check_outside(&page);
        log_in(&page, "not-a-token");
        assert!(
            page.tree().iter().any(|node| node.role == "alert"),
            "a wrong token is told as such"
        );
        rules::check_outside(&page);
        log_in(&page, &token(&site, Scope::Admin));
        assert_eq!(page.address(), site.at("/queues"), "where one wanted to go");
        rules::check(&page);
        page.find("DisclosureTriangle", "Pause mail…");
        page.after(|| page.click("button", "Log out"));
        page.go(&site.at("/queues"));
        assert!(
            page.address().starts_with(&site.at("/login")),
            "{}",
            page.address()
        );
    }
}

#[test]
fn who_may_only_read_is_offered_nothing_else() {
    let site = Site::guarded();
    let page = Page::open();
    page.go(&site.at("/queues"));
    log_in(&page, &token(&site, Scope::Read));
    let offered: Vec<String> = page.tree().into_iter().map(|node| node.name).collect();
    assert!(
        offered.iter().all(|name| !name.starts_with("Pause ")),
        "{offered:?}"
    );
    rules::check(&page);
}

#[test]
fn what_changes_in_the_store_shows_without_a_reload() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    page.go(&site.at("/queues"));
    let loads = page.events("Page.loadEventFired").len();
    site.wait(site.backstop.draft("brand-new").json(&1).push())
        .unwrap();
    page.wait_until("the new queue is shown", |page| {
        page.tree()
            .iter()
            .any(|node| node.role == "link" && node.name == "brand-new")
    });
    assert_eq!(page.events("Page.loadEventFired").len(), loads);
    rules::check(&page);
}

fn shows(page: &Page, queue: &str) -> bool {
    page.tree()
        .iter()
        .any(|node| node.role == "link" && node.name == queue)
}

#[test]
fn who_paused_is_sent_nothing_and_asks_for_nothing() {
    let site = Site::filled(&["plain"]);
    let (page, beside) = (Page::open(), Page::open());
    for each in [&page, &beside] {
        each.go(&site.at("/queues"));
    }
    let push = |queue: &str| {
        site.wait(site.backstop.draft(queue).json(&1).push())
            .unwrap()
    };
    push("seen");
    page.wait_until("it is live at first", |page| shows(page, "seen"));
    page.click("button", "Live");
    page.find("button", "Paused");
    let asked = || page.events("Network.requestWillBeSent").len();
    let before = asked();
    // Whoever is live is told of each: by then nothing more is on its way to anybody.
    for queue in ["first", "second", "third"] {
        push(queue);
        beside.wait_until("it is told", |page| shows(page, queue));
    }
    assert_eq!(
        asked(),
        before,
        "{:?}",
        page.events("Network.requestWillBeSent").last()
    );
    assert!(!shows(&page, "first"));
    page.click("button", "Paused");
    page.wait_until("it is live again", |page| shows(page, "third"));
}

#[test]
fn a_theme_that_was_chosen_stays() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    page.go(&site.at("/"));
    page.click("button", "Theme: system");
    page.click("button", "Theme: light");
    page.go(&site.at("/jobs"));
    assert_eq!(page.eval("document.documentElement.dataset.theme"), "dark");
    page.find("button", "Theme: dark");
}
