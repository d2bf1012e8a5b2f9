//! Rows and jobs compared, in both directions.
//!
//! | | counts as unmatched |
//! |---|---|
//! | a row | older than the sweep's threshold, and no job of its key waits, is ready, or runs; also if its job is dead |
//! | a job | of the sweep's queue and kind, alive, with a key of the sweep's making, and no row of any age has that key |
//!
//! Both are looked at in an order in which what is in hand matches: jobs before rows, and those without a row once more.

use super::run::Sweeper;
use super::{SweepError, dead, metrics};
use backstop_core::amend::Filter;
use backstop_core::limits::{PAGE_MAX, RECONCILE_MAX};
use backstop_core::port::{Answer, Order, PageQuery, StoreError};
use backstop_core::unique::UniqueKey;
use backstop_core::{Job, JobId, Span, State, Time};
use serde_json::Value;
use std::collections::BTreeSet;

/// States of jobs that are on their way.
const LIVE: [State; 4] = [State::Scheduled, State::Ready, State::Running, State::Retrying];

/// What does not match.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Reconciliation {
    /// Rows past the threshold without a live job, by what they are known by.
    pub rows_without_jobs: Vec<Value>,
    /// Those among them whose job is dead.
    pub dead: Vec<Value>,
    /// Live jobs without a row, however old.
    pub jobs_without_rows: Vec<LooseJob>,
    /// The threshold of the sweep.
    pub older_than: Span,
}

/// A live job whose row is not found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LooseJob {
    /// Its id.
    pub id: JobId,
    /// The key that was made of its row.
    pub key: UniqueKey,
    /// How old it is.
    pub age: Span,
}

impl Reconciliation {
    /// The jobs without a row that are older than the threshold.
    pub fn overdue(&self) -> impl Iterator<Item = &LooseJob> {
        self.jobs_without_rows.iter().filter(|job| job.age >= self.older_than)
    }

    /// Whether something past the threshold does not match.
    pub fn falls_short(&self) -> bool {
        !self.rows_without_jobs.is_empty() || self.overdue().next().is_some()
    }
}

impl Sweeper {
    /// Compares rows and jobs. Changes nothing.
    pub async fn reconcile(&self) -> Result<Reconciliation, SweepError> {
        let now = self.backstop().now();
        let mut reconciled =
            Reconciliation { older_than: self.sweep().threshold(), ..Reconciliation::default() };
        self.in_time(async {
            self.compare_rows(now, &mut reconciled).await?;
            self.compare_jobs(now, &mut reconciled).await
        })
        .await?;
        metrics::reconciled(self.sweep(), &reconciled);
        Ok(reconciled)
    }

    async fn compare_rows(&self, now: Time, reconciled: &mut Reconciliation) -> Result<(), SweepError> {
        let cutoff = now.before(self.sweep().threshold());
        let first = self.rows(cutoff).await?;
        let keys: Vec<UniqueKey> = first.iter().map(|(key, _)| key.clone()).collect();
        let holders = self.holders(&keys).await?;
        let is_live = |holder: &Option<_>| {
            holder.is_some_and(|holder: backstop_core::port::KeyHolder| holder.is_live())
        };
        let alone: BTreeSet<&UniqueKey> =
            keys.iter().zip(&holders).filter(|(_, holder)| !is_live(holder)).map(|(key, _)| key).collect();
        if alone.is_empty() {
            return Ok(());
        }
        let dead = dead::with_letters(self.backstop(), self.sweep().queue(), &alone).await?;
        // What was processed since the first look is not found by the second.
        for (key, row) in self.rows(cutoff).await? {
            if !alone.contains(&key) {
                continue;
            }
            if dead.contains(&key) {
                reconciled.dead.push(row.clone());
            }
            reconciled.rows_without_jobs.push(row);
        }
        Ok(())
    }

    async fn compare_jobs(&self, now: Time, reconciled: &mut Reconciliation) -> Result<(), SweepError> {
        let jobs = self.live_jobs().await?;
        let rows = self.rows(now).await?;
        let rows: BTreeSet<UniqueKey> = rows.into_iter().map(|(key, _)| key).collect();
        for (job, key) in jobs.into_iter().filter(|(_, key)| !rows.contains(key)) {
            let standing = self.backstop().job(job.id).await?;
            if standing.is_some_and(|job| !job.state.is_final()) {
                let age = now.since(job.inserted_at);
                reconciled.jobs_without_rows.push(LooseJob { id: job.id, key, age });
            }
        }
        Ok(())
    }

    /// The rows from before a time, by key.
    async fn rows(&self, cutoff: Time) -> Result<Vec<(UniqueKey, Value)>, SweepError> {
        let found = self.search(cutoff, RECONCILE_MAX).await?;
        if found.len() >= RECONCILE_MAX {
            return Err(too_many("rows").into());
        }
        Ok(found.findings.into_iter().map(|finding| (finding.key, finding.row)).collect())
    }

    /// The live jobs that were made for rows of this sweep.
    async fn live_jobs(&self) -> Answer<Vec<(Job, UniqueKey)>> {
        let mut own = Vec::new();
        for state in LIVE {
            let filter = Filter {
                queue: Some(self.sweep().queue().clone()),
                kind: Some(self.sweep().kind.clone()),
                state: Some(state),
                ..Filter::default()
            };
            let mut cursor = None;
            loop {
                let query =
                    PageQuery { filter: filter.clone(), cursor, limit: PAGE_MAX, order: Order::Newest };
                let page = self.backstop().store().jobs(query, self.backstop().now()).await?;
                let keyed =
                    page.jobs.into_iter().filter_map(|job| job.unique_key.clone().map(|key| (job, key)));
                own.extend(keyed.filter(|(_, key)| self.sweep().finder.is_own(key)));
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
                if own.len() >= RECONCILE_MAX {
                    return Err(too_many("live jobs"));
                }
            }
        }
        // A job may change its state between two lists, and be in both.
        own.sort_by_key(|(job, _)| job.id);
        own.dedup_by_key(|(job, _)| job.id);
        Ok(own)
    }
}

fn too_many(what: &str) -> StoreError {
    StoreError::misuse(
        "comparing rows and jobs",
        format!("more than {RECONCILE_MAX} {what}: too many to compare"),
    )
}
