//! Every function that the store calls, beside 100,000 jobs of every kind and without statistics: none may read a table of jobs
//! from end to end, or walk an index further than its own work reaches. Counted by the server in rows, not by a clock.

use super::{fresh_store, user};
use std::collections::BTreeSet;
use tokio_postgres::{Client, Transaction};

/// What there is before, and never analysed: jobs that are ready, that wait, and that have ended, 100,000 of them dead.
const OTHERS: &str = "
  ALTER TABLE job SET (autovacuum_enabled = off); ALTER TABLE waiting SET (autovacuum_enabled = off);
  ALTER TABLE finished SET (autovacuum_enabled = off); ALTER TABLE key SET (autovacuum_enabled = off);
  ALTER TABLE lease SET (autovacuum_enabled = off); ALTER TABLE cell SET (autovacuum_enabled = off);
  SELECT set_gate('q', false), set_gate('other', false);
  SELECT set_bounds('bounded', 0, 'drop_oldest', 10), set_bounds('overflowing', 0, 'dead_letter_oldest', 10000);
  INSERT INTO job (seq, no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload)
    SELECT n, n, 0, 0, 1 + n % 4, 0, 0, 0, n / 4 % 4, gen_random_uuid(), 'k', '' FROM (SELECT nextval('line') n FROM generate_series(1, 200000)) x;
  INSERT INTO waiting (run_at, no, inserted_at, queue, attempts, lost, requeues, level, state, id, kind, payload)
    SELECT n, n, 0, 1 + n % 2, 0, 0, 0, 2, 0, gen_random_uuid(), 'k', '' FROM (SELECT nextval('line') n FROM generate_series(1, 100000)) x;
  INSERT INTO finished (finished_at, no, run_at, inserted_at, queue, attempts, lost, requeues, level, state, id, kind, payload,
      fingerprint)
    SELECT n, n, 0, 0, 1 + n % 2, 1, 0, 0, 2, 4 + n % 3, gen_random_uuid(), 'k', '', CASE WHEN n % 3 = 1 THEN n % 100 END
    FROM (SELECT nextval('line') n FROM generate_series(1, 300000)) x;
  INSERT INTO key (queue, key, id, states, until, forget_at)
    SELECT 1, n::text, gen_random_uuid(), 127, n, n FROM generate_series(1, 100000) n;
  INSERT INTO cell (name, version, value) SELECT n::text, n, '' FROM generate_series(1, 100000) n;";

/// What a case needs besides: claims of 1,000 jobs, one of them by a worker that vanished.
const CLAIMED: &str = "
  CREATE TEMP TABLE mine ON COMMIT DROP AS SELECT * FROM claim(7, 'w', 90000000000, '{q}', '{1000}', 5);
  CREATE TEMP TABLE lost ON COMMIT DROP AS SELECT * FROM claim(8, 'v', 6, '{q}', '{1000}', 5);";

