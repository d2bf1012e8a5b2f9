//! Where a table may be, what else may be in its place, and who may do what to it.

use crate::databases::Database;
use crate::ground::{
    Calls, Dates, FIBONACCI, PROGRESSIVE, at_noon, create, fresh, insert, noon, run, table,
};
use backstop::tables::{ColumnNames, Table, TableError};
use backstop_testkit::servers::{mariadb, postgres};
use serde_json::json;

/// The database part of an address.
fn database_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_another_schema_is_named_with_it() {
    let (here, there) = (Database::all(), Database::all());
    for (here, there) in here.iter().zip(&there) {
        let schema = match there {
            // A file of SQLite's has none.
            Database::Sqlite(_) => continue,
            Database::Postgres(schema) => schema.clone(),
            Database::Mariadb(url) => database_of(url).to_owned(),
        };
        for (database, status) in [(here, "SUCCESS"), (there, "NEW")] {
            create(database, Dates::Native);
            insert(database, Dates::Native, &[(1, status, fresh(noon()))]);
        }
        let (test, calls) = (at_noon(), Calls::default());
        let named = |name: &str| Table::new("t", &here.url(), name).expect("a table");
        let far = calls.table(named(&format!("{schema}.BACKLOG")), |_| false);
        let checked = test
            .backstop
            .adopted_table(&far)
            .check()
            .await
            .expect("checked");
        assert!(
            checked.is_fine() && checked.table.contains(&schema),
            "{checked:?}"
        );
        for index in &checked.indexes {
            there.sql(&index.ddl.replace("CONCURRENTLY ", ""));
        }
        assert_eq!(
            run(&test.backstop.adopted_table(&far), noon())
                .await
                .succeeded,
            1,
            "{}",
            there.url()
        );
        let near = calls.table(named("BACKLOG"), |_| false);
        assert_eq!(
            run(&test.backstop.adopted_table(&near), noon()).await.due,
            0,
            "the one that is here"
        );
        let nowhere = test
            .backstop
            .adopted_table(&named("elsewhere.BACKLOG"))
            .due(noon(), None)
            .await;
        assert!(
            matches!(nowhere, Err(TableError::NoTable { .. })),
            "{nowhere:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_share_what_should_be_their_key_are_not_touched() {
    for database in Database::all() {
        let time = Dates::Native.type_name(&database);
        database.sql(&format!(
            "CREATE TABLE BACKLOG (TENANT BIGINT, NUMBER BIGINT, STATUS VARCHAR(16), DATE_INSERTED {time}, FAILURES INTEGER,
             LAST_FAILURE {time}, PRIMARY KEY (TENANT, NUMBER));
             INSERT INTO BACKLOG VALUES (1, 7, 'NEW', '2026-03-01 11:00:00', 0, NULL), (2, 7, 'SUCCESS', '2026-03-01 11:00:00', 0, NULL)"
        ));
        for strategy in [FIBONACCI, PROGRESSIVE] {
            let columns = ColumnNames {
                id: "NUMBER".to_owned(),
                ..ColumnNames::default()
            };
            let table = table(&database, strategy)
                .columns(columns)
                .expect("columns");
            let (test, calls) = (at_noon(), Calls::default());
            let adopted = test.backstop.adopted_table(&calls.table(table, |_| false));
            let checked = adopted.check().await.expect("checked");
            assert!(
                !checked.is_fine() && checked.columns[0].problem.is_some(),
                "{checked:?}"
            );
            // Also if only one of them is to be tried.
            let refused = adopted.run_at(noon(), &mut |_| {}).await;
            assert!(
                matches!(&refused, Err(TableError::OneKey { key, .. }) if key == "7"),
                "{refused:?}"
            );
            assert_eq!(
                calls.keys(),
                [] as [serde_json::Value; 0],
                "{}",
                database.url()
            );
        }
        database.sql("UPDATE BACKLOG SET STATUS = 'NEW'");
        let columns = ColumnNames {
            id: "NUMBER".to_owned(),
            ..ColumnNames::default()
        };
        let table = table(&database, FIBONACCI)
            .columns(columns)
            .expect("columns");
        let listed = at_noon()
            .backstop
            .adopted_table(&table)
            .due(noon(), None)
            .await;
        assert!(
            matches!(listed, Err(TableError::OneKey { .. })),
            "{listed:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_worked_off_where_its_database_lets_it_be_changed() {
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(&database, Dates::Native, &[(1, "NEW", fresh(noon()))]);
        database.sql("CREATE VIEW SHOWN AS SELECT * FROM BACKLOG");
        let (test, calls) = (at_noon(), Calls::default());
        let shown = Table::new("shown", &database.url(), "SHOWN").expect("a table");
        let adopted = test.backstop.adopted_table(&calls.table(shown, |_| false));
        let checked = adopted.check().await.expect("checked");
        assert!(
            checked.indexes.is_empty() && checked.plan_indexed.is_none(),
            "{checked:?}"
        );
        assert!(
            checked
                .notes
                .iter()
                .any(|note| note.contains("it is a view")),
            "{checked:?}"
        );
        let is_fixed = matches!(database, Database::Sqlite(_));
        assert_eq!(checked.is_fine(), !is_fixed, "{checked:?}");
        let pass = adopted.run_at(noon(), &mut |_| {}).await;
        if is_fixed {
            let refused = pass
                .expect_err("a view of SQLite's cannot be changed")
                .to_string();
            assert!(refused.contains("view"), "{refused}");
            assert!(
                calls.keys().is_empty(),
                "its handler was not called in vain"
            );
        } else {
            assert_eq!(pass.expect("a pass").succeeded, 1, "{}", database.url());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_handler_runs_where_its_end_could_not_be_written() {
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(&database, Dates::Native, &[(1, "NEW", fresh(noon()))]);
        // The status may be changed, and the failures may not.
        let url = match &database {
            Database::Sqlite(_) => continue,
            Database::Postgres(schema) => {
                postgres().sql(&format!(
                    "CREATE ROLE half_{schema} LOGIN; GRANT USAGE ON SCHEMA {schema} TO half_{schema};
                     GRANT SELECT, UPDATE (STATUS) ON {schema}.BACKLOG TO half_{schema}"
                ));
                database
                    .url()
                    .replacen("backstop@", &format!("half_{schema}@"), 1)
            }
            Database::Mariadb(url) => {
                let name = database_of(url);
                mariadb().sql(&format!(
                    "CREATE USER half_{name}@'%' IDENTIFIED BY 'half'; GRANT SELECT, UPDATE (STATUS) ON {name}.BACKLOG TO half_{name}@'%'"
                ));
                let (_, place) = url.rsplit_once('@').expect("a user");
                format!("mysql://half_{name}:half@{place}")
            }
        };
        let (test, calls) = (at_noon(), Calls::default());
        let table = Table::new("half", &url, "BACKLOG").expect("a table");
        let adopted = test.backstop.adopted_table(&calls.table(table, |_| true));
        let checked = adopted.check().await.expect("checked");
        assert!(
            checked.may_read.is_ok() && checked.may_write.is_err(),
            "{checked:?}"
        );
        let refused = adopted
            .run_at(noon(), &mut |_| {})
            .await
            .expect_err("it may not be written")
            .to_string();
        assert!(refused.contains("denied"), "{refused}");
        assert_eq!(calls.keys(), [] as [serde_json::Value; 0], "{url}");
        assert_eq!(
            adopted.due(noon(), None).await.expect("due rows")[0].key,
            json!(1),
            "it may be looked at"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_in_parts_gets_an_index_that_can_be_made() {
    for database in Database::all() {
        let parts = match database {
            Database::Sqlite(_) => continue,
            Database::Postgres(_) => "PARTITION BY RANGE (DATE_INSERTED)",
            Database::Mariadb(_) => "PARTITION BY HASH (DAY(DATE_INSERTED)) PARTITIONS 4",
        };
        let time = Dates::Native.type_name(&database);
        database.sql(&format!(
            "CREATE TABLE BACKLOG (ID BIGINT, STATUS VARCHAR(16), DATE_INSERTED {time}, FAILURES INTEGER, LAST_FAILURE {time},
             PRIMARY KEY (ID, DATE_INSERTED)) {parts}"
        ));
        if matches!(database, Database::Postgres(_)) {
            database.sql(
                "CREATE TABLE PART PARTITION OF BACKLOG FOR VALUES FROM ('2020-01-01') TO ('2030-01-01')",
            );
        }
        database.sql("INSERT INTO BACKLOG VALUES (1, 'NEW', '2026-03-01 11:00:00', 0, NULL), (2, 'NEW', '2026-03-01 11:30:00', 0, NULL)");
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test
            .backstop
            .adopted_table(&calls.table(table(&database, FIBONACCI), |_| false));
        let checked = adopted.check().await.expect("checked");
        assert!(checked.is_fine(), "{checked:?}");
        assert!(
            checked.notes.iter().any(|note| note.contains("sharing")),
            "{checked:?}"
        );
        for index in &checked.indexes {
            database.sql(&index.ddl);
        }
        assert_eq!(
            run(&adopted, noon()).await.succeeded,
            2,
            "{}",
            database.url()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_without_a_zone_are_told_to_be_in_utc() {
    for database in Database::all() {
        let (zoned, bare) = match database {
            Database::Sqlite(_) => continue,
            Database::Postgres(_) => ("timestamptz", "timestamp(3)"),
            Database::Mariadb(_) => ("TIMESTAMP(6) NULL", "DATETIME"),
        };
        for (time, is_told) in [(zoned, false), (bare, true)] {
            let _ = database.sql("DROP TABLE IF EXISTS BACKLOG");
            database.sql(&format!(
                "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, STATUS VARCHAR(16), DATE_INSERTED {time}, FAILURES INTEGER, LAST_FAILURE {time})"
            ));
            let adopted = at_noon()
                .backstop
                .adopted_table(&table(&database, FIBONACCI));
            let notes = adopted.check().await.expect("checked").notes;
            assert_eq!(
                notes.iter().any(|note| note.contains("UTC")),
                is_told,
                "{notes:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_with_all_indexes_needs_a_right_of_its_own_and_leaves_nothing_behind() {
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(&database, Dates::Native, &[(1, "NEW", fresh(noon()))]);
        // A user who may work the table off and no more; then one who may make temporary tables as
        // well.
        let (url, grant) = match &database {
            Database::Sqlite(_) => continue,
            Database::Postgres(schema) => {
                let everybody = "REVOKE TEMPORARY ON DATABASE backstop FROM PUBLIC";
                postgres().sql(&format!(
                    "CREATE ROLE works_{schema} LOGIN; GRANT USAGE ON SCHEMA {schema} TO works_{schema};
                     GRANT SELECT, UPDATE ON {schema}.BACKLOG TO works_{schema}; {everybody}"
                ));
                let url = database
                    .url()
                    .replacen("backstop@", &format!("works_{schema}@"), 1);
                (
                    url,
                    format!("GRANT TEMPORARY ON DATABASE backstop TO works_{schema}"),
                )
            }
            Database::Mariadb(url) => {
                let name = database_of(url);
                mariadb().sql(&format!(
                    "CREATE USER works_{name}@'%' IDENTIFIED BY 'w'; GRANT SELECT, UPDATE ON {name}.BACKLOG TO works_{name}@'%'"
                ));
                let (_, place) = url.rsplit_once('@').expect("a user");
                let grant =
                    format!("GRANT CREATE TEMPORARY TABLES ON {name}.* TO works_{name}@'%'");
                (format!("mysql://works_{name}:w@{place}"), grant)
            }
        };
        let adopted = at_noon()
            .backstop
            .adopted_table(&Table::new("works", &url, "BACKLOG").expect("a table"));
        let refused = adopted.check().await.expect("checked");
        assert!(
            refused.is_fine() && refused.plan_indexed.is_none(),
            "{refused:?}"
        );
        let note = refused
            .notes
            .iter()
            .find(|note| note.contains("TEMPORARY"))
            .expect("a note");
        assert!(note.contains("denied"), "{note}");
        match &database {
            Database::Mariadb(_) => mariadb().sql(&grant),
            _ => postgres().sql(&grant),
        };
        let allowed = adopted.check().await.expect("checked");
        let plan = allowed.plan_indexed.as_ref().expect("a plan").join("\n");
        assert!(
            plan.contains("backlog_due") && plan.contains("backlog_inserted"),
            "{plan}"
        );
        assert!(
            !allowed.notes.iter().any(|note| note.contains("TEMPORARY")),
            "{allowed:?}"
        );
        let left = match &database {
            Database::Mariadb(url) => mariadb().sql(&format!(
                "SELECT count(*) FROM information_schema.tables WHERE table_schema = '{}' AND table_name <> 'BACKLOG';
                 SELECT count(DISTINCT index_name) FROM information_schema.statistics WHERE table_schema = '{0}' AND index_name <> 'PRIMARY'",
                database_of(url)
            )),
            _ => postgres().sql(
                "SELECT count(*) FROM pg_class WHERE relname LIKE 'backstop_copy%' OR relname IN ('backlog_due', 'backlog_inserted')
                 AND relnamespace::regnamespace::text LIKE 'pg_temp%'",
            ),
        };
        assert!(left.split_whitespace().all(|count| count == "0"), "{left}");
    }
}
