//! What workers elsewhere tell of themselves, and what they are asked for. Both go through whoever speaks for them: nothing is handed out to
//! one that was asked to take no new jobs, and its beats tell it so.

use super::{NOTED_MAX, Remote};
use crate::shared::remove;
use crate::workers::About;
use crate::workers::card::{Card, put_card, read_order, run_of};
use backstop_core::order::{Asked, SILENCE_MAX, Standing};
use backstop_core::port::Answer;
use backstop_core::{Span, Time, WorkerName};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The store is asked for a worker's orders no more often than this.
const ORDERS_EVERY: Span = Span::secs(2);
/// What changes all the time is told no more often than this.
const CARDS_EVERY: Span = Span::secs(10);

/// Something that was true of a worker at a time.
#[derive(Clone, Debug)]
struct Seen<T> {
    at: Time,
    what: T,
}

/// What was last seen of each worker. With more of them than there is room for, some are looked at more often.
#[derive(Debug)]
pub(super) struct Memory<T>(Mutex<BTreeMap<WorkerName, Seen<T>>>);

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Memory<T> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<WorkerName, Seen<T>>> {
        // One map, always whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was seen of it, and whether that was less than `within` ago.
    fn of(&self, worker: &WorkerName, within: Span, now: Time) -> Option<(T, bool)> {
        let seen = self.lock().get(worker).cloned()?;
        Some((seen.what, seen.at <= now && now.since(seen.at) < within))
    }

    fn note(&self, worker: &WorkerName, what: T, within: Span, now: Time) {
        let mut seen = self.lock();
        if seen.len() >= NOTED_MAX && !seen.contains_key(worker) {
            seen.retain(|_, seen| seen.at <= now && now.since(seen.at) < within);
        }
        if seen.len() < NOTED_MAX || seen.contains_key(worker) {
            seen.insert(worker.clone(), Seen { at: now, what });
        }
    }
}

impl Remote<'_> {
    /// What this worker, which tells `about` of itself, is asked for; asked of the store every other second at most. To be called before
    /// the worker is noted as alive: one that was silent for long may be another one by now.
    pub async fn asked(&self, worker: &WorkerName, about: &About) -> Answer<Option<Asked>> {
        let (now, heard) = (self.backstop.now(), &self.attendance.orders);
        if let Some((asked, true)) = heard.of(worker, ORDERS_EVERY, now) {
            return Ok(asked);
        }
        let asked = match read_order(self.backstop, worker).await? {
            None => None,
            Some((order, _)) if self.is_meant(worker, about, &order).await? => Some(order.asked),
            Some((_, cell)) => {
                // Left behind by a run that is over. If it stood, it would be taken for an order to this one.
                remove(self.backstop, &[cell]).await?;
                None
            }
        };
        heard.note(worker, asked, ORDERS_EVERY, now);
        Ok(asked)
    }

    async fn is_meant(&self, worker: &WorkerName, about: &About, order: &Standing) -> Answer<bool> {
        if let Some(run) = run_of(about) {
            return Ok(order.is_for(&run));
        }
        let now = self.backstop.now();
        let workers = self.backstop.store().workers(SILENCE_MAX, now).await?;
        let seen_at = workers.into_iter().find(|one| one.name == *worker).map(|one| one.seen_at);
        Ok(order.is_for_unknown(seen_at, now))
    }

    /// Puts down what a worker tells of itself, if that is new, or was not told for a while.
    pub(super) async fn put_down(&self, worker: &WorkerName, about: &About) -> Answer<()> {
        let Some(card) = Card::elsewhere(about) else { return Ok(()) };
        let (now, told) = (self.backstop.now(), &self.attendance.cards);
        match told.of(worker, CARDS_EVERY, now) {
            Some((last, true)) if last.is_as(&card) => return Ok(()),
            Some((last, false)) if last.says_as(&card) => {}
            _ => put_card(self.backstop, worker, &card).await?,
        }
        told.note(worker, card, CARDS_EVERY, now);
        Ok(())
    }
}
