//! What a page offers to do, it does: with the mouse, with script and without, and the store shows
//! it.

use crate::page::{Node, Page};
use crate::rules;
use crate::site::{BUSY, SECRET, Site};
use backstop::core::amend::Filter;
use backstop::core::port::{CellSwap, ListJobsRequest, QueueState, QueueStatus};
use backstop::core::worker_command::DesiredWorkerState;
use backstop::dead::redrive::RedriveReport;
use backstop::streams::KeyState;
use backstop::workers::LISTED;
use backstop::{JobId, JobState, StreamKey};
use serde_json::{Value, json};

/// With script, and without.
pub(crate) fn visitors() -> [Page; 2] {
    [Page::open(), Page::open().without_script()]
}

/// Goes there; with script it is live, and the store does not stand still.
fn enter(page: &Page, site: &Site, path: &str) {
    page.go(&site.at(path));
}

/// Follows what leads to another page, which must keep the rules.
pub(crate) fn follow(page: &Page, role: &str, name: &str) {
    page.after(|| page.click(role, name));
    assert!(
        page.status() < 400,
        "{role} {name:?} of {} led to {}",
        page.address(),
        page.status()
    );
    rules::check(page);
}

/// Opens what asks before it does something, and says yes.
pub(crate) fn confirm(page: &Page, question: &str, answer: &str) {
    page.click("DisclosureTriangle", question);
    follow(page, "button", answer);
}

impl Site {
    pub(crate) fn queue(&self, name: &str) -> QueueStatus {
        let queues = self
            .wait(self.backstop.store().queues(self.backstop.now()))
            .unwrap();
        queues
            .into_iter()
            .find(|queue| queue.name.as_str() == name)
            .unwrap()
    }

    /// A job of a queue in a state.
    pub(crate) fn a_job(&self, queue: &str, state: JobState) -> JobId {
        let filter = Filter {
            queue: Some(queue.parse().unwrap()),
            state: Some(state),
            ..Filter::default()
        };
        let query = ListJobsRequest {
            filter,
            limit: 1,
            ..ListJobsRequest::default()
        };
        let page = self
            .wait(self.backstop.store().jobs(query, self.backstop.now()))
            .unwrap();
        page.jobs
            .first()
            .unwrap_or_else(|| panic!("no {state} job in {queue}"))
            .id
    }

    pub(crate) fn state(&self, id: JobId) -> JobState {
        self.wait(self.backstop.job(id)).unwrap().unwrap().state
    }

    fn is_gone(&self, id: JobId) -> bool {
        self.wait(self.backstop.job(id)).unwrap().is_none()
    }

    /// How the only key of a stream stands.
    fn standing(&self, stream: &str) -> KeyState {
        let stream = self.backstop.stream(stream).unwrap();
        let stored = self
            .wait(stream.key(&StreamKey::new("plain").unwrap()))
            .unwrap()
            .unwrap();
        KeyState::from_bytes(&stored.state).unwrap()
    }

    /// The only redrive there is.
    fn redrive(&self) -> RedriveReport {
        self.wait(self.backstop.dead().redrives())
            .unwrap()
            .remove(0)
    }

    /// A bulk action as it is written down.
    fn run(&self, id: &str) -> Value {
        let cell = self
            .wait(self.backstop.store().cells(vec![format!("bulk/{id}")]))
            .unwrap();
        serde_json::from_slice(&cell[0].as_ref().unwrap().value).unwrap()
    }

    /// Sets one back to how the server that had it would have left it; a server that goes on with
    /// it meanwhile has it then.
    fn set_run_back(&self, id: &str, is_left: bool) {
        let (store, name) = (self.backstop.store(), format!("bulk/{id}"));
        let cell = self
            .wait(store.cells(vec![name.clone()]))
            .unwrap()
            .pop()
            .flatten()
            .unwrap();
        let mut run: Value = serde_json::from_slice(&cell.value).unwrap();
        run["ended_at"] = Value::Null;
        run["is_left"] = is_left.into();
        run["is_stop_asked"] = false.into();
        run["seen_at"] = json!(self.backstop.now());
        let (version, value) = (
            cell.version.wrapping_add(1),
            Some(run.to_string().into_bytes()),
        );
        self.wait(store.swap(vec![CellSwap {
            name,
            seen: Some(cell.version),
            version,
            value,
        }]))
        .unwrap();
    }
}

