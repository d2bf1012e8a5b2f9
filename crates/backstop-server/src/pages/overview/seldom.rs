//! What costs more than one question to know, and is asked less often than pages are: what schedules missed, and how sweeps went.

use crate::pages::View;
use backstop::sweeps::PastRun;
use backstop_core::port::Answer;
use backstop_core::{ScheduleName, Span, Time};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Schedules that are looked at.
const SCHEDULES_MAX: usize = 100;
/// Sweeps that are looked at.
const SWEEPS_MAX: usize = 50;
/// How long what was seen is taken for true.
const TRUE_FOR: Span = Span::secs(10);
/// How long it is told that an instant was given up, from when that was decided: as long as the metric and its alert tell it.
const GIVEN_UP_WITHIN: Span = Span::hours(1);

/// When it was asked for, and what was said. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Seldom(Arc<Mutex<Option<(Time, Seen)>>>);

/// What was said.
#[derive(Clone, Default)]
pub(super) struct Seen {
    /// Schedules with instants that nobody has dealt with, and how many.
    pub(super) unfired: BTreeMap<ScheduleName, u64>,
    /// Schedules with instants that were given up within the last hour, and how many.
    pub(super) given_up: BTreeMap<ScheduleName, u64>,
    /// The last run of each sweep that has had one.
    pub(super) sweeps: Vec<(String, PastRun)>,
}

impl Seldom {
    /// Of the schedules and sweeps of the configuration.
    pub(super) async fn look(&self, view: &View, now: Time) -> Answer<Seen> {
        if let Some((at, seen)) = &*self.kept()
            && now.since(*at) < TRUE_FOR
        {
            return Ok(seen.clone());
        }
        let seen = seen(view, now).await?;
        *self.kept() = Some((now, seen.clone()));
        Ok(seen)
    }

    fn kept(&self) -> MutexGuard<'_, Option<(Time, Seen)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn seen(view: &View, now: Time) -> Answer<Seen> {
    let (config, backstop) = (view.app().config(), view.app().backstop());
    let schedules: Vec<_> = config.schedules.values().take(SCHEDULES_MAX).cloned().collect();
    let mut seen = Seen::default();
    for run in backstop.schedules().missed_runs(&schedules, now).await? {
        if !run.is_given_up() {
            *seen.unfired.entry(run.schedule).or_insert(0) += 1;
        }
    }
    let since = now.before(GIVEN_UP_WITHIN);
    let given_up = schedules.iter().map(|schedule| async move {
        let count = backstop.schedules().given_up(schedule, since).await?;
        Ok((schedule.name.clone(), count as u64))
    });
    let given_up: Answer<Vec<_>> = join_all(given_up).await.into_iter().collect();
    seen.given_up = given_up?.into_iter().filter(|(_, count)| *count > 0).collect();
    let runs = config.sweeps.values().take(SWEEPS_MAX).map(|sweep| async {
        let runs = backstop.sweeper(sweep).history().await?;
        Ok(runs.into_iter().next().map(|last| (sweep.name().to_owned(), last)))
    });
    let runs: Answer<Vec<_>> = join_all(runs).await.into_iter().collect();
    seen.sweeps = runs?.into_iter().flatten().collect();
    Ok(seen)
}
