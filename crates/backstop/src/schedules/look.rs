//! One look at a schedule: what nobody has entered is decided about, what is due is fired, and that is entered too.
//!
//! Safe in any number of processes at once, and to be cut off anywhere: what is agreed on and not done is seen by the
//! next look, whoever takes it.

use super::metrics;
use super::pages::{Pages, change_standing, forget_old};
use crate::client::Backstop;
use backstop_core::limits::{FIRE_MAX, LEDGER_KEPT};
use backstop_core::port::{Answer, Enqueued};
use backstop_core::schedule::{Day, Entry, Last, Schedule, Seen, Standing, What, Why, decide, job_id};
use backstop_core::{Span, Time};

/// How far a schedule has been dealt with is written down this often, beside with every run: it is only needed to explain what
/// is older than anybody looks back.
const SETTLED_PERIOD: Span = Span::hours(1);
/// An instant that is agreed on and in no queue after this has lost its process. Well within what counts as fired in time.
const PATIENCE: Span = Span::secs(3);
/// A full queue is complained about this often.
const COMPLAINT_PERIOD: Span = Span::minutes(1);

/// What a process remembers of a schedule from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Every instant up to here is dealt with. A process that starts looks through the whole window.
    settled: Option<Time>,
    /// What another process has agreed to fire is left to that one for so long.
    patience: Span,
    /// When old pages were last looked for.
    pruned: Option<Day>,
    complained: Option<Time>,
}

impl Memory {
    /// For one of many processes that look at the same moment: all but one find that there is nothing left to do.
    pub(crate) fn among_many() -> Self {
        Self { patience: PATIENCE, ..Self::default() }
    }
}

/// What a look found and did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Looked {
    /// What this look entered as done: runs that are in their queue, instants skipped, missed or coalesced.
    pub entered: Vec<Entry>,
    /// How many instants were missing when it came.
    pub missing: usize,
    /// How many instants still wait for room in their queue.
    pub waiting: usize,
    /// When to see whether others have fired what they agreed to.
    pub follow_up: Option<Time>,
    /// Whether there is more to be fired at once.
    pub more: bool,
    /// The next instant.
    pub next: Option<Time>,
}

/// Looks at a schedule.
pub(crate) async fn look(backstop: &Backstop, schedule: &Schedule, memory: &mut Memory) -> Answer<Looked> {
    let now = backstop.now();
    let (standing, ()) =
        change_standing(backstop, &schedule.name, |standing| standing.register(schedule, now)).await?;
    // A clock that was set right after decades does not make this one walk through them.
    let from = memory.settled.unwrap_or_else(|| first_from(&standing, schedule, now));
    let from = from.min(now).max(now.before(LEDGER_KEPT));
    let mut pages = Pages::read(backstop, &schedule.name, Day::of(from), Day::of(now)).await?;
    let known = pages.known();
    let decision = decide(schedule, Seen { standing: &standing, from, known: &known }, now);
    let (own, mut entered): (Vec<Entry>, Vec<Entry>) =
        pages.enter(&decision.enter).await?.into_iter().partition(|entry| entry.what == What::Due);

    let is_ours =
        |entry: &Entry| own.contains(entry) || now.since(entry.at) >= memory.patience || now < entry.at;
    let (mut due, others): (Vec<Entry>, Vec<Entry>) = pages.due().into_iter().partition(is_ours);
    let more = due.len() > FIRE_MAX;
    due.truncate(FIRE_MAX);
    let fired = fire(backstop, schedule, &due).await?;
    entered.extend(pages.conclude(&fired).await?);
    let (left, waiting) = (pages.due(), due.len() - fired.len());

    metrics::entered(&schedule.name, &entered);
    let overdue = left.iter().filter(|entry| now.since(entry.instant) > schedule.missed.grace).count();
    metrics::missing(&schedule.name, decision.missing + overdue);
    tell(schedule, decision.missing, waiting, memory, now);

    let through = left.first().map_or(now, |oldest| oldest.instant.before(Span::micros(1)));
    note(backstop, schedule, &standing, &entered, through).await?;
    memory.settled = Some(through.max(from));
    prune(backstop, schedule, memory, now).await?;
    Ok(Looked {
        entered,
        missing: decision.missing,
        waiting,
        follow_up: (!others.is_empty()).then(|| now.after(memory.patience)),
        more: more && waiting == 0,
        next: decision.wake,
    })
}

