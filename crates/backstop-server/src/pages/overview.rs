//! The overview: problems first, then how it goes.

mod cached_query;
mod gather;
mod problems;

use super::chart::{ChartLine, ChartMarkup, ChartTone, ChartUnit, LineChart};
use super::components::RelativeTime;
use super::link::PageLink;
use super::queues::{QueueRow, QueueRowFacts as RowFacts};
use super::{PageFailure, PageFrame, PageSection, PageView, text};
use crate::App;
use crate::history::{
    DurationSeries, HistorySubject, PERCENTS, QueueSample, QueueSeries, TimeSeries, TimeWindow,
};
use askama::Template;
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use axum::{Extension, Router};
use backstop::run_times;
use backstop_core::port::QueueStatus;
use backstop_core::{JobState, Span};
use cached_query::OverviewCache;
use gather::OverviewFacts;
use problems::{OverviewProblem, problems};

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
        .layer(Extension(OverviewCache::default()))
}

/// The overview by itself, for an address of its own.
pub(super) fn front() -> MethodRouter<App> {
    get(page).layer(Extension(OverviewCache::default()))
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: PageFrame,
    problems: Vec<OverviewProblem>,
    more_problems: usize,
    doctor: DoctorNote,
    figures: Vec<OverviewFigure>,
    windows: Vec<(&'static str, String, bool)>,
    charts: Vec<ChartMarkup>,
    rows: Vec<QueueRow>,
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
    Old { at: RelativeTime, is_looking: bool },
}

impl DoctorNote {
    fn of(facts: &OverviewFacts) -> Self {
        let opinion = &facts.opinion;
        match &opinion.found {
            None if opinion.failed.is_none() => Self::Looking,
            Some(found) if facts.now.since(found.at) > DOCTOR_FRESH => Self::Old {
                at: RelativeTime::new(found.at, facts.now),
                is_looking: opinion.is_looking,
            },
            _ => Self::Nothing,
        }
    }
}

/// A number with its name.
struct OverviewFigure {
    name: &'static str,
    dot: &'static str,
    value: String,
    is_zero: bool,
    link: String,
    detail: String,
}

async fn page(
    view: PageView,
    Extension(cache): Extension<OverviewCache>,
) -> Result<Response, PageFailure> {
    let window: TimeWindow = match view.query("window") {
        Some(window) => window.parse().map_err(|error| view.bad(error))?,
        None => TimeWindow::default(),
    };
    let facts = view.ask(OverviewFacts::gather(&view, &cache)).await?;
    let history = view.app().history();
    let of_window = |window| history.queue(view.app().backstop(), &HistorySubject::Total, window);
    let recent = view.ask(of_window(TimeWindow::FiveMinutes)).await?;
    let mut series = view.ask(of_window(window)).await?;
    // A server that has just begun has minutes to show, not hours.
    let is_too_long = view.query("window").is_none() && series.ready.known_steps() < HOUR_MIN;
    let window = if is_too_long {
        TimeWindow::FiveMinutes
    } else {
        window
    };
    if is_too_long {
        series = recent.clone();
    }
    let durations = view
        .ask(DurationSeries::read(
            view.app().backstop(),
            &run_times::RunTimeSubject::Total,
            window,
        ))
        .await?;
    let mut found = problems(&facts, view.app().base());
    let more_problems = found.len().saturating_sub(PROBLEMS_MAX);
    found.truncate(PROBLEMS_MAX);
    let page = OverviewPage {
        frame: view.frame(PageSection::Overview, "Overview").live(),
        problems: found,
        more_problems,
        doctor: DoctorNote::of(&facts),
        figures: figures(&view, &facts, &recent),
        windows: windows(&view.at("/"), window),
        charts: charts(
            &series.ending_with(QueueSample::of_all(&facts.queues, facts.now), facts.now),
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
pub(super) fn windows(path: &str, on: TimeWindow) -> Vec<(&'static str, String, bool)> {
    let link = |window: TimeWindow| PageLink::to(path).with("window", window).to_string();
    TimeWindow::ALL
        .into_iter()
        .map(|window| (window.words(), link(window), window == on))
        .collect()
}

fn figures(view: &PageView, facts: &OverviewFacts, series: &QueueSeries) -> Vec<OverviewFigure> {
    let count = |state| {
        facts
            .queues
            .iter()
            .map(|queue| queue.counts.of(state))
            .sum::<u64>()
    };
    let of_state = |state: JobState| {
        let path = if state == JobState::Dead {
            view.at("/dead")
        } else {
            view.at("/jobs")
        };
        let link = PageLink::to(path);
        let link = if state == JobState::Dead {
            link
        } else {
            link.with("state", state)
        };
        OverviewFigure {
            name: state.as_str(),
            dot: state.as_str(),
            value: text::count(count(state)),
            is_zero: count(state) == 0,
            link: link.to_string(),
            detail: String::new(),
        }
    };
    let states = [
        JobState::Ready,
        JobState::Running,
        JobState::Scheduled,
        JobState::Retrying,
        JobState::Dead,
    ];
    let mut figures: Vec<OverviewFigure> = states.into_iter().map(of_state).collect();
    let rate = |value: Option<f64>| {
        value.map_or_else(
            || "–".to_owned(),
            |value| ChartUnit::PerSecond.format(value),
        )
    };
    figures.push(OverviewFigure {
        name: "done",
        dot: "done",
        value: rate(series.done.last()),
        is_zero: series.done.last().is_none_or(|rate| rate <= 0.0),
        link: PageLink::to(view.at("/jobs"))
            .with("state", JobState::Done)
            .to_string(),
        detail: series.enqueued.last().map_or_else(String::new, |rate| {
            format!("{} pushed", ChartUnit::PerSecond.format(rate))
        }),
    });
    let live = facts.live_workers();
    figures.push(OverviewFigure {
        name: "workers",
        dot: "",
        value: text::count(live.0),
        is_zero: live.0 == 0,
        link: view.at("/workers"),
        detail: text::many(live.1, "job in hand", "jobs in hand"),
    });
    figures
}

pub(super) fn charts(series: &QueueSeries, durations: &DurationSeries) -> Vec<ChartMarkup> {
    let line = |name, tone, series| ChartLine { name, tone, series };
    let rates = LineChart {
        id: "rates",
        title: "Jobs a second",
        unit: ChartUnit::PerSecond,
        lines: vec![
            line("done", ChartTone::Good, &series.done),
            line("taken in", ChartTone::Plain, &series.enqueued),
            line("died", ChartTone::Bad, &series.dead),
        ],
    };
    let depth = LineChart {
        id: "depth",
        title: "Jobs that wait",
        unit: ChartUnit::Count,
        lines: vec![
            line("ready", ChartTone::Plain, &series.ready),
            line("retrying", ChartTone::Warn, &series.retrying),
            line("running", ChartTone::Good, &series.running),
        ],
    };
    let wait = LineChart {
        id: "wait",
        title: "Wait of the oldest ready job",
        unit: ChartUnit::Seconds,
        lines: vec![line("oldest ready", ChartTone::Warn, &series.oldest_ready)],
    };
    let letters = LineChart {
        id: "letters",
        title: "Dead letters",
        unit: ChartUnit::Count,
        lines: vec![line("dead letters", ChartTone::Bad, &series.letters)],
    };
    let took = duration_chart("took", "How long runs took", &durations.run);
    let delay = self::duration_chart("delay", "How late runs started", &durations.wait);
    [rates, depth, took, delay, wait, letters]
        .iter()
        .map(LineChart::figure)
        .collect()
}

/// How long something took: half of all, most, and nearly all took no longer.
fn duration_chart<'a>(id: &'a str, title: &'a str, series: &'a [TimeSeries; 3]) -> LineChart<'a> {
    const NAMES: [(&str, ChartTone); PERCENTS.len()] = [
        ("p50", ChartTone::Good),
        ("p95", ChartTone::Warn),
        ("p99", ChartTone::Bad),
    ];
    let lines = NAMES
        .into_iter()
        .zip(series)
        .map(|((name, tone), series)| ChartLine { name, tone, series });
    LineChart {
        id,
        title,
        unit: ChartUnit::Seconds,
        lines: lines.collect(),
    }
}

/// The queues with the most to do.
fn busiest(view: &PageView, facts: &OverviewFacts) -> Vec<QueueRow> {
    let row_facts = RowFacts {
        base: view.app().base(),
        workers: &facts.taking,
        guards: &facts.guards,
        history: view.app().history(),
        now: facts.now,
    };
    let mut queues: Vec<&QueueStatus> = facts.queues.iter().collect();
    queues.sort_by_key(|queue| {
        std::cmp::Reverse((queue.counts.live(), queue.counts.of(JobState::Dead)))
    });
    queues
        .into_iter()
        .take(QUEUES_MAX)
        .map(|queue| QueueRow::of(queue, &row_facts))
        .collect()
}
