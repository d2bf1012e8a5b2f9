//! Requeueing, moving and deleting dead letters.

use super::filter::LetterFilter;
use super::letters;
use crate::bulk::{Counted, Target, preview};
use crate::pages::jobs::{
    Chip, Outcome, capital, handed_on, is_meant, short, start, told_count, unmeant,
};
use crate::pages::pick::{Pick, by_queue};
use crate::pages::{Frame, Note, PageFailure, Posted, Section, View};
use askama::Template;
use axum::response::Response;
use backstop::dead::{Changed, DeadSelection};
use backstop_core::QueueName;
use backstop_core::amend::Action;

#[derive(Template)]
#[template(path = "dead_confirm.html")]
#[expect(clippy::struct_excessive_bools, reason = "what a template asks")]
struct Page {
    frame: Frame,
    verb: &'static str,
    is_danger: bool,
    is_move: bool,
    to: String,
    queues: Vec<String>,
    consequence: &'static str,
    count: Option<String>,
    is_exact: bool,
    ids: Vec<(String, String)>,
    chips: Vec<Chip>,
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
enum Asked {
    Requeue,
    Move,
    Delete,
}

impl Asked {
    fn of(view: &View, word: Option<&str>) -> Result<Self, PageFailure> {
        match word {
            Some("requeue") => Ok(Self::Requeue),
            Some("move") => Ok(Self::Move),
            Some("delete") => Ok(Self::Delete),
            _ => Err(view.bad("Dead letters can be requeued, moved and deleted; say which.")),
        }
    }

    const fn told(self) -> (&'static str, &'static str) {
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
pub(super) async fn confirm(view: View) -> Result<Response, PageFailure> {
    let asked = Asked::of(&view, view.query("action"))?;
    let (verb, consequence) = asked.told();
    let filter = LetterFilter::of(&view)?;
    let picks = Pick::all(&view, view.query_all("id"))?;
    let is_matching = view.query("all").is_some();
    let back = filter.on(view.at("/dead")).with("view", "letters");
    if picks.is_empty() && !is_matching {
        let note = Note::refused(
            "Nothing was selected: tick the boxes of some letters, or choose all that match.",
        );
        return Ok(note.on(view.app().base(), &back.to_string()));
    }
    let counted = if is_matching {
        view.ask(preview(
            view.app(),
            &Target::letters(&filter.selection(), &Action::Retry),
        ))
        .await?
    } else {
        Counted::Exactly(picks.len() as u64)
    };
    let queues = view.ask(view.store().queues(view.now())).await?;
    let page = Page {
        frame: view.frame(Section::Dead, format!("{} dead letters?", capital(verb))),
        verb,
        is_danger: asked == Asked::Delete,
        is_move: asked == Asked::Move,
        to: view.query("to").unwrap_or_default().to_owned(),
        queues: queues
            .iter()
            .take(500)
            .map(|queue| queue.name.to_string())
            .collect(),
        consequence,
        is_exact: counted.exact().is_some(),
        count: told_count(counted),
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
        must_type: is_matching && asked == Asked::Delete,
        act: view.at("/dead/act"),
        redrive: filter.on(view.at("/dead/redrive")).to_string(),
        fields: handed_on(verb, &filter.on(String::new()), &picks, is_matching),
        back: back.to_string(),
    };
    view.show(&page)
}

/// Does it: to those that were picked at once, to all that match in the background.
pub(super) async fn act(view: View, posted: Posted) -> Result<Response, PageFailure> {
    let asked = Asked::of(&view, posted.get("action"))?;
    let filter = LetterFilter::posted(&view, &posted)?;
    let to = match asked {
        Asked::Move => Some(posted.read::<QueueName>(&view, "to")?),
        Asked::Requeue | Asked::Delete => None,
    };
    let back = match posted.get("back") {
        Some("job") => {
            let pick = Pick::read(posted.get("id").unwrap_or_default());
            Pick {
                queue: to.clone().or(pick.queue),
                ..pick
            }
            .link(&view, "/jobs")
        }
        _ => filter.on(view.at("/dead")).with("view", "letters"),
    };
    let action = match (asked, &to) {
        (Asked::Move, Some(queue)) => Action::Move(queue.clone()),
        (Asked::Delete, _) => Action::Delete,
        (Asked::Requeue | Asked::Move, _) => Action::Retry,
    };
    if posted.get("all").is_some() {
        if !is_meant(&posted, &action) {
            return Ok(unmeant(&view, &posted, filter.on(view.at("/dead/confirm"))));
        }
        return start(
            &view,
            &posted,
            Target::letters(&filter.selection(), &action),
            &back,
        )
        .await;
    }
    let picks = Pick::all(&view, posted.all("id"))?;
    if picks.is_empty() {
        return Ok(Note::refused("Nothing was selected.").on(view.app().base(), &back.to_string()));
    }
    let part = |(queue, ids)| match queue {
        Some(queue) => DeadSelection::Within { queue, ids },
        None => DeadSelection::Ids(ids),
    };
    let parts: Vec<DeadSelection> = by_queue(&picks).into_iter().map(part).collect();
    let mut changed = Changed::default();
    let done = letters(&view)
        .because(posted.reason(&view)?)
        .change_each(&parts, &action, &mut changed)
        .await;
    let outcome = Outcome::of(
        &view,
        done,
        changed.count,
        changed.refused,
        changed.more_refused,
    )?;
    Ok(outcome
        .note(&action)
        .on(view.app().base(), &back.to_string()))
}
