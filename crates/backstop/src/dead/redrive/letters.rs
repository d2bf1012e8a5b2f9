//! The letters of a redrive, in the order they go: those that fit are read page by page, those that were picked are kept from when
//! it was written down.

use super::watch::Redriven;
use crate::dead::change::once;
use crate::dead::{DeadFilter, DeadLetters, DeadSelection};
use crate::shared::{cells, read, remove, update};
use backstop_core::limits::{FIND_MAX, PAGE_MAX};
use backstop_core::port::{Answer, Order, StoreError};
use backstop_core::{JobId, QueueName, Time};
use serde::{Deserialize, Serialize};

/// Ids of one cell.
const PART_MAX: usize = 500;

/// Which letters.
pub(super) enum Letters {
    /// Those that fit.
    Fitting(DeadFilter),
    /// These.
    Picked(Vec<JobId>),
}

/// How far they were read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reached {
    Nothing,
    /// The page behind this cursor is next.
    Page(String),
    /// So many of those picked.
    Picks(usize),
    End,
}

/// The next of them.
pub(super) struct Next {
    pub(super) letters: Vec<Redriven>,
    /// Picked, and not dead, or not as they were when it was written down.
    pub(super) alive: Vec<JobId>,
    /// How many cannot be read.
    pub(super) damaged: u64,
    pub(super) reached: Reached,
}

/// Some of those picked.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Part(Vec<JobId>);

impl Letters {
    /// What a selection means for a redrive that was written down at `started_at`; what was picked is yet to be read.
    pub(super) fn of(selection: &DeadSelection, started_at: Time) -> Self {
        match selection {
            DeadSelection::Matching(filter) => Self::Fitting(filter.as_of(started_at)),
            DeadSelection::All => Self::Fitting(DeadFilter::default().as_of(started_at)),
            DeadSelection::Ids(_) | DeadSelection::Within { .. } | DeadSelection::Oldest { .. } => {
                Self::Picked(Vec::new())
            }
        }
    }
}

impl DeadLetters {
    /// The letters that a selection names one by one at `now`; `None` if it says what fits.
    pub(super) async fn pick(&self, selection: &DeadSelection, now: Time) -> Answer<Option<Vec<JobId>>> {
        Ok(match selection {
            DeadSelection::Ids(ids) => Some(once(ids)),
            DeadSelection::Within { queue, ids } => Some(self.known_in(queue, &once(ids), now).await?),
            DeadSelection::Oldest { queue, count } => {
                let filter = DeadFilter { queue: Some(queue.clone()), ..DeadFilter::default() };
                Some(self.oldest(&filter.as_of(now), *count).await?)
            }
            DeadSelection::Matching(_) | DeadSelection::All => None,
        })
    }

    /// Those of the ids that the queue knows.
    async fn known_in(&self, queue: &QueueName, ids: &[JobId], now: Time) -> Answer<Vec<JobId>> {
        let mut known = Vec::new();
        for part in ids.chunks(FIND_MAX) {
            let found = self.backstop.store().find(queue.clone(), part.to_vec(), now).await?;
            known.extend(found.into_iter().flatten().map(|job| job.id));
        }
        Ok(known)
    }

    async fn oldest(&self, filter: &DeadFilter, count: usize) -> Answer<Vec<JobId>> {
        let (mut picked, mut cursor) = (Vec::new(), None);
        while picked.len() < count {
            let found =
                self.find(filter, cursor, (count - picked.len()).min(PAGE_MAX), Order::Oldest).await?;
            picked.extend(found.jobs.iter().map(|job| job.id));
            cursor = found.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(picked)
    }

    /// Keeps what was picked for a redrive.
    pub(super) async fn keep_picked(&self, id: &str, picked: &[JobId]) -> Answer<()> {
        for (number, part) in picked.chunks(PART_MAX).enumerate() {
            let (name, part) = (format!("{}{number:06}", picked_of(id)), Part(part.to_vec()));
            update(&self.backstop, &name, Part::default(), |standing| *standing = part.clone()).await?;
        }
        Ok(())
    }

    /// What was picked for a redrive.
    pub(super) async fn picked(&self, id: &str) -> Answer<Vec<JobId>> {
        let cells = cells(&self.backstop, &picked_of(id)).await?;
        Ok(cells.iter().filter_map(read::<Part>).flat_map(|part| part.0).collect())
    }

    pub(super) async fn forget_picked(&self, id: &str) -> Answer<()> {
        remove(&self.backstop, &cells(&self.backstop, &picked_of(id)).await?).await
    }

    /// The next letters of a redrive that was written down at `started_at`, at most `count`.
    pub(super) async fn next_letters(
        &self,
        letters: &Letters,
        reached: &Reached,
        count: usize,
        started_at: Time,
    ) -> Answer<Next> {
        match letters {
            Letters::Fitting(filter) => self.next_page(filter, reached, count).await,
            Letters::Picked(ids) => self.next_picks(ids, reached, count, started_at).await,
        }
    }

    async fn next_page(&self, filter: &DeadFilter, reached: &Reached, count: usize) -> Answer<Next> {
        let cursor = if let Reached::Page(cursor) = reached { Some(cursor.clone()) } else { None };
        let found = self.find(filter, cursor, count, Order::Oldest).await?;
        Ok(Next {
            letters: found.jobs.iter().map(Redriven::of).collect(),
            alive: Vec::new(),
            damaged: found.damaged.len() as u64,
            reached: found.next.map_or(Reached::End, Reached::Page),
        })
    }

    async fn next_picks(
        &self,
        ids: &[JobId],
        reached: &Reached,
        count: usize,
        started_at: Time,
    ) -> Answer<Next> {
        let from = if let Reached::Picks(from) = reached { *from } else { 0 };
        let to = ids.len().min(from + count);
        let reached = if to < ids.len() { Reached::Picks(to) } else { Reached::End };
        let mut next = Next { letters: Vec::new(), alive: Vec::new(), damaged: 0, reached };
        let was_dead = DeadFilter::default().as_of(started_at);
        for id in &ids[from..to] {
            match self.backstop.store().job(*id, self.backstop.now()).await {
                Ok(Some(job)) if was_dead.fits(&job, &self.redaction) => {
                    next.letters.push(Redriven::of(&job));
                }
                Ok(_) => next.alive.push(*id),
                Err(StoreError::Corrupt { .. }) => next.damaged += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(next)
    }
}

fn picked_of(id: &str) -> String {
    format!("picked/{id}/")
}