/// Where a process begins that knows nothing: the whole window, and what is older and was left by whoever was last here.
fn first_from(standing: &Standing, schedule: &Schedule, now: Time) -> Time {
    let window = now.before(schedule.missed.look_back);
    let left = standing.settled(schedule).unwrap_or(window);
    left.min(window).max(now.before(LEDGER_KEPT))
}

/// Puts the jobs of due instants into their queue; answers what became of those that are in it, or never will be.
async fn fire(backstop: &Backstop, schedule: &Schedule, due: &[Entry]) -> Answer<Vec<Entry>> {
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let jobs = due.iter().map(|entry| schedule.job(entry.instant)).collect();
    let answers = backstop.push_jobs(jobs).await?;
    let now = backstop.now();
    let mut fired = Vec::with_capacity(due.len());
    for (&Entry { instant, .. }, answer) in due.iter().zip(answers) {
        let at = match answer {
            Enqueued::Inserted => now,
            Enqueued::Same | Enqueued::Duplicate(_) => came_in(backstop, schedule, instant, now).await?,
            Enqueued::Full if instant <= now.before(schedule.missed.look_back) => {
                fired.push(Entry { instant, what: What::Missed(Why::QueueFull), at: now });
                continue;
            }
            Enqueued::Full => continue,
        };
        let what = What::after(at.since(instant), schedule.missed.grace);
        fired.push(Entry { instant, what, at });
    }
    Ok(fired)
}

/// When the job of an instant came in that somebody else has put there; now, if it is gone already.
async fn came_in(backstop: &Backstop, schedule: &Schedule, instant: Time, now: Time) -> Answer<Time> {
    let job = backstop.job(job_id(&schedule.name, instant)).await?;
    Ok(job.map_or(now, |job| job.inserted_at))
}

/// Notes the newest run, and how far everything is dealt with.
async fn note(
    backstop: &Backstop,
    schedule: &Schedule,
    standing: &Standing,
    entered: &[Entry],
    through: Time,
) -> Answer<()> {
    let newest = entered.iter().filter(|entry| entry.what.has_job()).max_by_key(|entry| entry.instant);
    let settled = standing.settled(schedule).unwrap_or(through);
    if newest.is_none() && through.since(settled) < SETTLED_PERIOD {
        return Ok(());
    }
    let last =
        newest.map(|entry| Last { instant: entry.instant, what: entry.what.to_string(), at: entry.at });
    let change = |standing: &mut Standing| {
        standing.settle(schedule, through);
        if let Some(last) = &last {
            standing.ran(last.clone());
        }
    };
    change_standing(backstop, &schedule.name, change).await?;
    Ok(())
}

async fn prune(backstop: &Backstop, schedule: &Schedule, memory: &mut Memory, now: Time) -> Answer<()> {
    let today = Day::of(now);
    if memory.pruned != Some(today) {
        forget_old(backstop, &schedule.name, now).await?;
        memory.pruned = Some(today);
    }
    Ok(())
}

fn tell(schedule: &Schedule, missing: usize, waiting: usize, memory: &mut Memory, now: Time) {
    let name = &schedule.name;
    if missing > 0 {
        tracing::warn!(schedule = %name, missing, "runs were missing; `backstop schedule runs {name}` tells what became of them");
    }
    let is_new = memory.complained.is_none_or(|at| now < at || now.since(at) >= COMPLAINT_PERIOD);
    if waiting == 0 {
        memory.complained = None;
    } else if is_new {
        memory.complained = Some(now);
        tracing::warn!(schedule = %name, queue = %schedule.queue, waiting, "due runs do not fit into their queue: it is full; trying again");
    }
}
