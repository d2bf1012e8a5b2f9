//! Every function that the store calls, beside 100,000 jobs of every kind, without statistics, with
//! those of now and with those of when there was nothing: none may read a table of jobs from end to
//! end, or walk an index further than its own work reaches. Counted by the server in rows, not by a
//! clock.

use super::{fresh_store, user};
use std::collections::BTreeSet;
use tokio_postgres::{Client, Transaction};

/// What there is before, and never analysed: jobs that are ready, that wait, and that have ended,
/// 100,000 of them dead; a queue `solid` whose places have no hole, and one of whose jobs 5,000
/// run, each under its own lease; 2,000 changes of counts that nobody has added up.
const OTHERS: &str = "
  ALTER TABLE job SET (autovacuum_enabled = off); ALTER TABLE waiting SET (autovacuum_enabled = off);
  ALTER TABLE finished SET (autovacuum_enabled = off); ALTER TABLE key SET (autovacuum_enabled = off);
  ALTER TABLE lease SET (autovacuum_enabled = off); ALTER TABLE cell SET (autovacuum_enabled = off);
  ALTER TABLE stream_key SET (autovacuum_enabled = off); ALTER TABLE stream_record SET (autovacuum_enabled = off);
  ALTER TABLE tally SET (autovacuum_enabled = off); ALTER TABLE returned SET (autovacuum_enabled = off);
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
  INSERT INTO cell (name, version, value) SELECT n::text, n, '' FROM generate_series(1, 100000) n;
  SELECT set_gate('solid', false), set_gate('leased', false);
  INSERT INTO job (seq, no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload)
    SELECT n, n, 0, 0, 5, 0, 0, 0, 2, gen_random_uuid(), 'k', '' FROM (SELECT nextval('line') n FROM generate_series(1, 2000)) x;
  INSERT INTO job (seq, no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload)
    SELECT n, n, 0, 0, 6, 0, 0, 0, 2, gen_random_uuid(), 'k', '' FROM (SELECT nextval('line') n FROM generate_series(1, 10000)) x;
  INSERT INTO lease (number, lo, hi, since, until, queue, level, worker)
    SELECT -j.no, j.seq, j.seq, 0, 80000000000 + j.seq, 6, 2, 'w ' || j.no % 100 FROM (SELECT * FROM job j WHERE j.queue = 6 ORDER BY j.seq LIMIT 5000) j;
  INSERT INTO reached (queue, step, at) SELECT 6, 1, ARRAY[0, 0, max(hi), 0] FROM lease;
  INSERT INTO worker (name, queues, seen_at) SELECT 'w ' || n, 'leased', 5 FROM generate_series(0, 99) n;
  INSERT INTO tally (queue, ready) SELECT 1, 0 FROM generate_series(1, 2000);";

/// Two streams with 50,000 keys each: every other one keeps a record and is due, one keeps 20,000.
const STREAMS: &str = "
  INSERT INTO stream (name) VALUES ('s'), ('other');
  INSERT INTO stream_key (stream, key, records, arrived, due)
    SELECT 1 + n % 2, lpad(n::text, 6, '0'), (n % 4 < 2)::int, (n % 4 < 2)::int, CASE WHEN n % 4 < 2 THEN n END FROM generate_series(1, 100000) n;
  INSERT INTO stream_record (position, step, at, arrival, stream, key, payload)
    SELECT 60, 60, n, 1, 1 + n % 2, lpad(n::text, 6, '0'), '' FROM generate_series(1, 100000) n WHERE n % 4 < 2;
  INSERT INTO stream_key (stream, key, records, arrived, due) VALUES (1, 'full', 20000, 20000, 1);
  INSERT INTO stream_record (position, step, at, arrival, stream, key, payload)
    SELECT n * 60, 60, n, n, 1, 'full', '' FROM generate_series(1, 20000) n;";

