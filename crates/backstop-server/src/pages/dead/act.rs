//! Requeueing, moving and deleting dead letters.

use super::filter::DeadLetterFilter;
use super::letters;
use crate::bulk::{BulkTarget, JobCount, count_target};
use crate::pages::job_ref::{JobRef, by_queue};
use crate::pages::jobs::{
    FilterChip, JobActionOutcome, back_to_confirm, capital, confirm_fields, describe_count,
    is_confirmed, short, start,
};
use crate::pages::{FlashMessage, PageFailure, PageFrame, PageSection, PageView, PostedForm};
use askama::Template;
use axum::response::Response;
use backstop::dead::{DeadChangeResult, DeadSelection};
use backstop_core::QueueName;
use backstop_core::amend::AmendAction;

#[derive(Template)]
#[template(path = "dead_confirm.html")]
#[expect(clippy::struct_excessive_bools, reason = "what a template asks")]
struct DeadLetterConfirmPage {
    frame: PageFrame,
    verb: &'static str,
    is_danger: bool,
    is_move: bool,
    to: String,
    queues: Vec<String>,
    consequence: &'static str,
    count: Option<String>,
    is_exact: bool,
    ids: Vec<(String, String)>,
    chips: Vec<FilterChip>,
    is_all: bool,
    is_matching: bool,
    must_type: bool,
    act: String,
    redrive: String,
    fields: Vec<(String, String)>,
    back: String,
}

/// What is asked of letters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeadLetterAction {
    Requeue,
    Move,
    Delete,
}

impl DeadLetterAction {
    fn of(view: &PageView, word: Option<&str>) -> Result<Self, PageFailure> {
        match word {
            Some("requeue") => Ok(Self::Requeue),
            Some("move") => Ok(Self::Move),
            Some("delete") => Ok(Self::Delete),
            _ => Err(view.bad("Dead letters can be requeued, moved and deleted; say which.")),
        }
    }

    const fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Requeue => (
                "requeue",
                "They become ready in their queues at once, with all attempts again; their history stays. If what killed them is still there, they all die again: a redrive tries a few first.",
            ),
            Self::Move => (
                "move",
                "They become ready in another queue, with all attempts again; their history stays.",
            ),
            Self::Delete => (
                "delete",
                "They are removed with their history and cannot be brought back.",
            ),
        }
    }
}

/// What is about to happen, and to how many.
pub(super) async fn confirm(view: PageView) -> Result<Response, PageFailure> {
    let letter_action = DeadLetterAction::of(&view, view.query("action"))?;
    let (verb, consequence) = letter_action.describe();
    let filter = DeadLetterFilter::of(&view)?;
    let picks = JobRef::all(&view, view.query_all("id"))?;
    let is_matching = view.query("all").is_some();
    let back = filter.on(view.at("/dead")).with("view", "letters");
    if picks.is_empty() && !is_matching {
        let note = FlashMessage::refused(
            "Nothing was selected: tick the boxes of some letters, or choose all that match.",
        );
        return Ok(note.redirect(view.app().base(), &back.to_string()));
    }
    let counted = if is_matching {
        view.ask(count_target(
            view.app(),
            &BulkTarget::letters(&filter.selection(), &AmendAction::Retry),
        ))
        .await?
    } else {
        JobCount::Exactly(picks.len() as u64)
    };
    let queues = view.ask(view.store().queues(view.now())).await?;
    let page = DeadLetterConfirmPage {
        frame: view.frame(
            PageSection::Dead,
            format!("{} dead letters?", capital(verb)),
        ),
        verb,
        is_danger: letter_action == DeadLetterAction::Delete,
        is_move: letter_action == DeadLetterAction::Move,
        to: view.query("to").unwrap_or_default().to_owned(),
        queues: queues
            .iter()
            .take(500)
            .map(|queue| queue.name.to_string())
            .collect(),
        consequence,
        is_exact: counted.exact().is_some(),
        count: describe_count(counted),
        ids: picks
            .iter()
            .map(|pick| (short(pick.id), pick.link(&view, "/dead").to_string()))
            .collect(),
        chips: if is_matching {
            filter.chips(&back)
        } else {
            Vec::new()
        },
        is_all: is_matching && filter.0.is_empty(),
        is_matching,
        must_type: is_matching && letter_action == DeadLetterAction::Delete,
        act: view.at("/dead/act"),
        redrive: filter.on(view.at("/dead/redrive")).to_string(),
        fields: confirm_fields(verb, &filter.on(String::new()), &picks, is_matching),
        back: back.to_string(),
    };
    view.show(&page)
}

/// Does it: to those that were picked at once, to all that match in the background.
pub(super) async fn act(view: PageView, posted: PostedForm) -> Result<Response, PageFailure> {
    let letter_action = DeadLetterAction::of(&view, posted.get("action"))?;
    let filter = DeadLetterFilter::posted(&view, &posted)?;
    let to = match letter_action {
        DeadLetterAction::Move => Some(posted.read::<QueueName>(&view, "to")?),
        DeadLetterAction::Requeue | DeadLetterAction::Delete => None,
    };
    let back = match posted.get("back") {
        Some("job") => {
            let pick = JobRef::read(posted.get("id").unwrap_or_default());
            JobRef {
                queue: to.clone().or(pick.queue),
                ..pick
            }
            .link(&view, "/jobs")
        }
        _ => filter.on(view.at("/dead")).with("view", "letters"),
    };
    let action = match (letter_action, &to) {
        (DeadLetterAction::Move, Some(queue)) => AmendAction::Move(queue.clone()),
        (DeadLetterAction::Delete, _) => AmendAction::Delete,
        (DeadLetterAction::Requeue | DeadLetterAction::Move, _) => AmendAction::Retry,
    };
    if posted.get("all").is_some() {
        if !is_confirmed(&posted, &action) {
            return Ok(back_to_confirm(
                &view,
                &posted,
                filter.on(view.at("/dead/confirm")),
            ));
        }
        return start(
            &view,
            &posted,
            BulkTarget::letters(&filter.selection(), &action),
            &back,
        )
        .await;
    }
    let picks = JobRef::all(&view, posted.all("id"))?;
    if picks.is_empty() {
        return Ok(FlashMessage::refused("Nothing was selected.")
            .redirect(view.app().base(), &back.to_string()));
    }
    let part = |(queue, ids)| match queue {
        Some(queue) => DeadSelection::Within { queue, ids },
        None => DeadSelection::Ids(ids),
    };
    let parts: Vec<DeadSelection> = by_queue(&picks).into_iter().map(part).collect();
    let mut changed = DeadChangeResult::default();
    let done = letters(&view)
        .because(posted.reason(&view)?)
        .change_each(&parts, &action, &mut changed)
        .await;
    let outcome = JobActionOutcome::of(
        &view,
        done,
        changed.count,
        changed.refused,
        changed.more_refused,
    )?;
    Ok(outcome
        .note(&action)
        .redirect(view.app().base(), &back.to_string()))
}
