use super::*;
use axum::body::Body;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{Request, StatusCode};
use axum::routing::get;
use backstop::config::{Overrides, resolve};
use tower::ServiceExt;

async fn panics() -> &'static str {
    panic!("secret words of a panic")
}

#[tokio::test]
async fn a_route_that_panics_is_answered_and_says_nothing_of_why() {
    let config = resolve(None, Overrides::default(), Overrides::default()).unwrap();
    let app = App::new(backstop::testing::start().backstop, config, "");
    let router = fortified(Router::new().route("/v1/panics", get(panics)), &app).with_state(app);
    let request = Request::get("/v1/panics").body(Body::empty()).unwrap();
    let (head, body) = router.oneshot(request).await.unwrap().into_parts();
    assert_eq!(head.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(head.headers[CONTENT_TYPE], "application/problem+json");
    assert!(head.headers.contains_key(CONTENT_SECURITY_POLICY));
    let text = axum::body::to_bytes(body, 1 << 16).await.unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    assert!(text.contains("the server's log says why") && !text.contains("secret"), "{text}");
}
