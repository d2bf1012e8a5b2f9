//! Forgets locks that nobody has had for a day, marks whose time is over, and what workers said
//! that are gone: cells do not go by themselves.

use super::Engine;
use crate::idempotence::{DONE, LOCK, Mark, Slot};
use crate::kinds::{self, KINDS, Known};
use crate::remote::suspects::{Place, SUSPECTS};
use crate::shared::{Walk, read, remove};
use crate::workers::card::{CARDS, Card, ORDERS, OrderCell};
use backstop_core::Span;
use backstop_core::port::{Answer, Cell};

/// How long a lock is remembered after it was free: its next term is then surely higher by the
/// clock.
const LOCK_KEPT: Span = Span::days(1);
/// Pages looked at in one go; the next go goes on from there.
const PAGES_MAX: usize = 5;

/// How far each kind of cell was looked through.
#[derive(Default)]
pub(super) struct Tidy {
    locks: Option<String>,
    marks: Option<String>,
    kinds: Option<String>,
    suspects: Option<String>,
    cards: Option<String>,
    orders: Option<String>,
}

impl Tidy {
    /// Looks through the next cells.
    pub(super) async fn go_on(&mut self, engine: &Engine) {
        let now = engine.now();
        let is_old_lock = |cell: &Cell| {
            let held = read::<Slot>(cell).and_then(|slot| slot.0);
            held.is_none_or(|held| held.until.after(LOCK_KEPT) < now)
        };
        let is_old_mark = |cell: &Cell| read::<Mark>(cell).is_none_or(|mark| mark.until < now);
        let tidied = async {
            look_through(engine, LOCK, &mut self.locks, is_old_lock).await?;
            look_through(engine, DONE, &mut self.marks, is_old_mark).await?;
            let living = engine.store().workers(kinds::KEPT, now).await?;
            let living = living
                .into_iter()
                .map(|worker| worker.name.to_string())
                .collect();
            look_through(engine, KINDS, &mut self.kinds, |cell| {
                Known::is_over(cell, &living, now)
            })
            .await?;
            look_through(engine, SUSPECTS, &mut self.suspects, |cell| {
                Place::is_over(cell, &living)
            })
            .await?;
            look_through(engine, CARDS, &mut self.cards, |cell| {
                Card::is_over(cell, &living, now)
            })
            .await?;
            look_through(engine, ORDERS, &mut self.orders, |cell| {
                OrderCell::is_over(cell, &living)
            })
            .await
        };
        if let Err(error) = tidied.await {
            tracing::warn!(%error, "old locks and marks were not removed");
        }
    }
}

async fn look_through(
    engine: &Engine,
    prefix: &str,
    after: &mut Option<String>,
    is_old: impl Fn(&Cell) -> bool,
) -> Answer<()> {
    let mut walk = Walk::new(&engine.backstop, prefix).going_on(after.take());
    for _ in 0..PAGES_MAX {
        let Some(mut cells) = walk.next().await? else {
            break;
        };
        cells.retain(|cell| is_old(cell));
        remove(&engine.backstop, &cells).await?;
    }
    *after = walk.at();
    Ok(())
}
