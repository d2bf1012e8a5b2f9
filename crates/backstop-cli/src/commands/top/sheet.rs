//! Rows of what is looked at: the same for a screen, a filter and a test.

use super::figures::{Figures, SILENT, oldest};
use super::state::{Deed, View};
use super::trail::{Flow, Trail};
use crate::commands::{breaker, queue, worker};
use crate::output::table::Tone;
use crate::output::words::{about, bytes, count, cut, kind, one_line, relative};
use backstop::breakers::GuardStatus;
use backstop::core::WorkerName;
use backstop::core::port::{QueueStatus, StreamStatus};
use backstop::core::stream::{Alarm, Count};
use backstop::dead::DeadGroup;
use backstop::workers::{Health, WorkerInfo};
use backstop::{QueueName, State, Time};
use backstop_server::wire::breaker::what;

/// Characters of an error that a row has.
const ERROR_CHARS: usize = 160;
/// Bars of a small sparkline.
const BARS: usize = 24;
/// Eight heights of a bar.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One row.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Row {
    /// What it is, whatever its place.
    pub(super) id: String,
    /// What it says.
    pub(super) cells: Vec<(String, Tone)>,
    /// The queue it is about, if it is about one.
    pub(super) queue: Option<QueueName>,
    /// What `R` does to it, if anything.
    pub(super) again: Option<Deed>,
    /// The worker it is about, and how that is, if it is about one.
    pub(super) worker: Option<(WorkerName, Health)>,
}

impl Row {
    fn new(id: &impl ToString, cells: impl IntoIterator<Item = (String, Tone)>) -> Self {
        let cells = cells
            .into_iter()
            .map(|(text, tone)| (one_line(&text), tone))
            .collect();
        Self {
            id: id.to_string(),
            cells,
            queue: None,
            again: None,
            worker: None,
        }
    }

    /// Whether one of its cells has this text, whose letters are small.
    pub(super) fn has(&self, wanted: &str) -> bool {
        wanted.is_empty()
            || self
                .cells
                .iter()
                .any(|(text, _)| text.to_lowercase().contains(wanted))
    }
}

/// Rows under titles, and what to say if there are none.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sheet {
    /// The titles; those of numbers begin with `#`, which is not shown.
    pub(super) titles: &'static [&'static str],
    /// The rows.
    pub(super) rows: Vec<Row>,
    /// What is to be done so that there are some.
    pub(super) empty: &'static str,
}

/// The rows of a view.
pub(super) fn of(view: View, figures: Option<&Figures>, trail: &Trail) -> Sheet {
    let (titles, empty) = words(view);
    let Some(figures) = figures else {
        return Sheet {
            titles,
            rows: Vec::new(),
            empty: "reading the store …",
        };
    };
    let now = figures.at;
    let rows = match view {
        View::Queues => figures
            .queues
            .iter()
            .map(|queue| of_queue(queue, &figures.guards, now, trail))
            .collect(),
        View::Rates => figures
            .queues
            .iter()
            .map(|queue| of_rates(queue, trail))
            .collect(),
        View::Workers => figures
            .workers
            .iter()
            .map(|worker| of_worker(worker, now))
            .collect(),
        View::Dead => figures
            .groups
            .iter()
            .map(|group| of_group(group, now))
            .collect(),
        View::Streams => figures
            .streams
            .iter()
            .map(|stream| of_stream(stream, figures.alarms.of(&stream.name), now))
            .collect(),
        View::Breakers => figures
            .guards
            .iter()
            .map(|guard| of_guard(guard, now))
            .collect(),
    };
    Sheet {
        titles,
        rows,
        empty,
    }
}

