//! Forgets locks that nobody has had for a day, marks whose time is over, and what workers said
//! that are gone: cells do not go by themselves.

use super::Engine;
use crate::http_workers::suspects::{HttpSuspectSlot, SUSPECTS};
use crate::idempotence::{DONE, DoneMark, LOCK, LockCell};
use crate::shared_cells::{CellWalk, read, remove};
use crate::worker_kinds::{self, KINDS, WorkerKinds};
use crate::workers::heartbeat::{COMMANDS, CommandCell, HEARTBEATS, WorkerHeartbeat};
use backstop_core::Span;
use backstop_core::port::{Cell, StoreResult};

/// How long a lock is remembered after it was free: its next term is then surely higher by the
/// clock.
const LOCK_KEPT: Span = Span::days(1);
/// Pages looked at in one go; the next go goes on from there.
const PAGES_MAX: usize = 5;

/// How far each kind of cell was looked through.
#[derive(Default)]
pub(super) struct CellCollector {
    locks: Option<String>,
    marks: Option<String>,
    kinds: Option<String>,
    suspects: Option<String>,
    heartbeats: Option<String>,
    commands: Option<String>,
}

impl CellCollector {
    /// Looks through the next cells.
    pub(super) async fn collect_next(&mut self, engine: &Engine) {
        let now = engine.now();
        let is_old_lock = |cell: &Cell| {
            let held = read::<LockCell>(cell).and_then(|slot| slot.0);
            held.is_none_or(|held| held.until.after(LOCK_KEPT) < now)
        };
        let is_old_mark = |cell: &Cell| read::<DoneMark>(cell).is_none_or(|mark| mark.until < now);
        let collected = async {
            collect_old(engine, LOCK, &mut self.locks, is_old_lock).await?;
            collect_old(engine, DONE, &mut self.marks, is_old_mark).await?;
            let living = engine.store().workers(worker_kinds::KEPT, now).await?;
            let living = living
                .into_iter()
                .map(|worker| worker.name.to_string())
                .collect();
            collect_old(engine, KINDS, &mut self.kinds, |cell| {
                WorkerKinds::is_over(cell, &living, now)
            })
            .await?;
            collect_old(engine, SUSPECTS, &mut self.suspects, |cell| {
                HttpSuspectSlot::is_over(cell, &living)
            })
            .await?;
            collect_old(engine, HEARTBEATS, &mut self.heartbeats, |cell| {
                WorkerHeartbeat::is_over(cell, &living, now)
            })
            .await?;
            collect_old(engine, COMMANDS, &mut self.commands, |cell| {
                CommandCell::is_over(cell, &living)
            })
            .await
        };
        if let Err(error) = collected.await {
            tracing::warn!(%error, "old locks and marks were not removed");
        }
    }
}

async fn collect_old(
    engine: &Engine,
    prefix: &str,
    after: &mut Option<String>,
    is_old: impl Fn(&Cell) -> bool,
) -> StoreResult<()> {
    let mut walk = CellWalk::new(&engine.backstop, prefix).resume_after(after.take());
    for _ in 0..PAGES_MAX {
        let Some(mut cells) = walk.next().await? else {
            break;
        };
        cells.retain(|cell| is_old(cell));
        remove(&engine.backstop, &cells).await?;
    }
    *after = walk.last_name();
    Ok(())
}
