//! The overview: problems first, then how it goes.

mod gather;
mod problems;
mod seldom;

use super::chart::{Line, LineChart, Markup, Tone, Unit};
use super::link::Link;
use super::mark::When;
use super::queues::{Facts as RowFacts, Row};
use super::{Frame, PageFailure, Section, View, text};
use crate::App;
use crate::history::{Durations, PERCENTS, QueueFigures, QueueSeries, Series, Subject, Window};
use askama::Template;
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use axum::{Extension, Router};
use backstop::spreads;
use backstop_core::port::QueueStatus;
use backstop_core::{Span, State};
use gather::Facts;
use problems::{Problem, problems};
use seldom::Seldom;

/// A ready job that waited longer than this is late.
pub(super) const LATE: Span = Span::minutes(5);
/// Problems shown; those that come last are the least pressing.
const PROBLEMS_MAX: usize = 30;
/// Queues shown: those with the most to do.
const QUEUES_MAX: usize = 10;
/// Minutes of which something is known before an hour is shown by itself.
const HOUR_MIN: usize = 10;
/// What the doctor said needs no word about its age for so long.
const DOCTOR_FRESH: Span = Span::minutes(2);

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/", get(page))
        .layer(Extension(Seldom::default()))
}

/// The overview by itself, for an address of its own.
pub(super) fn front() -> MethodRouter<App> {
    get(page).layer(Extension(Seldom::default()))
}