/// Chooses all that match, instead of some.
pub(crate) fn choose_all(page: &Page) {
    page.click_on(|page| {
        let is_all = |node: &Node| node.role == "checkbox" && node.name.starts_with("instead, all");
        page.tree().into_iter().find(is_all).unwrap()
    });
}

fn has_button(page: &Page, name: &str) -> bool {
    page.tree()
        .iter()
        .any(|node| node.role == "button" && node.name == name)
}

#[test]
fn a_queue_is_paused_and_resumed() {
    for page in visitors() {
        let site = Site::busy();
        enter(&page, &site, "/queues");
        confirm(&page, "Pause mail…", "Yes, pause mail");
        assert_eq!(site.queue("mail").state, QueueState::Paused);
        follow(&page, "button", "Resume mail");
        assert_eq!(site.queue("mail").state, QueueState::Active);
        page.go(&site.at("/queues/mail"));
        confirm(&page, "Pause…", "Pause");
        assert_eq!(site.queue("mail").state, QueueState::Paused);
        page.go(&site.at("/queues"));
        confirm(&page, "Pause all queues…", "Yes, pause all queues");
        assert_eq!(site.queue("failing").state, QueueState::Paused);
        confirm(&page, "Resume all…", "Yes, resume them");
        assert_eq!(
            (site.queue("failing").state, site.queue("mail").state),
            (QueueState::Active, QueueState::Paused)
        );
    }
}

#[test]
fn a_job_is_retried_and_another_is_cancelled() {
    for page in visitors() {
        let site = Site::busy();
        let (failed, waiting) = (
            site.a_job("failing", JobState::Retrying),
            site.a_job("mail", JobState::Scheduled),
        );
        enter(&page, &site, &format!("/jobs/{failed}"));
        confirm(&page, "Retry…", "Yes, retry it");
        assert_eq!(site.state(failed), JobState::Ready);
        page.go(&site.at(&format!("/jobs/{waiting}")));
        confirm(&page, "Cancel…", "Yes, cancel it");
        assert_eq!(site.state(waiting), JobState::Cancelled);
    }
}

#[test]
fn a_group_of_dead_letters_is_requeued_after_a_question() {
    for page in visitors() {
        let site = Site::busy();
        enter(&page, &site, "/dead?queue=dying");
        follow(&page, "link", "Requeue…");
        assert!(
            site.queue("dying").counts.of(JobState::Dead) > 0,
            "a question changes nothing"
        );
        follow(&page, "button", "Yes, requeue");
        page.wait_until("all are requeued", |_| {
            site.queue("dying").counts.of(JobState::Dead) == 0
        });
    }
}

#[test]
fn a_dead_letter_is_moved_to_another_queue() {
    for page in visitors() {
        let site = Site::busy();
        let letter = site.a_job("dying", JobState::Dead);
        enter(&page, &site, &format!("/dead/{letter}"));
        page.click("DisclosureTriangle", "Move…");
        page.fill("combobox", "To queue", "elsewhere");
        follow(&page, "button", "Move it");
        let job = site.wait(site.backstop.job(letter)).unwrap().unwrap();
        assert_eq!(
            (job.queue.as_str(), job.state),
            ("elsewhere", JobState::Ready)
        );
    }
}

#[test]
fn a_redrive_sends_a_few_first() {
    for page in visitors() {
        let site = Site::busy();
        let before = site.queue("dying").counts.of(JobState::Dead);
        enter(&page, &site, "/dead?queue=dying");
        follow(&page, "link", "Redrive…");
        page.fill("spinbutton", "Letters that go first", "1");
        page.fill("spinbutton", "Of these may die again", "0");
        follow(&page, "button", "Start");
        page.wait_until("the first letter is out", |_| {
            site.queue("dying").counts.of(JobState::Dead) < before
        });
    }
}

#[test]
fn a_schedule_is_run_now_paused_and_resumed() {
    for page in visitors() {
        let site = Site::busy();
        let before = site.queue("digests").totals.enqueued;
        enter(&page, &site, "/schedules/digest");
        confirm(&page, "Run now…", "Run now");
        assert_eq!(site.queue("digests").totals.enqueued, before + 1);
        confirm(&page, "Pause…", "Pause");
        let paused = || {
            site.wait(site.backstop.schedules().list_known()).unwrap()[0]
                .1
                .paused
                .is_some()
        };
        assert!(paused());
        follow(&page, "button", "Resume");
        assert!(!paused());
    }
}

