//! A transaction that is left open keeps every row alive that is removed meanwhile. What is called
//! all the time must not walk over them: the blocks that a call touches do not grow with what
//! others did and removed since, nor because the server looked meanwhile and found its tables
//! empty. Counted by the server, not by a clock.

use super::{fresh_store, user};
use std::collections::BTreeSet;
use tokio_postgres::{Client, SimpleQueryMessage};

/// Rounds of churn before the first look, and before the second: long enough for every index to
/// have its height by the first.
const ROUNDS: [i64; 2] = [200, 600];
/// From when on a process looks that looked a moment ago: ten seconds before. A round lasts a tenth
/// of a second.
const FROM: &str = "NOW - 10000000";

/// A job is released, retried and done, each time claimed alone by somebody who wanted more; one
/// with a key goes through a queue that has a bound; a key of a stream comes, is due and goes; a
/// cell comes and goes. Counts are added up and done jobs are pruned.
const CHURN: &str = "
  FOR i IN FIRST .. LAST LOOP
    v_now := 1000000000 + i * 100000;
    v_id := gen_random_uuid();
    PERFORM enqueue_jobs('{q}', '{1}', ARRAY[v_now], ARRAY[v_id], '{2}', '{k}', ARRAY[''::bytea], '{NULL}', '{NULL}', '{NULL}', '{NULL}',
      '{NULL}', false, false); COMMIT;
    PERFORM claim(i * 10, 'w', v_now + 5000000, '{q}', '{9}', v_now); COMMIT;
    PERFORM pg_temp.ends(v_id, 'q', i * 10, 1, true, v_now); COMMIT;
    PERFORM claim(i * 10 + 1, 'w', v_now + 5000000, '{q}', '{9}', v_now); COMMIT;
    PERFORM pg_temp.ends(v_id, 'q', i * 10 + 1, 3, false, v_now); COMMIT;
    PERFORM promote(1000, v_now + 10, v_now - 10000000); COMMIT;
    PERFORM claim(i * 10 + 2, 'w', v_now + 5000000, '{q}', '{9}', v_now); COMMIT;
    PERFORM pg_temp.is_done(v_id, 'q', i * 10 + 2, v_now); COMMIT;
    v_id := gen_random_uuid();
    PERFORM enqueue_jobs('{bounded}', '{1}', ARRAY[v_now], ARRAY[v_id], '{2}', '{k}', ARRAY[''::bytea], '{NULL}', ARRAY['key ' || i], '{127}',
      ARRAY[v_now + 5], '{NULL}', true, false); COMMIT;
    PERFORM claim(i * 10 + 3, 'w', v_now + 5000000, '{bounded}', '{1}', v_now); COMMIT;
    PERFORM pg_temp.is_done(v_id, 'bounded', i * 10 + 3, v_now); COMMIT;
    IF i % 10 = 0 THEN
      PERFORM prune('{q,bounded}', '{1,1}', '{0,0}', '{1,1}', '{1,1}', 1000, 5, v_now + 10, array_fill(v_now - 10000000, ARRAY[6]),
        v_now - 10000000); COMMIT;
    END IF;
    PERFORM offer('s', ARRAY['key ' || i], '{1}', '{60}', '{60}', '{NULL}', ARRAY[''::bytea], 100, v_now, v_now + 90000000); COMMIT;
    PERFORM take_due('s', i, 'w', v_now + 5000000, 9, 1000, 256, v_now, v_now + 90000000, v_now - 10000000); COMMIT;
    PERFORM advance('{s}', '{1}', ARRAY['key ' || i], ARRAY[i], '{1}', '{1}', '{NULL}', ARRAY[''::bytea], '{2}', '{NULL}', '{NULL}',
      '{1}', '{3}', '{1}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', v_now); COMMIT;
    PERFORM swap(ARRAY['cell ' || i], '{NULL}', '{1}', ARRAY[''::bytea]); COMMIT;
    PERFORM swap(ARRAY['cell ' || i], '{1}', '{2}', '{NULL}'); COMMIT;
  END LOOP;";

