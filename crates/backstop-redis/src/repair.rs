//! Rebuilds the lines of a queue from its records, and removes from the lines what has no record.
//!
//! A script is all or nothing, also in the log of Redis and on its replicas, so that the parts of
//! one queue are set back together. What can come apart is the registry of queues, which a cluster
//! may keep on another master, and whatever was changed by hand. A pass goes in small steps, each a
//! script that may be repeated and that other calls may come between.

use crate::cells;
use crate::context::{StoreContext, readable};
use crate::keys::QueueKey;
use crate::link::machine_micros;
use crate::moves::finish;
use crate::record::{fingerprint_bytes, id_of, reason_of, state_letter};
use crate::reply;
use crate::script::{
    DISSOLVE, MEND_CLAIMS, MEND_DEATHS, MEND_JOBS, MEND_LINE, NOTE_DEATHS, RECOUNT, TALLY,
};
use crate::streams;
use backstop_core::failure::FailureHistory;
use backstop_core::port::StoreResult;
use backstop_core::{Fingerprint, JobId, JobState, QueueName};
use redis::{Cmd, Value};

pub(crate) const DOING: &str = "repairing";
/// Places looked at in one step.
const STEP: usize = 200;
/// Jobs made members of the ready line by themselves in one step.
const DISSOLVED_AT_ONCE: usize = 5_000;
/// Names looked at in one step of the search for queues.
const SEARCH_STEP: usize = 1_000;

/// A whole pass: all queues and streams there are, known or not, and everything in them.
pub(crate) async fn repair_all(base: &StoreContext) -> StoreResult<usize> {
    let mut mended =
        find_queues(base).await? + cells::mend(base, DOING).await? + streams::mend(base).await?;
    for queue in base.queues(DOING).await? {
        mended += repair(base, &queue).await?;
    }
    Ok(mended)
}

/// Finds queues and streams that nobody knows, and repairs those whose parts do not agree.
pub(crate) async fn repair_damage(base: &StoreContext) -> StoreResult<()> {
    find_queues(base).await?;
    streams::find_streams(base).await?;
    repair_mismatches(base).await
}

/// Repairs the queues and streams whose parts do not agree; to find them costs a few lengths each.
/// Finishes moves that somebody began.
pub(crate) async fn repair_mismatches(base: &StoreContext) -> StoreResult<()> {
    cells::mend(base, DOING).await?;
    streams::repair_mismatches(base).await?;
    for tally in tallies(base, DOING).await? {
        if tally.moving > 0 {
            QueueRepair {
                base,
                queue: &tally.queue,
            }
            .moves()
            .await?;
        }
        if !tally.agrees() {
            let mended = repair(base, &tally.queue).await?;
            tracing::warn!(queue = %tally.queue, mended, "places were put right");
        }
    }
    Ok(())
}

/// How many of what a queue has.
pub(crate) struct QueueTally {
    pub(crate) queue: QueueName,
    pub(crate) records: i64,
    payloads: [i64; 2],
    ordered: i64,
    placed: i64,
    claims: [i64; 4],
    deaths: [i64; 3],
    moving: i64,
}

impl QueueTally {
    /// Whether every job has its payload and one place, every claim all its parts, and every death
    /// its group.
    pub(crate) fn agrees(&self) -> bool {
        [self.ordered, self.placed]
            .iter()
            .all(|count| *count == self.records)
            && self.payloads[0] == self.payloads[1]
            && self.claims.iter().all(|count| *count == self.claims[0])
            && self.deaths.iter().all(|count| *count == self.deaths[0])
    }
}

/// The tallies of all queues.
pub(crate) async fn tallies(
    base: &StoreContext,
    doing: &'static str,
) -> StoreResult<Vec<QueueTally>> {
    let queues = base.queues(doing).await?;
    let calls = queues
        .iter()
        .map(|queue| base.script(&TALLY, queue))
        .collect();
    let answers = base.run_each(doing, calls).await?;
    let read = |(queue, answer): (QueueName, Value)| {
        let counts = reply::list(answer)?
            .into_iter()
            .map(reply::whole)
            .collect::<Option<Vec<i64>>>()?;
        let (jobs, others) = counts.split_first_chunk::<3>()?;
        let (payloads, others) = others.split_first_chunk::<2>()?;
        let (claims, others) = others.split_first_chunk::<4>()?;
        let (deaths, others) = others.split_first_chunk::<3>()?;
        let [records, ordered, placed] = *jobs;
        Some(QueueTally {
            queue,
            records,
            payloads: *payloads,
            ordered,
            placed,
            claims: *claims,
            deaths: *deaths,
            moving: *others.first()?,
        })
    };
    readable(doing, queues.into_iter().zip(answers).map(read).collect())
}

