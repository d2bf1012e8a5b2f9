//! The way through the pages of a list, and back.
//!
//! Stores only tell where the next page begins. So an address carries where the pages before it
//! began, as `past`, the oldest first; the first page of all begins nowhere and is not among them.
//! Of many the latest are kept, behind an empty one: from there on the way back is to the first
//! page.

use super::PageView;
use super::link::PageLink;

/// The parameter that says where earlier pages began.
const PAST: &str = "past";
/// Pages before that an address carries.
const PAST_MAX: usize = 20;

/// Where somebody is in a list.
pub(super) struct PaginationState {
    /// The parameter that says where a page begins.
    name: &'static str,
    at: Option<String>,
    past: Vec<String>,
}

/// The links below a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct PaginationLinks {
    pub(super) first: Option<String>,
    pub(super) before: Option<String>,
    pub(super) next: Option<String>,
    /// What the way on is called.
    pub(super) next_word: &'static str,
    /// In which order the list comes.
    pub(super) order: &'static str,
    /// The place on the page that the links lead to, with its `#`.
    pub(super) place: &'static str,
}

impl PaginationState {
    /// What an address says, whose parameter `name` is where its page begins.
    pub(super) fn of(view: &PageView, name: &'static str) -> Self {
        let past: Vec<String> = view.query_all(PAST).map(str::to_owned).collect();
        Self {
            name,
            at: view.query_exact(name).map(str::to_owned),
            past,
        }
    }

    /// The ways from here, in the list at `list`; `next` is where the next page begins.
    pub(super) fn pages(self, list: &PageLink, next: Option<String>) -> PaginationLinks {
        let to = |at: Option<&String>, past: &[String]| {
            let link = list.clone().with_some(self.name, at);
            past.iter()
                .fold(link, |link, past| link.and(PAST, past))
                .to_string()
        };
        let walked: Vec<String> = self.past.iter().chain(&self.at).cloned().collect();
        let before = match (&self.at, self.past.split_last()) {
            (None, _) => None,
            (Some(_), None) => Some(to(None, &[])),
            (Some(_), Some((last, _))) if last.is_empty() => None,
            (Some(_), Some((last, rest))) => Some(to(Some(last), rest)),
        };
        PaginationLinks {
            next: next.map(|next| to(Some(&next), &latest_pages(walked))),
            first: self
                .past
                .first()
                .filter(|_| self.at.is_some())
                .map(|_| list.to_string()),
            before,
            next_word: "Next page",
            ..PaginationLinks::default()
        }
    }
}

/// The latest pages of a way, behind an empty one where it is longer.
fn latest_pages(mut walked: Vec<String>) -> Vec<String> {
    let cut = walked.len().saturating_sub(PAST_MAX);
    if cut > 0 {
        walked.drain(..cut);
        walked[0] = String::new();
    }
    walked
}

impl PaginationLinks {
    /// With another word for the way on.
    #[must_use]
    pub(super) fn with_next_label(self, next_word: &'static str) -> Self {
        Self { next_word, ..self }
    }

    /// With a word about the order.
    #[must_use]
    pub(super) fn with_order(self, order: &'static str) -> Self {
        Self { order, ..self }
    }

    /// Leading to a place on the page.
    #[must_use]
    pub(super) fn with_anchor(self, place: &'static str) -> Self {
        Self { place, ..self }
    }

    /// Whether there is another page.
    pub(super) const fn are_several(&self) -> bool {
        self.next.is_some() || self.before.is_some() || self.first.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trail(at: Option<&str>, past: &[&str]) -> PaginationState {
        let past = past.iter().map(|past| (*past).to_owned()).collect();
        PaginationState {
            name: "after",
            at: at.map(str::to_owned),
            past,
        }
    }

    /// On the page that begins at `at` behind those of `past`: the ways back, first and on to `z`.
    fn check(at: Option<&str>, past: &[&str], ways: [Option<&str>; 3]) {
        let pages = trail(at, past).pages(&PageLink::to("/jobs"), Some("z".to_owned()));
        assert_eq!(
            [
                pages.before.as_deref(),
                pages.first.as_deref(),
                pages.next.as_deref()
            ],
            ways
        );
    }

    #[test]
    fn the_way_back_is_the_way_that_was_walked() {
        check(None, &[], [None, None, Some("/jobs?after=z")]);
        check(
            Some("b"),
            &[],
            [Some("/jobs"), None, Some("/jobs?after=z&past=b")],
        );
        check(
            Some("c"),
            &["b"],
            [
                Some("/jobs?after=b"),
                Some("/jobs"),
                Some("/jobs?after=z&past=b&past=c"),
            ],
        );
        check(
            Some("d"),
            &["b", "c"],
            [
                Some("/jobs?after=c&past=b"),
                Some("/jobs"),
                Some("/jobs?after=z&past=b&past=c&past=d"),
            ],
        );
    }

    #[test]
    fn an_address_carries_so_many_pages_and_then_leads_back_to_the_first() {
        let past: Vec<String> = (1..=PAST_MAX).map(|page| page.to_string()).collect();
        let past: Vec<&str> = past.iter().map(String::as_str).collect();
        let pages = trail(Some("x"), &past).pages(&PageLink::to("/jobs"), Some("z".to_owned()));
        let next = pages.next.unwrap();
        assert_eq!(next.matches("past=").count(), PAST_MAX, "{next}");
        assert!(next.starts_with("/jobs?after=z&past=&past=3&"), "{next}");
        check(
            Some("y"),
            &[""],
            [None, Some("/jobs"), Some("/jobs?after=z&past=&past=y")],
        );
    }
}
