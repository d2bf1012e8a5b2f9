//! Queues, pauses, workers, retention, and the promotion of due jobs.

use crate::link::{CommitMode, PostgresLink};
use crate::row;
use crate::scan_hint::{ScanHints, ScanStart, ScanTarget};
use backstop_core::limits::{
    EXPIRED_COUNTED_MAX, PROMOTE_MAX, PRUNE_MAX, PRUNE_QUEUES_MAX, QUEUE_KEPT_FOR, WORKER_KEPT_FOR,
};
use backstop_core::port::{
    ExpiredLeases, PromoteResult, PruneRequest, PruneResult, QueueState, QueueStatus, QueueTotals,
    Retention, StateCounts, StoreError, StoreResult, WorkerStatus,
};
use backstop_core::{JobState, QueueBounds, QueueName, Span, Time, WorkerName};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// How long a queue must be retired before it is removed: longer than any push that found it before
/// can last.
const RETIRED_FOR: Span = Span::hours(1);
/// The states of ended jobs, in the order in which they are pruned.
const SHELVES: [JobState; 3] = [JobState::Done, JobState::Cancelled, JobState::Dead];

/// Makes the jobs ready that are due.
pub(crate) async fn promote(
    link: &PostgresLink,
    scan_hints: &ScanHints,
    max: usize,
    now: Time,
) -> StoreResult<PromoteResult> {
    let look = scan_hints.begin_scan(&ScanTarget::WaitingJobs, now);
    let params = [
        (&row::number(max.min(PROMOTE_MAX)) as _, Type::INT4),
        (&now.as_micros() as _, Type::INT8),
        (&look.begins_at() as _, Type::INT8),
    ];
    let rows = link
        .call("promoting", CommitMode::Quick, "promote", &params)
        .await?;
    let row = rows
        .first()
        .ok_or_else(|| StoreError::corrupt("promoting", "no answer"))?;
    let moved: i32 = row::get(row, 0)?;
    let next_due = row::get::<Option<i64>>(row, 1)?.map(Time::from_micros);
    if next_due.is_none_or(|due| due > now) {
        scan_hints.record_cleared(ScanTarget::WaitingJobs, look, now);
    }
    Ok(PromoteResult {
        moved: usize::try_from(moved).unwrap_or(0),
        next_due,
        unanswered: Vec::new(),
    })
}

pub(crate) async fn queues(link: &PostgresLink) -> StoreResult<Vec<QueueStatus>> {
    link.call("listing queues", CommitMode::Durable, "queues", &[])
        .await?
        .iter()
        .map(status)
        .collect()
}

fn status(row: &Row) -> StoreResult<QueueStatus> {
    let (counted, ended): (Vec<i64>, Vec<i64>) = (row::get(row, 2)?, row::get(row, 3)?);
    let number = |from: &[i64], at: usize| from.get(at).copied().unwrap_or(0).max(0).unsigned_abs();
    let mut counts = StateCounts::default();
    for (at, state) in JobState::ALL.into_iter().enumerate() {
        *counts.of_mut(state) = number(&counted, at);
    }
    let [enqueued, done, dead, cancelled] = [0, 1, 2, 3].map(|at| number(&ended, at));
    Ok(QueueStatus {
        name: name(row::get(row, 0)?)?,
        state: if row::get(row, 1)? {
            QueueState::Paused
        } else {
            QueueState::Active
        },
        counts,
        totals: QueueTotals {
            enqueued,
            done,
            dead,
            cancelled,
        },
        next_ready: row::get::<Option<i64>>(row, 4)?.map(Time::from_micros),
        bounds: bounds(row)?,
    })
}

fn bounds(row: &Row) -> StoreResult<QueueBounds> {
    Ok(QueueBounds {
        max_size: row::get::<Option<i64>>(row, 5)?.map(i64::cast_unsigned),
        // No code writes another word, so the row is damaged. The default, which rejects jobs,
        // loses nothing.
        overflow: row::get::<&str>(row, 6)?.parse().unwrap_or_default(),
        dead_max: row::get::<i64>(row, 7)?.cast_unsigned(),
    })
}

/// Sets the bounds of a queue.
pub(crate) async fn set_bounds(
    link: &PostgresLink,
    queue: &QueueName,
    bounds: QueueBounds,
) -> StoreResult<()> {
    let params = [
        (&queue.as_str() as _, Type::TEXT),
        (&bounds.max_size.map(u64::cast_signed) as _, Type::INT8),
        (&bounds.overflow.as_str() as _, Type::TEXT),
        (&bounds.dead_max.cast_signed() as _, Type::INT8),
    ];
    link.call(
        "bounding a queue",
        CommitMode::Durable,
        "set_bounds",
        &params,
    )
    .await
    .map(drop)
}

