//! What workers elsewhere tell of themselves, and what they are asked for. Both go through whoever
//! speaks for them: nothing is handed out to one that was asked to take no new jobs, and its beats
//! tell it so.
//!
//! Which order is for whom, [`backstop_core::order`] says. Anybody may go by any name here. So what
//! was asked of a run that is told stands until it is taken back or forgotten, whoever calls; only
//! an order that a silence has ended is taken away, since nobody could tell it from one for the
//! next run.

use super::{NOTED_MAX, Remote};
use crate::shared::remove;
use crate::workers::About;
use crate::workers::card::{Card, put_card_elsewhere, read_both, told_of};
use backstop_core::order::{Asked, SILENCE_MAX, Standing, Told};
use backstop_core::port::Answer;
use backstop_core::{Span, Time, WorkerName};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The store is asked for a worker's orders no more often than this.
const ORDERS_EVERY: Span = Span::secs(2);
/// What changes all the time is told no more often than this.
const CARDS_EVERY: Span = Span::secs(10);
/// How often a card is put down although it says nothing new: somebody may have taken it away.
const CARDS_AGAIN: Span = Span::minutes(1);

/// Something that was true of a worker at a time.
#[derive(Clone, Debug)]
struct Seen<T> {
    at: Time,
    what: T,
}

impl<T> Seen<T> {
    fn is_within(&self, within: Span, now: Time) -> bool {
        self.at <= now && now.since(self.at) < within
    }
}

/// What was last seen of each worker. With more of them than there is room for, some are looked at
/// more often.
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

    fn of(&self, worker: &WorkerName) -> Option<Seen<T>> {
        self.lock().get(worker).cloned()
    }

    /// Remembers what was seen now; `within` says for how long others are worth remembering.
    fn note(&self, worker: &WorkerName, what: T, within: Span, now: Time) {
        let mut seen = self.lock();
        if seen.len() >= NOTED_MAX && !seen.contains_key(worker) {
            seen.retain(|_, seen| seen.is_within(within, now));
        }
        if seen.len() < NOTED_MAX || seen.contains_key(worker) {
            seen.insert(worker.clone(), Seen { at: now, what });
        }
    }

    /// Changes what is remembered, if anything is.
    fn change(&self, worker: &WorkerName, change: impl FnOnce(&mut T)) {
        if let Some(seen) = self.lock().get_mut(worker) {
            change(&mut seen.what);
        }
    }
}

/// What was last heard about the orders of a worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    order: Option<Standing>,
    /// The run that was told last under its name.
    last: Option<String>,
    /// The order that it was told of.
    told: Option<Standing>,
}

impl Heard {
    /// The order that is for whoever makes a call, and was not silent before.
    fn order_for(&self, told: &Told) -> Option<Standing> {
        self.order
            .clone()
            .filter(|order| order.is_for_call(told, self.last.as_deref(), false))
    }
}

