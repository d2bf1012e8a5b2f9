//! The raw limit of SQLite: the same work in a bare loop on the same kind of file, with nothing
//! around it.
//!
//! Bodies in one table, ready and running keys in two small ones, a unique time-ordered id, a
//! lease, a fenced completion that deletes. No states, no retries, no history, no counts, no other
//! tasks: what is left is SQLite.

use super::super::BenchArgs;
use super::super::figures::{BenchRate, median_time};
use super::super::measure::payload;
use super::{RawRates, id, number};
use anyhow::{Result, anyhow};
use backstop::Durability;
use rusqlite::{Connection, TransactionBehavior, params};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

const SCHEMA: &str = "
    CREATE TABLE raw_job (no INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, kind TEXT NOT NULL, payload BLOB NOT NULL);
    CREATE TABLE raw_ready (seq INTEGER PRIMARY KEY, no INTEGER NOT NULL);
    CREATE TABLE raw_running (no INTEGER PRIMARY KEY, lease INTEGER NOT NULL, until INTEGER NOT NULL);";

/// Measures on a fresh file at `path`.
pub(super) async fn measure(
    path: PathBuf,
    durability: Durability,
    args: &BenchArgs,
) -> Result<RawRates> {
    let (jobs, callers, handlers) = (args.jobs(), args.callers, args.handlers);
    let alone = tokio::task::spawn_blocking(move || -> Result<_> {
        let mut connection = open(&path, durability)?;
        let bulk = enqueue(&mut connection, 0, jobs, 1_000)?;
        let cycle = cycle(&mut connection, jobs, 256)?;
        let commit = commit(&mut connection, jobs, 200)?;
        Ok((connection, bulk, cycle, commit))
    });
    let (connection, bulk, cycle, commit) = alone.await??;
    let (connection, engine) = engine_shape(connection, jobs + 200, jobs, handlers).await?;
    let grouped = grouped(connection, 2 * jobs + 200, jobs.min(50_000), callers).await?;
    Ok(RawRates {
        bulk,
        callers: grouped,
        lone: None,
        grouped: None,
        cycle,
        engine: Some(engine),
        commit,
    })
}

fn open(path: &Path, durability: Durability) -> Result<Connection> {
    let connection = Connection::open(path)?;
    let synchronous = match durability {
        Durability::Full => "FULL",
        Durability::Relaxed => "NORMAL",
    };
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "wal_autocheckpoint", 16_000)?;
    connection.execute_batch(SCHEMA)?;
    Ok(connection)
}

fn insert(transaction: &rusqlite::Transaction<'_>, n: usize) -> Result<()> {
    let mut job = transaction
        .prepare_cached("INSERT INTO raw_job (no, id, kind, payload) VALUES (?, ?, ?, ?)")?;
    job.execute(params![number(n), id(n).as_bytes(), "noop", payload(n)])?;
    let mut ready = transaction.prepare_cached("INSERT INTO raw_ready (seq, no) VALUES (?, ?)")?;
    ready.execute(params![number(n), number(n)])?;
    Ok(())
}

fn enqueue(
    connection: &mut Connection,
    from: usize,
    jobs: usize,
    batch: usize,
) -> Result<BenchRate> {
    let started = Instant::now();
    for first in (from..from + jobs).step_by(batch) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for n in first..(first + batch).min(from + jobs) {
            insert(&transaction, n)?;
        }
        transaction.commit()?;
    }
    Ok(BenchRate::of(jobs, started.elapsed()))
}

fn cycle(connection: &mut Connection, jobs: usize, batch: usize) -> Result<BenchRate> {
    let started = Instant::now();
    let mut done = 0;
    while done < jobs {
        let claimed = claim(connection, batch, number(done))?;
        done += complete(connection, &claimed, number(done))?;
    }
    Ok(BenchRate::of(jobs, started.elapsed()))
}

fn claim(connection: &mut Connection, batch: usize, lease: i64) -> Result<Vec<i64>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut claimed = Vec::with_capacity(batch);
    {
        let sql = "SELECT r.seq, j.no, j.id, j.kind, j.payload FROM raw_ready r JOIN raw_job j ON j.no = r.no
                   ORDER BY r.seq LIMIT ?";
        let mut ready = transaction.prepare_cached(sql)?;
        let mut rows = ready.query([number(batch)])?;
        let mut last = 0_i64;
        while let Some(row) = rows.next()? {
            last = row.get(0)?;
            // Read the body as a worker would.
            let (_, _, _): (Vec<u8>, String, Vec<u8>) = (row.get(2)?, row.get(3)?, row.get(4)?);
            claimed.push(row.get::<_, i64>(1)?);
        }
        transaction
            .prepare_cached("DELETE FROM raw_ready WHERE seq <= ?")?
            .execute([last])?;
        let mut running = transaction
            .prepare_cached("INSERT INTO raw_running (no, lease, until) VALUES (?, ?, ?)")?;
        for no in &claimed {
            running.execute(params![no, lease, i64::MAX])?;
        }
    }
    transaction.commit()?;
    Ok(claimed)
}

