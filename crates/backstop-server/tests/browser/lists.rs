//! Lists: filters that are filled in, rows that are selected one by one, pages forth and back.

use crate::acts::{choose_all, follow, visitors};
use crate::page::{Node, Page};
use crate::site::Site;
use backstop::JobState;

/// Selects the first row.
fn select_first(page: &Page) {
    page.click_on(|page| {
        let is_row = |node: &Node| node.role == "checkbox" && node.name.starts_with("Select 0");
        page.tree().into_iter().find(is_row).unwrap()
    });
}

#[test]
fn jobs_are_found_by_queue_and_kind() {
    for page in visitors() {
        let site = Site::busy();
        page.go(&site.at("/jobs"));
        page.fill("combobox", "Queue", "mail");
        page.fill("combobox", "Kind", "plain");
        follow(&page, "button", "Find");
        assert!(
            page.address().contains("queue=mail") && page.address().contains("kind=plain"),
            "{}",
            page.address()
        );
        page.find("link", "Without queue mail");
        page.fill("combobox", "Kind", "nothing-of-it");
        follow(&page, "button", "Find");
        assert!(page.text().contains("No job fits"), "{}", page.text());
    }
}

#[test]
fn a_selected_job_is_cancelled_and_the_others_are_not() {
    for page in visitors() {
        let site = Site::busy();
        page.go(&site.at("/jobs?queue=failing"));
        select_first(&page);
        follow(&page, "button", "Cancel…");
        follow(&page, "button", "Yes, cancel");
        let counts = site.queue("failing").counts;
        assert_eq!(
            (
                counts.of(JobState::Cancelled),
                counts.of(JobState::Retrying)
            ),
            (1, 1)
        );
    }
}

#[test]
fn dead_letters_are_found_by_text_and_a_selected_one_is_requeued() {
    for page in visitors() {
        let site = Site::busy();
        page.go(&site.at("/dead?queue=dying&view=letters"));
        page.fill("textbox", "Text in the error or payload", "plain");
        follow(&page, "button", "Find");
        let before = site.queue("dying").counts.of(JobState::Dead);
        select_first(&page);
        follow(&page, "button", "Requeue…");
        follow(&page, "button", "Yes, requeue");
        assert_eq!(site.queue("dying").counts.of(JobState::Dead), before - 1);
    }
}

#[test]
fn all_dead_letters_that_match_are_moved_or_deleted() {
    for page in visitors() {
        let site = Site::busy();
        page.go(&site.at("/dead?queue=dying&view=letters"));
        choose_all(&page);
        follow(&page, "button", "Move…");
        page.fill("combobox", "To queue", "elsewhere");
        follow(&page, "button", "Yes, move");
        page.wait_until("all are moved", |_| {
            site.queue("dying").counts.of(JobState::Dead) == 0
        });
        assert_eq!(site.queue("elsewhere").counts.of(JobState::Ready), 2);
        let site = Site::busy();
        page.go(&site.at("/dead?queue=dying&view=letters"));
        choose_all(&page);
        follow(&page, "button", "Delete…");
        page.fill("textbox", "Type delete to go on", "delete");
        follow(&page, "button", "Yes, delete");
        page.wait_until("all are gone", |_| {
            site.queue("dying").counts.of(JobState::Dead) == 0
        });
    }
}

#[test]
fn a_key_and_a_window_are_opened() {
    for page in visitors() {
        let site = Site::busy();
        page.go(&site.at("/streams/uptime"));
        page.fill("textbox", "Key", "plain");
        follow(&page, "button", "Open key");
        page.find("heading", "plain");
        page.go(&site.at("/"));
        follow(&page, "link", "24 hours");
        assert!(page.address().ends_with("window=24h"), "{}", page.address());
    }
}

#[test]
fn pages_go_forth_and_back() {
    for page in visitors() {
        let site = Site::filled(&["plain"]);
        for n in 0..160 {
            site.wait(site.backstop.draft("many").json(&n).push())
                .unwrap();
        }
        page.go(&site.at("/jobs?queue=many"));
        let first = |page: &Page| {
            let ids = page
                .tree()
                .into_iter()
                .filter(|node| node.role == "link" && node.name.contains('…'));
            ids.map(|node| node.name).next().unwrap_or_default()
        };
        let mut seen = vec![first(&page)];
        for _ in 0..2 {
            follow(&page, "link", "Next page");
            seen.push(first(&page));
        }
        follow(&page, "link", "Page before");
        assert_eq!(first(&page), seen[1]);
        follow(&page, "link", "Page before");
        assert_eq!(
            (first(&page), page.address()),
            (seen[0].clone(), site.at("/jobs?queue=many"))
        );
    }
}