/// Registers queues that are there and not known; tells how many.
async fn find_queues(base: &StoreContext) -> StoreResult<usize> {
    let keys = find_keys(base, &base.keys.any_queue()).await?;
    let mut found: Vec<QueueName> = keys
        .iter()
        .filter_map(|key| base.keys.queue_of(key))
        .collect();
    let known = base.queues(DOING).await?;
    found.retain(|queue| known.binary_search(queue).is_err());
    if !found.is_empty() {
        base.register(DOING, &found.iter().collect::<Vec<_>>())
            .await?;
    }
    Ok(found.len())
}

/// The keys on all masters that fit a pattern.
pub(crate) async fn find_keys(base: &StoreContext, pattern: &str) -> StoreResult<Vec<String>> {
    let nodes = base.link.ask_masters(DOING, &redis::cmd("PING")).await?;
    let mut found = Vec::new();
    for (node, _) in nodes {
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor)
                .arg("MATCH")
                .arg(pattern)
                .arg("COUNT")
                .arg(SEARCH_STEP);
            let (next, keys) = readable(
                DOING,
                reply::scanned(base.link.ask_at(DOING, &node, &scan).await?),
            )?;
            found.extend(
                keys.into_iter()
                    .filter_map(|key| String::from_utf8(key).ok()),
            );
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
    }
    Ok(found)
}

/// Puts right what is wrong in a queue; tells how much.
async fn repair(base: &StoreContext, queue: &QueueName) -> StoreResult<usize> {
    let step = QueueRepair { base, queue };
    dissolve_runs(base, DOING, queue).await?;
    // Leases first: a job is ready again, not lost, if its claim is gone.
    let mut mended = step.strays(QueueKey::Leases, b"L").await?;
    mended += step.claims().await?;
    mended += step.jobs().await?;
    for state in JobState::ALL
        .into_iter()
        .filter(|state| *state != JobState::Running)
    {
        mended += step
            .strays(crate::state_index::part_of(state), &[state_letter(state)])
            .await?;
    }
    mended += step.strays(QueueKey::Order, b"O").await?;
    mended += step.strays(QueueKey::Payloads, b"P").await?;
    mended += step.strays(QueueKey::Ends, b"E").await?;
    mended += step.strays(QueueKey::Histories, b"H").await?;
    mended += step.deaths().await?;
    mended += step.strays(QueueKey::Deaths, b"F").await?;
    mended += step.strays(QueueKey::Groups, b"G").await?;
    mended += step.strays(QueueKey::Moving, b"W").await?;
    mended += step.strays(QueueKey::Moved, b"V").await?;
    mended += step.payloads().await?;
    Ok(mended + step.moves().await?)
}

/// Makes every ready job a member of the line by itself, so that it can be looked for there.
pub(crate) async fn dissolve_runs(
    base: &StoreContext,
    doing: &'static str,
    queue: &QueueName,
) -> StoreResult<()> {
    while base
        .link
        .run(doing, &base.script(&DISSOLVE, queue).arg(DISSOLVED_AT_ONCE))
        .await?
        == Value::Int(1)
    {}
    Ok(())
}

/// A pass through one queue, step by step.
struct QueueRepair<'a> {
    base: &'a StoreContext,
    queue: &'a QueueName,
}

