//! Schedules, their ledgers, and what can be done to them.

use crate::site::{Site, all_under, harmless};
use axum::http::StatusCode;
use backstop::core::schedule::{Cron, Zone};
use backstop::{QueueName, Run, Schedule, ScheduleName, Span};
use backstop_server::access::ScopeSet;

const CONFIG: &str = r#"
[schedules.daily_digest]
cron = "30 8 * * *"
timezone = "Europe/London"
queue = "digests"
kind = "DailyDigest"
missed = { policy = "all", max = 2, look_back = "7d", grace = "30m" }
"#;

/// Looks as a worker would, day by day; away for some of them.
async fn ledger(site: &Site) {
    let config = site.app.config();
    let schedules: Vec<Schedule> = config.schedules.values().cloned().collect();
    for pause in [9, 24, 24 * 5, 24] {
        site.test
            .backstop
            .schedules()
            .look(&schedules)
            .await
            .unwrap();
        site.test.clock.advance(Span::hours(pause));
    }
    site.test
        .backstop
        .schedules()
        .look(&schedules)
        .await
        .unwrap();
}

#[tokio::test]
async fn without_schedules_the_page_teaches_how_to_get_one() {
    let page = Site::new("").page("/schedules").await;
    assert!(
        page.contains("[schedules.daily_digest]") && page.contains("missed ="),
        "{page}"
    );
}

