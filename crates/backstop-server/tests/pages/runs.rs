//! Bulk actions: in the background, with progress, to the end.

use crate::given::{dead, ready, until_said};
use crate::site::Site;
use axum::http::StatusCode;
use backstop::core::amend::{Action, Filter};
use backstop::core::failure::ErrorReport;
use backstop::core::limits::AMEND_MAX;
use backstop::core::port::Swap;
use backstop::search::Search;
use backstop::{Backstop, Random, Span, State};
use backstop_server::bulk::{Bulk, Plan, Standing, Target};
use backstop_server::{App, resume};
use backstop_testkit::flaky::{Fault, Flaky, Odds};
use std::sync::Arc;
use std::time::Duration;

async fn count(site: &Site, state: State) -> u64 {
    let queues = site.test.backstop.store().queues(site.test.backstop.now()).await.unwrap();
    queues.iter().map(|queue| queue.counts.of(state)).sum()
}

#[tokio::test]
async fn all_that_match_are_changed_in_the_background_and_nothing_else_is() {
    let site = Site::new("");
    for n in 0..40 {
        ready(&site.test.backstop, if n % 2 == 0 { "emails" } else { "billing" }, &n.to_string()).await;
    }
    let confirm = site.page("/jobs/confirm?action=cancel&queue=emails&all=matching").await;
    assert!(confirm.contains("<strong>20</strong> jobs") && confirm.contains("queue: emails"), "{confirm}");
    let started = site.post("/jobs/act", "action=cancel&queue=emails&all=matching").await;
    assert_eq!(started.status, StatusCode::SEE_OTHER);
    assert!(started.location.starts_with("/jobs/runs/"), "{}", started.location);
    let page = until_said(&site, &started.location, ">done<").await;
    assert!(page.contains("20 of about 20") && page.contains("href=\"/jobs?queue=emails\""), "{page}");
    assert_eq!((count(&site, State::Cancelled).await, count(&site, State::Ready).await), (20, 20));
    assert_eq!(site.audit().await, [("token ada".to_owned(), "job cancel".to_owned())]);
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
    assert!(!site.page("/jobs/confirm?action=cancel&all=matching").await.contains("typed"));
    let question = site.page("/jobs/confirm?action=delete&all=matching").await;
    assert!(question.contains("Type delete to go on") && question.contains("name=\"typed\""), "{question}");
    for (form, back) in [
        ("action=delete&all=matching", "/jobs/confirm?action=delete&all=matching"),
        (
            "action=delete&all=matching&queue=emails&typed=1",
            "/jobs/confirm?queue=emails&action=delete&all=matching",
        ),
    ] {
        assert_eq!(site.post("/jobs/act", form).await.location, back, "{form}");
    }
    assert_eq!((count(&site, State::Ready).await, site.audit().await), (1, vec![]));
    let started = site.post("/jobs/act", "action=delete&all=matching&typed=delete").await;
    until_said(&site, &started.location, ">done<").await;
    assert_eq!(count(&site, State::Ready).await, 0);
}

#[tokio::test]
async fn dead_letters_that_match_a_text_are_requeued_and_others_are_not() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    for n in 0..6 {
        let words = if n % 2 == 0 { "no answer" } else { "card declined" };
        dead(backstop, "emails", &n.to_string(), ErrorReport::message(words)).await;
    }
    let started = site.post("/dead/act", "action=requeue&text=declined&all=matching").await;
    let page = until_said(&site, &started.location, ">done<").await;
    assert!(page.contains("requeue") && page.contains("3 of about 6"), "{page}");
    assert_eq!((count(&site, State::Ready).await, count(&site, State::Dead).await), (3, 3));
    assert_eq!(site.audit().await, [("token ada".to_owned(), "requeue".to_owned())]);
}

#[tokio::test]
async fn what_is_left_alone_is_named_with_its_reason() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    backstop.draft("q").id("first").kind("k").unique_key("one").payload("1").push().await.unwrap();
    crate::given::drain_dead(backstop, "q", "w", ErrorReport::message("boom")).await;
    let twin =
        backstop.draft("q").id("second").kind("k").unique_key("one").payload("1").push().await.unwrap().id;
    let started = site.post("/dead/act", "action=requeue&queue=q&all=matching").await;
    let page = until_said(&site, &started.location, ">done<").await;
    assert!(page.contains(&format!("job {twin} holds its unique key")), "{page}");
}

#[tokio::test]
async fn a_run_whose_server_is_gone_says_so_and_goes_on() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    for n in 0..3 {
        ready(backstop, "emails", &n.to_string()).await;
    }
    let started = site.post("/jobs/act", "action=cancel&queue=emails&all=matching").await;
    until_said(&site, &started.location, ">done<").await;
    cut_off(&site, &started.location, |_| ()).await;
    ready(backstop, "emails", "late").await;
    site.test.clock.advance(Span::minutes(1));
    let silent = site.page(&started.location).await;
    assert!(silent.contains(">silent<") && silent.contains("Go on"), "{silent}");
    let resumed = site.post(&format!("{}/resume", started.location), "").await;
    assert_eq!(resumed.location, started.location);
    let page = until_said(&site, &started.location, ">done<").await;
    assert!(page.contains("<dd>4</dd>"), "what was done before counts: {page}");
    assert_eq!(count(&site, State::Cancelled).await, 4);
    let again = site.post(&format!("{}/resume", started.location), "").await;
    assert_eq!(again.status, StatusCode::SEE_OTHER);
}