/// What a case needs besides: claims of 1,000 jobs, one of them by a worker that vanished; keys
/// that keep nothing, and keys that are due.
const CLAIMED: &str = "
  CREATE TEMP TABLE mine ON COMMIT DROP AS SELECT * FROM claim(7, 'w', 90000000000, '{q}', '{1000}', 5);
  CREATE TEMP TABLE lost ON COMMIT DROP AS SELECT * FROM claim(8, 'v', 6, '{q}', '{1000}', 5);
  CREATE TEMP TABLE solid ON COMMIT DROP AS SELECT * FROM claim(17, 'w', 90000000000, '{solid}', '{1000}', 5);
  CREATE TEMP TABLE leased ON COMMIT DROP AS SELECT j.id FROM lease l JOIN job j ON j.queue = l.queue AND j.level = l.level AND j.seq = l.lo
    WHERE l.queue = 6 ORDER BY l.lo DESC LIMIT 500;
  CREATE TEMP TABLE idle ON COMMIT DROP AS SELECT unnest(keys) AS key FROM take('s', 7, 'w', 90000000000, false,
    ARRAY(SELECT lpad(n::text, 6, '0') FROM generate_series(2, 4000, 4) n), 33554432, 256, 5, 90000000001);
  CREATE TEMP TABLE due ON COMMIT DROP AS SELECT unnest(keys) AS key
    FROM take_due('s', 8, 'w', 90000000000, 500, 33554432, 256, 100000, 90000000001, 0);";

