//! Every page there is, by following every link.

use crate::page::Page;
use crate::site::Site;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Pages of one shape that are looked at where their texts are alike: more of the same shows
/// nothing new.
pub(crate) const ALIKE_MAX: usize = 2;
/// No crawl is longer, for each page of one shape.
const PAGES_MAX: usize = 50;

/// The pages of the navigation.
pub(crate) const SECTIONS: [&str; 13] = [
    "/",
    "/queues",
    "/kinds",
    "/jobs",
    "/dead",
    "/streams",
    "/schedules",
    "/sweeps",
    "/tables",
    "/workers",
    "/breakers",
    "/policy",
    "/audit",
];

/// By their attribute: the links of a drawing have no text for an address.
const LINKS: &str = "JSON.stringify([...document.querySelectorAll('a[href]')].map((a) => \
new URL(a.getAttribute('href'), location.href).href))";

/// Goes everywhere, to at most `alike_max` pages of one shape; `look` is called on each. Answers
/// the paths that were seen.
pub(crate) fn crawl(
    site: &Site,
    page: &Page,
    alike_max: usize,
    mut look: impl FnMut(&Page),
) -> BTreeSet<String> {
    let mut waiting: VecDeque<String> = SECTIONS.iter().map(|path| site.at(path)).collect();
    let mut known: BTreeSet<String> = waiting.iter().cloned().collect();
    let mut alike: BTreeMap<String, usize> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    while let Some(address) = waiting.pop_front() {
        let count = alike.entry(shape(&address)).or_default();
        *count += 1;
        if *count > alike_max || seen.len() >= PAGES_MAX * alike_max {
            continue;
        }
        page.go(&address);
        assert!(page.status() < 500, "{address} answered {}", page.status());
        look(page);
        seen.insert(address.trim_start_matches(site.url.as_str()).to_owned());
        let links = page.eval(LINKS);
        let links: Vec<String> = serde_json::from_str(links.as_str().unwrap()).unwrap();
        for link in links {
            let link = link.split('#').next().unwrap_or_default().to_owned();
            if link.starts_with(&format!("{}/", site.url)) && known.insert(link.clone()) {
                waiting.push_back(link);
            }
        }
    }
    seen
}

/// An address without what is different from row to row: names, ids and values.
fn shape(address: &str) -> String {
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let mut parts = path.split('/').skip(3);
    let section = parts.next().unwrap_or_default();
    let rest = parts
        .enumerate()
        .map(|(at, part)| if at % 2 == 0 { "*" } else { part });
    let names: BTreeSet<&str> = query
        .split('&')
        .filter_map(|pair| pair.split('=').next())
        .collect();
    format!("{section}/{}?{names:?}", rest.collect::<Vec<_>>().join("/"))
}
