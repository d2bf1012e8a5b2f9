//! Small screens, and dark ones.

use crate::crawl::{ALIKE_MAX, SECTIONS, crawl};
use crate::page::Page;
use crate::site::Site;

/// A telephone's, in pixels.
const WIDTH: u64 = 360;

/// Opens all that can be unfolded; a question has a test of its own.
const UNFOLDED: &str =
    "for (const each of document.querySelectorAll('details:not(.confirm)')) each.open = true";

/// What reaches beyond the screen on either side, as far as nothing around it scrolls.
const BEYOND: &str = "(() => { \
const scrolls = (e) => e && e !== document.body && (getComputedStyle(e).overflowX !== 'visible' || scrolls(e.parentElement)); \
return [...document.body.querySelectorAll('*')].filter((e) => (e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1) && e.checkVisibility() && !e.closest('.away, .skip') && !e.closest('details:not([open])') && !scrolls(e)) \
.slice(0, 5).map((e) => e.outerHTML.slice(0, 120)).join('\\n'); })()";

#[test]
fn no_page_is_wider_than_a_small_screen() {
    // Words that nothing can break, and ordinary ones.
    let long = "x".repeat(120);
    let site = Site::filled(&["ada@example.org", &long]);
    let page = Page::open();
    page.sized(WIDTH, 740);
    let mut wide = Vec::new();
    let seen = crawl(&site, &page, ALIKE_MAX, |page| {
        assert_eq!(page.eval("innerWidth"), WIDTH);
        page.keep("small");
        page.eval(UNFOLDED);
        let beyond = page.eval(BEYOND);
        if beyond != ""
            || page
                .eval("document.documentElement.scrollWidth")
                .as_u64()
                .unwrap()
                > WIDTH
        {
            wide.push(format!("{}:\n{beyond}", page.address()));
        }
    });
    assert!(seen.len() > SECTIONS.len(), "{seen:?}");
    assert!(wide.is_empty(), "{wide:#?}");
}

/// Words in the first cells of rows that go on in another line.
const BROKEN: &str = "(() => { \
const broken = []; \
for (const { firstChild: text } of document.querySelectorAll('tbody th.break')) for (const word of text.data.matchAll(/\\S+/g)) { \
const range = document.createRange(); range.setStart(text, word.index); range.setEnd(text, word.index + word[0].length); \
if (range.getClientRects().length > 1) broken.push(word[0]); } \
return broken.join(' '); })()";

#[test]
fn a_narrow_table_keeps_the_names_of_workers_whole() {
    let name = "a_worker_of_one_word";
    let site = Site::filled(&[name]);
    let page = Page::open();
    page.sized(600, 740);
    page.go(&site.at("/workers"));
    assert!(page.text().contains(name), "{}", page.text());
    assert_eq!(page.eval(BROKEN), "");
}

#[test]
fn pages_are_dark_or_light_as_the_reader_likes() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    for path in SECTIONS {
        page.go(&site.at(path));
        let brightness = ["dark", "light"].map(|scheme| {
            page.coloured(scheme);
            page.keep(scheme);
            let colour = page.eval("getComputedStyle(document.body).backgroundColor");
            let colour = colour.as_str().unwrap().to_owned();
            let parts = colour
                .split(|c: char| !c.is_ascii_digit())
                .filter_map(|part| part.parse::<u32>().ok());
            parts.take(3).sum::<u32>()
        });
        assert!(
            brightness[0] < 200 && brightness[1] > 600,
            "{path}: {brightness:?}"
        );
    }
}
