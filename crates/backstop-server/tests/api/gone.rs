//! Callers that leave before they are answered.

use crate::given::{Api, config, given, on, router};
use crate::hostile::flaky;
use axum::body::Body;
use axum::http::{Method, Request};
use axum::response::Response;
use backstop::core::JobState;
use backstop::testing::start;
use backstop::{Backstop, JobId, Span};
use backstop_server::App;
use backstop_server::access::Scope;
use backstop_server::serve::Server;
use backstop_testkit::flaky::Odds;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tower::ServiceExt;

/// Longer than anything here takes that is to come to pass.
const PATIENCE: Duration = Duration::from_mins(5);

/// Waits until `is_so`.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let so = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, so).await.expect(what);
}

/// Waits until this many jobs of `q` are ready.
async fn until_ready(backstop: &Backstop, count: u64) {
    until("they are taken back", async || {
        let queues = backstop.store().queues(backstop.now()).await.unwrap();
        queues
            .iter()
            .any(|queue| queue.name.as_str() == "q" && queue.counts.of(JobState::Ready) == count)
    })
    .await;
}

/// Sends a request and hangs up, before the server can have read a byte of it.
fn hang_up(address: SocketAddr, path: &str, body: &Value) {
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
}

#[tokio::test]
async fn jobs_for_callers_that_hung_up_are_nobodys_loss_and_ready_at_once() {
    let test = start();
    for n in 0..60 {
        test.backstop
            .draft("q")
            .id(&n.to_string())
            .push()
            .await
            .unwrap();
    }
    let app = App::new(
        test.backstop.clone(),
        config("[server]\nlisten = \"127.0.0.1:0\"\n"),
        "",
    );
    let serving = Server::bind(&app).await.unwrap().start();
    // What a server does when it starts is over: on this one thread it would come between a request
    // and its being heard.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    for n in 0..60 {
        let ask = json!({ "queues": ["q"], "lease_ms": 1_000, "worker": format!("w{n}") });
        hang_up(serving.address(), "/v1/lease", &ask);
    }
    until("all of them asked", async || {
        test.backstop
            .store()
            .workers(Span::hours(1), test.backstop.now())
            .await
            .unwrap()
            .len()
            == 60
    })
    .await;
    until_ready(&test.backstop, 60).await;
    for n in 0..60 {
        let job = test
            .backstop
            .job(JobId::named(&n.to_string()))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (job.lost_leases, job.state),
            (0, JobState::Ready),
            "{n} never ran"
        );
    }
    let api = on(test.backstop, test.clock, "", &[Scope::Work]);
    assert_eq!(api.lease("q", 100).await.len(), 60, "all of them at once");
}

async fn leased(api: &Api, ask: &Value) -> Response {
    let router = router(
        &App::new(api.backstop.clone(), config(""), ""),
        &[Scope::Work],
    );
    let request = Request::builder().method(Method::POST).uri("/v1/lease");
    router
        .oneshot(request.body(Body::from(ask.to_string())).unwrap())
        .await
        .unwrap()
}

#[tokio::test]
async fn an_answer_that_is_not_read_to_its_end_is_taken_back() {
    let api = given();
    for n in 0..3 {
        api.push("q", &n.to_string()).await;
    }
    let ask = json!({ "queues": ["q"], "max": 3 });
    drop(leased(&api, &ask).await);
    until_ready(&api.backstop, 3).await;
    let mut body = leased(&api, &ask).await.into_body();
    let most = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(
        most.starts_with(br#"{"jobs":[{"#),
        "most of it comes at once"
    );
    drop(body);
    until_ready(&api.backstop, 3).await;
    let whole = leased(&api, &ask)
        .await
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes();
    let whole: Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(whole["jobs"].as_array().unwrap().len(), 3);
    for job in whole["jobs"].as_array().unwrap() {
        assert_eq!(
            api.settle(job, json!({ "outcome": "done" })).await,
            "applied",
            "whoever read it has it"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_stops_waiting_takes_no_job_from_others() {
    let api = given();
    let ask = json!({ "queues": ["q"], "wait_ms": 20_000 });
    tokio::time::timeout(Duration::from_secs(1), leased(&api, &ask))
        .await
        .expect_err("there is no job");
    // Whoever searched for it wakes first, if it still searches.
    api.push("q", "a").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        api.backstop
            .job(JobId::named("a"))
            .await
            .unwrap()
            .unwrap()
            .state,
        JobState::Ready
    );
    assert_eq!(api.lease("q", 1).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_is_made_to_its_end_and_written_down_when_its_caller_leaves() {
    for (path, what) in [
        ("/v1/dead/requeue", "requeue"),
        ("/v1/dead/redrive", "redrive"),
    ] {
        let (api, store) = flaky();
        for name in ["a", "b", "c"] {
            api.bury("q", name, "boom").await;
        }
        // From here on every call takes its time.
        store.set_odds(Odds {
            delay_before: 1.0,
            delay_max: Duration::from_secs(1),
            ..Odds::default()
        });
        let change = api.post(path, json!({ "all": true }));
        assert!(
            tokio::time::timeout(Duration::from_millis(1), change)
                .await
                .is_err(),
            "it takes longer"
        );
        let changed = async {
            while api.state("a").await == "dead" || api.state("c").await == "dead" {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, changed).await.expect(path);
        store.set_faults(false);
        let entry = async || {
            api.audit()
                .await
                .into_iter()
                .find(|entry| entry.what.starts_with(what))
        };
        let whole = async {
            while entry()
                .await
                .is_none_or(|entry| what == "requeue" && entry.count != Some(3))
            {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, whole)
            .await
            .expect("the audit says what, and how many");
    }
}
