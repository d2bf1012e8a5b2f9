//! Bulk actions: in the background, with progress, to the end.

use crate::given::{dead, ready, until_said};
use crate::site::Site;
use axum::http::StatusCode;
use backstop::core::amend::{AmendAction, Filter};
use backstop::core::failure::ErrorReport;
use backstop::core::limits::AMEND_MAX;
use backstop::core::port::CellSwap;
use backstop::search::JobSearch;
use backstop::{Backstop, JobState, RandomSource, Span};
use backstop_server::bulk::{BulkActions, BulkPlan, BulkStatus, BulkTarget};
use backstop_server::{App, resume};
use backstop_testkit::flaky::{Fault, Flaky, Odds};
use std::sync::Arc;
use std::time::Duration;

async fn count(site: &Site, state: JobState) -> u64 {
    let queues = site
        .test
        .backstop
        .store()
        .queues(site.test.backstop.now())
        .await
        .unwrap();
    queues.iter().map(|queue| queue.counts.of(state)).sum()
}

#[tokio::test]
async fn all_that_match_are_changed_in_the_background_and_nothing_else_is() {
    let site = Site::new("");
    for n in 0..40 {
        ready(
            &site.test.backstop,
            if n % 2 == 0 { "emails" } else { "billing" },
            &n.to_string(),
        )
        .await;
    }
    let confirm = site
        .page("/jobs/confirm?action=cancel&queue=emails&all=matching")
        .await;
    assert!(
        confirm.contains("<strong>20</strong> jobs") && confirm.contains("queue: emails"),
        "{confirm}"
    );
    let started = site
        .post("/jobs/act", "action=cancel&queue=emails&all=matching")
        .await;
    assert_eq!(started.status, StatusCode::SEE_OTHER);
    assert!(
        started.location.starts_with("/jobs/runs/"),
        "{}",
        started.location
    );
    let page = until_said(&site, &started.location, ">done<").await;
    assert!(
        page.contains("20 of 20") && page.contains("href=\"/jobs?queue=emails\""),
        "{page}"
    );
    assert_eq!(
        (
            count(&site, JobState::Cancelled).await,
            count(&site, JobState::Ready).await
        ),
        (20, 20)
    );
    assert_eq!(
        site.audit().await,
        [("token ada".to_owned(), "job cancel".to_owned())]
    );
    assert!(site.page("/jobs/runs").await.contains(&started.location));
}

#[tokio::test]
async fn every_job_there_is_must_be_meant() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    let confirm = site.page("/jobs/confirm?action=delete&all=matching").await;
    assert!(confirm.contains("every job of every queue"), "{confirm}");
    assert!(
        !site
            .page("/jobs/confirm?action=delete&queue=emails&all=matching")
            .await
            .contains("every job of every queue")
    );
}

#[tokio::test]
async fn all_jobs_that_match_are_deleted_only_once_the_word_is_typed() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    assert!(
        !site
            .page("/jobs/confirm?action=cancel&all=matching")
            .await
            .contains("typed")
    );
    let question = site.page("/jobs/confirm?action=delete&all=matching").await;
    assert!(
        question.contains("Type delete to go on") && question.contains("name=\"typed\""),
        "{question}"
    );
    for (form, back) in [
        (
            "action=delete&all=matching",
            "/jobs/confirm?action=delete&all=matching",
        ),
        (
            "action=delete&all=matching&queue=emails&typed=1",
            "/jobs/confirm?queue=emails&action=delete&all=matching",
        ),
    ] {
        assert_eq!(site.post("/jobs/act", form).await.location, back, "{form}");
    }
    assert_eq!(
        (count(&site, JobState::Ready).await, site.audit().await),
        (1, vec![])
    );
    let started = site
        .post("/jobs/act", "action=delete&all=matching&typed=delete")
        .await;
    until_said(&site, &started.location, ">done<").await;
    assert_eq!(count(&site, JobState::Ready).await, 0);
}

#[tokio::test]
async fn dead_letters_that_match_a_text_are_requeued_and_others_are_not() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    for n in 0..6 {
        let words = if n % 2 == 0 {
            "no answer"
        } else {
            "card declined"
        };
        dead(
            backstop,
            "emails",
            &n.to_string(),
            ErrorReport::message(words),
        )
        .await;
    }
    let started = site
        .post("/dead/act", "action=requeue&text=declined&all=matching")
        .await;
    let page = until_said(&site, &started.location, ">done<").await;
    assert!(
        page.contains("requeue") && page.contains("3 of 3"),
        "{page}"
    );
    assert_eq!(
        (
            count(&site, JobState::Ready).await,
            count(&site, JobState::Dead).await
        ),
        (3, 3)
    );
    assert_eq!(
        site.audit().await,
        [("token ada".to_owned(), "requeue".to_owned())]
    );
}