/// A call, and how many jobs it is about.
const CALLS: [(&str, i64); 84] = [
    ("SELECT enqueue('q', 'k', '{}')", 1),
    ("SELECT enqueue('q', 'k', '{}', unique_key => 'x')", 1),
    // With the changes of counts that nobody has added up, and once more to see how many are dead.
    ("SELECT enqueue('bounded', 'k', '{}', unique_key => 'x')", TALLIED),
    ("SELECT enqueue('overflowing', 'k', '{}')", 2 * TALLIED),
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
    // By the clock, and because there are too few.
    ("SELECT * FROM claim(9, 'w', 90000000000, '{q}', '{1000}', 2000000)", 3_000),
    ("SELECT * FROM claim(9, 'w', 90000000000, '{solid}', '{1500}', 5)", 2_000),
    ("SELECT * FROM claim(9, 'w', 90000000000, '{leased}', '{1000}', 5)", 1_000),
    (
        "SELECT * FROM settle((SELECT array_agg(id) FROM solid), '{1000}', '{solid}', '{17}', 1::smallint, true,
           '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 7)",
        200,
    ),
    (
        "SELECT * FROM settle((SELECT array_agg(id) FROM solid), '{1000}', '{solid}', '{17}', 1::smallint, false,
           '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 7)",
        200,
    ),
    (
        "SELECT * FROM settle((SELECT array_agg(id) FROM mine), '{1000}', '{q}', '{7}', 1::smallint, false,
           '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 7)",
        1_000,
    ),
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
        1_300,
    ),
    ("SELECT * FROM seize(10, 's', 90000000000, 500, 7, 90000000001, 0, 12000)", 1_000),
    ("SELECT * FROM seize(10, 's', 90000000000, 500, 5, 90000000001, 0, 12000)", 1),
    ("SELECT * FROM close_emptied('{1,2,3}')", 20),
    ("SELECT * FROM expired_leases(90000000000, 1000)", 1_010),
    // Five thousand leases of one job each have expired.
    ("SELECT * FROM seize(10, 's', 90000000000, 50, 89000000000, 90000000001, 80000000000, 12000)", 100),
    // Changes of counts are added up with it, 5,000 at a time.
    ("SELECT * FROM promote(1000, 300000, 0)", 2_000),
    ("SELECT * FROM promote(1000, 0, 0)", 1_000),
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
    ("SELECT * FROM amend(ARRAY(SELECT id FROM leased), 1, NULL, NULL, false, NULL, NULL, NULL, NULL, 7)", 600),
    ("SELECT * FROM pick(0, 'q', 'k', 127, NULL, 500, 1000)", 3_000),
    ("SELECT * FROM pick(602000, 'leased', NULL, 4, NULL, 500, 1000)", 1_000),
    ("SELECT * FROM pick(350000, NULL, NULL, 16, NULL, 500, 1000)", 1_000),
    ("SELECT * FROM pick(0, NULL, NULL, 127, 4, 500, 1000)", 125),
    ("SELECT * FROM jobs_by_id(ARRAY(SELECT id FROM mine LIMIT 100))", 100),
    ("SELECT * FROM list_waiting(150000, 0, 1000)", 1_000),
    ("SELECT * FROM jobs_by_id(ARRAY(SELECT id FROM leased LIMIT 100))", 100),
    ("SELECT * FROM list_ready(1, 1::smallint, 0, 1000)", 2_000),
    ("SELECT * FROM list_ready(6, 1::smallint, 0, 1000)", 1_000),
    ("SELECT * FROM list_finished(1, 4::smallint, NULL, false, 450000, 0, 1000)", 125),
    ("SELECT * FROM list_finished(1, 4::smallint, NULL, true, 450000, 0, 1000)", 125),
    ("SELECT * FROM list_finished(1, 5::smallint, 4, false, 450000, 0, 100)", 1),
    ("SELECT * FROM list_finished(1, 5::smallint, 4, true, 450000, 0, 100)", 1),
    ("SELECT * FROM list_finished(NULL, 4::smallint, NULL, false, 450000, 0, 1000)", 125),
    ("SELECT * FROM list_finished(NULL, 4::smallint, NULL, true, 450000, 0, 1000)", 125),
    ("SELECT * FROM list_finished(NULL, 5::smallint, 4, false, 450000, 0, 100)", 1),
    ("SELECT * FROM list_finished(NULL, 5::smallint, 4, true, 450000, 0, 100)", 1),
    ("SELECT * FROM jobs_within(ARRAY(SELECT id FROM mine LIMIT 100), 4194304)", 200),
    ("SELECT * FROM queues_after('', 500)", 10),
    ("SELECT * FROM queues_in_line('', 500)", 10),
    // The changes of counts that nobody has added up, for each of the queues.
    ("SELECT forget_queues('{q}', 7, 8, 9)", TALLIED),
    ("SELECT * FROM list_arrivals(450000, false, NULL, 1000)", 3_000),
    // All that run, once: the first page of them is the last in line of any lease.
    ("SELECT * FROM list_arrivals(9000000, true, NULL, 1000)", 16_000 / ROWS_EACH),
    ("SELECT * FROM list_arrivals(450000, false, 4, 100)", 1),
    ("SELECT * FROM queue_ids(NULL), drift()", 200),
    // With the changes that nobody has added up.
    ("SELECT * FROM queues()", TALLIED),
    ("SELECT set_gate('q', true)", 1),
    ("SELECT set_bounds('q', 5, 'reject', 7)", 1),
    ("SELECT declare_queues('{q}')", 1),
    // All that run, once, and not once for each of 100 workers.
    ("SELECT * FROM workers(0)", 16_000 / ROWS_EACH),
    ("SELECT * FROM holders('q', ARRAY(SELECT n::text FROM generate_series(1, 1000) n), 0)", 1_000),
    // 50,000 dead letters each, once, and a sample for every group.
    ("SELECT * FROM groups('q', 1000)", 50_000 / ROWS_EACH),
    ("SELECT * FROM groups(NULL, 1000)", 100_000 / ROWS_EACH),
    // And how many there are.
    (
        "SELECT * FROM bury('{q}', ARRAY[gen_random_uuid()], '{2}', '{k}', ARRAY[''::bytea], '{1}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{1}', '{0}',
           '{0}', '{1}', '{2}', '{rejected}', '{NULL}', '{4}')",
        TALLIED,
    ),
    ("SELECT * FROM cells(ARRAY(SELECT n::text FROM generate_series(1, 100) n))", 10),
    ("SELECT * FROM list_cells('5', 100)", 10),
    (
        "SELECT * FROM swap(ARRAY(SELECT n::text FROM generate_series(1, 100) n), ARRAY(SELECT n::bigint FROM generate_series(1, 100) n),
           ARRAY(SELECT -n::bigint FROM generate_series(1, 100) n), array_fill(''::bytea, ARRAY[100]))",
        40,
    ),
    // One that is there, with a record of this position or without, and one that is not.
    (
        "SELECT * FROM offer('s', ARRAY(SELECT lpad(n::text, 6, '0') FROM generate_series(98002, 102000, 4) n),
           ARRAY(SELECT n FROM generate_series(1, 1000) n), array_fill(60::bigint, ARRAY[1000]), array_fill(60::bigint, ARRAY[1000]),
           array_fill(NULL::text, ARRAY[1000]), array_fill(''::bytea, ARRAY[1000]), 20000, 7, 90000000001)",
        1_000,
    ),
    (
        "SELECT * FROM take('s', 9, 'w', 90000000000, false, ARRAY(SELECT lpad(n::text, 6, '0') FROM generate_series(90002, 94000, 4) n),
           33554432, 256, 5, 90000000001)",
        500,
    ),
    (
        "SELECT * FROM take('s', 9, 'w', 90000000000, false, ARRAY(SELECT lpad(n::text, 6, '0') FROM generate_series(98002, 102000, 4) n),
           33554432, 256, 5, 90000000001)",
        500,
    ),
    (
        "SELECT * FROM take('s', 9, 'w', 90000000000, true, ARRAY(SELECT lpad(n::text, 6, '0') FROM generate_series(2, 2000, 2) n),
           33554432, 256, 5, 90000000001)",
        1_000,
    ),
    ("SELECT * FROM take('s', 7, 'w', 90000000000, false, ARRAY(SELECT key FROM idle), 33554432, 256, 5, 90000000001)", 500),
    ("SELECT * FROM take_due('s', 9, 'w', 90000000000, 500, 33554432, 256, 100000, 90000000001, 0)", 500),
    ("SELECT * FROM take_due('s', 8, 'w', 90000000000, 500, 33554432, 256, 100000, 90000000001, 0)", 500),
    ("SELECT * FROM take_due('s', 9, 'w', 90000000000, 500, 33554432, 256, 0, 90000000001, 0)", 1),
    (
        "SELECT * FROM keep('{s}', array_fill(1, ARRAY[1000]), ARRAY(SELECT key FROM idle), array_fill(7::bigint, ARRAY[1000]), 90000000001,
           90000000002)",
        500,
    ),
    (
        "SELECT * FROM advance('{s}', array_fill(1, ARRAY[1000]), ARRAY(SELECT key FROM idle), array_fill(7::bigint, ARRAY[1000]),
           array_fill(1::bigint, ARRAY[1000]), array_fill(0::bigint, ARRAY[1000]), array_fill(60::bigint, ARRAY[1000]),
           array_fill(''::bytea, ARRAY[1000]), array_fill(1::smallint, ARRAY[1000]), array_fill(NULL::bigint, ARRAY[1000]),
           array_fill(NULL::bigint, ARRAY[1000]), ARRAY(SELECT n FROM generate_series(1, 1000) n), array_fill(7::smallint, ARRAY[1000]),
           array_fill(1::bigint, ARRAY[1000]), '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 7)",
        500,
    ),
    // Each drops its record and keeps another; every third is cleared. Some have no right to.
    (
        "SELECT * FROM advance('{s}', array_fill(1, ARRAY[500]), ARRAY(SELECT key FROM due ORDER BY key), array_fill(8::bigint, ARRAY[500]),
           array_fill(1::bigint, ARRAY[500]), array_fill(0::bigint, ARRAY[500]), array_fill(60::bigint, ARRAY[500]),
           array_fill(''::bytea, ARRAY[500]), ARRAY(SELECT (n % 3)::smallint FROM generate_series(1, 500) n),
           array_fill(90000000001, ARRAY[500]), array_fill(90000000002, ARRAY[500]), '{}', '{}', '{}',
           ARRAY(SELECT n FROM generate_series(1, 500) n), array_fill(60::bigint, ARRAY[500]),
           ARRAY(SELECT n FROM generate_series(1, 499) n), array_fill(120::bigint, ARRAY[499]), array_fill(60::bigint, ARRAY[499]),
           array_fill(NULL::text, ARRAY[499]), array_fill(7::bigint, ARRAY[499]), array_fill(''::bytea, ARRAY[499]), 7)",
        3_000,
    ),
    ("SELECT * FROM streams()", 1),
    ("SELECT * FROM list_stream_keys('s', '049000', true, 100, 20000), list_stream_keys('s', '049000', false, 1, 20000) x", 30),
    // With all records of the key `full`, and without those behind it.
    ("SELECT * FROM list_stream_keys('s', '099900', true, 100, 20000)", 20_200 / ROWS_EACH),
    ("SELECT * FROM list_stream_keys('s', '099900', true, 100, 5)", 10),
    ("SELECT * FROM read_stream_key('s', 'full', 256, 4194304)", 32),
    ("SELECT * FROM prune('{q,other}', '{1,1}', '{10,10}', '{1,1}', '{1,1}', 1000, 5, 900000, '{0,0,0,0,0,0}', 0)", 5_000),
];

