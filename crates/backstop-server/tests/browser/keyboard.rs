//! The keyboard alone.

use crate::page::{ENTER, ESCAPE, Page, TAB};
use crate::rules;
use crate::site::Site;

#[test]
fn g_and_a_letter_goes_to_a_section() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    page.go(&site.at("/"));
    for (key, path) in [
        ("q", "/queues"),
        ("j", "/jobs"),
        ("d", "/dead"),
        ("s", "/streams"),
        ("o", "/"),
    ] {
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
    assert_eq!(
        page.eval("document.activeElement.textContent"),
        "Skip to content"
    );
}

/// The row that has the focus, counted from the first.
const ROW: &str =
    "[...document.querySelectorAll('tbody tr')].indexOf(document.activeElement.closest('tr'))";
const PICKED: &str = "document.querySelectorAll('input[name=id]:checked').length";

#[test]
fn p_stops_live_updates_and_goes_on_with_them() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    page.go(&site.at("/jobs"));
    page.find("button", "Live");
    page.press("p");
    page.find("button", "Paused");
    page.press("p");
    page.find("button", "Live");
}

#[test]
fn j_and_k_walk_the_rows_and_x_selects_one() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    page.go(&site.at("/jobs"));
    page.press("p");
    for (key, row) in [("j", 0), ("j", 1), ("j", 2), ("k", 1)] {
        page.press(key);
        assert_eq!(page.eval(ROW), row, "{key}");
    }
    page.press("x");
    assert_eq!(page.eval(PICKED), 1);
    assert_eq!(
        page.eval("document.activeElement.closest('tr').querySelector('input').checked"),
        true
    );
    assert_eq!(
        page.eval("document.querySelector('[data-picked]').textContent"),
        "1 selected"
    );
    page.press("x");
    assert_eq!(page.eval(PICKED), 0);
}

#[test]
fn n_goes_to_the_next_page_and_shift_n_back() {
    let site = Site::filled(&["plain"]);
    for n in 0..60 {
        site.wait(site.backstop.draft("many").json(&n).push())
            .unwrap();
    }
    let page = Page::open();
    page.go(&site.at("/jobs?queue=many"));
    page.after(|| page.press("n"));
    assert!(page.address().contains("after="), "{}", page.address());
    rules::check(&page);
    page.after(|| page.press("N"));
    assert_eq!(page.address(), site.at("/jobs?queue=many"));
}

#[test]
fn one_box_picks_all_rows_of_a_page() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    page.go(&site.at("/jobs"));
    page.press("p");
    let rows = page.eval("document.querySelectorAll('input[name=id][type=checkbox]').length");
    assert!(rows.as_u64() > Some(2), "{rows}");
    page.click("checkbox", "Select all jobs of this page");
    assert_eq!(page.eval(PICKED), rows);
    page.click("checkbox", "Select all jobs of this page");
    assert_eq!(page.eval(PICKED), 0);
}

#[test]
fn an_id_is_copied_with_and_without_a_clipboard() {
    let site = Site::filled(&["plain"]);
    let id = site
        .wait(site.backstop.draft("copied").json(&1).push())
        .unwrap()
        .id
        .to_string();
    // Where a page may not use the clipboard, it selects what is to be copied.
    for clipboard in [
        "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }",
        "navigator.clipboard.writeText = () => Promise.reject(new Error('closed')); \
         document.addEventListener('copy', () => { window.copied = document.activeElement.value; })",
    ] {
        let page = Page::open();
        page.go(&site.at(&format!("/jobs/{id}")));
        page.press("p");
        page.eval(&format!("(() => {{ {clipboard} }})()"));
        page.click("button", "Copy id");
        page.wait_until("it is copied", |page| {
            page.eval("window.copied ?? ''") == id.as_str()
        });
        assert_eq!(
            page.eval("document.getElementById('said').textContent"),
            "Copied"
        );
    }
}

#[test]
fn letters_are_no_shortcuts_for_who_switches_them_off() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    page.go(&site.at("/jobs"));
    page.press("?");
    page.click("checkbox", "Letters are shortcuts");
    page.press_key(ESCAPE);
    page.go(&site.at("/queues"));
    page.press("gj?p");
    assert_eq!(page.address(), site.at("/queues"));
    page.find("button", "Live");
    // The list stays within reach, and with it the way back.
    page.click("button", "Keys ?");
    page.click("checkbox", "Letters are shortcuts");
    page.press_key(ESCAPE);
    page.after(|| page.press("gj"));
    assert_eq!(page.address(), site.at("/jobs"));
}

#[test]
fn exact_times_are_a_button_or_a_touch_away() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    page.go(&site.at("/jobs?text=plain"));
    let told = || {
        page.eval("document.querySelector('tbody time').textContent")
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(told().ends_with(" ago"), "{}", told());
    page.eval("document.getElementById('times').focus()");
    page.press_key(ENTER);
    assert!(told().ends_with(" UTC"), "{}", told());
    page.eval("document.querySelector('tbody time').click()");
    page.find("button", "Times: local");
    page.go(&site.at("/jobs?text=plain&state=done"));
    page.find("button", "Times: local");
}
