//! What a page offers to do, it does: with the mouse, with script and without, and the store shows it.

use crate::page::{Node, Page};
use crate::rules;
use crate::site::Site;
use backstop::core::amend::Filter;
use backstop::core::port::{Gate, PageQuery, QueueStatus};
use backstop::{JobId, State, StreamKey};

/// With script, and without.
fn visitors() -> [Page; 2] {
    [Page::open(), Page::open().without_script()]
}

/// Goes there, and stops live updates: what is clicked on stays where it is.
fn enter(page: &Page, site: &Site, path: &str) {
    page.go(&site.at(path));
    if page.tree().iter().any(|node| node.role == "button" && node.name == "Live") {
        page.click("button", "Live");
        page.find("button", "Paused");
    }
}

/// Follows what leads to another page, which must keep the rules.
fn follow(page: &Page, role: &str, name: &str) {
    page.after(|| page.click(role, name));
    assert!(page.status() < 400, "{role} {name:?} of {} led to {}", page.address(), page.status());
    rules::check(page);
}

/// Opens what asks before it does something, and says yes.
fn confirm(page: &Page, question: &str, answer: &str) {
    page.click("DisclosureTriangle", question);
    follow(page, "button", answer);
}

impl Site {
    fn queue(&self, name: &str) -> QueueStatus {
        let queues = self.wait(self.backstop.store().queues(self.backstop.now())).unwrap();
        queues.into_iter().find(|queue| queue.name.as_str() == name).unwrap()
    }

    /// A job of a queue in a state.
    fn a_job(&self, queue: &str, state: State) -> JobId {
        let filter = Filter { queue: Some(queue.parse().unwrap()), state: Some(state), ..Filter::default() };
        let query = PageQuery { filter, limit: 1, ..PageQuery::default() };
        let page = self.wait(self.backstop.store().jobs(query, self.backstop.now())).unwrap();
        page.jobs.first().unwrap_or_else(|| panic!("no {state} job in {queue}")).id
    }

    fn state(&self, id: JobId) -> State {
        self.wait(self.backstop.job(id)).unwrap().unwrap().state
    }
}

#[test]
fn a_queue_is_paused_and_resumed() {
    for page in visitors() {
        let site = Site::filled(&["plain"]);
        enter(&page, &site, "/queues");
        follow(&page, "button", "Pause mail");
        assert_eq!(site.queue("mail").gate, Gate::Paused);
        follow(&page, "button", "Resume mail");
        assert_eq!(site.queue("mail").gate, Gate::Open);
        page.go(&site.at("/queues/mail"));
        follow(&page, "button", "Pause");
        assert_eq!(site.queue("mail").gate, Gate::Paused);
    }
}

#[test]
fn a_job_is_retried_and_another_is_cancelled() {
    for page in visitors() {
        let site = Site::filled(&["plain"]);
        let (failed, waiting) =
            (site.a_job("failing", State::Retrying), site.a_job("mail", State::Scheduled));
        enter(&page, &site, &format!("/jobs/{failed}"));
        confirm(&page, "Retry…", "Yes, retry it");
        assert_eq!(site.state(failed), State::Ready);
        page.go(&site.at(&format!("/jobs/{waiting}")));
        confirm(&page, "Cancel…", "Yes, cancel it");
        assert_eq!(site.state(waiting), State::Cancelled);
    }
}

#[test]
fn a_group_of_dead_letters_is_requeued_after_a_question() {
    for page in visitors() {
        let site = Site::filled(&["plain"]);
        enter(&page, &site, "/dead?queue=dying");
        follow(&page, "link", "Requeue…");
        assert!(site.queue("dying").counts.of(State::Dead) > 0, "a question changes nothing");
        follow(&page, "button", "Yes, requeue");
        page.wait_until("all are requeued", |_| site.queue("dying").counts.of(State::Dead) == 0);
    }
}

