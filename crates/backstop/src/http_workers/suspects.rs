//! Workers elsewhere run suspects alone, too: of the jobs that have lost a worker lately, as
//! [`backstop_core::blame`] says, each of them has one at a time, however many requests it makes
//! and whichever process answers them. When it dies, there is one name.
//!
//! Which one it has is written in a cell, `suspects/WORKER`, before it is handed out. The place is
//! free again when that lease has ended or expired: nobody has to give it back, and nobody can
//! leave it taken. A worker that is started anew under the same name may be handed the very job it
//! died with: the store has just leased it, so its earlier lease is over.

use super::HttpWorkers;
use crate::idempotence::cell_name;
use crate::shared_cells::{read, update};
use backstop_core::blame::is_suspect;
use backstop_core::lease::is_expired;
use backstop_core::port::{Cell, StoreResult};
use backstop_core::verdict::Settlement;
use backstop_core::{JobId, JobState, Lease, LeasedRun, Outcome, QueueName, Span, WorkerName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What the names of the cells begin with.
pub(crate) const SUSPECTS: &str = "suspects/";
/// A suspect whose worker has one goes back for so long: the same worker would otherwise get it
/// again with its next request.
const WAIT: Span = Span::secs(1);

/// Which suspect a worker has, or had last.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct HttpSuspectSlot(Option<HttpSuspect>);

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct HttpSuspect {
    worker: String,
    queue: QueueName,
    job: JobId,
    /// So that each lease writes the cell: of two requests that found the same place free, one is
    /// refused.
    lease: i64,
}

impl HttpSuspect {
    fn by(worker: &WorkerName, lease: &Lease) -> Self {
        Self {
            worker: worker.to_string(),
            queue: lease.queue.clone(),
            job: lease.job,
            lease: lease.number.as_i64(),
        }
    }

    fn is_of(&self, lease: &Lease) -> bool {
        self.queue == lease.queue && self.job == lease.job
    }
}

impl HttpSuspectSlot {
    /// Whether it may be forgotten: its worker is not among the living.
    pub(crate) fn is_over(cell: &Cell, living: &BTreeSet<String>) -> bool {
        let taken = read::<Self>(cell).and_then(|slot| slot.0);
        taken.is_none_or(|taken| !living.contains(&taken.worker))
    }
}

impl HttpWorkers<'_> {
    /// Those of `runs` that this worker may have beside each other, and how the others go back, not
    /// charged. `has_suspect`: one is in the answer already.
    pub(super) async fn admit_suspects(
        &self,
        runs: Vec<LeasedRun>,
        worker: &WorkerName,
        has_suspect: bool,
    ) -> StoreResult<(Vec<LeasedRun>, Vec<Settlement>)> {
        let now = self.backstop.now();
        let (suspects, mut may): (Vec<_>, Vec<_>) =
            runs.into_iter().partition(|run| is_suspect(run, now));
        let leases: Vec<Lease> = suspects.iter().map(|run| run.lease.clone()).collect();
        let mut suspects = suspects.into_iter();
        let first = if has_suspect { None } else { suspects.next() };
        let (mut released, mut wait) = (Vec::new(), Span::ZERO);
        match first {
            Some(run) if self.take_slot(worker, &run.lease, &leases).await? => may.push(run),
            Some(run) => {
                wait = WAIT;
                released.push(run);
            }
            None => {}
        }
        released.extend(suspects);
        let outcome = Outcome::Released {
            at: now.after(wait),
        };
        let released = released.into_iter().map(|run| Settlement {
            lease: run.lease,
            outcome: outcome.clone(),
        });
        Ok((may, released.collect()))
    }

    /// Takes the one place for suspects of this worker, unless it has one. `claimed`: the leases of
    /// all suspects of this claim.
    async fn take_slot(
        &self,
        worker: &WorkerName,
        lease: &Lease,
        claimed: &[Lease],
    ) -> StoreResult<bool> {
        let name = cell_name(SUSPECTS, worker.as_str());
        let cell = self
            .backstop
            .store()
            .cells(vec![name.clone()])
            .await?
            .pop()
            .flatten();
        let seen = cell
            .as_ref()
            .and_then(read::<HttpSuspectSlot>)
            .unwrap_or_default();
        if let Some(taken) = &seen.0
            && !claimed.iter().any(|lease| taken.is_of(lease))
            && self.is_held(taken).await?
        {
            return Ok(false);
        }
        let mine = HttpSuspectSlot(Some(HttpSuspect::by(worker, lease)));
        let take = |slot: &mut HttpSuspectSlot| {
            // Another request of this worker was faster.
            let is_free = *slot == seen;
            if is_free {
                slot.clone_from(&mine);
            }
            is_free
        };
        Ok(
            update(self.backstop, &name, HttpSuspectSlot::default(), take)
                .await?
                .1,
        )
    }

    /// Whether a suspect still is the worker's who had it.
    async fn is_held(&self, taken: &HttpSuspect) -> StoreResult<bool> {
        let (queue, now) = (taken.queue.clone(), self.backstop.now());
        let job = self
            .backstop
            .store()
            .find(queue, vec![taken.job], now)
            .await?
            .pop()
            .flatten();
        let holder = job
            .filter(|job| job.state == JobState::Running)
            .and_then(|job| job.held_by);
        Ok(holder.is_some_and(|holder| {
            holder.worker.as_str() == taken.worker && !is_expired(holder.until, now)
        }))
    }
}
