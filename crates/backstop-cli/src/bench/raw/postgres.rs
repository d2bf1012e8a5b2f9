//! The raw limit of PostgreSQL: one table of jobs, claimed by an update that skips locked rows,
//! completed by a delete.
//!
//! The usual design of a queue in a database, and nothing around it: a lease and a fenced
//! completion, but no states, no retries, no history, no counts, no priorities, and nothing that
//! recognises a job pushed twice.

use super::super::BenchArgs;
use super::super::bench_store::BenchStore;
use super::super::figures::{BenchRate, median_time};
use super::super::measure::payload;
use super::super::server;
use super::{RawRates, id, number};
use anyhow::{Result, ensure};
use backstop::Durability;
use backstop::postgres::tokio_postgres::{Client, Statement};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use uuid::Uuid;

const SHAPE: &str = "
    CREATE TABLE job (
        no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id uuid NOT NULL, queue text NOT NULL, kind text NOT NULL,
        payload bytea NOT NULL, lease bigint, until bigint);
    CREATE INDEX job_ready ON job (queue, no) WHERE lease IS NULL;
    CREATE INDEX job_until ON job (until) WHERE lease IS NOT NULL;";

/// Plans that do not depend on statistics: the table is new, and nobody has analysed it.
const PLANS: &str =
    "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off;
    SET enable_mergejoin = off; SET jit = off; SET plan_cache_mode = force_generic_plan;";

const INSERT: &str = "INSERT INTO job (id, queue, kind, payload) VALUES ($1, 'q', 'noop', $2)";
const INSERT_MANY: &str = "INSERT INTO job (id, queue, kind, payload)
    SELECT new.id, 'q', 'noop', new.payload FROM unnest($1::uuid[], $2::bytea[]) AS new (id, payload)";
const CLAIM: &str = "
    WITH next AS (
        SELECT no FROM job WHERE queue = 'q' AND lease IS NULL ORDER BY no LIMIT $1 FOR UPDATE SKIP LOCKED)
    UPDATE job SET lease = $2, until = $3 FROM next WHERE job.no = next.no
    RETURNING job.no, job.id, job.kind, job.payload";
const COMPLETE: &str = "DELETE FROM job WHERE no = ANY($1) AND lease = $2";

/// Connections that insert batches: one prepares while the other is written, as where backstop is
/// measured.
const INSERTERS: usize = 2;
/// Connections that claim and complete; more of them are slower on few cores.
const DRAINERS: usize = 4;
const BATCH: usize = 1_000;
/// Connections that callers share: as many as backstop's own pool has where the address says
/// nothing. A service has a pool of a few, not a connection a caller; with more of them than cores,
/// the server would do the grouping of commits that is measured here.
pub(in super::super) const CALLERS_CONNECTIONS: usize = 8;
/// Single commits whose time is taken.
const COMMITS: usize = 200;

/// Measures in a new schema of its own.
pub(super) async fn measure(
    place: &BenchStore,
    durability: Durability,
    args: &BenchArgs,
) -> Result<RawRates> {
    let schema = place.raw_name();
    let client = server::connect(place.named()).await?;
    server::drop_schema(&client, &schema).await?;
    client
        .batch_execute(&format!(
            "CREATE SCHEMA {schema}; SET search_path = {schema}; {SHAPE}"
        ))
        .await?;
    let bench = PostgresBench {
        place,
        schema: &schema,
        durability,
    };
    let bulk = bench.bulk(args.jobs()).await?;
    let cycle = bench.cycle(args.jobs()).await?;
    let commit = bench.commit().await?;
    let pushed = (args.jobs() / 4).max(args.callers);
    let callers = bench
        .callers(pushed, args.callers, CALLERS_CONNECTIONS)
        .await?;
    let lone = bench
        .callers((pushed / 10).max(args.callers), args.callers, 1)
        .await?;
    let grouped = bench.grouped(pushed, args.callers).await?;
    server::drop_schema(&client, &schema).await?;
    Ok(RawRates {
        bulk,
        callers,
        lone: Some(lone),
        grouped: Some(grouped),
        cycle,
        engine: None,
        commit,
    })
}

struct PostgresBench<'a> {
    place: &'a BenchStore,
    schema: &'a str,
    durability: Durability,
}

