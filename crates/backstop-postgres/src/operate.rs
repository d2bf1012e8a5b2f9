//! Queues, gates, workers, retention, and what becomes ready.

use crate::floor::{Floors, Look, Of};
use crate::link::{Commit, Link};
use crate::row;
use backstop_core::limits::{
    EXPIRED_COUNTED_MAX, PROMOTE_MAX, PRUNE_MAX, PRUNE_QUEUES_MAX, QUEUE_KEPT_FOR, WORKER_KEPT_FOR,
};
use backstop_core::port::{
    Answer, Counts, ExpiredLeases, Gate, Promoted, Pruned, QueueStatus, Retention, Shelf,
    StoreError, Totals, WorkerStatus,
};
use backstop_core::{Bounds, QueueName, Span, State, Time, WorkerName};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// A queue that is retired for so long was found by no push that is still under way.
const RETIRED_FOR: Span = Span::hours(1);
/// The ends of a queue's jobs, as they are pruned.
const SHELVES: [State; 3] = [State::Done, State::Cancelled, State::Dead];

/// Makes jobs ready whose time has come.
pub(crate) async fn promote(
    link: &Link,
    floors: &Floors,
    max: usize,
    now: Time,
) -> Answer<Promoted> {
    let look = floors.look(&Of::Waiting, now);
    let params = [
        (&row::number(max.min(PROMOTE_MAX)) as _, Type::INT4),
        (&now.as_micros() as _, Type::INT8),
        (&look.begins_at() as _, Type::INT8),
    ];
    let rows = link
        .call("promoting", Commit::Quick, "promote", &params)
        .await?;
    let row = rows
        .first()
        .ok_or_else(|| StoreError::corrupt("promoting", "no answer"))?;
    let moved: i32 = row::get(row, 0)?;
    let next_due = row::get::<Option<i64>>(row, 1)?.map(Time::from_micros);
    if next_due.is_none_or(|due| due > now) {
        floors.left_nothing(Of::Waiting, look, now);
    }
    Ok(Promoted {
        moved: usize::try_from(moved).unwrap_or(0),
        next_due,
        unanswered: Vec::new(),
    })
}

/// All queues, by name.
pub(crate) async fn queues(link: &Link) -> Answer<Vec<QueueStatus>> {
    link.call("listing queues", Commit::Durable, "queues", &[])
        .await?
        .iter()
        .map(status)
        .collect()
}

fn status(row: &Row) -> Answer<QueueStatus> {
    let (counted, ended): (Vec<i64>, Vec<i64>) = (row::get(row, 2)?, row::get(row, 3)?);
    let number = |from: &[i64], at: usize| from.get(at).copied().unwrap_or(0).max(0).unsigned_abs();
    let mut counts = Counts::default();
    for (at, state) in State::ALL.into_iter().enumerate() {
        *counts.of_mut(state) = number(&counted, at);
    }
    let [enqueued, done, dead, cancelled] = [0, 1, 2, 3].map(|at| number(&ended, at));
    Ok(QueueStatus {
        name: name(row::get(row, 0)?)?,
        gate: if row::get(row, 1)? {
            Gate::Paused
        } else {
            Gate::Open
        },
        counts,
        totals: Totals {
            enqueued,
            done,
            dead,
            cancelled,
        },
        next_ready: row::get::<Option<i64>>(row, 4)?.map(Time::from_micros),
        bounds: bounds(row)?,
    })
}

fn bounds(row: &Row) -> Answer<Bounds> {
    Ok(Bounds {
        max_size: row::get::<Option<i64>>(row, 5)?.map(i64::cast_unsigned),
        // A word nobody writes is damage; who refuses loses nothing.
        overflow: row::get::<&str>(row, 6)?.parse().unwrap_or_default(),
        dead_max: row::get::<i64>(row, 7)?.cast_unsigned(),
    })
}

/// Sets how much a queue holds.
pub(crate) async fn set_bounds(link: &Link, queue: &QueueName, bounds: Bounds) -> Answer<()> {
    let params = [
        (&queue.as_str() as _, Type::TEXT),
        (&bounds.max_size.map(u64::cast_signed) as _, Type::INT8),
        (&bounds.overflow.as_str() as _, Type::TEXT),
        (&bounds.dead_max.cast_signed() as _, Type::INT8),
    ];
    link.call("bounding a queue", Commit::Durable, "set_bounds", &params)
        .await
        .map(drop)
}

/// Marks queues as configured.
pub(crate) async fn declare(link: &Link, queues: &[QueueName]) -> Answer<()> {
    let names: Vec<&str> = queues.iter().map(QueueName::as_str).collect();
    let params = [(&names as _, Type::TEXT_ARRAY)];
    let doing = "declaring queues";
    link.call(doing, Commit::Durable, "declare_queues", &params)
        .await
        .map(drop)
}

