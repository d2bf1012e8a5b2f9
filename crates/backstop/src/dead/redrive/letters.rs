//! The letters of a redrive, in the order they go: those that fit are read page by page, those that
//! were picked are kept from when it was written down.

use super::watch::RedrivenJob;
use crate::dead::change::deduplicate;
use crate::dead::{DeadFilter, DeadLetters, DeadSelection};
use crate::shared_cells::{cells, read, remove, update};
use backstop_core::limits::{FIND_MAX, PAGE_MAX};
use backstop_core::port::{ListOrder, StoreError, StoreResult};
use backstop_core::{Job, JobId, QueueName, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Begins the names of the cells that keep them.
pub(super) const PICKED: &str = "picked/";
const PART_MAX: usize = 500;

pub(super) enum LetterSelection {
    Matching(DeadFilter),
    Picked(Vec<JobId>),
}

/// How far they were read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LetterCursor {
    Nothing,
    /// The page behind this cursor is next.
    Page(String),
    /// So many of those picked.
    Picks(usize),
    End,
}

pub(super) struct LetterBatch {
    pub(super) letters: Vec<RedrivenJob>,
    /// Picked, and not dead, or not as they were when it was written down.
    pub(super) alive: Vec<JobId>,
    /// How many cannot be read.
    pub(super) damaged: u64,
    pub(super) reached: LetterCursor,
}

pub(super) enum JobSnapshot {
    Job(Option<Box<Job>>),
    Damaged,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct PickedPart(Vec<JobId>);

impl LetterSelection {
    /// What a selection means for a redrive that was written down at `started_at`; what was picked
    /// is yet to be read.
    pub(super) fn of(selection: &DeadSelection, started_at: Time) -> Self {
        match selection {
            DeadSelection::Matching(filter) => Self::Matching(filter.as_of(started_at)),
            DeadSelection::All => Self::Matching(DeadFilter::default().as_of(started_at)),
            DeadSelection::Ids(_) | DeadSelection::Within { .. } | DeadSelection::Oldest { .. } => {
                Self::Picked(Vec::new())
            }
        }
    }
}

impl DeadLetters {
    /// The letters that a selection names one by one at `now`; `None` if it says what fits.
    pub(super) async fn pick_letters(
        &self,
        selection: &DeadSelection,
        now: Time,
    ) -> StoreResult<Option<Vec<JobId>>> {
        Ok(match selection {
            DeadSelection::Ids(ids) | DeadSelection::Within { ids, .. } => Some(deduplicate(ids)),
            DeadSelection::Oldest { queue, count } => {
                let filter = DeadFilter {
                    queue: Some(queue.clone()),
                    ..DeadFilter::default()
                };
                Some(self.oldest(&filter.as_of(now), *count).await?)
            }
            DeadSelection::Matching(_) | DeadSelection::All => None,
        })
    }