pub(crate) async fn declare(link: &PostgresLink, queues: &[QueueName]) -> StoreResult<()> {
    let names: Vec<&str> = queues.iter().map(QueueName::as_str).collect();
    let params = [(&names as _, Type::TEXT_ARRAY)];
    let doing = "declaring queues";
    link.call(doing, CommitMode::Durable, "declare_queues", &params)
        .await
        .map(drop)
}

fn name(text: &str) -> StoreResult<QueueName> {
    QueueName::new(text).map_err(|error| StoreError::corrupt("listing queues", error))
}

/// Pauses or resumes a queue.
pub(crate) async fn set_gate(
    link: &PostgresLink,
    queue: &QueueName,
    gate: QueueState,
) -> StoreResult<()> {
    let params = [
        (&queue.as_str() as _, Type::TEXT),
        (&(gate == QueueState::Paused) as _, Type::BOOL),
    ];
    link.call(
        "pausing or resuming a queue",
        CommitMode::Durable,
        "set_gate",
        &params,
    )
    .await
    .map(drop)
}

/// Lists all workers with a heartbeat in the last `within`, by name.
pub(crate) async fn workers(
    link: &PostgresLink,
    within: Span,
    now: Time,
) -> StoreResult<Vec<WorkerStatus>> {
    let params = [(&now.before(within).as_micros() as _, Type::INT8)];
    link.call("listing workers", CommitMode::Durable, "workers", &params)
        .await?
        .iter()
        .map(worker)
        .collect()
}

/// Counts the leases that ended before this time and that no worker has seized.
pub(crate) async fn expired_leases(
    link: &PostgresLink,
    before: Time,
) -> StoreResult<ExpiredLeases> {
    let params = [
        (&before.as_micros() as _, Type::INT8),
        (&row::number(EXPIRED_COUNTED_MAX) as _, Type::INT4),
    ];
    let rows = link
        .call(
            "counting expired leases",
            CommitMode::Durable,
            "expired_leases",
            &params,
        )
        .await?;
    let Some(row) = rows.first() else {
        return Ok(ExpiredLeases::default());
    };
    let (count, first): (i64, Option<i64>) = (row::get(row, 0)?, row::get(row, 1)?);
    let count = usize::try_from(count).unwrap_or_default();
    Ok(ExpiredLeases {
        count,
        first: first.map(Time::from_micros),
    })
}

fn worker(row: &Row) -> StoreResult<WorkerStatus> {
    let (queues, running): (&str, i64) = (row::get(row, 1)?, row::get(row, 3)?);
    Ok(WorkerStatus {
        name: WorkerName::new(row::get(row, 0)?),
        queues: queues
            .lines()
            .filter_map(|name| QueueName::new(name).ok())
            .collect(),
        seen_at: Time::from_micros(row::get(row, 2)?),
        running: running.max(0).unsigned_abs(),
    })
}

/// Removes ended jobs of the queues behind `after`, queue by queue: done, cancelled, dead, oldest
/// first. Also returns the queue behind which the next call continues.
pub(crate) async fn prune(
    link: &PostgresLink,
    scan_hints: &ScanHints,
    retention: &PruneRequest,
    after: Option<QueueName>,
    now: Time,
) -> StoreResult<(PruneResult, Option<QueueName>)> {
    let (names, is_end) = next_queues(link, retention, after.as_ref()).await?;
    let mut pruned = prune_queues(link, scan_hints, retention, &names, now).await?;
    // If jobs are left, the next call starts with the same queues.
    let next = if pruned.more {
        after
    } else {
        names.last().filter(|_| !is_end).cloned()
    };
    pruned.more |= !is_end;
    forget_queues(link, retention, &names, now).await?;
    Ok((pruned, next))
}

/// Reads the queues that one call prunes, and whether these are the last ones.
async fn next_queues(
    link: &PostgresLink,
    retention: &PruneRequest,
    after: Option<&QueueName>,
) -> StoreResult<(Vec<QueueName>, bool)> {
    let looked = PRUNE_QUEUES_MAX + 1;
    let mut names: Vec<QueueName> = if retention.default.is_some() {
        let after = after.map_or("", QueueName::as_str);
        let params = [
            (&after as _, Type::TEXT),
            (&row::number(looked) as _, Type::INT4),
        ];
        let rows = link
            .call("pruning", CommitMode::Durable, "queues_after", &params)
            .await?;
        rows.iter()
            .map(|row| name(row::get(row, 1)?))
            .collect::<StoreResult<_>>()?
    } else {
        let known = retention.queues.iter().map(|(name, _)| name);
        known
            .filter(|name| after.is_none_or(|after| *name > after))
            .cloned()
            .collect()
    };
    names.sort_unstable();
    let is_end = names.len() < looked;
    names.truncate(PRUNE_QUEUES_MAX);
    Ok((names, is_end))
}

