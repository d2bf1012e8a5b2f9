//! In and out of the dashboard.

use crate::given::{GUARDED, HOST, PROXIED, Site, bearing, empty, login, request};
use axum::http::{Method, StatusCode, header};
use backstop::Span;
use backstop_core::port::ListCellsRequest;
use backstop_server::access::{ConnectionPeer, Scope, TokenRegistry};

async fn looks_in(site: &Site, cookie: &str) -> StatusCode {
    site.ask(empty(
        request(Method::GET, "/streams").header(header::COOKIE, cookie),
    ))
    .await
    .status
}

#[tokio::test]
async fn a_token_is_pasted_once_and_a_cookie_stands_for_it() {
    let site = Site::new(GUARDED);
    let minted = site.token(&[Scope::Read], None).await;
    let got = site.ask(login(&minted.token, "/dead?queue=a")).await;
    assert_eq!(
        (got.status, got.text(header::LOCATION).as_str()),
        (StatusCode::SEE_OTHER, "/dead?queue=a")
    );
    let cookie = got.text(header::SET_COOKIE);
    for flag in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
        assert!(
            cookie.split("; ").any(|part| part == flag),
            "{flag}: {cookie}"
        );
    }
    assert!(
        !cookie.contains(&minted.token) && !cookie.contains("Domain"),
        "{cookie}"
    );
    let pair = cookie.split(';').next().unwrap();
    assert_eq!(looks_in(&site, pair).await, StatusCode::OK);
    assert_eq!(
        looks_in(&site, &format!("other=1; {pair}; more=2")).await,
        StatusCode::OK
    );
}

#[tokio::test]
async fn over_tls_the_cookie_is_bound_to_its_host() {
    // A browser says `null` with a form of ours, and a proxy may say nothing.
    let silent = [("origin", "null"), ("sec-fetch-site", "same-origin")];
    for said in [
        &[("x-forwarded-proto", "https")][..],
        &[("x-forwarded-proto", "HTTPS, http")],
        &[("origin", "https://jobs.example.org:7007")],
        &silent,
    ] {
        let site = Site::new(GUARDED);
        let cookie = cookie_for(&site, said).await;
        assert!(
            cookie.starts_with("__Host-backstop_session=") && cookie.ends_with("; Secure"),
            "{cookie}"
        );
        assert_eq!(
            looks_in(&site, cookie.split(';').next().unwrap()).await,
            StatusCode::OK
        );
    }
    let encrypted =
        Site::new("[server]\nlisten = \"0.0.0.0:7007\"\ntls = { cert = \"c\", key = \"k\" }\n");
    let token = encrypted.token(&[Scope::Read], None).await.token;
    let mut request = login(&token, "");
    request
        .headers_mut()
        .insert(header::ORIGIN, format!("https://{HOST}").parse().unwrap());
    let peer = ConnectionPeer {
        is_encrypted: true,
        ..ConnectionPeer::default()
    };
    request.extensions_mut().insert(peer);
    let cookie = encrypted.ask(request).await.text(header::SET_COOKIE);
    assert!(
        cookie.starts_with("__Host-backstop_session=") && cookie.ends_with("; Secure"),
        "{cookie}"
    );
    let planted = cookie
        .split(';')
        .next()
        .unwrap()
        .trim_start_matches("__Host-");
    assert_eq!(
        looks_in(&encrypted, planted).await,
        StatusCode::SEE_OTHER,
        "another host may have set that one"
    );
}

#[tokio::test]
async fn behind_a_proxy_the_cookie_is_plain_only_where_somebody_says_so() {
    let site = Site::new(GUARDED);
    let silent = [("origin", "null"), ("sec-fetch-site", "same-origin")];
    for plain in ["http", "Http", "http, https"] {
        let said = [silent[0], silent[1], ("x-forwarded-proto", plain)];
        let cookie = cookie_for(&site, &said).await;
        assert!(
            cookie.starts_with("backstop_session=") && !cookie.contains("Secure"),
            "{plain}: {cookie}"
        );
        assert_eq!(
            looks_in(&site, cookie.split(';').next().unwrap()).await,
            StatusCode::OK
        );
    }
    let cookie = cookie_for(&site, &[]).await;
    assert!(
        cookie.starts_with("backstop_session="),
        "its Origin is plain: {cookie}"
    );
}

