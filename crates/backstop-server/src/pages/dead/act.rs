//! Requeueing, moving and deleting dead letters.

use super::filter::{LetterFilter, count};
use super::letters;
use crate::bulk::{Plan, Target};
use crate::pages::jobs::{
    Chip, Counted, capital, handed_on, is_meant, outcome, picked, short, start, unmeant,
};
use crate::pages::link::Link;
use crate::pages::{Frame, Note, PageFailure, Posted, Section, View};
use askama::Template;
use axum::response::Response;
use backstop::dead::DeadSelection;
use backstop_core::amend::Action;
use backstop_core::{JobId, QueueName};

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
            Self::Move => {
                ("move", "They become ready in another queue, with all attempts again; their history stays.")
            }
            Self::Delete => ("delete", "They are removed with their history and cannot be brought back."),
        }
    }
}

/// What is about to happen, and to how many.
pub(super) async fn confirm(view: View) -> Result<Response, PageFailure> {
    let asked = Asked::of(&view, view.query("action"))?;
    let (verb, consequence) = asked.told();
    let filter = LetterFilter::of(&view)?;
    let ids =
        picked(&view, view.queries().iter().filter(|(name, _)| name == "id").map(|(_, id)| id.as_str()))?;
    let is_matching = view.query("all").is_some();
    let back = filter.on(view.at("/dead")).with("view", "letters");
    if ids.is_empty() && !is_matching {
        let note =
            Note::refused("Nothing was selected: tick the boxes of some letters, or choose all that match.");
        return Ok(note.on(view.app().base(), &back.to_string()));
    }
    let counted = if is_matching {
        view.ask(count(&letters(&view), &filter.0)).await?
    } else {
        Some(Counted { count: ids.len() as u64, is_exact: true })
    };
    let queues = view.ask(view.store().queues(view.now())).await?;
    let page = Page {
        frame: view.frame(Section::Dead, format!("{} dead letters?", capital(verb))),
        verb,
        is_danger: asked == Asked::Delete,
        is_move: asked == Asked::Move,
        to: view.query("to").unwrap_or_default().to_owned(),
        queues: queues.iter().take(500).map(|queue| queue.name.to_string()).collect(),
        consequence,
        is_exact: counted.is_some_and(|counted| counted.is_exact),
        count: counted.map(|counted| counted.to_string()),
        ids: ids.iter().map(|id| (short(*id), view.at(&format!("/dead/{id}")))).collect(),
        chips: if is_matching { filter.chips(&back) } else { Vec::new() },
        is_all: is_matching && filter.0.is_empty(),
        is_matching,
        must_type: is_matching && asked == Asked::Delete,
        act: view.at("/dead/act"),
        redrive: filter.on(view.at("/dead/redrive")).to_string(),
        fields: handed_on(verb, &filter.on(String::new()), &ids, is_matching),
        back: back.to_string(),
    };
    view.show(&page)
}

/// Does it: to those that were picked at once, to all that match in the background.
pub(super) async fn act(view: View, posted: Posted) -> Result<Response, PageFailure> {
    let asked = Asked::of(&view, posted.get("action"))?;
    let filter = LetterFilter::posted(&view, &posted)?;
    let back = match posted.get("back") {
        Some("job") => {
            Link::to(view.at(&format!("/jobs/{}", JobId::from_text(posted.get("id").unwrap_or_default()))))
        }
        _ => filter.on(view.at("/dead")).with("view", "letters"),
    };
    let to = match asked {
        Asked::Move => Some(posted.read::<QueueName>(&view, "to")?),
        Asked::Requeue | Asked::Delete => None,
    };
    let action = match (asked, &to) {
        (Asked::Move, Some(queue)) => Action::Move(queue.clone()),
        (Asked::Delete, _) => Action::Delete,
        (Asked::Requeue | Asked::Move, _) => Action::Retry,
    };
    if posted.get("all").is_some() {
        if !is_meant(&posted, &action) {
            return Ok(unmeant(&view, filter.on(view.at("/dead/confirm"))));
        }
        let expected = view.ask(count(&letters(&view), &filter.0)).await?.map(|counted| counted.count);
        let target = Target::letters(&filter.selection(), &action);
        return start(&view, Plan { target, expected, back: back.to_string() }, &back).await;
    }
    let ids = picked(&view, posted.all("id"))?;
    if ids.is_empty() {
        return Ok(Note::refused("Nothing was selected.").on(view.app().base(), &back.to_string()));
    }
    let (dead, selection) = (letters(&view), DeadSelection::Ids(ids));
    let changed = match &action {
        Action::Move(queue) => view.ask(dead.move_to(&selection, queue)).await?,
        Action::Delete => view.ask(dead.delete(&selection)).await?,
        Action::Retry | Action::Cancel => view.ask(dead.requeue(&selection)).await?,
    };
    Ok(outcome(&action, changed.count, &changed.refused).on(view.app().base(), &back.to_string()))
}
