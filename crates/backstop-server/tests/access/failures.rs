//! Many wrong tokens from one address.

use crate::given::{GUARDED, PROXIED, Site, empty, login};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use backstop_server::access::{ConnectionPeer, Scope};

fn from(address: &str, token: &str) -> Request<Body> {
    let mut request = empty(crate::given::bearing(
        crate::given::request(Method::GET, "/v1/queues"),
        token,
    ));
    request.extensions_mut().insert(ConnectionPeer {
        address: address.parse().unwrap(),
        is_encrypted: false,
    });
    request
}

fn login_from(address: &str, token: &str) -> Request<Body> {
    let mut request = login(token, "");
    request.extensions_mut().insert(ConnectionPeer {
        address: address.parse().unwrap(),
        is_encrypted: false,
    });
    request
}

#[tokio::test]
async fn after_ten_wrong_tokens_an_address_has_to_wait() {
    let site = Site::new(GUARDED);
    let right = site.token(&[Scope::Read], None).await.token;
    for _ in 0..10 {
        assert_eq!(
            site.ask(from("192.0.2.1", "backstop_wrong")).await.status,
            StatusCode::UNAUTHORIZED
        );
    }
    let got = site.ask(from("192.0.2.1", "backstop_wrong")).await;
    assert_eq!(got.status, StatusCode::TOO_MANY_REQUESTS);
    let wait: u64 = got.text(header::RETRY_AFTER).parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(got.text(header::CONTENT_TYPE), "application/problem+json");
    assert_eq!(
        site.ask(from("192.0.2.2", "backstop_wrong")).await.status,
        StatusCode::UNAUTHORIZED
    );
    let status = site.ask(from("192.0.2.1", &right)).await.status;
    assert_eq!(
        status,
        StatusCode::OK,
        "a right token is not locked out by its neighbours"
    );
}

#[tokio::test]
async fn whoever_guesses_at_the_login_has_to_wait_and_a_right_token_still_opens() {
    let site = Site::new(GUARDED);
    let right = site.token(&[Scope::Read], None).await.token;
    for _ in 0..10 {
        let got = site.ask(login_from("192.0.2.1", "backstop_wrong")).await;
        assert_eq!(
            (got.status, got.text(header::LOCATION).as_str()),
            (StatusCode::SEE_OTHER, "/login?refused=1")
        );
    }
    let mut look = empty(crate::given::request(Method::GET, "/login?refused=1"));
    look.extensions_mut().insert(ConnectionPeer {
        address: "192.0.2.1".parse().unwrap(),
        is_encrypted: false,
    });
    let got = site.ask(login_from("192.0.2.1", &right)).await;
    assert_eq!(
        got.text(header::LOCATION),
        "/",
        "others behind the address lock out nobody"
    );
    for request in [login_from("192.0.2.1", "backstop_wrong"), look] {
        let (got, page) = site.read(request).await;
        assert_eq!(got.status, StatusCode::TOO_MANY_REQUESTS);
        let wait: u64 = got.text(header::RETRY_AFTER).parse().unwrap();
        assert!(
            (1..=60).contains(&wait) && got.text(header::SET_COOKIE).is_empty(),
            "{wait}"
        );
        assert!(
            page.contains("Too many wrong tokens") && page.contains("name=\"token\""),
            "{page}"
        );
        let told =
            (wait.saturating_sub(1)..=wait).any(|secs| page.contains(&format!("another {secs} s")));
        assert!(told, "it says how long: {page}");
    }
    assert_eq!(
        site.ask(from("192.0.2.1", &right)).await.status,
        StatusCode::OK,
        "programs are let in meanwhile"
    );
    assert_eq!(
        site.ask(login_from("192.0.2.9", &right))
            .await
            .text(header::LOCATION),
        "/"
    );
}

#[tokio::test]
async fn behind_a_proxy_the_address_is_what_the_proxy_added_last() {
    let through = |claimed: &str, address: &str| {
        let mut request = from("127.0.0.1", "backstop_wrong");
        let value = format!("{claimed}, {address}").parse().unwrap();
        request.headers_mut().insert("x-forwarded-for", value);
        request
    };
    for text in [GUARDED, PROXIED] {
        let site = Site::new(text);
        let right = site.token(&[Scope::Read], None).await.token;
        for n in 0..10 {
            let status = site
                .ask(through(&format!("203.0.113.{n}"), "192.0.2.1"))
                .await
                .status;
            assert_eq!(status, StatusCode::UNAUTHORIZED);
        }
        let stranger = site.ask(through("203.0.113.99", "192.0.2.1")).await.status;
        assert_eq!(stranger, StatusCode::TOO_MANY_REQUESTS, "{text}");
        assert_eq!(
            site.ask(through("203.0.113.99", "192.0.2.2")).await.status,
            StatusCode::UNAUTHORIZED
        );
        let mut login = login_from("127.0.0.1", &right);
        login
            .headers_mut()
            .insert("x-forwarded-for", "192.0.2.3".parse().unwrap());
        let got = site.ask(login).await;
        assert_eq!(
            got.text(header::LOCATION),
            "/",
            "one stranger locks out nobody else: {text}"
        );
    }
}
