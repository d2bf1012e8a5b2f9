//! Rows and jobs compared, in both directions.
//!
//! | | counts as unmatched |
//! |---|---|
//! | a row | older than the sweep's threshold, and no job of its key waits, is ready, or runs; also if its job is dead |
//! | a job | of the sweep's queue and kind, alive, with a key of the sweep's making, and no row of any age has that key |
//!
//! Both are looked at in an order in which what is in hand matches: jobs before rows, and those
//! without a row once more.

use super::run::Sweeper;
use super::{FindScope, SweepError, SweepReport, dead_letters, metrics};
use backstop_core::amend::Filter;
use backstop_core::limits::{RECONCILE_MAX, SWEEP_BYTES_MAX};
use backstop_core::port::{ListJobsRequest, ListOrder, StoreError, StoreResult, UniqueKeyHolder};
use backstop_core::unique::UniqueKey;
use backstop_core::{JobId, JobState, Span, Time};
use serde_json::Value;
use std::collections::BTreeSet;

/// States of jobs that are on their way.
const LIVE: [JobState; 4] = [
    JobState::Scheduled,
    JobState::Ready,
    JobState::Running,
    JobState::Retrying,
];
/// Jobs of one page: their payloads come with them.
const PAGE: usize = 100;

/// Rows without jobs and jobs without rows, for every sweep.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ReconcileReport {
    /// Rows past the threshold without a live job, by what they are known by.
    pub rows_without_jobs: Vec<Value>,
    /// Those among them whose job is dead.
    pub dead: Vec<Value>,
    /// Live jobs without a row, however old.
    pub jobs_without_rows: Vec<UnmatchedJob>,
    /// The threshold of the sweep.
    pub older_than: Span,
}

/// A live job whose row is not found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnmatchedJob {
    pub id: JobId,
    /// The key that was made of its row.
    pub key: UniqueKey,
    pub age: Span,
}

impl ReconcileReport {
    /// The jobs without a row that are older than the threshold.
    pub fn overdue(&self) -> impl Iterator<Item = &UnmatchedJob> {
        self.jobs_without_rows
            .iter()
            .filter(|job| job.age >= self.older_than)
    }

    /// Whether something past the threshold does not match.
    pub fn falls_short(&self) -> bool {
        !self.rows_without_jobs.is_empty() || self.overdue().next().is_some()
    }
}

impl Sweeper {
    /// Compares rows and jobs. Changes nothing.
    pub async fn reconcile(&self) -> Result<ReconcileReport, SweepError> {
        let now = self.backstop().current_time().await;
        let mut reconciled = self.empty_report();
        self.with_deadline(async {
            self.compare_rows(now, &mut reconciled).await?;
            self.compare_jobs(now, &mut reconciled).await
        })
        .await?;
        metrics::reconciled(self.sweep(), &reconciled);
        Ok(reconciled)
    }

    /// The same after a run that has looked at all rows just now: they are not searched for again.
    pub(super) async fn reconcile_after(
        &self,
        report: &SweepReport,
    ) -> Result<ReconcileReport, SweepError> {
        let mut reconciled = self.empty_report();
        let refused = report
            .refused
            .iter()
            .filter(|row| !report.dead.contains(row));
        let without_jobs = report.dead.iter().chain(&report.spent).chain(refused);
        reconciled.rows_without_jobs = without_jobs.cloned().collect();
        reconciled.dead = report.dead.clone();
        self.with_deadline(self.compare_jobs(self.backstop().now(), &mut reconciled))
            .await?;
        metrics::reconciled(self.sweep(), &reconciled);
        Ok(reconciled)
    }

    fn empty_report(&self) -> ReconcileReport {
        ReconcileReport {
            older_than: self.sweep().threshold(),
            ..ReconcileReport::default()
        }
    }

    async fn compare_rows(
        &self,
        now: Time,
        reconciled: &mut ReconcileReport,
    ) -> Result<(), SweepError> {
        let cutoff = now.before(self.sweep().threshold());
        let first = self.rows(cutoff).await?;
        let keys: Vec<UniqueKey> = first.iter().map(|(key, _)| key.clone()).collect();
        let holders = self.unique_holders(&keys).await?;
        let is_live =
            |holder: &Option<UniqueKeyHolder>| holder.is_some_and(|holder| holder.is_live());
        let alone: BTreeSet<&UniqueKey> = keys
            .iter()
            .zip(&holders)
            .filter(|(_, holder)| !is_live(holder))
            .map(|(key, _)| key)
            .collect();
        if alone.is_empty() {
            return Ok(());
        }
        let dead =
            dead_letters::keys_with_dead_letters(self.backstop(), self.sweep().queue(), &alone)
                .await?;
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

    async fn compare_jobs(
        &self,
        now: Time,
        reconciled: &mut ReconcileReport,
    ) -> Result<(), SweepError> {
        let mut loose = self.live_jobs(now).await?;
        if loose.is_empty() {
            return Ok(());
        }
        let rows = self.rows(now).await?;
        let rows: BTreeSet<UniqueKey> = rows.into_iter().map(|(key, _)| key).collect();
        loose.retain(|job| !rows.contains(&job.key));
        // What ended since it was listed has marked its row meanwhile.
        let keys: Vec<UniqueKey> = loose.iter().map(|job| job.key.clone()).collect();
        let holders = self.unique_holders(&keys).await?;
        let still = loose.into_iter().zip(holders).filter(|(job, holder)| {
            holder.is_some_and(|holder| holder.is_live() && holder.job == job.id)
        });
        reconciled
            .jobs_without_rows
            .extend(still.map(|(job, _)| job));
        Ok(())
    }

    /// The rows from before a time, by key.
    async fn rows(&self, cutoff: Time) -> Result<Vec<(UniqueKey, Value)>, SweepError> {
        let found = self.search(cutoff, RECONCILE_MAX, FindScope::Keys).await?;
        if found.is_cut {
            return Err(too_many("rows").into());
        }
        Ok(found
            .findings
            .into_iter()
            .map(|finding| (finding.key, finding.row))
            .collect())
    }

    /// The live jobs that were made for rows of this sweep: of each no more than it is known by.
    async fn live_jobs(&self, now: Time) -> StoreResult<Vec<UnmatchedJob>> {
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
                let query = ListJobsRequest {
                    filter: filter.clone(),
                    cursor,
                    limit: PAGE,
                    order: ListOrder::Newest,
                };
                let page = self.backstop().store().jobs(query, now).await?;
                let keyed = page.jobs.into_iter().filter_map(|job| {
                    Some(UnmatchedJob {
                        id: job.id,
                        key: job.unique_key?,
                        age: now.since(job.inserted_at),
                    })
                });
                own.extend(keyed.filter(|job| self.sweep().finder.is_own(&job.key)));
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
        own.sort_by_key(|job| job.id);
        own.dedup_by_key(|job| job.id);
        Ok(own)
    }
}

fn too_many(what: &str) -> StoreError {
    StoreError::misuse(
        "comparing rows and jobs",
        format!(
            "there are too many {what} to compare: more than {RECONCILE_MAX}, or than fit into {} MiB",
            SWEEP_BYTES_MAX >> 20
        ),
    )
}