#[tokio::test]
async fn behind_a_proxy_of_this_machine_the_cookie_is_bound_to_its_host_whatever_is_said() {
    let silent = [("origin", "null"), ("sec-fetch-site", "same-origin")];
    let plainly = [silent[0], silent[1], ("x-forwarded-proto", "http")];
    for text in [PROXIED.to_owned(), format!("{PROXIED}plain_http = true\n")] {
        for said in [
            &silent[..],
            &plainly,
            &[("origin", "https://jobs.example.org")],
        ] {
            let site = Site::new(&text);
            let cookie = cookie_for(&site, said).await;
            assert!(
                cookie.starts_with("__Host-backstop_session=") && cookie.ends_with("; Secure"),
                "{cookie}"
            );
            let pair = cookie.split(';').next().unwrap();
            assert_eq!(looks_in(&site, pair).await, StatusCode::OK);
            let planted = pair.trim_start_matches("__Host-");
            assert_eq!(
                looks_in(&site, planted).await,
                StatusCode::SEE_OTHER,
                "another host may have set it"
            );
        }
    }
}

#[tokio::test]
async fn where_browsers_find_it_without_tls_only_the_cookie_is_plain_unless_the_proxy_says_otherwise()
 {
    let site = Site::new("[server]\norigins = [\"http://10.0.0.7:8080\"]\n");
    let silent = [("origin", "null"), ("sec-fetch-site", "same-origin")];
    let cookie = cookie_for(&site, &silent).await;
    assert!(
        cookie.starts_with("backstop_session=") && !cookie.contains("Secure"),
        "{cookie}"
    );
    assert_eq!(
        looks_in(&site, cookie.split(';').next().unwrap()).await,
        StatusCode::OK
    );
    let cookie = cookie_for(
        &site,
        &[silent[0], silent[1], ("x-forwarded-proto", "https")],
    )
    .await;
    assert!(cookie.ends_with("; Secure"), "{cookie}");
}

