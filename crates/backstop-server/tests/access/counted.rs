//! What is turned away or cut off is counted like everything else.

use crate::given::{FOREIGN, GUARDED, Site, bearing, empty, login, request};
use axum::body::Body;
use axum::http::{Method, Request, header};
use backstop_memory::MemoryStore;
use backstop_server::access::Scope;
use backstop_testkit::flaky::{Flaky, Odds};
use std::sync::Arc;
use std::time::Duration;

/// How often a request of this kind was answered so. Other tests ask as well, and nobody ever takes
/// one back.
async fn count(site: &Site, token: &str, method: &str, route: &str, status: u16) -> u64 {
    let (_, text) = site
        .read(empty(bearing(request(Method::GET, "/metrics"), token)))
        .await;
    let labels = [
        format!("method=\"{method}\""),
        format!("route=\"{route}\""),
        format!("status=\"{status}\""),
    ];
    let mut lines = text
        .lines()
        .filter(|line| line.starts_with("backstop_http_requests_total{"));
    let line = lines.find(|line| labels.iter().all(|label| line.contains(label)));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn whoever_is_refused_is_in_the_metrics() {
    let site = Site::new(GUARDED);
    let token = site.token(&[Scope::Read], None).await.token;
    let check = async |asked: Request<Body>, method: &str, route: &str, status: u16| {
        let before = count(&site, &token, method, route, status).await;
        assert_eq!(
            site.ask(asked).await.status.as_u16(),
            status,
            "{method} {route}"
        );
        assert!(
            count(&site, &token, method, route, status).await > before,
            "{method} {route} {status}"
        );
    };
    let wrong = bearing(request(Method::GET, "/v1/queues"), "backstop_wrong");
    check(empty(wrong), "GET", "/v1/queues", 401).await;
    let without = bearing(request(Method::POST, "/v1/jobs"), &token);
    check(empty(without), "POST", "/v1/jobs", 403).await;
    let foreign = bearing(request(Method::GET, "/v1/dead"), &token).header(header::ORIGIN, FOREIGN);
    check(empty(foreign), "GET", "/v1/dead", 403).await;
    let nowhere = bearing(request(Method::GET, "/no/such/page"), &token);
    check(empty(nowhere), "GET", "none", 404).await;
    let mut large = login("x", "");
    *large.body_mut() = Body::from(vec![b'a'; 1 << 20]);
    check(large, "POST", "/login", 413).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_is_cut_off_is_in_the_metrics() {
    let store = Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1));
    let site = Site::on(
        Arc::<Flaky>::clone(&store),
        &format!("{GUARDED}timeout = \"1s\"\n"),
    );
    let token = site.token(&[Scope::Admin], None).await.token;
    let before = count(&site, &token, "GET", "/v1/jobs", 408).await;
    store.set_odds(Odds {
        delay_before: 1.0,
        delay_max: Duration::from_hours(9_000),
        ..Odds::default()
    });
    let got = site
        .ask(empty(bearing(request(Method::GET, "/v1/jobs"), &token)))
        .await;
    assert_eq!(got.status.as_u16(), 408);
    store.set_odds(Odds::default());
    assert!(count(&site, &token, "GET", "/v1/jobs", 408).await > before);
}
