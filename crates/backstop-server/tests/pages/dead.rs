//! Dead letters: groups, filters, actions, redrives.

use crate::given::{dead, ready, said, state, until_said};
use crate::site::Site;
use axum::http::StatusCode;
use backstop::JobState;
use backstop::core::failure::ErrorReport;
use backstop::dead::DeadSelection;
use backstop::dead::redrive::RedrivePlan;
use backstop_server::{App, resume};
use std::ops::ControlFlow;

fn error(class: &str, message: &str) -> ErrorReport {
    ErrorReport {
        error_type: Some(class.to_owned()),
        ..ErrorReport::message(message)
    }
}

#[tokio::test]
async fn letters_come_in_groups_by_what_they_died_of_the_largest_first() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    dead(backstop, "emails", "a", error("Declined", "card declined")).await;
    for name in ["b", "c", "d"] {
        dead(backstop, "emails", name, error("Timeout", "no answer")).await;
    }
    let page = site.page("/dead").await;
    let (timeout, declined) = (
        page.find("Timeout").unwrap(),
        page.find("Declined").unwrap(),
    );
    assert!(timeout < declined, "{page}");
    assert!(
        page.contains("Redrive requeues a few first"),
        "what it adds over Requeue is said: {page}"
    );
    assert!(
        page.contains(">3</a>") && page.contains("no answer") && page.contains("4 in all"),
        "{page}"
    );
    let group = page
        .split("href=\"")
        .find(|link| link.starts_with("/dead?queue=emails&#38;fingerprint="))
        .unwrap();
    let group = group.split('"').next().unwrap().replace("&#38;", "&");
    let letters = site.page(&group).await;
    assert_eq!(letters.matches("name=\"id\"").count(), 3, "{letters}");
    assert!(
        letters.contains("all <strong>3</strong> that match"),
        "{letters}"
    );
}

#[tokio::test]
async fn filters_find_letters_by_text_type_and_time() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    dead(backstop, "emails", "a", error("Declined", "card declined")).await;
    dead(backstop, "emails", "b", error("Timeout", "no answer")).await;
    for (query, count) in [
        ("text=DECLINED", 1),
        ("error_type=Timeout", 1),
        ("queue=emails&view=letters", 2),
        ("kind=other", 0),
        ("since=2030-01-01T00:00", 0),
        ("until=2030-01-01T00:00", 2),
    ] {
        let page = site.page(&format!("/dead?{query}")).await;
        assert_eq!(
            page.matches("name=\"id\"").count(),
            count,
            "{query}: {page}"
        );
    }
    assert_eq!(
        site.get("/dead?since=yesterday").await.status,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn picked_letters_are_requeued_moved_and_deleted_and_the_filter_stays() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(dead(backstop, "emails", name, error("Timeout", "no answer")).await);
    }
    let confirm = site
        .page(&format!(
            "/dead/confirm?action=move&queue=emails&id={}",
            ids[1]
        ))
        .await;
    assert!(
        confirm.contains("name=\"to\"") && confirm.contains("<strong>1</strong> dead letter"),
        "{confirm}"
    );
    let back = "/dead?queue=emails&view=letters";
    let act = |rest: String| format!("queue=emails&{rest}");
    assert_eq!(
        site.post("/dead/act", &act(format!("action=requeue&id={}", ids[0])))
            .await
            .location,
        back
    );
    assert_eq!(
        site.post(
            "/dead/act",
            &act(format!("action=move&to=slow&id={}", ids[1]))
        )
        .await
        .location,
        back
    );
    assert_eq!(
        site.post("/dead/act", &act(format!("action=delete&id={}", ids[2])))
            .await
            .location,
        back
    );
    assert_eq!(state(&site, ids[0]).await, Some(JobState::Ready));
    assert_eq!(
        backstop.job(ids[1]).await.unwrap().unwrap().queue.as_str(),
        "slow"
    );
    assert_eq!(state(&site, ids[2]).await, None);
    assert_eq!(said(&site).await, ["delete", "move to slow", "requeue"]);
    assert_eq!(
        site.post("/dead/act", &act(format!("action=move&id={}", ids[0])))
            .await
            .status,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn a_redrive_sends_a_few_first_and_goes_on_when_those_live() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    for n in 0..5 {
        dead(
            backstop,
            "emails",
            &n.to_string(),
            error("Timeout", "no answer"),
        )
        .await;
    }
    let plan = site.page("/dead/redrive?queue=emails").await;
    assert!(
        plan.contains("<strong>5</strong> dead letters match") && plan.contains("name=\"canary\""),
        "{plan}"
    );
    let started = site
        .post(
            "/dead/redrive",
            "queue=emails&canary=2&max_failures=1&then_rate=1000/s",
        )
        .await;
    assert_eq!(started.status, StatusCode::SEE_OTHER);
    assert!(
        started.location.starts_with("/dead/redrives/"),
        "{}",
        started.location
    );
    let id = started
        .location
        .trim_start_matches("/dead/redrives/")
        .to_owned();
    until(|| async { queued(&site).await == 2 }).await;
    let watching = site.page(&started.location).await;
    assert!(
        watching.contains("Watching") && watching.contains("Yes, stop it"),
        "{watching}"
    );
    let fine = |_| async { Ok(()) };
    until(|| async {
        backstop
            .worker()
            .handle_raw("emails", fine)
            .drain()
            .await
            .unwrap();
        let reports = backstop.dead().redrives().await.unwrap();
        reports
            .iter()
            .any(|report| report.id == id && report.phase.is_ended())
    })
    .await;
    let page = site.page(&started.location).await;
    assert!(page.contains("All that fit were requeued."), "{page}");
    assert!(site.page("/dead/redrives").await.contains(&id));
    assert_eq!(
        site.audit().await,
        [("token ada".to_owned(), format!("redrive {id}"))]
    );
}