/// How a run ends: given back or to be tried again a moment later; or done.
const ENDS: &str = "
  CREATE FUNCTION pg_temp.ends(id uuid, queue text, number bigint, state int, former boolean, now bigint) RETURNS void LANGUAGE sql AS $$
    SELECT settle('{}', '{}', '{}', '{}', 1::smallint, true, ARRAY[id], ARRAY[queue], ARRAY[number], '{2}', ARRAY[state]::smallint[], '{1}', '{f}',
      '{0}', ARRAY[former], ARRAY[now + 5], '{NULL}', '{NULL}', '{f}', '{NULL}', '{f}', now) $$;
  CREATE FUNCTION pg_temp.is_done(id uuid, queue text, number bigint, now bigint) RETURNS void LANGUAGE sql AS $$
    SELECT settle(ARRAY[id], '{1}', ARRAY[queue], ARRAY[number], 1::smallint, true, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
      '{}', '{}', '{}', '{}', now) $$;";

/// What there is for a call: a ready job in each queue; the one of `q` claimed; a key of a stream
/// that is due; the same taken.
const READY: &str = "SELECT enqueue('q', 'k', '{}', id => '019f0000-0000-7000-8000-000000000001'), enqueue('bounded', 'k', '{}');";
const CLAIMED: &str = "SELECT count(*) FROM claim(5, 'w', NOW + 5000000, '{q}', '{9}', NOW);";
const DUE: &str = "SELECT offer('s', '{a}', '{1}', '{60}', '{60}', '{NULL}', ARRAY[''::bytea], 100, NOW, NOW + 90000000);";
const TAKEN: &str = "SELECT count(*) FROM take_due('s', 5, 'w', NOW + 5000000, 9, 1000, 256, NOW, NOW + 90000000, FROM);";

