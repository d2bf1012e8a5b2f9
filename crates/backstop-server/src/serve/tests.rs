use super::*;
use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::response::Parts;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use backstop::config::{ConfigOverrides, resolve};
use tower::ServiceExt;

async fn panics() -> &'static str {
    panic!("secret words of a panic")
}

/// Asks a server under this path, one of whose routes panics.
async fn asked(base: &str, route: &str) -> (Parts, String) {
    let config = resolve(None, ConfigOverrides::default(), ConfigOverrides::default()).unwrap();
    let app = App::new(backstop::testing::start().backstop, config, base);
    let address = format!("{base}{route}");
    let router = with_middleware(Router::new().route(&address, get(panics)), &app).with_state(app);
    let (head, body) = router
        .oneshot(
            Request::get(&address)
                .header("host", "localhost")
                .body(Body::empty())
                .unwrap(),
        )
        .await
        .unwrap()
        .into_parts();
    let text = axum::body::to_bytes(body, 1 << 16).await.unwrap();
    (head, String::from_utf8(text.to_vec()).unwrap())
}

#[tokio::test]
async fn a_route_that_panics_is_answered_for_its_reader_and_says_nothing_of_why() {
    for base in ["", "/bs"] {
        for (route, content) in [
            ("/v1/panics", "application/problem+json"),
            ("/metrics", "application/problem+json"),
            ("/panics", "text/html; charset=utf-8"),
        ] {
            let (head, text) = asked(base, route).await;
            assert_eq!(
                head.status,
                StatusCode::INTERNAL_SERVER_ERROR,
                "{base}{route}"
            );
            assert_eq!(head.headers[CONTENT_TYPE], content, "{base}{route}");
            for name in [
                "content-security-policy",
                "x-content-type-options",
                "referrer-policy",
                "x-frame-options",
                "cross-origin-resource-policy",
                "cross-origin-opener-policy",
            ] {
                assert!(head.headers.contains_key(name), "{name} of {base}{route}");
            }
            assert_eq!(head.headers[CACHE_CONTROL], "no-store", "{base}{route}");
            assert!(
                text.contains("server's log says why")
                    || text.contains("server&#39;s log says why"),
                "{text}"
            );
            assert!(!text.contains("secret"), "{text}");
        }
    }
}
