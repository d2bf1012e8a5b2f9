//! Every button × the audit.

use crate::given::{dead, heard, ready};
use crate::runs::cut_off;
use crate::site::Site;
use axum::http::StatusCode;
use backstop::audit::AuditEntry;
use backstop::core::failure::ErrorReport;
use backstop::core::lease::{LeaseNumber, WorkerName};
use backstop::core::port::{KeyAdvance, KeyLease, KeyLeaseAction, KeySelection, TakeRequest};
use backstop::core::stream::KeyChange;
use backstop::core::worker_command::WorkerCommand;
use backstop::dead::DeadSelection;
use backstop::dead::redrive::RedrivePlan;
use backstop::rusqlite::Connection;
use backstop::streams::{KeyState, Record};
use backstop::{Backstop, Payload, Span, StreamKey, StreamName};
use backstop_server::bulk::{BulkActions, BulkStatus as OfRun};
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// Something of everything that has a button.
struct Given {
    site: Site,
    run: String,
    redrive: String,
    _folder: TempDir,
}

/// Where a form is sent, what it says, and the audit's words for it; a route that is missing here
/// fails the test.
fn case(pattern: &str, given: &Given) -> (String, String, &'static [&'static str]) {
    let (run, redrive) = (&given.run, format!("/dead/redrives/{}", given.redrive));
    let of_key = |deed: &str| format!("/streams/s/keys/k/{deed}");
    let (address, form, words): (String, &str, &[&str]) = match pattern {
        "/jobs/act" => (pattern.into(), "action=cancel&id=ready", &["job cancel"]),
        "/jobs/{id}/payload" => ("/jobs/ready/payload".into(), "", &["job payload"]),
        "/jobs/runs/{id}/stop" => (format!("{run}/stop"), "", &["bulk stop"]),
        "/jobs/runs/{id}/resume" => (format!("{run}/resume"), "", &["job cancel"]),
        "/dead/act" => (pattern.into(), "action=requeue&id=dead", &["requeue"]),
        "/dead/redrive" => (
            pattern.into(),
            "queue=q&canary=1&max_failures=0&then_rate=1/s",
            &["redrive "],
        ),
        "/dead/redrives/{id}/stop" => (format!("{redrive}/stop"), "", &["redrive stop"]),
        // It is left to the servers, and then one of them runs it.
        "/dead/redrives/{id}/resume" => (
            format!("{redrive}/resume"),
            "",
            &["redrive ", "redrive leave"],
        ),
        "/queues" => (pattern.into(), "action=pause", &["queue pause"]),
        "/queues/{queue}/pause" => ("/queues/q/pause".into(), "", &["queue pause"]),
        "/queues/{queue}/resume" => ("/queues/q/resume".into(), "", &["queue resume"]),
        "/breakers/reset" => (pattern.into(), "name=q", &["breaker reset"]),
        "/breakers/open" => (pattern.into(), "name=q", &["breaker open"]),
        "/streams/{stream}/keys/{key}/forget" => {
            (of_key("forget"), "confirm=forget", &["stream forget"])
        }
        "/streams/{stream}/keys/{key}/disable" => {
            (of_key("disable"), "confirm=disable", &["stream disable"])
        }
        "/streams/{stream}/keys/{key}/enable" => (of_key("enable"), "", &["stream enable"]),
        "/streams/{stream}/keys/{key}/resume" => (of_key("resume"), "", &["stream resume"]),
        "/streams/{stream}/keys/{key}/skip" => {
            (of_key("skip"), "confirm=skip", &["stream resume past"])
        }
        "/schedules/{schedule}/trigger" => {
            ("/schedules/daily/trigger".into(), "", &["schedule trigger"])
        }
        "/schedules/{schedule}/pause" => ("/schedules/daily/pause".into(), "", &["schedule pause"]),
        "/schedules/{schedule}/resume" => {
            ("/schedules/daily/resume".into(), "", &["schedule resume"])
        }
        "/sweeps/{sweep}/run" => ("/sweeps/changes/run".into(), "", &["sweep run"]),
        "/workers/quiet" => (pattern.into(), "name=w", &["worker quiet"]),
        "/workers/resume" => (pattern.into(), "name=w", &["worker resume"]),
        "/workers/stop" => (pattern.into(), "name=w", &["worker stop"]),
        _ => panic!("{pattern} changes something, and has no case here"),
    };
    (address, form.to_owned(), words)
}

