//! One look at a schedule: what nobody has entered is decided about, what is due is fired, and that
//! is entered too.
//!
//! Safe in any number of processes at once, and to be cut off anywhere: what is agreed on and not
//! done is seen by the next look, whoever takes it.

use super::ledger::{LedgerPages, change_state, forget_old};
use super::metrics;
use crate::client::Backstop;
use backstop_core::limits::FIRE_MAX;
use backstop_core::port::{EnqueueOutcome, StoreResult};
use backstop_core::schedule::{
    InstantOutcome, LatestRun, LedgerEntry, Schedule, ScheduleSnapshot, ScheduleState, SkipReason,
    UtcDay, decide, job_id,
};
use backstop_core::{Span, Time};

/// How far a schedule has been dealt with is written down this often, beside with every run: it is
/// only needed to explain what is older than anybody looks back.
const SETTLED_PERIOD: Span = Span::hours(1);
/// An instant that is agreed on and in no queue after this has lost its process. Well within what
/// counts as fired in time.
const PATIENCE: Span = Span::secs(3);
/// A full queue is complained about this often.
const COMPLAINT_PERIOD: Span = Span::minutes(1);

/// What a process remembers of a schedule from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct ScheduleMemory {
    /// Every instant up to here is dealt with. A process that starts looks through the whole
    /// window.
    settled: Option<Time>,
    /// What another process has agreed to fire is left to that one for so long.
    fire_delay_max: Span,
    /// When old pages were last looked for.
    pruned: Option<UtcDay>,
    warned_at: Option<Time>,
}

impl ScheduleMemory {
    /// For one of many processes that look at the same moment: all but one find that there is
    /// nothing left to do.
    pub(crate) fn among_many() -> Self {
        Self {
            fire_delay_max: PATIENCE,
            ..Self::default()
        }
    }
}

/// What a look found and did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScheduleCheckReport {
    /// What this look entered as done: runs that are in their queue, instants skipped, missed or
    /// coalesced.
    pub entered: Vec<LedgerEntry>,
    /// How many instants were missing when it came.
    pub missing: usize,
    /// How many instants still wait for room in their queue.
    pub waiting: usize,
    /// When to see whether others have fired what they agreed to.
    pub follow_up: Option<Time>,
    /// Whether there is more to be fired at once.
    pub more: bool,
    pub next: Option<Time>,
}

pub(crate) async fn check_schedule(
    backstop: &Backstop,
    schedule: &Schedule,
    memory: &mut ScheduleMemory,
) -> StoreResult<ScheduleCheckReport> {
    let now = backstop.current_time().await;
    let register = |state: &mut ScheduleState| state.register(schedule, now);
    let (state, ()) = change_state(backstop, &schedule.name, register).await?;
    let now = backstop.current_time().await;
    let from = state.look_from(schedule, memory.settled, now);
    let mut pages =
        LedgerPages::read(backstop, &schedule.name, UtcDay::of(from), UtcDay::of(now)).await?;
    let known = pages.known_instants();
    let decision = decide(
        schedule,
        ScheduleSnapshot {
            state: &state,
            from,
            known: &known,
        },
        now,
    );
    let (own, mut entered): (Vec<LedgerEntry>, Vec<LedgerEntry>) = pages
        .enter(&decision.enter)
        .await?
        .into_iter()
        .partition(|entry| entry.outcome == InstantOutcome::Due);

    let (mut due, others) = to_fire(pages.due(), &own, memory.fire_delay_max, now);
    let more = due.len() > FIRE_MAX;
    due.truncate(FIRE_MAX);
    let fired = fire(backstop, schedule, &due).await?;
    entered.extend(pages.conclude(&fired).await?);
    let (left, waiting) = (pages.due(), due.len() - fired.len());

    metrics::count_entries(&schedule.name, &entered);
    let overdue = left
        .iter()
        .filter(|entry| now.since(entry.instant) > schedule.missed.grace)
        .count();
    metrics::count_missing(&schedule.name, decision.missing + overdue);
    log_missing(schedule, decision.missing, waiting, memory, now);

    let through = left
        .first()
        .map_or(now, |oldest| oldest.instant.before(Span::micros(1)));
    record_entries(backstop, schedule, &state, &entered, through).await?;
    memory.settled = Some(through.max(from));
    prune(backstop, schedule, memory, now).await?;
    Ok(ScheduleCheckReport {
        entered,
        missing: decision.missing,
        waiting,
        follow_up: (!others.is_empty()).then(|| now.after(memory.fire_delay_max)),
        more: more && waiting == 0,
        next: decision.wake,
    })
}

/// What of all that is due, the oldest first, this look fires, and what it leaves to others. Its
/// own is what it has agreed on, and what others have left for too long; before that it fires all
/// that is older, whoever agreed on it: so no run comes into its queue ahead of an older one.
fn to_fire(
    mut due: Vec<LedgerEntry>,
    own: &[LedgerEntry],
    fire_delay_max: Span,
    now: Time,
) -> (Vec<LedgerEntry>, Vec<LedgerEntry>) {
    let is_left_alone =
        |entry: &LedgerEntry| now.since(entry.at) >= fire_delay_max || now < entry.at;
    let last = due
        .iter()
        .rposition(|entry| own.contains(entry) || is_left_alone(entry));
    let others = due.split_off(last.map_or(0, |last| last + 1));
    (due, others)
}

