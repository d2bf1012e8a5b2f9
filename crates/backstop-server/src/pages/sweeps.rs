//! Sweeps: what was looked for, what was found, and what was done about it.

mod change;
mod one;

use super::looks::Looks;
use super::mark::When;
use super::{Frame, PageFailure, Section, View, text};
use crate::App;
use askama::Template;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use backstop::sweeps::{PastRun, Sweep};
use backstop_core::Time;

/// Sweeps that a page lists.
const SWEEPS_SHOWN: usize = 200;

/// The pages of sweeps.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/sweeps", get(list))
        .route("/sweeps/{sweep}", get(one::page))
        .route("/sweeps/{sweep}/run", post(change::run))
        .layer(Extension(Looks::<one::Sight>::default()))
}

#[derive(Template)]
#[template(path = "sweeps.html")]
struct Page {
    frame: Frame,
    sweeps: Vec<Row>,
    left_out: usize,
}

/// A sweep in the list.
struct Row {
    name: String,
    link: String,
    queue: String,
    queue_link: String,
    older_than: String,
    every: String,
    last: Option<Run>,
}

/// A run that has ended.
struct Run {
    when: When,
    took: String,
    runner: String,
    found: Number,
    alive: Number,
    dead: Number,
    enqueued: Number,
    buried: Number,
    spent: Number,
    refused: Number,
    unusable: Number,
    error: Option<String>,
}

/// A count, and whether it is nothing.
struct Number {
    text: String,
    is_zero: bool,
}

impl Number {
    fn new(number: usize) -> Self {
        Self {
            text: text::count(number as u64),
            is_zero: number == 0,
        }
    }
}

impl Run {
    fn new(run: &PastRun, now: Time) -> Self {
        Self {
            when: When::new(run.at, now),
            took: text::span(run.took),
            runner: run.runner.clone(),
            found: Number::new(run.found),
            alive: Number::new(run.alive),
            dead: Number::new(run.dead),
            enqueued: Number::new(run.enqueued),
            buried: Number::new(run.buried),
            spent: Number::new(run.spent),
            refused: Number::new(run.refused),
            unusable: Number::new(run.unusable),
            error: run.error.clone(),
        }
    }
}

async fn list(view: View) -> Result<Response, PageFailure> {
    let (config, now) = (view.app().config(), view.now());
    let mut sweeps = Vec::new();
    for sweep in config.sweeps.values().take(SWEEPS_SHOWN) {
        let runs = view
            .ask(view.app().backstop().sweeper(sweep).history())
            .await?;
        sweeps.push(Row {
            name: sweep.name().to_owned(),
            link: link(&view, sweep),
            queue: sweep.queue().to_string(),
            queue_link: view.at(&format!("/queues/{}", super::part(sweep.queue().as_str()))),
            older_than: text::span(sweep.threshold()),
            every: text::span(sweep.period()),
            last: runs.first().map(|run| Run::new(run, now)),
        });
    }
    let left_out = config.sweeps.len().saturating_sub(SWEEPS_SHOWN);
    view.show(&Page {
        frame: view.frame(Section::Sweeps, "Sweeps").live(),
        sweeps,
        left_out,
    })
}

fn link(view: &View, sweep: &Sweep) -> String {
    view.at(&format!("/sweeps/{}", super::part(sweep.name())))
}

/// The sweep of a path, as it is configured.
fn named(view: &View, name: &str) -> Result<Sweep, PageFailure> {
    let found = view.app().config().sweeps.get(name).cloned();
    found.ok_or_else(|| {
        view.missing(format!(
            "There is no sweep {name} in the configuration: it needs an entry in backstop.toml."
        ))
    })
}
