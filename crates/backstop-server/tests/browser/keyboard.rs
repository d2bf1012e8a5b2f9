//! The keyboard alone.

use crate::page::{ESCAPE, Page, TAB};
use crate::rules;
use crate::site::Site;

#[test]
fn g_and_a_letter_goes_to_a_section() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    page.go(&site.at("/"));
    for (key, path) in [("q", "/queues"), ("j", "/jobs"), ("d", "/dead"), ("s", "/streams"), ("o", "/")] {
        page.after(|| page.press(&format!("g{key}")));
        assert_eq!(page.address(), site.at(path), "g {key}");
    }
}

#[test]
fn a_question_mark_shows_the_keys_and_escape_puts_them_away() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    page.go(&site.at("/queues"));
    page.press("?");
    page.find("dialog", "Keys");
    rules::check_dialog(&page);
    page.press_key(ESCAPE);
    assert!(page.tree().iter().all(|node| node.role != "dialog"));
}

#[test]
fn a_slash_goes_to_the_filter_and_letters_typed_there_are_no_shortcuts() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    page.go(&site.at("/jobs"));
    page.press("/");
    page.press("gq");
    assert_eq!(page.address(), site.at("/jobs"));
    assert_eq!(page.eval("document.activeElement.value"), "gq");
}

#[test]
fn the_first_tab_leads_past_the_navigation() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    page.go(&site.at("/queues"));
    page.press_key(TAB);
    assert_eq!(page.eval("document.activeElement.textContent"), "Skip to content");
}