/// Puts the jobs of due instants into their queue; answers what became of those that are in it, or
/// never will be.
async fn fire(
    backstop: &Backstop,
    schedule: &Schedule,
    due: &[LedgerEntry],
) -> StoreResult<Vec<LedgerEntry>> {
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let jobs = due
        .iter()
        .map(|entry| schedule.job(entry.instant))
        .collect();
    let answers = backstop.push_jobs(jobs).await?;
    let now = backstop.current_time().await;
    let mut fired = Vec::with_capacity(due.len());
    for (&LedgerEntry { instant, .. }, answer) in due.iter().zip(answers) {
        if answer == EnqueueOutcome::Conflict {
            tracing::warn!(schedule = %schedule.name, id = %job_id(&schedule.name, instant), "a job of another queue has the id of an instant");
        }
        let at = match answer {
            EnqueueOutcome::Inserted => now,
            EnqueueOutcome::Same | EnqueueOutcome::Duplicate(_) => {
                job_inserted_at(backstop, schedule, instant, now).await?
            }
            EnqueueOutcome::Full | EnqueueOutcome::Conflict
                if instant <= now.before(schedule.missed.look_back) =>
            {
                fired.push(LedgerEntry {
                    instant,
                    outcome: InstantOutcome::Missed(SkipReason::QueueFull),
                    at: now,
                });
                continue;
            }
            EnqueueOutcome::Full | EnqueueOutcome::Conflict => continue,
        };
        let what = InstantOutcome::after(at.since(instant), schedule.missed.grace);
        fired.push(LedgerEntry {
            instant,
            outcome: what,
            at,
        });
    }
    Ok(fired)
}

/// When the job of an instant came in that somebody else has put there; now, if it is gone already.
async fn job_inserted_at(
    backstop: &Backstop,
    schedule: &Schedule,
    instant: Time,
    now: Time,
) -> StoreResult<Time> {
    let job = backstop.job(job_id(&schedule.name, instant)).await?;
    Ok(job.map_or(now, |job| job.inserted_at))
}

/// Notes the newest run, and how far everything is dealt with.
async fn record_entries(
    backstop: &Backstop,
    schedule: &Schedule,
    state: &ScheduleState,
    entered: &[LedgerEntry],
    through: Time,
) -> StoreResult<()> {
    let newest = entered
        .iter()
        .filter(|entry| entry.outcome.has_job())
        .max_by_key(|entry| entry.instant);
    let settled = state.settled(schedule).unwrap_or(through);
    if newest.is_none() && through.since(settled) < SETTLED_PERIOD {
        return Ok(());
    }
    let last = newest.map(|entry| LatestRun {
        instant: entry.instant,
        what: entry.outcome.to_string(),
        at: entry.at,
    });
    let change = |state: &mut ScheduleState| {
        state.settle(schedule, through);
        if let Some(last) = &last {
            state.record_run(last.clone());
        }
    };
    change_state(backstop, &schedule.name, change).await?;
    Ok(())
}

async fn prune(
    backstop: &Backstop,
    schedule: &Schedule,
    memory: &mut ScheduleMemory,
    now: Time,
) -> StoreResult<()> {
    let today = UtcDay::of(now);
    if memory.pruned != Some(today) {
        forget_old(backstop, &schedule.name, now).await?;
        memory.pruned = Some(today);
    }
    Ok(())
}

fn log_missing(
    schedule: &Schedule,
    missing: usize,
    waiting: usize,
    memory: &mut ScheduleMemory,
    now: Time,
) {
    let name = &schedule.name;
    if missing > 0 {
        tracing::warn!(schedule = %name, missing, "runs were missing; `backstop schedule runs {name}` tells what became of them");
    }
    let is_new = memory
        .warned_at
        .is_none_or(|at| now < at || now.since(at) >= COMPLAINT_PERIOD);
    if waiting == 0 {
        memory.warned_at = None;
    } else if is_new {
        memory.warned_at = Some(now);
        tracing::warn!(schedule = %name, queue = %schedule.queue, waiting, "due runs do not fit into their queue: it is full; trying again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_run_is_fired_ahead_of_an_older_one_that_another_process_has_agreed_on() {
        let now = Time::from_millis(1_767_225_600_000);
        let entry = |hours_ago: i64, at: Time| LedgerEntry {
            instant: now.before(Span::hours(hours_ago)),
            outcome: InstantOutcome::Due,
            at,
        };
        let due: Vec<LedgerEntry> = (1..=5)
            .rev()
            .map(|hours_ago| entry(hours_ago, now))
            .collect();
        let hours = |entries: &[LedgerEntry]| -> Vec<i64> {
            entries
                .iter()
                .map(|entry| now.since(entry.instant).as_millis() / 3_600_000)
                .collect()
        };
        let check = |own: &[LedgerEntry], patience: Span, expected: &[i64]| {
            let (fired, others) = to_fire(due.clone(), own, patience, now);
            assert_eq!(hours(&fired), expected);
            assert_eq!(fired.len() + others.len(), due.len());
        };
        check(&[due[1], due[3]], PATIENCE, &[5, 4, 3, 2]);
        check(&[], PATIENCE, &[]);
        check(&[], Span::ZERO, &[5, 4, 3, 2, 1]);
        let (fired, _) = to_fire(
            vec![entry(2, now.before(PATIENCE)), entry(1, now)],
            &[],
            PATIENCE,
            now,
        );
        assert_eq!(hours(&fired), [2], "whoever agreed on it has had its time");
    }
}
