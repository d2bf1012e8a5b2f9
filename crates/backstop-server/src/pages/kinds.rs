//! Kinds: how often jobs of each ran lately, how often they failed, and how long it took.

use super::chart::{Bar, Bars, Markup, Share, Tone, Unit};
use super::link::{Link, part};
use super::overview::windows;
use super::{Frame, PageFailure, Section, View, text};
use crate::App;
use crate::history::{PERCENTS, Window, kinds, seconds};
use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use backstop::spreads::KINDS_MAX;
use backstop_core::spread::{BUCKETS, Histogram, Spread, lower, upper};
use backstop_core::{Kind, QueueName};

pub(super) fn routes() -> Router<App> {
    Router::new().route("/kinds", get(page))
}

#[derive(Template)]
#[template(path = "kinds.html")]
struct Page {
    frame: Frame,
    windows: Vec<(&'static str, String, bool)>,
    rows: Vec<Row>,
    kinds_max: usize,
}

/// A kind in a queue.
struct Row {
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
    spread: Markup,
}

async fn page(view: View) -> Result<Response, PageFailure> {
    let window: Window = view
        .query("window")
        .map_or(Ok(Window::default()), str::parse)
        .map_err(|error| view.bad(error))?;
    let found = view.ask(kinds(view.app().backstop(), window)).await?;
    let rows = found
        .iter()
        .enumerate()
        .map(|(at, (queue, kind, spread))| row(&view, at, queue, kind, spread));
    let page = Page {
        frame: view.frame(Section::Kinds, "Kinds").live(),
        windows: windows(&view.at("/kinds"), window),
        rows: rows.collect(),
        kinds_max: KINDS_MAX,
    };
    view.show(&page)
}

fn row(view: &View, at: usize, queue: &QueueName, kind: &Kind, spread: &Spread) -> Row {
    let told = |histogram: &Histogram| {
        PERCENTS.map(|percent| {
            seconds(histogram, percent)
                .map_or_else(|| "–".to_owned(), |value| Unit::Seconds.said(value))
        })
    };
    Row {
        id: format!("{queue}/{kind}"),
        kind: text::kind(kind),
        jobs: Link::to(view.at("/jobs"))
            .with("queue", queue)
            .with("kind", kind)
            .to_string(),
        queue: queue.to_string(),
        queue_link: view.at(&format!("/queues/{}", part(queue.as_str()))),
        runs: text::count(spread.runs()),
        failed: text::count(spread.failed),
        has_failed: spread.failed > 0,
        share: text::share(spread.failed, spread.runs()),
        run: told(&spread.run),
        wait: told(&spread.wait),
        spread: drawn(at, &spread.run),
    }
}

/// How many runs took how long, from the shortest to the longest.
fn drawn(at: usize, histogram: &Histogram) -> Markup {
    let counted: Vec<usize> = (0..BUCKETS)
        .filter(|bucket| histogram.buckets()[*bucket] > 0)
        .collect();
    let (first, last) = (
        counted.first().copied().unwrap_or(0),
        counted.last().copied().unwrap_or(0),
    );
    let bar = |bucket: usize| Bar {
        name: match upper(bucket) {
            Some(end) => format!("to {}", Unit::Seconds.said(end.as_secs_f64())),
            None => format!("over {}", Unit::Seconds.said(lower(bucket).as_secs_f64())),
        },
        shares: vec![Share {
            name: "runs",
            tone: Tone::Plain,
            count: histogram.buckets()[bucket],
        }],
    };
    let bars = Bars {
        id: &format!("spread-{at}"),
        title: "How long runs took",
        of: "took",
        unit: Unit::Count,
        bars: (first..=last).map(bar).collect(),
    };
    bars.figure()
}
