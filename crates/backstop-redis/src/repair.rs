//! Rebuilds the indexes of a queue from its records, and removes index entries without a record.
//!
//! Redis applies a script completely or not at all, also in its log and on its replicas, so the
//! keys of one queue stay consistent with each other. Two things can get out of step: the registry
//! of queues, which a cluster may keep on another master, and keys that somebody changed by hand. A
//! pass takes small steps. Each is a script that may be repeated, and other calls may run between
//! two steps.

use crate::cells;
use crate::context::{StoreContext, readable};
use crate::keys::QueueKey;
use crate::link::machine_micros;
use crate::moves::finish_moves;
use crate::record::{fingerprint_bytes, id_of, reason_of, state_code};
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
/// How many entries one step looks at.
const STEP: usize = 200;
/// How many ready jobs one step moves from runs into the ready index as single members.
const DISSOLVED_AT_ONCE: usize = 5_000;
/// How many keys one step of the search for queues looks at.
const SEARCH_STEP: usize = 1_000;

/// A full pass over everything in all queues and streams, registered or not.
pub(crate) async fn repair_all(base: &StoreContext) -> StoreResult<usize> {
    let mut mended =
        find_queues(base).await? + cells::mend(base, DOING).await? + streams::mend(base).await?;
    for queue in base.queues(DOING).await? {
        mended += repair(base, &queue).await?;
    }
    Ok(mended)
}

/// Registers unknown queues and streams, and repairs those whose keys do not agree.
pub(crate) async fn repair_damage(base: &StoreContext) -> StoreResult<()> {
    find_queues(base).await?;
    streams::find_streams(base).await?;
    repair_mismatches(base).await
}

/// Repairs the queues and streams whose keys do not agree, and finishes moves that were begun.
/// Finding them only compares a few lengths per queue.
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

/// The sizes of a queue's keys.
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
    /// Whether every job has its payload and one index entry, every claim all its keys, and every
    /// dead letter its group.
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

/// Registers queues that exist but are unknown; returns how many.
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

/// The keys on all masters that match a pattern.
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

/// Repairs a queue; returns how many entries were wrong.
async fn repair(base: &StoreContext, queue: &QueueName) -> StoreResult<usize> {
    let step = QueueRepair { base, queue };
    dissolve_runs(base, DOING, queue).await?;
    // Leases come first: a job whose claim is gone becomes ready again and is not lost.
    let mut mended = step.strays(QueueKey::Leases, b"L").await?;
    mended += step.claims().await?;
    mended += step.jobs().await?;
    for state in JobState::ALL
        .into_iter()
        .filter(|state| *state != JobState::Running)
    {
        mended += step
            .strays(crate::state_index::part_of(state), &[state_code(state)])
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

/// Makes every ready job a single member of the ready index, so that a scan finds it there.
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

/// A repair pass over one queue.
struct QueueRepair<'a> {
    base: &'a StoreContext,
    queue: &'a QueueName,
}

impl QueueRepair<'_> {
    /// Puts every job into the indexes it belongs to.
    async fn jobs(&self) -> StoreResult<usize> {
        let head = || {
            let mut call = self.base.script(&MEND_JOBS, self.queue);
            call.push(machine_micros().to_string().as_bytes());
            call
        };
        self.each(QueueKey::Records, head).await
    }

    /// Removes entries from a key that do not belong there.
    async fn strays(&self, part: QueueKey, which: &[u8]) -> StoreResult<usize> {
        let head = || {
            let mut call = self.base.script(&MEND_LINE, self.queue);
            call.push(which);
            call
        };
        self.each(part, head).await
    }

    /// Recounts the jobs that each claim holds.
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

    /// Recounts the payloads stored outside of records; returns by how many the count was wrong.
    async fn payloads(&self) -> StoreResult<usize> {
        let answer = self
            .base
            .link
            .run(DOING, &self.base.script(&RECOUNT, self.queue))
            .await?;
        readable(DOING, reply::count(answer))
    }

    /// Puts every dead job into its group. If its fingerprint is unknown, it is computed from the
    /// failure history.
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

    /// Finishes the moves of jobs on their way to another queue; returns how many.
    async fn moves(&self) -> StoreResult<usize> {
        let (mut cursor, mut moved) = ("0".to_owned(), 0);
        loop {
            let (next, ids) = self.names(QueueKey::Moving, &cursor).await?;
            let ids: Vec<JobId> = ids.iter().filter_map(|id| id_of(id)).collect();
            moved += finish_moves(self.base, DOING, self.queue, &ids)
                .await?
                .len();
            cursor = next;
            if cursor == "0" {
                return Ok(moved);
            }
        }
    }

    /// Passes all names in a key to a script, a few at a time.
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

    /// The next names in a key, and the cursor to continue from.
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
            // HSCAN also returns the payloads, which may be large.
            QueueKey::Payloads => STEP / 10,
            // A claim may hold thousands of jobs, and the script looks at all of them.
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

/// The fingerprint of a dead job.
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
