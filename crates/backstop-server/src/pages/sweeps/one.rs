//! One sweep: its last runs, what it would do now, and rows and jobs compared.

use super::{Run, link, named};
use crate::pages::looks::{JUST_NOW, Known, Looks};
use crate::pages::mark::When;
use crate::pages::{Frame, PageFailure, Section, View, part, text};
use askama::Template;
use axum::Extension;
use axum::extract::Path;
use axum::response::Response;
use backstop::Backstop;
use backstop::sweeps::{Reconciliation, Report, Sweep};
use backstop_core::Time;
use serde_json::Value;

/// Rows of a list that are told one by one.
const ROWS_SHOWN: usize = 50;

/// What was seen in the user's data.
pub(super) enum Sight {
    /// What a run would do.
    Dry(Report),
    /// What does not match.
    Compared(Reconciliation),
}

#[derive(Template)]
#[template(path = "sweep.html")]
struct Page {
    frame: Frame,
    name: String,
    link: String,
    facts: Vec<(&'static str, String)>,
    queue: String,
    queue_link: String,
    letters: String,
    runs: Vec<Run>,
    is_asked: bool,
    is_looking: bool,
    seen: Option<When>,
    error: Option<String>,
    dry: Option<Dry>,
    compared: Option<Compared>,
}

/// What a run would do.
struct Dry {
    figures: Vec<(&'static str, String)>,
    would_enqueue: Rows,
    dead: Rows,
    unusable: Vec<(String, String)>,
    is_cut: bool,
    unseen: bool,
}

/// Rows and jobs compared.
struct Compared {
    matches: bool,
    rows: Rows,
    dead: Rows,
    jobs: Vec<Loose>,
    jobs_more: usize,
}

/// A live job without a row.
struct Loose {
    id: String,
    link: String,
    key: String,
    age: String,
    is_overdue: bool,
}

/// The first of several rows, and how many more there are.
struct Rows {
    shown: Vec<String>,
    more: usize,
    count: String,
    is_empty: bool,
}

impl Rows {
    fn of(rows: &[Value]) -> Self {
        Self {
            shown: rows
                .iter()
                .take(ROWS_SHOWN)
                .map(ToString::to_string)
                .collect(),
            more: rows.len().saturating_sub(ROWS_SHOWN),
            count: text::count(rows.len() as u64),
            is_empty: rows.is_empty(),
        }
    }
}

pub(super) async fn page(
    view: View,
    Path(name): Path<String>,
    Extension(looks): Extension<Looks<Sight>>,
) -> Result<Response, PageFailure> {
    let sweep = named(&view, &name)?;
    let now = view.now();
    let runs = view
        .ask(view.app().backstop().sweeper(&sweep).history())
        .await?;
    let known = asked(&view, &sweep, &looks).await;
    let (at, seen) = match known.as_ref().and_then(|known| known.seen.clone()) {
        Some((at, seen)) => (Some(at), Some(seen)),
        None => (None, None),
    };
    let sight = seen.as_ref().and_then(|seen| seen.as_ref().as_ref().ok());
    let page = Page {
        frame: view.frame(Section::Sweeps, sweep.name()),
        name: sweep.name().to_owned(),
        link: link(&view, &sweep),
        facts: vec![
            (
                "Looks for rows",
                format!("older than {}", text::span(sweep.threshold())),
            ),
            ("Every", text::span(sweep.period())),
        ],
        queue: sweep.queue().to_string(),
        queue_link: view.at(&format!("/queues/{}", part(sweep.queue().as_str()))),
        letters: crate::pages::Link::to(view.at("/dead"))
            .with("queue", sweep.queue())
            .to_string(),
        runs: runs.iter().map(|run| Run::new(run, now)).collect(),
        is_asked: known.is_some(),
        is_looking: known.is_some_and(|known| known.is_looking),
        seen: When::maybe(at.filter(|at| now.since(*at) > JUST_NOW), now),
        error: seen
            .as_ref()
            .and_then(|seen| seen.as_ref().as_ref().err().cloned()),
        dry: sight.and_then(|sight| {
            if let Sight::Dry(report) = sight {
                Some(dry(report))
            } else {
                None
            }
        }),
        compared: sight.and_then(|sight| match sight {
            Sight::Compared(found) => Some(compared(&view, found)),
            Sight::Dry(_) => None,
        }),
    };
    view.show(&page)
}

/// A look into the user's data, if the address asks for one.
async fn asked(view: &View, sweep: &Sweep, looks: &Looks<Sight>) -> Option<Known<Sight>> {
    let (backstop, sweep, now) = (view.app().backstop().clone(), sweep.clone(), view.now());
    match view.query("look")? {
        "dry" => Some(
            looks
                .look(
                    &format!("dry {}", sweep.name()),
                    now,
                    dry_run(backstop, sweep, now),
                )
                .await,
        ),
        "compare" => Some(
            looks
                .look(
                    &format!("compare {}", sweep.name()),
                    now,
                    compare(backstop, sweep),
                )
                .await,
        ),
        _ => None,
    }
}

async fn dry_run(backstop: Backstop, sweep: Sweep, at: Time) -> Result<Sight, String> {
    backstop
        .sweeper(&sweep)
        .dry_run(at)
        .await
        .map(Sight::Dry)
        .map_err(|error| error.to_string())
}

async fn compare(backstop: Backstop, sweep: Sweep) -> Result<Sight, String> {
    backstop
        .sweeper(&sweep)
        .reconcile()
        .await
        .map(Sight::Compared)
        .map_err(|error| error.to_string())
}

fn dry(report: &Report) -> Dry {
    let count = |rows: &[Value]| text::count(rows.len() as u64);
    Dry {
        figures: vec![
            ("found", count(&report.found)),
            ("alive", count(&report.alive)),
            ("dead", count(&report.dead)),
            ("ended, key kept", count(&report.spent)),
            ("to enqueue", count(&report.would_enqueue)),
        ],
        would_enqueue: Rows::of(&report.would_enqueue),
        dead: Rows::of(&report.dead),
        unusable: report
            .unusable
            .iter()
            .take(ROWS_SHOWN)
            .map(|one| (one.row.to_string(), one.why.clone()))
            .collect(),
        is_cut: report.is_cut,
        unseen: report.unseen,
    }
}

fn compared(view: &View, found: &Reconciliation) -> Compared {
    let loose = found
        .jobs_without_rows
        .iter()
        .take(ROWS_SHOWN)
        .map(|job| Loose {
            id: job.id.to_string(),
            link: view.at(&format!("/jobs/{}", part(&job.id.to_string()))),
            key: job.key.to_string(),
            age: text::span(job.age),
            is_overdue: job.age >= found.older_than,
        });
    Compared {
        matches: !found.falls_short(),
        rows: Rows::of(&found.rows_without_jobs),
        dead: Rows::of(&found.dead),
        jobs: loose.collect(),
        jobs_more: found.jobs_without_rows.len().saturating_sub(ROWS_SHOWN),
    }
}