impl PostgresBench<'_> {
    async fn connect(&self) -> Result<Client> {
        let client = server::connect(self.place.named()).await?;
        let commit = match self.durability {
            Durability::Full => "",
            Durability::Relaxed => "SET synchronous_commit = off;",
        };
        client
            .batch_execute(&format!(
                "SET search_path = {}; {commit} {PLANS}",
                self.schema
            ))
            .await?;
        Ok(client)
    }

    async fn bulk(&self, jobs: usize) -> Result<BenchRate> {
        self.insert(jobs, INSERTERS, BATCH).await
    }

    /// The better of one insert at a time with the jobs of all callers, and two at a time with half
    /// of them.
    async fn grouped(&self, jobs: usize, callers: usize) -> Result<BenchRate> {
        let whole = self.insert(jobs, 1, callers).await?;
        let halves = self.insert(jobs, 2, callers.div_ceil(2)).await?;
        Ok(if halves.per_second > whole.per_second {
            halves
        } else {
            whole
        })
    }

    /// Inserts in batches, on so many connections at once.
    async fn insert(&self, jobs: usize, inserters: usize, batch: usize) -> Result<BenchRate> {
        let per_connection = (jobs / inserters).div_ceil(batch);
        let mut inserting = Vec::with_capacity(inserters);
        for inserter in 0..inserters {
            let client = self.connect().await?;
            let statement = client.prepare(INSERT_MANY).await?;
            let first = inserter * per_connection * batch;
            inserting.push((
                client,
                statement,
                (0..per_connection).map(move |n| first + n * batch),
            ));
        }
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for (client, statement, firsts) in inserting {
            tasks.spawn(insert_batches(client, statement, firsts, batch));
        }
        finish(tasks).await?;
        Ok(BenchRate::of(
            per_connection * inserters * batch,
            started.elapsed(),
        ))
    }

    async fn cycle(&self, jobs: usize) -> Result<BenchRate> {
        let mut drainers = Vec::with_capacity(DRAINERS);
        for _ in 0..DRAINERS {
            let client = self.connect().await?;
            let (claim, complete) = (
                client.prepare(CLAIM).await?,
                client.prepare(COMPLETE).await?,
            );
            drainers.push((client, claim, complete));
        }
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for (lease, (client, claim, complete)) in drainers.into_iter().enumerate() {
            tasks.spawn(drain(client, claim, complete, number(lease)));
        }
        let done: usize = finish(tasks).await?.into_iter().sum();
        ensure!(done >= jobs, "the raw loop completed {done} of {jobs} jobs");
        Ok(BenchRate::of(done, started.elapsed()))
    }

    /// The median time of committing a single job.
    async fn commit(&self) -> Result<Duration> {
        let client = self.connect().await?;
        let insert = client.prepare(INSERT).await?;
        let mut times = Vec::with_capacity(COMMITS);
        for n in 0..COMMITS {
            let started = Instant::now();
            client.execute(&insert, &[&uuid(n), &payload(n)]).await?;
            times.push(started.elapsed());
        }
        Ok(median_time(times))
    }

    /// One insert a call, on so many connections.
    async fn callers(&self, jobs: usize, callers: usize, shared: usize) -> Result<BenchRate> {
        let mut connections = Vec::new();
        for _ in 0..callers.min(shared) {
            let client = self.connect().await?;
            let insert = client.prepare(INSERT).await?;
            connections.push(Arc::new((client, insert)));
        }
        let per_caller = jobs / callers;
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for caller in 0..callers {
            let connection = Arc::clone(&connections[caller % connections.len()]);
            tasks.spawn(async move {
                let (client, insert) = &*connection;
                for n in caller * per_caller..(caller + 1) * per_caller {
                    client.execute(insert, &[&uuid(n), &payload(n)]).await?;
                }
                Ok(())
            });
        }
        finish(tasks).await?;
        Ok(BenchRate::of(per_caller * callers, started.elapsed()))
    }
}

async fn insert_batches(
    client: Client,
    insert: Statement,
    firsts: impl Iterator<Item = usize>,
    batch: usize,
) -> Result<()> {
    for first in firsts {
        let numbers = first..first + batch;
        let ids: Vec<Uuid> = numbers.clone().map(uuid).collect();
        let payloads: Vec<Vec<u8>> = numbers.map(payload).collect();
        client.execute(&insert, &[&ids, &payloads]).await?;
    }
    Ok(())
}

/// Claims and completes until nothing is left.
async fn drain(client: Client, claim: Statement, complete: Statement, lease: i64) -> Result<usize> {
    let mut done = 0;
    loop {
        let rows = client
            .query(&claim, &[&number(BATCH), &lease, &i64::MAX])
            .await?;
        if rows.is_empty() {
            return Ok(done);
        }
        let mut claimed: Vec<i64> = Vec::with_capacity(rows.len());
        for row in &rows {
            // Read the body as a worker would.
            let (_, _, _): (Uuid, &str, &[u8]) =
                (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            claimed.push(row.try_get(0)?);
        }
        done += usize::try_from(client.execute(&complete, &[&claimed, &lease]).await?)?;
    }
}

fn uuid(n: usize) -> Uuid {
    Uuid::from_bytes(*id(n).as_bytes())
}

/// What all of them answered.
async fn finish<T: 'static>(mut tasks: JoinSet<Result<T>>) -> Result<Vec<T>> {
    let mut answers = Vec::with_capacity(tasks.len());
    while let Some(task) = tasks.join_next().await {
        answers.push(task??);
    }
    Ok(answers)
}