/// Calls, and what there is before.
const CALLS: [(&[&str], &str); 36] = [
    (&[], "enqueue('q', 'k', '{}')"),
    (&[], "enqueue('q', 'k', '{}', unique_key => 'x')"),
    (&[], "enqueue('bounded', 'k', '{}')"),
    (&[], "enqueue('q', 'k', '{}', run_at => now() + interval '1 day')"),
    (
        &[],
        "enqueue_jobs('{q}', '{1}', '{5}', '{019f0000-0000-7000-8000-000000000009}', '{2}', '{k}', ARRAY[''::bytea], '{NULL}', '{NULL}', '{NULL}',
           '{NULL}', '{NULL}', false, false, '019f0000-0000-7000-8000-000000000009', '019f0000-0000-7000-8000-000000000009')",
    ),
    (&[], "claim(5, 'w', NOW + 5000000, '{q,bounded}', '{9,9}', NOW)"),
    (&[READY], "claim(5, 'w', NOW + 5000000, '{q}', '{9}', NOW)"),
    (&[READY], "claim(5, 'w', NOW + 5000000, '{q}', '{1}', NOW + 2000000)"),
    (&[READY, CLAIMED], "claim(5, 'w', NOW + 5000000, '{q}', '{9}', NOW)"),
    (&[READY, CLAIMED], "pg_temp.is_done('019f0000-0000-7000-8000-000000000001', 'q', 5, NOW)"),
    (&[READY, CLAIMED], "pg_temp.ends('019f0000-0000-7000-8000-000000000001', 'q', 5, 1, true, NOW)"),
    (&[READY, CLAIMED], "pg_temp.ends('019f0000-0000-7000-8000-000000000001', 'q', 5, 3, false, NOW)"),
    (&[READY, CLAIMED], "pg_temp.ends('019f0000-0000-7000-8000-000000000001', 'q', 5, 5, false, NOW)"),
    (
        &[READY, CLAIMED],
        "beat('w', 'q', '{019f0000-0000-7000-8000-000000000001}', '{q}', '{5}', NOW + 6000000, NOW + 90000000, NOW)",
    ),
    (&[READY, CLAIMED], "close_emptied('{1}')"),
    (&[READY, CLAIMED], "begin_runs('{019f0000-0000-7000-8000-000000000001}', '{q}', '{5}')"),
    (&[], "seize(6, 's', NOW + 5000000, 100, NOW, NOW + 90000000, FROM, 12000)"),
    (&[READY, CLAIMED], "seize(6, 's', NOW + 5000000, 100, NOW + 6000000, NOW + 90000000, FROM, 12000)"),
    (&[], "promote(1000, NOW, FROM)"),
    (
        &[READY, CLAIMED, "SELECT pg_temp.ends('019f0000-0000-7000-8000-000000000001', 'q', 5, 3, false, NOW);"],
        "promote(1000, NOW + 10, FROM)",
    ),
    (
        &[READY],
        "amend('{019f0000-0000-7000-8000-000000000001}', 1, NULL, NULL, false, NULL, NULL, NULL, NULL, NOW)",
    ),
    (&[READY, CLAIMED], "jobs_by_id('{019f0000-0000-7000-8000-000000000001}')"),
    (&[], "queues()"),
    (&[], "set_gate('q', true)"),
    (&[], "set_bounds('q', 5, 'reject', 7)"),
    (&[], "declare_queues('{q}')"),
    (&[], "holders('q', '{x}', NOW)"),
    (
        &[],
        "prune('{q,bounded}', '{1,1}', '{0,0}', '{1,1}', '{1,1}', 1000, 5, NOW, array_fill(FROM, ARRAY[6]), FROM)",
    ),
    (&[], "offer('s', '{a}', '{1}', '{60}', '{60}', '{NULL}', ARRAY[''::bytea], 100, NOW, NOW + 90000000)"),
    (&[DUE], "take('s', 5, 'w', NOW + 5000000, false, '{a}', 1000, 256, NOW, NOW + 90000000)"),
    (&[], "take_due('s', 5, 'w', NOW + 5000000, 9, 1000, 256, NOW, NOW + 90000000, FROM)"),
    (&[DUE], "take_due('s', 5, 'w', NOW + 5000000, 9, 1000, 256, NOW, NOW + 90000000, FROM)"),
    (&[DUE, TAKEN], "keep('{s}', '{1}', '{a}', '{5}', NOW + 6000000, NOW + 90000000)"),
    (
        &[DUE, TAKEN],
        "advance('{s}', '{1}', '{a}', '{5}', '{1}', '{1}', '{60}', ARRAY['x'::bytea], '{1}', '{NULL}', '{NULL}', '{1}', '{3}', '{1}',
           '{1}', '{60}', '{}', '{}', '{}', '{}', '{}', '{}', NOW)",
    ),
    (&[], "swap('{a}', '{NULL}', '{1}', ARRAY[''::bytea])"),
    (&[], "queues_after('', 500)"),
];

/// What a person asks for: these may walk over what is kept alive. `workers` walks over leases,
/// `streams` over the oldest records, the others over what stood where they begin. Pruning asks for
/// `forget_queues`, which walks over what a queue had that has no job left, by its counts.
const ASKED_FOR: [&str; 17] = [
    "bury",
    "cells",
    "drift",
    "expired_leases",
    "forget_queues",
    "groups",
    "jobs_within",
    "list_arrivals",
    "list_cells",
    "list_finished",
    "list_ready",
    "list_stream_keys",
    "list_waiting",
    "pick",
    "queue_ids",
    "queues_in_line",
    "read_stream_key",
];
const LISTS: [&str; 2] = ["streams", "workers"];

/// Passes over all calls, each of which is looked at several times in every one.
const PASSES_MAX: usize = 5;

