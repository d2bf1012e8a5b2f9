//! How much is taken, and how it is told that it was too much.

use crate::given::{GUARDED, HOST, Site, bearing, request};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use backstop_server::access::Scope;

const FORM: &str = "application/x-www-form-urlencoded";

/// A form of so many bytes, from a page of ours.
fn form(address: &str, token: &str, bytes: usize) -> Request<Body> {
    let builder = bearing(request(Method::POST, address), token)
        .header(header::ORIGIN, format!("http://{HOST}"))
        .header(header::CONTENT_TYPE, FORM);
    builder.body(Body::from(format!("x={}", "a".repeat(bytes - 2)))).unwrap()
}

#[tokio::test]
async fn strangers_send_no_more_than_a_token_to_the_login_page() {
    for base in ["", "/bs"] {
        let site = Site::new(&format!("{GUARDED}base = \"{base}\"\n"));
        let address = format!("{base}/login");
        let enough = site.ask(form(&address, "", 8 << 10)).await;
        assert_eq!(enough.status, StatusCode::SEE_OTHER, "{address}: it is read, and is no login");
        let (got, _) = site.read(form(&address, "", (8 << 10) + 1)).await;
        assert_eq!(got.status, StatusCode::PAYLOAD_TOO_LARGE, "{address}");
    }
}

#[tokio::test]
async fn pages_take_no_more_than_forms_have() {
    let site = Site::new(GUARDED);
    let token = site.token(&[Scope::Admin], None).await.token;
    assert_eq!(site.ask(form("/queues/q/pause", &token, 64 << 10)).await.status, StatusCode::SEE_OTHER);
    let got = site.ask(form("/queues/q/pause", &token, (64 << 10) + 1)).await;
    assert_eq!(got.status, StatusCode::PAYLOAD_TOO_LARGE);
}