    async fn oldest(&self, filter: &DeadFilter, count: usize) -> StoreResult<Vec<JobId>> {
        let (mut picked, mut cursor) = (Vec::new(), None);
        while picked.len() < count {
            let found = self
                .find(
                    filter,
                    cursor,
                    (count - picked.len()).min(PAGE_MAX),
                    ListOrder::Oldest,
                )
                .await?;
            picked.extend(found.jobs.iter().map(|job| job.id));
            cursor = found.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(picked)
    }

    /// Keeps what was picked for a redrive.
    pub(super) async fn keep_picked(&self, id: &str, picked: &[JobId]) -> StoreResult<()> {
        for (number, part) in picked.chunks(PART_MAX).enumerate() {
            let (name, part) = (
                format!("{}{number:06}", picked_prefix(id)),
                PickedPart(part.to_vec()),
            );
            update(&self.backstop, &name, PickedPart::default(), |stored| {
                *stored = part.clone();
            })
            .await?;
        }
        Ok(())
    }

    /// What was picked for a redrive.
    pub(super) async fn load_picked(&self, id: &str) -> StoreResult<Vec<JobId>> {
        let cells = cells(&self.backstop, &picked_prefix(id)).await?;
        Ok(cells
            .iter()
            .filter_map(read::<PickedPart>)
            .flat_map(|part| part.0)
            .collect())
    }

    pub(super) async fn forget_picked(&self, id: &str) -> StoreResult<()> {
        remove(
            &self.backstop,
            &cells(&self.backstop, &picked_prefix(id)).await?,
        )
        .await
    }

    /// The next letters of a redrive that was written down at `started_at`, at most `count`.
    pub(super) async fn next_letters(
        &self,
        letters: &LetterSelection,
        queue: Option<&QueueName>,
        reached: &LetterCursor,
        count: usize,
        started_at: Time,
    ) -> StoreResult<LetterBatch> {
        match letters {
            LetterSelection::Matching(filter) => self.next_page(filter, reached, count).await,
            LetterSelection::Picked(ids) => {
                let from = if let LetterCursor::Picks(from) = reached {
                    *from
                } else {
                    0
                };
                let to = ids.len().min(from + count);
                let reached = if to < ids.len() {
                    LetterCursor::Picks(to)
                } else {
                    LetterCursor::End
                };
                self.next_picks(&ids[from..to], queue, reached, started_at)
                    .await
            }
        }
    }

    async fn next_page(
        &self,
        filter: &DeadFilter,
        reached: &LetterCursor,
        count: usize,
    ) -> StoreResult<LetterBatch> {
        let cursor = if let LetterCursor::Page(cursor) = reached {
            Some(cursor.clone())
        } else {
            None
        };
        let found = self.find(filter, cursor, count, ListOrder::Oldest).await?;
        let of = if filter.queue.is_some() {
            RedrivenJob::in_named_queue
        } else {
            RedrivenJob::in_own_queue
        };
        Ok(LetterBatch {
            letters: found.jobs.iter().map(of).collect(),
            alive: Vec::new(),
            damaged: found.damaged.len() as u64,
            reached: found.next.map_or(LetterCursor::End, LetterCursor::Page),
        })
    }

    async fn next_picks(
        &self,
        ids: &[JobId],
        queue: Option<&QueueName>,
        reached: LetterCursor,
        started_at: Time,
    ) -> StoreResult<LetterBatch> {
        let mut next = LetterBatch {
            letters: Vec::new(),
            alive: Vec::new(),
            damaged: 0,
            reached,
        };
        let was_dead = DeadFilter::default().as_of(started_at);
        for (id, seen) in ids.iter().zip(self.read_jobs(queue, ids).await?) {
            match seen {
                JobSnapshot::Job(Some(job)) if was_dead.fits(&job, &self.redaction) => {
                    next.letters.push(RedrivenJob::in_named_queue(&job));
                }
                JobSnapshot::Job(_) => next.alive.push(*id),
                JobSnapshot::Damaged => next.damaged += 1,
            }
        }
        Ok(next)
    }

    /// How these stand, in their order: each in its own queue, or else in the one that was named.
    pub(super) async fn read_each(
        &self,
        named: Option<&QueueName>,
        redriven: &[RedrivenJob],
    ) -> StoreResult<Vec<JobSnapshot>> {
        let mut seen: Vec<Option<JobSnapshot>> = redriven.iter().map(|_| None).collect();
        for (queue, places) in group_by_queue(redriven) {
            let ids: Vec<JobId> = places.iter().map(|place| redriven[*place].id).collect();
            for (place, one) in places
                .into_iter()
                .zip(self.read_jobs(queue.or(named), &ids).await?)
            {
                seen[place] = Some(one);
            }
        }
        Ok(seen.into_iter().flatten().collect())
    }

    /// How these jobs stand, in their order: those of the queue, where one is named, many at once.
    pub(super) async fn read_jobs(
        &self,
        queue: Option<&QueueName>,
        ids: &[JobId],
    ) -> StoreResult<Vec<JobSnapshot>> {
        let mut seen = Vec::with_capacity(ids.len());
        for part in ids.chunks(FIND_MAX) {
            if let Some(jobs) = self.read_batch(queue, part).await? {
                seen.extend(
                    jobs.into_iter()
                        .map(|job| JobSnapshot::Job(job.map(Box::new))),
                );
                continue;
            }
            for id in part {
                seen.push(self.read_job(queue, *id).await?);
            }
        }
        Ok(seen)
    }

    /// Many jobs in one call; `None` where they must be asked for one by one: no queue is named, or
    /// one that cannot be read hides the others.
    async fn read_batch(
        &self,
        queue: Option<&QueueName>,
        ids: &[JobId],
    ) -> StoreResult<Option<Vec<Option<Job>>>> {
        let Some(queue) = queue else { return Ok(None) };
        match self
            .backstop
            .store()
            .find(
                queue.clone(),
                ids.to_vec(),
                self.backstop.current_time().await,
            )
            .await
        {
            Ok(jobs) => Ok(Some(jobs)),
            Err(StoreError::Corrupt { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn read_job(&self, queue: Option<&QueueName>, id: JobId) -> StoreResult<JobSnapshot> {
        let job = match queue {
            Some(queue) => self.backstop.job_in(queue, id).await,
            None => self.backstop.job(id).await,
        };
        match job {
            Ok(job) => Ok(JobSnapshot::Job(job.map(Box::new))),
            Err(StoreError::Corrupt { .. }) => Ok(JobSnapshot::Damaged),
            Err(error) => Err(error),
        }
    }
}

/// Where among these the letters of each queue are.
pub(super) fn group_by_queue(redriven: &[RedrivenJob]) -> BTreeMap<Option<&QueueName>, Vec<usize>> {
    let mut places = BTreeMap::<_, Vec<usize>>::new();
    for (place, one) in redriven.iter().enumerate() {
        places.entry(one.queue.as_ref()).or_default().push(place);
    }
    places
}

fn picked_prefix(id: &str) -> String {
    format!("{PICKED}{id}/")
}
