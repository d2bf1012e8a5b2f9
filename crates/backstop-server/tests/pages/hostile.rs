//! Whatever a field says, it is text: in every page, in every field, in every address.

use crate::given::{ask, drain_dead};
use crate::site::{HOSTILE, Site, all_under, harmless};
use axum::body::Body;
use axum::http::Request;
use backstop::core::failure::ErrorReport;
use backstop::core::lease::WorkerName;
use backstop::http_workers::SeenWorkers;
use backstop::workers::WorkerDescription;
use backstop::{Backstop, JobId, Span};
use backstop_server::access::ScopeSet;
use std::collections::BTreeSet;

fn error() -> ErrorReport {
    ErrorReport {
        message: format!("{HOSTILE} message"),
        error_type: Some(format!("{HOSTILE}Type")),
        stack_trace: Some(format!("{HOSTILE} at main")),
        http_status: Some(500),
        response_body: Some(format!("{HOSTILE} body")),
    }
}

async fn push(backstop: &Backstop, queue: &str, name: &str) -> JobId {
    let payload = serde_json::json!({ HOSTILE: HOSTILE, "password": "hunter2" }).to_string();
    let draft = backstop
        .draft(queue)
        .id(name)
        .kind(HOSTILE)
        .unique_key(&format!("{HOSTILE}{name}"));
    draft.payload(payload).push().await.unwrap().id
}

/// A site where every text that users choose is hostile.
async fn given(base: &str) -> (Site, Vec<JobId>) {
    let site = Site::mounted("[queues.q]\nbreaker = {}\n", base, ScopeSet::ALL);
    let backstop = &site.test.backstop;
    let dead = push(backstop, "q", "redriven").await;
    let letter = push(backstop, "q", "dead").await;
    drain_dead(backstop, "q", HOSTILE, error()).await;
    let waiting = push(backstop, "q", "waiting").await;
    let running = crate::given::running(backstop, "r", HOSTILE, HOSTILE).await;
    let (host, version) = (Some(format!("host{HOSTILE}")), Some(format!("v{HOSTILE}")));
    let (config, attendance) = (site.app.config(), SeenWorkers::default());
    let remote = backstop.http_workers(&config, &attendance);
    let about = WorkerDescription {
        host,
        version,
        ..WorkerDescription::default()
    };
    remote
        .beat(&WorkerName::new(HOSTILE), &about, Vec::new(), None)
        .await
        .unwrap();
    let changes = backstop.changes(HOSTILE);
    changes.open(&"q".parse().unwrap(), HOSTILE).await.unwrap();
    changes
        .open(&format!("q/{HOSTILE}").parse().unwrap(), HOSTILE)
        .await
        .unwrap();
    changes.pause(&"r".parse().unwrap()).await.unwrap();
    let plan = format!(
        "canary=1&max_failures=0&then_rate=1/s&text={}",
        encoded("message")
    );
    site.post(&format!("{base}/dead/redrive"), &plan).await;
    site.test.clock.advance(Span::minutes(20));
    (site, vec![dead, letter, waiting, running])
}

fn encoded(text: &str) -> String {
    text.bytes()
        .flat_map(|byte| ['%', hex(byte >> 4), hex(byte & 15)])
        .collect()
}

fn hex(digit: u8) -> char {
    char::from_digit(digit.into(), 16).expect("four bits are one digit")
}