/// A call, and how many jobs it is about.
const CALLS: [(&str, i64); 45] = [
    ("SELECT enqueue('q', 'k', '{}')", 1),
    ("SELECT enqueue('q', 'k', '{}', unique_key => 'x')", 1),
    ("SELECT enqueue('bounded', 'k', '{}', unique_key => 'x')", 1),
    ("SELECT enqueue('overflowing', 'k', '{}')", 1),
    (
        "SELECT enqueue_jobs('{q}', array_fill(1, ARRAY[1000]), array_fill(1::bigint, ARRAY[1000]),
           ARRAY(SELECT gen_random_uuid() FROM generate_series(1, 1000)), array_fill(2::smallint, ARRAY[1000]),
           array_fill('k'::text, ARRAY[1000]), array_fill(''::bytea, ARRAY[1000]),
           ARRAY(SELECT CASE WHEN n % 2 = 0 THEN n END FROM generate_series(1, 1000) n), array_fill(NULL::text, ARRAY[1000]),
           array_fill(NULL::smallint, ARRAY[1000]), array_fill(NULL::bigint, ARRAY[1000]), array_fill(NULL::bytea, ARRAY[1000]), false, true)",
        1_000,
    ),
    (
        "SELECT enqueue_jobs('{q}', array_fill(1, ARRAY[1000]), array_fill(1::bigint, ARRAY[1000]),
           ARRAY(SELECT ('019f0000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid FROM generate_series(1, 1000) n),
           array_fill(2::smallint, ARRAY[1000]), array_fill('k'::text, ARRAY[1000]), array_fill(''::bytea, ARRAY[1000]),
           array_fill(NULL::bigint, ARRAY[1000]), array_fill(NULL::text, ARRAY[1000]), array_fill(NULL::smallint, ARRAY[1000]),
           array_fill(NULL::bigint, ARRAY[1000]), array_fill(NULL::bytea, ARRAY[1000]), false, false,
           '019f0000-0000-7000-8000-000000000001', '019f0000-0000-7000-8000-000000001000')",
        1,
    ),
    ("SELECT * FROM claim(9, 'w', 90000000000, '{q,other}', '{1000,500}', 5)", 1_500),
    ("SELECT * FROM claim(7, 'w', 90000000000, '{q}', '{1000}', 5)", 1_000),
    (
        "SELECT * FROM settle((SELECT array_agg(id) FROM mine), '{1000}', '{q}', '{7}', 1::smallint, true,
           '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 7)",
        1_000,
    ),
    (
        "SELECT * FROM settle('{}', '{}', '{}', '{}', 1::smallint, true, (SELECT array_agg(id) FROM mine), (SELECT array_agg(queue) FROM mine),
           array_fill(7::bigint, ARRAY[1000]), array_fill(2::smallint, ARRAY[1000]),
           ARRAY(SELECT (ARRAY[1, 3, 5, 6])[1 + n % 4]::smallint FROM generate_series(1, 1000) n), array_fill(1, ARRAY[1000]),
           array_fill(false, ARRAY[1000]), array_fill(0, ARRAY[1000]), array_fill(true, ARRAY[1000]), array_fill(9::bigint, ARRAY[1000]),
           array_fill('r'::text, ARRAY[1000]), array_fill(5::bigint, ARRAY[1000]), array_fill(true, ARRAY[1000]),
           array_fill(''::bytea, ARRAY[1000]), array_fill(false, ARRAY[1000]), 7)",
        1_000,
    ),
    (
        "SELECT * FROM beat('w', 'q', (SELECT array_agg(id) FROM mine), (SELECT array_agg(queue) FROM mine), array_fill(7::bigint, ARRAY[1000]),
           90000000001, 90000000002, 7)",
        1_000,
    ),
    (
        "SELECT * FROM begin_runs((SELECT array_agg(id) FROM mine), (SELECT array_agg(queue) FROM mine), array_fill(7::bigint, ARRAY[1000]))",
        1_000,
    ),
    ("SELECT * FROM seize(10, 's', 90000000000, 500, 7, 90000000001)", 1_000),
    ("SELECT * FROM promote(1000, 300000)", 1_000),
    ("SELECT * FROM promote(1000, 0)", 1),
    ("SELECT * FROM amend(ARRAY(SELECT id FROM mine LIMIT 500), 1, NULL, NULL, false, NULL, NULL, NULL, NULL, 7)", 500),
    (
        "SELECT * FROM amend(ARRAY(SELECT id FROM list_finished(1, 5::smallint, NULL, false, 9000000, 0, 500)), 0, NULL, 5::smallint, true,
           'q', 'k', NULL, NULL, 7)",
        1_000,
    ),
    (
        "SELECT * FROM amend(ARRAY(SELECT id FROM list_finished(1, 5::smallint, 4, true, 0, 0, 500)), 3, 'other', NULL, true, 'q', 'k', NULL,
           4, 7)",
        1_000,
    ),
    (
        "SELECT * FROM amend(ARRAY(SELECT id FROM list_waiting(0, 0, 500)), 2, NULL, NULL, true, NULL, NULL, NULL, NULL, 7)",
        1_000,
    ),
    ("SELECT * FROM pick(0, 'q', 'k', 127, NULL, 500, 1000)", 3_000),
    ("SELECT * FROM pick(350000, NULL, NULL, 16, NULL, 500, 1000)", 1_000),
    ("SELECT * FROM pick(0, NULL, NULL, 127, 4, 500, 1000)", 50),
    ("SELECT * FROM jobs_by_id(ARRAY(SELECT id FROM mine LIMIT 100))", 100),
    ("SELECT * FROM list_waiting(150000, 0, 1000)", 1_000),
    ("SELECT * FROM list_ready(1, 1::smallint, 0, 1000)", 2_000),
    ("SELECT * FROM list_finished(1, 4::smallint, NULL, false, 450000, 0, 1000)", 50),
    ("SELECT * FROM list_finished(1, 4::smallint, NULL, true, 450000, 0, 1000)", 50),
    ("SELECT * FROM list_finished(1, 5::smallint, 4, false, 450000, 0, 100)", 1),
    ("SELECT * FROM list_finished(1, 5::smallint, 4, true, 450000, 0, 100)", 1),
    ("SELECT * FROM list_arrivals(450000, false, NULL, 1000)", 3_000),
    ("SELECT * FROM list_arrivals(450000, true, NULL, 1000)", 2_000),
    ("SELECT * FROM list_arrivals(450000, false, 4, 100)", 1),
    ("SELECT * FROM queue_ids(NULL), queues(), drift()", 200),
    ("SELECT set_gate('q', true)", 1),
    ("SELECT set_bounds('q', 5, 'reject', 7)", 1),
    ("SELECT * FROM workers(0)", 1),
    // 50,000 dead letters each, once, and a sample for every group.
    ("SELECT * FROM groups('q', 1000)", 50_000 / ROWS_EACH),
    ("SELECT * FROM groups(NULL, 1000)", 100_000 / ROWS_EACH),
    (
        "SELECT * FROM bury('{q}', ARRAY[gen_random_uuid()], '{2}', '{k}', ARRAY[''::bytea], '{1}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{1}', '{0}',
           '{0}', '{1}', '{2}', '{rejected}', '{NULL}', '{4}')",
        1,
    ),
    ("SELECT * FROM cells(ARRAY(SELECT n::text FROM generate_series(1, 100) n))", 10),
    ("SELECT * FROM list_cells('5', 100)", 10),
    (
        "SELECT * FROM swap(ARRAY(SELECT n::text FROM generate_series(1, 100) n), ARRAY(SELECT n::bigint FROM generate_series(1, 100) n),
           ARRAY(SELECT -n::bigint FROM generate_series(1, 100) n), array_fill(''::bytea, ARRAY[100]))",
        20,
    ),
    ("SELECT * FROM unprinted(1, 0, 0, 100)", 3_000),
    ("SELECT print_dead(ARRAY(SELECT id FROM list_finished(1, 5::smallint, NULL, false, 450000, 0, 100)), array_fill(7::bigint, ARRAY[100]))", 30),
    ("SELECT * FROM prune('{q,other}', '{1,1}', '{10,10}', '{1,1}', '{1,1}', 1000, 5, 900000)", 2_000),
];

