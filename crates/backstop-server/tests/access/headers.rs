//! What every answer carries, whatever it is an answer to.

use crate::given::{FOREIGN, GUARDED, Got, Site, bearing, empty, request, to};
use crate::routes::all;
use axum::body::Body;
use axum::http::{Method, StatusCode, header};
use backstop_server::access::Scope;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

fn assert_fortified(got: &Got, what: &dyn std::fmt::Debug) {
    assert_eq!(
        got.text(header::CONTENT_SECURITY_POLICY),
        POLICY,
        "{what:?}"
    );
    assert_eq!(
        got.text(header::X_CONTENT_TYPE_OPTIONS),
        "nosniff",
        "{what:?}"
    );
    assert_eq!(got.text(header::REFERRER_POLICY), "no-referrer", "{what:?}");
    assert_eq!(got.text(header::X_FRAME_OPTIONS), "DENY", "{what:?}");
    assert!(!got.text(header::CACHE_CONTROL).is_empty(), "{what:?}");
}

#[tokio::test]
async fn every_answer_of_every_route_carries_them() {
    let site = Site::new(GUARDED);
    let token = site.token(&[Scope::Admin], None).await.token;
    for route in all() {
        let got = site.ask(empty(bearing(to(&route), &token))).await;
        assert_fortified(&got, &route);
        if !route.pattern.starts_with("/assets/") {
            assert_eq!(got.text(header::CACHE_CONTROL), "no-store", "{route:?}");
        }
        assert_fortified(&site.ask(empty(to(&route))).await, &route);
        assert_fortified(
            &site
                .ask(empty(to(&route).header(header::ORIGIN, FOREIGN)))
                .await,
            &route,
        );
    }
}

#[tokio::test]
async fn so_does_every_answer_of_none() {
    let site = Site::new(GUARDED);
    let token = site.token(&[Scope::Admin], None).await.token;
    let check = async |method: Method, address: &str, body: Body, expected: StatusCode| {
        let request = bearing(request(method, address), &token)
            .body(body)
            .unwrap();
        let got = site.ask(request).await;
        assert_eq!(got.status, expected, "{address}");
        assert_fortified(&got, &address);
        assert_eq!(got.text(header::CACHE_CONTROL), "no-store", "{address}");
    };
    check(
        Method::GET,
        "/nowhere",
        Body::empty(),
        StatusCode::NOT_FOUND,
    )
    .await;
    check(
        Method::GET,
        "/v1/nowhere",
        Body::empty(),
        StatusCode::NOT_FOUND,
    )
    .await;
    check(
        Method::GET,
        "/assets/nothing.js",
        Body::empty(),
        StatusCode::NOT_FOUND,
    )
    .await;
    check(
        Method::PUT,
        "/v1/jobs",
        Body::empty(),
        StatusCode::METHOD_NOT_ALLOWED,
    )
    .await;
    check(
        Method::DELETE,
        "/streams",
        Body::empty(),
        StatusCode::METHOD_NOT_ALLOWED,
    )
    .await;
    check(
        Method::POST,
        "/v1/jobs",
        Body::from("{"),
        StatusCode::BAD_REQUEST,
    )
    .await;
    let large = || Body::from(vec![b' '; 2 << 20]);
    check(
        Method::POST,
        "/v1/jobs",
        large(),
        StatusCode::PAYLOAD_TOO_LARGE,
    )
    .await;
    let huge = || Body::from(vec![b' '; 11 << 20]);
    check(
        Method::POST,
        "/v1/jobs/batch",
        huge(),
        StatusCode::PAYLOAD_TOO_LARGE,
    )
    .await;
}

#[tokio::test]
async fn a_file_that_never_changes_may_be_kept() {
    let site = Site::new(GUARDED);
    let (_, page) = site.read(empty(request(Method::GET, "/login"))).await;
    let start = page.find("/assets/").expect("a page names its style");
    let address: String = page[start..]
        .chars()
        .take_while(|c| !matches!(c, '"' | '\'' | '>'))
        .collect();
    let got = site.ask(empty(request(Method::GET, &address))).await;
    assert_eq!(got.status, StatusCode::OK, "{address}");
    assert!(
        got.text(header::CACHE_CONTROL).contains("immutable"),
        "{}",
        got.text(header::CACHE_CONTROL)
    );
    assert_fortified(&got, &address);
}

#[tokio::test]
async fn an_address_that_stands_for_no_text_is_refused_to_people_on_a_page_and_to_programs_as_a_problem()
 {
    for base in ["", "/bs"] {
        let site = Site::new(&format!("{GUARDED}base = \"{base}\"\n"));
        let token = site.token(&[Scope::Admin], None).await.token;
        for (method, address, content) in [
            (Method::GET, "/jobs/%ff", "text/html; charset=utf-8"),
            (Method::GET, "/queues/%C3%28", "text/html; charset=utf-8"),
            (
                Method::GET,
                "/streams/s/keys/%ff%fe",
                "text/html; charset=utf-8",
            ),
            (
                Method::POST,
                "/queues/%ff/pause",
                "text/html; charset=utf-8",
            ),
            (Method::GET, "/v1/jobs/%ff", "application/problem+json"),
            (
                Method::DELETE,
                "/v1/streams/s/keys/%80",
                "application/problem+json",
            ),
        ] {
            let asked = bearing(request(method, &format!("{base}{address}")), &token);
            let (got, text) = site.read(empty(asked)).await;
            assert_eq!(
                got.status,
                StatusCode::BAD_REQUEST,
                "{base}{address}: {text}"
            );
            assert_eq!(
                got.text(header::CONTENT_TYPE),
                content,
                "{base}{address}: {text}"
            );
            assert!(text.contains("UTF-8"), "{text}");
            assert_fortified(&got, &address);
        }
    }
}
