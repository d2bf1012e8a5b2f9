//! Rows of what is looked at: the same for a screen, a filter and a test.

use super::figures::{SILENT, TopFigures, oldest};
use super::rates::{RateHistory, TopFlow};
use super::state::{TopAction, TopView};
use crate::commands::{breaker, queue, worker};
use crate::output::table::CellTone;
use crate::output::words::{about, bytes, count, cut, kind, one_line, relative};
use backstop::breakers::BreakerInfo;
use backstop::core::WorkerName;
use backstop::core::port::{QueueStatus, StreamStatus};
use backstop::core::stream::{StreamAlarm, StreamCounter};
use backstop::dead::DeadGroup;
use backstop::workers::{WorkerHealth, WorkerInfo};
use backstop::{JobState, QueueName, Time};
use backstop_server::wire::breaker::breaker_or_gate;

/// Characters of an error that a row has.
const ERROR_CHARS: usize = 160;
/// Bars of a small sparkline.
const BARS: usize = 24;
/// Eight heights of a bar.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[derive(Clone, PartialEq, Debug)]
pub(super) struct TopRow {
    /// What it is, whatever its place.
    pub(super) id: String,
    pub(super) cells: Vec<(String, CellTone)>,
    /// The queue it is about, if it is about one.
    pub(super) queue: Option<QueueName>,
    /// What `R` does to it, if anything.
    pub(super) retry_action: Option<TopAction>,
    /// The worker it is about, and how that is, if it is about one.
    pub(super) worker: Option<(WorkerName, WorkerHealth)>,
}

impl TopRow {
    fn new(id: &impl ToString, cells: impl IntoIterator<Item = (String, CellTone)>) -> Self {
        let cells = cells
            .into_iter()
            .map(|(text, tone)| (one_line(&text), tone))
            .collect();
        Self {
            id: id.to_string(),
            cells,
            queue: None,
            retry_action: None,
            worker: None,
        }
    }

    /// Whether one of its cells has this text, whose letters are small.
    pub(super) fn matches(&self, wanted: &str) -> bool {
        wanted.is_empty()
            || self
                .cells
                .iter()
                .any(|(text, _)| text.to_lowercase().contains(wanted))
    }
}

/// Rows under titles, and what to say if there are none.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct TopTable {
    /// The titles; those of numbers begin with `#`, which is not shown.
    pub(super) titles: &'static [&'static str],
    pub(super) rows: Vec<TopRow>,
    /// What is to be done so that there are some.
    pub(super) empty: &'static str,
}

/// The rows of a view.
pub(super) fn build_table(
    view: TopView,
    figures: Option<&TopFigures>,
    history: &RateHistory,
) -> TopTable {
    let (titles, empty) = headings(view);
    let Some(figures) = figures else {
        return TopTable {
            titles,
            rows: Vec::new(),
            empty: "reading the store …",
        };
    };
    let now = figures.at;
    let rows = match view {
        TopView::Queues => figures
            .queues
            .iter()
            .map(|queue| queue_row(queue, &figures.guards, now, history))
            .collect(),
        TopView::Rates => figures
            .queues
            .iter()
            .map(|queue| rates_row(queue, history))
            .collect(),
        TopView::Workers => figures
            .workers
            .iter()
            .map(|worker| worker_row(worker, now))
            .collect(),
        TopView::Dead => figures
            .groups
            .iter()
            .map(|group| dead_group_row(group, now))
            .collect(),
        TopView::Streams => figures
            .streams
            .iter()
            .map(|stream| stream_row(stream, figures.alarms.of(&stream.name), now))
            .collect(),
        TopView::Breakers => figures
            .guards
            .iter()
            .map(|guard| breaker_row(guard, now))
            .collect(),
    };
    TopTable {
        titles,
        rows,
        empty,
    }
}

