//! Whose turn it is to run a sweep, among all processes: a cell that one of them changes first. The
//! rule is [`SweepTurn`]'s.

use super::Sweep;
use crate::client::Backstop;
use crate::shared_cells::{read, update};
use backstop_core::port::StoreResult;
use backstop_core::sweep::{SweepBusyError, SweepTurn};
use backstop_core::{Span, Time};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A runner that has not been heard of for so long is taken for dead.
const TURN_SPAN: Span = Span::secs(30);
/// And says so often that it lives.
pub(super) const KEEP_EVERY: Duration = Duration::from_secs(7);

/// The turn that stands, if any.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct SweepTurnCell(Option<SweepTurn>);

fn cell(sweep: &Sweep) -> String {
    sweep.cell("turn")
}

/// When the next run may begin.
pub(super) async fn next(backstop: &Backstop, sweep: &Sweep) -> StoreResult<Time> {
    let cell = backstop
        .store()
        .cells(vec![cell(sweep)])
        .await?
        .pop()
        .flatten();
    let stored = cell
        .as_ref()
        .and_then(read::<SweepTurnCell>)
        .and_then(|stored| stored.0);
    Ok(SweepTurn::next(
        stored.as_ref(),
        sweep.period(),
        backstop.now(),
    ))
}

/// Takes the turn, if it may be taken. `every` is the period, nothing for a run by hand.
pub(super) async fn take(
    backstop: &Backstop,
    sweep: &Sweep,
    runner: &str,
    every: Span,
) -> StoreResult<Result<SweepTurn, SweepBusyError>> {
    let change = |stored: &mut SweepTurnCell| {
        let begun = SweepTurn::begin(stored.0.as_ref(), runner, every, TURN_SPAN, backstop.now());
        if let Ok(turn) = &begun {
            stored.0 = Some(turn.clone());
        }
        begun
    };
    let (_, begun) = update(backstop, &cell(sweep), SweepTurnCell(None), change).await?;
    Ok(begun)
}

/// Keeps a turn that goes on: its runner lives.
pub(super) async fn keep(backstop: &Backstop, sweep: &Sweep, turn: &SweepTurn) {
    let until = backstop.now().after(TURN_SPAN);
    change(backstop, sweep, turn, |own| {
        own.until = own.until.max(until);
    })
    .await;
}

/// Notes that a turn has ended, unless somebody has followed its runner meanwhile.
pub(super) async fn end(backstop: &Backstop, sweep: &Sweep, turn: &SweepTurn) {
    change(backstop, sweep, turn, |own| own.ended = true).await;
}

/// Leaves a turn to whoever comes next: its runner is told to stop.
pub(super) async fn leave(backstop: &Backstop, sweep: &Sweep, turn: &SweepTurn) {
    let now = backstop.now();
    change(backstop, sweep, turn, |own| own.until = now).await;
}

async fn change(
    backstop: &Backstop,
    sweep: &Sweep,
    turn: &SweepTurn,
    change: impl Fn(&mut SweepTurn),
) {
    let cell = cell(sweep);
    let changed = update(backstop, &cell, SweepTurnCell(None), |stored| {
        let own = stored
            .0
            .as_mut()
            .filter(|own| own.began == turn.began && own.runner == turn.runner);
        if let Some(own) = own {
            change(own);
        }
    });
    if let Err(error) = changed.await {
        tracing::warn!(%error, sweep = sweep.name(), "how a run stands was not noted; others may follow {TURN_SPAN} after the last note");
    }
}