/// Sets a run that has ended back to how a server that was killed in the middle would have left it.
pub(crate) async fn cut_off(site: &Site, location: &str, change: impl FnOnce(&mut serde_json::Value)) {
    let store = site.test.backstop.store();
    let name = format!("bulk/{}", location.trim_start_matches("/jobs/runs/"));
    let cell = store.cells(vec![name.clone()]).await.unwrap().pop().flatten().unwrap();
    let mut report: serde_json::Value = serde_json::from_slice(&cell.value).unwrap();
    report["ended_at"] = serde_json::Value::Null;
    change(&mut report);
    let value = Some(serde_json::to_vec(&report).unwrap());
    store.swap(vec![Swap { name, seen: Some(cell.version), version: 7, value }]).await.unwrap();
}

#[tokio::test]
async fn of_several_servers_one_goes_on_by_itself_with_a_run_whose_server_is_gone() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    ready(backstop, "emails", "a").await;
    let started = site.post("/jobs/act", "action=cancel&queue=emails&all=matching").await;
    until_said(&site, &started.location, ">done<").await;
    cut_off(&site, &started.location, |_| ()).await;
    ready(backstop, "emails", "late").await;
    resume::look(&site.app).await.unwrap();
    assert!(site.page(&started.location).await.contains(">running<"), "it may still have its server");
    site.test.clock.advance(Span::minutes(1));
    let other = App::new(backstop.clone(), (*site.app.config()).clone(), "");
    let (one, two) = tokio::join!(resume::look(&site.app), resume::look(&other));
    one.and(two).unwrap();
    let page = until_said(&site, &started.location, ">done<").await;
    assert!(page.contains("<dd>2</dd>"), "what was done before counts: {page}");
    assert_eq!(count(&site, State::Cancelled).await, 2);
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
    let started = site.post("/jobs/act", "action=cancel&queue=emails&all=matching").await;
    until_said(&site, &started.location, ">done<").await;
    cut_off(&site, &started.location, |report| report["is_stop_asked"] = true.into()).await;
    ready(&site.test.backstop, "emails", "late").await;
    site.test.clock.advance(Span::minutes(1));
    resume::look(&site.app).await.unwrap();
    until_said(&site, &started.location, ">stopped<").await;
    assert_eq!(count(&site, State::Ready).await, 1);
}

#[tokio::test]
async fn a_run_that_has_ended_is_not_stopped() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    let started = site.post("/jobs/act", "action=cancel&queue=emails&all=matching").await;
    until_said(&site, &started.location, ">done<").await;
    site.post(&format!("{}/stop", started.location), "").await;
    assert!(site.page(&started.location).await.contains(">done<"));
}

/// A server on the store of `site` whose calls take their time.
fn slow(site: &Site) -> (App, Arc<Flaky>) {
    let store = Arc::new(Flaky::new(Arc::clone(site.test.backstop.store()), 1));
    let clock = Arc::clone(&site.test.clock);
    let backstop = Backstop::on(Arc::<Flaky>::clone(&store), clock, Random::seeded(2));
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
    store.set_odds(Odds { delay_before: 1.0, delay_max: Duration::from_secs(1), ..Odds::default() });
    let emails = Filter { queue: Some("emails".parse().unwrap()), ..Filter::default() };
    let target = Target::jobs(&Search { filter: emails, text: None }, &Action::Cancel);
    let plan = Plan { target, expected: None, back: "/jobs".to_owned() };
    let id = Bulk::new(&first, "ada").start(plan).await.unwrap().unwrap();
    let report = async || Bulk::new(&site.app, "").report(&id).await.unwrap().unwrap();
    while report().await.count == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    first.closing().cancel();
    // No time passes on the clock of the store: whoever was killed would still count as alive.
    while report().await.standing(site.test.backstop.now()) == Standing::Running {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let left = report().await;
    assert_eq!((left.standing(site.test.backstop.now()), left.ended_at), (Standing::Silent, None));
    assert!((1..JOBS).contains(&left.count), "it was left in the middle: {}", left.count);
    assert_eq!(count(&site, State::Cancelled).await, left.count, "what it says is what was done");
    resume::look(&site.app).await.unwrap();
    until_said(&site, &format!("/jobs/runs/{id}"), ">done<").await;
    assert_eq!((report().await.count, count(&site, State::Cancelled).await), (JOBS, JOBS));
    let entries = site.test.backstop.audit("").entries(10).await.unwrap();
    let counts: Vec<Option<u64>> = entries.iter().map(|entry| entry.count).collect();
    assert_eq!(counts.iter().flatten().sum::<u64>(), JOBS, "each job is told once: {counts:?}");
    assert!(entries.len() == 2 && entries.iter().all(|entry| entry.who == "ada"), "{entries:?}");
}

#[tokio::test]
async fn runs_are_gone_on_with_also_where_redrives_cannot_be_looked_for() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    let started = site.post("/jobs/act", "action=cancel&queue=emails&all=matching").await;
    until_said(&site, &started.location, ">done<").await;
    cut_off(&site, &started.location, |_| ()).await;
    site.test.clock.advance(Span::minutes(1));
    let (other, store) = slow(&site);
    store.next_call(Fault::Refused);
    resume::look(&other).await.expect_err("the redrives could not be looked for");
    assert_eq!(store.injected_into("list_cells", Fault::Refused), 1);
    until_said(&site, &started.location, ">done<").await;
}