const fn headings(view: TopView) -> (&'static [&'static str], &'static str) {
    match view {
        TopView::Queues => (
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
        TopView::Rates => (
            &[
                "QUEUE",
                "#PUSHED/S",
                "#DONE/S",
                "#DEAD/S",
                "DONE, OVER TIME",
            ],
            "no queues yet; try: backstop push emails '{\"to\":\"ada@example.org\"}'",
        ),
        TopView::Workers => (
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
        TopView::Dead => (
            &["QUEUE", "#COUNT", "#FIRST", "#LAST", "KIND", "ERROR"],
            "no dead letters: nothing was given up",
        ),
        TopView::Streams => (
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
        TopView::Breakers => (
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

fn plain(text: &impl ToString) -> (String, CellTone) {
    (text.to_string(), CellTone::Plain)
}

/// A number that should be none.
fn bad(number: u64) -> (String, CellTone) {
    (
        count(number),
        if number > 0 {
            CellTone::Bad
        } else {
            CellTone::Plain
        },
    )
}

fn queue_row(
    queue: &QueueStatus,
    guards: &[BreakerInfo],
    now: Time,
    history: &RateHistory,
) -> TopRow {
    let number = |state| plain(&count(queue.counts.of(state)));
    let cells = [
        plain(&queue.name),
        queue::runs_cell(queue, guards),
        queue::room_cell(queue),
        number(JobState::Ready),
        number(JobState::Running),
        number(JobState::Retrying),
        number(JobState::Scheduled),
        bad(queue.counts.of(JobState::Dead)),
        plain(&oldest(queue, now).map(about).unwrap_or_default()),
        plain(&format_rate(history.rate(Some(&queue.name), TopFlow::Done))),
    ];
    TopRow {
        queue: Some(queue.name.clone()),
        ..TopRow::new(&queue.name, cells)
    }
}

fn rates_row(queue: &QueueStatus, history: &RateHistory) -> TopRow {
    let rate = |flow| format_rate(history.rate(Some(&queue.name), flow));
    let dead = history.rate(Some(&queue.name), TopFlow::Dead);
    let cells = [
        plain(&queue.name),
        plain(&rate(TopFlow::Pushed)),
        plain(&rate(TopFlow::Done)),
        (
            format_rate(dead),
            if dead.is_some_and(|rate| rate > 0.0) {
                CellTone::Bad
            } else {
                CellTone::Plain
            },
        ),
        (
            sparkline(&history.line(Some(&queue.name), TopFlow::Done)),
            CellTone::Good,
        ),
    ];
    TopRow {
        queue: Some(queue.name.clone()),
        ..TopRow::new(&queue.name, cells)
    }
}

fn worker_row(info: &WorkerInfo, now: Time) -> TopRow {
    let (status, about_it, health) = (&info.status, &info.about, info.health(now));
    let silent = now.since(status.seen_at);
    let queues: Vec<&str> = status.queues.iter().map(QueueName::as_str).collect();
    let beat = (
        about(silent),
        if silent > SILENT {
            CellTone::Bad
        } else {
            CellTone::Plain
        },
    );
    let cells = [
        plain(&status.name),
        (health.as_str().to_owned(), worker::health_tone(health)),
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
    TopRow {
        worker: Some((status.name.clone(), health)),
        ..TopRow::new(&status.name, cells)
    }
}

fn dead_group_row(group: &DeadGroup, now: Time) -> TopRow {
    let retry_action = TopAction::Requeue {
        queue: group.queue.clone(),
        fingerprint: group.fingerprint,
        count: group.count,
    };
    let kind_text = group.sample.kind.as_ref().map(kind).unwrap_or_default();
    let cells = [
        plain(&group.queue),
        bad(group.count),
        plain(&relative(group.first_at, now)),
        plain(&relative(group.last_at, now)),
        plain(&kind_text),
        plain(&cut(&group.sample.error, ERROR_CHARS)),
    ];
    let id = format!("{}/{}", group.queue, group.fingerprint);
    TopRow {
        queue: Some(group.queue.clone()),
        retry_action: Some(retry_action),
        ..TopRow::new(&id, cells)
    }
}

fn stream_row(stream: &StreamStatus, ringing: &[StreamAlarm], now: Time) -> TopRow {
    let number = |which: StreamCounter| plain(&count(stream.counts[which]));
    let watched = |which: StreamCounter, alarm: StreamAlarm| {
        let tone = if ringing.contains(&alarm) {
            CellTone::Bad
        } else {
            CellTone::Plain
        };
        (count(stream.counts[which]), tone)
    };
    let held = (
        count(stream.records),
        if stream.records > 0 {
            CellTone::Warning
        } else {
            CellTone::Plain
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
        number(StreamCounter::Handled),
        number(StreamCounter::Misses),
        number(StreamCounter::Late),
        watched(StreamCounter::Timeout, StreamAlarm::TimeoutRate),
        watched(StreamCounter::CircuitBreaker, StreamAlarm::OverflowRate),
        bad(stream.counts[StreamCounter::Dead]),
    ];
    TopRow::new(&stream.name, cells)
}

fn breaker_row(guard: &BreakerInfo, now: Time) -> TopRow {
    let last = guard.status.events.last();
    let cells = [
        plain(&guard.name),
        plain(&breaker_or_gate(&guard.name)),
        breaker::state_cell(guard),
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
    let retry_action = guard
        .is_shut()
        .then(|| TopAction::Reset(guard.name.clone()));
    TopRow {
        queue: Some(guard.name.queue().clone()),
        retry_action,
        ..TopRow::new(&guard.name, cells)
    }
}

/// A rate as people read it.
pub(super) fn format_rate(rate: Option<f64>) -> String {
    match rate {
        None => "–".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(rate) if rate < 10.0 => format!("{rate:.1}"),
        #[expect(clippy::cast_sign_loss, reason = "a rate is not below nothing")]
        Some(rate) => count(rate.round() as u64),
    }
}

/// A line of bars, the newest last, each as high as its share of the highest.
pub(super) fn sparkline(line: &[u64]) -> String {
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