/// Index rows a call may fetch for each job that it is about, and on top of that.
const ROWS_EACH: i64 = 20;
const ROWS_BESIDE: i64 = 100;

#[tokio::test]
async fn no_call_reads_more_than_its_own_jobs() {
    let (_store, schema) = fresh_store().await;
    let mut client = user().await;
    let inside = format!("SET search_path = {schema}; SET statement_timeout = 0");
    client.batch_execute(&format!("{inside}; {OTHERS}")).await.expect("100,000 of each");
    for (call, about) in CALLS {
        let transaction = client.transaction().await.expect("a transaction");
        transaction.batch_execute(CLAIMED).await.expect("claims");
        let (scanned_before, fetched_before) = rows(&transaction).await;
        transaction.batch_execute(call).await.unwrap_or_else(|error| panic!("{call}: {error:?}"));
        let (scanned, fetched) = rows(&transaction).await;
        transaction.rollback().await.expect("it rolls back");
        assert_eq!(scanned - scanned_before, 0, "read a table from end to end: {call}");
        let fetched = fetched - fetched_before;
        assert!(fetched <= about * ROWS_EACH + ROWS_BESIDE, "{fetched} rows for {about} jobs: {call}");
    }
}

/// Rows of jobs and keys read so far in this transaction: of whole tables, and by index.
async fn rows(transaction: &Transaction<'_>) -> (i64, i64) {
    let read = "SELECT sum(seq_tup_read)::bigint, sum(idx_tup_fetch)::bigint FROM pg_stat_xact_user_tables
         WHERE schemaname = current_schema() AND relname IN ('job', 'waiting', 'finished', 'key', 'returned', 'cell')";
    let row = transaction.query_one(read, &[]).await.expect("counts");
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn every_function_that_can_be_called_is_among_the_calls() {
    let (_store, schema) = fresh_store().await;
    let found = functions(&user().await, &schema).await;
    let missing = |name: &&String| !CALLS.iter().any(|(call, _)| call.contains(&format!("{name}(")));
    assert_eq!(found.iter().filter(missing).count(), 0, "{found:?}");
}

async fn functions(client: &Client, schema: &str) -> BTreeSet<String> {
    let entries =
        "SELECT proname::text FROM pg_proc WHERE prosecdef AND pronamespace = $1::text::regnamespace";
    let rows = client.query(entries, &[&schema]).await.expect("the catalogue");
    rows.iter().map(|row| row.get(0)).collect()
}
