//! How many new queues a token may name, and the store may have.

use crate::given::{GUARDED, Site, bearing, request};
use axum::body::Body;
use axum::http::Method;
use backstop_core::limits::{STREAMS_MAX, TOKEN_QUEUES_MAX};
use backstop_core::port::StreamStore;
use backstop_memory::MemoryStore;
use backstop_server::access::Scope;
use serde_json::{Value, json};
use std::ops::Range;
use std::sync::Arc;

async fn push(site: &Site, token: &str, queues: Vec<String>) -> (u16, Value) {
    let jobs: Vec<Value> = queues
        .into_iter()
        .map(|queue| json!({ "queue": queue, "payload": 1 }))
        .collect();
    let body = Body::from(json!({ "jobs": jobs }).to_string());
    let (got, text) = site
        .read(
            bearing(request(Method::POST, "/v1/jobs/batch"), token)
                .body(body)
                .unwrap(),
        )
        .await;
    (got.status.as_u16(), serde_json::from_str(&text).unwrap())
}

fn named(name: &str, numbers: Range<usize>) -> Vec<String> {
    numbers.map(|n| format!("{name}-{n}")).collect()
}

#[tokio::test]
async fn a_token_names_only_so_many_new_queues_and_says_what_to_do() {
    let site = Site::on(Arc::new(MemoryStore::new()), GUARDED);
    let greedy = site.token(&[Scope::Push], None).await.token;
    let other = site.token_for(&[Scope::Push], &["b-0"]).await;
    assert_eq!(
        push(&site, &greedy, named("a", 0..TOKEN_QUEUES_MAX))
            .await
            .0,
        200
    );
    let (status, said) = push(
        &site,
        &greedy,
        [named("a", 0..1), named("b", 0..1)].concat(),
    )
    .await;
    assert_eq!(status, 429, "{said}");
    let detail = said["detail"].as_str().unwrap();
    assert!(
        detail.contains("b-0") && detail.contains("nothing was enqueued"),
        "{detail}"
    );
    assert_eq!(
        push(&site, &other, named("b", 0..1)).await.0,
        200,
        "each token has its own share"
    );
}

#[tokio::test]
async fn a_store_that_is_full_of_queues_refuses_a_new_one_with_429() {
    let site = Site::on(Arc::new(MemoryStore::new().with_max_queues(3)), GUARDED);
    let token = site.token(&[Scope::Push], None).await.token;
    assert_eq!(push(&site, &token, named("a", 0..3)).await.0, 200);
    let (status, said) = push(&site, &token, [named("a", 0..1), named("b", 0..1)].concat()).await;
    assert_eq!(status, 429, "{said}");
    let detail = said["detail"].as_str().unwrap();
    assert!(
        detail.contains("max_queues") && detail.contains("nothing was enqueued"),
        "{detail}"
    );
    assert_eq!(push(&site, &token, named("a", 0..3)).await.0, 200);
}

async fn offer(site: &Site, token: &str, stream: &str) -> (u16, Value) {
    let address = format!("/v1/streams/{stream}/records");
    let body = json!({ "key": "k", "position": 1, "step": 1, "payload": 1 });
    let asked = bearing(request(Method::POST, &address), token);
    let asked = asked.body(Body::from(body.to_string())).unwrap();
    let (got, text) = site.read(asked).await;
    (got.status.as_u16(), serde_json::from_str(&text).unwrap())
}

#[tokio::test]
async fn a_store_that_is_full_of_streams_refuses_a_new_one_with_429() {
    let store = Arc::new(MemoryStore::new());
    let site = Site::on(Arc::<MemoryStore>::clone(&store), GUARDED);
    let token = site.token(&[Scope::Push], None).await.token;
    for n in 0..STREAMS_MAX {
        assert_eq!(offer(&site, &token, &format!("s-{n}")).await.0, 200);
    }
    let (status, said) = offer(&site, &token, "new").await;
    assert_eq!(status, 429, "{said}");
    let detail = said["detail"].as_str().unwrap();
    assert!(
        detail.contains("stream new") && detail.contains("no record was taken in"),
        "{detail}"
    );
    assert_eq!(store.streams().await.unwrap().len(), STREAMS_MAX);
    assert_eq!(
        offer(&site, &token, "s-0").await.0,
        200,
        "a stream that exists is free"
    );
}

#[tokio::test]
async fn new_streams_count_to_the_share_of_their_token() {
    let site = Site::on(Arc::new(MemoryStore::new()), GUARDED);
    let greedy = site.token(&[Scope::Push], None).await.token;
    let other = site.token_named("eve", &[Scope::Push]).await;
    let queues = named("a", 0..TOKEN_QUEUES_MAX);
    assert_eq!(push(&site, &greedy, queues).await.0, 200);
    let (status, said) = offer(&site, &greedy, "new").await;
    assert_eq!(
        (status, &said["type"]),
        (429, &json!("urn:backstop:problem:too-many-streams"))
    );
    assert_eq!(offer(&site, &other, "new").await.0, 200);
    assert_eq!(offer(&site, &greedy, "new").await.0, 200, "it exists now");
}
