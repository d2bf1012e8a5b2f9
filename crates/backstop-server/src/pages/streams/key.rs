//! One key of a stream: its records on a line with the gaps between, when its wait ends, what was
//! missing, what came late.

use super::one::key_link;
use super::rules::gives_up;
use super::{as_time, link, named, state};
use crate::pages::chart::{Mark, Markup, TimeLine, Tone};
use crate::pages::mark::When;
use crate::pages::{Frame, PageFailure, Section, View, text};
use crate::wire::stream::redacted;
use crate::words::{cut, one_line};
use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use backstop::streams::{Rules, Standing, StoredKey};
use backstop::why::record::{Joint, joints, why_record};
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
struct Page {
    frame: Frame,
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
    wait: Option<WaitShown>,
    failing: Option<FailingShown>,
    halted: Option<String>,
    line: Option<Markup>,
    /// Why the first of them waits.
    why: Option<(String, String)>,
    held: Vec<Held>,
    more: u64,
    count: String,
    missed: Vec<Missed>,
    late: Vec<(String, Option<String>, When)>,
    /// What was not on the step, what became of it, and when.
    off_step: Vec<(String, &'static str, When)>,
}

/// What is waited for, and until when.
struct WaitShown {
    /// Whether it is over, and nobody has looked: nobody serves the stream, or it is far behind.
    is_over: bool,
    attempt: u32,
    of: Option<usize>,
    ends: When,
    gives_up: Option<When>,
}

/// A record that fails.
struct FailingShown {
    position: String,
    failures: u32,
    next: When,
    error: String,
}

/// A record that is held, and the gap before it.
struct Held {
    gap: String,
    position: String,
    time: Option<String>,
    since: When,
    until: Option<When>,
    tenant: String,
    payload: String,
}

/// Positions that were declared missing.
struct Missed {
    first: String,
    time: Option<String>,
    count: String,
    step: String,
}

pub(super) async fn page(
    view: View,
    Path((stream, key)): Path<(String, String)>,
) -> Result<Response, PageFailure> {
    show(view, &stream, &key).await
}

/// A key that was asked for by name.
pub(super) async fn asked_for(
    view: View,
    Path(stream): Path<String>,
) -> Result<Response, PageFailure> {
    let key = view.query("key").unwrap_or_default().to_owned();
    show(view, &stream, &key).await
}

async fn show(view: View, stream: &str, key: &str) -> Result<Response, PageFailure> {
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
    let stored = view.app().large().answer(bytes, redact).await;
    let stored = stored.map_err(|_| {
        let cause = "as many large answers are being written as may be";
        view.store_failed(StoreError::unavailable("showing a key", cause))
    })?;
    let rules = config
        .streams
        .get(&name)
        .map(|entry| entry.settings.rules.clone());
    view.show(&made(&view, &name, &stored, rules.as_ref()))
}

fn made(view: &View, name: &StreamName, stored: &StoredKey, rules: Option<&Rules>) -> Page {
    let now = view.now();
    let read = Standing::from_bytes(&stored.standing).ok();
    let (state, tone) = state(read.as_ref(), stored.count, false);
    let standing = read.unwrap_or_default();
    let until = rules.and_then(|rules| gives_up(rules, stored, &standing));
    let seen = |micros: i64| When::new(Time::from_micros(micros), now);
    let wait = standing.wait.map(|wait| WaitShown {
        is_over: now.since(Time::from_micros(wait.due)) > OVER_AFTER,
        attempt: wait.attempt,
        of: rules.map(|rules| rules.steps.len()),
        ends: seen(wait.due),
        gives_up: When::maybe(until, now),
    });
    let failing = standing.failing.as_ref().map(|failing| FailingShown {
        position: failing.position.to_string(),
        failures: failing.failures,
        next: seen(failing.due),
        error: view.app().config().redaction.text(&failing.error),
    });
    let marks = marks(stored, &standing, now);
    let line = TimeLine {
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
    Page {
        frame: view
            .frame(Section::Streams, text::name(stored.key.as_str()))
            .live(),
        stream: name.to_string(),
        stream_link: link(view, name),
        key: text::name(stored.key.as_str()),
        actions: Some(key_link(view, name, &stored.key)).filter(|link| !link.contains('?')),
        state,
        tone,
        is_disabled: standing.disabled,
        facts: facts(stored, &standing),
        wait,
        failing,
        halted: standing.halted.map(|position| position.to_string()),
        line: (!stored.records.is_empty()).then(|| line.figure()),
        why: why(stored),
        held: held(stored, &standing, until, now),
        more: stored.more(),
        count: text::count(stored.count),
        missed: standing.missed.runs().map(missed).collect(),
        late: standing.late.iter().rev().map(late).collect(),
        off_step: standing.off_step.iter().rev().map(off_step).collect(),
    }
}

/// The record that is held first, and why it waits, as the command line and the API say it.
fn why(stored: &StoredKey) -> Option<(String, String)> {
    let first = stored.records.first()?;
    Some((
        first.position.to_string(),
        why_record(stored, first.position).ok()?.to_string(),
    ))
}

fn facts(stored: &StoredKey, standing: &Standing) -> Vec<(&'static str, String)> {
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
    facts.extend(standing.step.map(|step| ("Step", step.to_string())));
    facts.extend(stored.highest.map(|at| ("Highest held", position(at))));
    facts.extend(standing.drain_to.map(|at| ("Gives up to", position(at))));
    facts
}

fn missed((first, step, count): (i64, i64, u64)) -> Missed {
    Missed {
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

fn held(stored: &StoredKey, standing: &Standing, until: Option<Time>, now: Time) -> Vec<Held> {
    let held = joints(stored, standing).map(|(record, joint)| Held {
        gap: joint.to_string(),
        position: record.position.to_string(),
        time: as_time(record.position),
        since: When::new(record.at, now),
        until: When::maybe(until, now),
        tenant: record.tenant.as_deref().unwrap_or_default().to_owned(),
        payload: cut(
            &one_line(&String::from_utf8_lossy(record.payload.as_bytes())),
            PAYLOAD_CHARS,
        ),
    });
    held.collect()
}

/// The last positions that were passed, the watermark, and what is held with the gaps between.
fn marks(stored: &StoredKey, standing: &Standing, now: Time) -> Vec<Mark> {
    let mut marks = Vec::new();
    if let Some(watermark) = stored.watermark {
        let lost = standing.missed.runs().flat_map(|(first, step, count)| {
            let shown = count.min(BEHIND_SHOWN as u64);
            (count - shown..count)
                .map(move |nth| first.saturating_add(step.saturating_mul(nth.cast_signed())))
        });
        let mut lost: Vec<i64> = lost.filter(|position| *position < watermark).collect();
        lost.sort_unstable();
        let newest = lost.len().saturating_sub(BEHIND_SHOWN);
        marks.extend(lost[newest..].iter().map(|position| Mark::There {
            name: short(*position),
            tone: Tone::Bad,
            words: format!("{position} was declared missing"),
        }));
        marks.push(Mark::There {
            name: format!("≤ {}", short(watermark)),
            tone: Tone::Good,
            words: format!("everything up to {watermark} has been dealt with"),
        });
    }
    for (record, joint) in joints(stored, standing) {
        let missing = match joint {
            Joint::Close => None,
            Joint::OffGrid => Some(0),
            Joint::Missing(gap) | Joint::GivenUp(gap) | Joint::Bridged(gap) => Some(gap.count),
        };
        marks.extend(missing.map(|missing| Mark::Gap {
            missing,
            words: joint.to_string(),
        }));
        marks.push(Mark::There {
            name: short(record.position),
            tone: if standing.halted == Some(record.position) {
                Tone::Bad
            } else {
                Tone::Plain
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