#[tokio::test]
async fn what_is_left_alone_is_named_with_its_reason() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    backstop
        .draft("q")
        .id("first")
        .kind("k")
        .unique_key("one")
        .payload("1")
        .push()
        .await
        .unwrap();
    crate::given::drain_dead(backstop, "q", "w", ErrorReport::message("boom")).await;
    let twin = backstop
        .draft("q")
        .id("second")
        .kind("k")
        .unique_key("one")
        .payload("1")
        .push()
        .await
        .unwrap()
        .id;
    let started = site
        .post("/dead/act", "action=requeue&queue=q&all=matching")
        .await;
    let page = until_said(&site, &started.location, ">done<").await;
    assert!(
        page.contains(&format!("job {twin} holds its unique key")),
        "{page}"
    );
}

#[tokio::test]
async fn a_run_whose_server_is_gone_says_so_and_goes_on() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    for n in 0..3 {
        ready(backstop, "emails", &n.to_string()).await;
    }
    let started = site
        .post("/jobs/act", "action=cancel&queue=emails&all=matching")
        .await;
    until_said(&site, &started.location, ">done<").await;
    cut_off(&site, &started.location, |_| ()).await;
    ready(backstop, "emails", "late").await;
    site.test.clock.advance(Span::minutes(1));
    let silent = site.page(&started.location).await;
    assert!(
        silent.contains(">silent<") && silent.contains("Go on"),
        "{silent}"
    );
    let resumed = site.post(&format!("{}/resume", started.location), "").await;
    assert_eq!(resumed.location, started.location);
    let page = until_said(&site, &started.location, ">done<").await;
    assert!(
        page.contains("<dd>4</dd>"),
        "what was done before counts: {page}"
    );
    assert_eq!(count(&site, JobState::Cancelled).await, 4);
    let again = site.post(&format!("{}/resume", started.location), "").await;
    assert_eq!(again.status, StatusCode::SEE_OTHER);
}

/// Sets a run that has ended back to how a server that was killed in the middle would have left it.
pub(crate) async fn cut_off(
    site: &Site,
    location: &str,
    change: impl FnOnce(&mut serde_json::Value),
) {
    let store = site.test.backstop.store();
    let name = format!("bulk/{}", location.trim_start_matches("/jobs/runs/"));
    let cell = store
        .cells(vec![name.clone()])
        .await
        .unwrap()
        .pop()
        .flatten()
        .unwrap();
    let mut report: serde_json::Value = serde_json::from_slice(&cell.value).unwrap();
    report["ended_at"] = serde_json::Value::Null;
    change(&mut report);
    let value = Some(serde_json::to_vec(&report).unwrap());
    store
        .swap(vec![CellSwap {
            name,
            seen: Some(cell.version),
            version: 7,
            value,
        }])
        .await
        .unwrap();
}

#[tokio::test]
async fn of_several_servers_one_goes_on_by_itself_with_a_run_whose_server_is_gone() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    ready(backstop, "emails", "a").await;
    let started = site
        .post("/jobs/act", "action=cancel&queue=emails&all=matching")
        .await;
    until_said(&site, &started.location, ">done<").await;
    cut_off(&site, &started.location, |_| ()).await;
    ready(backstop, "emails", "late").await;
    resume::resume_once(&site.app).await.unwrap();
    assert!(
        site.page(&started.location).await.contains(">running<"),
        "it may still have its server"
    );
    site.test.clock.advance(Span::minutes(1));
    let other = App::new(backstop.clone(), (*site.app.config()).clone(), "");
    let (one, two) = tokio::join!(resume::resume_once(&site.app), resume::resume_once(&other));
    one.and(two).unwrap();
    let page = until_said(&site, &started.location, ">done<").await;
    assert!(
        page.contains("<dd>2</dd>"),
        "what was done before counts: {page}"
    );
    assert_eq!(count(&site, JobState::Cancelled).await, 2);
    assert_eq!(
        site.audit().await,
        vec![("token ada".to_owned(), "job cancel".to_owned()); 2],
        "begun once, resumed once"
    );
}

#[tokio::test]
async fn a_run_that_was_asked_to_stop_when_its_server_went_is_stopped_and_does_no_more() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    let started = site
        .post("/jobs/act", "action=cancel&queue=emails&all=matching")
        .await;
    until_said(&site, &started.location, ">done<").await;
    cut_off(&site, &started.location, |report| {
        report["is_stop_asked"] = true.into();
    })
    .await;
    ready(&site.test.backstop, "emails", "late").await;
    site.test.clock.advance(Span::minutes(1));
    resume::resume_once(&site.app).await.unwrap();
    until_said(&site, &started.location, ">stopped<").await;
    assert_eq!(count(&site, JobState::Ready).await, 1);
}

