//! A server that stands under a path.

use crate::given::{GUARDED, Got, Site, bearing, empty, request};
use axum::http::{Method, StatusCode, header};
use backstop_server::access::Scope;

fn site() -> Site {
    Site::new(&format!("{GUARDED}base = \"/bs\"\n"))
}

#[tokio::test]
async fn the_overview_is_at_the_path_with_and_without_a_slash() {
    let site = site();
    let token = site.token(&[Scope::Read], None).await.token;
    for address in ["/bs", "/bs/"] {
        let (got, text) = site
            .read(empty(bearing(request(Method::GET, address), &token)))
            .await;
        assert_eq!(got.status, StatusCode::OK, "{address}");
        assert!(
            text.contains("data-base=\"/bs\"") && text.contains("Overview"),
            "{address}: {text}"
        );
        let got = site.ask(empty(request(Method::GET, address))).await;
        assert_eq!(got.status, StatusCode::SEE_OTHER, "{address} needs a token");
        assert!(
            got.text(header::LOCATION).starts_with("/bs/login"),
            "{address}"
        );
        let got = site
            .ask(empty(bearing(request(Method::POST, address), &token)))
            .await;
        assert_eq!(
            got.status,
            StatusCode::FORBIDDEN,
            "{address} is not written to"
        );
    }
}

#[tokio::test]
async fn what_machines_ask_for_is_at_the_root_as_well_and_needs_the_same() {
    let site = site();
    let token = site.token(&[Scope::Read], None).await.token;
    for (address, is_open) in [
        ("/healthz", true),
        ("/readyz", true),
        ("/metrics", false),
        ("/openapi.json", false),
    ] {
        for address in [address.to_owned(), format!("/bs{address}")] {
            let got = site
                .ask(empty(bearing(request(Method::GET, &address), &token)))
                .await;
            assert_eq!(got.status, StatusCode::OK, "{address}");
            let got = site.ask(empty(request(Method::GET, &address))).await;
            let expected = if is_open {
                StatusCode::OK
            } else {
                StatusCode::UNAUTHORIZED
            };
            assert_eq!(got.status, expected, "{address} without a token");
        }
    }
}

#[tokio::test]
async fn an_address_outside_of_the_path_says_that_nothing_is_there() {
    let site = site();
    let token = site.token(&[Scope::Admin], None).await.token;
    let check = async |address: &str| {
        let (got, text): (Got, String) = site
            .read(empty(bearing(request(Method::GET, address), &token)))
            .await;
        assert_eq!(got.status, StatusCode::NOT_FOUND, "{address}");
        assert!(
            text.contains("There is nothing at this address."),
            "{address}: {text}"
        );
        let got = site.ask(empty(request(Method::GET, address))).await;
        assert_eq!(
            got.status,
            StatusCode::SEE_OTHER,
            "{address} is told to those who are known"
        );
    };
    for address in ["/", "/queues", "/bsx", "/bs/nowhere", "/bs//"] {
        check(address).await;
    }
}

#[tokio::test]
async fn what_an_action_did_is_remembered_for_every_page_under_the_path() {
    let site = site();
    let token = site.token(&[Scope::Admin], None).await.token;
    let posted = bearing(request(Method::POST, "/bs/queues/q/pause"), &token)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    let got = site.ask(empty(posted)).await;
    assert_eq!(got.status, StatusCode::SEE_OTHER);
    let cookie = got.text(header::SET_COOKIE);
    assert!(cookie.contains("; Path=/bs;"), "{cookie}");
}
