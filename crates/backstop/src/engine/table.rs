//! Works off the tables a worker was given: a pass each in its period, of many workers by one; and
//! what a killed runner left, at once.

use super::Engine;
use crate::tables::{
    AdoptedTable, LOOK_INTERVAL_MAX, PassClock, PassReport, PassRows, Table, TableError,
};
use backstop_core::Span;
use backstop_core::port::StoreResult;
use futures_util::future::join_all;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// The shortest time between two looks.
const LOOK_MIN: Span = Span::millis(20);

/// Works tables off until told to stop.
pub(crate) async fn table_loop(engine: &Engine, stop: &CancellationToken) {
    join_all(
        engine
            .tables
            .iter()
            .map(|table| run_table(engine, table, stop)),
    )
    .await;
}

/// One pass after the other. One whose rows have all begun, and that only waits for a handler that
/// takes long, holds up none of those after it: they have the places that are left.
async fn run_table(engine: &Engine, table: &Table, stop: &CancellationToken) {
    let adopted = AdoptedTable::by(&engine.backstop, table, &engine.name, stop.clone());
    let mut waiting = JoinSet::new();
    while !stop.is_cancelled() {
        let wait = match whose_turn(engine, &adopted).await {
            Ok(None) => adopted.wait().await.unwrap_or(LOOK_INTERVAL_MAX),
            Ok(Some(which)) => {
                let is_done = run(engine, &adopted, which, &mut waiting).await;
                // A database that is down is not asked many times a second.
                if is_done { LOOK_MIN } else { LOOK_INTERVAL_MAX }
            }
            Err(error) => {
                tracing::warn!(%error, table = table.name(), "whose turn it is to work on a table could not be read");
                LOOK_INTERVAL_MAX
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = waiting.join_next() => { log_pass_end(table, ended.flatten()); }
            () = tokio::time::sleep(wait.max(LOOK_MIN).min(LOOK_INTERVAL_MAX).into()) => {}
        }
    }
    tokio::select! {
        () = async { while let Some(ended) = waiting.join_next().await { log_pass_end(table, ended.flatten()); } } => {}
        () = grace_is_over(engine, &adopted) => log_abandoned(engine, table),
    }
}

/// Whether it is this worker's turn, and for what. One that was asked to take nothing new leaves it
/// to others.
async fn whose_turn(engine: &Engine, adopted: &AdoptedTable) -> StoreResult<Option<PassRows>> {
    if engine.worker_commands.takes_jobs() {
        adopted.turn().await
    } else {
        Ok(None)
    }
}

/// What became of a pass, or of the task it ran in.
type TablePassEnd = Result<Result<PassReport, TableError>, JoinError>;

/// One pass, away from the loops that must not wait: a handler may block. Told to stop, it takes no
/// more rows; what has not ended within the grace is called off. Whether all its rows began. From
/// then on it is among those that are `waiting`.
async fn run(
    engine: &Engine,
    adopted: &AdoptedTable,
    which: PassRows,
    waiting: &mut JoinSet<TablePassEnd>,
) -> bool {
    let begun = CancellationToken::new();
    let pass = {
        let (adopted, begun) = (adopted.clone(), begun.clone());
        async move {
            adopted
                .pass(PassClock::Now, which, &begun, &mut |_| {})
                .await
        }
    };
    let task = match &engine.callers {
        Some(runtime) => runtime.spawn(pass),
        None => tokio::spawn(pass),
    };
    let mut task = AbortOnDropHandle::new(task);
    let ended = tokio::select! {
        biased;
        ended = &mut task => ended,
        () = begun.cancelled() => {
            waiting.spawn(task);
            return true;
        }
        () = grace_is_over(engine, adopted) => {
            log_abandoned(engine, adopted.table());
            return false;
        }
    };
    log_pass_end(adopted.table(), ended)
}

/// Tells what became of a pass; whether it came to its end.
fn log_pass_end(table: &Table, ended: TablePassEnd) -> bool {
    match ended {
        Ok(outcome) => {
            log_pass(table, &outcome);
            outcome.is_ok()
        }
        Err(error) => {
            tracing::error!(%error, table = table.name(), "a pass over a table did not end by itself");
            false
        }
    }
}

fn log_abandoned(engine: &Engine, table: &Table) {
    tracing::warn!(
        table = table.name(),
        "rows were not done with within {}; their lease ends by itself",
        engine.timing.grace
    );
}

async fn grace_is_over(engine: &Engine, adopted: &AdoptedTable) {
    adopted.stopped().await;
    tokio::time::sleep(engine.timing.grace.into()).await;
}

fn log_pass(table: &Table, outcome: &Result<PassReport, TableError>) {
    let table = table.name();
    match outcome {
        Err(error) => {
            tracing::error!(%error, table, "a pass over a table failed; the next one looks again");
        }
        Ok(pass) => {
            if pass.due > 0 {
                let PassReport {
                    succeeded,
                    failed,
                    overtaken,
                    ..
                } = pass;
                tracing::info!(table, succeeded, failed, overtaken, "a pass over a table");
            }
            if pass.unwritten > 0 {
                tracing::error!(
                    table,
                    count = pass.unwritten,
                    "rows were handled and could not be written; they will run again"
                );
            }
        }
    }
}

impl AdoptedTable {
    /// Whether it is this worker's turn, and for what: a pass of its own period, or rows that
    /// somebody left.
    async fn turn(&self) -> StoreResult<Option<PassRows>> {
        if !self.has_place() {
            // All handlers hang: this is somebody else's turn.
            return Ok(None);
        }
        let (clock, mut state) = (self.now(), self.load_live_state().await?);
        let every = self.table().period();
        if !state.try_take_period(every, clock) {
            return Ok((!state.orphans.is_empty()).then_some(PassRows::Orphans));
        }
        let (_, is_ours) = self
            .change_state(|state| state.try_take_period(every, self.now()))
            .await?;
        Ok(is_ours.then_some(PassRows::Due))
    }

    /// How long until the next pass, or until the next lease ends.
    async fn wait(&self) -> StoreResult<Span> {
        let (clock, state, every) = (self.now(), self.load_state().await?, self.table().period());
        let next = backstop_core::table::last_tick(every, clock).after(every);
        let end = state
            .earliest_lease_end()
            .map_or(next, |end| end.after(LOOK_MIN));
        Ok(next.min(end).since(clock))
    }
}
