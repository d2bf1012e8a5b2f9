//! Dates in every form, and what is no date.

use crate::databases::Database;
use crate::ground::{
    Calls, Dates, FIBONACCI, PROGRESSIVE, at_noon, create, create_anew, create_indexes, due, fresh,
    insert, minutes, noon, run, table,
};
use backstop::core::table::date::read_text;
use backstop::core::table::{OpenRow, RowDecision};
use backstop::{Span, Time};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_date_of_nothing_does_not_tell_how_dates_are_written() {
    for database in Database::all() {
        create(&database, Dates::Millis);
        let nothing = OpenRow {
            last_failure: Some(Time::from_micros(0)),
            ..fresh(noon())
        };
        insert(
            &database,
            Dates::Millis,
            &[(1, "NEW", nothing), (2, "ERROR", nothing)],
        );
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test
            .backstop
            .adopted_table(&calls.table(table(&database, FIBONACCI), |_| true));
        let pass = run(&adopted, noon()).await;
        assert_eq!((pass.failed, pass.redated), (2, 0), "{}", database.url());
        let written = format!("BACKLOG WHERE LAST_FAILURE = {}", noon().as_millis());
        assert_eq!(
            database.count(&written),
            2,
            "in milliseconds, as the other date: {}",
            database.url()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_date_of_a_failure_is_told_by_rows_that_failed_however_many_did_not() {
    for database in Database::all() {
        create(&database, Dates::Seconds);
        let rows: Vec<(i64, &str, OpenRow)> = (2..=150)
            .map(|id| (id, "SUCCESS", fresh(minutes(-id))))
            .collect();
        insert(&database, Dates::Seconds, &rows);
        // Its owner writes one date in seconds and the other in milliseconds.
        let (inserted, failed) = (
            Dates::Seconds.literal(minutes(-200)),
            minutes(-1).as_millis(),
        );
        database.sql(&format!(
            "INSERT INTO BACKLOG VALUES (1, 'ERROR', {inserted}, 6, {failed}, 'n')"
        ));
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test
            .backstop
            .adopted_table(&calls.table(table(&database, FIBONACCI), |_| true));
        let pass = run(&adopted, noon()).await;
        assert_eq!((pass.due, pass.redated), (0, 0), "{}", database.url());
        assert_eq!(
            database.count(&format!("BACKLOG WHERE LAST_FAILURE = {failed}")),
            1,
            "as it was"
        );
    }
}

/// A time in many forms, in the zone that each has.
fn forms(time: Time) -> Vec<String> {
    let local = |hours: i64, minutes: i64| {
        let there =
            Time::from_micros(time.as_micros() + (hours * 60 + minutes) * 60_000_000).to_string();
        there.trim_end_matches('Z').to_owned()
    };
    let (text, plain) = (time.to_string(), local(0, 0).replace('T', " "));
    let part = if plain.contains('.') {
        format!("{plain}789")
    } else {
        format!("{plain}.0000009")
    };
    vec![
        plain,
        part,
        text.replace('T', " "),
        local(0, 0),
        text,
        format!("{}+00:00", local(0, 0)),
        format!("{}+00", local(0, 0)),
        format!("{}+02:00", local(2, 0)),
        format!("{}-03:30", local(-3, -30)),
        format!("{}+14", local(14, 0).replace('T', " ")),
    ]
}

const NO_DATES: [&str; 16] = [
    "",
    "soon",
    "2026-03-01 11:59",
    "2026-03-01 11:59:00 UTC",
    "2026-03-01 11:59:00 +02:00",
    "2026-03-01T11:59:00z",
    "2026-03-01t11:59:00",
    "2026-03-01 11:59:60",
    "2026-03-01 24:00:00",
    "2026-02-29 11:59:00",
    "2026-02-30",
    "2026-3-1 11:59:00",
    "2026-03-01 11:59:00.",
    "2026-03-01 11:59:00.1234567890",
    "2026-03-01 11:59:00+15:00",
    "01.03.2026 11:59:00",
];

/// Rows with these dates of insertion and of failures, whatever they say.
fn insert_texts(database: &Database, rows: &[(i64, String, u32, Option<String>)]) {
    let quoted = |text: &String| format!("'{text}'");
    let value = |(id, inserted, failures, last): &(i64, String, u32, Option<String>)| {
        let last = last.as_ref().map_or("NULL".to_owned(), quoted);
        format!(
            "({id}, 'ERROR', {}, {failures}, {last}, 'n')",
            quoted(inserted)
        )
    };
    let values: Vec<String> = rows.iter().map(value).collect();
    database.sql(&format!("INSERT INTO BACKLOG VALUES {}", values.join(", ")));
}

fn texts() -> Vec<(i64, String, u32, Option<String>)> {
    let second = Span::secs(1);
    let age = minutes(-30 * 1_440);
    let mut rows = Vec::new();
    for time in [
        age.before(second),
        age,
        age.after(second),
        minutes(-1).after(Span::micros(1)),
        noon(),
    ] {
        rows.extend(forms(time).into_iter().map(|text| (text, 0, None)));
    }
    for time in [
        minutes(-1).before(Span::micros(1)),
        minutes(-1),
        minutes(-1).after(Span::micros(1)),
    ] {
        rows.extend(
            forms(time)
                .into_iter()
                .map(|text| ("2026-03-01 11:00:00".to_owned(), 1, Some(text))),
        );
    }
    for day in [
        "2026-02-28",
        "2026-03-01",
        "2026-01-30",
        "2026-01-29",
        "2024-02-29",
    ] {
        rows.push((day.to_owned(), 0, None));
        rows.push(("2026-03-01 11:00:00".to_owned(), 3, Some(day.to_owned())));
    }
    for text in NO_DATES {
        rows.push((text.to_owned(), 0, None));
        rows.push(("2026-03-01 11:00:00".to_owned(), 2, Some(text.to_owned())));
    }
    let numbered = |(id, (inserted, failures, last))| (id, inserted, failures, last);
    (1..).zip(rows).map(numbered).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn text_says_to_the_query_what_it_says_to_the_rule() {
    for database in Database::all() {
        for is_indexed in [false, true] {
            create_anew(&database, Dates::Text, is_indexed);
            check_texts(&database).await;
        }
    }
}

async fn check_texts(database: &Database) {
    let rows = texts();
    insert_texts(database, &rows);
    let test = at_noon();
    let table = table(database, FIBONACCI)
        .max_records(1_000)
        .expect("a number");
    let fate = |inserted: &str, failures: u32, last: Option<&str>| {
        let inserted = read_text(inserted)?.0;
        let last_failure = last.map(read_text);
        if last_failure == Some(None) && failures > 0 {
            return None;
        }
        let last_failure = last_failure.flatten().map(|(time, _)| time);
        Some((
            inserted,
            table.rules().judge(
                OpenRow {
                    inserted,
                    failures,
                    last_failure,
                },
                None,
                noon(),
            ),
        ))
    };
    let (mut expected, mut counts) = (Vec::new(), [0_u64; 4]);
    for (id, inserted, failures, last) in &rows {
        match fate(inserted, *failures, last.as_deref()) {
            Some((inserted, RowDecision::Due)) => expected.push((inserted, *id)),
            Some((_, RowDecision::Waits(_))) => counts[1] += 1,
            Some((_, RowDecision::Expired)) => counts[2] += 1,
            None => counts[3] += 1,
        }
    }
    expected.sort_unstable();
    let expected: Vec<Value> = expected
        .into_iter()
        .rev()
        .map(|(_, id)| json!(id))
        .collect();
    counts[0] = expected.len() as u64;
    assert_eq!(counts[3], 2 * NO_DATES.len() as u64);
    let calls = Calls::default();
    let adopted = test
        .backstop
        .adopted_table(&calls.table(table.clone(), |_| false));
    let listed = due(&adopted, noon()).await;
    assert_eq!(listed, expected, "{}", database.url());
    let status = adopted.status(noon()).await.expect("a status");
    assert_eq!(
        [status.due, status.waiting, status.expired, status.undated],
        counts,
        "{}",
        database.url()
    );
    let pass = run(&adopted, noon()).await;
    assert_eq!(
        (pass.succeeded, pass.overtaken),
        (expected.len(), 0),
        "{}",
        database.url()
    );
    assert_eq!(
        (pass.undated, calls.keys().len()),
        (counts[3], expected.len()),
        "told of, and not tried"
    );
    assert_eq!(run(&adopted, noon()).await.due, 0, "{}", database.url());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_text_in_another_zone_among_many_is_not_passed_over() {
    for database in Database::all() {
        create(&database, Dates::Rfc3339);
        create_indexes(&database);
        let rows: Vec<(i64, &str, OpenRow)> = (2..=300)
            .map(|id| {
                let failed = OpenRow {
                    failures: 20,
                    last_failure: Some(minutes(-id)),
                    ..fresh(minutes(-id))
                };
                (id, "ERROR", failed)
            })
            .collect();
        insert(&database, Dates::Rfc3339, &rows);
        // A minute ago, where clocks are five hours ahead.
        let failed = Some("2026-03-01T16:59:00+05:00".to_owned());
        insert_texts(
            &database,
            &[(1, "2026-01-30T19:00:00.5+07:00".to_owned(), 1, failed)],
        );
        let test = at_noon();
        let adopted = test
            .backstop
            .adopted_table(&Calls::default().table(table(&database, FIBONACCI), |_| false));
        assert_eq!(
            due(&adopted, noon()).await,
            [json!(1)],
            "{}",
            database.url()
        );
        assert_eq!(
            run(&adopted, noon()).await.succeeded,
            1,
            "{}",
            database.url()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dates_without_an_end_and_dates_of_nothing_are_not_tried_over_and_over() {
    for database in Database::all() {
        create(
            &database,
            if matches!(database, Database::Sqlite(_)) {
                Dates::Seconds
            } else {
                Dates::Native
            },
        );
        // SQLite: what is no number in a column of numbers.
        database.sql(database.dialect(
            "INSERT INTO BACKLOG VALUES (1, 'NEW', 'soon', 0, NULL, ''), (2, 'ERROR', 1772366000, 1, 'soon', ''), (3, 'NEW', 1.5, 0, NULL, '')",
            "INSERT INTO BACKLOG VALUES (1, 'NEW', 'infinity', 0, NULL, ''), (2, 'ERROR', '2026-03-01', 1, 'infinity', ''), (3, 'NEW', '-infinity', 0, NULL, '')",
            "SET sql_mode = ''; INSERT INTO BACKLOG VALUES (1, 'NEW', '2026-03-00', 0, NULL, ''), (2, 'ERROR', '2026-03-01', 1, '0000-00-00', ''), (3, 'NEW', '0000-00-00', 0, NULL, '')",
        ));
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test
            .backstop
            .adopted_table(&calls.table(table(&database, FIBONACCI), |_| false));
        let status = adopted.status(noon()).await.expect("a status");
        let counts = [status.due, status.waiting, status.expired, status.undated];
        let expected = match database {
            Database::Sqlite(_) => [0, 0, 0, 3],
            Database::Postgres(_) => [1, 1, 1, 0],
            Database::Mariadb(_) => [2, 0, 1, 0],
        };
        assert_eq!(counts, expected, "{}", database.url());
        let pass = run(&adopted, noon()).await;
        assert_eq!(
            (pass.succeeded as u64, pass.overtaken),
            (expected[0], 0),
            "{}",
            database.url()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_a_column_cannot_have_is_refused() {
    for database in Database::all() {
        create(&database, Dates::Text);
        let test = at_noon();
        let said = table(&database, FIBONACCI).dates(Some(backstop::tables::Dates::Seconds));
        let refused = test
            .backstop
            .adopted_table(&said)
            .due(noon(), None)
            .await
            .expect_err("no numbers")
            .to_string();
        assert!(
            refused.contains("DATE_INSERTED") || refused.contains("date_inserted"),
            "{refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_in_another_zone_that_nobody_sampled_is_in_its_place() {
    for database in Database::all() {
        for strategy in [FIBONACCI, PROGRESSIVE] {
            create_anew(&database, Dates::Rfc3339, false);
            let done: Vec<(i64, &str, OpenRow)> = (3..=150)
                .map(|id| (id, "SUCCESS", fresh(minutes(-id))))
                .collect();
            insert(&database, Dates::Rfc3339, &done);
            // The first looks later than the second, and is five hours older.
            let texts = ["2026-03-01T11:30:00+05:00", "2026-03-01T11:00:00Z"].map(str::to_owned);
            let [first, second] = texts;
            insert_texts(&database, &[(1, first, 0, None), (2, second, 0, None)]);
            let (test, calls) = (at_noon(), Calls::default());
            let table = table(&database, strategy).max_records(1).expect("one");
            let adopted = test.backstop.adopted_table(&calls.table(table, |_| false));
            for _ in 0..2 {
                run(&adopted, noon()).await;
            }
            assert_eq!(
                calls.keys(),
                [json!(2), json!(1)],
                "{} {strategy}",
                database.url()
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_number_for_ever_does_not_change_what_the_others_mean() {
    for database in Database::all() {
        create(&database, Dates::Seconds);
        let rows: Vec<(i64, &str, OpenRow)> =
            (1..=9).map(|id| (id, "NEW", fresh(minutes(-id)))).collect();
        insert(&database, Dates::Seconds, &rows);
        database.sql("INSERT INTO BACKLOG VALUES (10, 'PARKED', 9999999999999, 0, NULL, 'n')");
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test
            .backstop
            .adopted_table(&calls.table(table(&database, FIBONACCI), |_| true));
        let pass = run(&adopted, noon()).await;
        assert_eq!((pass.failed, pass.expired), (9, 0), "{}", database.url());
        let written = format!(
            "BACKLOG WHERE LAST_FAILURE = {}",
            Dates::Seconds.literal(noon())
        );
        assert_eq!(
            database.count(&written),
            9,
            "in seconds: {}",
            database.url()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dates_are_what_somebody_said_they_are() {
    for database in Database::all() {
        create(&database, Dates::Millis);
        // So long ago that they would be taken for seconds.
        database.sql("INSERT INTO BACKLOG VALUES (1, 'NEW', 90000000000, 0, NULL, 'n')");
        let at = Time::from_millis(90_000_060_000);
        let (test, calls) = (at_noon(), Calls::default());
        let said = table(&database, FIBONACCI).dates(Some(backstop::tables::Dates::Millis));
        let adopted = test.backstop.adopted_table(&calls.table(said, |_| true));
        assert_eq!(run(&adopted, at).await.failed, 1, "{}", database.url());
        assert_eq!(
            database.count("BACKLOG WHERE LAST_FAILURE = 90000060000"),
            1,
            "{}",
            database.url()
        );
        let checked = adopted.check().await.expect("checked");
        assert!(
            checked.columns[2]
                .dates
                .as_deref()
                .is_some_and(|dates| dates.contains("milliseconds"))
        );
    }
}