/// The addresses that pages send forms to, as their sources name them.
fn buttons() -> Vec<String> {
    let (mut found, mut folders) = (
        Vec::new(),
        vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pages")],
    );
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = std::fs::read_to_string(path).unwrap();
            for route in source.split(".route(").skip(1) {
                let (pattern, rest) = route
                    .trim_start()
                    .trim_start_matches('"')
                    .split_once('"')
                    .unwrap();
                let served = rest
                    .split(".route(")
                    .next()
                    .unwrap()
                    .split(';')
                    .next()
                    .unwrap();
                let served = served.split("\n    }").next().unwrap();
                if served.contains("post(") {
                    found.push(pattern.to_owned());
                }
            }
        }
    }
    found.sort();
    found
}

fn config(folder: &TempDir) -> String {
    let file = folder.path().join("app.db");
    Connection::open(&file)
        .unwrap()
        .execute_batch("CREATE TABLE rows (id INTEGER, at TEXT)")
        .unwrap();
    format!(
        "[schedules.daily]\ncron = \"30 8 * * *\"\nqueue = \"q\"\n[sweeps.changes]\nurl = \"sqlite:{}\"\nquery = \"SELECT id FROM rows WHERE at <= :cutoff\"\nqueue = \"q\"\nunique_key = \"row:{{id}}\"\n",
        file.display()
    )
}

/// A key of a stream that has halted.
async fn halted(site: &Site) {
    let (backstop, stream) = (&site.test.backstop, StreamName::new("s").unwrap());
    let key: StreamKey = "k".try_into().unwrap();
    let payload = Payload::json("1").unwrap();
    let record = Record {
        key: key.clone(),
        position: 60,
        step: 60,
        tenant: None,
        payload,
    };
    backstop
        .stream("s")
        .unwrap()
        .offer(vec![record])
        .await
        .unwrap();
    let (now, number) = (backstop.now(), LeaseNumber::draw(7));
    let (until, wanted) = (
        now.after(Span::secs(15)),
        KeySelection::Keys(vec![key.clone()]),
    );
    let take = TakeRequest {
        stream: stream.clone(),
        number,
        worker: WorkerName::new("w"),
        until,
        wanted,
    };
    let taken = backstop.store().take(take, now).await.unwrap();
    let standing = KeyState {
        step: Some(60),
        halted: Some(60),
        ..KeyState::default()
    };
    let change = KeyChange {
        watermark: Some(0),
        state: standing.to_bytes(),
        ..KeyChange::default()
    };
    let (lease, seen) = (
        KeyLease {
            stream,
            key,
            number,
        },
        taken.keys[0].arrived,
    );
    let advance = KeyAdvance {
        lease,
        turn: 1,
        seen,
        change,
        lease_action: KeyLeaseAction::Release(None),
    };
    backstop.store().advance(vec![advance], now).await.unwrap();
}

impl Given {
    /// What the button of this address changes.
    async fn new(pattern: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let site = Site::new(&config(&folder));
        let backstop = &site.test.backstop;
        dead(backstop, "q", "dead", ErrorReport::message("boom")).await;
        halted(&site).await;
        let run = site
            .post("/jobs/act", "action=cancel&queue=late&all=matching")
            .await
            .location;
        let id = run.trim_start_matches("/jobs/runs/").to_owned();
        let bulk = BulkActions::new(&site.app, "");
        // A run and a redrive whose servers are gone.
        until(async || {
            bulk.report(&id)
                .await
                .unwrap()
                .unwrap()
                .status(backstop.now())
                == OfRun::Done
        })
        .await;
        cut_off(&site, &run, |_| ()).await;
        // Whoever goes on with the run finds something to do.
        ready(backstop, "late", "late").await;
        let then_rate = "1/s".parse().unwrap();
        let plan = RedrivePlan {
            canary: 1,
            max_failures: 0,
            then_rate,
            selection: DeadSelection::All,
        };
        let redrive = backstop.dead().redrive(plan).await.unwrap();
        site.test.clock.advance(Span::minutes(1));
        ready(backstop, "q", "ready").await;
        heard(backstop, "q", "w").await;
        backstop
            .breakers()
            .open(&"q".parse().unwrap(), "test")
            .await
            .unwrap();
        prepare(backstop, pattern).await;
        Self {
            site,
            run,
            redrive,
            _folder: folder,
        }
    }

    /// What was done since it was given, the newest first.
    async fn audit(&self) -> Vec<AuditEntry> {
        let entries = self
            .site
            .test
            .backstop
            .audit("")
            .entries(100)
            .await
            .unwrap();
        let before = self.site.test.backstop.now().before(Span::secs(30));
        entries
            .into_iter()
            .filter(|entry| entry.at > before && entry.who != BEFORE)
            .collect()
    }
}