#[derive(Template)]
#[template(path = "overview.html")]
struct Page {
    frame: Frame,
    problems: Vec<Problem>,
    more_problems: usize,
    doctor: DoctorNote,
    figures: Vec<Figure>,
    windows: Vec<(&'static str, String, bool)>,
    charts: Vec<Markup>,
    rows: Vec<Row>,
    search: String,
    queues: usize,
    is_empty: bool,
}

/// What is to be said about the doctor beside what it found.
enum DoctorNote {
    /// Nothing: it looked just now, or could not, which is among the problems.
    Nothing,
    /// It has not looked yet.
    Looking,
    /// It looked a while ago.
    Old { at: When, is_looking: bool },
}

impl DoctorNote {
    fn of(facts: &Facts) -> Self {
        let opinion = &facts.opinion;
        match &opinion.found {
            None if opinion.failed.is_none() => Self::Looking,
            Some(found) if facts.now.since(found.at) > DOCTOR_FRESH => Self::Old {
                at: When::new(found.at, facts.now),
                is_looking: opinion.is_looking,
            },
            _ => Self::Nothing,
        }
    }
}

/// A number with its name.
struct Figure {
    name: &'static str,
    dot: &'static str,
    value: String,
    is_zero: bool,
    link: String,
    beside: String,
}

async fn page(view: View, Extension(seldom): Extension<Seldom>) -> Result<Response, PageFailure> {
    let window: Window = match view.query("window") {
        Some(window) => window.parse().map_err(|error| view.bad(error))?,
        None => Window::default(),
    };
    let facts = view.ask(Facts::gather(&view, &seldom)).await?;
    let history = view.app().history();
    let of_window = |window| history.queue(view.app().backstop(), &Subject::Total, window);
    let recent = view.ask(of_window(Window::FiveMinutes)).await?;
    let mut series = view.ask(of_window(window)).await?;
    // A server that has just begun has minutes to show, not hours.
    let is_too_long = view.query("window").is_none() && series.ready.known() < HOUR_MIN;
    let window = if is_too_long {
        Window::FiveMinutes
    } else {
        window
    };
    if is_too_long {
        series = recent.clone();
    }
    let durations = view
        .ask(Durations::read(
            view.app().backstop(),
            &spreads::Subject::Total,
            window,
        ))
        .await?;
    let mut found = problems(&facts, view.app().base());
    let more_problems = found.len().saturating_sub(PROBLEMS_MAX);
    found.truncate(PROBLEMS_MAX);
    let page = Page {
        frame: view.frame(Section::Overview, "Overview").live(),
        problems: found,
        more_problems,
        doctor: DoctorNote::of(&facts),
        figures: figures(&view, &facts, &recent),
        windows: windows(&view.at("/"), window),
        charts: charts(
            &series.ending_with(QueueFigures::of_all(&facts.queues, facts.now), facts.now),
            &durations,
        ),
        rows: busiest(&view, &facts),
        search: String::new(),
        queues: facts.queues.len(),
        is_empty: facts.queues.is_empty() && facts.streams.is_empty(),
    };
    view.show(&page)
}

/// The windows there are, on the page at `path`.
pub(super) fn windows(path: &str, on: Window) -> Vec<(&'static str, String, bool)> {
    let link = |window: Window| Link::to(path).with("window", window).to_string();
    Window::ALL
        .into_iter()
        .map(|window| (window.words(), link(window), window == on))
        .collect()
}

fn figures(view: &View, facts: &Facts, series: &QueueSeries) -> Vec<Figure> {
    let count = |state| {
        facts
            .queues
            .iter()
            .map(|queue| queue.counts.of(state))
            .sum::<u64>()
    };
    let of_state = |state: State| {
        let path = if state == State::Dead {
            view.at("/dead")
        } else {
            view.at("/jobs")
        };
        let link = Link::to(path);
        let link = if state == State::Dead {
            link
        } else {
            link.with("state", state)
        };
        Figure {
            name: state.as_str(),
            dot: state.as_str(),
            value: text::count(count(state)),
            is_zero: count(state) == 0,
            link: link.to_string(),
            beside: String::new(),
        }
    };
    let states = [
        State::Ready,
        State::Running,
        State::Scheduled,
        State::Retrying,
        State::Dead,
    ];
    let mut figures: Vec<Figure> = states.into_iter().map(of_state).collect();
    let rate = |value: Option<f64>| {
        value.map_or_else(|| "–".to_owned(), |value| Unit::PerSecond.said(value))
    };
    figures.push(Figure {
        name: "done",
        dot: "done",
        value: rate(series.done.last()),
        is_zero: series.done.last().is_none_or(|rate| rate <= 0.0),
        link: Link::to(view.at("/jobs"))
            .with("state", State::Done)
            .to_string(),
        beside: series.enqueued.last().map_or_else(String::new, |rate| {
            format!("{} pushed", Unit::PerSecond.said(rate))
        }),
    });
    let live = facts.live_workers();
    figures.push(Figure {
        name: "workers",
        dot: "",
        value: text::count(live.0),
        is_zero: live.0 == 0,
        link: view.at("/workers"),
        beside: text::many(live.1, "job in hand", "jobs in hand"),
    });
    figures
}

/// How queues went.
pub(super) fn charts(series: &QueueSeries, durations: &Durations) -> Vec<Markup> {
    let line = |name, tone, series| Line { name, tone, series };
    let rates = LineChart {
        id: "rates",
        title: "Jobs a second",
        unit: Unit::PerSecond,
        lines: vec![
            line("done", Tone::Good, &series.done),
            line("taken in", Tone::Plain, &series.enqueued),
            line("died", Tone::Bad, &series.dead),
        ],
    };
    let depth = LineChart {
        id: "depth",
        title: "Jobs that wait",
        unit: Unit::Count,
        lines: vec![
            line("ready", Tone::Plain, &series.ready),
            line("retrying", Tone::Warn, &series.retrying),
            line("running", Tone::Good, &series.running),
        ],
    };
    let wait = LineChart {
        id: "wait",
        title: "Wait of the oldest ready job",
        unit: Unit::Seconds,
        lines: vec![line("oldest ready", Tone::Warn, &series.oldest_ready)],
    };
    let letters = LineChart {
        id: "letters",
        title: "Dead letters",
        unit: Unit::Count,
        lines: vec![line("dead letters", Tone::Bad, &series.letters)],
    };
    let took = took("took", "How long runs took", &durations.run);
    let delay = self::took("delay", "How late runs started", &durations.wait);
    [rates, depth, took, delay, wait, letters]
        .iter()
        .map(LineChart::figure)
        .collect()
}

/// How long something took: half of all, most, and nearly all took no longer.
fn took<'a>(id: &'a str, title: &'a str, series: &'a [Series; 3]) -> LineChart<'a> {
    const NAMES: [(&str, Tone); PERCENTS.len()] =
        [("p50", Tone::Good), ("p95", Tone::Warn), ("p99", Tone::Bad)];
    let lines = NAMES
        .into_iter()
        .zip(series)
        .map(|((name, tone), series)| Line { name, tone, series });
    LineChart {
        id,
        title,
        unit: Unit::Seconds,
        lines: lines.collect(),
    }
}

/// The queues with the most to do.
fn busiest(view: &View, facts: &Facts) -> Vec<Row> {
    let row_facts = RowFacts {
        base: view.app().base(),
        workers: &facts.taking,
        guards: &facts.guards,
        history: view.app().history(),
        now: facts.now,
    };
    let mut queues: Vec<&QueueStatus> = facts.queues.iter().collect();
    queues.sort_by_key(|queue| {
        std::cmp::Reverse((queue.counts.live(), queue.counts.of(State::Dead)))
    });
    queues
        .into_iter()
        .take(QUEUES_MAX)
        .map(|queue| Row::of(queue, &row_facts))
        .collect()
}
