//! One job: why, what happened, what is in it.

use crate::given::{dead, ready, running, said, state, until_said};
use crate::site::Site;
use axum::http::StatusCode;
use backstop::core::failure::ErrorReport;
use backstop::core::rate::RateLimit;
use backstop::{
    Backstop, Exec, JobId, JobState, QueueSettings, RetryPolicy, RunError, RunningWorker, Span,
};

#[tokio::test]
async fn a_job_says_why_it_waits() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    let id = ready(backstop, "emails", "a").await;
    assert!(
        site.page(&format!("/jobs/{id}"))
            .await
            .contains("It is ready, but no live worker serves its queue.")
    );
    backstop
        .changes("ada")
        .pause(&"emails".parse().unwrap())
        .await
        .unwrap();
    let page = site.page(&format!("/jobs/{id}")).await;
    assert!(
        page.contains("Its queue is paused.") && page.contains("Resume the queue"),
        "{page}"
    );
    let held = running(backstop, "other", "b", "worker-7").await;
    assert!(
        site.page(&format!("/jobs/{held}"))
            .await
            .contains("It is running on worker-7")
    );
    site.test.clock.advance(Span::minutes(5));
    assert!(
        site.page(&format!("/jobs/{held}"))
            .await
            .contains("Worker worker-7 vanished with it")
    );
}

/// One that knows a kind of `strange`, and starts one job of `limited` in an hour, for as long as
/// it is kept.
fn worker(backstop: &Backstop) -> RunningWorker {
    let limit = RateLimit {
        count: 1,
        per: Span::hours(1),
        over: Some(Span::minutes(5)),
        burst: None,
    };
    let worker = backstop
        .worker()
        .name("w")
        .handle_kind("strange", "ours", Exec::shell("true"));
    let worker = worker.handle_raw("limited", |_| async { Ok(()) });
    worker
        .queue("limited", QueueSettings::default().rate_limited(limit))
        .start()
        .unwrap()
}

/// A job that was called off, and another one that has its unique key by now.
async fn twins(site: &Site) -> (JobId, JobId) {
    let push = async || {
        site.test
            .backstop
            .draft("twins")
            .unique_key("k")
            .push()
            .await
            .unwrap()
            .id
    };
    let first = push().await;
    site.post("/jobs/act", &format!("action=cancel&id={first}&back=job"))
        .await;
    (first, push().await)
}

#[tokio::test]
async fn every_gate_is_named_with_where_to_go() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    for guard in ["broken", "gated/task"] {
        backstop
            .breakers()
            .open(&guard.parse().unwrap(), "maintenance")
            .await
            .unwrap();
    }
    let (first, second) = twins(&site).await;
    let later = backstop
        .draft("q")
        .after(Span::hours(1))
        .push()
        .await
        .unwrap()
        .id;
    let _worker = worker(backstop);
    ready(backstop, "limited", "first").await;
    let strange = backstop
        .draft("strange")
        .kind("theirs")
        .push()
        .await
        .unwrap()
        .id;
    let twin = format!("/jobs/{second}?queue=twins");
    for (id, sentence, next) in [
        (
            ready(backstop, "broken", "a").await,
            "The breaker of its queue is open",
            Some(("/breakers", "Look at its breaker")),
        ),
        (
            ready(backstop, "gated", "b").await,
            "The gate of its kind, gated/task, is shut",
            Some(("/dead?queue=gated", "See what its kind dies of")),
        ),
        (
            ready(backstop, "limited", "second").await,
            "Rate limit until",
            Some(("/queues/limited", "Look at its queue")),
        ),
        (
            first,
            "it cannot come back",
            Some((twin.as_str(), "Look at its twin")),
        ),
        (
            strange,
            "has no handler for that",
            Some(("/workers", "Look at the workers")),
        ),
        (later, "It is not due before", None),
    ] {
        let page = until_said(&site, &format!("/jobs/{id}"), sentence).await;
        let lead = page
            .split("<p class=\"lead break\">")
            .nth(1)
            .unwrap()
            .split("</p>")
            .next()
            .unwrap();
        match next {
            Some((link, word)) => {
                assert!(
                    lead.contains(&format!("<a href=\"{link}\">{word}</a>.")),
                    "{lead}"
                );
            }
            None => assert!(!lead.contains("<a "), "{lead}"),
        }
    }
}

#[tokio::test]
async fn a_running_job_tells_since_when_and_on_whom() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    let held = running(backstop, "q", "b", "<b>worker-7").await;
    site.test.clock.advance(Span::secs(12));
    let address = format!("/jobs/{held}");
    let page = site.page(&address).await;
    let life = page
        .split("What happened")
        .nth(1)
        .expect("its life is told");
    assert!(
        life.contains(
            "Attempt 1 runs on &#60;b&#62;worker-7, started</span> <span class=\"at\"><time"
        ),
        "{life}"
    );
    assert!(
        life.contains(">12 s ago</time>") && life.contains("<dt>Running for</dt><dd>12 s</dd>"),
        "{life}"
    );
    assert!(!page.contains("<b>worker"), "{page}");
    site.test.clock.advance(Span::secs(8));
    let page = site.page(&address).await;
    let life = page
        .split("What happened")
        .nth(1)
        .expect("its life is told");
    let started = life
        .find("Attempt 1 started on")
        .expect("its start is told");
    let over = life
        .find("The lease of &#60;b&#62;worker-7 is over")
        .expect("its end is told");
    assert!(started < over, "{life}");
}