#[tokio::test]
async fn no_call_walks_over_what_a_snapshot_keeps_alive() {
    let (_store, schema) = fresh_store().await;
    let inside = format!("SET search_path = {schema}; SET statement_timeout = 0; {ENDS}");
    let client = user().await;
    let ground = format!(
        "{inside} SELECT set_gate('q', false), set_bounds('bounded', 1000, 'reject', 10000)"
    );
    client.batch_execute(&ground).await.expect("queues");
    let idle = user().await;
    // Our connections end such a transaction after a minute, and a busy machine may need longer.
    let snapshot = "SET idle_in_transaction_session_timeout = 0;
                    BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
    idle.batch_execute(snapshot).await.expect("a snapshot");
    churn(&client, 1, ROUNDS[0]).await;
    let first = all_blocks(&inside, ROUNDS[0]).await;
    churn(&client, ROUNDS[0] + 1, ROUNDS[1]).await;
    // What the server's own upkeep does at any time: it finds pages, and nothing in them that is
    // alive.
    client.batch_execute("ANALYZE").await.expect("statistics");
    let mut last = all_blocks(&inside, ROUNDS[1]).await;
    // A server that is busy with everybody's schemas forgets plans between any two looks; what is
    // walked over is there in all of them.
    for _ in 1..PASSES_MAX {
        if grown(&first, &last).is_empty() {
            break;
        }
        let again = all_blocks(&inside, ROUNDS[1]).await;
        last = std::iter::zip(last, again)
            .map(|(one, other)| one.min(other))
            .collect();
    }
    idle.batch_execute("COMMIT")
        .await
        .expect("it was open to the end");
    let grown = grown(&first, &last);
    assert!(grown.is_empty(), "{}", grown.join("\n"));
}

/// Calls that look at more than they did.
fn grown(first: &[i64], last: &[i64]) -> Vec<String> {
    std::iter::zip(CALLS, std::iter::zip(first, last))
        .filter(|(_, (first, last))| **last > *first * 3 / 2 + 5)
        .map(|((before, call), (first, last))| {
            format!("{first} blocks, then {last}: {before:?} {call}")
        })
        .collect()
}

async fn churn(client: &Client, first: i64, last: i64) {
    let rounds = CHURN
        .replace("FIRST", &first.to_string())
        .replace("LAST", &last.to_string());
    let churn = format!("DO $churn$ DECLARE v_now bigint; v_id uuid; BEGIN {rounds} END $churn$");
    client.batch_execute(&churn).await.expect("churn");
}

/// The blocks that each call touches after so many rounds.
async fn all_blocks(inside: &str, rounds: i64) -> Vec<i64> {
    let client = user().await;
    client.batch_execute(inside).await.expect("a session");
    let mut all = Vec::with_capacity(CALLS.len());
    for (before, call) in CALLS {
        let explain = format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) SELECT * FROM {call}");
        let now = (1_000_000_000 + (rounds + 1) * 100_000).to_string();
        let in_time = |sql: &str| {
            sql.replace("FROM)", &format!("{FROM})"))
                .replace("FROM,", &format!("{FROM},"))
                .replace("NOW", &now)
        };
        let script = format!(
            "BEGIN; {} {}; ROLLBACK",
            in_time(&before.concat()),
            in_time(&explain)
        );
        all.push(least_blocks(&client, &script).await);
    }
    all
}

/// The blocks of a script that is run five times, the fewest: the first time it also reads the
/// catalogue and plans, and so does one that comes after the server's own upkeep of a table. What a
/// call walks over, it walks over every time.
async fn least_blocks(client: &Client, script: &str) -> i64 {
    let mut least = i64::MAX;
    for _ in 0..5 {
        least = least.min(blocks_of(&client.simple_query(script).await.expect(script)));
    }
    least
}

/// The blocks of a statement that was explained.
pub(super) fn blocks_of(lines: &[SimpleQueryMessage]) -> i64 {
    let buffers = lines.iter().find_map(|line| match line {
        SimpleQueryMessage::Row(row) => row
            .get(0)
            .and_then(|text| text.trim().strip_prefix("Buffers: shared ")),
        _ => None,
    });
    let numbers = buffers.expect("a line of buffers").split(' ');
    numbers
        .filter_map(|word| word.split_once('=')?.1.parse::<i64>().ok())
        .sum()
}

