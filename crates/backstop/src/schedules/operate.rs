//! What an operator sees of schedules, and can do to them.

use super::check::{ScheduleCheckReport, ScheduleMemory, check_schedule};
use super::ledger::{
    LedgerPages, STATE_PREFIX, change_page, change_state, count_given_up, load_state,
    load_state_at, newest_entries,
};
use super::metrics;
use crate::client::Backstop;
use crate::shared_cells::{cells, read};
use backstop_core::port::{EnqueueOutcome, StoreError, StoreResult};
use backstop_core::schedule::{
    InstantOutcome, LatestRun, LedgerEntry, LedgerPage, Schedule, ScheduleSnapshot, ScheduleState,
    UtcDay, expected_entries, missing,
};
use backstop_core::{JobId, QueueName, ScheduleName, Time};
use std::collections::{BTreeMap, BTreeSet};

/// Which instants of some pages are not missing.
type KnownInstants = fn(&LedgerPages<'_>) -> BTreeSet<Time>;

/// [`LedgerPages::settled_instants`] as a function pointer: the method itself has one lifetime.
fn settled_instants(pages: &LedgerPages<'_>) -> BTreeSet<Time> {
    pages.settled_instants()
}

fn answered_instants(pages: &LedgerPages<'_>) -> BTreeSet<Time> {
    pages.answered_instants()
}

/// Schedules as all processes share them.
#[derive(Debug)]
pub struct Schedules<'a>(&'a Backstop);

impl Backstop {
    /// The schedules whose ledgers are in this store.
    pub const fn schedules(&self) -> Schedules<'_> {
        Schedules(self)
    }
}

/// A schedule as it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct ScheduleStatus {
    pub name: ScheduleName,
    /// From when on its instants are expected.
    pub since: Time,
    /// The next instant; `None` while it is paused.
    pub next: Option<Time>,
    pub last: Option<LatestRun>,
    /// Since when it is paused, if it is.
    pub paused: Option<Time>,
    /// How many runs are missing, and still to be dealt with: nobody has entered what became of
    /// them, or they are in no queue yet.
    pub missing: usize,
}

/// A run that is missing, and what becomes of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissedRun {
    /// When it should have been.
    pub instant: Time,
    pub schedule: ScheduleName,
    /// What was entered for it, or will be by the next look.
    pub what: InstantOutcome,
    /// Whether it was entered already.
    pub is_entered: bool,
}

impl MissedRun {
    /// Whether nobody makes it up any more.
    pub fn is_given_up(&self) -> bool {
        self.is_entered && self.what != InstantOutcome::Due
    }
}

/// A run that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TriggerResult {
    pub id: JobId,
    /// The instant it was given: when it was asked for.
    pub instant: Time,
}

