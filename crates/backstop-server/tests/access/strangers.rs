//! Requests that a foreign web page makes somebody's browser send.

use crate::given::{FOREIGN, GUARDED, Got, HOST, OPEN, Site, bearing, empty, request, to};
use crate::routes::{all, writes};
use axum::body::Body;
use axum::http::request::Builder;
use axum::http::{Method, StatusCode, Version, header};
use backstop::QueueName;
use backstop_server::access::{ConnectionPeer, RequiredAccess, Scope};

/// As a page of another site makes a browser send it.
fn foreign(builder: &Builder) -> Vec<Builder> {
    let head = || {
        let mut same = request(
            builder.method_ref().unwrap().clone(),
            builder.uri_ref().unwrap().path(),
        );
        *same.headers_mut().unwrap() = builder.headers_ref().unwrap().clone();
        same
    };
    vec![
        head().header(header::ORIGIN, FOREIGN),
        head().header(header::ORIGIN, "null"),
        head()
            .header("sec-fetch-site", "cross-site")
            .header("sec-fetch-mode", "cors"),
        head()
            .header("sec-fetch-site", "same-site")
            .header("sec-fetch-mode", "navigate"),
        head()
            .header(header::ORIGIN, FOREIGN)
            .header("sec-fetch-site", "cross-site"),
    ]
}

fn at(mut builder: Builder, host: &str) -> Builder {
    builder
        .headers_mut()
        .unwrap()
        .insert(header::HOST, host.parse().unwrap());
    builder
}

fn assert_foreign(got: &Got, what: &dyn std::fmt::Debug) {
    assert_eq!(got.status, StatusCode::FORBIDDEN, "{what:?}");
    let cors = got
        .headers
        .keys()
        .find(|name| name.as_str().starts_with("access-control-"));
    assert_eq!(cors, None, "{what:?}");
}

#[tokio::test]
async fn no_foreign_page_can_write_to_a_server_on_this_machine() {
    let site = Site::new(OPEN);
    for route in writes() {
        for builder in foreign(&at(to(&route), "127.0.0.1:7007")) {
            assert_foreign(&site.ask(empty(builder)).await, &route);
        }
    }
}

#[tokio::test]
async fn no_foreign_page_can_write_by_a_session_or_with_a_token() {
    let site = Site::new(GUARDED);
    let token = site.token(&[Scope::Admin], None).await.token;
    let cookie = site.log_in(&token).await;
    for route in writes() {
        for builder in foreign(&to(&route).header(header::COOKIE, &cookie)) {
            assert_foreign(&site.ask(empty(builder)).await, &route);
        }
        for builder in foreign(&bearing(to(&route), &token)) {
            assert_foreign(&site.ask(empty(builder)).await, &route);
        }
    }
}

#[tokio::test]
async fn a_form_that_a_browser_may_send_anywhere_changes_nothing() {
    let site = Site::new(OPEN);
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ] {
        let builder = at(request(Method::POST, "/v1/jobs"), "localhost:7007");
        let builder = builder
            .header(header::CONTENT_TYPE, kind)
            .header(header::ORIGIN, FOREIGN);
        let body = Body::from(r#"{"queue":"q","payload":1}"#);
        assert_foreign(&site.ask(builder.body(body).unwrap()).await, &kind);
    }
    let queues = site
        .backstop
        .store()
        .queues(site.backstop.now())
        .await
        .unwrap();
    assert!(
        !queues
            .iter()
            .any(|queue| queue.name == QueueName::new("q").unwrap()),
        "nothing was pushed"
    );
}

#[tokio::test]
async fn a_session_needs_to_be_seen_to_come_from_our_page() {
    let site = Site::new(GUARDED);
    let cookie = site
        .log_in(&site.token(&[Scope::Admin], None).await.token)
        .await;
    for route in writes()
        .iter()
        .filter(|route| route.need() != RequiredAccess::Public)
    {
        let unsaid = to(route).header(header::COOKIE, &cookie);
        assert_eq!(
            site.ask(empty(unsaid)).await.status,
            StatusCode::FORBIDDEN,
            "{route:?}"
        );
        let ours = to(route)
            .header(header::COOKIE, &cookie)
            .header(header::ORIGIN, format!("http://{HOST}"));
        let status = site.ask(empty(ours)).await.status;
        let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
        assert!(
            !refused.contains(&status),
            "{route:?} from our page: {status}"
        );
    }
}

#[tokio::test]
async fn a_name_that_somebody_points_at_this_machine_leads_nowhere() {
    let site = Site::new(OPEN);
    for route in all() {
        let host = "evil.example:7007";
        let same = at(to(&route), host).header(header::ORIGIN, format!("http://{host}"));
        assert_eq!(
            site.ask(empty(same)).await.status,
            StatusCode::FORBIDDEN,
            "{route:?}"
        );
        assert_eq!(
            site.ask(empty(at(to(&route), host))).await.status,
            StatusCode::FORBIDDEN,
            "{route:?}"
        );
    }
}

