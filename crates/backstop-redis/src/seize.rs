//! Takes over the jobs of dead workers. One pass over all queues finds the claims that expired
//! first; then each queue hands over its own.

use crate::claim::{ClaimedRecord, handed_out, holder};
use crate::context::{StoreContext, readable};
use crate::record::{number_bytes, number_of};
use crate::reply;
use crate::script::{EXPIRED, MOVE_BACK, SEIZE, ScriptCall};
use crate::workers::seen_of;
use backstop_core::lease::end_after_clock_set_back;
use backstop_core::limits::{LEASE_REQUEST_MAX, SEIZE_MAX, SET_BACK_MIN};
use backstop_core::port::{SeizeRequest, SeizeResult, SeizedRun, StoreResult};
use backstop_core::verdict::LostLease;
use backstop_core::{Lease, QueueName, Time, WorkerName};
use redis::Value;
use std::collections::BTreeMap;

const DOING: &str = "seizing";
/// The bytes of a lease before its place.
const PLACE_AT: usize = 18;

/// Takes over jobs of expired claims. A repeated call returns the jobs it took over before.
pub(crate) async fn seize(
    base: &StoreContext,
    seize: &SeizeRequest,
    now: Time,
) -> StoreResult<SeizeResult> {
    let mut queues = base.queues_known(DOING).await?;
    queues.retain(|queue| !seize.spared.contains(queue));
    let far = now.after(LEASE_REQUEST_MAX).as_micros();
    let max = seize.max.min(SEIZE_MAX);
    let looks = queues.iter().map(|queue| {
        let call = base.script(&EXPIRED, queue).arg(now.as_micros()).arg(far);
        call.arg(&number_bytes(seize.number)[..])
            .arg(max + 1)
            .arg(now.after(SET_BACK_MIN).as_micros())
    });
    let (mut held, mut ahead, mut expired) = (Vec::new(), Vec::new(), Vec::new());
    let mut more = false;
    for (queue, answer) in queues
        .iter()
        .zip(base.run_apart(DOING, looks.collect()).await?)
    {
        let Some(answer) = answer else {
            more = true;
            continue;
        };
        let found = readable(DOING, read_found(queue, answer))?;
        held.extend(found.is_open.then_some(queue));
        ahead.extend(found.ahead);
        // The script looks for one claim more than wanted, to learn whether the queue has more.
        more |= found.expired.len() > max;
        expired.extend(found.expired);
    }
    match move_back(base, &ahead, now).await {
        // Part of a cluster may be unreachable. Seizing elsewhere goes on; the next call tries
        // again.
        Err(error) if error.is_transient() => {
            tracing::debug!(%error, "claims from before the clock was set back");
        }
        moved => moved?,
    }
    let plan = if held.is_empty() {
        more |= expired.iter().map(|claim| claim.jobs).sum::<usize>() > max;
        plan(expired, max)
    } else {
        // This is a repeated call; it does not know what its first try left behind.
        more = true;
        held.into_iter().map(|queue| (queue, Vec::new())).collect()
    };
    let mut seizure = take_over(base, seize, now, &plan).await?;
    seizure.more |= more;
    Ok(seizure)
}

/// An expired claim, in one queue.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ExpiredQueueClaim<'a> {
    until_micros: i64,
    number: Vec<u8>,
    queue: &'a QueueName,
    jobs: usize,
}

/// The claims that were found in one queue.
struct QueueClaims<'a> {
    /// Whether this seizer already holds jobs in the queue: then the call is a repetition.
    is_open: bool,
    ahead: Vec<FutureClaim<'a>>,
    expired: Vec<ExpiredQueueClaim<'a>>,
}

/// A claim that ends so late that it may have been made before the clock was set back, in one
/// queue.
struct FutureClaim<'a> {
    until: Time,
    number: Vec<u8>,
    queue: &'a QueueName,
    worker: String,
}