const fn words(view: View) -> (&'static [&'static str], &'static str) {
    match view {
        View::Queues => (
            &[
                "QUEUE",
                "RUNS",
                "ROOM",
                "#READY",
                "#RUNNING",
                "#RETRYING",
                "#SCHEDULED",
                "#DEAD",
                "#OLDEST",
                "#DONE/S",
            ],
            "no queues yet; try: backstop push emails '{\"to\":\"ada@example.org\"}'",
        ),
        View::Rates => (
            &[
                "QUEUE",
                "#PUSHED/S",
                "#DONE/S",
                "#DEAD/S",
                "DONE, OVER TIME",
            ],
            "no queues yet; try: backstop push emails '{\"to\":\"ada@example.org\"}'",
        ),
        View::Workers => (
            &[
                "WORKER",
                "STATE",
                "#RUNNING",
                "#MEMORY",
                "#UP",
                "#LAST BEAT",
                "QUEUES",
            ],
            "nobody works; try: backstop work emails --exec ./send-mail",
        ),
        View::Dead => (
            &["QUEUE", "#COUNT", "#FIRST", "#LAST", "KIND", "ERROR"],
            "no dead letters: nothing was given up",
        ),
        View::Streams => (
            &[
                "STREAM",
                "#KEYS",
                "#HELD",
                "#OLDEST",
                "#HANDLED",
                "#MISSES",
                "#LATE",
                "#TIMEOUTS",
                "#OVERFLOWS",
                "#DEAD",
            ],
            "no streams yet; try: backstop stream serve uptime --exec ./handle",
        ),
        View::Breakers => (
            &[
                "NAME",
                "WHAT",
                "STATE",
                "#FAILURES",
                "NEXT PROBE",
                "LAST CHANGE",
            ],
            "no breakers yet; a queue has one if the configuration says so: breaker = {}",
        ),
    }
}

fn plain(text: &impl ToString) -> (String, Tone) {
    (text.to_string(), Tone::Plain)
}

/// A number that should be none.
fn bad(number: u64) -> (String, Tone) {
    (
        count(number),
        if number > 0 { Tone::Bad } else { Tone::Plain },
    )
}

fn of_queue(queue: &QueueStatus, guards: &[GuardStatus], now: Time, trail: &Trail) -> Row {
    let number = |state| plain(&count(queue.counts.of(state)));
    let cells = [
        plain(&queue.name),
        queue::runs(queue, guards),
        queue::room(queue),
        number(State::Ready),
        number(State::Running),
        number(State::Retrying),
        number(State::Scheduled),
        bad(queue.counts.of(State::Dead)),
        plain(&oldest(queue, now).map(about).unwrap_or_default()),
        plain(&pace(trail.rate(Some(&queue.name), Flow::Done))),
    ];
    Row {
        queue: Some(queue.name.clone()),
        ..Row::new(&queue.name, cells)
    }
}

fn of_rates(queue: &QueueStatus, trail: &Trail) -> Row {
    let rate = |flow| pace(trail.rate(Some(&queue.name), flow));
    let dead = trail.rate(Some(&queue.name), Flow::Dead);
    let cells = [
        plain(&queue.name),
        plain(&rate(Flow::Pushed)),
        plain(&rate(Flow::Done)),
        (
            pace(dead),
            if dead.is_some_and(|rate| rate > 0.0) {
                Tone::Bad
            } else {
                Tone::Plain
            },
        ),
        (bars(&trail.line(Some(&queue.name), Flow::Done)), Tone::Good),
    ];
    Row {
        queue: Some(queue.name.clone()),
        ..Row::new(&queue.name, cells)
    }
}

fn of_worker(info: &WorkerInfo, now: Time) -> Row {
    let (status, about_it, health) = (&info.status, &info.about, info.health(now));
    let silent = now.since(status.seen_at);
    let queues: Vec<&str> = status.queues.iter().map(QueueName::as_str).collect();
    let beat = (
        about(silent),
        if silent > SILENT {
            Tone::Bad
        } else {
            Tone::Plain
        },
    );
    let cells = [
        plain(&status.name),
        (health.as_str().to_owned(), worker::toned(health)),
        plain(&count(status.running)),
        plain(&about_it.memory.map(bytes).unwrap_or_default()),
        plain(
            &about_it
                .since
                .map(|since| about(now.since(since)))
                .unwrap_or_default(),
        ),
        beat,
        plain(&queues.join(", ")),
    ];
    Row {
        worker: Some((status.name.clone(), health)),
        ..Row::new(&status.name, cells)
    }
}