#[test]
fn a_dead_letter_is_moved_to_another_queue() {
    for page in visitors() {
        let site = Site::filled(&["plain"]);
        let letter = site.a_job("dying", State::Dead);
        enter(&page, &site, &format!("/dead/{letter}"));
        page.click("DisclosureTriangle", "Move…");
        page.fill("combobox", "To queue", "elsewhere");
        follow(&page, "button", "Move it");
        let job = site.wait(site.backstop.job(letter)).unwrap().unwrap();
        assert_eq!((job.queue.as_str(), job.state), ("elsewhere", State::Ready));
    }
}

#[test]
fn a_redrive_sends_a_few_first() {
    for page in visitors() {
        let site = Site::filled(&["plain"]);
        let before = site.queue("dying").counts.of(State::Dead);
        enter(&page, &site, "/dead?queue=dying");
        follow(&page, "link", "Redrive…");
        page.fill("spinbutton", "Letters that go first", "1");
        page.fill("spinbutton", "Of these may die again", "0");
        follow(&page, "button", "Start");
        page.wait_until("the first letter is out", |_| site.queue("dying").counts.of(State::Dead) < before);
    }
}

#[test]
fn a_schedule_is_run_now_paused_and_resumed() {
    for page in visitors() {
        let site = Site::filled(&["plain"]);
        let before = site.queue("digests").totals.enqueued;
        enter(&page, &site, "/schedules/digest");
        confirm(&page, "Run now…", "Run now");
        assert_eq!(site.queue("digests").totals.enqueued, before + 1);
        confirm(&page, "Pause…", "Pause");
        let paused = || site.wait(site.backstop.schedules().known()).unwrap()[0].1.paused.is_some();
        assert!(paused());
        follow(&page, "button", "Resume");
        assert!(!paused());
    }
}

#[test]
fn a_key_of_a_stream_is_forgotten_once_that_is_confirmed() {
    for page in visitors() {
        let site = Site::filled(&["plain"]);
        let stream = site.backstop.stream("uptime").unwrap();
        let key = StreamKey::new("plain").unwrap();
        assert!(site.wait(stream.key(&key)).unwrap().is_some());
        enter(&page, &site, "/streams/uptime");
        follow(&page, "link", "plain");
        page.click("DisclosureTriangle", "Forget…");
        page.click("checkbox", "Forget this key and what it holds");
        follow(&page, "button", "Forget");
        assert!(site.wait(stream.key(&key)).unwrap().is_none());
    }
}

#[test]
fn a_breaker_is_reset() {
    for page in visitors() {
        let site = Site::filled(&["plain"]);
        let shut = || {
            site.wait(site.backstop.breakers().list()).unwrap().iter().filter(|guard| guard.is_shut()).count()
        };
        assert_eq!(shut(), 1);
        enter(&page, &site, "/breakers");
        confirm(&page, "Reset…", "Yes, reset mail");
        assert_eq!(shut(), 0);
    }
}

#[test]
fn a_sweep_is_run_now() {
    for page in visitors() {
        let site = Site::filled(&["plain"]);
        enter(&page, &site, "/sweeps/orders");
        confirm(&page, "Run now…", "Run now");
        assert!(page.text().contains("orders"), "{}", page.text());
    }
}

#[test]
fn all_jobs_that_match_are_deleted_after_a_question() {
    for page in visitors() {
        let site = Site::filled(&["plain"]);
        enter(&page, &site, "/jobs?queue=done&state=done");
        page.click_on(|page| {
            let is_all = |node: &Node| node.role == "checkbox" && node.name.starts_with("instead, all");
            page.tree().into_iter().find(is_all).unwrap()
        });
        follow(&page, "button", "Delete…");
        assert_eq!(site.queue("done").counts.of(State::Done), 2, "a question changes nothing");
        page.fill("textbox", "Type delete to go on", "delete");
        follow(&page, "button", "Yes, delete");
        page.wait_until("all are gone", |_| site.queue("done").counts.of(State::Done) == 0);
    }
}