#[test]
fn a_schedule_is_paused_from_the_list_only_after_a_question() {
    for page in visitors() {
        let site = Site::busy();
        let paused = || {
            site.wait(site.backstop.schedules().list_known()).unwrap()[0]
                .1
                .paused
                .is_some()
        };
        enter(&page, &site, "/schedules");
        assert!(
            !has_button(&page, "Pause digest"),
            "one click pauses nothing"
        );
        confirm(&page, "Pause digest…", "Yes, pause digest");
        assert!(paused());
        follow(&page, "button", "Resume digest");
        assert!(!paused());
    }
}

#[test]
fn a_key_of_a_stream_is_disabled_and_enabled() {
    for page in visitors() {
        let site = Site::busy();
        enter(&page, &site, "/streams/uptime/keys/plain");
        page.click("DisclosureTriangle", "Disable…");
        page.click("checkbox", "Forget this key and ignore its records");
        follow(&page, "button", "Disable");
        assert!(site.standing("uptime").disabled);
        follow(&page, "button", "Enable");
        let stream = site.backstop.stream("uptime").unwrap();
        let stored = site
            .wait(stream.key(&StreamKey::new("plain").unwrap()))
            .unwrap();
        assert!(stored.is_none_or(|stored| !KeyState::from_bytes(&stored.state).unwrap().disabled));
    }
}

#[test]
fn a_key_that_halted_goes_on_with_its_record_or_past_it() {
    for page in visitors() {
        for is_skipped in [false, true] {
            let site = Site::busy();
            assert_eq!(site.standing("halting").halted, Some(120_000));
            enter(&page, &site, "/streams/halting/keys/plain");
            if is_skipped {
                page.click("DisclosureTriangle", "Go on past it…");
                page.click("checkbox", "Go on without it");
                follow(&page, "button", "Go on past 120000");
            } else {
                follow(&page, "button", "Try it again");
            }
            assert_eq!(site.standing("halting").halted, None);
            // The next one is another site, and this one ends.
            page.go("about:blank");
        }
    }
}

#[test]
fn a_key_of_a_stream_is_forgotten_once_that_is_confirmed() {
    for page in visitors() {
        let site = Site::busy();
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
        let site = Site::busy();
        let shut = || {
            site.wait(site.backstop.breakers().list())
                .unwrap()
                .iter()
                .filter(|guard| guard.is_shut())
                .count()
        };
        assert_eq!(shut(), 1);
        enter(&page, &site, "/breakers");
        confirm(&page, "Reset mail…", "Yes, reset mail");
        assert_eq!(shut(), 0);
        page.click("DisclosureTriangle", "Open mail…");
        page.fill("textbox", "Why", "maintenance");
        follow(&page, "button", "Yes, stop mail");
        assert_eq!(shut(), 1);
    }
}

#[test]
fn a_worker_is_quieted_resumed_and_stopped() {
    for page in visitors() {
        let site = Site::busy();
        let name = format!("{BUSY} plain");
        let asked = || {
            let workers = site.wait(site.backstop.workers(LISTED)).unwrap();
            let worker = workers
                .into_iter()
                .find(|worker| worker.status.name.as_str() == name)
                .unwrap();
            worker.active_command.map(|order| order.desired_state)
        };
        enter(&page, &site, "/workers");
        confirm(
            &page,
            &format!("Quiet {name}…"),
            &format!("Yes, quiet {name}"),
        );
        assert_eq!(asked(), Some(DesiredWorkerState::Quiet));
        follow(&page, "button", &format!("Resume {name}"));
        assert_eq!(asked(), None);
        confirm(
            &page,
            &format!("Stop {name}…"),
            &format!("Yes, stop {name}"),
        );
        assert_eq!(asked(), Some(DesiredWorkerState::Stop));
    }
}

#[test]
fn a_job_and_a_dead_letter_are_deleted() {
    for page in visitors() {
        let site = Site::busy();
        for (section, queue, state) in [
            ("jobs", "mail", JobState::Scheduled),
            ("dead", "dying", JobState::Dead),
        ] {
            let id = site.a_job(queue, state);
            enter(&page, &site, &format!("/{section}/{id}"));
            confirm(&page, "Delete…", "Yes, delete it");
            assert!(site.is_gone(id), "{section}");
        }
    }
}

