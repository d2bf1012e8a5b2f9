//! Bulk actions under way, and what they did.

use super::components::RelativeTime;
use super::{FlashMessage, PageFailure, PageFrame, PageSection, PageView, PostedForm, text};
use crate::App;
use crate::bulk::{BulkActions, BulkReport, BulkStatus};
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
struct BulkRunPage {
    frame: PageFrame,
    run: BulkRunView,
}

#[derive(Template)]
#[template(path = "runs.html")]
struct BulkRunListPage {
    frame: PageFrame,
    runs: Vec<BulkRunView>,
}

/// A run as it is shown.
struct BulkRunView {
    id: String,
    link: String,
    what: String,
    selection: String,
    word: &'static str,
    tone: &'static str,
    sentence: String,
    who: String,
    reason: String,
    started: RelativeTime,
    ended: Option<RelativeTime>,
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
pub(super) async fn link_label(view: &PageView) -> Result<String, PageFailure> {
    let under_way = view
        .ask(BulkActions::new(view.app(), view.who()).count_running())
        .await?;
    Ok(match under_way {
        0 => "Bulk actions".to_owned(),
        count => format!("Bulk actions ({} running)", text::count(count)),
    })
}

async fn list(view: PageView) -> Result<Response, PageFailure> {
    let reports = view
        .ask(BulkActions::new(view.app(), view.who()).reports())
        .await?;
    let page = BulkRunListPage {
        frame: view.frame(PageSection::Jobs, "Bulk actions").live(),
        runs: reports
            .iter()
            .map(|report| BulkRunView::of(&view, report))
            .collect(),
    };
    view.show(&page)
}

async fn one(view: PageView, Path(id): Path<String>) -> Result<Response, PageFailure> {
    let report = view
        .ask(BulkActions::new(view.app(), view.who()).report(&id))
        .await?;
    let report = report.ok_or_else(|| {
        view.missing(format!(
            "There is no bulk action {id}; the oldest are forgotten."
        ))
    })?;
    let run = BulkRunView::of(&view, &report);
    let page = BulkRunPage {
        frame: view
            .frame(PageSection::Jobs, format!("Bulk action: {}", run.what))
            .live(),
        run,
    };
    view.show(&page)
}

async fn stop(
    view: PageView,
    Path(id): Path<String>,
    posted: PostedForm,
) -> Result<Response, PageFailure> {
    let bulk = BulkActions::new(view.app(), view.who()).because(posted.reason(&view)?);
    let stopped = view.ask(bulk.stop(&id)).await?;
    let note = if stopped {
        FlashMessage::done("It stops before its next step; what was done stays done.")
    } else {
        FlashMessage::refused("It has ended already.")
    };
    Ok(note.redirect(
        view.app().base(),
        &view.at(&format!("/jobs/runs/{}", super::link::part(&id))),
    ))
}

async fn resume(
    view: PageView,
    Path(id): Path<String>,
    posted: PostedForm,
) -> Result<Response, PageFailure> {
    let bulk = BulkActions::new(view.app(), view.who()).because(posted.reason(&view)?);
    let resumed = view.ask(bulk.resume(&id)).await?;
    let note = match resumed {
        Some(true) => FlashMessage::done("It goes on from where it was."),
        Some(false) => FlashMessage::refused("It has ended, or a server that is alive has it."),
        None => FlashMessage::refused(
            "This server is busy with as many bulk actions as it takes; wait for one to end.",
        ),
    };
    Ok(note.redirect(
        view.app().base(),
        &view.at(&format!("/jobs/runs/{}", super::link::part(&id))),
    ))
}

impl BulkRunView {
    fn of(view: &PageView, report: &BulkReport) -> Self {
        let now = view.now();
        let status = report.status(now);
        let (word, tone, sentence) = describe_status(status);
        let reached = report.count.saturating_add(report.refused);
        let config = view.app().config();
        Self {
            id: report.id.clone(),
            link: view.at(&format!("/jobs/runs/{}", report.id)),
            what: report.target.what.clone(),
            selection: report.target.audit_selection(&config.redaction).to_string(),
            word,
            tone,
            sentence: sentence.to_owned(),
            who: report.who.clone(),
            reason: report.reason.clone().unwrap_or_default(),
            started: RelativeTime::new(report.started_at, now),
            ended: RelativeTime::maybe(report.ended_at, now),
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
            is_running: status == BulkStatus::Running,
            is_silent: status == BulkStatus::Silent,
        }
    }
}

/// The list it was started from, as far as it is a page of this server. Its address has the text
/// that was looked for: where that hides something, it is not told.
fn back(view: &PageView, report: &BulkReport, redaction: &Redaction) -> String {
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

const fn describe_status(status: BulkStatus) -> (&'static str, &'static str, &'static str) {
    match status {
        BulkStatus::Running => (
            "running",
            "accent",
            "It goes on by itself, also when you close this page.",
        ),
        BulkStatus::Silent => (
            "silent",
            "bad",
            "Its server gives no sign of life. What is counted here was done; the rest was not. The next server with room for it goes on from there by itself.",
        ),
        BulkStatus::Done => ("done", "good", "Everything that matched was looked at."),
        BulkStatus::Stopped => (
            "stopped",
            "warn",
            "Somebody stopped it. What is counted here was done; the rest was not.",
        ),
        BulkStatus::Failed => (
            "failed",
            "bad",
            "It could not go on. What is counted here was done; the rest was not.",
        ),
    }
}
