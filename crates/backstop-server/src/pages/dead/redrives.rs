//! Canary redrives: a few letters go first and are watched; the rest follow only if those live.

use super::filter::{DeadLetterFilter, count};
use super::{DeadLetterTab, letters, tabs};
use crate::pages::components::RelativeTime;
use crate::pages::jobs::{FilterChip, redirect_to};
use crate::pages::{FlashMessage, PageFailure, PageFrame, PageSection, PageView, PostedForm, text};
use crate::redrives;
use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use backstop::dead::DeadSelection;
use backstop::dead::redrive::{
    CANARY_DEFAULT, CANARY_MAX, MAX_FAILURES_DEFAULT, RedriveError, RedrivePhase, RedrivePlan,
    RedriveReport, THEN_RATE_DEFAULT,
};
use backstop_core::Time;

#[derive(Template)]
#[template(path = "redrive_plan.html")]
struct RedrivePlanPage {
    frame: PageFrame,
    chips: Vec<FilterChip>,
    count: Option<String>,
    is_all: bool,
    act: String,
    fields: Vec<(String, String)>,
    back: String,
    canary: String,
    canary_max: u32,
    failures: String,
    rate: String,
}

#[derive(Template)]
#[template(path = "redrives.html")]
struct RedriveListPage {
    frame: PageFrame,
    tabs: Vec<DeadLetterTab>,
    rows: Vec<RedriveView>,
}

#[derive(Template)]
#[template(path = "redrive.html")]
struct RedrivePage {
    frame: PageFrame,
    it: RedriveView,
    chips: Vec<(String, String)>,
    steps: Vec<(&'static str, &'static str)>,
}

/// A redrive as it is shown.
struct RedriveView {
    id: String,
    link: String,
    phase: RedrivePhase,
    tone: &'static str,
    sentence: String,
    by: String,
    reason: String,
    started: RelativeTime,
    ended: Option<RelativeTime>,
    canary: u32,
    max_failures: u32,
    rate: String,
    requeued: u64,
    done: u64,
    died: u64,
    open: u64,
    refused: u64,
    damaged: u64,
    /// How many letters it is through with, and of how many.
    reached: u64,
    expected: Option<u64>,
    last_goes: Option<RelativeTime>,
    is_ended: bool,
    is_stalled: bool,
}

/// The form: which letters, how many first, how fast then.
pub(super) async fn plan(view: PageView) -> Result<Response, PageFailure> {
    let filter = DeadLetterFilter::of(&view)?;
    let counted = view.ask(count(&letters(&view), &filter.0)).await?;
    let back = filter.on(view.at("/dead"));
    let field_or_default = |name: &str, usual: &dyn ToString| {
        view.query(name)
            .map_or_else(|| usual.to_string(), ToOwned::to_owned)
    };
    let page = RedrivePlanPage {
        frame: view.frame(PageSection::Dead, "Redrive dead letters"),
        chips: filter.chips(&back),
        count: counted.map(|counted| counted.to_string()),
        is_all: filter.0.is_empty(),
        act: view.at("/dead/redrive"),
        fields: filter.on(String::new()).pairs().to_vec(),
        canary: field_or_default("canary", &CANARY_DEFAULT),
        canary_max: CANARY_MAX,
        failures: field_or_default("max_failures", &MAX_FAILURES_DEFAULT),
        rate: field_or_default("then_rate", &THEN_RATE_DEFAULT),
        back: back.to_string(),
    };
    view.show(&page)
}