/// Removes queues that have been unused for long.
async fn forget_queues(
    link: &PostgresLink,
    retention: &PruneRequest,
    names: &[QueueName],
    now: Time,
) -> StoreResult<()> {
    let names: Vec<&str> = names
        .iter()
        .filter(|name| retention.retention_for(name).is_some())
        .map(QueueName::as_str)
        .collect();
    let params = [
        (&names as _, Type::TEXT_ARRAY),
        (&now.as_micros() as _, Type::INT8),
        (&QUEUE_KEPT_FOR.as_micros() as _, Type::INT8),
        (&RETIRED_FOR.as_micros() as _, Type::INT8),
    ];
    link.call(
        "forgetting queues",
        CommitMode::Durable,
        "forget_queues",
        &params,
    )
    .await
    .map(drop)
}

async fn prune_queues(
    link: &PostgresLink,
    scan_hints: &ScanHints,
    retention: &PruneRequest,
    names: &[QueueName],
    now: Time,
) -> StoreResult<PruneResult> {
    let shelves: Vec<_> = names
        .iter()
        .filter_map(|name| Some((name, retention.retention_for(name)?)))
        .collect();
    let ended = shelves
        .iter()
        .flat_map(|(name, _)| SHELVES.map(|state| ScanTarget::Ended((*name).clone(), state)));
    let looks: Vec<(ScanTarget, ScanStart)> = ended
        .map(|of| (of.clone(), scan_hints.begin_scan(&of, now)))
        .collect();
    let keys = scan_hints.begin_scan(&ScanTarget::ExpiredUniqueKeys, now);
    let column = |of: fn(&Retention) -> i64| -> Vec<i64> {
        shelves.iter().map(|(_, shelf)| of(shelf)).collect()
    };
    let params = [
        (
            &shelves
                .iter()
                .map(|(name, _)| name.as_str())
                .collect::<Vec<_>>() as _,
            Type::TEXT_ARRAY,
        ),
        (
            &column(|shelf| shelf.done_for.as_micros()) as _,
            Type::INT8_ARRAY,
        ),
        (
            &column(|shelf| i64::try_from(shelf.done_max).unwrap_or(i64::MAX)) as _,
            Type::INT8_ARRAY,
        ),
        (
            &column(|shelf| shelf.cancelled_for.as_micros()) as _,
            Type::INT8_ARRAY,
        ),
        (
            &column(|shelf| shelf.dead_for.as_micros()) as _,
            Type::INT8_ARRAY,
        ),
        (&row::number(retention.max.min(PRUNE_MAX)) as _, Type::INT4),
        (&now.before(WORKER_KEPT_FOR).as_micros() as _, Type::INT8),
        (&now.as_micros() as _, Type::INT8),
        (
            &looks
                .iter()
                .map(|(_, look)| look.begins_at())
                .collect::<Vec<_>>() as _,
            Type::INT8_ARRAY,
        ),
        (&keys.begins_at() as _, Type::INT8),
    ];
    let rows = link
        .call("pruning", CommitMode::Durable, "prune", &params)
        .await?;
    let row = rows
        .first()
        .ok_or_else(|| StoreError::corrupt("pruning", "no answer"))?;
    let count =
        |column| row::get::<i32>(row, column).map(|count| usize::try_from(count).unwrap_or(0));
    let pruned = PruneResult {
        done: count(0)?,
        cancelled: count(1)?,
        dead: count(2)?,
        more: row::get(row, 3)?,
    };
    let left_nothing_to: Vec<Option<i64>> = row::get(row, 4)?;
    let is_done = left_nothing_to.iter().any(Option::is_some);
    for ((of, look), to) in looks.into_iter().zip(left_nothing_to) {
        if let Some(to) = to {
            scan_hints.record_cleared(of, look, Time::from_micros(to));
        }
    }
    if is_done && !pruned.more {
        scan_hints.record_cleared(ScanTarget::ExpiredUniqueKeys, keys, now);
    }
    Ok(pruned)
}
