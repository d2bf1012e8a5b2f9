//! Jobs: filters in the address, pages, and what is done to those that were picked.

use crate::given::{dead, ready, running, state, until_said};
use crate::site::Site;
use axum::http::StatusCode;
use backstop::core::failure::ErrorReport;
use backstop::{JobId, JobState, Span};

fn links(page: &str, rel: &str) -> Option<String> {
    let link = page.split(&format!("rel=\"{rel}\" href=\"")).nth(1)?;
    Some(link.split('"').next()?.replace("&#38;", "&"))
}

#[tokio::test]
async fn a_filter_is_in_the_address_and_each_part_of_it_can_be_taken_off() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    ready(&site.test.backstop, "billing", "b").await;
    let page = site.page("/jobs?queue=emails&kind=task&state=ready").await;
    assert!(
        page.contains("/queues/emails") && !page.contains("/queues/billing"),
        "{page}"
    );
    for without in [
        "/jobs?kind=task&#38;state=ready",
        "/jobs?queue=emails&#38;state=ready",
        "/jobs?queue=emails&#38;kind=task",
    ] {
        assert!(
            page.contains(&format!("href=\"{without}\"")),
            "{without} in {page}"
        );
    }
    assert_eq!(
        site.get("/jobs?state=sideways").await.status,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn running_jobs_are_listed_with_their_worker_and_for_how_long() {
    let site = Site::new("");
    running(&site.test.backstop, "emails", "a", "<b>worker-7").await;
    site.test.clock.advance(Span::secs(12));
    ready(&site.test.backstop, "emails", "b").await;
    for address in ["/jobs?state=running", "/jobs"] {
        let page = site.page(address).await;
        let cell = page
            .split("<span class=\"soft\">started</span>")
            .nth(1)
            .expect("its start is told");
        let cell = cell.split("</td>").next().unwrap();
        assert!(cell.contains(">12 s ago</time>"), "{cell}");
        assert!(
            cell.contains("<span class=\"sample\">on &#60;b&#62;worker-7</span>"),
            "{cell}"
        );
        assert_eq!(
            page.matches("worker-7").count(),
            1,
            "who waits has no worker: {page}"
        );
    }
    site.test.clock.advance(Span::minutes(1));
    assert!(
        site.page("/jobs")
            .await
            .contains("<span class=\"soft\">lease over</span>")
    );
}

#[tokio::test]
async fn an_id_or_a_name_leads_to_its_job() {
    let site = Site::new("");
    let id = ready(&site.test.backstop, "emails", "order-17").await;
    for sought in ["order-17".to_owned(), id.to_string()] {
        assert_eq!(
            site.get(&format!("/jobs?id={sought}")).await.location,
            format!("/jobs/{id}")
        );
    }
}

#[tokio::test]
async fn a_long_list_comes_in_pages_and_each_job_once() {
    let site = Site::new("");
    for n in 0..120 {
        ready(&site.test.backstop, "emails", &n.to_string()).await;
    }
    let (mut address, mut seen) = ("/jobs?queue=emails&state=ready".to_owned(), Vec::new());
    loop {
        let page = site.page(&address).await;
        seen.extend(
            page.split("name=\"id\" value=\"")
                .skip(1)
                .map(|rest| rest.split('"').next().unwrap().to_owned()),
        );
        match links(&page, "next") {
            Some(next) => address = next,
            None => break,
        }
    }
    assert_eq!(seen.len(), 120);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 120);
    let before = links(&site.page(&address).await, "prev").unwrap();
    assert_eq!(
        links(&site.page(&before).await, "prev").as_deref(),
        Some("/jobs?queue=emails&state=ready"),
        "from the third page over the second to the first"
    );
    assert_eq!(
        site.get("/jobs?state=ready&after=nonsense").await.status,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn what_was_picked_is_confirmed_done_and_audited_and_the_filter_stays() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    let (gone, stays) = (
        ready(backstop, "emails", "a").await,
        ready(backstop, "emails", "b").await,
    );
    let confirm = site
        .page(&format!(
            "/jobs/confirm?action=delete&queue=emails&state=ready&id={gone}"
        ))
        .await;
    assert!(
        confirm.contains("<strong>1</strong> job") && confirm.contains("cannot be brought back"),
        "{confirm}"
    );
    assert_eq!(
        state(&site, gone).await,
        Some(JobState::Ready),
        "asking changes nothing"
    );
    let done = site
        .post(
            "/jobs/act",
            &format!("action=delete&queue=emails&state=ready&id={gone}"),
        )
        .await;
    assert_eq!(
        (done.status, done.location.as_str()),
        (StatusCode::SEE_OTHER, "/jobs?queue=emails&state=ready")
    );
    assert_eq!(
        (state(&site, gone).await, state(&site, stays).await),
        (None, Some(JobState::Ready))
    );
    assert_eq!(
        site.audit().await,
        [("token ada".to_owned(), "job delete".to_owned())]
    );
}

#[tokio::test]
async fn nothing_picked_is_answered_in_place() {
    let site = Site::new("");
    let got = site.get("/jobs/confirm?action=retry&queue=emails").await;
    assert_eq!(
        (got.status, got.location.as_str()),
        (StatusCode::SEE_OTHER, "/jobs?queue=emails")
    );
    let got = site.post("/jobs/act", "action=retry&queue=emails").await;
    assert_eq!(
        (got.status, got.location.as_str()),
        (StatusCode::SEE_OTHER, "/jobs?queue=emails")
    );
    assert_eq!(site.audit().await, []);
    assert_eq!(
        site.post("/jobs/act", "action=explode&id=a").await.status,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn a_conflict_is_answered_in_place_with_what_to_do() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    let id = backstop
        .draft("q")
        .id("first")
        .kind("k")
        .unique_key("one")
        .payload("1")
        .push()
        .await
        .unwrap()
        .id;
    crate::given::drain_dead(backstop, "q", "w", ErrorReport::message("boom")).await;
    let twin = backstop
        .draft("q")
        .id("second")
        .kind("k")
        .unique_key("one")
        .payload("1")
        .push()
        .await
        .unwrap()
        .id;
    let answer = crate::given::ask(
        &site.app,
        axum::http::Request::post("/jobs/act")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(axum::body::Body::from(format!(
                "action=retry&id={id}&back=job"
            )))
            .unwrap(),
    )
    .await;
    assert_eq!(answer.headers["location"], format!("/jobs/{id}"));
    let note = answer.headers["set-cookie"].to_str().unwrap();
    assert!(
        note.contains(&twin.to_string()) && note.contains("cancel+it"),
        "{note}"
    );
    assert!(
        note.starts_with("backstop_note=warn.") && note.contains("HttpOnly"),
        "{note}"
    );
    assert!(
        site.page(&format!("/jobs/{id}"))
            .await
            .contains(&twin.to_string()),
        "the page names the twin"
    );
}

#[tokio::test]
async fn only_what_can_be_done_is_offered() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    running(backstop, "q", "r", "w").await;
    dead(backstop, "d", "x", ErrorReport::message("boom")).await;
    let offered = |page: String| {
        ["retry", "cancel", "delete"]
            .map(|word| page.contains(&format!("name=\"action\" value=\"{word}\"")))
    };
    assert_eq!(
        offered(site.page("/jobs?state=running").await),
        [false, true, false]
    );
    assert_eq!(
        offered(site.page("/jobs?state=dead").await),
        [true, false, true]
    );
    assert_eq!(offered(site.page("/jobs").await), [true, true, true]);
}

#[tokio::test]
async fn counts_are_those_the_store_keeps() {
    let site = Site::new("");
    for n in 0..3 {
        ready(&site.test.backstop, "emails", &n.to_string()).await;
    }
    let page = site.page("/jobs?queue=emails&state=ready").await;
    assert!(page.contains("all <strong>3</strong> that match"), "{page}");
    let of_kind = site.page("/jobs?queue=emails&state=ready&kind=task").await;
    assert!(
        of_kind.contains("all <strong>up to 3</strong> that match"),
        "{of_kind}"
    );
}

async fn pushed(site: &Site, name: &str, payload: &str) -> JobId {
    site.test
        .backstop
        .draft("emails")
        .id(name)
        .payload(payload.to_owned())
        .push()
        .await
        .unwrap()
        .id
}

#[tokio::test]
async fn jobs_are_found_by_what_is_shown_of_their_payloads_and_the_text_stays() {
    let site = Site::new("");
    let ada = pushed(
        &site,
        "a",
        r#"{"to":"Ada@example.org","password":"hunter2"}"#,
    )
    .await
    .to_string();
    let bob = pushed(
        &site,
        "b",
        r#"{"to":"bob@example.org","password":"hunter3"}"#,
    )
    .await
    .to_string();
    let page = site.page("/jobs?text=ada@").await;
    assert!(page.contains(&ada) && !page.contains(&bob), "{page}");
    assert!(
        page.contains("text: ada@") && page.contains("name=\"text\" value=\"ada@\""),
        "{page}"
    );
    assert!(
        page.contains("all <strong>up to 2</strong> that match"),
        "{page}"
    );
    for hidden in ["hunter", "hunter2", "%22hunter"] {
        let page = site.page(&format!("/jobs?text={hidden}")).await;
        assert!(
            page.contains("No job fits") && !page.contains(&ada),
            "{page}"
        );
    }
    let confirm = site
        .page(&format!("/jobs/confirm?action=cancel&text=ada@&id={ada}"))
        .await;
    assert!(
        confirm.contains("name=\"text\" value=\"ada@\""),
        "{confirm}"
    );
    let done = site
        .post("/jobs/act", &format!("action=cancel&text=ada@&id={ada}"))
        .await;
    assert_eq!(done.location, "/jobs?text=ada%40");
    assert_eq!(
        site.get(&format!("/jobs?text={}", "a".repeat(201)))
            .await
            .status,
        400
    );
}

#[tokio::test]
async fn all_that_match_a_text_are_changed_and_no_others() {
    let site = Site::new("");
    let mut others = Vec::new();
    for n in 0..250 {
        let who = if n % 10 == 0 { "ada" } else { "bob" };
        let id = pushed(
            &site,
            &n.to_string(),
            &format!(r#"{{"to":"{who}","token":"ada-{n}"}}"#),
        )
        .await;
        if who == "bob" {
            others.push(id);
        }
    }
    let confirm = site
        .page("/jobs/confirm?action=delete&text=%22ada&all=matching")
        .await;
    assert!(
        confirm.contains("text: &#34;ada") && !confirm.contains("every job of every queue"),
        "{confirm}"
    );
    let started = site
        .post(
            "/jobs/act",
            "action=delete&text=%22ada&all=matching&typed=delete",
        )
        .await;
    let page = until_said(&site, &started.location, ">done<").await;
    assert!(page.contains("<dt>changed</dt><dd>25</dd>"), "{page}");
    assert!(
        page.contains("{&#34;matching&#34;:{&#34;text&#34;:&#34;\\&#34;ada&#34;}}"),
        "{page}"
    );
    for id in others {
        assert_eq!(state(&site, id).await, Some(JobState::Ready));
    }
}

#[tokio::test]
async fn the_list_shows_no_error_of_a_job_that_is_done() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    let fails_once = |run: backstop::Run| async move {
        if run.attempt() == 1 {
            Err(backstop::RunError::retry_after(Span::ZERO, "no route"))
        } else {
            Ok(())
        }
    };
    ready(backstop, "emails", "a").await;
    let worker = backstop
        .worker()
        .handle_raw("emails", fails_once)
        .start()
        .unwrap();
    let page = crate::given::until_said(&site, "/jobs?state=done", "/queues/emails").await;
    drop(worker);
    assert!(!page.contains("no route"), "{page}");
}