#[tokio::test]
async fn a_run_that_has_ended_is_not_stopped() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    let started = site
        .post("/jobs/act", "action=cancel&queue=emails&all=matching")
        .await;
    until_said(&site, &started.location, ">done<").await;
    site.post(&format!("{}/stop", started.location), "").await;
    assert!(site.page(&started.location).await.contains(">done<"));
}

/// A server on the store of `site` whose calls take their time.
fn slow(site: &Site) -> (App, Arc<Flaky>) {
    let store = Arc::new(Flaky::new(Arc::clone(site.test.backstop.store()), 1));
    let clock = Arc::clone(&site.test.clock);
    let backstop = Backstop::on(Arc::<Flaky>::clone(&store), clock, RandomSource::seeded(2));
    (App::new(backstop, (*site.app.config()).clone(), ""), store)
}

#[tokio::test(start_paused = true)]
async fn a_run_is_left_in_good_order_when_its_server_closes_and_gone_on_with_at_once() {
    const JOBS: u64 = 3 * AMEND_MAX as u64;
    let site = Site::new("");
    for n in 0..JOBS {
        ready(&site.test.backstop, "emails", &n.to_string()).await;
    }
    let (first, store) = slow(&site);
    store.set_odds(Odds {
        delay_before: 1.0,
        delay_max: Duration::from_secs(1),
        ..Odds::default()
    });
    let emails = Filter {
        queue: Some("emails".parse().unwrap()),
        ..Filter::default()
    };
    let target = BulkTarget::jobs(
        &JobSearch {
            filter: emails,
            ..JobSearch::default()
        },
        &AmendAction::Cancel,
    );
    let plan = BulkPlan {
        target,
        expected: None,
        back: "/jobs".to_owned(),
    };
    let id = BulkActions::new(&first, "ada")
        .start(plan)
        .await
        .unwrap()
        .unwrap();
    let report = async || {
        BulkActions::new(&site.app, "")
            .report(&id)
            .await
            .unwrap()
            .unwrap()
    };
    while report().await.count == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    first.closing().cancel();
    // No time passes on the clock of the store: whoever was killed would still count as alive.
    while report().await.status(site.test.backstop.now()) == BulkStatus::Running {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let left = report().await;
    assert_eq!(
        (left.status(site.test.backstop.now()), left.ended_at),
        (BulkStatus::Silent, None)
    );
    assert!(
        (1..JOBS).contains(&left.count),
        "it was left in the middle: {}",
        left.count
    );
    assert_eq!(
        count(&site, JobState::Cancelled).await,
        left.count,
        "what it says is what was done"
    );
    resume::resume_once(&site.app).await.unwrap();
    until_said(&site, &format!("/jobs/runs/{id}"), ">done<").await;
    assert_eq!(
        (
            report().await.count,
            count(&site, JobState::Cancelled).await
        ),
        (JOBS, JOBS)
    );
    let entries = site.test.backstop.audit("").entries(10).await.unwrap();
    let counts: Vec<Option<u64>> = entries.iter().map(|entry| entry.count).collect();
    assert_eq!(
        counts.iter().flatten().sum::<u64>(),
        JOBS,
        "each job is told once: {counts:?}"
    );
    assert!(
        entries.len() == 2 && entries.iter().all(|entry| entry.who == "ada"),
        "{entries:?}"
    );
}

#[tokio::test]
async fn runs_are_gone_on_with_also_where_redrives_cannot_be_looked_for() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    let started = site
        .post("/jobs/act", "action=cancel&queue=emails&all=matching")
        .await;
    until_said(&site, &started.location, ">done<").await;
    cut_off(&site, &started.location, |_| ()).await;
    site.test.clock.advance(Span::minutes(1));
    let (other, store) = slow(&site);
    store.next_call(Fault::Refused);
    resume::resume_once(&other)
        .await
        .expect_err("the redrives could not be looked for");
    assert_eq!(store.injected_into("list_cells", Fault::Refused), 1);
    until_said(&site, &started.location, ">done<").await;
}

#[tokio::test]
async fn by_kind_and_by_text_what_is_about_to_happen_is_counted_job_by_job() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    for n in 0..30 {
        let draft = backstop
            .draft("emails")
            .kind(if n % 3 == 0 { "welcome" } else { "digest" });
        draft
            .payload(format!(
                r#"{{"to":"{}"}}"#,
                if n % 2 == 0 { "ada" } else { "bob" }
            ))
            .push()
            .await
            .unwrap();
    }
    for (which, count) in [
        ("kind=welcome", 10),
        ("text=ada", 15),
        ("kind=welcome&text=ada", 5),
        ("text=nobody", 0),
    ] {
        let confirm = site
            .page(&format!("/jobs/confirm?action=cancel&{which}&all=matching"))
            .await;
        assert!(
            confirm.contains(&format!("<strong>{count}</strong> jobs.")),
            "{which}: {confirm}"
        );
    }
    let started = site
        .post(
            "/jobs/act",
            "action=cancel&kind=welcome&text=ada&all=matching",
        )
        .await;
    let page = until_said(&site, &started.location, ">done<").await;
    assert!(
        page.contains("5 of 5"),
        "of those that match, and not of the whole queue: {page}"
    );
    assert_eq!(count(&site, JobState::Cancelled).await, 5);
}