/// Index rows a call may fetch for each job that it is about, and on top of that.
const ROWS_EACH: i64 = 8;
/// Changes of counts that nobody has added up.
const TALLIED: i64 = 2_000 / ROWS_EACH;
const ROWS_BESIDE: i64 = 100;

#[tokio::test]
async fn no_call_reads_more_than_its_own_jobs() {
    let (_store, schema) = fresh_store().await;
    let mut client = user().await;
    let inside = format!("SET search_path = {schema}; SET statement_timeout = 0");
    client
        .batch_execute(&format!("{inside}; {OTHERS}; {STREAMS}"))
        .await
        .expect("100,000 of each");
    for (call, about) in CALLS {
        check(&mut client, call, about).await;
    }
}

/// What the server found when it last looked may be over: all tables were empty, with room for what
/// had been there. `pick` alone then walks over whatever waits, for a person's change of many jobs,
/// until the server looks again.
#[tokio::test]
async fn no_call_reads_more_than_its_own_jobs_where_the_server_believes_that_there_are_none() {
    let (_store, schema) = fresh_store().await;
    let mut client = user().await;
    let inside = format!("SET search_path = {schema}; SET statement_timeout = 0");
    client.batch_execute(&inside).await.expect("a session");
    client
        .batch_execute(&format!("BEGIN; {OTHERS}; {STREAMS}; ROLLBACK"))
        .await
        .expect("room");
    client.batch_execute(SEEN_EMPTY).await.expect("statistics");
    client
        .batch_execute(&format!("{OTHERS}; {STREAMS}"))
        .await
        .expect("100,000 of each");
    for (call, about) in CALLS
        .into_iter()
        .filter(|(call, _)| !call.contains(" pick("))
    {
        check(&mut client, call, about).await;
    }
    client.batch_execute("ANALYZE").await.expect("statistics");
    for (call, about) in CALLS {
        check(&mut client, call, about).await;
    }
}

