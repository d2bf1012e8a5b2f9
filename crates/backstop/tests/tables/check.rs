//! What a table lacks, and what it says of itself.

use crate::databases::Database;
use crate::ground::{Calls, Dates, FIBONACCI, at_noon, due, minutes, noon, run, table};
use backstop::tables::StatusValues;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_table_lacks_is_said_with_the_statement_that_adds_it() {
    for database in Database::all() {
        let time = Dates::Native.type_name(&database);
        database.sql(&format!(
            "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, STATUS VARCHAR(16), DATE_INSERTED {time})"
        ));
        let test = at_noon();
        let adopted = test.backstop.adopted_table(&table(&database, FIBONACCI));
        let bare = adopted.check().await.expect("checked");
        assert!(!bare.is_fine());
        assert_eq!(bare.missing.len(), 2, "{:?}", bare.missing);
        let refused = adopted
            .due(noon(), None)
            .await
            .expect_err("no columns")
            .to_string();
        assert!(
            refused.contains("FAILURES") && refused.contains("table check"),
            "{refused}"
        );
        database.sql(&bare.missing.join("\n"));
        let complete = adopted.check().await.expect("checked");
        assert!(complete.is_fine(), "{complete:?}");
        assert_eq!(
            complete
                .indexes
                .iter()
                .filter(|index| index.existing.is_none())
                .count(),
            2
        );
        assert!(!complete.plan.is_empty());
        for index in &complete.indexes {
            database.sql(&index.ddl.replace("CONCURRENTLY ", ""));
        }
        let indexed = adopted.check().await.expect("checked");
        assert!(
            indexed.indexes.iter().all(|index| index.existing.is_some()),
            "{:?}",
            indexed.indexes
        );
        assert_eq!(indexed.plan_indexed, Some(indexed.plan.clone()));
        let plan = complete.plan_indexed.expect("a plan on a copy").join("\n");
        assert!(
            plan.contains("backlog_due") && plan.contains("backlog_inserted"),
            "{plan}"
        );
        if matches!(database, Database::Sqlite(_)) {
            assert!(
                !indexed.plan.join("\n").contains("SCAN BACKLOG"),
                "{:?}",
                indexed.plan
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_days_is_told_to_add_a_column_that_keeps_the_time() {
    for database in Database::all() {
        database.sql(
            "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, STATUS VARCHAR(16), DATE_INSERTED DATE);
             INSERT INTO BACKLOG VALUES (1, 'NEW', '2026-03-01')",
        );
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test
            .backstop
            .adopted_table(&calls.table(table(&database, FIBONACCI), |_| true));
        database.sql(&adopted.check().await.expect("checked").missing.join("\n"));
        let complete = adopted.check().await.expect("checked");
        assert!(complete.is_fine(), "{complete:?}");
        assert_eq!(run(&adopted, noon()).await.failed, 1, "{}", database.url());
        assert_eq!(
            run(&adopted, minutes(1)).await.failed,
            1,
            "after a minute: {}",
            database.url()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statement_that_adds_a_status_says_the_word_whatever_it_is() {
    const WORD: &str = "it's \\ \"new\"";
    for database in Database::all() {
        let time = Dates::Native.type_name(&database);
        database.sql(&format!(
            "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, DATE_INSERTED {time}, FAILURES INTEGER, LAST_FAILURE {time});
             INSERT INTO BACKLOG VALUES (1, '2026-03-01 11:00:00', 0, NULL)"
        ));
        let states = StatusValues {
            new: WORD.to_owned(),
            ..StatusValues::default()
        };
        let test = at_noon();
        let adopted = test
            .backstop
            .adopted_table(&table(&database, FIBONACCI).states(states).expect("states"));
        database.sql(&adopted.check().await.expect("checked").missing.join("\n"));
        assert_eq!(
            due(&adopted, noon()).await,
            [json!(1)],
            "{}",
            database.url()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_with_other_names_is_told_how_to_map_them() {
    for database in Database::all() {
        let time = Dates::Native.type_name(&database);
        database.sql(&format!(
            "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, order_state VARCHAR(16), created_at {time}, updated_at {time},
             attempts INTEGER, failed_at {time});
             INSERT INTO BACKLOG VALUES (1, 'open', '2026-03-01 11:00:00', NULL, 0, NULL)"
        ));
        let adopted = at_noon()
            .backstop
            .adopted_table(&table(&database, FIBONACCI));
        let checked = adopted.check().await.expect("checked");
        let expected = r#"columns = { status = "order_state", inserted = "created_at", failures = "attempts", last_failure = "failed_at" }"#;
        assert_eq!(
            checked.proposal.as_deref(),
            Some(expected),
            "{}",
            database.url()
        );
        assert!(!checked.is_fine());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_which_no_row_could_be_worked_off_is_not_fine() {
    for database in Database::all() {
        let time = Dates::Native.type_name(&database);
        let rows = |from: u32, to: u32, word: &str| {
            (from..to)
                .map(|id| format!("({id}, '{word}', NULL, 0, NULL)"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        database.sql(&format!(
            "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, STATUS VARCHAR(16), DATE_INSERTED {time} NULL,
             FAILURES INTEGER, LAST_FAILURE {time} NULL);
             INSERT INTO BACKLOG VALUES {}, {}",
            rows(0, 8, "open"),
            rows(8, 10, "paid"),
        ));
        let problem = |checked: &backstop::tables::TableCheckReport, role| {
            let column = checked
                .columns
                .iter()
                .find(|column| column.role == role)
                .expect("a column");
            column.problem.clone().unwrap_or_default()
        };
        let test = at_noon();
        let usual = test
            .backstop
            .adopted_table(&table(&database, FIBONACCI))
            .check()
            .await
            .expect("checked");
        assert!(!usual.is_fine(), "{}", database.url());
        assert_eq!(
            problem(&usual, "status"),
            "none of its words is NEW, ERROR or SUCCESS"
        );
        let told = "8 rows have the status open, 2 paid: none is NEW, ERROR or SUCCESS; see `states`; 10 have no date";
        assert!(
            usual.notes.iter().any(|note| note == told),
            "{:?}",
            usual.notes
        );
        let states = StatusValues {
            new: "open".to_owned(),
            success: "paid".to_owned(),
            ..StatusValues::default()
        };
        let named = table(&database, FIBONACCI).states(states).expect("states");
        let named = test
            .backstop
            .adopted_table(&named)
            .check()
            .await
            .expect("checked");
        assert_eq!(
            problem(&named, "inserted"),
            "no row that is to be worked off has a date"
        );
        assert!(!named.is_fine(), "{}", database.url());
        let dated =
            "UPDATE BACKLOG SET DATE_INSERTED = '2026-03-01 11:00:00' WHERE STATUS = 'open'";
        database.sql(dated);
        let states = StatusValues {
            new: "open".to_owned(),
            success: "paid".to_owned(),
            ..StatusValues::default()
        };
        let named = table(&database, FIBONACCI).states(states).expect("states");
        let named = test
            .backstop
            .adopted_table(&named)
            .check()
            .await
            .expect("checked");
        assert!(named.is_fine(), "{}: {named:?}", database.url());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_whose_open_rows_have_no_readable_date_is_not_fine() {
    for database in Database::all() {
        let text = Dates::Text.type_name(&database);
        database.sql(&format!(
            "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, STATUS VARCHAR(16), DATE_INSERTED {text},
             FAILURES INTEGER, LAST_FAILURE {text});
             INSERT INTO BACKLOG VALUES (1, 'NEW', 'last spring', 0, NULL), (2, 'ERROR', '', 0, NULL),
             (3, 'SUCCESS', '2026-03-01 11:00:00', 0, NULL)"
        ));
        let adopted = at_noon()
            .backstop
            .adopted_table(&table(&database, FIBONACCI));
        // What passes share is not what `check` goes by.
        adopted.survey().await.expect("a survey");
        let checked = adopted.check().await.expect("checked");
        let problems: Vec<_> = checked
            .columns
            .iter()
            .filter_map(|column| Some((column.role, column.problem.as_deref()?)))
            .collect();
        let told = "no row that is to be worked off has a date that can be read";
        assert_eq!(problems, [("inserted", told)], "{}", database.url());
        assert!(!checked.is_fine() && checked.has_nothing_to_try());
        database.sql("UPDATE BACKLOG SET DATE_INSERTED = '2026-03-01 11:00:00' WHERE ID = 1");
        let checked = adopted.check().await.expect("checked");
        assert!(
            checked.is_fine() && !checked.has_nothing_to_try(),
            "{}: {checked:?}",
            database.url()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_whose_open_rows_are_all_expired_has_nothing_to_try() {
    for database in Database::all() {
        let time = Dates::Native.type_name(&database);
        database.sql(&format!(
            "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, STATUS VARCHAR(16), DATE_INSERTED {time},
             FAILURES INTEGER, LAST_FAILURE {time} NULL);
             INSERT INTO BACKLOG VALUES (1, 'NEW', '2025-03-01 11:00:00', 0, NULL),
             (2, 'ERROR', '2025-03-01 11:00:00', 0, NULL)"
        ));
        let adopted = at_noon()
            .backstop
            .adopted_table(&table(&database, FIBONACCI));
        let checked = adopted.check().await.expect("checked");
        assert!(checked.has_nothing_to_try(), "{}", database.url());
        let told = "2 open rows are older than `max_age` or failed too often: they are never tried";
        assert!(checked.notes.iter().any(|note| note == told), "{checked:?}");
        database.sql("INSERT INTO BACKLOG VALUES (3, 'NEW', '2026-03-01 11:00:00', 0, NULL)");
        let checked = adopted.check().await.expect("checked");
        assert!(!checked.has_nothing_to_try(), "{}", database.url());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_row_is_found_behind_any_number_of_other_words() {
    for database in Database::all() {
        let time = Dates::Native.type_name(&database);
        let others: Vec<String> = (10..90)
            .map(|id| format!("({id}, 'w{}', '2026-03-01 11:00:00', 0, NULL)", id / 2))
            .collect();
        database.sql(&format!(
            "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, STATUS VARCHAR(16), DATE_INSERTED {time},
             FAILURES INTEGER, LAST_FAILURE {time} NULL);
             INSERT INTO BACKLOG VALUES {}",
            others.join(", ")
        ));
        let adopted = at_noon()
            .backstop
            .adopted_table(&table(&database, FIBONACCI));
        let checked = adopted.check().await.expect("checked");
        assert!(!checked.is_fine(), "{}: {checked:?}", database.url());
        database.sql("INSERT INTO BACKLOG VALUES (1, 'ERROR', '2026-03-01 11:00:00', 0, NULL)");
        let checked = adopted.check().await.expect("checked");
        assert!(
            checked.is_fine() && !checked.has_nothing_to_try(),
            "{}: {checked:?}",
            database.url()
        );
    }
}