/// Who does what a button then undoes.
const BEFORE: &str = "before";

/// What goes on already is not started again, and leaves no entry.
async fn prepare(backstop: &Backstop, pattern: &str) {
    let changes = backstop.changes(BEFORE);
    match pattern {
        "/queues/{queue}/resume" => changes.pause(&"q".parse().unwrap()).await.unwrap(),
        "/streams/{stream}/keys/{key}/enable" => {
            let stream = backstop.stream("s").unwrap();
            let key: StreamKey = "k".try_into().unwrap();
            changes.disable(&stream, &key).await.unwrap();
        }
        "/schedules/{schedule}/resume" => {
            let daily = "daily".parse().unwrap();
            assert!(changes.pause_schedule(&daily).await.unwrap());
        }
        "/workers/resume" => {
            let order = changes
                .command_worker(&WorkerName::new("w"), WorkerCommand::Quiet)
                .await;
            assert!(order.unwrap().is_some());
        }
        _ => {}
    }
}

/// Waits for what goes on in the background.
async fn until(is_so: impl AsyncFn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_mins(1), async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    });
    waited.await.expect("it comes about");
}

#[tokio::test]
async fn each_button_leaves_one_entry_for_each_thing_it_does_in_the_name_of_who_pressed_it_and_for_their_reason()
 {
    let buttons = buttons();
    assert!(buttons.len() >= 21, "{buttons:?}");
    for pattern in buttons {
        let given = Given::new(&pattern).await;
        assert_eq!(given.audit().await, [], "nothing yet");
        let (address, form, words) = case(&pattern, &given);
        let got = given
            .site
            .post(
                &address,
                &format!("{form}&reason=gr%C3%B6%C3%9Fer%2C+password%3Dhunter2"),
            )
            .await;
        let is_done = [StatusCode::SEE_OTHER, StatusCode::OK].contains(&got.status);
        assert!(is_done, "{pattern}: {} {}", got.status, got.body);
        until(async || given.audit().await.len() >= words.len()).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let audit = given.audit().await;
        let mut said: Vec<&str> = audit.iter().map(|entry| entry.what.as_str()).collect();
        said.sort_unstable();
        assert_eq!(said.len(), words.len(), "{pattern}: {audit:?}");
        assert!(
            said.iter()
                .zip(words)
                .all(|(said, word)| said.starts_with(word)),
            "{pattern}: {audit:?}"
        );
        assert!(
            audit.iter().all(|entry| entry.who == "token ada"),
            "{pattern}: {audit:?}"
        );
        for entry in audit {
            assert_eq!(
                entry.reason.as_deref(),
                Some("größer, password=[redacted]"),
                "{pattern}"
            );
        }
    }
}

#[tokio::test]
async fn picks_from_several_queues_are_one_change() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    for (address, action, what) in [
        ("/jobs/act", "cancel", "job cancel"),
        ("/dead/act", "requeue", "requeue"),
    ] {
        let mut form = format!("action={action}");
        for queue in ["emails", "billing"] {
            let name = format!("{what} {queue}");
            let id = match address {
                "/dead/act" => dead(backstop, queue, &name, ErrorReport::message("boom")).await,
                _ => ready(backstop, queue, &name).await,
            };
            write!(form, "&id={id}:{queue}").unwrap();
        }
        site.post(address, &form).await;
        let audit = backstop.audit("").entries(100).await.unwrap();
        let entries: Vec<&AuditEntry> = audit.iter().filter(|entry| entry.what == what).collect();
        assert_eq!(entries.len(), 1, "{address}: {audit:?}");
        assert_eq!(
            (entries[0].count, &entries[0].selection["of"]),
            (Some(2), &json!(2)),
            "{audit:?}"
        );
        assert_eq!(
            entries[0].selection["each"][0]["queue"], "billing",
            "{audit:?}"
        );
    }
}

#[tokio::test]
async fn a_reason_that_is_none_is_refused_before_anything_is_changed() {
    for pattern in buttons() {
        let given = Given::new("").await;
        let (address, form, _) = case(&pattern, &given);
        let got = given
            .site
            .post(&address, &format!("{form}&reason={}", "a".repeat(201)))
            .await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{pattern}");
        assert!(
            got.body.contains("a reason has at most 200 characters"),
            "{pattern}: {}",
            got.body
        );
        assert_eq!(given.audit().await, [], "{pattern}");
    }
}
