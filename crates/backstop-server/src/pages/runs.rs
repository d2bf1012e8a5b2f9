//! Bulk actions under way, and what they did.

use super::mark::When;
use super::{Frame, Note, PageFailure, Posted, Section, View, text};
use crate::App;
use crate::bulk::{Bulk, Report, Standing};
use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::{get, post};
use backstop_core::redact::Redaction;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/jobs/runs", get(list))
        .route("/jobs/runs/{id}", get(one))
        .route("/jobs/runs/{id}/stop", post(stop))
        .route("/jobs/runs/{id}/resume", post(resume))
}

#[derive(Template)]
#[template(path = "run.html")]
struct OnePage {
    frame: Frame,
    run: Shown,
}

#[derive(Template)]
#[template(path = "runs.html")]
struct ListPage {
    frame: Frame,
    runs: Vec<Shown>,
}

/// A run as it is shown.
struct Shown {
    id: String,
    link: String,
    what: String,
    selection: String,
    word: &'static str,
    tone: &'static str,
    sentence: String,
    who: String,
    reason: String,
    started: When,
    ended: Option<When>,
    count: String,
    refused: String,
    refusals: Vec<(String, String)>,
    more_refused: u64,
    expected: Option<(u64, String)>,
    reached: u64,
    error: String,
    back: String,
    is_running: bool,
    is_silent: bool,
}

/// What leads to them, with how many have not ended.
pub(super) async fn word(view: &View) -> Result<String, PageFailure> {
    let under_way = view
        .ask(Bulk::new(view.app(), view.who()).under_way())
        .await?;
    Ok(match under_way {
        0 => "Bulk actions".to_owned(),
        count => format!("Bulk actions ({} running)", text::count(count)),
    })
}

async fn list(view: View) -> Result<Response, PageFailure> {
    let reports = view
        .ask(Bulk::new(view.app(), view.who()).reports())
        .await?;
    let page = ListPage {
        frame: view.frame(Section::Jobs, "Bulk actions").live(),
        runs: reports
            .iter()
            .map(|report| Shown::of(&view, report))
            .collect(),
    };
    view.show(&page)
}

async fn one(view: View, Path(id): Path<String>) -> Result<Response, PageFailure> {
    let report = view
        .ask(Bulk::new(view.app(), view.who()).report(&id))
        .await?;
    let report = report.ok_or_else(|| {
        view.missing(format!(
            "There is no bulk action {id}; the oldest are forgotten."
        ))
    })?;
    let run = Shown::of(&view, &report);
    let page = OnePage {
        frame: view
            .frame(Section::Jobs, format!("Bulk action: {}", run.what))
            .live(),
        run,
    };
    view.show(&page)
}

async fn stop(view: View, Path(id): Path<String>, posted: Posted) -> Result<Response, PageFailure> {
    let bulk = Bulk::new(view.app(), view.who()).because(posted.reason(&view)?);
    let stopped = view.ask(bulk.stop(&id)).await?;
    let note = if stopped {
        Note::done("It stops before its next step; what was done stays done.")
    } else {
        Note::refused("It has ended already.")
    };
    Ok(note.on(
        view.app().base(),
        &view.at(&format!("/jobs/runs/{}", super::link::part(&id))),
    ))
}

async fn resume(
    view: View,
    Path(id): Path<String>,
    posted: Posted,
) -> Result<Response, PageFailure> {
    let bulk = Bulk::new(view.app(), view.who()).because(posted.reason(&view)?);
    let resumed = view.ask(bulk.resume(&id)).await?;
    let note = match resumed {
        Some(true) => Note::done("It goes on from where it was."),
        Some(false) => Note::refused("It has ended, or a server that is alive has it."),
        None => Note::refused(
            "This server is busy with as many bulk actions as it takes; wait for one to end.",
        ),
    };
    Ok(note.on(
        view.app().base(),
        &view.at(&format!("/jobs/runs/{}", super::link::part(&id))),
    ))
}

impl Shown {
    fn of(view: &View, report: &Report) -> Self {
        let now = view.now();
        let standing = report.standing(now);
        let (word, tone, sentence) = told(standing);
        let reached = report.count.saturating_add(report.refused);
        let config = view.app().config();
        Self {
            id: report.id.clone(),
            link: view.at(&format!("/jobs/runs/{}", report.id)),
            what: report.target.what.clone(),
            selection: report.target.selection(&config.redaction).to_string(),
            word,
            tone,
            sentence: sentence.to_owned(),
            who: report.who.clone(),
            reason: report.reason.clone().unwrap_or_default(),
            started: When::new(report.started_at, now),
            ended: When::maybe(report.ended_at, now),
            count: text::count(report.count),
            refused: text::count(report.refused),
            refusals: report
                .refusals
                .iter()
                .map(|(id, why)| (id.to_string(), why.clone()))
                .collect(),
            more_refused: report.refused.saturating_sub(report.refusals.len() as u64),
            expected: report
                .expected
                .map(|expected| (expected.max(reached).max(1), text::count(expected))),
            reached,
            error: report.error.clone().unwrap_or_default(),
            back: back(view, report, &config.redaction),
            is_running: standing == Standing::Running,
            is_silent: standing == Standing::Silent,
        }
    }
}

/// The list it was started from, as far as it is a page of this server. Its address has the text
/// that was looked for: where that hides something, it is not told.
fn back(view: &View, report: &Report, redaction: &Redaction) -> String {
    let (jobs, address) = (view.at("/jobs"), &report.back);
    let is_page = address.starts_with(&jobs) || address.starts_with(&view.at("/dead"));
    let hides = report
        .target
        .text()
        .is_some_and(|text| redaction.text(text) != text);
    if is_page && !hides {
        address.clone()
    } else {
        jobs
    }
}

const fn told(standing: Standing) -> (&'static str, &'static str, &'static str) {
    match standing {
        Standing::Running => (
            "running",
            "accent",
            "It goes on by itself, also when you close this page.",
        ),
        Standing::Silent => (
            "silent",
            "bad",
            "Its server gives no sign of life. What is counted here was done; the rest was not. The next server with room for it goes on from there by itself.",
        ),
        Standing::Done => ("done", "good", "Everything that matched was looked at."),
        Standing::Stopped => (
            "stopped",
            "warn",
            "Somebody stopped it. What is counted here was done; the rest was not.",
        ),
        Standing::Failed => (
            "failed",
            "bad",
            "It could not go on. What is counted here was done; the rest was not.",
        ),
    }
}
