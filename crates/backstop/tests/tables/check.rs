//! What a table lacks, and what it says of itself.

use crate::databases::Database;
use crate::ground::{Dates, FIBONACCI, at_noon, noon, table};

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
        if matches!(database, Database::Sqlite(_)) {
            let plan = complete.plan_indexed.expect("a plan on a copy").join("\n");
            assert!(plan.contains("backlog_due") && plan.contains("backlog_inserted"), "{plan}");
            assert!(!indexed.plan.join("\n").contains("SCAN BACKLOG"), "{:?}", indexed.plan);
        }
    }
}
