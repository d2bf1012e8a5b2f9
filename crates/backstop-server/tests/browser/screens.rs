//! Small screens, and dark ones.

use crate::crawl::{ALIKE_MAX, SECTIONS, crawl};
use crate::page::Page;
use crate::site::Site;
use serde_json::json;

/// A telephone's, in pixels.
const WIDTH: u64 = 360;

/// What reaches beyond the screen, as far as nothing around it scrolls.
const BEYOND: &str = "(() => { \
const scrolls = (e) => e && e !== document.body && (getComputedStyle(e).overflowX !== 'visible' || scrolls(e.parentElement)); \
return [...document.body.querySelectorAll('*')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('details:not([open])') && !scrolls(e)) \
.slice(0, 5).map((e) => e.outerHTML.slice(0, 120)).join('\\n'); })()";

#[test]
fn no_page_is_wider_than_a_small_screen() {
    // Words that nothing can break, and ordinary ones.
    let long = "x".repeat(120);
    let site = Site::filled(&["ada@example.org", &long]);
    let page = Page::open();
    let small = json!({ "width": WIDTH, "height": 740, "deviceScaleFactor": 1, "mobile": false });
    page.call("Emulation.setDeviceMetricsOverride", &small);
    let mut wide = Vec::new();
    let seen = crawl(&site, &page, ALIKE_MAX, |page| {
        assert_eq!(page.eval("innerWidth"), WIDTH);
        let width = page.eval("document.documentElement.scrollWidth").as_u64().unwrap();
        if width > WIDTH {
            wide.push(format!("{} is {width} wide:\n{}", page.address(), page.eval(BEYOND)));
        }
    });
    assert!(seen.len() > SECTIONS.len(), "{seen:?}");
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn pages_are_dark_or_light_as_the_reader_likes() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    for path in SECTIONS {
        page.go(&site.at(path));
        let brightness = ["dark", "light"].map(|scheme| {
            let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
            page.call("Emulation.setEmulatedMedia", &media);
            let colour = page.eval("getComputedStyle(document.body).backgroundColor");
            let colour = colour.as_str().unwrap().to_owned();
            let parts =
                colour.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
            parts.take(3).sum::<u32>()
        });
        assert!(brightness[0] < 200 && brightness[1] > 600, "{path}: {brightness:?}");
    }
}