#[tokio::test]
async fn the_list_says_in_plain_words_when_it_is_due_and_in_which_zone() {
    let site = Site::new(CONFIG);
    ledger(&site).await;
    let page = site.page("/schedules").await;
    for part in [
        "08:30",
        "Europe/London",
        "href=\"/queues/digests\"",
        "Fri 2026-01-09 08:30",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[tokio::test]
async fn a_schedule_shows_what_became_of_each_instant_and_why() {
    let site = Site::new(CONFIG);
    ledger(&site).await;
    let page = site.page("/schedules/daily_digest").await;
    for part in [
        "more were missing than `max` makes up",
        "it had been missing",
        "calendar-day",
        "class=\"chip\" href=\"/schedules/daily_digest?what=missed#runs\"",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let missed = site.page("/schedules/daily_digest?what=missed").await;
    assert!(
        missed.contains("make") && !missed.contains("it had been missing"),
        "{missed}"
    );
    let day = site.page("/schedules/daily_digest?day=2026-01-01").await;
    assert_eq!(
        day.matches("datetime=\"2026-01-01T08:30:00Z\"").count(),
        1,
        "{day}"
    );
    let none = site
        .page("/schedules/daily_digest?day=2026-01-01&what=missed")
        .await;
    assert!(none.contains("Nothing like that"), "{none}");
}

#[tokio::test]
async fn a_ledger_is_read_page_by_page() {
    let site = Site::new(
        "[schedules.often]\ncron = \"* * * * *\"\nqueue = \"q\"\nmissed = { policy = \"all\", max = 200 }\n",
    );
    let schedules: Vec<Schedule> = site.app.config().schedules.values().cloned().collect();
    site.test
        .backstop
        .schedules()
        .look(&schedules)
        .await
        .unwrap();
    site.test.clock.advance(Span::minutes(150));
    site.test
        .backstop
        .schedules()
        .look(&schedules)
        .await
        .unwrap();
    let page = site.page("/schedules/often").await;
    let next = page
        .split("rel=\"next\" href=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .unwrap();
    let next = next.replace("&#38;", "&").replace("&amp;", "&");
    let older = site.page(next.split('#').next().unwrap()).await;
    assert!(
        older.contains("datetime=\"2026-01-01T00:01:00Z\"") && !older.contains("rel=\"next\""),
        "{older}"
    );
    assert!(
        !page.contains("datetime=\"2026-01-01T00:01:00Z\""),
        "{page}"
    );
}

#[tokio::test]
async fn it_is_run_paused_and_resumed_with_one_entry_each() {
    let site = Site::new(CONFIG);
    let run = site.post("/schedules/daily_digest/trigger", "").await;
    assert_eq!(
        (run.status, run.location.as_str()),
        (StatusCode::SEE_OTHER, "/schedules/daily_digest")
    );
    assert!(
        site.page("/schedules/daily_digest")
            .await
            .contains("asked for by hand")
    );
    let kept = site
        .page("/schedules/daily_digest?what=triggered&day=2026-01-01")
        .await;
    assert!(
        kept.contains("<input type=\"hidden\" name=\"what\" value=\"triggered\">"),
        "{kept}"
    );
    let filtered = site
        .post(
            "/schedules/daily_digest/resume",
            "what=triggered&day=2026-01-01",
        )
        .await;
    assert_eq!(
        filtered.location,
        "/schedules/daily_digest?day=2026-01-01&what=triggered"
    );
    let paused = site
        .post("/schedules/daily_digest/pause", "back=list")
        .await;
    assert_eq!(paused.location, "/schedules");
    assert!(site.page("/schedules").await.contains("paused</span>"));
    let page = site.page("/schedules/daily_digest").await;
    assert!(
        page.contains("action=\"/schedules/daily_digest/resume\""),
        "{page}"
    );
    site.post("/schedules/daily_digest/resume", "").await;
    assert!(
        !site
            .page("/schedules/daily_digest")
            .await
            .contains("Paused <time")
    );
    let told: Vec<String> = site
        .audit()
        .await
        .into_iter()
        .map(|(_, what)| what)
        .collect();
    assert_eq!(
        told,
        ["schedule resume", "schedule pause", "schedule trigger"],
        "a resume of what is not paused is no entry"
    );
}

#[tokio::test]
async fn a_slip_in_the_address_is_said_and_changes_nothing() {
    let site = Site::new(CONFIG);
    for (address, status) in [
        ("/schedules/nobody", StatusCode::NOT_FOUND),
        (
            "/schedules/%3Cscript%3Ealert(7)%3C%2Fscript%3E",
            StatusCode::BAD_REQUEST,
        ),
    ] {
        let got = site.get(address).await;
        assert_eq!(got.status, status, "{address}");
        harmless(&got.body);
    }
    assert_eq!(
        site.post("/schedules/nobody/pause", "").await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        site.post("/schedules/nobody/trigger", "").await.status,
        StatusCode::NOT_FOUND
    );
    assert!(site.audit().await.is_empty());
    for query in [
        "day=%22%3E%3Cscript%3E",
        "what=%3Cimg",
        "before=-1",
        "day=0000-00-00&before=9999999",
    ] {
        site.page(&format!("/schedules/daily_digest?{query}")).await;
    }
}

#[tokio::test]
async fn one_that_only_the_store_has_heard_of_is_shown_and_can_be_paused() {
    let site = Site::new("");
    let other = Schedule {
        timezone: Zone::UTC,
        ..Schedule::new(
            ScheduleName::new("others").unwrap(),
            Cron::new("0 * * * *").unwrap(),
            QueueName::new("q").unwrap(),
        )
    };
    let worker = site
        .test
        .backstop
        .worker()
        .schedule(other)
        .handle_raw("q", |_: Run| async { Ok(()) });
    worker.drain().await.unwrap();
    assert!(
        site.page("/schedules")
            .await
            .contains("not configured here")
    );
    assert_eq!(
        site.post("/schedules/others/pause", "").await.status,
        StatusCode::SEE_OTHER
    );
    assert!(site.page("/schedules/others").await.contains("Paused"));
}

#[tokio::test]
async fn under_a_path_every_address_is_under_it() {
    let site = Site::mounted(CONFIG, "/ops", ScopeSet::ALL);
    ledger(&site).await;
    all_under(&site.page("/ops/schedules").await, "/ops");
    all_under(&site.page("/ops/schedules/daily_digest").await, "/ops");
}
