//! Which rows are taken, and when: by failures, by age, at every border.

use crate::databases::Database;
use crate::ground::{
    Calls, Dates, FIBONACCI, PROGRESSIVE, at_noon, create, create_anew, create_indexes, due, fresh,
    insert, leave_desk, minutes, noon, policy, run, states, table,
};
use backstop::core::table::{OpenRow, RowDecision};
use backstop::tables::{ColumnNames, TableRow};
use backstop::{Span, Time};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_not_due_never_starve_rows_that_are() {
    for database in Database::all() {
        for is_indexed in [false, true] {
            create_anew(&database, Dates::Native, is_indexed);
            let failed = OpenRow {
                inserted: noon(),
                failures: 6,
                last_failure: Some(minutes(-1)),
            };
            let mut rows: Vec<(i64, &str, OpenRow)> = (1..=100)
                .map(|id| {
                    (
                        id,
                        "ERROR",
                        OpenRow {
                            inserted: minutes(-id),
                            ..failed
                        },
                    )
                })
                .collect();
            rows.push((
                101,
                "ERROR",
                OpenRow {
                    inserted: minutes(-1_000),
                    failures: 1,
                    last_failure: Some(minutes(-1)),
                },
            ));
            insert(&database, Dates::Native, &rows);
            let (test, calls) = (at_noon(), Calls::default());
            let adopted = test
                .backstop
                .adopted_table(&calls.table(table(&database, FIBONACCI), |_| false));
            let pass = run(&adopted, noon()).await;
            assert_eq!(calls.keys(), [json!(101)], "{}", database.url());
            assert_eq!((pass.due, pass.succeeded, pass.is_cut), (1, 1, false));
            assert_eq!(states(&adopted, noon()).await, [0, 100, 1]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_rows_failure_is_its_own() {
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(
            &database,
            Dates::Native,
            &[1, 2, 3].map(|id| (id, "NEW", fresh(minutes(-id)))),
        );
        let (test, calls) = (at_noon(), Calls::default());
        let panics = |row: &TableRow| {
            assert!(row.key != json!(2), "it throws");
            false
        };
        let adopted = test
            .backstop
            .adopted_table(&calls.table(table(&database, FIBONACCI), panics));
        let mut told = Vec::new();
        let pass = adopted
            .run_at(noon(), &mut |progress| told.push(progress))
            .await
            .expect("a pass");
        assert_eq!((pass.succeeded, pass.failed), (2, 1));
        assert_eq!(
            (
                pass.failures[0].key.clone(),
                pass.failures[0].error.as_str()
            ),
            (json!(2), "it throws")
        );
        assert_eq!(states(&adopted, noon()).await, [0, 1, 2]);
        let last = told.last().expect("told");
        assert_eq!((last.total, last.done(), last.failed), (3, 3, 1));
        assert_eq!(
            due(&adopted, minutes(1)).await,
            [json!(2)],
            "after a minute, and not before"
        );
        assert_eq!(
            due(&adopted, minutes(1).before(Span::micros(1))).await,
            Vec::<Value>::new()
        );
    }
}

/// Rows of all kinds and ages, around every border.
fn random_rows(dates: Dates, seed: u64) -> Vec<(i64, &'static str, OpenRow)> {
    let mut state = seed;
    let mut draw = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let signed = |number: usize| i64::try_from(number).expect("a small number");
    let step = dates.step_micros();
    let ages = [
        1,
        5,
        60,
        1_440,
        7 * 1_440,
        14 * 1_440,
        30 * 1_440,
        180 * 1_440,
        360 * 1_440,
    ];
    let waits = [1, 2, 3, 5, 8, 13, 21, 1_440];
    let mut rows = Vec::new();
    for id in 1..=400_i64 {
        let status = ["NEW", "ERROR", "ERROR", "SUCCESS", "PARKED"][draw(5)];
        let beside = (signed(draw(3)) - 1) * step;
        let age = ages[draw(ages.len())] + [0, 0, signed(draw(2_000))][draw(3)];
        let inserted = Time::from_micros(minutes(-age).as_micros() + beside);
        let failures = [0, draw(10), draw(70)][draw(3)] as u32;
        let wait = waits[draw(8)] * [1, 1, -1][draw(3)];
        let last = Time::from_micros(minutes(-wait).as_micros() + (signed(draw(3)) - 1) * step);
        let last_failure = (draw(6) > 0).then_some(last);
        rows.push((
            id,
            status,
            OpenRow {
                inserted,
                failures,
                last_failure,
            },
        ));
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn the_query_says_what_the_rule_says() {
    const STRATEGIES: [&str; 4] = [
        FIBONACCI,
        r#"{"kind":"exponential","base":"1m","factor":2.0,"cap":"1d","max_attempts":9}"#,
        PROGRESSIVE,
        r#"{"kind":"progressive","bands":[{"until":"1h","every":"7m"},{"until":"8d","every":"13m"}]}"#,
    ];
    for database in Database::all() {
        for (number, dates) in Dates::ALL.into_iter().enumerate() {
            create_anew(&database, dates, false);
            let rows = random_rows(dates, number as u64 + 1);
            insert(&database, dates, &rows);
            for is_indexed in [false, true] {
                if is_indexed {
                    create_indexes(&database);
                }
                for strategy in STRATEGIES {
                    check_due(&database, dates, strategy, &rows).await;
                }
            }
        }
    }
}

async fn check_due(
    database: &Database,
    dates: Dates,
    strategy: &str,
    rows: &[(i64, &str, OpenRow)],
) {
    let test = at_noon();
    let table = table(database, strategy)
        .max_records(10_000)
        .expect("a number");
    let adopted = test
        .backstop
        .adopted_table(&Calls::default().table(table.clone(), |_| false));
    let expected = |at: Time, last_pass: Option<Time>| {
        let is_due = |(_, status, row): &&(i64, &str, OpenRow)| {
            matches!(*status, "NEW" | "ERROR")
                && table.rules().judge(*row, last_pass, at) == RowDecision::Due
        };
        let mut due: Vec<(Time, i64)> = rows
            .iter()
            .filter(is_due)
            .map(|(id, _, row)| (row.inserted, *id))
            .collect();
        due.sort_unstable();
        due.into_iter()
            .rev()
            .map(|(_, id)| json!(id))
            .collect::<Vec<Value>>()
    };
    let told = |at: Time| format!("{} {dates:?} {strategy} at {at}", database.url());
    assert_eq!(
        due(&adopted, noon()).await,
        expected(noon(), None),
        "{}",
        told(noon())
    );
    for minute in [-3, 0, 1, 3, 60, 1_440] {
        let at = minutes(minute);
        assert_eq!(due(&adopted, at).await, expected(at, None), "{}", told(at));
    }
    // As after a pass that left many: the newest are looked at first.
    leave_desk(&test.backstop, r#"{"is_cut":true}"#).await;
    for max in [1, 3, 10, 40] {
        let listed = adopted.due(noon(), Some(max)).await.expect("due rows");
        let listed: Vec<Value> = listed.into_iter().map(|row| row.key).collect();
        let all = expected(noon(), None);
        assert_eq!(
            listed,
            all[..max.min(all.len())],
            "{max} of many, {}",
            told(noon())
        );
    }
    let status = adopted.status(noon()).await.expect("a status");
    let open = rows
        .iter()
        .filter(|(_, status, _)| matches!(*status, "NEW" | "ERROR"));
    let fates: Vec<RowDecision> = open
        .map(|(_, _, row)| table.rules().judge(*row, None, noon()))
        .collect();
    let count =
        |wanted: fn(&RowDecision) -> bool| fates.iter().filter(|fate| wanted(fate)).count() as u64;
    let counted = (status.due, status.waiting, status.expired, status.undated);
    let judged = (
        count(|fate| *fate == RowDecision::Due),
        count(|fate| matches!(fate, RowDecision::Waits(_))),
        count(|fate| *fate == RowDecision::Expired),
        0,
    );
    assert_eq!(counted, judged, "{}", told(noon()));
    let mut expired: Vec<(Time, i64)> = rows
        .iter()
        .filter(|(_, status, _)| matches!(*status, "NEW" | "ERROR"))
        .filter(|(_, _, row)| table.rules().judge(*row, None, noon()) == RowDecision::Expired)
        .map(|(id, _, row)| (row.inserted, *id))
        .collect();
    expired.sort_unstable();
    let expired: Vec<Value> = expired.into_iter().map(|(_, id)| json!(id)).collect();
    for max in [1, 7, 1_000] {
        let listed = adopted.expired(noon(), max).await.expect("a list");
        assert_eq!(
            listed,
            expired[..max.min(expired.len())],
            "the oldest first, {}",
            told(noon())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_always_fails_is_tried_less_and_less_often() {
    for database in Database::all() {
        for dates in Dates::ALL {
            create_anew(&database, dates, false);
            insert(&database, dates, &[(1, "NEW", fresh(noon()))]);
            let (test, calls) = (at_noon(), Calls::default());
            let adopted = test
                .backstop
                .adopted_table(&calls.table(table(&database, FIBONACCI), |_| true));
            let mut tries = Vec::new();
            for minute in 0..=60 {
                let pass = run(&adopted, minutes(minute)).await;
                if pass.failed == 1 {
                    tries.push(minute);
                }
            }
            assert_eq!(
                tries,
                [0, 1, 2, 4, 7, 12, 20, 33, 54],
                "{} {dates:?}",
                database.url()
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_begins_when_its_failure_was_known_however_long_the_handler_took() {
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(&database, Dates::Native, &[(1, "NEW", fresh(noon()))]);
        let (test, calls) = (at_noon(), Calls::default());
        let clock = Arc::clone(&test.clock);
        let table = calls.table(table(&database, FIBONACCI), move |_| {
            clock.advance(Span::secs(75));
            true
        });
        let adopted = test.backstop.adopted_table(&table);
        assert_eq!(
            adopted.run().await.expect("a pass").failed,
            1,
            "{}",
            database.url()
        );
        let again = noon().after(Span::secs(75 + 60));
        assert_eq!(
            due(&adopted, again.before(Span::micros(1))).await,
            [] as [Value; 0],
            "{}",
            database.url()
        );
        assert_eq!(due(&adopted, again).await, [json!(1)], "{}", database.url());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn by_age_a_row_is_tried_at_the_ticks_of_its_band_and_once_after_a_downtime() {
    for database in Database::all() {
        create(&database, Dates::Native);
        let rows = [
            (1, "NEW", fresh(minutes(-10))),
            (2, "ERROR", fresh(minutes(-3 * 1_440))),
        ];
        insert(&database, Dates::Native, &rows);
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test
            .backstop
            .adopted_table(&calls.table(table(&database, PROGRESSIVE), |_| true));
        let mut tries = BTreeMap::new();
        for minute in [3, 4, 5, 6, 10, 11, 59, 60, 61, 300, 301] {
            let before = calls.keys().len();
            run(&adopted, minutes(minute)).await;
            // Handlers run at once: which of them begins first is nobody's promise.
            let mut tried = calls.keys()[before..].to_vec();
            tried.sort_by_key(Value::as_i64);
            tries.insert(minute, tried);
        }
        let both = vec![json!(1), json!(2)];
        let expected = BTreeMap::from([
            (3, both.clone()),
            (4, vec![]),
            (5, vec![json!(1)]),
            (6, vec![]),
            (10, vec![json!(1)]),
            (11, vec![]),
            (59, vec![json!(1)]),
            (60, both.clone()),
            (61, vec![]),
            (300, both),
            (301, vec![]),
        ]);
        assert_eq!(tries, expected, "{}", database.url());
        run(&adopted, minutes(200)).await;
        let before = calls.keys().len();
        run(&adopted, minutes(201)).await;
        assert_eq!(
            calls.keys().len(),
            before,
            "a clock set back fires nothing at once"
        );
        run(&adopted, minutes(205)).await;
        assert_eq!(
            calls.keys().len(),
            before + 1,
            "and waits for no more than its next tick"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_that_is_cut_at_the_limit_goes_on_with_the_next_pass() {
    for database in Database::all() {
        create(&database, Dates::Native);
        // Two came in at the same time.
        let rows: Vec<(i64, &str, OpenRow)> = (1..=25)
            .map(|id| (id, "ERROR", fresh(minutes(-id / 2))))
            .collect();
        insert(&database, Dates::Native, &rows);
        let (test, calls) = (at_noon(), Calls::default());
        let table = table(&database, PROGRESSIVE)
            .max_records(10)
            .expect("a number");
        let adopted = test.backstop.adopted_table(&calls.table(table, |_| true));
        for minute in [5, 6, 7] {
            run(&adopted, minutes(minute)).await;
        }
        let keys: BTreeSet<i64> = calls.keys().iter().filter_map(Value::as_i64).collect();
        assert_eq!(
            (calls.keys().len(), keys.len()),
            (25, 25),
            "each once, however they fail: {}",
            database.url()
        );
        run(&adopted, minutes(8)).await;
        assert_eq!(calls.keys().len(), 25, "that was this tick");
        run(&adopted, minutes(10)).await;
        assert_eq!(calls.keys().len(), 35);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_steps_back_neither_fires_at_once_nor_waits_longer() {
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(
            &database,
            Dates::Native,
            &[(1, "NEW", fresh(minutes(-600)))],
        );
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test
            .backstop
            .adopted_table(&calls.table(table(&database, FIBONACCI), |_| true));
        run(&adopted, minutes(0)).await;
        let back = run(&adopted, minutes(-60)).await;
        assert_eq!((back.failed, back.redated), (0, 1), "{}", database.url());
        assert_eq!(
            run(&adopted, minutes(-60).after(Span::secs(59)))
                .await
                .failed,
            0
        );
        assert_eq!(run(&adopted, minutes(-59)).await.failed, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_may_have_the_shortest_of_names() {
    for database in Database::all() {
        let time = Dates::Native.type_name(&database);
        database.sql(&format!(
            "CREATE TABLE BACKLOG (o BIGINT PRIMARY KEY, k VARCHAR(16), d {time}, i INTEGER, u {time},
             j INTEGER, t INTEGER, s INTEGER, b0 INTEGER, one INTEGER)"
        ));
        // The newest have the lowest keys.
        for id in 1..=5 {
            let inserted = Dates::Native.literal(minutes(-id));
            database.sql(&format!(
                "INSERT INTO BACKLOG VALUES ({id}, 'NEW', {inserted}, 0, NULL, 7, 7, 7, 7, 7)"
            ));
        }
        let columns = ["o", "k", "d", "i", "u"].map(str::to_owned);
        let [id, status, inserted, failures, last_failure] = columns;
        let columns = ColumnNames {
            id,
            status,
            inserted,
            failures,
            last_failure,
        };
        for strategy in [FIBONACCI, PROGRESSIVE] {
            let test = at_noon();
            let table = table(&database, strategy)
                .columns(columns.clone())
                .expect("columns");
            let due = test
                .backstop
                .adopted_table(&table)
                .due(noon(), Some(2))
                .await
                .expect("due rows");
            let keys: Vec<Value> = due.into_iter().map(|row| row.key).collect();
            assert_eq!(keys, [json!(1), json!(2)], "{}", database.url());
            let calls = Calls::default();
            let table = calls.table(table, |row| {
                !row.json()
                    .ends_with(br#""j":7,"t":7,"s":7,"b0":7,"one":7}"#)
            });
            let pass = run(
                &test
                    .backstop
                    .adopted_table(&table.max_records(2).expect("two")),
                noon(),
            )
            .await;
            assert_eq!(
                (pass.succeeded, pass.failed),
                (2, 0),
                "{} {strategy}",
                database.url()
            );
            database.sql("UPDATE BACKLOG SET k = 'NEW'");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_listed_is_what_a_pass_takes_also_while_a_round_is_open() {
    for database in Database::all() {
        create(&database, Dates::Native);
        let rows: Vec<(i64, &str, OpenRow)> = (1..=25)
            .map(|id| (id, "ERROR", fresh(minutes(-id / 2))))
            .collect();
        insert(&database, Dates::Native, &rows);
        let (test, calls) = (at_noon(), Calls::default());
        let table = table(&database, PROGRESSIVE)
            .max_records(10)
            .expect("a number");
        let table = table.concurrency(1).expect("a number");
        let adopted = test.backstop.adopted_table(&calls.table(table, |_| true));
        let mut taken = Vec::new();
        // The second tick comes while the first is not worked off; the last of these passes are
        // after a downtime.
        for minute in [5, 6, 10, 10, 10, 12, 15, 40, 40, 40] {
            let (listed, before) = (due(&adopted, minutes(minute)).await, calls.keys().len());
            run(&adopted, minutes(minute)).await;
            let tried = calls.keys()[before..].to_vec();
            assert_eq!(tried, listed, "{} at minute {minute}", database.url());
            let once: BTreeSet<i64> = tried.iter().filter_map(Value::as_i64).collect();
            assert_eq!(once.len(), tried.len(), "no row twice in a pass");
            taken.push(tried.len());
        }
        assert_eq!(
            taken,
            [10, 10, 10, 10, 5, 0, 10, 10, 10, 5],
            "{}",
            database.url()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_left_is_listed_first_as_it_is_taken_first() {
    for database in Database::all() {
        for strategy in [FIBONACCI, PROGRESSIVE] {
            create_anew(&database, Dates::Native, false);
            let rows: Vec<(i64, &str, OpenRow)> =
                (1..=9).map(|id| (id, "NEW", fresh(minutes(-id)))).collect();
            insert(&database, Dates::Native, &rows);
            let (test, calls) = (at_noon(), Calls::default());
            leave_desk(&test.backstop, r##"{"orphans":["#7","#99","#5"]}"##).await;
            let table = table(&database, strategy)
                .max_records(4)
                .expect("a number")
                .concurrency(1)
                .expect("one");
            let adopted = test.backstop.adopted_table(&calls.table(table, |_| false));
            let listed = due(&adopted, noon()).await;
            assert_eq!(
                listed,
                [7, 5, 1, 2].map(|id| json!(id)),
                "{}",
                database.url()
            );
            run(&adopted, noon()).await;
            assert_eq!(calls.keys(), listed, "{}", database.url());
        }
    }
}

/// A row by age, on paper: due if a tick of its band came after its last try.
fn is_due_again(band_minutes: i64, last_try: Option<i64>, minute: i64) -> bool {
    last_try.is_none_or(|last| minute.div_euclid(band_minutes) > last.div_euclid(band_minutes))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_tried_once_for_the_ticks_that_fired_before_its_turn_came() {
    // Noon is a tick of both bands.
    const PASSES: [(i64, usize); 18] = [
        (5, 10),
        (6, 10),
        (10, 10),
        (10, 10),
        (11, 3),
        (15, 4),
        (20, 30),
        (20, 30),
        (21, 1),
        (25, 1),
        (30, 1),
        (36, 12),
        (40, 12),
        (59, 12),
        (60, 9),
        (65, 9),
        (66, 60),
        (67, 60),
    ];
    for database in Database::all() {
        for dates in [Dates::Native, Dates::Text, Dates::Rfc3339, Dates::Millis] {
            create_anew(&database, dates, false);
            // Some of an hour's pace, some of five minutes'; two each came in at the same time.
            let age = |id: i64| if id > 18 { 2 * 1_440 + id / 2 } else { id / 2 };
            let rows: Vec<(i64, &str, OpenRow)> = (1..=25)
                .map(|id| (id, "ERROR", fresh(minutes(-age(id)))))
                .collect();
            insert(&database, dates, &rows);
            let test = at_noon();
            let mut last_try: BTreeMap<i64, i64> = BTreeMap::new();
            for (minute, limit) in PASSES {
                let calls = Calls::default();
                let table = table(&database, PROGRESSIVE)
                    .max_records(limit)
                    .expect("a number");
                run(
                    &test.backstop.adopted_table(&calls.table(table, |_| true)),
                    minutes(minute),
                )
                .await;
                let tried: Vec<i64> = calls.keys().iter().filter_map(Value::as_i64).collect();
                let once: BTreeSet<i64> = tried.iter().copied().collect();
                let place = format!("{} {dates:?}, minute {minute}: {tried:?}", database.url());
                assert_eq!(once.len(), tried.len(), "{place}");
                for id in 1..=25 {
                    let last = last_try.get(&id).copied();
                    let is_due = is_due_again(if id > 18 { 60 } else { 5 }, last, minute);
                    assert!(
                        is_due || !once.contains(&id),
                        "{id} was tried for {last:?} already: {place}"
                    );
                    assert!(
                        !is_due || once.contains(&id) || tried.len() == limit,
                        "{id} was left out: {place}"
                    );
                }
                last_try.extend(once.into_iter().map(|id| (id, minute)));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_runner_had_is_tried_once_for_the_ticks_until_then() {
    for database in Database::all() {
        create(&database, Dates::Native);
        let rows: Vec<(i64, &str, OpenRow)> = (1..=8)
            .map(|id| (id, "ERROR", fresh(minutes(-id))))
            .collect();
        insert(&database, Dates::Native, &rows);
        let (test, calls) = (at_noon(), Calls::default());
        let table = table(&database, PROGRESSIVE)
            .max_records(3)
            .expect("a number")
            .concurrency(1)
            .expect("one");
        let adopted = test.backstop.adopted_table(&calls.table(table, |_| true));
        // Killed in the tick of noon, with the last row in hand; the next tick has fired since.
        leave_desk(
            &test.backstop,
            r##"{"last_pass":"2026-03-01T12:00:00Z","orphans":["#8"]}"##,
        )
        .await;
        for minute in [5, 6, 7, 8] {
            let listed = due(&adopted, minutes(minute)).await;
            let before = calls.keys().len();
            run(&adopted, minutes(minute)).await;
            assert_eq!(
                calls.keys()[before..],
                listed,
                "{} at minute {minute}",
                database.url()
            );
        }
        let tried: Vec<i64> = calls.keys().iter().filter_map(Value::as_i64).collect();
        assert_eq!(tried, [8, 1, 2, 3, 4, 5, 6, 7], "{}", database.url());
        let status = adopted.status(minutes(10)).await.expect("a status");
        assert_eq!(
            status.due,
            8,
            "at the next tick all of them: {}",
            database.url()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_that_fires_in_the_middle_of_a_pass_counts_for_what_the_pass_takes_then() {
    for database in Database::all() {
        create(&database, Dates::Native);
        let rows: Vec<(i64, &str, OpenRow)> = (1..=40)
            .map(|id| (id, "ERROR", fresh(minutes(-id))))
            .collect();
        insert(&database, Dates::Native, &rows);
        let (test, calls) = (at_noon(), Calls::default());
        test.clock.advance(Span::secs(4 * 60 + 50));
        let (clock, backstop) = (Arc::clone(&test.clock), test.backstop.clone());
        let table = table(&database, PROGRESSIVE)
            .every(Span::secs(1))
            .expect("a second");
        let table = table.concurrency(1).expect("one");
        // The first row takes eleven seconds.
        let adopted = test.backstop.adopted_table(&calls.table(table, move |_| {
            if backstop.now() < minutes(5) {
                clock.advance(Span::secs(11));
            }
            true
        }));
        assert_eq!(
            adopted.run().await.expect("a pass").failed,
            40,
            "{}",
            database.url()
        );
        let again = adopted.run().await.expect("a pass").failed;
        assert!(
            (1..40).contains(&again),
            "only those that were taken before the tick, {again}: {}",
            database.url()
        );
        assert_eq!(
            adopted.run().await.expect("a pass").failed,
            0,
            "{}",
            database.url()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_may_be_adopted_without_trying_at_once_what_is_in_it() {
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(
            &database,
            Dates::Native,
            &[(1, "ERROR", fresh(minutes(-10)))],
        );
        let test = at_noon();
        let adopted = test.backstop.adopted_table(&table(&database, PROGRESSIVE));
        adopted.skip_to(minutes(1)).await.expect("skipped");
        assert_eq!(
            due(&adopted, minutes(4)).await,
            [] as [Value; 0],
            "{}",
            database.url()
        );
        assert_eq!(
            due(&adopted, minutes(5)).await,
            [json!(1)],
            "{}",
            database.url()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_very_many_are_due_at_once_the_newest_come_first_and_nobody_is_left_out() {
    for database in Database::all() {
        for (is_indexed, waiting) in [(false, 150), (true, 100), (true, 250), (true, 1_500)] {
            create_anew(&database, Dates::Native, is_indexed);
            // The newest errors wait: fewer of them than are looked at first, or then, or more. The
            // others are due, more than are read otherwise, and some new rows lie among them.
            let all = waiting + 180;
            let row = |id: i64| {
                let failures = if id <= waiting { 9 } else { 1 };
                let failed = OpenRow {
                    failures,
                    last_failure: Some(minutes(-2)),
                    ..fresh(minutes(-id))
                };
                if id % 40 == 0 {
                    (id, "NEW", fresh(minutes(-id)))
                } else {
                    (id, "ERROR", failed)
                }
            };
            insert(
                &database,
                Dates::Native,
                &(1..=all).map(row).collect::<Vec<_>>(),
            );
            let (test, calls) = (at_noon(), Calls::default());
            let table = table(&database, FIBONACCI)
                .max_records(6)
                .expect("a number");
            let table = table.concurrency(1).expect("one");
            let adopted = test.backstop.adopted_table(&calls.table(table, |_| false));
            let expected: Vec<i64> = (1..=all)
                .filter(|id| *id > waiting || id % 40 == 0)
                .collect();
            for part in expected.chunks(6) {
                let before = calls.keys().len();
                run(&adopted, noon()).await;
                let taken: Vec<i64> = calls.keys()[before..]
                    .iter()
                    .filter_map(Value::as_i64)
                    .collect();
                assert_eq!(taken, part, "{}", database.url());
            }
            assert_eq!(run(&adopted, noon()).await.due, 0, "{}", database.url());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn by_age_the_next_row_is_one_that_is_young_enough_by_then() {
    for database in Database::all() {
        create(&database, Dates::Native);
        let check = async |rows: &[(i64, &str, OpenRow)], max_age: Span, next: Option<Time>| {
            database.sql("DELETE FROM BACKLOG");
            insert(&database, Dates::Native, rows);
            let test = at_noon();
            let table = table(&database, PROGRESSIVE);
            let table = table
                .strategy(&policy(PROGRESSIVE), Some(max_age))
                .expect("a strategy");
            let adopted = test.backstop.adopted_table(&table);
            adopted.skip_to(noon()).await.expect("skipped");
            let status = adopted.status(noon()).await.expect("a status");
            assert_eq!(status.next_due, next, "{} {max_age}", database.url());
        };
        let (day, three) = (Span::days(1), Span::days(3));
        let old = (1, "ERROR", fresh(minutes(-2 * 1_440)));
        check(&[old], three, Some(minutes(60))).await;
        check(&[old], day, None).await;
        check(&[old], Span::days(2), None).await;
        let young = (2, "NEW", fresh(minutes(-30)));
        check(&[old, young], three, Some(minutes(5))).await;
        check(&[old, young], day, Some(minutes(5))).await;
    }
}
