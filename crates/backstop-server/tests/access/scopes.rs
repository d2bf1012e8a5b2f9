//! Every route × {no token, wrong, expired, revoked, each right}.

use crate::given::{GUARDED, OPEN, Site, bearing, empty, request, to};
use crate::routes::{all, writes};
use axum::body::{Body, Bytes};
use axum::http::{Method, StatusCode, header};
use backstop::Span;
use backstop_server::access::{RequiredAccess, Scope, TokenRegistry};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::test]
async fn nobody_gets_anywhere_without_a_token() {
    let site = Site::new(GUARDED);
    site.token(&[Scope::Admin], None).await;
    for route in all()
        .iter()
        .filter(|route| route.need() != RequiredAccess::Public)
    {
        let got = site.ask(empty(to(route))).await;
        assert!(got.is_unknown(route), "{route:?}: {}", got.status);
    }
    for address in [
        "/nowhere",
        "/v1/nowhere",
        "/v1/jobs/x/nothing",
        "/..%2f..%2fetc/passwd",
    ] {
        let status = site.ask(empty(request(Method::GET, address))).await.status;
        assert!(
            [StatusCode::UNAUTHORIZED, StatusCode::SEE_OTHER].contains(&status),
            "{address}: {status}"
        );
    }
}

#[tokio::test]
async fn only_what_a_machine_or_a_login_asks_for_needs_no_token() {
    let open: Vec<String> = all()
        .into_iter()
        .filter(|route| route.need() == RequiredAccess::Public)
        .map(|route| route.pattern)
        .collect();
    for pattern in open {
        let is_known = ["/healthz", "/readyz", "/login", "/logout"].contains(&pattern.as_str());
        assert!(
            is_known || pattern.starts_with("/assets/"),
            "{pattern} is open to everybody"
        );
    }
}

#[tokio::test]
async fn wrong_expired_and_revoked_tokens_open_nothing() {
    let site = Site::new(GUARDED);
    let right = site.token(&[Scope::Admin], None).await.token;
    let short = site
        .token(&[Scope::Admin], Some(Span::secs(60)))
        .await
        .token;
    let gone = site.token(&[Scope::Admin], None).await;
    assert!(
        TokenRegistry::of(&site.backstop)
            .revoke("test", &gone.id)
            .await
            .unwrap()
    );
    site.clock.advance(Span::secs(60));
    let wrong = format!(
        "{}{}",
        &right[..right.len() - 1],
        if right.ends_with('0') { '1' } else { '0' }
    );
    let longer = format!("{right}0");
    let upper = right.to_uppercase();
    for route in all()
        .iter()
        .filter(|route| route.need() != RequiredAccess::Public)
    {
        for token in [&wrong, &longer, &upper, &short, &gone.token, ""] {
            let got = site.ask(empty(bearing(to(route), token))).await;
            assert!(
                got.is_unknown(route),
                "{route:?} with {token}: {}",
                got.status
            );
        }
        for value in ["Basic YTpi", "Bearer", "bearer\u{e9}", &right] {
            let got = site
                .ask(empty(to(route).header(header::AUTHORIZATION, value)))
                .await;
            assert!(
                got.is_unknown(route),
                "{route:?} with {value}: {}",
                got.status
            );
        }
    }
}

