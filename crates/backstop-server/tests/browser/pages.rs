//! Every page: found by its links, named for those who cannot see it, quiet on the console, with and without script.

use crate::crawl::{ALIKE_MAX, SECTIONS, crawl};
use crate::page::Page;
use crate::rules;
use crate::site::Site;
use backstop_server::pages::ADDRESSES;

/// Pages that no link leads to: a form does, or there is nothing of the kind on this site.
const BY_FORM: [&str; 5] =
    ["/jobs/confirm", "/jobs/runs", "/jobs/runs/{id}", "/streams/{stream}/key", "/login"];

/// Parts that are put in place again and again: what they say would be said again and again.
const LOUD: &str = "document.body.dataset.events ? document.querySelectorAll('#head :is([role=alert], [role=status], [aria-live]), \
#live :is([role=alert], [role=status], [aria-live])').length : 0";

/// Whether an address of the router is that of a page.
fn is_of(address: &str, seen: &str) -> bool {
    let (address, seen) = (address.split('/'), seen.split(['?', '#']).next().unwrap_or_default().split('/'));
    let (address, seen): (Vec<&str>, Vec<&str>) = (address.collect(), seen.collect());
    let fits = |(part, seen): (&&str, &&str)| part.starts_with('{') || part == seen;
    address.len() == seen.len() && address.iter().zip(&seen).all(fits)
}

#[test]
fn every_page_is_reached_by_links_and_keeps_the_rules() {
    let site = Site::filled(&["ada@example.org"]);
    let page = Page::open();
    let seen = crawl(&site, &page, ALIKE_MAX, |page| {
        rules::check(page);
        assert_eq!(page.eval(LOUD), 0, "{}", page.address());
        page.keep("whole");
    });
    for address in ADDRESSES.into_iter().filter(|address| !BY_FORM.contains(address)) {
        assert!(seen.iter().any(|seen| is_of(address, seen)), "{address} was not seen: {seen:#?}");
    }
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
    for path in SECTIONS.into_iter().chain(["/queues/mail", "/streams/uptime", "/schedules/digest"]) {
        page.go(&site.at(path));
        assert_eq!(page.status(), 200, "{path}");
        rules::check(&page);
    }
}

#[test]
fn what_is_not_there_is_a_page_that_says_so() {
    let site = Site::filled(&["plain"]);
    let page = Page::open();
    for path in
        ["/no/such/page", "/jobs/00000000-0000-7000-8000-000000000000", "/streams/none", "/schedules/none"]
    {
        page.go(&site.at(path));
        assert_eq!(page.status(), 404, "{path}");
        rules::check(&page);
    }
}
