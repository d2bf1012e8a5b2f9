//! Streams: what waits for what is missing, and what was given up.

mod change;
mod detail;
mod key;
mod rules;

use super::chart::{ChartMarkup, ChartTone, spark};
use super::components::RelativeTime;
use super::link::part;
use super::{PageFailure, PageFrame, PageSection, PageView, text};
use crate::App;
use crate::history::{StreamAlarms, TimeSeries};
use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use backstop::core::stream::StreamAlarm;
use backstop::streams::{KeyState, StreamCounter, StreamCounts, StreamStatus};
use backstop_core::{StreamName, Time};
use std::collections::BTreeSet;

/// Streams that a page lists.
const STREAMS_SHOWN: usize = 500;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/streams", get(list))
        .route("/streams/{stream}", get(detail::page))
        .route("/streams/{stream}/keys/{key}", get(key::page))
        .route("/streams/{stream}/key", get(key::page_by_query))
        .route("/streams/{stream}/keys/{key}/forget", post(change::forget))
        .route(
            "/streams/{stream}/keys/{key}/disable",
            post(change::disable),
        )
        .route("/streams/{stream}/keys/{key}/enable", post(change::enable))
        .route("/streams/{stream}/keys/{key}/resume", post(change::resume))
        .route("/streams/{stream}/keys/{key}/skip", post(change::skip))
}

#[derive(Template)]
#[template(path = "streams.html")]
struct StreamListPage {
    frame: PageFrame,
    streams: Vec<StreamRow>,
    alarms: Vec<StreamAlarmRow>,
    left_out: usize,
}

/// A stream in the list.
struct StreamRow {
    name: String,
    link: String,
    is_known: bool,
    is_configured: bool,
    keys: String,
    holding: String,
    held: u64,
    held_text: String,
    oldest: Option<RelativeTime>,
    handled: String,
    lately: ChartMarkup,
    /// Missing, late, timeouts, overflows, dead: in the order of the columns.
    given_up: [StreamCountCell; 5],
    success: String,
    timeout: String,
    is_ringing: bool,
}

/// A count, and whether it is nothing.
struct StreamCountCell {
    text: String,
    is_zero: bool,
}

impl StreamCountCell {
    fn new(number: u64) -> Self {
        Self {
            text: text::count(number),
            is_zero: number == 0,
        }
    }
}

/// Why somebody should look at a stream.
struct StreamAlarmRow {
    name: String,
    link: String,
    words: String,
}

async fn list(view: PageView) -> Result<Response, PageFailure> {
    let (now, config) = (view.now(), view.app().config());
    let known = view.ask(view.store().streams()).await?;
    let names: BTreeSet<&StreamName> = known.iter().map(|status| &status.name).collect();
    let alarms = view
        .ask(StreamAlarms::read(view.app().backstop(), &known))
        .await?;
    let mut streams: Vec<StreamRow> = known
        .iter()
        .map(|status| row(&view, status, &alarms, now))
        .collect();
    let unheard = config.streams.keys().filter(|name| !names.contains(name));
    streams.extend(unheard.map(|name| StreamRow {
        is_known: false,
        ..row(&view, &unheard_stream(name), &alarms, now)
    }));
    let ringing = known.iter().flat_map(|status| {
        let (name, link) = (status.name.to_string(), link(&view, &status.name));
        let ring = move |alarm: StreamAlarm| StreamAlarmRow {
            name: name.clone(),
            link: link.clone(),
            words: alarm.to_string(),
        };
        alarms.of(&status.name).iter().copied().map(ring)
    });
    let left_out = streams.len().saturating_sub(STREAMS_SHOWN);
    let ringing = ringing.collect();
    streams.truncate(STREAMS_SHOWN);
    view.show(&StreamListPage {
        frame: view.frame(PageSection::Streams, "Streams").live(),
        streams,
        alarms: ringing,
        left_out,
    })
}

/// A stream that stands in the configuration, and whose first record is yet to come.
fn unheard_stream(name: &StreamName) -> StreamStatus {
    let counts = StreamCounts::default();
    StreamStatus {
        name: name.clone(),
        keys: 0,
        holding: 0,
        records: 0,
        oldest: None,
        counts,
    }
}

fn row(view: &PageView, status: &StreamStatus, alarms: &StreamAlarms, now: Time) -> StreamRow {
    let counts = &status.counts;
    let handled: TimeSeries = view
        .app()
        .history()
        .recent_stream(&status.name, now)
        .handled;
    StreamRow {
        name: status.name.to_string(),
        link: link(view, &status.name),
        is_known: true,
        is_configured: view.app().config().streams.contains_key(&status.name),
        keys: text::count(status.keys),
        holding: text::count(status.holding),
        held: status.records,
        held_text: text::count(status.records),
        oldest: RelativeTime::maybe(status.oldest, now),
        handled: text::count(counts[StreamCounter::Handled]),
        lately: spark(
            &handled,
            ChartTone::Good,
            "Records handled a second in the last five minutes",
        ),
        given_up: [
            StreamCounter::Misses,
            StreamCounter::Late,
            StreamCounter::Timeout,
            StreamCounter::CircuitBreaker,
            StreamCounter::Dead,
        ]
        .map(|count| StreamCountCell::new(counts[count])),
        success: percent(counts.success_rate()),
        timeout: percent(counts.timeout_rate()),
        is_ringing: !alarms.of(&status.name).is_empty(),
    }
}

fn link(view: &PageView, stream: &StreamName) -> String {
    view.at(&format!("/streams/{}", part(stream.as_str())))
}

/// The stream of a path.
fn named(view: &PageView, stream: &str) -> Result<StreamName, PageFailure> {
    StreamName::new(stream).map_err(|error| view.bad(error))
}

/// A share of a whole, or that there is none yet.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// What a key does, in a word, and how that is.
const fn state(
    key_state: Option<&KeyState>,
    records: u64,
    is_in_hand: bool,
) -> (&'static str, &'static str) {
    let Some(key_state) = key_state else {
        return ("unreadable", "bad");
    };
    if is_in_hand {
        ("in hand", "accent")
    } else if key_state.disabled {
        ("disabled", "calm")
    } else if key_state.halted.is_some() {
        ("halted", "bad")
    } else if key_state.failing.is_some() {
        ("failing", "bad")
    } else if key_state.wait.is_some() {
        ("waiting", "warn")
    } else if records > 0 {
        ("due", "warn")
    } else {
        ("in order", "good")
    }
}

/// A position that looks like a time, as one: milliseconds, or seconds, of the last decades.
fn as_time(position: i64) -> Option<String> {
    const SECONDS: std::ops::Range<i64> = 1_000_000_000..10_000_000_000;
    let millis = if SECONDS.contains(&position) {
        position * 1_000
    } else {
        position
    };
    SECONDS
        .contains(&(millis / 1_000))
        .then(|| text::second(Time::from_millis(millis)))
}