fn name(text: &str) -> Answer<QueueName> {
    QueueName::new(text).map_err(|error| StoreError::corrupt("listing queues", error))
}

/// Opens or pauses a queue.
pub(crate) async fn set_gate(link: &Link, queue: &QueueName, gate: Gate) -> Answer<()> {
    let params = [
        (&queue.as_str() as _, Type::TEXT),
        (&(gate == Gate::Paused) as _, Type::BOOL),
    ];
    link.call(
        "pausing or resuming a queue",
        Commit::Durable,
        "set_gate",
        &params,
    )
    .await
    .map(drop)
}

/// All workers that beat within `within`, by name.
pub(crate) async fn workers(link: &Link, within: Span, now: Time) -> Answer<Vec<WorkerStatus>> {
    let params = [(&now.before(within).as_micros() as _, Type::INT8)];
    link.call("listing workers", Commit::Durable, "workers", &params)
        .await?
        .iter()
        .map(worker)
        .collect()
}

/// The leases that ended before this time and that nobody has taken over.
pub(crate) async fn expired_leases(link: &Link, before: Time) -> Answer<ExpiredLeases> {
    let params = [
        (&before.as_micros() as _, Type::INT8),
        (&row::number(EXPIRED_COUNTED_MAX) as _, Type::INT4),
    ];
    let rows = link
        .call(
            "counting expired leases",
            Commit::Durable,
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

fn worker(row: &Row) -> Answer<WorkerStatus> {
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
/// first. Answers also the queue after which to go on.
pub(crate) async fn prune(
    link: &Link,
    floors: &Floors,
    retention: &Retention,
    after: Option<QueueName>,
    now: Time,
) -> Answer<(Pruned, Option<QueueName>)> {
    let (names, is_end) = next_queues(link, retention, after.as_ref()).await?;
    let mut pruned = prune_queues(link, floors, retention, &names, now).await?;
    // What did not fit is looked at again.
    let next = if pruned.more {
        after
    } else {
        names.last().filter(|_| !is_end).cloned()
    };
    pruned.more |= !is_end;
    forget_queues(link, retention, &names, now).await?;
    Ok((pruned, next))
}

/// The queues that one pruning looks at, and whether there are no others behind them.
async fn next_queues(
    link: &Link,
    retention: &Retention,
    after: Option<&QueueName>,
) -> Answer<(Vec<QueueName>, bool)> {
    let looked = PRUNE_QUEUES_MAX + 1;
    let mut names: Vec<QueueName> = if retention.usual.is_some() {
        let after = after.map_or("", QueueName::as_str);
        let params = [
            (&after as _, Type::TEXT),
            (&row::number(looked) as _, Type::INT4),
        ];
        let rows = link
            .call("pruning", Commit::Durable, "queues_after", &params)
            .await?;
        rows.iter()
            .map(|row| name(row::get(row, 1)?))
            .collect::<Answer<_>>()?
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

/// Forgets queues that nobody uses.
async fn forget_queues(
    link: &Link,
    retention: &Retention,
    names: &[QueueName],
    now: Time,
) -> Answer<()> {
    let names: Vec<&str> = names
        .iter()
        .filter(|name| retention.shelf(name).is_some())
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
        Commit::Durable,
        "forget_queues",
        &params,
    )
    .await
    .map(drop)
}

async fn prune_queues(
    link: &Link,
    floors: &Floors,
    retention: &Retention,
    names: &[QueueName],
    now: Time,
) -> Answer<Pruned> {
    let shelves: Vec<_> = names
        .iter()
        .filter_map(|name| Some((name, retention.shelf(name)?)))
        .collect();
    let ended = shelves
        .iter()
        .flat_map(|(name, _)| SHELVES.map(|state| Of::Ended((*name).clone(), state)));
    let looks: Vec<(Of, Look)> = ended
        .map(|of| (of.clone(), floors.look(&of, now)))
        .collect();
    let keys = floors.look(&Of::Keys, now);
    let column = |of: fn(&Shelf) -> i64| -> Vec<i64> {
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
        .call("pruning", Commit::Durable, "prune", &params)
        .await?;
    let row = rows
        .first()
        .ok_or_else(|| StoreError::corrupt("pruning", "no answer"))?;
    let count =
        |column| row::get::<i32>(row, column).map(|count| usize::try_from(count).unwrap_or(0));
    let pruned = Pruned {
        done: count(0)?,
        cancelled: count(1)?,
        dead: count(2)?,
        more: row::get(row, 3)?,
    };
    let left_nothing_to: Vec<Option<i64>> = row::get(row, 4)?;
    let is_done = left_nothing_to.iter().any(Option::is_some);
    for ((of, look), to) in looks.into_iter().zip(left_nothing_to) {
        if let Some(to) = to {
            floors.left_nothing(of, look, Time::from_micros(to));
        }
    }
    if is_done && !pruned.more {
        floors.left_nothing(Of::Keys, keys, now);
    }
    Ok(pruned)
}
