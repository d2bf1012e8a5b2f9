//! Does something to many jobs, however many there are.

use super::SelectionArgs;
use crate::context::Context;
use crate::output::json::{AmendedShape, RefusedShape};
use crate::output::words::counted;
use crate::trouble::{Trouble, Verdict};
use backstop::{Backstop, JobId};
use backstop_core::amend::{Action, Selection};
use backstop_core::limits::AMEND_MAX;
use backstop_core::port::Amendment;
use std::collections::BTreeSet;

/// Refusals told one by one to people; programs get all of them.
const REFUSED_TOLD_MAX: usize = 20;

/// Does what was asked for; exits 1 if any job refused it.
pub(crate) async fn run(args: &SelectionArgs, action: Action, context: &Context) -> Result<Verdict, Trouble> {
    let selection = selection(args, &action)?;
    let backstop = context.look().await?;
    let amended = amend_all(&backstop, &selection, &action).await?;
    if context.output.is_json() {
        context.output.json(&amended)?;
    } else {
        context.output.line(format!("{} {}", counted(amended.count, "job"), done_word(&action)))?;
        for refused in amended.refused.iter().take(REFUSED_TOLD_MAX) {
            context.output.warn(format!("{}: {}", refused.id, refused.why));
        }
        if amended.refused.len() > REFUSED_TOLD_MAX {
            context.output.warn(format!("… and {} more refused", amended.refused.len() - REFUSED_TOLD_MAX));
        }
    }
    Ok(if amended.refused.is_empty() { Verdict::Fine } else { Verdict::FallsShort })
}

/// Amends in as many calls as it takes.
pub(crate) async fn amend_all(
    backstop: &Backstop,
    selection: &Selection,
    action: &Action,
) -> Result<AmendedShape, Trouble> {
    let mut total = AmendedShape { count: 0, refused: Vec::new() };
    let mut known = BTreeSet::new();
    for selection in parts(selection) {
        let action = action.clone();
        let mut amendment = Amendment { selection, action, only: None, cursor: None, max: AMEND_MAX };
        loop {
            let amended = backstop.store().amend(amendment.clone(), backstop.now()).await?;
            total.count += amended.applied as u64;
            // An id that was named twice is told once.
            let news = amended.refused.into_iter().filter(|(id, _)| known.insert(*id));
            total.refused.extend(news.map(|(id, refusal)| RefusedShape::new(id, refusal)));
            amendment.cursor = amended.next;
            if amendment.cursor.is_none() {
                break;
            }
        }
    }
    Ok(total)
}

/// One call takes a limited number of ids.
fn parts(selection: &Selection) -> Vec<Selection> {
    match selection {
        Selection::Ids(ids) => ids.chunks(AMEND_MAX).map(|part| Selection::Ids(part.to_vec())).collect(),
        other => vec![other.clone()],
    }
}

fn selection(args: &SelectionArgs, action: &Action) -> Result<Selection, Trouble> {
    let filter = args.filter.filter();
    let word = word(action);
    match (args.ids.is_empty(), filter.is_empty(), args.all) {
        (false, true, false) => Ok(Selection::Ids(args.ids.iter().map(|id| JobId::from_text(id)).collect())),
        (true, false, false) => Ok(Selection::Matching(filter)),
        (true, true, true) => Ok(Selection::All),
        (true, true, false) => Err(Trouble::misuse(format!("which jobs to {word}?"))
            .advise(format!("backstop job {word} ID…, or --queue, --kind, --state, or --all for every job"))),
        _ => Err(Trouble::misuse("ids, filters and --all are three ways to say which jobs; use one of them")
            .advise(format!("backstop job {word} --help"))),
    }
}

const fn word(action: &Action) -> &'static str {
    match action {
        Action::Retry => "retry",
        Action::Cancel => "cancel",
        Action::Delete => "delete",
        Action::Move(_) => "move",
    }
}

const fn done_word(action: &Action) -> &'static str {
    match action {
        Action::Retry => "made ready",
        Action::Cancel => "cancelled",
        Action::Delete => "deleted",
        Action::Move(_) => "moved",
    }
}
