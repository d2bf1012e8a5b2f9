//! What costs more than one cheap question to know, and is asked less often than pages are.
//!
//! | what | is asked for again |
//! |---|---|
//! | what schedules missed, how sweeps went | after [`TRUE_FOR`] |
//! | the groups of dead letters | for every page while there are few letters; of more than [`LETTERS_FEW`] after [`DEAR_FOR`] |
//! | keys of streams that stand still, or that nobody looks at | for every page while few hold records; of more than [`KEYS_FEW`] after [`DEAR_FOR`] |
//!
//! Pages that want the same at once wait for one question. What is known from before is told only
//! of queues and streams that have anything now.

use super::gather::{StuckKeys, read_stuck_keys};
use crate::pages::PageView;
use backstop::sweeps::PastRun;
use backstop_core::limits::GROUPS_MAX;
use backstop_core::port::{
    DeadLetterGroup, ListGroupsRequest, QueueStatus, StoreResult, StreamStatus,
};
use backstop_core::{JobState, ScheduleName, Span, Time};
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Mutex;

/// Schedules that are looked at.
const SCHEDULES_MAX: usize = 100;
/// Sweeps that are looked at.
const SWEEPS_MAX: usize = 50;
/// How long what was seen of schedules and sweeps is taken for true.
const TRUE_FOR: Span = Span::secs(10);
/// How long what was seen of many letters, or of many keys, is taken for true: a store has to go
/// through all of them.
const DEAR_FOR: Span = Span::secs(5);
/// Dead letters that are grouped for every page.
const LETTERS_FEW: u64 = 10_000;
/// Keys holding records that are looked at for every page.
const KEYS_FEW: u64 = 200;
/// How long it is told that an instant was given up, from when that was decided: as long as the
/// metric and its alert tell it.
const GIVEN_UP_WITHIN: Span = Span::hours(1);

/// What was said, and when. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct OverviewCache(Arc<OverviewCacheEntries>);

#[derive(Default)]
struct OverviewCacheEntries {
    schedules_and_sweeps: CachedAnswer<SchedulesAndSweeps>,
    groups: CachedAnswer<Vec<DeadLetterGroup>>,
    stuck_keys: CachedAnswer<StuckKeys>,
}

/// One answer, and when it was asked for.
struct CachedAnswer<T>(Mutex<Option<(Time, T)>>);

impl<T> Default for CachedAnswer<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> CachedAnswer<T> {
    /// What was said less than `true_for` ago, or else what is said now.
    async fn get_or_query(
        &self,
        now: Time,
        true_for: Span,
        ask: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        if true_for.is_zero() {
            return ask.await;
        }
        // Held while it is asked, for as long as the request may take: whoever waits here is
        // answered by the same question.
        let mut kept = self.0.lock().await;
        if let Some((at, answer)) = &*kept
            && apart(*at, now) < true_for
        {
            return Ok(answer.clone());
        }
        let answer = ask.await?;
        *kept = Some((now, answer.clone()));
        Ok(answer)
    }
}

/// How far apart two times are. An answer from the future is old as well: the clock was set back.
fn apart(one: Time, other: Time) -> Span {
    one.since(other).max(other.since(one))
}

/// How long an answer about so many is taken for true.
fn true_for(count: u64, few: u64) -> Span {
    if count > few { DEAR_FOR } else { Span::ZERO }
}

/// What was seen of schedules and sweeps.
#[derive(Clone, Default)]
pub(super) struct SchedulesAndSweeps {
    /// Schedules with instants that nobody has dealt with, and how many.
    pub(super) unfired: BTreeMap<ScheduleName, u64>,
    /// Schedules with instants that were given up within the last hour, and how many.
    pub(super) given_up: BTreeMap<ScheduleName, u64>,
    /// The last run of each sweep that has had one.
    pub(super) sweeps: Vec<(String, PastRun)>,
}

impl OverviewCache {
    /// Of the schedules and sweeps of the configuration.
    pub(super) async fn schedules_and_sweeps(
        &self,
        view: &PageView,
        now: Time,
    ) -> StoreResult<SchedulesAndSweeps> {
        self.0
            .schedules_and_sweeps
            .get_or_query(now, TRUE_FOR, read_schedules_and_sweeps(view, now))
            .await
    }

    /// As many groups of dead letters as the store tells: the largest come first, and those of now
    /// may be small.
    pub(super) async fn groups(
        &self,
        view: &PageView,
        queues: &[QueueStatus],
        now: Time,
    ) -> StoreResult<Vec<DeadLetterGroup>> {
        let letters = queues
            .iter()
            .map(|queue| queue.counts.of(JobState::Dead))
            .sum();
        let ask = view.store().groups(
            ListGroupsRequest {
                queue: None,
                limit: GROUPS_MAX,
            },
            now,
        );
        let groups = self
            .0
            .groups
            .get_or_query(now, true_for(letters, LETTERS_FEW), ask)
            .await?;
        Ok(present(groups, queues))
    }

    /// Keys that stand still and keys that nobody looks at.
    pub(super) async fn stuck_keys(
        &self,
        view: &PageView,
        streams: &[StreamStatus],
        now: Time,
    ) -> StoreResult<StuckKeys> {
        let holding = streams.iter().map(|stream| stream.holding).sum();
        let stuck_keys = self
            .0
            .stuck_keys
            .get_or_query(
                now,
                true_for(holding, KEYS_FEW),
                read_stuck_keys(view, streams, now),
            )
            .await?;
        Ok(stuck_keys.of(streams))
    }
}

/// The groups of queues that have dead letters now.
fn present(mut groups: Vec<DeadLetterGroup>, queues: &[QueueStatus]) -> Vec<DeadLetterGroup> {
    let has_letters = |queue: &QueueStatus| queue.counts.of(JobState::Dead) > 0;
    let queues: BTreeSet<_> = queues
        .iter()
        .filter(|queue| has_letters(queue))
        .map(|queue| &queue.name)
        .collect();
    groups.retain(|group| queues.contains(&group.queue));
    groups
}

async fn read_schedules_and_sweeps(view: &PageView, now: Time) -> StoreResult<SchedulesAndSweeps> {
    let (config, backstop) = (view.app().config(), view.app().backstop());
    let schedules: Vec<_> = config
        .schedules
        .values()
        .take(SCHEDULES_MAX)
        .cloned()
        .collect();
    let mut seen = SchedulesAndSweeps::default();
    for run in backstop.schedules().missed_runs(&schedules, now).await? {
        if !run.is_given_up() {
            *seen.unfired.entry(run.schedule).or_insert(0) += 1;
        }
    }
    let since = now.before(GIVEN_UP_WITHIN);
    let given_up = schedules.iter().map(|schedule| async move {
        let count = backstop.schedules().count_given_up(schedule, since).await?;
        Ok((schedule.name.clone(), count as u64))
    });
    let given_up: StoreResult<Vec<_>> = join_all(given_up).await.into_iter().collect();
    seen.given_up = given_up?
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect();
    let runs = config.sweeps.values().take(SWEEPS_MAX).map(|sweep| async {
        let runs = backstop.sweeper(sweep).history().await?;
        Ok(runs
            .into_iter()
            .next()
            .map(|last| (sweep.name().to_owned(), last)))
    });
    let runs: StoreResult<Vec<_>> = join_all(runs).await.into_iter().collect();
    seen.sweeps = runs?.into_iter().flatten().collect();
    Ok(seen)
}

#[cfg(test)]
mod tests;