#[tokio::test]
async fn its_failures_are_told_in_order_with_the_waits_between() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    let draft = backstop.draft("q").retry(RetryPolicy::default());
    let id = draft.push().await.unwrap().id;
    for run in 1..=3 {
        let handler = move |_| async move { Err(RunError::retry(format!("failure number {run}"))) };
        backstop
            .worker()
            .name("w")
            .handle_raw("q", handler)
            .drain()
            .await
            .unwrap();
        site.test.clock.advance(Span::minutes(1));
    }
    let page = site.page(&format!("/jobs/{id}")).await;
    let page = page
        .split("What happened")
        .nth(1)
        .expect("its life is told");
    let places: Vec<usize> = [
        "Came in",
        "failure number 1",
        "waited",
        "failure number 2",
        "failure number 3",
        "Given up",
    ]
    .iter()
    .map(|words| {
        page.find(words)
            .unwrap_or_else(|| panic!("{words} in {page}"))
    })
    .collect();
    assert!(places.is_sorted(), "{places:?}");
    assert!(page.contains("Attempt 2 failed"), "{page}");
}

#[tokio::test]
async fn a_payload_is_shown_with_exact_numbers_and_without_secrets() {
    let site = Site::new("");
    let payload = r#"{"id":12345678901234567890,"price":1.10,"password":"hunter2"}"#;
    let draft = site.test.backstop.draft("q").kind("k").payload(payload);
    let id = draft.push().await.unwrap().id;
    let page = site.page(&format!("/jobs/{id}")).await;
    assert!(
        page.contains("12345678901234567890") && page.contains("1.10"),
        "{page}"
    );
    assert!(
        page.contains("[redacted]") && !page.contains("hunter2"),
        "{page}"
    );
    assert_eq!(
        site.audit().await,
        [],
        "looking at what anybody may see is no change"
    );
    let whole = site.post(&format!("/jobs/{id}/payload"), "").await;
    assert_eq!(whole.status, StatusCode::OK);
    assert!(whole.body.contains("hunter2"), "{}", whole.body);
    assert_eq!(
        site.audit().await,
        [("token ada".to_owned(), "job payload".to_owned())]
    );
}

#[tokio::test]
async fn who_may_only_look_is_not_offered_the_whole_payload() {
    let site = Site::read_only("");
    let draft = site
        .test
        .backstop
        .draft("q")
        .kind("k")
        .payload(r#"{"password":"hunter2"}"#);
    let id = draft.push().await.unwrap().id;
    let page = site.page(&format!("/jobs/{id}")).await;
    assert!(
        !page.contains("hunter2") && !page.contains("/payload"),
        "{page}"
    );
}

#[tokio::test]
async fn it_is_retried_cancelled_and_deleted_from_its_own_page() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    let id = ready(backstop, "q", "a").await;
    let act = |word: &str| format!("action={word}&id={id}&back=job");
    let page = format!("/jobs/{id}");
    assert_eq!(site.post("/jobs/act", &act("cancel")).await.location, page);
    assert_eq!(state(&site, id).await, Some(JobState::Cancelled));
    assert_eq!(site.post("/jobs/act", &act("retry")).await.location, page);
    assert_eq!(state(&site, id).await, Some(JobState::Ready));
    assert_eq!(
        site.post("/jobs/act", &act("delete")).await.location,
        "/jobs"
    );
    assert_eq!(state(&site, id).await, None);
    assert_eq!(said(&site).await, ["job cancel", "job delete", "job retry"]);
}

#[tokio::test]
async fn a_dead_letter_names_its_group_and_what_was_around_it() {
    let site = Site::new("");
    let error = ErrorReport {
        error_type: Some("Timeout".to_owned()),
        ..ErrorReport::message("no answer")
    };
    let id = dead(&site.test.backstop, "q", "a", error).await;
    let page = site.page(&format!("/dead/{id}")).await;
    for said in [
        "Others that died of this",
        "/dead/redrive?queue=q&#38;fingerprint=",
        "Timeout",
        "It is dead because",
        "Requeue…",
        "Yes, requeue it",
    ] {
        assert!(page.contains(said), "{said} in {page}");
    }
    assert!(!page.contains("Retry…"), "{page}");
    site.post("/dead/act", &format!("action=requeue&id={id}&back=job"))
        .await;
    assert_eq!(
        said(&site).await,
        ["requeue"],
        "as from the list of letters"
    );
    assert_eq!(
        site.get(&format!("/dead/{id}")).await.location,
        format!("/jobs/{id}"),
        "it is dead no longer"
    );
}

#[tokio::test]
async fn a_job_of_no_kind_is_called_by_its_queue() {
    let site = Site::new("");
    let id = site.test.backstop.draft("emails").push().await.unwrap().id;
    let page = site.page(&format!("/jobs/{id}")).await;
    assert!(
        page.contains("<h1>Job of emails</h1>") && !page.contains("<h1>default"),
        "{page}"
    );
    // Twenty, as no policy says otherwise, and hours of them.
    assert!(page.contains("0 of 20, spread over at least "), "{page}");
}