#[tokio::test]
async fn of_several_servers_one_goes_on_by_itself_with_a_redrive_whose_server_is_gone() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    dead(backstop, "emails", "a", ErrorReport::message("boom")).await;
    let then_rate = "1/s".parse().unwrap();
    let plan = RedrivePlan {
        canary: 1,
        max_failures: 0,
        then_rate,
        selection: DeadSelection::All,
    };
    // Written down, and its server killed before anything else.
    let id = backstop
        .dead()
        .by("grace")
        .redrive_unattended(plan)
        .await
        .unwrap();
    resume::resume_once(&site.app).await.unwrap();
    assert!(
        site.audit().await.is_empty(),
        "it may still have its server"
    );
    site.test.clock.advance(backstop::Span::minutes(1));
    let other = App::new(backstop.clone(), (*site.app.config()).clone(), "");
    let (one, two) = tokio::join!(resume::resume_once(&site.app), resume::resume_once(&other));
    one.and(two).unwrap();
    until_said(&site, &format!("/dead/redrives/{id}"), "have not ended yet").await;
    assert_eq!(
        site.audit().await,
        [("grace".to_owned(), format!("redrive {id}"))],
        "one of them, in her name"
    );
}

#[tokio::test]
async fn a_redrive_is_stopped_and_the_audit_says_so() {
    let site = Site::new("");
    dead(
        &site.test.backstop,
        "emails",
        "a",
        error("Timeout", "no answer"),
    )
    .await;
    let started = site
        .post(
            "/dead/redrive",
            "queue=emails&canary=1&max_failures=0&then_rate=1/s",
        )
        .await;
    until(|| async { queued(&site).await == 1 }).await;
    assert_eq!(
        site.post(&format!("{}/stop", started.location), "")
            .await
            .location,
        started.location
    );
    until(|| async {
        site.page(&started.location)
            .await
            .contains("It was stopped on request")
    })
    .await;
    let stops = site
        .audit()
        .await
        .into_iter()
        .filter(|(_, what)| what == "redrive stop");
    assert_eq!(
        stops.collect::<Vec<_>>(),
        [("token ada".to_owned(), "redrive stop".to_owned())]
    );
}

fn one_by_one() -> RedrivePlan {
    let then_rate = "1/s".parse().unwrap();
    RedrivePlan {
        canary: 1,
        max_failures: 0,
        then_rate,
        selection: DeadSelection::All,
    }
}

#[tokio::test]
async fn a_redrive_that_somebody_runs_stays_theirs_and_one_that_nobody_runs_goes_on_here() {
    let site = Site::new("");
    let dead_letters = site.test.backstop.dead().by("grace");
    dead(
        &site.test.backstop,
        "emails",
        "a",
        error("Timeout", "no answer"),
    )
    .await;
    let id = dead_letters.redrive(one_by_one()).await.unwrap();
    let (here, runner) = (format!("/dead/redrives/{id}"), dead_letters.clone());
    // A command line that is killed while it watches the canary.
    let run = tokio::spawn({
        let id = id.clone();
        async move { runner.run_redrive(&id, |_| ControlFlow::Continue(())).await }
    });
    until(|| async { queued(&site).await == 1 }).await;
    let page = site.page(&here).await;
    assert!(
        !page.contains("Go on here") && !page.contains("stalled"),
        "{page}"
    );
    assert_eq!(
        site.post(&format!("{here}/resume"), "").await.location,
        here
    );
    run.abort();
    site.test.clock.advance(backstop::Span::minutes(1));
    resume::resume_once(&site.app).await.unwrap();
    assert!(
        dead_letters.abandoned_redrives().await.unwrap().is_empty(),
        "it was not given to servers"
    );
    let page = site.page(&here).await;
    assert!(
        page.contains("Go on here") && page.contains("stalled") && page.contains("Nobody runs it"),
        "{page}"
    );
    assert!(site.page("/dead/redrives").await.contains("stalled"));
    assert!(
        site.page("/")
            .await
            .contains("Nobody runs the redrive that grace started")
    );
    site.post(&format!("{here}/resume"), "").await;
    let page = until_said(&site, &here, "have not ended yet").await;
    assert!(!page.contains("stalled"), "{page}");
    let by_ada = site
        .audit()
        .await
        .into_iter()
        .filter(|(who, _)| who == "token ada");
    let mut said: Vec<String> = by_ada.map(|(_, what)| what).collect();
    said.sort_unstable();
    assert_eq!(
        said,
        [
            format!("redrive {id}"),
            "redrive leave".to_owned(),
            "redrive leave".to_owned()
        ]
    );
}