#[tokio::test]
async fn each_right_opens_its_own_routes_and_admin_opens_all() {
    let site = Site::new(GUARDED);
    for scope in Scope::ALL {
        let token = site.token(&[scope], None).await.token;
        for route in all() {
            let RequiredAccess::Scope(needed) = route.need() else {
                continue;
            };
            let status = site.ask(empty(bearing(to(&route), &token))).await.status;
            let may = scope == Scope::Admin || scope == needed;
            if may {
                let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
                assert!(
                    !refused.contains(&status),
                    "{scope} must open {route:?}: {status}"
                );
            } else {
                assert_eq!(
                    status,
                    StatusCode::FORBIDDEN,
                    "{scope} must not open {route:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn several_rights_add_up() {
    let site = Site::new(GUARDED);
    let token = site.token(&[Scope::Push, Scope::Read], None).await.token;
    let status = async |method, address| {
        site.ask(empty(bearing(request(method, address), &token)))
            .await
            .status
    };
    assert_eq!(
        status(Method::POST, "/v1/jobs").await,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(status(Method::GET, "/v1/jobs").await, StatusCode::OK);
    assert_eq!(
        status(Method::POST, "/v1/lease").await,
        StatusCode::FORBIDDEN
    );
}

#[tokio::test]
async fn a_new_token_works_at_once_beside_the_old_one() {
    let site = Site::new(GUARDED);
    let old = site.token(&[Scope::Read], None).await;
    let status = async |token: &str| {
        site.ask(empty(bearing(request(Method::GET, "/v1/queues"), token)))
            .await
            .status
    };
    assert_eq!(status(&old.token).await, StatusCode::OK);
    let new = site.token(&[Scope::Read], None).await;
    assert_eq!(status(&new.token).await, StatusCode::OK);
    assert_eq!(status(&old.token).await, StatusCode::OK);
}

#[tokio::test]
async fn no_byte_of_a_body_is_read_before_it_is_known_who_sends_it() {
    let site = Site::new(GUARDED);
    let reader = site.token(&[Scope::Read], None).await.token;
    for route in writes()
        .iter()
        .filter(|route| route.need() != RequiredAccess::Public)
    {
        let mut builders = vec![to(route), bearing(to(route), "backstop_wrong")];
        if route.need() != RequiredAccess::Scope(Scope::Read) {
            builders.push(bearing(to(route), &reader));
        }
        for builder in builders {
            let touched = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&touched);
            let stream = futures_util::stream::poll_fn(move |_| {
                flag.store(true, Ordering::SeqCst);
                std::task::Poll::Ready(Some(Ok::<_, Infallible>(Bytes::from_static(b"x"))))
            });
            let got = site
                .ask(builder.body(Body::from_stream(stream)).unwrap())
                .await;
            assert!(!got.status.is_success(), "{route:?}: {}", got.status);
            assert!(
                !touched.load(Ordering::SeqCst),
                "{route:?}: its body was read"
            );
        }
    }
}

#[tokio::test]
async fn on_this_machine_no_token_is_needed_and_a_wrong_one_is_still_wrong() {
    let site = Site::new(OPEN);
    let reader = site.token(&[Scope::Read], None).await.token;
    let on = |method: Method, address: &str| {
        let mut builder = request(method, address);
        builder
            .headers_mut()
            .unwrap()
            .insert(header::HOST, "127.0.0.1:7007".parse().unwrap());
        builder
    };
    let status = async |builder| site.ask(empty(builder)).await.status;
    assert_eq!(status(on(Method::GET, "/v1/queues")).await, StatusCode::OK);
    assert_eq!(
        status(on(Method::POST, "/v1/queues/q/pause")).await,
        StatusCode::OK
    );
    assert_eq!(
        status(bearing(on(Method::GET, "/v1/queues"), "backstop_wrong")).await,
        StatusCode::UNAUTHORIZED
    );
    let limited = bearing(on(Method::POST, "/v1/queues/q/pause"), &reader);
    assert_eq!(
        status(limited).await,
        StatusCode::FORBIDDEN,
        "a token's rights are its holder's"
    );
}

#[tokio::test]
async fn a_path_to_stand_under_changes_nothing() {
    let site = Site::new(&format!("{GUARDED}base = \"/jobs\"\n"));
    let token = site.token(&[Scope::Push], None).await.token;
    let status = async |method, address: &str| {
        site.ask(empty(bearing(request(method, address), &token)))
            .await
            .status
    };
    assert_eq!(
        status(Method::POST, "/jobs/v1/jobs").await,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        status(Method::POST, "/jobs/v1/lease").await,
        StatusCode::FORBIDDEN
    );
    assert_eq!(
        status(Method::POST, "/v1/jobs").await,
        StatusCode::NOT_FOUND
    );
    let got = site
        .ask(empty(request(Method::GET, "/jobs/queues?a=b")))
        .await;
    assert_eq!(
        got.text(header::LOCATION),
        "/jobs/login?next=/jobs/queues%3Fa%3Db"
    );
}

/// What a route that changes something needs, said once more: a slip in the rules must not be its
/// own witness.
fn expected(method: &str, pattern: &str) -> RequiredAccess {
    match (method, pattern) {
        ("POST", "/v1/jobs" | "/v1/jobs/batch" | "/v1/streams/{s}/records") => {
            RequiredAccess::Scope(Scope::Push)
        }
        ("POST", "/v1/lease" | "/v1/settle" | "/v1/beat") => RequiredAccess::Scope(Scope::Work),
        // A count that is asked for with a body.
        ("POST", "/v1/bulk/preview") => RequiredAccess::Scope(Scope::Read),
        ("POST", "/login" | "/logout") => RequiredAccess::Public,
        _ => RequiredAccess::Scope(Scope::Admin),
    }
}

#[tokio::test]
async fn whatever_changes_something_is_an_administrators_but_for_producers_workers_and_the_login() {
    let site = Site::new(GUARDED);
    let token = site
        .token(&[Scope::Push, Scope::Work, Scope::Read], None)
        .await
        .token;
    let routes = writes();
    assert!(routes.len() >= 40, "{}", routes.len());
    for route in routes {
        let expected = expected(route.method().as_str(), &route.pattern);
        assert_eq!(route.need(), expected, "{route:?}");
        let status = site.ask(empty(bearing(to(&route), &token))).await.status;
        let is_refused = status == StatusCode::FORBIDDEN;
        assert_eq!(
            is_refused,
            expected == RequiredAccess::Scope(Scope::Admin),
            "{route:?}: {status}"
        );
    }
}

#[test]
fn whoever_may_look_sees_everything_but_the_audit() {
    for route in all()
        .iter()
        .filter(|route| !route.is_write() && route.need() != RequiredAccess::Public)
    {
        let expected = match route.pattern.as_str() {
            "/v1/audit" | "/audit" => RequiredAccess::Scope(Scope::Admin),
            // What one's own token is good for may be asked with any.
            "/v1/capabilities" => RequiredAccess::AnyCaller,
            _ => RequiredAccess::Scope(Scope::Read),
        };
        assert_eq!(route.need(), expected, "{route:?}");
    }
}

#[tokio::test]
async fn any_token_may_ask_what_it_is_good_for() {
    let site = Site::new(&format!("{GUARDED}base = \"/jobs\"\n"));
    let asked = async |builder| {
        let (got, text) = site.read(empty(builder)).await;
        (
            got.status,
            serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default(),
        )
    };
    let at = || request(Method::GET, "/jobs/v1/capabilities");
    let token = site.token_for(&[Scope::Push, Scope::Work], &["mail"]).await;
    let (status, told) = asked(bearing(at(), &token)).await;
    let expected = serde_json::json!({
        "base": "/jobs",
        "queues": ["mail"],
        "scopes": ["push", "work"],
        "store": "sqlite",
        "version": env!("CARGO_PKG_VERSION"),
    });
    assert_eq!((status, told), (StatusCode::OK, expected));
    let admin = site.token(&[Scope::Admin], None).await.token;
    let (_, told) = asked(bearing(at(), &admin)).await;
    assert_eq!(
        told["scopes"],
        serde_json::json!(["push", "work", "read", "admin"])
    );
    assert!(told["queues"].is_null(), "{told}");
    for nobody in [at(), bearing(at(), "backstop_wrong")] {
        assert_eq!(asked(nobody).await.0, StatusCode::UNAUTHORIZED);
    }
}
