//! Kinds: how often jobs of each ran lately, how often they failed, and how long it took.

use super::chart::{BarChart, ChartBar, ChartMarkup, ChartSegment, ChartTone, ChartUnit};
use super::link::{PageLink, part};
use super::overview::windows;
use super::{PageFailure, PageFrame, PageSection, PageView, text};
use crate::App;
use crate::history::{PERCENTS, TimeWindow, percentile_seconds, read_kinds};
use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use backstop::run_times::KINDS_MAX;
use backstop_core::histogram::{BUCKETS, Histogram, RunHistograms, lower, upper};
use backstop_core::{Kind, QueueName};

pub(super) fn routes() -> Router<App> {
    Router::new().route("/kinds", get(page))
}

#[derive(Template)]
#[template(path = "kinds.html")]
struct KindListPage {
    frame: PageFrame,
    windows: Vec<(&'static str, String, bool)>,
    rows: Vec<KindRow>,
    kinds_max: usize,
}

/// A kind in a queue.
struct KindRow {
    /// Its own, so that what is open stays open when the list changes.
    id: String,
    kind: String,
    jobs: String,
    queue: String,
    queue_link: String,
    runs: String,
    failed: String,
    has_failed: bool,
    share: String,
    /// How long runs took, and how long jobs waited: p50, p95, p99 of each.
    run: [String; 3],
    wait: [String; 3],
    spread: ChartMarkup,
}

async fn page(view: PageView) -> Result<Response, PageFailure> {
    let window: TimeWindow = view
        .query("window")
        .map_or(Ok(TimeWindow::default()), str::parse)
        .map_err(|error| view.bad(error))?;
    let found = view.ask(read_kinds(view.app().backstop(), window)).await?;
    let rows = found
        .iter()
        .enumerate()
        .map(|(at, (queue, kind, spread))| row(&view, at, queue, kind, spread));
    let page = KindListPage {
        frame: view.frame(PageSection::Kinds, "Kinds").live(),
        windows: windows(&view.at("/kinds"), window),
        rows: rows.collect(),
        kinds_max: KINDS_MAX,
    };
    view.show(&page)
}

fn row(
    view: &PageView,
    at: usize,
    queue: &QueueName,
    kind: &Kind,
    spread: &RunHistograms,
) -> KindRow {
    let percentiles = |histogram: &Histogram| {
        PERCENTS.map(|percent| {
            percentile_seconds(histogram, percent)
                .map_or_else(|| "–".to_owned(), |value| ChartUnit::Seconds.format(value))
        })
    };
    KindRow {
        id: format!("{queue}/{kind}"),
        kind: text::kind(kind),
        jobs: PageLink::to(view.at("/jobs"))
            .with("queue", queue)
            .with("kind", kind)
            .to_string(),
        queue: queue.to_string(),
        queue_link: view.at(&format!("/queues/{}", part(queue.as_str()))),
        runs: text::count(spread.runs()),
        failed: text::count(spread.failed),
        has_failed: spread.failed > 0,
        share: text::share(spread.failed, spread.runs()),
        run: percentiles(&spread.run),
        wait: percentiles(&spread.wait),
        spread: run_time_chart(at, &spread.run),
    }
}

/// How many runs took how long, from the shortest to the longest.
fn run_time_chart(at: usize, histogram: &Histogram) -> ChartMarkup {
    let counted: Vec<usize> = (0..BUCKETS)
        .filter(|bucket| histogram.buckets()[*bucket] > 0)
        .collect();
    let (first, last) = (
        counted.first().copied().unwrap_or(0),
        counted.last().copied().unwrap_or(0),
    );
    let bar = |bucket: usize| ChartBar {
        name: match upper(bucket) {
            Some(end) => format!("to {}", ChartUnit::Seconds.format(end.as_secs_f64())),
            None => format!(
                "over {}",
                ChartUnit::Seconds.format(lower(bucket).as_secs_f64())
            ),
        },
        shares: vec![ChartSegment {
            name: "runs",
            tone: ChartTone::Plain,
            count: histogram.buckets()[bucket],
        }],
    };
    let bars = BarChart {
        id: &format!("spread-{at}"),
        title: "How long runs took",
        of: "took",
        unit: ChartUnit::Count,
        bars: (first..=last).map(bar).collect(),
    };
    bars.figure()
}