/// Writes it down, and runs it in the background.
pub(super) async fn start(view: PageView, posted: PostedForm) -> Result<Response, PageFailure> {
    let filter = DeadLetterFilter::posted(&view, &posted)?;
    let plan = RedrivePlan {
        canary: posted.read(&view, "canary")?,
        max_failures: posted.read(&view, "max_failures")?,
        then_rate: posted.read(&view, "then_rate")?,
        selection: filter.selection(),
    };
    let dead = letters(&view).because(posted.reason(&view)?);
    match dead.redrive_unattended(plan).await {
        Ok(id) => {
            redrives::spawn_redrive(view.app(), dead, id.clone());
            Ok(redirect_to(&view.at(&format!("/dead/redrives/{id}"))))
        }
        Err(RedriveError::Store(error)) => Err(view.store_failed(error)),
        Err(other) => {
            // Answered in place, with what was typed.
            let fields = ["canary", "max_failures", "then_rate", "reason"].into_iter();
            let back = fields.fold(filter.on(view.at("/dead/redrive")), |link, name| {
                link.with_some(name, posted.get(name))
            });
            Ok(FlashMessage::refused(format!("Not started: {other}."))
                .redirect(view.app().base(), &back.to_string()))
        }
    }
}

pub(super) async fn list(view: PageView) -> Result<Response, PageFailure> {
    let redrives = view.ask(letters(&view).redrives()).await?;
    let now = view.now();
    let page = RedriveListPage {
        frame: view.frame(PageSection::Dead, "Redrives").live(),
        tabs: tabs(&view, &DeadLetterFilter::default(), "redrives"),
        rows: redrives
            .iter()
            .map(|report| RedriveView::of(&view, report, now))
            .collect(),
    };
    view.show(&page)
}

pub(super) async fn one(view: PageView, Path(id): Path<String>) -> Result<Response, PageFailure> {
    let report = find_redrive(&view, &id).await?;
    let page = RedrivePage {
        frame: view.frame(PageSection::Dead, "Redrive").live(),
        it: RedriveView::of(&view, &report, view.now()),
        chips: chips(&report),
        steps: steps(report.phase),
    };
    view.show(&page)
}

/// Which letters, in parts; none for all of them.
fn chips(report: &RedriveReport) -> Vec<(String, String)> {
    let picked = || report.picked.unwrap_or_default();
    match &report.plan.selection {
        DeadSelection::Matching(filter) => DeadLetterFilter(filter.clone())
            .on(String::new())
            .pairs()
            .to_vec(),
        DeadSelection::Oldest { queue, .. } => {
            vec![
                ("queue".to_owned(), queue.to_string()),
                ("the oldest".to_owned(), text::count(picked())),
            ]
        }
        DeadSelection::Ids(_) => vec![("picked by id".to_owned(), text::count(picked()))],
        DeadSelection::Within { queue, .. } => {
            vec![
                ("queue".to_owned(), queue.to_string()),
                ("picked by id".to_owned(), text::count(picked())),
            ]
        }
        DeadSelection::All => Vec::new(),
    }
}

async fn find_redrive(view: &PageView, id: &str) -> Result<RedriveReport, PageFailure> {
    let redrives = view.ask(letters(view).redrives()).await?;
    let found = redrives.into_iter().find(|report| report.id == id);
    found.ok_or_else(|| {
        view.missing(format!(
            "There is no redrive {id}; the oldest that have ended are forgotten."
        ))
    })
}

pub(super) async fn stop(
    view: PageView,
    Path(id): Path<String>,
    posted: PostedForm,
) -> Result<Response, PageFailure> {
    find_redrive(&view, &id).await?;
    let here = view.at(&format!("/dead/redrives/{id}"));
    let note = match letters(&view)
        .because(posted.reason(&view)?)
        .stop_redrive(&id)
        .await
    {
        Ok(_) => {
            FlashMessage::done("It stops before its next step; what was requeued stays requeued.")
        }
        Err(RedriveError::Store(error)) => return Err(view.store_failed(error)),
        Err(other) => FlashMessage::refused(format!("Not stopped: {other}.")),
    };
    Ok(note.redirect(view.app().base(), &here))
}

