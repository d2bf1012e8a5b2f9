//! Streams, one stream, one key, and what can be done to it.

use crate::site::{HOSTILE, Site, all_under, harmless};
use axum::http::StatusCode;
use backstop::core::lease::{LeaseNumber, WorkerName};
use backstop::core::port::{KeyAdvance, KeyLease, KeyLeaseAction, KeySelection, TakeRequest};
use backstop::core::stream::{GapWait, KeyChange, MissedPositions, OfflineRange};
use backstop::streams::{KeyState, Record, StreamEvent, StreamSettings};
use backstop::{Payload, RunError, Span, StreamKey, StreamName};
use backstop_server::access::ScopeSet;

const CONFIG: &str = "[streams.uptime]\nstep = \"1m\"\n";

fn record(key: &str, position: i64) -> Record {
    Record {
        key: key.try_into().unwrap(),
        position,
        step: 60,
        tenant: Some(HOSTILE.into()),
        payload: Payload::json(
            serde_json::json!({ "text": HOSTILE, "password": "hunter2" }).to_string(),
        )
        .unwrap(),
    }
}

/// A key with records at these positions, and this standing.
async fn given(site: &Site, key: &str, positions: &[i64], standing: KeyState) {
    let (backstop, name) = (&site.test.backstop, StreamName::new("uptime").unwrap());
    let stream = backstop.stream("uptime").unwrap();
    stream
        .offer(
            positions
                .iter()
                .map(|position| record(key, *position))
                .collect(),
        )
        .await
        .unwrap();
    let key: StreamKey = key.try_into().unwrap();
    let (now, number) = (backstop.now(), LeaseNumber::draw(7));
    let take = TakeRequest {
        stream: name.clone(),
        number,
        worker: WorkerName::new("w"),
        until: now.after(Span::secs(15)),
        wanted: KeySelection::Keys(vec![key.clone()]),
    };
    let taken = backstop.store().take(take, now).await.unwrap();
    let due = standing
        .wait
        .map(|wait| backstop::Time::from_micros(wait.due));
    let change = KeyChange {
        watermark: Some(60),
        state: standing.to_bytes(),
        ..KeyChange::default()
    };
    let lease = KeyLease {
        stream: name,
        key,
        number,
    };
    let advance = KeyAdvance {
        lease,
        turn: 1,
        seen: taken.keys[0].arrived,
        change,
        lease_action: KeyLeaseAction::Release(due),
    };
    backstop.store().advance(vec![advance], now).await.unwrap();
}

fn waiting(site: &Site) -> KeyState {
    let due = site.test.backstop.now().after(Span::secs(20)).as_micros();
    let mut missed = MissedPositions::default();
    missed.add(0, 60, 1);
    let late = [(0, site.test.backstop.now().as_micros())].into();
    KeyState {
        step: Some(60),
        wait: Some(GapWait { attempt: 2, due }),
        missed,
        late,
        ..KeyState::default()
    }
}

#[tokio::test]
async fn without_streams_the_page_teaches_how_to_get_one() {
    let page = Site::new("").page("/streams").await;
    assert!(
        page.contains("backstop stream push uptime") && page.contains("[streams.uptime]"),
        "{page}"
    );
    let configured = Site::new(CONFIG).page("/streams").await;
    assert!(configured.contains("no record yet"), "{configured}");
}