/// Numbers begin anew: what was rolled back has drawn some.
const SEEN_EMPTY: &str = "ALTER SEQUENCE line RESTART; ALTER TABLE queue ALTER id RESTART; ALTER TABLE stream ALTER id RESTART; ANALYZE";

/// When 100,000 leases of one queue expire at once, each call takes over a few of them, whatever
/// the server knows of its tables.
#[tokio::test]
async fn no_seizure_reads_more_than_it_takes_whatever_the_planner_knows() {
    let (_store, schema) = fresh_store().await;
    let client = user().await;
    let inside = format!("SET search_path = {schema}; SET statement_timeout = 0");
    client
        .batch_execute(&format!("{inside}; {ALL_RUN}"))
        .await
        .expect("100,000 that run");
    for known in ["", "ANALYZE job", "ANALYZE lease", "ANALYZE"] {
        client.batch_execute(known).await.expect("statistics");
        let mut client = user().await;
        client.batch_execute(&inside).await.expect("a session");
        check_in(&mut client, "", SEIZE_SOME, 20 + SEIZED_FROM).await;
    }
}

/// Jobs of one claim that is seized from.
const SEIZED_FROM: i64 = 500;
const SEIZE_SOME: &str = "SELECT * FROM seize(10, 's', 90000000000, 20, 7, 90000000001, 0, 12000)";
const ALL_RUN: &str = "
  SELECT set_gate('q', false), set_gate('beside', false);
  INSERT INTO job (seq, no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload)
    SELECT n, n, 0, 0, CASE WHEN n < 97000 THEN 1 ELSE 2 END, 0, 0, 0, 2, gen_random_uuid(), 'k', '{}' FROM (SELECT nextval('line') n FROM generate_series(1, 100000)) x;
  SELECT count(*) FROM generate_series(1, 200) n, claim(n + 1000, 'w', 6, '{q}', '{500}', 5)";

