//! One sweep: its last runs, what it would do now, and rows and jobs compared.

use super::{SweepRunRow, link, named};
use crate::pages::cached_query::{CachedQuery, JUST_NOW, QueryCache};
use crate::pages::components::RelativeTime;
use crate::pages::{PageFailure, PageFrame, PageSection, PageView, part, text};
use askama::Template;
use axum::Extension;
use axum::extract::Path;
use axum::response::Response;
use backstop::Backstop;
use backstop::sweeps::{ReconcileReport, Sweep, SweepReport};
use backstop_core::Time;
use serde_json::Value;

/// Rows of a list that are told one by one.
const ROWS_SHOWN: usize = 50;

/// What was seen in the user's data.
pub(super) enum SweepInspection {
    /// What a run would do.
    Dry(SweepReport),
    Compared(ReconcileReport),
}

#[derive(Template)]
#[template(path = "sweep.html")]
struct SweepPage {
    frame: PageFrame,
    name: String,
    link: String,
    facts: Vec<(&'static str, String)>,
    queue: String,
    queue_link: String,
    letters: String,
    runs: Vec<SweepRunRow>,
    is_requested: bool,
    is_looking: bool,
    seen: Option<RelativeTime>,
    error: Option<String>,
    dry: Option<DryRunView>,
    compared: Option<ReconciliationView>,
}

/// What a run would do.
struct DryRunView {
    figures: Vec<(&'static str, String)>,
    would_enqueue: SweepRowList,
    dead: SweepRowList,
    unusable: Vec<(String, String)>,
    is_cut: bool,
    unseen: bool,
}

struct ReconciliationView {
    matches: bool,
    rows: SweepRowList,
    dead: SweepRowList,
    jobs: Vec<UnmatchedJobRow>,
    jobs_more: usize,
}

/// A live job without a row.
struct UnmatchedJobRow {
    id: String,
    link: String,
    key: String,
    age: String,
    is_overdue: bool,
}

/// The first of several rows, and how many more there are.
struct SweepRowList {
    shown: Vec<String>,
    more: usize,
    count: String,
    is_empty: bool,
}

impl SweepRowList {
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
    view: PageView,
    Path(name): Path<String>,
    Extension(looks): Extension<QueryCache<SweepInspection>>,
) -> Result<Response, PageFailure> {
    let sweep = named(&view, &name)?;
    let now = view.now();
    let runs = view
        .ask(view.app().backstop().sweeper(&sweep).history())
        .await?;
    let known = inspect(&view, &sweep, &looks).await;
    let (at, seen) = match known.as_ref().and_then(|known| known.seen.clone()) {
        Some((at, seen)) => (Some(at), Some(seen)),
        None => (None, None),
    };
    let sight = seen.as_ref().and_then(|seen| seen.as_ref().as_ref().ok());
    let page = SweepPage {
        frame: view.frame(PageSection::Sweeps, sweep.name()),
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
        letters: crate::pages::PageLink::to(view.at("/dead"))
            .with("queue", sweep.queue())
            .to_string(),
        runs: runs.iter().map(|run| SweepRunRow::new(run, now)).collect(),
        is_requested: known.is_some(),
        is_looking: known.is_some_and(|known| known.is_looking),
        seen: RelativeTime::maybe(at.filter(|at| now.since(*at) > JUST_NOW), now),
        error: seen
            .as_ref()
            .and_then(|seen| seen.as_ref().as_ref().err().cloned()),
        dry: sight.and_then(|sight| {
            if let SweepInspection::Dry(report) = sight {
                Some(dry_run_view(report))
            } else {
                None
            }
        }),
        compared: sight.and_then(|sight| match sight {
            SweepInspection::Compared(found) => Some(reconciliation_view(&view, found)),
            SweepInspection::Dry(_) => None,
        }),
    };
    view.show(&page)
}

/// A look into the user's data, if the address asks for one.
async fn inspect(
    view: &PageView,
    sweep: &Sweep,
    looks: &QueryCache<SweepInspection>,
) -> Option<CachedQuery<SweepInspection>> {
    let (backstop, sweep, now) = (view.app().backstop().clone(), sweep.clone(), view.now());
    match view.query("look")? {
        "dry" => Some(
            looks
                .query(
                    &format!("dry {}", sweep.name()),
                    now,
                    dry_run(backstop, sweep, now),
                )
                .await,
        ),
        "compare" => Some(
            looks
                .query(
                    &format!("compare {}", sweep.name()),
                    now,
                    compare(backstop, sweep),
                )
                .await,
        ),
        _ => None,
    }
}

async fn dry_run(backstop: Backstop, sweep: Sweep, at: Time) -> Result<SweepInspection, String> {
    backstop
        .sweeper(&sweep)
        .dry_run(at)
        .await
        .map(SweepInspection::Dry)
        .map_err(|error| error.to_string())
}

async fn compare(backstop: Backstop, sweep: Sweep) -> Result<SweepInspection, String> {
    backstop
        .sweeper(&sweep)
        .reconcile()
        .await
        .map(SweepInspection::Compared)
        .map_err(|error| error.to_string())
}

fn dry_run_view(report: &SweepReport) -> DryRunView {
    let count = |rows: &[Value]| text::count(rows.len() as u64);
    DryRunView {
        figures: vec![
            ("found", count(&report.found)),
            ("alive", count(&report.alive)),
            ("dead", count(&report.dead)),
            ("ended, key kept", count(&report.spent)),
            ("to enqueue", count(&report.would_enqueue)),
        ],
        would_enqueue: SweepRowList::of(&report.would_enqueue),
        dead: SweepRowList::of(&report.dead),
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

fn reconciliation_view(view: &PageView, found: &ReconcileReport) -> ReconciliationView {
    let loose = found
        .jobs_without_rows
        .iter()
        .take(ROWS_SHOWN)
        .map(|job| UnmatchedJobRow {
            id: job.id.to_string(),
            link: view.at(&format!("/jobs/{}", part(&job.id.to_string()))),
            key: job.key.to_string(),
            age: text::span(job.age),
            is_overdue: job.age >= found.older_than,
        });
    ReconciliationView {
        matches: !found.falls_short(),
        rows: SweepRowList::of(&found.rows_without_jobs),
        dead: SweepRowList::of(&found.dead),
        jobs: loose.collect(),
        jobs_more: found.jobs_without_rows.len().saturating_sub(ROWS_SHOWN),
    }
}
