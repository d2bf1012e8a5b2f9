//! Breakers, gates, workers.

use crate::given::{heard, running, said};
use crate::site::Site;
use backstop::Span;
use backstop::core::lease::WorkerName;
use backstop::core::port::BeatRequest;

#[tokio::test]
async fn a_breaker_is_opened_and_reset_and_says_why_and_since_when() {
    let site = Site::new("");
    let opened = site
        .post("/breakers/open", "name=emails&why=maintenance+until+noon")
        .await;
    assert_eq!(opened.location, "/breakers");
    let page = site.page("/breakers").await;
    for said in [
        "maintenance until noon",
        ">open<",
        "Yes, reset emails",
        "failures in a row",
    ] {
        assert!(page.contains(said), "{said} in {page}");
    }
    site.post("/breakers/reset", "name=emails").await;
    let page = site.page("/breakers").await;
    assert!(
        page.contains(">closed<") && page.contains("Yes, stop emails"),
        "{page}"
    );
    assert_eq!(said(&site).await, ["breaker open", "breaker reset"]);
}

#[tokio::test]
async fn a_gate_of_a_kind_with_a_slash_is_shut_by_its_name() {
    let site = Site::new("");
    site.post("/breakers/open", "name=emails%2Fa%2Fb").await;
    let page = site.page("/breakers").await;
    assert!(
        page.contains("emails/a/b") && page.contains("opened by hand"),
        "{page}"
    );
    assert!(
        page.contains(">shut<") && !page.contains(">closed<"),
        "a gate is open or shut: {page}"
    );
    assert_eq!(
        site.post("/breakers/open", "name=").await.status,
        axum::http::StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn a_worker_that_holds_jobs_and_is_not_heard_stands_first() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    let heard = async |worker: &str| {
        let beat = BeatRequest {
            worker: WorkerName::new(worker),
            queues: vec!["emails".parse().unwrap()],
            leases: Vec::new(),
            until: backstop.now().after(Span::secs(15)),
        };
        backstop.store().beat(beat, backstop.now()).await.unwrap();
    };
    heard("worker-deaf").await;
    running(backstop, "emails", "a", "worker-deaf").await;
    site.test.clock.advance(Span::minutes(2));
    heard("worker-alive").await;
    let page = site.page("/workers").await;
    let row = |name: &str| {
        let (before, row) = page
            .split_once(&format!(">{name}<"))
            .unwrap_or_else(|| panic!("{name}: {page}"));
        (before.len(), row.split("</tr>").next().unwrap())
    };
    let ((deaf, deaf_row), (alive, alive_row)) = (row("worker-deaf"), row("worker-alive"));
    assert!(deaf < alive, "whoever needs somebody stands first: {page}");
    assert!(
        deaf_row.contains(">not heard<")
            && deaf_row.contains(
                "<td class=\"num\"><a href=\"/jobs?state=running&#38;worker=worker-deaf\">1</a></td>"
            ),
        "{deaf_row}"
    );
    assert!(
        alive_row.contains(">live<") && alive_row.contains("href=\"/queues/emails\""),
        "{alive_row}"
    );
    assert!(page.contains("<span class=\"late\">1</span>"), "{page}");
}

/// Has a worker beat as those over HTTP do: only who tells of itself hears what it is asked for.
async fn tells_of_itself(site: &Site, worker: &str) {
    let (config, attendance) = (
        site.app.config(),
        backstop::http_workers::SeenWorkers::default(),
    );
    let remote = site.test.backstop.http_workers(&config, &attendance);
    let about = backstop::workers::WorkerDescription::default();
    remote
        .beat(
            &backstop::core::WorkerName::new(worker),
            &about,
            Vec::new(),
            None,
        )
        .await
        .unwrap();
}

#[tokio::test]
async fn a_worker_is_quieted_resumed_and_stopped_and_says_who_asked() {
    let site = Site::new("");
    heard(&site.test.backstop, "emails", "web/1").await;
    tells_of_itself(&site, "web/1").await;
    let page = site.page("/workers").await;
    for said in ["Yes, quiet web/1", "Yes, stop web/1", ">live<"] {
        assert!(page.contains(said), "{said} in {page}");
    }
    assert_eq!(
        site.post("/workers/quiet", "name=web%2F1").await.location,
        "/workers"
    );
    let page = site.page("/workers").await;
    for said in [
        ">quiet<",
        "asked to be quiet by token ada",
        "Resume web/1",
        "Yes, stop web/1",
    ] {
        assert!(page.contains(said), "{said} in {page}");
    }
    assert!(!page.contains("Yes, quiet web/1"), "{page}");
    site.post("/workers/resume", "name=web%2F1").await;
    assert!(site.page("/workers").await.contains(">live<"));
    site.post("/workers/stop", "name=web%2F1").await;
    let page = site.page("/workers").await;
    assert!(
        page.contains(">stopping<") && !page.contains("Yes, stop web/1"),
        "{page}"
    );
    site.post("/workers/stop", "name=nobody").await;
    assert_eq!(
        said(&site).await,
        ["worker quiet", "worker resume", "worker stop"]
    );
    assert_eq!(
        site.post("/workers/stop", "").await.status,
        axum::http::StatusCode::BAD_REQUEST
    );
}