impl Remote<'_> {
    /// What this worker, which tells `about` of itself, is asked for; asked of the store every
    /// other second at most. To be called before the worker is noted as alive: one that was silent
    /// for long may be another one by now. It counts as told.
    pub async fn asked(&self, worker: &WorkerName, about: &About) -> Answer<Option<Asked>> {
        let order = self.order_for(worker, about).await?;
        Ok(order.map(|order| self.tell_of(worker, order)))
    }

    /// The same, within this time and in any case: where it cannot be read, what was heard last
    /// holds.
    pub(super) async fn asked_beside(
        &self,
        worker: &WorkerName,
        about: &About,
        within: Duration,
    ) -> Option<Asked> {
        match tokio::time::timeout(within, self.asked(worker, about)).await {
            Ok(Ok(asked)) => asked,
            failed => {
                tracing::debug!(?failed, %worker, "what a worker is asked for could not be read; what it was asked for last holds");
                let heard = self.attendance.orders.of(worker)?.what;
                heard
                    .order_for(&told_of(about))
                    .map(|order| self.tell_of(worker, order))
            }
        }
    }

    /// Whether what it is asked for has to be read before it is noted as alive: it does not say
    /// when it was started, and nobody here has heard it lately.
    pub(super) fn may_be_another(&self, worker: &WorkerName, about: &About) -> bool {
        about.since.is_none() && !self.was_heard(worker)
    }

    fn was_heard(&self, worker: &WorkerName) -> bool {
        let now = self.backstop.now();
        self.attendance
            .orders
            .of(worker)
            .is_some_and(|seen| seen.is_within(SILENCE_MAX, now))
    }

    /// The order that is for this worker.
    pub(super) async fn order_for(
        &self,
        worker: &WorkerName,
        about: &About,
    ) -> Answer<Option<Standing>> {
        let (now, told, memory) = (self.backstop.now(), told_of(about), &self.attendance.orders);
        let seen = memory.of(worker);
        if let Some(seen) = seen
            .as_ref()
            .filter(|seen| seen.is_within(ORDERS_EVERY, now))
        {
            return Ok(seen.what.order_for(&told));
        }
        let (card, order) = read_both(self.backstop, worker).await?;
        // Whoever goes by the name of a worker of a process is not that one.
        let last = card
            .filter(|card| !card.is_of_process())
            .and_then(|card| card.run)
            .map(|run| run.id);
        let order = match order {
            Some((order, cell))
                if order.hangs_on_silence(&told, last.as_deref())
                    && self.was_silent(worker).await? =>
            {
                // It was for a run that is over. If it stood, it would be taken for an order to
                // this one.
                remove(self.backstop, &[cell]).await?;
                None
            }
            order => order.map(|(order, _)| order),
        };
        let heard = Heard {
            order,
            last,
            told: seen.and_then(|seen| seen.what.told),
        };
        memory.note(worker, heard.clone(), ORDERS_EVERY, now);
        Ok(heard.order_for(&told))
    }

    async fn was_silent(&self, worker: &WorkerName) -> Answer<bool> {
        if self.was_heard(worker) {
            return Ok(false);
        }
        let workers = self
            .backstop
            .store()
            .workers(SILENCE_MAX, self.backstop.now())
            .await?;
        Ok(!workers.iter().any(|one| one.name == *worker))
    }

    /// Whether it was told of this order.
    pub(super) fn was_told(&self, worker: &WorkerName, order: &Standing) -> bool {
        self.attendance
            .orders
            .of(worker)
            .is_some_and(|seen| seen.what.told.as_ref() == Some(order))
    }

    /// It is told of an order: what it asks for.
    pub(super) fn tell_of(&self, worker: &WorkerName, order: Standing) -> Asked {
        let asked = order.asked;
        self.attendance
            .orders
            .change(worker, |heard| heard.told = Some(order));
        asked
    }

    /// Puts down what a worker tells of itself, in time or not at all: it is no reason to fail.
    pub(super) async fn put_down(&self, worker: &WorkerName, about: &About, within: Duration) {
        let put = tokio::time::timeout(within, self.put_news_down(worker, about)).await;
        if !matches!(put, Ok(Ok(()))) {
            tracing::debug!(?put, %worker, "what a worker tells of itself was not put down");
        }
    }

    /// If it is new, or was not put down for a while.
    async fn put_news_down(&self, worker: &WorkerName, about: &About) -> Answer<()> {
        let (now, memory) = (self.backstop.now(), &self.attendance.cards);
        let last = memory.of(worker);
        let before = last
            .as_ref()
            .map(|last| last.what.clone())
            .unwrap_or_default();
        let card = Card::elsewhere(about).over(&before);
        let is_known = |last: &Seen<Card>| {
            let says_as = card.says_as(&last.what) && last.is_within(CARDS_AGAIN, now);
            says_as || (card.says_as_much_as(&last.what) && last.is_within(CARDS_EVERY, now))
        };
        if last.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        put_card_elsewhere(self.backstop, worker, &card).await?;
        memory.note(worker, card, CARDS_AGAIN, now);
        Ok(())
    }
}
