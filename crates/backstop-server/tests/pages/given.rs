//! Jobs in every state, and requests with headers of their own.

use crate::site::Site;
use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use backstop::core::failure::ErrorReport;
use backstop::core::lease::{LeaseNumber, WorkerName};
use backstop::core::plan::QueueQuota;
use backstop::core::port::{BeatRequest, Claim};
use backstop::core::verdict::FailureAdvice;
use backstop::{Backstop, JobId, JobState, RunError, Span};
use backstop_server::access::{Caller, ScopeSet};
use backstop_server::{App, pages};
use tower::ServiceExt as _;

/// A ready job.
pub(crate) async fn ready(backstop: &Backstop, queue: &str, name: &str) -> JobId {
    backstop
        .draft(queue)
        .id(name)
        .kind("task")
        .payload(r#"{"n":1}"#)
        .push()
        .await
        .unwrap()
        .id
}

/// A job that is dead of this.
pub(crate) async fn dead(
    backstop: &Backstop,
    queue: &str,
    name: &str,
    error: ErrorReport,
) -> JobId {
    let id = ready(backstop, queue, name).await;
    drain_dead(backstop, queue, "w", error).await;
    id
}

/// Works a queue off: everything in it dies of this.
pub(crate) async fn drain_dead(backstop: &Backstop, queue: &str, worker: &str, error: ErrorReport) {
    let handler = move |_run| {
        let error = error.clone();
        async move { Err(RunError::with_advice(error, FailureAdvice::Dead)) }
    };
    backstop
        .worker()
        .name(worker)
        .handle_raw(queue, handler)
        .drain()
        .await
        .unwrap();
}

/// A job in the hands of a worker.
pub(crate) async fn running(backstop: &Backstop, queue: &str, name: &str, worker: &str) -> JobId {
    let id = ready(backstop, queue, name).await;
    let now = backstop.now();
    let claim = Claim {
        number: LeaseNumber::draw(u64::from_be_bytes(*id.as_bytes().first_chunk().unwrap())),
        worker: WorkerName::new(worker),
        until: now.after(Span::secs(15)),
        wants: vec![QueueQuota {
            queue: queue.parse().unwrap(),
            max: 1,
        }],
    };
    assert_eq!(
        backstop.store().claim(claim, now).await.unwrap().runs.len(),
        1
    );
    id
}

/// A beat of a worker that names no lease.
pub(crate) async fn heard(backstop: &Backstop, queue: &str, worker: &str) {
    let (now, queues) = (backstop.now(), vec![queue.parse().unwrap()]);
    let until = now.after(Span::secs(15));
    let beat = BeatRequest {
        worker: WorkerName::new(worker),
        queues,
        leases: Vec::new(),
        until,
    };
    backstop.store().beat(beat, now).await.unwrap();
}

/// Waits until a page says this, of something that goes on in the background.
pub(crate) async fn until_said(site: &Site, address: &str, said: &str) -> String {
    let waited = tokio::time::timeout(std::time::Duration::from_mins(1), async {
        loop {
            let page = site.page(address).await;
            if page.contains(said) {
                return page;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    waited
        .await
        .unwrap_or_else(|_| panic!("{address} never says {said}"))
}

/// The state of a job; `None` if it is gone.
pub(crate) async fn state(site: &Site, id: JobId) -> Option<JobState> {
    site.test
        .backstop
        .job(id)
        .await
        .unwrap()
        .map(|job| job.state)
}

/// What the audit says was done, by its words: the clock of these tests stands still.
pub(crate) async fn said(site: &Site) -> Vec<String> {
    let mut said: Vec<String> = site
        .audit()
        .await
        .into_iter()
        .map(|(_, what)| what)
        .collect();
    said.sort_unstable();
    said
}

/// What came back.
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// Asks for a page with headers of one's own.
pub(crate) async fn ask(app: &App, request: Request<Body>) -> Answered {
    let caller = Caller::new("token ada", ScopeSet::ALL);
    let router = pages::routes()
        .layer(Extension(caller))
        .with_state(app.clone());
    let answer = router.oneshot(request).await.unwrap();
    let (status, headers) = (answer.status(), answer.headers().clone());
    let body = to_bytes(answer.into_body(), 16 << 20).await.unwrap();
    Answered {
        status,
        headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}