fn complete(connection: &mut Connection, claimed: &[i64], lease: i64) -> Result<usize> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut done = 0;
    {
        let mut running =
            transaction.prepare_cached("DELETE FROM raw_running WHERE no = ? AND lease = ?")?;
        let mut job = transaction.prepare_cached("DELETE FROM raw_job WHERE no = ?")?;
        for no in claimed {
            if running.execute(params![no, lease])? == 1 {
                done += job.execute([no])?;
            }
        }
    }
    transaction.commit()?;
    Ok(done)
}

/// The median time of committing a single job.
fn commit(connection: &mut Connection, from: usize, samples: usize) -> Result<Duration> {
    let mut times = Vec::with_capacity(samples);
    for n in from..from + samples {
        let started = Instant::now();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        insert(&transaction, n)?;
        transaction.commit()?;
        times.push(started.elapsed());
    }
    Ok(median_time(times))
}

/// One writer thread claims for `handlers` tasks at a time; each sends the completion of its job
/// back.
async fn engine_shape(
    mut connection: Connection,
    from: usize,
    jobs: usize,
    handlers: usize,
) -> Result<(Connection, BenchRate)> {
    let (give, mut given) = mpsc::channel::<Vec<i64>>(16);
    let (end, mut ended) = mpsc::channel::<i64>(handlers);
    let (prepared, started) = oneshot::channel();
    let writer = std::thread::spawn(move || -> Result<(Connection, Duration)> {
        enqueue(&mut connection, from, jobs, 1_000)?;
        let started = Instant::now();
        // The measurement goes on without whoever waits for its start.
        let _ = prepared.send(());
        write_shape(&mut connection, jobs, handlers, &give, &mut ended)?;
        Ok((connection, started.elapsed()))
    });
    started.await?;
    while let Some(batch) = given.recv().await {
        for no in batch {
            let end = end.clone();
            tokio::spawn(async move {
                // A writer that failed says so when it is joined.
                let _ = end.send(no).await;
            });
        }
    }
    let joined = tokio::task::spawn_blocking(move || writer.join()).await?;
    let (connection, elapsed) = joined.map_err(|_| anyhow!("the raw writer panicked"))??;
    Ok((connection, BenchRate::of(jobs, elapsed)))
}

fn write_shape(
    connection: &mut Connection,
    jobs: usize,
    handlers: usize,
    give: &mpsc::Sender<Vec<i64>>,
    ended: &mut mpsc::Receiver<i64>,
) -> Result<()> {
    let (mut claimed, mut done) = (0, 0);
    while done < jobs {
        let mut batch = Vec::new();
        if claimed - done == handlers.min(jobs - done) {
            batch.extend(ended.blocking_recv());
        }
        while let Ok(no) = ended.try_recv() {
            batch.push(no);
        }
        done += complete(connection, &batch, SHAPE_LEASE)?;
        let room = handlers - (claimed - done);
        if room > handlers / 4 && claimed < jobs {
            let granted = claim(connection, room, SHAPE_LEASE)?;
            claimed += granted.len();
            give.blocking_send(granted)
                .map_err(|_| anyhow!("nobody runs the raw jobs"))?;
        }
    }
    Ok(())
}

/// One lease is as good as many where nobody else claims.
const SHAPE_LEASE: i64 = 1;

/// One writer thread; whatever callers wait goes into one commit.
async fn grouped(
    mut connection: Connection,
    from: usize,
    jobs: usize,
    callers: usize,
) -> Result<BenchRate> {
    let (ask, mut requests) = mpsc::channel::<InsertRequest>(callers);
    let writer = std::thread::spawn(move || write_groups(&mut connection, &mut requests));
    let per_caller = jobs / callers;
    let started = Instant::now();
    let calling = (0..callers).map(|caller| {
        let ask = ask.clone();
        tokio::spawn(async move {
            for n in 0..per_caller {
                let (answer, answered) = oneshot::channel();
                let sent = ask.send((from + caller * per_caller + n, answer)).await;
                if sent.is_err() || answered.await.is_err() {
                    return;
                }
            }
        })
    });
    for caller in calling.collect::<Vec<_>>() {
        caller.await?;
    }
    let elapsed = started.elapsed();
    drop(ask);
    writer
        .join()
        .map_err(|_| anyhow!("the raw writer panicked"))??;
    Ok(BenchRate::of(per_caller * callers, elapsed))
}

type InsertRequest = (usize, oneshot::Sender<()>);

fn write_groups(
    connection: &mut Connection,
    requests: &mut mpsc::Receiver<InsertRequest>,
) -> Result<()> {
    while let Some(first) = requests.blocking_recv() {
        let mut group = vec![first];
        while let Ok(next) = requests.try_recv() {
            group.push(next);
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (n, _) in &group {
            insert(&transaction, *n)?;
        }
        transaction.commit()?;
        for (_, answer) in group {
            // A caller that went away wants no answer.
            let _ = answer.send(());
        }
    }
    Ok(())
}
