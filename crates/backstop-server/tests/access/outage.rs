//! A store that hangs or fails: whoever is known gets in, nobody waits for long, and nobody waits
//! for others.

use crate::given::{GUARDED, Site, bearing, empty, login, request};
use axum::http::{Method, StatusCode};
use backstop_memory::MemoryStore;
use backstop_server::access::Scope;
use backstop_testkit::flaky::{Fault, Flaky, Odds};
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Longer than a token is remembered without asking.
const NOT_FRESH: Duration = Duration::from_secs(4);

fn given() -> (Arc<Flaky>, Site) {
    let store = Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1));
    let site = Site::on(Arc::<Flaky>::clone(&store), GUARDED);
    (store, site)
}

/// From now on no call is answered for hours.
fn hang(store: &Flaky) {
    store.set_odds(Odds {
        delay_before: 1.0,
        delay_max: Duration::from_hours(9_000),
        ..Odds::default()
    });
}

#[tokio::test(start_paused = true)]
async fn while_the_store_hangs_many_at_once_are_let_in_by_what_is_remembered() {
    let (store, site) = given();
    let token = site.token(&[Scope::Read], None).await.token;
    let metrics = || site.read(empty(bearing(request(Method::GET, "/metrics"), &token)));
    assert_eq!(metrics().await.0.status, StatusCode::OK);
    sleep(NOT_FRESH).await;
    hang(&store);
    let started = Instant::now();
    for (got, text) in join_all((0..100).map(|_| metrics())).await {
        assert_eq!(got.status, StatusCode::OK);
        assert!(text.contains("backstop_store_up 0"), "{text}");
    }
    // By tokio's own time: one wait for the tokens and one for the numbers, whoever asks.
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    assert!(
        store.injected_into("list_cells", Fault::DelayBefore) > 0,
        "the tokens were asked for"
    );
}

#[tokio::test(start_paused = true)]
async fn while_the_store_hangs_nobody_who_is_not_remembered_waits_for_long() {
    let (store, site) = given();
    let token = site.token(&[Scope::Admin], None).await.token;
    hang(&store);
    let started = Instant::now();
    let ask = || site.ask(empty(bearing(request(Method::GET, "/v1/queues"), &token)));
    for got in join_all((0..100).map(|_| ask())).await {
        assert_eq!(got.status, StatusCode::SERVICE_UNAVAILABLE);
    }
    let session = request(Method::GET, "/queues").header("cookie", "backstop_session=session_x");
    assert_eq!(
        site.ask(empty(session)).await.status,
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_failed_is_not_asked_again_by_each_who_comes() {
    let (store, site) = given();
    let token = site.token(&[Scope::Read], None).await.token;
    let health = || {
        site.ask(empty(bearing(
            request(Method::GET, "/openapi.json"),
            &token,
        )))
    };
    assert_eq!(health().await.status, StatusCode::OK);
    sleep(NOT_FRESH).await;
    store.set_down(true);
    for _ in 0..100 {
        assert_eq!(health().await.status, StatusCode::OK);
    }
    assert_eq!(store.injected_into("list_cells", Fault::Down), 1);
}

#[tokio::test(start_paused = true)]
async fn once_the_store_answers_again_a_revoked_token_is_refused() {
    let (store, site) = given();
    let minted = site.token(&[Scope::Read], None).await;
    let ask = || {
        site.ask(empty(bearing(
            request(Method::GET, "/openapi.json"),
            &minted.token,
        )))
    };
    assert_eq!(ask().await.status, StatusCode::OK);
    backstop_server::access::TokenRegistry::of(&site.backstop)
        .revoke("test", &minted.id)
        .await
        .unwrap();
    sleep(NOT_FRESH).await;
    store.set_down(true);
    assert_eq!(
        ask().await.status,
        StatusCode::OK,
        "nobody can say that it was revoked"
    );
    store.set_down(false);
    sleep(NOT_FRESH).await;
    assert_eq!(ask().await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn strangers_who_ask_whether_it_is_ready_make_no_examination() {
    let (store, site) = given();
    let token = site.token(&[Scope::Read], None).await.token;
    // No delay, and a count of every call.
    store.set_odds(Odds {
        delay_before: 1.0,
        ..Odds::default()
    });
    let examined = || store.injected_into("examine", Fault::DelayBefore);
    for _ in 0..3 {
        assert_eq!(
            site.ask(empty(request(Method::GET, "/readyz")))
                .await
                .status,
            StatusCode::OK
        );
    }
    let asked = |method| store.injected_into(method, Fault::DelayBefore);
    assert_eq!(
        (asked("cells"), asked("queues"), asked("workers")),
        (1, 0, 0),
        "once a second, and for no list"
    );
    assert_eq!(examined(), 0);
    site.ask(empty(bearing(request(Method::GET, "/metrics"), &token)))
        .await;
    let made = tokio::time::timeout(Duration::from_mins(1), async {
        while examined() == 0 {
            tokio::task::yield_now().await;
        }
    });
    made.await.expect("whoever has a token makes one");
}

#[tokio::test]
async fn what_the_store_said_is_not_told_to_strangers() {
    let (store, site) = given();
    store.set_down(true);
    let stranger = format!("backstop_{}", "0".repeat(76));
    let cookie = "backstop_session=session_x";
    for asked in [
        empty(bearing(request(Method::GET, "/v1/queues"), &stranger)),
        empty(request(Method::GET, "/queues").header("cookie", cookie)),
        login(&stranger, ""),
    ] {
        let (got, text) = site.read(asked).await;
        assert_eq!(got.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(
            text.contains("log says more") && !text.contains("injected"),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_hangs_a_push_is_told_in_time_how_to_repeat_it() {
    let (store, site) = given();
    let token = site.token(&[Scope::Push], None).await.token;
    let push = async |address: &str, body: &'static str| {
        let request = bearing(request(Method::POST, address), &token);
        site.read(request.body(axum::body::Body::from(body)).unwrap())
            .await
    };
    assert_eq!(
        push("/v1/jobs", r#"{"queue":"q","payload":1}"#)
            .await
            .0
            .status,
        StatusCode::CREATED
    );
    hang(&store);
    for (address, body, said) in [
        (
            "/v1/jobs",
            r#"{"queue":"q","payload":1}"#,
            "send it again with \\\"id\\\": \\\"",
        ),
        (
            "/v1/jobs/batch",
            r#"{"jobs":[{"queue":"q","payload":1,"id":"a"}]}"#,
            "with the same ids",
        ),
    ] {
        let started = Instant::now();
        let (got, text) = push(address, body).await;
        assert_eq!(
            got.status,
            StatusCode::SERVICE_UNAVAILABLE,
            "{address}: {text}"
        );
        assert!(got.headers.contains_key("retry-after"), "{address}");
        assert!(
            text.contains(said) && text.contains("not taken in twice"),
            "{address}: {text}"
        );
        // By tokio's own time: the store's part, and what the token may take.
        assert!(
            started.elapsed() <= Duration::from_secs(15),
            "{address}: {:?}",
            started.elapsed()
        );
    }
}