/// The cookie of somebody who logs in with these headers.
async fn cookie_for(site: &Site, said: &[(&'static str, &str)]) -> String {
    let token = site.token(&[Scope::Read], None).await.token;
    let mut request = login(&token, "");
    for (name, value) in said {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    site.ask(request).await.text(header::SET_COOKIE)
}

#[tokio::test]
async fn the_store_has_neither_token_nor_cookie() {
    let site = Site::new(GUARDED);
    let minted = site.token(&[Scope::Admin], None).await;
    let cookie = site.log_in(&minted.token).await;
    let id = cookie.split_once('=').unwrap().1;
    for prefix in ["token/", "session/"] {
        let query = ListCellsRequest {
            prefix: prefix.to_owned(),
            after: None,
            limit: 100,
        };
        let cells = site.backstop.store().list_cells(query).await.unwrap();
        assert_eq!(cells.len(), 1, "{prefix}");
        let text = format!(
            "{}{}",
            cells[0].name,
            String::from_utf8_lossy(&cells[0].value)
        );
        assert!(
            !text.contains(&minted.token) && !text.contains(id),
            "{text}"
        );
        assert!(!text.contains(&minted.token["backstop_".len()..]), "{text}");
    }
}

#[tokio::test]
async fn a_session_ends_with_its_time_its_token_or_by_logging_out() {
    let site = Site::new(GUARDED);
    let minted = site.token(&[Scope::Read], None).await;
    let (first, second) = (
        site.log_in(&minted.token).await,
        site.log_in(&minted.token).await,
    );
    let out = request(Method::POST, "/logout")
        .header(header::COOKIE, &first)
        .header(header::ORIGIN, format!("http://{HOST}"));
    let got = site.ask(empty(out)).await;
    assert_eq!(
        (got.status, got.text(header::LOCATION).as_str()),
        (StatusCode::SEE_OTHER, "/login")
    );
    assert!(got.text(header::SET_COOKIE).contains("Max-Age=0"));
    assert_eq!(
        looks_in(&site, &first).await,
        StatusCode::SEE_OTHER,
        "logged out"
    );
    assert_eq!(
        looks_in(&site, &second).await,
        StatusCode::OK,
        "another browser's session goes on"
    );
    site.clock.advance(Span::hours(12));
    assert_eq!(
        looks_in(&site, &second).await,
        StatusCode::SEE_OTHER,
        "its time is over"
    );
    let short = site.token(&[Scope::Read], Some(Span::minutes(5))).await;
    let third = site.log_in(&short.token).await;
    assert_eq!(looks_in(&site, &third).await, StatusCode::OK);
    site.clock.advance(Span::minutes(5));
    assert_eq!(
        looks_in(&site, &third).await,
        StatusCode::SEE_OTHER,
        "its token's time is over"
    );
}

#[tokio::test]
async fn a_revoked_token_takes_its_sessions_along() {
    let site = Site::new(GUARDED);
    let minted = site.token(&[Scope::Read], None).await;
    let cookie = site.log_in(&minted.token).await;
    assert!(
        TokenRegistry::of(&site.backstop)
            .revoke("test", &minted.id)
            .await
            .unwrap()
    );
    // Another server of the store, which remembers nothing.
    let elsewhere =
        backstop_server::App::new(site.backstop.clone(), crate::given::config(GUARDED), "");
    let router = backstop_server::serve::router(&elsewhere);
    let there = Site {
        router,
        app: elsewhere,
        backstop: site.backstop.clone(),
        clock: site.clock.clone(),
    };
    assert_eq!(looks_in(&there, &cookie).await, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_session_of_one_server_is_good_at_another() {
    let site = Site::new(GUARDED);
    let cookie = site
        .log_in(&site.token(&[Scope::Read], None).await.token)
        .await;
    let elsewhere =
        backstop_server::App::new(site.backstop.clone(), crate::given::config(GUARDED), "");
    let router = backstop_server::serve::router(&elsewhere);
    let there = Site {
        router,
        app: elsewhere,
        backstop: site.backstop.clone(),
        clock: site.clock.clone(),
    };
    assert_eq!(looks_in(&there, &cookie).await, StatusCode::OK);
}

#[tokio::test]
async fn a_session_has_the_rights_of_its_token() {
    let site = Site::new(GUARDED);
    let cookie = site
        .log_in(&site.token(&[Scope::Read], None).await.token)
        .await;
    let pause = request(Method::POST, "/v1/queues/q/pause")
        .header(header::COOKIE, &cookie)
        .header(header::ORIGIN, format!("http://{HOST}"));
    assert_eq!(site.ask(empty(pause)).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_wrong_token_leads_back_to_the_login_and_no_address_leads_elsewhere() {
    let site = Site::new(GUARDED);
    let token = site.token(&[Scope::Read], None).await.token;
    let got = site.ask(login("backstop_wrong", "/dead")).await;
    assert_eq!(
        (got.status, got.text(header::LOCATION).as_str()),
        (StatusCode::SEE_OTHER, "/login?refused=1&next=/dead")
    );
    assert!(got.text(header::SET_COOKIE).is_empty());
    for next in [
        "https%3A%2F%2Fevil.example",
        "%2F%2Fevil.example",
        "%2F%5Cevil.example",
        "javascript%3Aalert(1)",
        "%2F%09%2Fevil.example",
    ] {
        let got = site.ask(login(&token, next)).await;
        assert_eq!(got.text(header::LOCATION), "/", "{next}");
        let got = site.ask(login("backstop_wrong", next)).await;
        assert_eq!(got.text(header::LOCATION), "/login?refused=1", "{next}");
    }
    let without_form = bearing(request(Method::POST, "/login"), &token)
        .header(header::ORIGIN, format!("http://{HOST}"));
    assert_eq!(
        site.ask(empty(without_form)).await.text(header::LOCATION),
        "/login?refused=1"
    );
}

#[tokio::test]
async fn nobody_is_logged_in_or_out_by_a_link() {
    let site = Site::new(GUARDED);
    let token = site.token(&[Scope::Admin], None).await.token;
    let cookie = site.log_in(&token).await;
    let link = request(Method::GET, &format!("/login?token={token}"));
    assert!(
        site.ask(empty(link))
            .await
            .text(header::SET_COOKIE)
            .is_empty()
    );
    site.ask(empty(
        request(Method::GET, "/logout").header(header::COOKIE, &cookie),
    ))
    .await;
    assert_eq!(looks_in(&site, &cookie).await, StatusCode::OK);
}

#[tokio::test]
async fn who_logs_in_again_and_again_logs_out_nobody_else() {
    let site = Site::new(GUARDED);
    let (ada, eve) = (
        site.token(&[Scope::Read], None).await,
        site.token(&[Scope::Read], None).await,
    );
    let of_ada = site.log_in(&ada.token).await;
    let first = site.log_in(&eve.token).await;
    for _ in 0..950 {
        site.log_in(&eve.token).await;
    }
    assert_eq!(looks_in(&site, &of_ada).await, StatusCode::OK);
    assert_eq!(
        looks_in(&site, &first).await,
        StatusCode::SEE_OTHER,
        "it made room for those after it"
    );
}

#[tokio::test]
async fn a_token_that_shows_no_page_opens_no_session() {
    let site = Site::new(GUARDED);
    for scopes in [&[Scope::Push][..], &[Scope::Push, Scope::Work]] {
        let token = site.token(scopes, None).await.token;
        let (got, text) = site.read(login(&token, "")).await;
        assert_eq!(got.status, StatusCode::FORBIDDEN);
        assert!(
            text.contains("scope read") && got.text(header::SET_COOKIE).is_empty(),
            "{text}"
        );
    }
    let admin = site.token(&[Scope::Admin], None).await.token;
    let cookie = site.log_in(&admin).await;
    assert_eq!(looks_in(&site, &cookie).await, StatusCode::OK);
}