#[tokio::test]
async fn the_list_says_what_is_held_and_the_rates() {
    let site = Site::new("");
    given(&site, "site-7", &[180, 240], waiting(&site)).await;
    let page = site.page("/streams").await;
    for part in [
        "href=\"/streams/uptime\"",
        "Success rate",
        "Timeout rate",
        "not configured here",
        "1 hold",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[tokio::test]
async fn a_stream_shows_its_keys_page_by_page_and_by_filter() {
    let site = Site::new(CONFIG);
    for number in 0..60 {
        given(&site, &format!("k{number:02}"), &[180], waiting(&site)).await;
    }
    given(
        &site,
        "in-order",
        &[],
        KeyState {
            step: Some(60),
            ..KeyState::default()
        },
    )
    .await;
    let first = site.page("/streams/uptime").await;
    assert!(
        first.contains("/streams/uptime/keys/k49\"") && !first.contains("/keys/k50\""),
        "{first}"
    );
    assert!(
        first.contains("href=\"/streams/uptime?after=k49\"") && !first.contains("in-order"),
        "{first}"
    );
    let second = site.page("/streams/uptime?after=k49").await;
    assert!(
        second.contains("/keys/k59\"") && second.contains("Page before"),
        "{second}"
    );
    let all = site.page("/streams/uptime?keys=all&window=24h").await;
    assert!(
        all.contains("in-order") && all.contains("in order</span>"),
        "{all}"
    );
    assert!(
        all.contains("?window=24h&#38;keys=all&#38;after=")
            || all.contains("?window=24h&amp;keys=all&amp;after="),
        "{all}"
    );
}

#[tokio::test]
async fn a_key_shows_its_gap_its_wait_its_misses_and_hides_secrets() {
    let site = Site::new(CONFIG);
    given(&site, "site-7", &[240, 300], waiting(&site)).await;
    let page = site.page("/streams/uptime/keys/site-7").await;
    for part in [
        "2 positions are missing from 120 on",
        "wait 2 of 5 ends",
        "in 20 s",
        "it gives up",
        "dealt with up to 60",
        "held-hole",
        "Came too late",
        "[redacted]",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("hunter2"), "{page}");
    // Two waits are over, the one under way ends in 20 s, and 30 + 60 + 60 s are left.
    assert!(page.contains("in 2 min 50 s"), "{page}");
}

#[tokio::test]
async fn a_key_shows_what_was_off_its_step_and_what_became_of_it() {
    let site = Site::new(CONFIG);
    let stream = site.test.backstop.stream("uptime").unwrap();
    let handler = |_: StreamEvent| async { Ok::<(), RunError>(()) };
    let running = stream.serve(StreamSettings::default(), handler).unwrap();
    for position in [60_000, 180_000, 120_000] {
        let record = Record {
            step: 300_000,
            ..record("a", position)
        };
        running.handle(vec![record]).await.unwrap();
    }
    running.stop().await;
    let page = site.page("/streams/uptime/keys/a").await;
    for part in [
        "180000 is not on the step of 300000 from 60000</th><td>handled; the steps go on from it",
        "120000 is not on the step of 300000 from 180000</th><td>dropped as a duplicate",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[tokio::test]
async fn a_key_says_why_its_first_record_waits_and_draws_the_same_gaps() {
    let site = Site::new(CONFIG);
    given(&site, "waits", &[240], waiting(&site)).await;
    let page = site.page("/streams/uptime/keys/waits").await;
    assert!(
        page.contains("Why 240 waits: it waits behind key waits at gap 120"),
        "{page}"
    );
    // After an outage the same records have been passed, or were given up: nothing is waited for,
    // and no gap is drawn as if it were.
    let ahead = vec![OfflineRange {
        from: 120,
        step: 60,
        to: 180,
        last_step: 60,
    }];
    let passed = KeyState {
        step: Some(60),
        ahead,
        ..KeyState::default()
    };
    let given_up = KeyState {
        step: Some(60),
        drain_to: Some(240),
        ..KeyState::default()
    };
    for (key, standing, gap) in [
        (
            "passed",
            passed,
            "2 positions were passed without the store from 120 on",
        ),
        ("given-up", given_up, "2 positions are given up from 120 on"),
    ] {
        given(&site, key, &[240], standing).await;
        let page = site.page(&format!("/streams/uptime/keys/{key}")).await;
        assert!(
            page.contains("Why 240 waits: it is next") && page.contains(gap),
            "{page}"
        );
        assert!(!page.contains("are missing from"), "{page}");
    }
}

#[tokio::test]
async fn whatever_a_key_is_called_it_has_a_page_and_its_text_is_text() {
    let site = Site::new("");
    for key in [HOSTILE, "a/b?c#d", "..", "ключ 🔑"] {
        given(&site, key, &[180], waiting(&site)).await;
    }
    let list = site.page("/streams/uptime").await;
    let links: Vec<&str> = list
        .split("href=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .filter(|link| link.contains("/streams/uptime/key"))
        .collect();
    assert_eq!(links.len(), 4, "{links:?}");
    for link in links {
        site.page(&link.replace("&amp;", "&").replace("&#38;", "&"))
            .await;
    }
    let unknown = site
        .get(&format!("/streams/uptime/keys/{}", "%22%3E%3Cscript%3E"))
        .await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    harmless(&unknown.body);
    let hostile = site.get("/streams/%3Cscript%3E").await;
    assert_eq!(hostile.status, StatusCode::BAD_REQUEST);
    harmless(&hostile.body);
    site.page("/streams/uptime?window=%22%3E%3Cscript%3E&keys=%3Cimg&after=%22%3E%3Cscript%3E")
        .await;
}

#[tokio::test]
async fn a_key_is_forgotten_only_when_that_was_said_twice() {
    let site = Site::new(CONFIG);
    given(&site, "site-7", &[240, 300], waiting(&site)).await;
    for not_said in ["", "confirm=skip", "confirm=disable"] {
        let refused = site
            .post("/streams/uptime/keys/site-7/forget", not_said)
            .await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{not_said}");
    }
    assert!(site.audit().await.is_empty());
    site.page("/streams/uptime/keys/site-7").await;
    let done = site
        .post("/streams/uptime/keys/site-7/forget", "confirm=forget")
        .await;
    assert_eq!(
        (done.status, done.location.as_str()),
        (StatusCode::SEE_OTHER, "/streams/uptime")
    );
    assert_eq!(
        site.audit().await,
        [("token ada".to_owned(), "stream forget".to_owned())]
    );
    assert_eq!(
        site.get("/streams/uptime/keys/site-7").await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn a_halted_key_is_set_going_again_with_its_record_or_past_it() {
    let site = Site::new(CONFIG);
    let halted = KeyState {
        step: Some(60),
        halted: Some(120),
        ..KeyState::default()
    };
    given(&site, "a", &[120, 180], halted.clone()).await;
    given(&site, "b", &[120, 180], halted).await;
    let page = site.page("/streams/uptime/keys/a").await;
    assert!(
        page.contains("Halted at 120") && page.contains("action=\"/streams/uptime/keys/a/resume\""),
        "{page}"
    );
    let resumed = site.post("/streams/uptime/keys/a/resume", "").await;
    assert_eq!(resumed.location, "/streams/uptime/keys/a");
    assert!(
        !site
            .page("/streams/uptime/keys/a")
            .await
            .contains("Halted at")
    );
    assert_eq!(
        site.post("/streams/uptime/keys/b/skip", "").await.status,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        site.post("/streams/uptime/keys/b/skip", "confirm=skip")
            .await
            .status,
        StatusCode::SEE_OTHER
    );
    assert!(
        !site
            .page("/streams/uptime/keys/b")
            .await
            .contains("Halted at")
    );
    let told: Vec<String> = site
        .audit()
        .await
        .into_iter()
        .map(|(_, what)| what)
        .collect();
    assert_eq!(told, ["stream resume past", "stream resume"]);
}

#[tokio::test]
async fn a_disabled_key_is_enabled_again() {
    let site = Site::new(CONFIG);
    given(&site, "a", &[180], waiting(&site)).await;
    assert_eq!(
        site.post("/streams/uptime/keys/a/disable", "confirm=disable")
            .await
            .status,
        StatusCode::SEE_OTHER
    );
    assert!(
        site.page("/streams/uptime/keys/a")
            .await
            .contains("until it is enabled")
    );
    assert_eq!(
        site.post("/streams/uptime/keys/a/enable", "").await.status,
        StatusCode::SEE_OTHER
    );
    assert_eq!(
        site.get("/streams/uptime/keys/a").await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn who_may_only_look_sees_no_buttons() {
    let site = Site::read_only(CONFIG);
    let halted = KeyState {
        halted: Some(120),
        ..KeyState::default()
    };
    given(&site, "a", &[120], halted).await;
    let page = site.page("/streams/uptime/keys/a").await;
    assert!(!page.contains("method=\"post\""), "{page}");
}

#[tokio::test]
async fn under_a_path_every_address_is_under_it() {
    let site = Site::mounted(CONFIG, "/ops/backstop", ScopeSet::ALL);
    given(&site, "a", &[180], waiting(&site)).await;
    for address in [
        "/ops/backstop/streams",
        "/ops/backstop/streams/uptime",
        "/ops/backstop/streams/uptime/keys/a",
    ] {
        all_under(&site.page(address).await, "/ops/backstop");
    }
    let done = site
        .post(
            "/ops/backstop/streams/uptime/keys/a/forget",
            "confirm=forget",
        )
        .await;
    assert_eq!(done.location, "/ops/backstop/streams/uptime");
}
