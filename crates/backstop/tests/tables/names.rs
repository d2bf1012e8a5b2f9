//! Names, words and passwords.

use crate::databases::Database;
use crate::ground::{
    Calls, Dates, FIBONACCI, at_noon, create, due, fresh, insert, noon, run, table,
};
use backstop::tables::{ColumnNames, StatusValues, Table, TableError};
use backstop::testing;
use backstop_testkit::servers::mariadb;

#[tokio::test(flavor = "multi_thread")]
async fn names_and_words_are_data_whatever_they_say() {
    const HOSTILE: &str = "x\"; DROP TABLE keep; --`']";
    for database in Database::all() {
        let quote = |name: &str| match &database {
            Database::Mariadb(_) => format!("`{}`", name.replace('`', "``")),
            _ => format!("\"{}\"", name.replace('"', "\"\"")),
        };
        let time = Dates::Native.type_name(&database);
        let named = |part: &str| quote(&format!("{part} {HOSTILE}"));
        let word = "it's \\ \" new; --"
            .replace('\'', "''")
            .replace('\\', database.dialect("\\", "\\", "\\\\"));
        database.sql(&format!(
            "CREATE TABLE keep (a INTEGER);
             CREATE TABLE {} ({} VARCHAR(64) PRIMARY KEY, {} VARCHAR(64) NOT NULL, {} {time}, {} INTEGER, {} {time});
             INSERT INTO {} VALUES ('id; DROP TABLE keep', '{word}', '2026-03-01 11:00:00', 0, NULL)",
            named("t"), named("id"), named("status"), named("in"), named("f"), named("l"), named("t")
        ));
        let name = |part: &str| format!("{part} {HOSTILE}");
        let columns = ColumnNames {
            id: name("id"),
            status: name("status"),
            inserted: name("in"),
            failures: name("f"),
            last_failure: name("l"),
        };
        let states = StatusValues {
            new: "it's \\ \" new; --".to_owned(),
            error: "';".to_owned(),
            ..StatusValues::default()
        };
        let table = Table::new("hostile", &database.url(), &name("t")).expect("a table");
        let table = table
            .columns(columns)
            .expect("columns")
            .states(states)
            .expect("states");
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test.backstop.adopted_table(&calls.table(table, |_| true));
        let checked = adopted.check().await.expect("checked");
        assert!(checked.is_fine(), "{} {checked:?}", database.url());
        assert_eq!(run(&adopted, noon()).await.failed, 1, "{}", database.url());
        assert_eq!(adopted.status(noon()).await.expect("a status").error, 1);
        assert_eq!(database.count("keep"), 0, "it is still there");
        let nowhere =
            Table::new("t", &database.url(), "BACKLOG\"; DROP TABLE keep; --").expect("a table");
        let refused = test
            .backstop
            .adopted_table(&nowhere)
            .due(noon(), None)
            .await;
        assert!(
            matches!(refused, Err(TableError::NoTable { .. })),
            "{refused:?}"
        );
        assert_eq!(database.count("keep"), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_password_is_shown() {
    let url = mariadb().fresh_url();
    let table = Table::new("t", &url, "nowhere").expect("a table");
    let error = testing::start()
        .backstop
        .adopted_table(&table)
        .due(noon(), None)
        .await
        .expect_err("no table");
    let secret = backstop_testkit::servers::mariadb::PASSWORD;
    assert!(
        !error.to_string().contains(secret) && !format!("{error:?} {table:?}").contains(secret),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_not_there_is_not_taken_for_the_store() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = listener.local_addr().expect("an address");
    drop(listener);
    for url in [
        format!("postgres://u@{closed}/d"),
        format!("mysql://u@{closed}/d"),
    ] {
        let table = Table::new("t", &url, "t").expect("a table");
        let error = testing::start()
            .backstop
            .adopted_table(&table)
            .due(noon(), None)
            .await
            .expect_err("nobody");
        let told = error.to_string();
        assert!(
            told.contains(&closed.to_string()) && !told.contains("store"),
            "{told}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_in_other_letters_counts_as_the_query_takes_it() {
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(
            &database,
            Dates::Native,
            &[(1, "new", fresh(noon())), (2, "NEW", fresh(noon()))],
        );
        let test = at_noon();
        let adopted = test.backstop.adopted_table(&table(&database, FIBONACCI));
        let status = adopted.status(noon()).await.expect("a status");
        let due = due(&adopted, noon()).await.len() as u64;
        assert_eq!(
            (status.new, status.other, status.due),
            (due, 2 - due, due),
            "{}",
            database.url()
        );
        assert_eq!(status.undated, 0, "{}", database.url());
    }
}
