//! A redrive as the store keeps it: its report and its runner in one cell, the jobs it redrove in
//! others.

use super::letters::PICKED;
use super::watch::RedrivenJob;
use super::{RedriveError, RedrivePhase, RedriveReport};
use crate::dead::DeadLetters;
use crate::shared_cells::{CellWalk, cells, read, remove, update};
use backstop_core::port::{Cell, StoreResult};
use backstop_core::share::surplus;
use backstop_core::{JobId, Span, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How long a runner that stopped beating is waited for.
const LEASE: Span = Span::secs(15);
/// Ended redrives that stay listed.
const ENDED_MAX: usize = 100;
/// Jobs of one cell: as many as fit with queues that have the longest names.
pub(super) const PART_MAX: usize = 300;

/// What was kept for a redrive that is not there is left alone for so long.
const ABANDONED_AFTER: Span = Span::hours(1);

const PREFIX: &str = "redrive/";
const PARTS: &str = "redriven/";

/// What the cell of a redrive holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct RedriveRecord {
    pub(super) report: RedriveReport,
    #[serde(rename = "stop_asked")]
    pub(super) stop_requested: bool,
    /// Whether any server of the store goes on with it once its runner is gone.
    #[serde(default)]
    pub(super) is_unattended: bool,
    pub(super) runner: Option<RedriveRunner>,
    /// What is being requeued: whether it was is known only to the jobs themselves.
    pub(super) pending: Vec<RedrivenJob>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct RedriveRunner {
    number: u64,
    /// Until when it is its own, unless it beats.
    pub(super) until: Time,
}

impl RedriveRunner {
    pub(super) fn new(number: u64, now: Time) -> Self {
        Self {
            number,
            until: now.after(LEASE),
        }
    }

    /// One that left: whoever comes next need not wait.
    pub(super) const fn expired(number: u64, now: Time) -> Self {
        Self { number, until: now }
    }

    const fn is(self, number: u64) -> bool {
        self.number == number
    }
}

/// Some of the jobs that were redriven.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct RedrivenPart(Vec<RedrivenJob>);

impl RedriveRecord {
    pub(super) fn new(report: RedriveReport, is_unattended: bool) -> Self {
        Self {
            report,
            stop_requested: false,
            is_unattended,
            runner: None,
            pending: Vec::new(),
        }
    }

    /// Until when somebody has it: its runner, or whoever wrote it down and is about to run it.
    fn held_until(&self) -> Time {
        self.runner.map_or_else(
            || self.report.started_at.after(LEASE),
            |runner| runner.until,
        )
    }

    /// Whether it has not ended and nobody runs it: its runner is gone, or never came.
    fn is_stalled(&self, now: Time) -> bool {
        !self.report.phase.is_ended() && self.held_until() <= now
    }

    /// Whether it waits for a server to go on with it.
    pub(super) fn is_abandoned(&self, now: Time) -> bool {
        self.is_unattended && self.is_stalled(now)
    }

    /// Leaves it to servers, if nobody has it.
    pub(super) fn leave(&mut self, now: Time) -> Result<(), RedriveError> {
        let id = || self.report.id.clone();
        if self.report.phase.is_ended() {
            return Err(RedriveError::Ended {
                id: id(),
                phase: self.report.phase,
            });
        }
        if self.held_until() > now {
            return Err(RedriveError::Busy {
                id: id(),
                until: self.held_until(),
            });
        }
        self.is_unattended = true;
        Ok(())
    }

    /// Takes the redrive for the runner of this number, if nobody else has it.
    pub(super) fn take(&mut self, number: u64, now: Time) -> Result<(), RedriveError> {
        let id = || self.report.id.clone();
        if self.report.phase.is_ended() {
            return Err(RedriveError::Ended {
                id: id(),
                phase: self.report.phase,
            });
        }
        match self.runner {
            Some(other) if !other.is(number) && other.until > now => Err(RedriveError::Busy {
                id: id(),
                until: other.until,
            }),
            _ => {
                self.runner = Some(RedriveRunner::new(number, now));
                Ok(())
            }
        }
    }

    /// Replaces what stands by what the runner of this number knows; a wish to stop is kept.
    pub(super) fn replace(&mut self, ours: &Self, number: u64) -> Result<(), RedriveError> {
        if self == ours {
            return Ok(());
        }
        if self.report.phase.is_ended() {
            return Err(RedriveError::Ended {
                id: self.report.id.clone(),
                phase: self.report.phase,
            });
        }
        if !self.runner.is_some_and(|runner| runner.is(number)) {
            return Err(RedriveError::TakenOver(self.report.id.clone()));
        }
        *self = Self {
            stop_requested: self.stop_requested || ours.stop_requested,
            is_unattended: self.is_unattended || ours.is_unattended,
            ..ours.clone()
        };
        Ok(())
    }

    /// Asks its runner to stop; without one it has stopped.
    pub(super) fn request_stop(&mut self, now: Time) -> Result<(), RedriveError> {
        if self.report.phase.is_ended() {
            return Err(RedriveError::Ended {
                id: self.report.id.clone(),
                phase: self.report.phase,
            });
        }
        self.stop_requested = true;
        if self.runner.is_none_or(|runner| runner.until <= now) {
            self.end(
                RedrivePhase::Stopped,
                "it was stopped on request".to_owned(),
                now,
            );
        }
        Ok(())
    }

    pub(super) fn end(&mut self, phase: RedrivePhase, why: String, now: Time) {
        self.report.phase = phase;
        self.report.ended_at = Some(now);
        self.report.why = Some(why);
        self.runner = None;
    }
}

impl DeadLetters {
    pub(super) async fn record(&self, id: &str) -> Result<RedriveRecord, RedriveError> {
        let cell = self
            .backstop
            .store()
            .cells(vec![format!("{PREFIX}{id}")])
            .await?
            .pop()
            .flatten();
        cell.as_ref()
            .and_then(read)
            .ok_or_else(|| RedriveError::NotFound(id.to_owned()))
    }

    /// Changes the record with `change`, or leaves it as it was where that refuses.
    pub(super) async fn update_record(
        &self,
        known: &RedriveRecord,
        mut change: impl FnMut(&mut RedriveRecord) -> Result<(), RedriveError>,
    ) -> Result<RedriveRecord, RedriveError> {
        let name = format!("{PREFIX}{}", known.report.id);
        let (record, result) = update(
            &self.backstop,
            &name,
            known.clone(),
            |record: &mut RedriveRecord| change(record),
        )
        .await?;
        result.map(|()| record)
    }

    /// All redrives, the newest first.
    pub async fn redrives(&self) -> StoreResult<Vec<RedriveReport>> {
        self.redrives_that(|_| true).await
    }

    /// Those that nobody watches and nobody runs, because their runner is gone: whoever serves the
    /// store goes on with them by [`DeadLetters::run_redrive`], which only one of several can have.
    pub async fn abandoned_redrives(&self) -> StoreResult<Vec<RedriveReport>> {
        let now = self.backstop.current_time().await;
        self.redrives_that(|record| record.is_abandoned(now)).await
    }

    async fn redrives_that(
        &self,
        fits: impl Fn(&RedriveRecord) -> bool,
    ) -> StoreResult<Vec<RedriveReport>> {
        let cells = cells(&self.backstop, PREFIX).await?;
        let records = cells.iter().filter_map(read::<RedriveRecord>).filter(fits);
        let now = self.backstop.current_time().await;
        let to_report = |record: RedriveRecord| {
            let stalled = record.is_stalled(now);
            RedriveReport {
                stalled,
                ..record.report.redacted(&self.redaction)
            }
        };
        let mut reports: Vec<_> = records.map(to_report).collect();
        reports.sort_by_key(|report| std::cmp::Reverse((report.started_at, report.id.clone())));
        Ok(reports)
    }

    /// Forgets some of those that have ended, where there are too many, and what was left behind by
    /// those that were killed.
    pub(super) async fn forget_old_redrives(&self) -> StoreResult<()> {
        let cells = cells(&self.backstop, PREFIX).await?;
        self.forget_abandoned(&cells).await?;
        // Ids sort by time.
        let ended = cells.into_iter().filter_map(|cell| {
            let report = read::<RedriveRecord>(&cell).map(|record| record.report);
            let is_ended = report.as_ref().is_none_or(|report| report.phase.is_ended());
            is_ended.then(|| (report.map(|report| report.by), cell))
        });
        remove(&self.backstop, &surplus(ended, ENDED_MAX)).await
    }

    /// Removes what was kept for redrives that nobody goes on with: whoever started one was killed
    /// before it was written down, or its runner was before it had cleared up. What is younger may
    /// be of one that is being written down at this moment.
    async fn forget_abandoned(&self, records: &[Cell]) -> StoreResult<()> {
        let goes_on = |cell: &&Cell| {
            read::<RedriveRecord>(cell).is_none_or(|record| !record.report.phase.is_ended())
        };
        let alive: BTreeSet<&str> = records
            .iter()
            .filter(goes_on)
            .filter_map(|cell| cell.name.strip_prefix(PREFIX))
            .collect();
        // Ids sort by time.
        let now = self.backstop.current_time().await;
        let young = JobId::at(now.before(ABANDONED_AFTER), [0; 10]).to_string();
        for prefix in [PARTS, PICKED] {
            let mut walk = CellWalk::new(&self.backstop, prefix);
            while let Some(page) = walk.next().await? {
                let id_of = |cell: &Cell| {
                    cell.name[prefix.len()..]
                        .split('/')
                        .next()
                        .map(ToOwned::to_owned)
                };
                let is_old = |cell: &Cell| id_of(cell).is_some_and(|id| id < young);
                let is_left = |cell: &&Cell| {
                    is_old(cell) && id_of(cell).is_some_and(|id| !alive.contains(id.as_str()))
                };
                let left: Vec<Cell> = page.iter().filter(is_left).cloned().collect();
                remove(&self.backstop, &left).await?;
                if !page.last().is_some_and(is_old) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The jobs that a redrive has requeued so far.
    pub(super) async fn load_redriven(&self, id: &str) -> StoreResult<Vec<RedrivenJob>> {
        let cells = cells(&self.backstop, &parts_prefix(id)).await?;
        Ok(cells
            .iter()
            .filter_map(read::<RedrivenPart>)
            .flat_map(|part| part.0)
            .collect())
    }

    /// Those of them that were requeued last, of `requeued` in all.
    pub(super) async fn latest_redriven(
        &self,
        id: &str,
        requeued: u64,
    ) -> StoreResult<Vec<RedrivenJob>> {
        let number = requeued.saturating_sub(1) / PART_MAX as u64;
        let cells = self
            .backstop
            .store()
            .cells(vec![format!("{}{number:06}", parts_prefix(id))])
            .await?;
        Ok(cells
            .iter()
            .flatten()
            .filter_map(read::<RedrivenPart>)
            .flat_map(|part| part.0)
            .collect())
    }

    /// Adds to them. `before` is how many there were: it says which cell has room.
    pub(super) async fn add_redriven(
        &self,
        id: &str,
        before: usize,
        mut added: &[RedrivenJob],
    ) -> StoreResult<()> {
        let mut number = before / PART_MAX;
        let mut room = PART_MAX - before % PART_MAX;
        while !added.is_empty() {
            let (part, rest) = added.split_at(room.min(added.len()));
            let name = format!("{}{number:06}", parts_prefix(id));
            update(
                &self.backstop,
                &name,
                RedrivenPart::default(),
                |stored: &mut RedrivenPart| {
                    let news = part
                        .iter()
                        .filter(|redriven| !stored.0.contains(redriven))
                        .cloned();
                    let news: Vec<_> = news.collect();
                    stored.0.extend(news);
                },
            )
            .await?;
            (added, number, room) = (rest, number + 1, PART_MAX);
        }
        Ok(())
    }

    /// Once a redrive has ended, its numbers are enough.
    pub(super) async fn forget_redriven(&self, id: &str) -> StoreResult<()> {
        remove(
            &self.backstop,
            &cells(&self.backstop, &parts_prefix(id)).await?,
        )
        .await?;
        self.forget_picked(id).await
    }
}

fn parts_prefix(id: &str) -> String {
    format!("{PARTS}{id}/")
}