#[tokio::test]
async fn who_names_two_hosts_names_none_of_ours() {
    let site = Site::new(OPEN);
    let ours = "127.0.0.1:7007";
    let asked = |address: &str, hosts: &[&str]| {
        let mut builder = at(request(Method::GET, address), hosts[0]);
        for host in &hosts[1..] {
            builder
                .headers_mut()
                .unwrap()
                .append(header::HOST, host.parse().unwrap());
        }
        site.ask(empty(builder))
    };
    let foreign = "http://evil.example:7007/v1/queues";
    for (address, hosts) in [
        ("/v1/queues", &[ours, "evil.example:7007"][..]),
        ("/v1/queues", &["evil.example:7007", ours]),
        (foreign, &[ours]),
    ] {
        assert_foreign(&asked(address, hosts).await, &(address, hosts));
    }
    for (address, hosts) in [
        ("/v1/queues", &[ours, ours][..]),
        ("http://127.0.0.1:7007/v1/queues", &[ours]),
    ] {
        assert_eq!(
            asked(address, hosts).await.status,
            StatusCode::OK,
            "{address} {hosts:?}"
        );
    }
}

#[tokio::test]
async fn a_proxy_before_an_open_server_is_told_what_is_missing() {
    let site = Site::new(OPEN);
    let names = "x-forwarded-for x-forwarded-host x-forwarded-proto x-forwarded-port x-forwarded-server x-real-ip \
        forwarded via cf-connecting-ip true-client-ip x-envoy-external-address";
    for name in names.split_whitespace() {
        let builder =
            at(request(Method::GET, "/v1/queues"), "127.0.0.1:7007").header(name, "10.0.0.1");
        let (got, text) = site.read(empty(builder)).await;
        assert_eq!(got.status, StatusCode::FORBIDDEN, "{name}");
        assert!(
            text.contains("origins") && text.contains("tokens"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_bare_proxy_before_an_open_server_is_known_by_how_it_speaks() {
    let site = Site::new(OPEN);
    let push = || Body::from(r#"{"queue":"q","payload":1}"#);
    let old = at(request(Method::POST, "/v1/jobs"), "127.0.0.1:7007").version(Version::HTTP_10);
    let mut nameless = request(Method::POST, "/v1/jobs");
    nameless.headers_mut().unwrap().remove(header::HOST);
    for builder in [old, nameless] {
        let (got, text) = site.read(builder.body(push()).unwrap()).await;
        assert_eq!(got.status, StatusCode::FORBIDDEN);
        assert!(
            text.contains("HTTP/1.0") && text.contains("origins"),
            "{text}"
        );
    }
    let ours = at(request(Method::POST, "/v1/jobs"), "127.0.0.1:7007")
        .body(push())
        .unwrap();
    assert_eq!(site.ask(ours).await.status, StatusCode::CREATED);
    let by_address =
        request(Method::GET, "http://127.0.0.1:7007/v1/queues").version(Version::HTTP_2);
    let mut by_address = empty(by_address);
    by_address.headers_mut().remove(header::HOST);
    assert_eq!(
        site.ask(by_address).await.status,
        StatusCode::OK,
        "HTTP/2 names the host in the address"
    );
}

#[tokio::test]
async fn a_foreign_page_can_neither_read_nor_embed_and_a_link_can_be_followed() {
    let site = Site::new(OPEN);
    for address in ["/v1/queues", "/v1/events", "/streams", "/openapi.json"] {
        let here = || at(request(Method::GET, address), "localhost:7007");
        assert_foreign(
            &site
                .ask(empty(here().header(header::ORIGIN, FOREIGN)))
                .await,
            &address,
        );
        let embedded = here()
            .header("sec-fetch-site", "cross-site")
            .header("sec-fetch-mode", "no-cors");
        assert_foreign(&site.ask(empty(embedded)).await, &address);
    }
    let link = at(request(Method::GET, "/streams"), "localhost:7007")
        .header("sec-fetch-site", "cross-site")
        .header("sec-fetch-mode", "navigate")
        .header("sec-fetch-dest", "document");
    assert_eq!(site.ask(empty(link)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn nobody_is_allowed_to_ask_across_origins() {
    for (site, host) in [
        (Site::new(OPEN), "127.0.0.1:7007"),
        (Site::new(GUARDED), HOST),
    ] {
        let token = site.token(&[Scope::Admin], None).await.token;
        for origin in [FOREIGN, &format!("http://{host}")] {
            let asked = at(bearing(request(Method::OPTIONS, "/v1/jobs"), &token), host)
                .header(header::ORIGIN, origin)
                .header("access-control-request-method", "POST");
            let got = site.ask(empty(asked)).await;
            assert!(!got.status.is_success(), "{origin}: {}", got.status);
            assert!(
                !got.headers
                    .keys()
                    .any(|name| name.as_str().starts_with("access-control-")),
                "{origin}"
            );
        }
    }
}

#[tokio::test]
async fn over_tls_a_page_of_the_same_name_that_came_in_the_open_can_change_nothing() {
    let site = Site::new(GUARDED);
    let token = site.token(&[Scope::Admin], None).await.token;
    let cookie = site.log_in(&token).await;
    let from = |scheme: &str, is_encrypted: bool| {
        let peer = ConnectionPeer {
            is_encrypted,
            ..ConnectionPeer::default()
        };
        let ours = request(Method::POST, "/v1/queues/q/pause").extension(peer);
        let ours = ours.header(header::COOKIE, &cookie);
        site.ask(empty(
            ours.header(header::ORIGIN, format!("{scheme}://{HOST}")),
        ))
    };
    assert_foreign(&from("http", true).await, &"in the open, to TLS");
    assert_eq!(from("https", true).await.status, StatusCode::OK);
    for scheme in ["http", "https"] {
        assert_eq!(
            from(scheme, false).await.status,
            StatusCode::OK,
            "{scheme}: a proxy may have it"
        );
    }
}