impl QueueRepair<'_> {
    /// Puts every job into its lines.
    async fn jobs(&self) -> StoreResult<usize> {
        let head = || {
            let mut call = self.base.script(&MEND_JOBS, self.queue);
            call.push(machine_micros().to_string().as_bytes());
            call
        };
        self.each(QueueKey::Records, head).await
    }

    /// Removes from a line what does not belong there.
    async fn strays(&self, part: QueueKey, which: &[u8]) -> StoreResult<usize> {
        let head = || {
            let mut call = self.base.script(&MEND_LINE, self.queue);
            call.push(which);
            call
        };
        self.each(part, head).await
    }

    /// Counts anew what claims hold.
    async fn claims(&self) -> StoreResult<usize> {
        let mut mended = 0;
        for part in [
            QueueKey::Held,
            QueueKey::Terms,
            QueueKey::Claims,
            QueueKey::Left,
        ] {
            mended += self
                .each(part, || self.base.script(&MEND_CLAIMS, self.queue))
                .await?;
        }
        Ok(mended)
    }

    /// Counts the payloads that stand apart; tells by how many they were miscounted.
    async fn payloads(&self) -> StoreResult<usize> {
        let answer = self
            .base
            .link
            .run(DOING, &self.base.script(&RECOUNT, self.queue))
            .await?;
        readable(DOING, reply::count(answer))
    }

    /// Puts every dead job into its group. What it died of, if that is not known, is told by its
    /// history.
    async fn deaths(&self) -> StoreResult<usize> {
        let (mut cursor, mut mended) = ("0".to_owned(), 0);
        loop {
            let (next, members) = self.names(QueueKey::Dead, &cursor).await?;
            let mut call = self.base.script(&MEND_DEATHS, self.queue);
            for member in &members {
                call.push(member);
            }
            let mut parts =
                readable(DOING, reply::list(self.base.link.run(DOING, &call).await?))?.into_iter();
            mended += readable(DOING, parts.next().and_then(reply::count))?;
            let mut call = self.base.script(&NOTE_DEATHS, self.queue);
            while let (Some(member), Some(reason), Some(history)) =
                (parts.next(), parts.next(), parts.next())
            {
                call.push(&readable(DOING, reply::bytes(member))?);
                call.push(&fingerprint_bytes(readable(
                    DOING,
                    fingerprint(reason, history),
                )?));
            }
            mended += readable(DOING, reply::count(self.base.link.run(DOING, &call).await?))?;
            cursor = next;
            if cursor == "0" {
                return Ok(mended);
            }
        }
    }

    /// Finishes the moves of jobs that are on their way to another queue; tells how many.
    async fn moves(&self) -> StoreResult<usize> {
        let (mut cursor, mut moved) = ("0".to_owned(), 0);
        loop {
            let (next, ids) = self.names(QueueKey::Moving, &cursor).await?;
            let ids: Vec<JobId> = ids.iter().filter_map(|id| id_of(id)).collect();
            moved += finish(self.base, DOING, self.queue, &ids).await?.len();
            cursor = next;
            if cursor == "0" {
                return Ok(moved);
            }
        }
    }

    /// Hands all names in a part to a script, a few at a time.
    async fn each(
        &self,
        part: QueueKey,
        head: impl Fn() -> crate::script::ScriptCall,
    ) -> StoreResult<usize> {
        let (mut cursor, mut mended) = ("0".to_owned(), 0);
        loop {
            let (next, names) = self.names(part, &cursor).await?;
            let mut call = head();
            for name in &names {
                call.push(name);
            }
            let answer = self.base.link.run(DOING, &call).await?;
            mended += readable(DOING, reply::count(answer))?;
            cursor = next;
            if cursor == "0" {
                return Ok(mended);
            }
        }
    }

    /// The next names in a part, and where to go on.
    async fn names(&self, part: QueueKey, cursor: &str) -> StoreResult<(String, Vec<Vec<u8>>)> {
        let scan = self.scan(part, cursor);
        let (next, found) = readable(
            DOING,
            reply::scanned(self.base.link.ask(DOING, &scan).await?),
        )?;
        Ok((next, found.into_iter().step_by(2).collect()))
    }

    fn scan(&self, part: QueueKey, cursor: &str) -> Cmd {
        let verb = match part {
            QueueKey::Order
            | QueueKey::Ready
            | QueueKey::Scheduled
            | QueueKey::Retrying
            | QueueKey::Done
            | QueueKey::Dead
            | QueueKey::Cancelled
            | QueueKey::Groups
            | QueueKey::Terms
            | QueueKey::Lapses => "ZSCAN",
            _ => "HSCAN",
        };
        let count = match part {
            // Payloads come with their names, and may be large.
            QueueKey::Payloads => STEP / 10,
            // A claim may hold thousands of jobs, and all of them are looked at.
            QueueKey::Claims | QueueKey::Held | QueueKey::Terms | QueueKey::Left => STEP / 20,
            _ => STEP,
        };
        let mut command = redis::cmd(verb);
        command
            .arg(self.base.keys.part(self.queue, part))
            .arg(cursor)
            .arg("COUNT")
            .arg(count);
        command
    }
}

/// What a job died of.
fn fingerprint(reason: Value, history: Value) -> Option<Fingerprint> {
    let reason = reply::bytes(reason)?
        .first()
        .and_then(|letter| reason_of(*letter));
    let history = Some(reply::bytes(history)?).filter(|history| !history.is_empty());
    Some(Fingerprint::of_death(
        reason,
        &FailureHistory::from_stored(history),
    ))
}
