//! What every page has in common.

use crate::given::{ask, ready};
use crate::site::Site;
use axum::body::Body;
use axum::http::{Request, StatusCode};

#[tokio::test]
async fn a_page_has_landmarks_one_heading_and_says_where_it_is() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    for (address, name) in [
        ("/", "Overview"),
        ("/queues", "Queues"),
        ("/jobs", "Jobs"),
        ("/dead", "Dead letters"),
    ] {
        let page = site.page(address).await;
        assert_eq!(page.matches("<h1").count(), 1, "{address}");
        assert_eq!(page.matches("<main").count(), 1, "{address}");
        assert!(
            page.contains(r#"<html lang="en""#) && page.contains(r##"class="skip" href="#main""##),
            "{address}"
        );
        let current = page
            .split("aria-current=\"page\"")
            .nth(1)
            .expect("the navigation says where one is");
        assert!(
            current.split("</a>").next().unwrap().ends_with(name),
            "{address}"
        );
        assert!(
            page.contains(&format!("<title>{name} · backstop</title>")),
            "{address}"
        );
    }
}

#[tokio::test]
async fn every_table_has_a_caption_and_every_field_a_label() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    for address in [
        "/",
        "/queues",
        "/queues/emails",
        "/jobs",
        "/dead?view=letters",
        "/audit",
    ] {
        let page = site.page(address).await;
        assert_eq!(
            page.matches("<table").count(),
            page.matches("<caption").count(),
            "{address}"
        );
        for field in page
            .split("<input ")
            .skip(1)
            .map(|field| field.split('>').next().unwrap())
        {
            let id = field
                .split(" id=\"")
                .nth(1)
                .or_else(|| field.strip_prefix("id=\""));
            let id = id.and_then(|rest| rest.split('"').next());
            let is_labelled = field.contains("type=\"hidden\"")
                || field.contains("aria-label=")
                || field.contains("name=\"all\"")
                // Their labels are around them.
                || field.contains("name=\"reason\"")
                || id.is_some_and(|id| page.contains(&format!("for=\"{id}\"")));
            assert!(is_labelled, "{field} on {address}");
        }
    }
}

#[tokio::test]
async fn the_script_gets_only_the_part_that_changes() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    let whole = site.page("/queues").await;
    let request = Request::get("/queues")
        .header("backstop-fragment", "1")
        .body(Body::empty())
        .unwrap();
    let part = ask(&site.app, request).await;
    assert_eq!(part.headers["cache-control"], "no-store");
    assert!(
        !part.body.contains("<html") && !part.body.contains("<nav class=\"sections\""),
        "{}",
        part.body
    );
    let (head, live) = part
        .body
        .split_once("<div id=\"live\">")
        .expect("what changes below the head");
    assert!(
        head.contains("<h1>Queues</h1>") && whole.contains(head.trim()),
        "{head}"
    );
    assert!(
        live.contains("emails") && whole.contains(live.trim()),
        "{live}"
    );
    assert!(
        !part.body.contains("role=\"search\""),
        "what somebody may be filling in: {}",
        part.body
    );
}

#[tokio::test]
async fn assets_have_their_content_in_their_name_and_stay_for_good() {
    let site = Site::new("");
    let page = site.page("/queues").await;
    for ending in [".css", ".js", ".svg"] {
        let at = page
            .split('"')
            .find(|part| part.contains("/assets/") && part.ends_with(ending))
            .expect(ending);
        let got = ask(&site.app, Request::get(at).body(Body::empty()).unwrap()).await;
        assert_eq!(got.status, StatusCode::OK, "{at}");
        assert!(
            got.headers["cache-control"]
                .to_str()
                .unwrap()
                .contains("immutable"),
            "{at}"
        );
        let other = at.replacen(|c: char| c.is_ascii_digit(), "x", 1);
        assert_eq!(
            site.get(&other).await.status,
            StatusCode::NOT_FOUND,
            "{other}"
        );
    }
}

#[tokio::test]
async fn a_theme_that_was_chosen_is_in_the_page() {
    let site = Site::new("");
    let request = Request::get("/queues")
        .header("cookie", "backstop_theme=dark")
        .body(Body::empty())
        .unwrap();
    assert!(
        ask(&site.app, request)
            .await
            .body
            .contains(r#"data-theme="dark""#)
    );
    assert!(!site.page("/queues").await.contains("data-theme"));
}

#[tokio::test]
async fn who_may_only_look_sees_no_buttons() {
    let site = Site::read_only("");
    ready(&site.test.backstop, "emails", "a").await;
    for address in [
        "/",
        "/queues",
        "/queues/emails",
        "/jobs",
        "/dead",
        "/breakers",
    ] {
        let page = site.page(address).await;
        assert!(page.contains("read only"), "{address}");
        assert!(!page.contains("method=\"post\""), "{address}");
    }
}

#[tokio::test]
async fn an_address_that_nothing_is_at_says_so() {
    let site = Site::new("");
    for address in [
        "/nowhere",
        "/queues/absent",
        "/jobs/absent",
        "/dead/absent",
        "/dead/redrives/x",
        "/jobs/runs/x",
    ] {
        let got = site.get(address).await;
        assert_eq!(got.status, StatusCode::NOT_FOUND, "{address}");
        assert!(
            got.body.contains("Not here") && got.body.contains("Overview"),
            "{address}"
        );
    }
}

#[tokio::test]
async fn the_login_asks_for_a_token_and_leads_on() {
    let site = Site::new("");
    let page = site.page("/login?next=/jobs").await;
    assert!(
        page.contains(r#"name="token" type="password""#)
            && page.contains(r#"name="next" value="/jobs""#)
    );
    assert!(
        !page.contains("aria-label=\"Sections\""),
        "there is nowhere to go but in"
    );
    assert!(
        !page.contains("sqlite:") && site.page("/queues").await.contains("sqlite:"),
        "what is behind it is not told"
    );
    let again = site.get("/login?refused=1").await;
    assert_eq!(again.status, StatusCode::UNAUTHORIZED);
    assert!(again.body.contains("was not taken"));
}