/// Lets one go on whose runner is gone. If it has one, it stays that one's.
pub(super) async fn resume(
    view: PageView,
    Path(id): Path<String>,
    posted: PostedForm,
) -> Result<Response, PageFailure> {
    find_redrive(&view, &id).await?;
    let here = view.at(&format!("/dead/redrives/{id}"));
    let dead = letters(&view).because(posted.reason(&view)?);
    let note = match dead.leave_redrive(&id).await {
        Ok(()) => {
            redrives::spawn_redrive(view.app(), dead, id);
            FlashMessage::done(
                "It goes on, and any server of the store goes on with it from now on.",
            )
        }
        Err(RedriveError::Store(error)) => return Err(view.store_failed(error)),
        Err(other) => FlashMessage::refused(format!("Nothing was changed: {other}.")),
    };
    Ok(note.redirect(view.app().base(), &here))
}

/// The phases, and how each is drawn.
fn steps(phase: RedrivePhase) -> Vec<(&'static str, &'static str)> {
    let order = [
        ("Canary", RedrivePhase::Canary),
        ("Watching", RedrivePhase::Watching),
        ("The rest", RedrivePhase::Rate),
    ];
    let at = order.iter().position(|(_, each)| *each == phase);
    let mut steps: Vec<_> = order
        .iter()
        .enumerate()
        .map(|(place, (word, _))| {
            let look = match at {
                Some(at) if place == at => "now",
                Some(at) if place > at => "",
                _ => "past",
            };
            (*word, look)
        })
        .collect();
    steps.push(match phase {
        RedrivePhase::Failed => ("Stopped by itself", "failed"),
        RedrivePhase::Stopped => ("Stopped", "failed"),
        RedrivePhase::Done => ("Done", "past"),
        RedrivePhase::Canary | RedrivePhase::Watching | RedrivePhase::Rate => ("Done", ""),
    });
    steps
}

impl RedriveView {
    fn of(view: &PageView, report: &RedriveReport, now: Time) -> Self {
        let plan = &report.plan;
        Self {
            id: report.id.clone(),
            link: view.at(&format!("/dead/redrives/{}", report.id)),
            phase: report.phase,
            tone: match report.phase {
                RedrivePhase::Done => "good",
                RedrivePhase::Failed => "bad",
                RedrivePhase::Stopped => "warn",
                RedrivePhase::Canary | RedrivePhase::Watching | RedrivePhase::Rate
                    if report.stalled =>
                {
                    "warn"
                }
                RedrivePhase::Canary | RedrivePhase::Watching | RedrivePhase::Rate => "accent",
            },
            sentence: report.why.clone().unwrap_or_else(|| doing(report)),
            by: report.by.clone(),
            reason: report.reason.clone().unwrap_or_default(),
            started: RelativeTime::new(report.started_at, now),
            ended: RelativeTime::maybe(report.ended_at, now),
            canary: plan.canary,
            max_failures: plan.max_failures,
            rate: plan.then_rate.to_string(),
            requeued: report.requeued,
            done: report.done,
            died: report.died_again,
            open: report.open,
            refused: report.refused,
            damaged: report.damaged,
            reached: report.reached(),
            // What died again while it ran may fit as well, and is not gone through twice; the
            // count is from before.
            expected: report
                .expected
                .map(|expected| expected.max(report.reached())),
            last_goes: RelativeTime::maybe(report.last_goes_at(now), now),
            is_ended: report.phase.is_ended(),
            is_stalled: report.stalled,
        }
    }

    #[expect(
        clippy::unused_self,
        clippy::trivially_copy_pass_by_ref,
        reason = "a template calls methods, by reference"
    )]
    fn count(&self, number: &u64) -> String {
        text::count(*number)
    }
}

/// What it does, in a sentence.
fn doing(report: &RedriveReport) -> String {
    if report.stalled {
        return "nobody runs it: its runner is gone, or left it in the middle".to_owned();
    }
    match report.phase {
        RedrivePhase::Canary => format!("the first {} are being requeued", report.plan.canary),
        RedrivePhase::Watching => format!(
            "{} of the first {} have not ended yet",
            report.open, report.requeued
        ),
        RedrivePhase::Rate => format!("the rest follow at {}", report.plan.then_rate),
        RedrivePhase::Done | RedrivePhase::Stopped | RedrivePhase::Failed => String::new(),
    }
}