/// A run that was asked for and did not come about.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TriggerError {
    /// There is no room for it.
    #[error("queue {0} is full; nothing was put into it")]
    Full(QueueName),
    /// The job is there and its entry is not.
    #[error(
        "job {0} is in its queue, but the ledger has no room for more runs by hand today; push jobs instead"
    )]
    NotEntered(JobId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Schedules<'_> {
    /// Looks at these schedules once, fires what is due and enters what became of all others.
    /// Workers do this by themselves.
    pub async fn look(&self, schedules: &[Schedule]) -> StoreResult<Vec<ScheduleCheckReport>> {
        let mut looked = Vec::with_capacity(schedules.len());
        for schedule in schedules {
            let mut memory = ScheduleMemory::default();
            let mut all = check_schedule(self.0, schedule, &mut memory).await?;
            while all.more {
                let next = check_schedule(self.0, schedule, &mut memory).await?;
                all.entered.extend_from_slice(&next.entered);
                all = ScheduleCheckReport {
                    entered: all.entered,
                    missing: all.missing,
                    ..next
                };
            }
            looked.push(all);
        }
        Ok(looked)
    }

    pub async fn status(&self, schedule: &Schedule) -> StoreResult<ScheduleStatus> {
        let now = self.0.current_time().await;
        let state = load_state_at(self.0, schedule, now).await?;
        let since = state.since(schedule);
        let after = now.max(Time::from_micros(since.as_micros().saturating_sub(1)));
        let missing = self
            .missing(schedule, &state, now, settled_instants)
            .await?
            .len();
        Ok(ScheduleStatus {
            name: schedule.name.clone(),
            since,
            next: schedule.next(after).filter(|_| state.paused.is_none()),
            last: state.last,
            paused: state.paused,
            missing,
        })
    }

    /// The schedules this store has heard of, by name, whether or not anybody runs them.
    pub async fn list_known(&self) -> StoreResult<Vec<(ScheduleName, ScheduleState)>> {
        let cells = cells(self.0, STATE_PREFIX).await?;
        let named = cells.iter().filter_map(|cell| {
            let name = ScheduleName::new(cell.name.strip_prefix(STATE_PREFIX)?).ok()?;
            Some((name, read(cell)?))
        });
        Ok(named.collect())
    }

    /// The ledger of a schedule, the newest instant first.
    pub async fn runs(&self, name: &ScheduleName, limit: usize) -> StoreResult<Vec<LedgerEntry>> {
        newest_entries(self.0, name, limit).await
    }

    /// The instants of these schedules that are missing at `at`, whatever became of them or is to:
    /// also those that were given up. By instant, then by name.
    pub async fn missed(
        &self,
        schedules: &[Schedule],
        at: Time,
    ) -> StoreResult<Vec<(Time, ScheduleName)>> {
        // What is agreed to be fired and in no queue yet, and what was given up, is as missing as
        // what nobody has seen.
        self.all_missing(schedules, at, answered_instants).await
    }

    /// The same, with what becomes of each.
    pub async fn missed_runs(
        &self,
        schedules: &[Schedule],
        at: Time,
    ) -> StoreResult<Vec<MissedRun>> {
        let mut found = Vec::new();
        for schedule in schedules {
            let state = &load_state_at(self.0, schedule, at).await?;
            let from = at.before(schedule.missed.look_back);
            let pages =
                LedgerPages::read(self.0, &schedule.name, UtcDay::of(from), UtcDay::of(at)).await?;
            let (answered, known, entered) = (
                pages.answered_instants(),
                pages.known_instants(),
                pages.entered_outcomes(),
            );
            let next = expected_entries(
                schedule,
                ScheduleSnapshot {
                    state,
                    from,
                    known: &known,
                },
                at,
            );
            let next: BTreeMap<Time, InstantOutcome> = next
                .iter()
                .map(|entry| (entry.instant, entry.outcome))
                .collect();
            for instant in missing(
                schedule,
                ScheduleSnapshot {
                    state,
                    from,
                    known: &answered,
                },
                at,
            ) {
                let is_entered = entered.contains_key(&instant);
                let what = entered
                    .get(&instant)
                    .or_else(|| next.get(&instant))
                    .copied()
                    .unwrap_or(InstantOutcome::Due);
                found.push(MissedRun {
                    instant,
                    schedule: schedule.name.clone(),
                    what,
                    is_entered,
                });
            }
        }
        found.sort_by(|one, other| {
            (one.instant, &one.schedule).cmp(&(other.instant, &other.schedule))
        });
        Ok(found)
    }

    /// Those of them, now, that are still to be dealt with: nobody has entered what became of them,
    /// or they are in no queue yet.
    pub async fn unfired(&self, schedules: &[Schedule]) -> StoreResult<Vec<(Time, ScheduleName)>> {
        self.all_missing(schedules, self.0.current_time().await, settled_instants)
            .await
    }

    /// How many instants of a schedule were given up since then: counted as missed, or skipped by
    /// its policy. By when that was entered, however old the instants are.
    pub async fn count_given_up(&self, schedule: &Schedule, since: Time) -> StoreResult<usize> {
        count_given_up(
            self.0,
            &schedule.name,
            since,
            since.before(schedule.missed.look_back),
        )
        .await
    }

    async fn all_missing(
        &self,
        schedules: &[Schedule],
        at: Time,
        known: KnownInstants,
    ) -> StoreResult<Vec<(Time, ScheduleName)>> {
        let mut found = Vec::new();
        for schedule in schedules {
            let state = load_state_at(self.0, schedule, at).await?;
            let missing = self.missing(schedule, &state, at, known).await?;
            found.extend(
                missing
                    .into_iter()
                    .map(|instant| (instant, schedule.name.clone())),
            );
        }
        found.sort();
        Ok(found)
    }

    async fn missing(
        &self,
        schedule: &Schedule,
        state: &ScheduleState,
        at: Time,
        known: KnownInstants,
    ) -> StoreResult<Vec<Time>> {
        let from = at.before(schedule.missed.look_back);
        let pages =
            LedgerPages::read(self.0, &schedule.name, UtcDay::of(from), UtcDay::of(at)).await?;
        let known = known(&pages);
        Ok(missing(
            schedule,
            ScheduleSnapshot {
                state,
                from,
                known: &known,
            },
            at,
        ))
    }

    /// Runs it now, whether or not it is paused; no instant of the schedule is touched.
    pub async fn trigger(&self, schedule: &Schedule) -> Result<TriggerResult, TriggerError> {
        let (id, now) = (self.0.new_id(), self.0.current_time().await);
        let instant = Time::from_micros(now.as_micros().div_euclid(1_000_000) * 1_000_000);
        let answers = self
            .0
            .push_jobs(vec![schedule.job_by_hand(id, instant)])
            .await?;
        if answers.first() == Some(&EnqueueOutcome::Full) {
            return Err(TriggerError::Full(schedule.queue.clone()));
        }
        let entry = LedgerEntry {
            instant,
            outcome: InstantOutcome::Triggered(id),
            at: now,
        };
        let enter = |page: &mut LedgerPage| page.enter_by_hand(entry);
        let (_, is_entered) =
            change_page(self.0, &schedule.name, UtcDay::of(instant), enter).await?;
        if !is_entered {
            return Err(TriggerError::NotEntered(id));
        }
        metrics::count_entries(&schedule.name, &[entry]);
        Ok(TriggerResult { id, instant })
    }

    /// Pauses a schedule on all processes, until it is resumed: instants from now on are skipped.
    /// Whether it was not paused before.
    pub async fn pause(&self, name: &ScheduleName) -> StoreResult<bool> {
        let now = self.0.current_time().await;
        Ok(change_state(self.0, name, |state| state.pause(now))
            .await?
            .1)
    }

    /// Sets a paused schedule going again; what fell into the pause stays skipped. Whether it was
    /// paused.
    pub async fn resume(&self, name: &ScheduleName) -> StoreResult<bool> {
        if load_state(self.0, name).await?.is_none() {
            return Ok(false);
        }
        let now = self.0.current_time().await;
        Ok(change_state(self.0, name, |state| state.resume(now))
            .await?
            .1)
    }
}