/// Every page there is a link to, from the overview on.
async fn crawled(site: &Site, from: &[String], base: &str) -> BTreeSet<String> {
    let (mut seen, mut open) = (BTreeSet::new(), from.to_vec());
    while let Some(address) = open.pop() {
        let is_page = address.starts_with(base)
            && !address.contains("/assets/")
            && !address.contains("openapi");
        if !is_page || !seen.insert(address.clone()) || seen.len() > 400 {
            continue;
        }
        let got = site.get(&address).await;
        assert!(!got.status.is_server_error(), "{address}: {}", got.body);
        harmless(&got.body);
        assert!(
            !got.body.contains("hunter2"),
            "{address} shows a secret: {}",
            got.body
        );
        all_under(&got.body, base);
        for link in got
            .body
            .split("href=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
        {
            let link = link.replace("&#38;", "&").replace("&amp;", "&");
            open.push(link.split('#').next().unwrap_or_default().to_owned());
        }
    }
    seen
}

#[tokio::test]
async fn no_text_of_users_becomes_markup_on_any_page() {
    let (site, ids) = given("").await;
    let mut from = vec!["/".to_owned()];
    from.extend(
        ids.iter()
            .flat_map(|id| [format!("/jobs/{id}"), format!("/dead/{id}")]),
    );
    let seen = crawled(&site, &from, "/").await;
    for part in [
        "/queues/q",
        "/jobs?",
        "/dead?",
        "/dead/redrives/",
        "/workers",
        "/breakers",
        "/audit",
    ] {
        assert!(
            seen.iter().any(|address| address.starts_with(part)),
            "{part} was not reached: {seen:?}"
        );
    }
    let workers = site.page("/workers").await;
    for part in [
        "host&#34;&#62;&#60;script",
        "version v&#34;&#62;&#60;script",
    ] {
        assert!(workers.contains(part), "{part} is not told: {workers}");
    }
}

#[tokio::test]
async fn every_address_is_under_the_path_it_is_mounted_at() {
    let (site, ids) = given("/ops/backstop").await;
    let from = vec![
        "/ops/backstop/".to_owned(),
        format!("/ops/backstop/jobs/{}", ids[0]),
    ];
    let seen = crawled(&site, &from, "/ops/backstop").await;
    assert!(seen.len() > 20, "{seen:?}");
}

#[tokio::test]
async fn what_an_address_says_is_text_too() {
    let (site, _) = given("").await;
    let text = encoded(HOSTILE);
    for address in [
        format!("/jobs?queue={text}"),
        format!("/jobs?kind={text}"),
        format!("/jobs?state={text}"),
        format!("/jobs?after={text}"),
        format!("/jobs/{text}"),
        format!("/jobs/runs/{text}"),
        format!("/jobs/confirm?action={text}"),
        format!("/jobs/confirm?action=delete&id={text}&kind={text}"),
        format!("/dead?text={text}&error_type={text}"),
        format!("/dead?fingerprint={text}"),
        format!("/dead?since={text}"),
        format!("/dead/{text}"),
        format!("/dead/confirm?action=move&all=1&to={text}&text={text}"),
        format!("/dead/redrive?canary={text}&text={text}"),
        format!("/dead/redrives/{text}"),
        format!("/queues?search={text}"),
        format!("/queues/{text}"),
        format!("/audit?who={text}&what={text}"),
        format!("/login?next={text}&refused={text}"),
        format!("/?window={text}"),
        format!("/{text}"),
    ] {
        let got = site.get(&address).await;
        assert!(!got.status.is_server_error(), "{address}: {}", got.status);
        harmless(&got.body);
    }
}

#[tokio::test]
async fn what_a_cookie_says_is_text_too() {
    let (site, _) = given("").await;
    let text = encoded(HOSTILE);
    let cookie = format!("backstop_note=done.{text}; backstop_theme=dark\"><script>");
    let request = Request::get("/")
        .header("cookie", cookie)
        .body(Body::empty())
        .unwrap();
    let page = ask(&site.app, request).await;
    harmless(&page.body);
    assert!(
        page.body.contains("note note-done") && page.body.contains("&#60;script&#62;"),
        "the note is shown"
    );
    assert!(!page.body.contains("data-theme"), "no theme of that name");
}

#[tokio::test]
async fn a_kind_or_a_message_that_cannot_be_seen_is_written_in_numbers_and_filters_for_itself_alone()
 {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    for (name, kind) in [
        ("blank", " "),
        ("spaced", " a"),
        ("plain", "a"),
        ("hidden", "\u{200b}"),
    ] {
        backstop
            .draft("q")
            .id(name)
            .kind(kind)
            .payload("1")
            .push()
            .await
            .unwrap();
    }
    let list = site.page("/jobs").await;
    for (link, shown) in [
        ("kind=+\"", "\\u{20}"),
        ("kind=%E2%80%8B\"", "\\u{200b}"),
        ("kind=+a\"", " a"),
    ] {
        assert!(
            list.contains(&format!("{link}>{shown}</a>")),
            "{shown} in {list}"
        );
    }
    let rows = |page: &str| page.matches("type=\"checkbox\" name=\"id\"").count();
    for kind in ["+", "+a", "a", "%E2%80%8B"] {
        let page = site.page(&format!("/jobs?queue=q&kind={kind}")).await;
        assert_eq!(rows(&page), 1, "{kind}: {page}");
    }
    drain_dead(backstop, "q", "w", ErrorReport::message("\u{200b}")).await;
    let groups = site.page("/dead").await;
    assert!(groups.contains(">\\u{200b}</a>"), "{groups}");
    for kind in ["+", "+a", "a"] {
        assert_eq!(
            rows(&site.page(&format!("/dead?kind={kind}&view=letters")).await),
            1,
            "{kind}"
        );
        site.post(
            "/dead/act",
            &format!("action=delete&all=matching&typed=delete&kind={kind}"),
        )
        .await;
    }
    crate::given::until_said(&site, "/dead", "1 in all").await;
}