#[tokio::test]
async fn every_function_that_can_be_called_is_looked_at_or_asked_for() {
    let (_store, schema) = fresh_store().await;
    let found = super::plans::functions(&user().await, &schema).await;
    let is_called = |name: &str| {
        CALLS
            .iter()
            .any(|(_, call)| call.starts_with(&format!("{name}(")))
    };
    // Those that end runs call it.
    let looked_at = |name: &&String| name.as_str() == "settle" || is_called(name);
    let others: BTreeSet<&str> = found
        .iter()
        .filter(|name| !looked_at(name))
        .map(String::as_str)
        .collect();
    assert_eq!(others, ASKED_FOR.into_iter().chain(LISTS).collect());
}

/// What a transaction has counted is counted once, however long it takes, and whatever is added up
/// before it, meanwhile and after it.
#[tokio::test]
async fn counts_are_exact_beside_transactions_that_take_long() {
    let (store, schema) = fresh_store().await;
    let scene = backstop_testkit::given::Scene::new(store);
    let push = format!("SELECT {schema}.enqueue('q', 'k', '{{}}')");
    let (first, second, short) = (user().await, user().await, user().await);
    short.batch_execute(&push).await.expect("a job");
    for long in [&first, &second] {
        long.batch_execute(&format!("BEGIN; {push}"))
            .await
            .expect("a job");
    }
    let mut pushed = 1;
    for ended in [
        None,
        Some((&first, "COMMIT")),
        None,
        Some((&second, "ROLLBACK")),
        None,
    ] {
        if let Some((long, end)) = ended {
            long.batch_execute(end).await.expect("it ends");
            pushed += u64::from(end == "COMMIT");
        }
        short.batch_execute(&push).await.expect("a job");
        pushed += 1;
        assert_eq!(scene.queue("q").await.totals.enqueued, pushed);
        // Adds up, and goes on counting in the same transaction.
        short
            .batch_execute(&format!("BEGIN; SELECT {schema}.promote(1, 0, 0); {push}; SELECT {schema}.promote(1, 0, 0); {push}; COMMIT"))
            .await
            .expect("it is added up");
        pushed += 2;
        assert_eq!(scene.queue("q").await.totals.enqueued, pushed);
    }
    let left = format!("SELECT {schema}.promote(1, 0, 0); SELECT count(*) FROM {schema}.tally");
    assert_eq!(count(&short, &left).await, 0, "all of it is added up");
}

/// Tables that were copied from another server, whose transactions had come further.
#[tokio::test]
async fn counts_are_exact_in_a_copy_from_another_server() {
    let (store, schema) = fresh_store().await;
    let scene = backstop_testkit::given::Scene::new(store);
    let client = user().await;
    let push = format!("SELECT {schema}.enqueue('q', 'k', '{{}}')");
    let copied = format!(
        "{push}; {push}; UPDATE {schema}.tally SET xid = '900000000000';
         UPDATE {schema}.added SET xid = '800000000000', pending = '{{700000000000}}'; {push}"
    );
    client.batch_execute(&copied).await.expect("as copied");
    assert_eq!(scene.queue("q").await.totals.enqueued, 3);
    let left = format!("SELECT {schema}.promote(1, 0, 0); SELECT count(*) FROM {schema}.tally");
    assert_eq!(count(&client, &left).await, 0);
    client.batch_execute(&push).await.expect("a job");
    assert_eq!(scene.queue("q").await.totals.enqueued, 4);
}

async fn count(client: &Client, script: &str) -> i64 {
    let rows = client.simple_query(script).await.expect(script);
    let numbers = rows.iter().filter_map(|row| match row {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    });
    numbers.last().expect("a number")
}
