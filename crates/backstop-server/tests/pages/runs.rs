//! Bulk actions: in the background, with progress, to the end.

use crate::given::{dead, ready, until_said};
use crate::site::Site;
use axum::http::StatusCode;
use backstop::core::failure::ErrorReport;
use backstop::core::port::Swap;
use backstop::{Span, State};
use backstop_server::{App, resume};

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
async fn cut_off(site: &Site, location: &str, change: impl FnOnce(&mut serde_json::Value)) {
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