/// Shortens claims whose workers have sent no heartbeat since the clock was set back. Only claims
/// that end more than [`SET_BACK_MIN`] from now are candidates; with leases shorter than a minute
/// there are none, unless the clock was set back.
async fn move_back(base: &StoreContext, ahead: &[FutureClaim<'_>], now: Time) -> StoreResult<()> {
    if ahead.is_empty() {
        return Ok(());
    }
    let workers = ahead.iter().map(|claim| claim.worker.as_str()).collect();
    let seen = seen_of(base, &workers).await?;
    let mut calls = BTreeMap::<&QueueName, ScriptCall>::new();
    for claim in ahead {
        let seen = seen.get(claim.worker.as_str()).copied();
        let Some(until) = seen.and_then(|seen| end_after_clock_set_back(claim.until, seen, now))
        else {
            continue;
        };
        let call = calls
            .entry(claim.queue)
            .or_insert_with(|| base.script(&MOVE_BACK, claim.queue));
        call.push(&claim.number);
        call.push(claim.until.as_micros().to_string().as_bytes());
        call.push(until.as_micros().to_string().as_bytes());
    }
    base.run_each(DOING, calls.into_values().collect())
        .await
        .map(drop)
}

/// The claims to take over in each queue, each with a maximum of jobs.
type SeizePlan<'a> = BTreeMap<&'a QueueName, Vec<(Vec<u8>, usize)>>;

/// Plans the earliest claims first and cuts the last one to the room left. A claim that holds no
/// job stays in the plan, because the script closes it.
fn plan(mut expired: Vec<ExpiredQueueClaim<'_>>, max: usize) -> SeizePlan<'_> {
    expired.sort_unstable();
    let (mut plan, mut room) = (SeizePlan::new(), max);
    for claim in expired {
        if room == 0 {
            break;
        }
        let taken = claim.jobs.min(room);
        room -= taken;
        plan.entry(claim.queue)
            .or_default()
            .push((claim.number, taken));
    }
    plan
}

async fn take_over(
    base: &StoreContext,
    seize: &SeizeRequest,
    now: Time,
    plan: &SeizePlan<'_>,
) -> StoreResult<SeizeResult> {
    let holder = holder(&seize.worker, now, plan.keys().copied());
    let calls = plan.iter().map(|(queue, claims)| {
        let mut call = base
            .script(&SEIZE, queue)
            .arg(&number_bytes(seize.number)[..])
            .arg(&holder)
            .arg(seize.until.as_micros())
            .arg(now.as_micros())
            .arg(now.after(LEASE_REQUEST_MAX).as_micros());
        for (number, max) in claims {
            call.push(number);
            call.push(max.to_string().as_bytes());
        }
        call
    });
    let answers = base.run_apart(DOING, calls.collect()).await?;
    let mut seizure = SeizeResult::default();
    for ((queue, claims), answer) in plan.iter().zip(answers) {
        let Some(answer) = answer else {
            seizure.more = true;
            continue;
        };
        let runs = readable(DOING, handed_out(queue, seize.number, answer))?;
        // The script stopped at its bound of bytes or jobs. Or some jobs ended meanwhile; then the
        // next call finds none.
        seizure.more |= runs.len() < claims.iter().map(|(_, jobs)| jobs).sum::<usize>();
        seizure.runs.extend(runs.into_iter().filter_map(seized_run));
    }
    Ok(seizure)
}

fn read_found(queue: &QueueName, answer: Value) -> Option<QueueClaims<'_>> {
    let mut parts = reply::list(answer)?.into_iter();
    let is_open = reply::whole(parts.next()?)? != 0;
    let mut ahead = Vec::new();
    for _ in 0..reply::count(parts.next()?)? {
        let number = reply::bytes(parts.next()?)?;
        let until = Time::from_micros(reply::whole(parts.next()?)?);
        let holder = reply::text(parts.next()?)?;
        let worker = holder
            .split_once('\n')
            .map(|(_, worker)| worker.to_owned())
            .unwrap_or_default();
        ahead.push(FutureClaim {
            until,
            number,
            queue,
            worker,
        });
    }
    let mut expired = Vec::new();
    while let (Some(number), Some(until), Some(jobs)) = (parts.next(), parts.next(), parts.next()) {
        let jobs = usize::try_from(reply::whole(jobs)?).unwrap_or_default();
        let number = reply::bytes(number)?;
        expired.push(ExpiredQueueClaim {
            until_micros: reply::whole(until)?,
            number,
            queue,
            jobs,
        });
    }
    Some(QueueClaims {
        is_open,
        ahead,
        expired,
    })
}

/// Reads a job under its new lease; the old lease follows after a `|`.
fn seized_run(run: ClaimedRecord) -> Option<SeizedRun> {
    let lease = run.lease?;
    let behind = lease.get(PLACE_AT..)?;
    let bar = PLACE_AT + behind.iter().position(|byte| *byte == b'|')?;
    let former = lease.get(bar + 1..)?;
    let (number, begun, worker) = (former.get(..8)?, former.get(8)?, former.get(9..)?);
    let worker = WorkerName::new(&String::from_utf8_lossy(worker));
    let former = Lease {
        number: number_of(number)?,
        ..run.leased.lease.clone()
    };
    Some(SeizedRun {
        run: run.leased,
        vanished: LostLease {
            worker,
            lease: former,
        },
        begun: *begun == b'1',
    })
}