#[test]
fn a_payload_is_shown_whole_after_a_question_and_the_audit_says_so() {
    for page in visitors() {
        let site = Site::busy();
        enter(
            &page,
            &site,
            &format!("/jobs/{}", site.a_job("mail", JobState::Scheduled)),
        );
        assert!(!page.text().contains(SECRET), "{}", page.text());
        confirm(&page, "Show payload…", "Show it whole");
        assert!(page.text().contains(SECRET), "{}", page.text());
        let entries = site.wait(site.backstop.audit("").entries(1)).unwrap();
        assert!(entries[0].what.contains("payload"), "{entries:?}");
    }
}

#[test]
fn a_sweep_is_tried_and_its_rows_are_compared() {
    for page in visitors() {
        let site = Site::busy();
        for (link, said) in [
            ("Dry run", "Would get a job"),
            ("Compare rows and jobs", "They do not match."),
        ] {
            enter(&page, &site, "/sweeps/orders");
            follow(&page, "link", link);
            let address = page.address();
            // The database is asked in the background; the page says so until it has answered.
            page.wait_until(said, |page| {
                page.go(address.split('#').next().unwrap_or_default());
                page.text().contains(said)
            });
            rules::check(&page);
        }
        let queues = site
            .wait(site.backstop.store().queues(site.backstop.now()))
            .unwrap();
        assert!(
            queues.iter().all(|queue| queue.name.as_str() != "orders"),
            "looking changes nothing"
        );
    }
}

#[test]
fn an_outage_is_played_through_in_the_lab() {
    for page in visitors() {
        let site = Site::empty();
        enter(&page, &site, "/policy");
        follow(&page, "button", "Simulate the outage");
        page.find("heading", "The outage, played through");
    }
}

#[test]
fn a_redrive_is_gone_on_with_and_stopped() {
    for page in visitors() {
        let site = Site::busy();
        let id = site.redrive().id;
        assert!(site.redrive().stalled, "whoever ran it is gone");
        enter(&page, &site, &format!("/dead/redrives/{id}"));
        follow(&page, "button", "Go on here");
        page.wait_until("the server has it", |_| !site.redrive().stalled);
        page.go(&site.at(&format!("/dead/redrives/{id}")));
        confirm(&page, "Stop…", "Yes, stop it");
        page.wait_until("it has stopped", |_| site.redrive().phase.is_ended());
    }
}

#[test]
fn a_bulk_action_is_stopped_and_gone_on_with() {
    for page in visitors() {
        let site = Site::busy();
        enter(&page, &site, "/jobs?queue=mail&state=scheduled");
        choose_all(&page);
        follow(&page, "button", "Cancel…");
        follow(&page, "button", "Yes, cancel");
        let address = page.address();
        let id = address.rsplit('/').next().unwrap();
        let has_ended = || !site.run(id)["ended_at"].is_null();
        page.wait_until("its end", |_| has_ended());
        // As a server that is busy with it would have it.
        site.set_run_back(id, false);
        page.go(&address);
        follow(&page, "button", "Stop");
        assert_eq!(site.run(id)["is_stop_asked"], true);
        // As a server that is gone has left it: this one may see that before anybody has pressed
        // the button.
        page.wait_until("a run to go on with", |page| {
            site.set_run_back(id, true);
            page.go(&address);
            has_button(page, "Go on")
        });
        follow(&page, "button", "Go on");
        page.wait_until("its end", |_| has_ended());
    }
}

#[test]
fn a_sweep_is_run_now() {
    for page in visitors() {
        let site = Site::busy();
        enter(&page, &site, "/sweeps/orders");
        confirm(&page, "Run now…", "Run now");
        let orders = site.queue("orders");
        assert_eq!(
            (orders.counts.of(JobState::Ready), orders.totals.enqueued),
            (1, 1),
            "the lost row has its job"
        );
        assert!(page.text().contains("1 found"), "{}", page.text());
    }
}

#[test]
fn all_jobs_that_match_are_deleted_after_a_question() {
    for page in visitors() {
        let site = Site::busy();
        enter(&page, &site, "/jobs?queue=done&state=done");
        choose_all(&page);
        follow(&page, "button", "Delete…");
        assert_eq!(
            site.queue("done").counts.of(JobState::Done),
            2,
            "a question changes nothing"
        );
        page.fill("textbox", "Type delete to go on", "delete");
        follow(&page, "button", "Yes, delete");
        page.wait_until("all are gone", |_| {
            site.queue("done").counts.of(JobState::Done) == 0
        });
    }
}