#[tokio::test]
async fn jobs_that_a_worker_holds_are_listed_and_called_off_and_no_others() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    let mine = crate::given::running(backstop, "emails", "a", "web/1 one").await;
    let other = crate::given::running(backstop, "emails", "b", "web/2").await;
    let list = site.page("/jobs?state=running&worker=web%2F1+one").await;
    assert!(
        list.contains(&mine.to_string()) && !list.contains(&other.to_string()),
        "{list}"
    );
    assert_eq!(
        site.get("/jobs?state=dead&worker=web%2F2").await.status,
        StatusCode::BAD_REQUEST
    );
    let confirm = site
        .page("/jobs/confirm?action=cancel&worker=web%2F1+one&all=matching")
        .await;
    assert!(
        confirm.contains("<strong>1</strong> job.") && confirm.contains("worker: web/1 one"),
        "{confirm}"
    );
    let started = site
        .post("/jobs/act", "action=cancel&worker=web%2F1+one&all=matching")
        .await;
    until_said(&site, &started.location, ">done<").await;
    assert_eq!(
        crate::given::state(&site, mine).await,
        Some(JobState::Cancelled)
    );
    assert_eq!(
        crate::given::state(&site, other).await,
        Some(JobState::Running)
    );
}

#[tokio::test]
async fn runs_are_reached_from_the_lists_they_are_started_from_with_how_many_have_not_ended() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    let link = |said: &str| format!("href=\"/jobs/runs\">{said}</a>");
    for list in ["/jobs", "/dead"] {
        assert!(
            site.page(list).await.contains(&link("Bulk actions")),
            "{list}"
        );
    }
    let started = site
        .post("/jobs/act", "action=cancel&queue=emails&all=matching")
        .await;
    until_said(&site, &started.location, ">done<").await;
    assert!(site.page("/jobs").await.contains(&link("Bulk actions")));
    cut_off(&site, &started.location, |_| ()).await;
    for list in ["/jobs", "/dead"] {
        assert!(
            site.page(list)
                .await
                .contains(&link("Bulk actions (1 running)")),
            "{list}"
        );
    }
}

#[tokio::test]
async fn names_that_are_known_are_offered_to_choose_from() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    crate::given::heard(&site.test.backstop, "emails", "web-1").await;
    let page = site.page("/jobs").await;
    for (list, name) in [
        ("queues", "emails"),
        ("kinds", "task"),
        ("workers", "web-1"),
    ] {
        assert!(
            page.contains(&format!("list=\"{list}\""))
                && page.contains(&format!("<datalist id=\"{list}\">")),
            "{list}"
        );
        assert!(
            page.contains(&format!("<option value=\"{name}\">")),
            "{name} in {page}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_note_of_how_far_a_run_is_that_the_store_does_not_answer_is_written_again() {
    // The entry of the audit, then the step, then the note: each of them may be what is not
    // answered.
    for fails_at in 0..4 {
        let site = Site::new("");
        for n in 0..3 {
            ready(&site.test.backstop, "emails", &n.to_string()).await;
        }
        let (app, store) = slow(&site);
        let emails = Filter {
            queue: Some("emails".parse().unwrap()),
            ..Filter::default()
        };
        let target = BulkTarget::jobs(
            &JobSearch {
                filter: emails,
                ..JobSearch::default()
            },
            &AmendAction::Cancel,
        );
        let plan = BulkPlan {
            target,
            expected: Some(3),
            back: "/jobs".to_owned(),
        };
        let id = BulkActions::new(&app, "ada")
            .start(plan)
            .await
            .unwrap()
            .unwrap();
        // Nothing of it has run yet: the calls that follow are its own.
        for at in 0..=fails_at {
            store.next_call(if at == fails_at {
                Fault::Refused
            } else {
                Fault::DelayBefore
            });
        }
        let report = async || {
            BulkActions::new(&site.app, "")
                .report(&id)
                .await
                .unwrap()
                .unwrap()
        };
        while report().await.ended_at.is_none() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let ended = report().await;
        assert_eq!(
            (ended.status(site.test.backstop.now()), ended.count),
            (BulkStatus::Done, 3),
            "{fails_at}"
        );
    }
}
