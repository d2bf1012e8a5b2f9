//! Sweeps: what was looked for, what was found, and what was done about it.

mod change;
mod detail;

use super::cached_query::QueryCache;
use super::components::RelativeTime;
use super::{PageFailure, PageFrame, PageSection, PageView, text};
use crate::App;
use askama::Template;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use backstop::sweeps::{PastRun, Sweep};
use backstop_core::Time;

/// Sweeps that a page lists.
const SWEEPS_SHOWN: usize = 200;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/sweeps", get(list))
        .route("/sweeps/{sweep}", get(detail::page))
        .route("/sweeps/{sweep}/run", post(change::run))
        .layer(Extension(QueryCache::<detail::SweepInspection>::default()))
}

#[derive(Template)]
#[template(path = "sweeps.html")]
struct SweepListPage {
    frame: PageFrame,
    sweeps: Vec<SweepRow>,
    left_out: usize,
}

/// A sweep in the list.
struct SweepRow {
    name: String,
    link: String,
    queue: String,
    queue_link: String,
    older_than: String,
    every: String,
    last: Option<SweepRunRow>,
}

/// A run that has ended.
struct SweepRunRow {
    when: RelativeTime,
    took: String,
    runner: String,
    found: SweepCountCell,
    alive: SweepCountCell,
    dead: SweepCountCell,
    enqueued: SweepCountCell,
    buried: SweepCountCell,
    spent: SweepCountCell,
    refused: SweepCountCell,
    unusable: SweepCountCell,
    error: Option<String>,
}

/// A count, and whether it is nothing.
struct SweepCountCell {
    text: String,
    is_zero: bool,
}

impl SweepCountCell {
    fn new(number: usize) -> Self {
        Self {
            text: text::count(number as u64),
            is_zero: number == 0,
        }
    }
}

impl SweepRunRow {
    fn new(run: &PastRun, now: Time) -> Self {
        Self {
            when: RelativeTime::new(run.at, now),
            took: text::span(run.took),
            runner: run.runner.clone(),
            found: SweepCountCell::new(run.found),
            alive: SweepCountCell::new(run.alive),
            dead: SweepCountCell::new(run.dead),
            enqueued: SweepCountCell::new(run.enqueued),
            buried: SweepCountCell::new(run.buried),
            spent: SweepCountCell::new(run.spent),
            refused: SweepCountCell::new(run.refused),
            unusable: SweepCountCell::new(run.unusable),
            error: run.error.clone(),
        }
    }
}

async fn list(view: PageView) -> Result<Response, PageFailure> {
    let (config, now) = (view.app().config(), view.now());
    let mut sweeps = Vec::new();
    for sweep in config.sweeps.values().take(SWEEPS_SHOWN) {
        let runs = view
            .ask(view.app().backstop().sweeper(sweep).history())
            .await?;
        sweeps.push(SweepRow {
            name: sweep.name().to_owned(),
            link: link(&view, sweep),
            queue: sweep.queue().to_string(),
            queue_link: view.at(&format!("/queues/{}", super::part(sweep.queue().as_str()))),
            older_than: text::span(sweep.threshold()),
            every: text::span(sweep.period()),
            last: runs.first().map(|run| SweepRunRow::new(run, now)),
        });
    }
    let left_out = config.sweeps.len().saturating_sub(SWEEPS_SHOWN);
    view.show(&SweepListPage {
        frame: view.frame(PageSection::Sweeps, "Sweeps").live(),
        sweeps,
        left_out,
    })
}

fn link(view: &PageView, sweep: &Sweep) -> String {
    view.at(&format!("/sweeps/{}", super::part(sweep.name())))
}

/// The sweep of a path, as it is configured.
fn named(view: &PageView, name: &str) -> Result<Sweep, PageFailure> {
    let found = view.app().config().sweeps.get(name).cloned();
    found.ok_or_else(|| {
        view.missing(format!(
            "There is no sweep {name} in the configuration: it needs an entry in backstop.toml."
        ))
    })
}
