//! Queues: what they hold, and pause and resume.

use crate::given::{dead, ready, running, said};
use crate::site::Site;
use axum::http::StatusCode;
use backstop::core::failure::ErrorReport;
use backstop::core::port::QueueState;

async fn gate(site: &Site, queue: &str) -> QueueState {
    let queues = site
        .test
        .backstop
        .store()
        .queues(site.test.backstop.now())
        .await
        .unwrap();
    queues
        .into_iter()
        .find(|status| status.name.as_str() == queue)
        .unwrap()
        .state
}

#[tokio::test]
async fn a_queue_is_paused_and_resumed_and_the_audit_says_who_did_it() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    let paused = site
        .post("/queues/emails/pause", "back=list&search=em")
        .await;
    assert_eq!(
        (paused.status, paused.location.as_str()),
        (StatusCode::SEE_OTHER, "/queues?search=em")
    );
    assert_eq!(gate(&site, "emails").await, QueueState::Paused);
    assert!(
        site.page("/queues/emails")
            .await
            .contains("action=\"/queues/emails/resume\"")
    );
    let resumed = site.post("/queues/emails/resume", "").await;
    assert_eq!(resumed.location, "/queues/emails");
    assert_eq!(gate(&site, "emails").await, QueueState::Active);
    assert_eq!(said(&site).await, ["queue pause", "queue resume"]);
    assert!(site.audit().await.iter().all(|(who, _)| who == "token ada"));
}

#[tokio::test]
async fn all_queues_are_paused_together_and_only_those_are_resumed() {
    let site = Site::new("");
    for queue in ["emails", "orders", "by-hand"] {
        ready(&site.test.backstop, queue, queue).await;
    }
    assert!(
        !site.page("/queues").await.contains("ask-resume-all"),
        "nothing is paused yet"
    );
    site.post("/queues/by-hand/pause", "").await;
    let paused = site
        .post("/queues", "action=pause&search=em&reason=the+network+moves")
        .await;
    assert_eq!(
        (paused.status, paused.location.as_str()),
        (StatusCode::SEE_OTHER, "/queues?search=em")
    );
    for queue in ["emails", "orders", "by-hand"] {
        assert_eq!(gate(&site, queue).await, QueueState::Paused, "{queue}");
    }
    assert!(
        !site.page("/queues").await.contains("ask-pause-all"),
        "all are paused already"
    );
    site.post("/queues", "action=resume").await;
    assert_eq!(
        (gate(&site, "emails").await, gate(&site, "orders").await),
        (QueueState::Active, QueueState::Active)
    );
    assert_eq!(gate(&site, "by-hand").await, QueueState::Paused);
    assert_eq!(
        said(&site).await,
        ["queue pause", "queue pause", "queue resume"]
    );
    assert_eq!(
        site.post("/queues", "action=").await.status,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn a_list_shows_how_many_jobs_are_where_and_leads_to_them() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    dead(backstop, "emails", "d", ErrorReport::message("boom")).await;
    running(backstop, "emails", "r", "w1").await;
    for name in ["a", "b", "c"] {
        ready(backstop, "emails", name).await;
    }
    let page = site.page("/queues").await;
    for link in [
        "<a href=\"/jobs?queue=emails&#38;state=ready\">3</a>",
        "<a href=\"/jobs?queue=emails&#38;state=running\">1</a>",
        "<a href=\"/dead?queue=emails\">1</a>",
    ] {
        assert!(page.contains(link), "{link} in {page}");
    }
    assert!(
        page.contains("1 running, 3 ready, 1 dead"),
        "the bar says it in words: {page}"
    );
}

#[tokio::test]
async fn a_search_finds_queues_by_a_part_of_their_name() {
    let site = Site::new("");
    for queue in ["emails", "billing"] {
        ready(&site.test.backstop, queue, queue).await;
    }
    let page = site.page("/queues?search=mail").await;
    assert!(
        page.contains("/queues/emails") && !page.contains("/queues/billing"),
        "{page}"
    );
    assert!(
        site.page("/queues?search=zzz")
            .await
            .contains("No queue of that name")
    );
}

#[tokio::test]
async fn one_queue_says_what_decides_how_fast_it_goes() {
    let config = "[queues.emails]\nconcurrency = 8\nbreaker = { failure_threshold = 5 }\n";
    let site = Site::new(config);
    let backstop = &site.test.backstop;
    ready(backstop, "emails", "a").await;
    running(backstop, "emails", "r", "worker-7").await;
    backstop
        .changes("ada")
        .open(&"emails".parse().unwrap(), "maintenance until noon")
        .await
        .unwrap();
    let page = site.page("/queues/emails").await;
    for said in [
        "8 on each worker",
        "maintenance until noon",
        "breaker open",
        "without a bound",
        "none here",
    ] {
        assert!(page.contains(said), "{said} in {page}");
    }
}
