//! An ordered stream: checks of six sites, which arrive out of order, twice, late or never.

use crate::error::CliError;
use backstop::config::Config;
use backstop::core::stream::Record;
use backstop::streams::{EventEffect, RunningStream, StreamEvent};
use backstop::{Backstop, Payload, RunError, StreamKey, StreamName};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const STREAM: &str = "uptime";
const SITES: [&str; 6] = ["docs", "api", "shop", "mail", "status", "search"];
/// How far apart checks are, in milliseconds: the step of the configuration.
const STEP_MS: i64 = 2_000;
/// Records on their way at once; more would mean that the stream no longer answers.
const UNDER_WAY_MAX: usize = 256;

/// How a record arrives: decided by its place, so that every demo is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DemoArrival {
    InTime,
    /// Behind the one that follows it.
    After(Duration),
    Twice,
    Never,
}

const fn arrival(slot: i64, site: i64) -> DemoArrival {
    match (slot + site * 5) % 41 {
        6 | 19 | 30 => DemoArrival::After(Duration::from_millis(3_500)),
        11 => DemoArrival::Twice,
        23 => DemoArrival::Never,
        // Past all waits: a miss is declared, and the record comes after it.
        37 => DemoArrival::After(Duration::from_secs(20)),
        _ => DemoArrival::InTime,
    }
}

pub(super) fn stream() -> Result<StreamName, CliError> {
    StreamName::new(STREAM).map_err(CliError::new)
}

/// Serves the stream as the configuration says.
pub(super) fn serve(backstop: &Backstop, config: &Config) -> Result<RunningStream, CliError> {
    let settings = config
        .streams
        .get(&stream()?)
        .map(|stream| stream.settings.clone())
        .unwrap_or_default();
    backstop
        .stream(STREAM)
        .map_err(CliError::new)?
        .serve(settings, handle)
        .map_err(CliError::new)
}

async fn handle(event: StreamEvent) -> Result<(), RunError> {
    tokio::time::sleep(Duration::from_millis(15)).await;
    let payload: Value = match &event.payload {
        Some(payload) => serde_json::from_slice(payload.as_bytes())?,
        None => Value::Null,
    };
    let is_known = event.effect != EventEffect::Handled || payload["status"].is_string();
    if is_known {
        Ok(())
    } else {
        Err(RunError::retry("the check has no status"))
    }
}

/// Checks all sites for ever.
pub(super) async fn watch(backstop: Backstop, stream: Arc<RunningStream>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(STEP_MS.unsigned_abs()));
    let mut under_way = JoinSet::new();
    loop {
        ticks.tick().await;
        while under_way.len() > UNDER_WAY_MAX || under_way.try_join_next().is_some() {
            if under_way.len() > UNDER_WAY_MAX {
                under_way.join_next().await;
            }
        }
        let slot = backstop.now().as_millis() / STEP_MS;
        for (site, name) in (0_i64..).zip(SITES) {
            let Some(record) = record(slot, name) else {
                continue;
            };
            under_way.spawn(bring(Arc::clone(&stream), record, arrival(slot, site)));
        }
    }
}

fn record(slot: i64, site: &str) -> Option<Record> {
    // One site answers with nonsense now and then: such a record fails for good, and its key goes
    // on without it.
    let is_nonsense = site == "search" && slot % 45 == 0;
    let status = if is_nonsense {
        Value::Null
    } else {
        "up".into()
    };
    let check = json!({ "site": site, "status": status, "duration_ms": 40 + (slot * 37) % 160 });
    Some(Record {
        key: StreamKey::new(site).ok()?,
        position: slot * STEP_MS,
        step: STEP_MS,
        tenant: None,
        payload: Payload::json(check.to_string().into_bytes()).ok()?,
    })
}

async fn bring(stream: Arc<RunningStream>, record: Record, arrival: DemoArrival) {
    let copies = match arrival {
        DemoArrival::Never => 0,
        DemoArrival::InTime => 1,
        DemoArrival::Twice => 2,
        DemoArrival::After(wait) => {
            tokio::time::sleep(wait).await;
            1
        }
    };
    for _ in 0..copies {
        if let Err(error) = stream.handle(vec![record.clone()]).await {
            tracing::warn!(%error, "the demo could not bring a record");
        }
    }
}
