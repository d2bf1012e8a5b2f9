//! What a table lacks, and what it says of itself.

use crate::databases::Database;
use crate::ground::{Calls, Dates, FIBONACCI, at_noon, due, minutes, noon, run, table};
use backstop::tables::States;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_table_lacks_is_said_with_the_statement_that_adds_it() {
    for database in Database::all() {
        let time = Dates::Native.type_name(&database);
        database.sql(&format!(
            "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, STATUS VARCHAR(16), DATE_INSERTED {time})"
        ));
        let test = at_noon();
        let adopted = test.backstop.adopted(&table(&database, FIBONACCI));
        let bare = adopted.check().await.expect("checked");
        assert!(!bare.is_fine());
        assert_eq!(bare.missing.len(), 2, "{:?}", bare.missing);
        let refused = adopted.due(noon(), None).await.expect_err("no columns").to_string();
        assert!(refused.contains("FAILURES") && refused.contains("table check"), "{refused}");
        database.sql(&bare.missing.join("\n"));
        let complete = adopted.check().await.expect("checked");
        assert!(complete.is_fine(), "{complete:?}");
        assert_eq!(complete.indexes.iter().filter(|index| index.existing.is_none()).count(), 2);
        assert!(!complete.plan.is_empty());
        for index in &complete.indexes {
            database.sql(&index.ddl.replace("CONCURRENTLY ", ""));
        }
        let indexed = adopted.check().await.expect("checked");
        assert!(indexed.indexes.iter().all(|index| index.existing.is_some()), "{:?}", indexed.indexes);
        assert_eq!(indexed.plan_indexed, Some(indexed.plan.clone()));
        let plan = complete.plan_indexed.expect("a plan on a copy").join("\n");
        assert!(plan.contains("backlog_due") && plan.contains("backlog_inserted"), "{plan}");
        if matches!(database, Database::Sqlite(_)) {
            assert!(!indexed.plan.join("\n").contains("SCAN BACKLOG"), "{:?}", indexed.plan);
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
        let adopted = test.backstop.adopted(&calls.table(table(&database, FIBONACCI), |_| true));
        database.sql(&adopted.check().await.expect("checked").missing.join("\n"));
        let complete = adopted.check().await.expect("checked");
        assert!(complete.is_fine(), "{complete:?}");
        assert_eq!(run(&adopted, noon()).await.failed, 1, "{}", database.url());
        assert_eq!(run(&adopted, minutes(1)).await.failed, 1, "after a minute: {}", database.url());
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
        let states = States { new: WORD.to_owned(), ..States::default() };
        let test = at_noon();
        let adopted = test.backstop.adopted(&table(&database, FIBONACCI).states(states).expect("states"));
        database.sql(&adopted.check().await.expect("checked").missing.join("\n"));
        assert_eq!(due(&adopted, noon()).await, [json!(1)], "{}", database.url());
    }
}