/// A connection keeps the plans it made when there was nothing, and makes others once the server
/// knows how much there is.
#[tokio::test]
async fn no_call_about_streams_reads_more_than_its_own_keys_whatever_the_planner_knows() {
    let (_store, schema) = fresh_store().await;
    let mut client = user().await;
    let inside = format!("SET search_path = {schema}; SET statement_timeout = 0");
    client
        .batch_execute(&format!("{inside}; {OTHERS}; {ANALYZE_STREAMS}"))
        .await
        .expect("jobs");
    let calls = || {
        CALLS
            .into_iter()
            .filter(|(call, _)| ABOUT_STREAMS.iter().any(|name| call.contains(name)))
    };
    for (call, _) in calls() {
        let transaction = client.transaction().await.expect("a transaction");
        transaction.batch_execute(CLAIMED).await.expect("claims");
        transaction.batch_execute(call).await.expect(call);
        transaction.rollback().await.expect("it rolls back");
    }
    client.batch_execute(STREAMS).await.expect("100,000 keys");
    for (call, about) in calls() {
        check(&mut client, call, about).await;
    }
    client
        .batch_execute(ANALYZE_STREAMS)
        .await
        .expect("statistics");
    for (call, about) in calls() {
        check(&mut client, call, about).await;
    }
}

const ANALYZE_STREAMS: &str = "ANALYZE stream, stream_key, stream_record";
const ABOUT_STREAMS: [&str; 6] = [
    "'s'",
    "'{s}'",
    " take_due(",
    " keep(",
    " advance(",
    " streams(",
];

async fn check(client: &mut Client, call: &str, about: i64) {
    check_in(client, CLAIMED, call, about).await;
}

async fn check_in(client: &mut Client, before: &str, call: &str, about: i64) {
    let transaction = client.transaction().await.expect("a transaction");
    transaction.batch_execute(before).await.expect("claims");
    let (scanned_before, fetched_before) = rows(&transaction).await;
    transaction.batch_execute(call).await.expect(call);
    let (scanned, fetched) = rows(&transaction).await;
    transaction.rollback().await.expect("it rolls back");
    assert_eq!(
        scanned - scanned_before,
        0,
        "read a table from end to end: {call}"
    );
    let fetched = fetched - fetched_before;
    assert!(
        fetched <= about * ROWS_EACH + ROWS_BESIDE,
        "{fetched} rows for {about} jobs: {call}"
    );
}

/// Rows read so far in this transaction: of whole tables, and by index. What is asked about all
/// leases, or all workers, reads these tables from end to end: then by index or not is the same.
async fn rows(transaction: &Transaction<'_>) -> (i64, i64) {
    let read = "SELECT sum(seq_tup_read) FILTER (WHERE NOT relname IN ('lease', 'worker'))::bigint,
           (sum(idx_tup_fetch) + sum(seq_tup_read) FILTER (WHERE relname IN ('lease', 'worker')))::bigint FROM pg_stat_xact_user_tables
         WHERE schemaname = current_schema() AND relname IN ('job', 'waiting', 'finished', 'key', 'returned', 'cell', 'lease', 'reached',
           'tally', 'total', 'added', 'worker', 'stream_key', 'stream_record', 'stream_tally', 'stream_total')";
    let row = transaction.query_one(read, &[]).await.expect("counts");
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn every_function_that_can_be_called_is_among_the_calls() {
    let (_store, schema) = fresh_store().await;
    let found = functions(&user().await, &schema).await;
    let missing = |name: &&String| {
        !CALLS
            .iter()
            .any(|(call, _)| call.contains(&format!("{name}(")))
    };
    assert_eq!(found.iter().filter(missing).count(), 0, "{found:?}");
}

pub(super) async fn functions(client: &Client, schema: &str) -> BTreeSet<String> {
    let entries = "SELECT proname::text FROM pg_proc WHERE prosecdef AND pronamespace = $1::text::regnamespace";
    let rows = client
        .query(entries, &[&schema])
        .await
        .expect("the catalogue");
    rows.iter().map(|row| row.get(0)).collect()
}