fn of_group(group: &DeadGroup, now: Time) -> Row {
    let again = Deed::Requeue {
        queue: group.queue.clone(),
        fingerprint: group.fingerprint,
        count: group.count,
    };
    let of_kind = group.sample.kind.as_ref().map(kind).unwrap_or_default();
    let cells = [
        plain(&group.queue),
        bad(group.count),
        plain(&relative(group.first_at, now)),
        plain(&relative(group.last_at, now)),
        plain(&of_kind),
        plain(&cut(&group.sample.error, ERROR_CHARS)),
    ];
    let id = format!("{}/{}", group.queue, group.fingerprint);
    Row {
        queue: Some(group.queue.clone()),
        again: Some(again),
        ..Row::new(&id, cells)
    }
}

fn of_stream(stream: &StreamStatus, ringing: &[Alarm], now: Time) -> Row {
    let number = |which: Count| plain(&count(stream.counts[which]));
    let watched = |which: Count, alarm: Alarm| {
        let tone = if ringing.contains(&alarm) {
            Tone::Bad
        } else {
            Tone::Plain
        };
        (count(stream.counts[which]), tone)
    };
    let held = (
        count(stream.records),
        if stream.records > 0 {
            Tone::Warning
        } else {
            Tone::Plain
        },
    );
    let cells = [
        plain(&stream.name),
        plain(&count(stream.keys)),
        held,
        plain(
            &stream
                .oldest
                .map(|at| about(now.since(at)))
                .unwrap_or_default(),
        ),
        number(Count::Handled),
        number(Count::Misses),
        number(Count::Late),
        watched(Count::Timeout, Alarm::TimeoutRate),
        watched(Count::CircuitBreaker, Alarm::OverflowRate),
        bad(stream.counts[Count::Dead]),
    ];
    Row::new(&stream.name, cells)
}

fn of_guard(guard: &GuardStatus, now: Time) -> Row {
    let last = guard.status.events.last();
    let cells = [
        plain(&guard.name),
        plain(&what(&guard.name)),
        breaker::standing(guard),
        plain(&count(u64::from(guard.status.failure_count))),
        plain(
            &guard
                .status
                .next_probe_at
                .map(|at| relative(at, now))
                .unwrap_or_default(),
        ),
        plain(
            &last
                .map(|event| format!("{}, {}", event.why, relative(event.at, now)))
                .unwrap_or_default(),
        ),
    ];
    let again = guard.is_shut().then(|| Deed::Reset(guard.name.clone()));
    Row {
        queue: Some(guard.name.queue().clone()),
        again,
        ..Row::new(&guard.name, cells)
    }
}

/// A rate as people read it.
pub(super) fn pace(rate: Option<f64>) -> String {
    match rate {
        None => "–".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(rate) if rate < 10.0 => format!("{rate:.1}"),
        #[expect(clippy::cast_sign_loss, reason = "a rate is not below nothing")]
        Some(rate) => count(rate.round() as u64),
    }
}

/// A line of bars, the newest last, each as high as its share of the highest.
pub(super) fn bars(line: &[u64]) -> String {
    let line = &line[line.len().saturating_sub(BARS)..];
    let highest = line.iter().copied().max().unwrap_or_default();
    let bar = |number: &u64| match highest {
        0 => HEIGHTS[0],
        _ => {
            HEIGHTS[usize::try_from(number.saturating_mul(7).div_ceil(highest))
                .unwrap_or(7)
                .min(7)]
        }
    };
    line.iter().map(bar).collect()
}