#[tokio::test]
async fn a_redrive_that_has_ended_does_not_go_on() {
    let site = Site::new("");
    let letters = site.test.backstop.dead();
    let id = letters.redrive(one_by_one()).await.unwrap();
    letters.stop_redrive(&id).await.unwrap();
    site.post(&format!("/dead/redrives/{id}/resume"), "").await;
    assert!(letters.abandoned_redrives().await.unwrap().is_empty());
    assert!(
        site.page(&format!("/dead/redrives/{id}"))
            .await
            .contains("It was stopped on request")
    );
}

#[tokio::test]
async fn the_page_of_a_redrive_says_which_letters_were_picked() {
    let site = Site::new("");
    let id = dead(
        &site.test.backstop,
        "emails",
        "a",
        error("Timeout", "no answer"),
    )
    .await;
    let oldest = DeadSelection::Oldest {
        queue: "emails".parse().unwrap(),
        count: 7,
    };
    for (selection, said) in [
        (DeadSelection::Ids(vec![id]), "picked by id: 1"),
        (oldest, "the oldest: 1"),
    ] {
        let plan = RedrivePlan {
            selection,
            ..one_by_one()
        };
        let id = site.test.backstop.dead().redrive(plan).await.unwrap();
        let page = site.page(&format!("/dead/redrives/{id}")).await;
        assert!(
            page.contains(said) && !page.contains("every dead letter"),
            "{page}"
        );
    }
}

#[tokio::test]
async fn all_letters_that_match_are_deleted_only_once_the_word_is_typed() {
    let site = Site::new("");
    let id = dead(
        &site.test.backstop,
        "emails",
        "a",
        error("Timeout", "no answer"),
    )
    .await;
    let question = site
        .page("/dead/confirm?action=delete&queue=emails&all=matching")
        .await;
    assert!(
        question.contains("Type delete to go on") && question.contains("name=\"typed\""),
        "{question}"
    );
    assert!(
        !site
            .page("/dead/confirm?action=requeue&queue=emails&all=matching")
            .await
            .contains("typed")
    );
    for typed in ["", "&typed=", "&typed=yes", "&typed=deleted"] {
        let form = format!("action=delete&queue=emails&all=matching{typed}");
        let refused = site.post("/dead/act", &form).await;
        assert_eq!(
            refused.location, "/dead/confirm?queue=emails&action=delete&all=matching",
            "{typed}"
        );
    }
    assert_eq!(
        (state(&site, id).await, site.audit().await),
        (Some(JobState::Dead), vec![])
    );
    let started = site
        .post(
            "/dead/act",
            "action=delete&queue=emails&all=matching&typed=delete",
        )
        .await;
    until_said(&site, &started.location, ">done<").await;
    assert_eq!(state(&site, id).await, None);
}

#[tokio::test]
async fn a_plan_that_makes_no_sense_is_answered_in_place_with_what_was_typed() {
    let site = Site::new("");
    let got = site
        .post(
            "/dead/redrive",
            "queue=emails&canary=2&max_failures=5&then_rate=1/s",
        )
        .await;
    assert_eq!(
        got.location,
        "/dead/redrive?queue=emails&canary=2&max_failures=5&then_rate=1%2Fs"
    );
    assert!(site.page(&got.location).await.contains("value=\"5\""));
    assert_eq!(site.audit().await, []);
}

async fn queued(site: &Site) -> u64 {
    let queues = site
        .test
        .backstop
        .store()
        .queues(site.test.backstop.now())
        .await
        .unwrap();
    queues
        .iter()
        .map(|queue| queue.counts.of(JobState::Ready))
        .sum()
}

/// Waits for what a task in the background does.
async fn until<F: Future<Output = bool>>(is_so: impl Fn() -> F) {
    let waited = tokio::time::timeout(std::time::Duration::from_mins(1), async {
        while !is_so().await {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    waited.await.expect("it comes about");
}

#[tokio::test]
async fn a_letter_that_is_alive_again_is_left_alone() {
    let site = Site::new("");
    let id = ready(&site.test.backstop, "emails", "a").await;
    let got = site
        .post("/dead/act", &format!("action=delete&id={id}"))
        .await;
    assert_eq!(got.status, StatusCode::SEE_OTHER);
    assert_eq!(state(&site, id).await, Some(JobState::Ready));
}
