//! Every page: found by its links, named for those who cannot see it, quiet on the console, with
//! and without script.

use crate::crawl::{ALIKE_MAX, SECTIONS, crawl};
use crate::page::Page;
use crate::rules;
use crate::site::Site;
use backstop_server::pages::ADDRESSES;

/// Pages that no link leads to: those of a form that asks, one that forwards, and the one for
/// whoever is not let in.
const UNLINKED: [&str; 4] = [
    "/jobs/confirm",
    "/dead/confirm",
    "/streams/{stream}/key",
    "/login",
];

/// Parts that are put in place again and again: what they say would be said again and again.
const LOUD: &str = "document.body.dataset.events ? document.querySelectorAll('#head :is([role=alert], [role=status], [aria-live]), \
#live :is([role=alert], [role=status], [aria-live])').length : 0";

#[test]
fn every_page_is_reached_by_links_and_keeps_the_rules() {
    let site = Site::filled(&["ada@example.org"]);
    let page = Page::open();
    let seen = crawl(&site, &page, ALIKE_MAX, |page| {
        rules::check(page);
        assert_eq!(page.eval(LOUD), 0, "{}", page.address());
        page.keep("whole");
    });
    let unseen: Vec<&str> = ADDRESSES
        .into_iter()
        .filter(|address| !seen.iter().any(|path| page_of(path) == Some(*address)))
        .collect();
    let unlinked: Vec<&str> = unseen
        .into_iter()
        .filter(|address| !UNLINKED.contains(address))
        .collect();
    assert!(unlinked.is_empty(), "{unlinked:?} were not seen: {seen:#?}");
}

/// Which page an address leads to: the first that fits, and those that are named before those of a
/// name.
fn page_of(path: &str) -> Option<&'static str> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let fits = |pattern: &&str| {
        let (wanted, parts) = (pattern.split('/'), path.split('/'));
        wanted.clone().count() == parts.clone().count()
            && wanted
                .zip(parts)
                .all(|(wanted, part)| wanted.starts_with('{') || wanted == part)
    };
    ADDRESSES.into_iter().find(fits)
}

#[test]
fn a_store_with_nothing_in_it_teaches_the_next_step() {
    let site = Site::empty();
    let page = Page::open();
    for path in SECTIONS {
        page.go(&site.at(path));
        assert_eq!(page.status(), 200, "{path}");
        rules::check(&page);
    }
    page.go(&site.at("/jobs"));
    assert!(page.text().contains("backstop push"), "{}", page.text());
}

#[test]
fn every_page_is_whole_without_script() {
    let site = Site::filled(&["ada@example.org"]);
    let page = Page::open().without_script();
    for path in SECTIONS
        .into_iter()
        .chain(["/queues/mail", "/streams/uptime", "/schedules/digest"])
    {
        page.go(&site.at(path));
        assert_eq!(page.status(), 200, "{path}");
        rules::check(&page);
    }
}

#[test]
fn what_is_not_there_is_a_page_that_says_so() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    for path in [
        "/no/such/page",
        "/jobs/00000000-0000-7000-8000-000000000000",
        "/streams/none",
        "/schedules/none",
    ] {
        page.go(&site.at(path));
        assert_eq!(page.status(), 404, "{path}");
        rules::check(&page);
    }
}
