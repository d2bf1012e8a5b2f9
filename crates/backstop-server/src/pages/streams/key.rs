//! One key of a stream: its records on a line with the gaps between, when its wait ends, what was
//! missing, what came late.

use super::detail::key_link;
use super::rules::gives_up;
use super::{as_time, link, named, state};
use crate::pages::chart::{ChartMarkup, ChartTone, PositionChart, PositionMark};
use crate::pages::components::RelativeTime;
use crate::pages::{PageFailure, PageFrame, PageSection, PageView, text};
use crate::wire::stream::redacted;
use crate::words::{cut, one_line};
use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use backstop::streams::{KeyState, StoredKey, StreamRules};
use backstop::why::record::{RecordLink, explain_record, record_links};
use backstop_core::port::StoreError;
use backstop_core::stream::OffStepRecord;
use backstop_core::{Span, StreamKey, StreamName, Time};
use std::sync::Arc;

/// Characters of a payload in the list.
const PAYLOAD_CHARS: usize = 160;
/// A wait that ended so long ago should have been looked at.
const OVER_AFTER: Span = Span::secs(5);
/// Positions behind the watermark that are drawn.
const BEHIND_SHOWN: usize = 3;

#[derive(Template)]
#[template(path = "stream_key.html")]
struct StreamKeyPage {
    frame: PageFrame,
    stream: String,
    stream_link: String,
    key: String,
    /// Where the actions are; a key of dots only has them by their number, as no address can name
    /// it.
    actions: Option<String>,
    state: &'static str,
    tone: &'static str,
    is_disabled: bool,
    facts: Vec<(&'static str, String)>,
    wait: Option<KeyWaitView>,
    failing: Option<FailingRecordView>,
    halted: Option<String>,
    line: Option<ChartMarkup>,
    /// Why the first of them waits.
    why: Option<(String, String)>,
    held: Vec<HeldRecordRow>,
    more: u64,
    count: String,
    missed: Vec<MissedRangeRow>,
    late: Vec<(String, Option<String>, RelativeTime)>,
    /// What was not on the step, what became of it, and when.
    off_step: Vec<(String, &'static str, RelativeTime)>,
}

/// What is waited for, and until when.
struct KeyWaitView {
    /// Whether it is over, and nobody has looked: nobody serves the stream, or it is far behind.
    is_over: bool,
    attempt: u32,
    of: Option<usize>,
    ends: RelativeTime,
    gives_up: Option<RelativeTime>,
}

struct FailingRecordView {
    position: String,
    failures: u32,
    next: RelativeTime,
    error: String,
}

/// A record that is held, and the gap before it.
struct HeldRecordRow {
    gap: String,
    position: String,
    time: Option<String>,
    since: RelativeTime,
    until: Option<RelativeTime>,
    tenant: String,
    payload: String,
}

/// Positions that were declared missing.
struct MissedRangeRow {
    first: String,
    time: Option<String>,
    count: String,
    step: String,
}

pub(super) async fn page(
    view: PageView,
    Path((stream, key)): Path<(String, String)>,
) -> Result<Response, PageFailure> {
    show(view, &stream, &key).await
}

/// A key that was asked for by name.
pub(super) async fn page_by_query(
    view: PageView,
    Path(stream): Path<String>,
) -> Result<Response, PageFailure> {
    let key = view.query("key").unwrap_or_default().to_owned();
    show(view, &stream, &key).await
}

async fn show(view: PageView, stream: &str, key: &str) -> Result<Response, PageFailure> {
    let name = named(&view, stream)?;
    let key = StreamKey::new(key).map_err(|error| view.bad(error))?;
    let stream = view
        .app()
        .backstop()
        .stream(name.as_str())
        .map_err(|error| view.bad(error))?;
    let Some(stored) = view.ask(stream.key(&key)).await? else {
        return Err(view.missing(format!(
            "Stream {name} has no key {key}: no record of it came, or it was forgotten."
        )));
    };
    let (config, bytes) = (view.app().config(), stored.bytes());
    let redaction = Arc::clone(&config);
    let redact = move || redacted(stored, &redaction.redaction);
    let stored = view.app().large_work().answer(bytes, redact).await;
    let stored = stored.map_err(|_| {
        let cause = "as many large answers are being written as may be";
        view.store_failed(StoreError::unavailable("showing a key", cause))
    })?;
    let rules = config
        .streams
        .get(&name)
        .map(|entry| entry.settings.rules.clone());
    view.show(&key_page(&view, &name, &stored, rules.as_ref()))
}

fn key_page(
    view: &PageView,
    name: &StreamName,
    stored: &StoredKey,
    rules: Option<&StreamRules>,
) -> StreamKeyPage {
    let now = view.now();
    let read = KeyState::from_bytes(&stored.state).ok();
    let (state, tone) = state(read.as_ref(), stored.count, false);
    let key_state = read.unwrap_or_default();
    let until = rules.and_then(|rules| gives_up(rules, stored, &key_state));
    let seen = |micros: i64| RelativeTime::new(Time::from_micros(micros), now);
    let wait = key_state.wait.map(|wait| KeyWaitView {
        is_over: now.since(Time::from_micros(wait.due)) > OVER_AFTER,
        attempt: wait.attempt,
        of: rules.map(|rules| rules.steps.len()),
        ends: seen(wait.due),
        gives_up: RelativeTime::maybe(until, now),
    });
    let failing = key_state.failing.as_ref().map(|failing| FailingRecordView {
        position: failing.position.to_string(),
        failures: failing.failures,
        next: seen(failing.due),
        error: view.app().config().redaction.text(&failing.error),
    });
    let marks = marks(stored, &key_state, now);
    let line = PositionChart {
        id: "held",
        title: "What is held, and what is missing",
        marks,
    };
    let off_step = |record: &OffStepRecord| {
        let became = if record.is_handled {
            "handled; the steps go on from it"
        } else {
            "dropped as a duplicate"
        };
        (record.place.to_string(), became, seen(record.at))
    };
    let late = |(position, at): &(i64, i64)| (position.to_string(), as_time(*position), seen(*at));
    StreamKeyPage {
        frame: view
            .frame(PageSection::Streams, text::name(stored.key.as_str()))
            .live(),
        stream: name.to_string(),
        stream_link: link(view, name),
        key: text::name(stored.key.as_str()),
        actions: Some(key_link(view, name, &stored.key)).filter(|link| !link.contains('?')),
        state,
        tone,
        is_disabled: key_state.disabled,
        facts: facts(stored, &key_state),
        wait,
        failing,
        halted: key_state.halted.map(|position| position.to_string()),
        line: (!stored.records.is_empty()).then(|| line.figure()),
        why: why(stored),
        held: held_rows(stored, &key_state, until, now),
        more: stored.more(),
        count: text::count(stored.count),
        missed: key_state.missed.runs().map(missed_row).collect(),
        late: key_state.late.iter().rev().map(late).collect(),
        off_step: key_state.off_step.iter().rev().map(off_step).collect(),
    }
}

/// The record that is held first, and why it waits, as the command line and the API say it.
fn why(stored: &StoredKey) -> Option<(String, String)> {
    let first = stored.records.first()?;
    Some((
        first.position.to_string(),
        explain_record(stored, first.position).ok()?.to_string(),
    ))
}

fn facts(stored: &StoredKey, key_state: &KeyState) -> Vec<(&'static str, String)> {
    let position = |at: i64| match as_time(at) {
        Some(time) => format!("{at} ({time})"),
        None => at.to_string(),
    };
    let mut facts = vec![(
        "Watermark",
        stored.watermark.map_or_else(
            || "nothing handled yet".to_owned(),
            |at| format!("dealt with up to {}", position(at)),
        ),
    )];
    facts.extend(key_state.step.map(|step| ("Step", step.to_string())));
    facts.extend(stored.highest.map(|at| ("Highest held", position(at))));
    facts.extend(key_state.drain_to.map(|at| ("Gives up to", position(at))));
    facts
}

fn missed_row((first, step, count): (i64, i64, u64)) -> MissedRangeRow {
    MissedRangeRow {
        first: first.to_string(),
        time: as_time(first),
        count: text::many(count, "position", "positions"),
        step: step.to_string(),
    }
}

/// A position as it stands below a mark: the time of day if it is a time.
fn short(position: i64) -> String {
    let time = as_time(position)
        .and_then(|time| Some(time.split_once('T')?.1.trim_end_matches('Z').to_owned()));
    time.unwrap_or_else(|| position.to_string())
}

fn held_rows(
    stored: &StoredKey,
    key_state: &KeyState,
    until: Option<Time>,
    now: Time,
) -> Vec<HeldRecordRow> {
    let held = record_links(stored, key_state).map(|(record, joint)| HeldRecordRow {
        gap: joint.to_string(),
        position: record.position.to_string(),
        time: as_time(record.position),
        since: RelativeTime::new(record.at, now),
        until: RelativeTime::maybe(until, now),
        tenant: record.tenant.as_deref().unwrap_or_default().to_owned(),
        payload: cut(
            &one_line(&String::from_utf8_lossy(record.payload.as_bytes())),
            PAYLOAD_CHARS,
        ),
    });
    held.collect()
}

/// The last positions that were passed, the watermark, and what is held with the gaps between.
fn marks(stored: &StoredKey, key_state: &KeyState, now: Time) -> Vec<PositionMark> {
    let mut marks = Vec::new();
    if let Some(watermark) = stored.watermark {
        let lost = key_state.missed.runs().flat_map(|(first, step, count)| {
            let shown = count.min(BEHIND_SHOWN as u64);
            (count - shown..count)
                .map(move |nth| first.saturating_add(step.saturating_mul(nth.cast_signed())))
        });
        let mut lost: Vec<i64> = lost.filter(|position| *position < watermark).collect();
        lost.sort_unstable();
        let newest = lost.len().saturating_sub(BEHIND_SHOWN);
        marks.extend(lost[newest..].iter().map(|position| PositionMark::Record {
            name: short(*position),
            tone: ChartTone::Bad,
            words: format!("{position} was declared missing"),
        }));
        marks.push(PositionMark::Record {
            name: format!("≤ {}", short(watermark)),
            tone: ChartTone::Good,
            words: format!("everything up to {watermark} has been dealt with"),
        });
    }
    for (record, joint) in record_links(stored, key_state) {
        let missing = match joint {
            RecordLink::Close => None,
            RecordLink::OffGrid => Some(0),
            RecordLink::Missing(gap) | RecordLink::GivenUp(gap) | RecordLink::Bridged(gap) => {
                Some(gap.count)
            }
        };
        marks.extend(missing.map(|missing| PositionMark::Gap {
            missing,
            words: joint.to_string(),
        }));
        marks.push(PositionMark::Record {
            name: short(record.position),
            tone: if key_state.halted == Some(record.position) {
                ChartTone::Bad
            } else {
                ChartTone::Plain
            },
            words: format!(
                "{} is held, came {}",
                record.position,
                text::when(record.at, now)
            ),
        });
    }
    marks
}
