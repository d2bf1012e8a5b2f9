//! Adopted tables: rows by state and age, and what becomes of the page when the database is broken.

use crate::site::{HOSTILE, Site, all_under};
use backstop::rusqlite::Connection;
use backstop::tables::{Table, TableRow};
use backstop::{RunError, Span};
use backstop_server::access::ScopeSet;
use std::path::Path;
use tempfile::TempDir;

fn table(name: &str, file: &Path) -> String {
    format!(
        "[tables.{name}]\nurl = \"sqlite:{}\"\ntable = \"BACKLOG\"\nmax_age = \"30d\"\n",
        file.display()
    )
}

/// A table with a new row, a failed one, one that is done, and an expired one that is called as
/// badly as it can be.
fn database() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.db");
    let base = Connection::open(&file).unwrap();
    base.execute_batch(
        "CREATE TABLE BACKLOG (ID TEXT PRIMARY KEY, STATUS TEXT, DATE_INSERTED TEXT, FAILURES INTEGER, LAST_FAILURE TEXT);
         INSERT INTO BACKLOG VALUES ('a', 'NEW', '2025-12-31 23:00:00', 0, NULL);
         INSERT INTO BACKLOG VALUES ('b', 'ERROR', '2025-12-25 00:00:00', 3, '2025-12-31 23:59:00');
         INSERT INTO BACKLOG VALUES ('c', 'SUCCESS', '2025-12-25 00:00:00', 0, NULL);",
    )
    .unwrap();
    base.execute(
        "INSERT INTO BACKLOG VALUES (?1, 'NEW', '2020-01-01 00:00:00', 0, NULL)",
        [HOSTILE],
    )
    .unwrap();
    let config = table("invoices", &file);
    (folder, config)
}

#[tokio::test]
async fn without_tables_the_page_teaches_how_to_get_one() {
    let page = Site::new("").page("/tables").await;
    assert!(
        page.contains("[tables.invoices]") && page.contains("backstop table check invoices"),
        "{page}"
    );
}

#[tokio::test]
async fn rows_are_shown_by_state_and_age_and_expired_ones_by_name() {
    let (_folder, config) = database();
    let page = Site::new(&config).page("/tables").await;
    for part in [
        "no handler",
        "Open rows by age",
        "up to 1 d: 1 new",
        "Expired rows",
        "alert(7)",
        "no pass yet",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(
        page.contains("<dt>expired</dt><dd class=\"late\">1</dd>"),
        "{page}"
    );
}

#[tokio::test]
async fn a_broken_database_is_shown_as_its_error_beside_the_ones_that_work() {
    let (folder, config) = database();
    let broken = folder.path().join("broken.db");
    std::fs::write(
        &broken,
        "this is no database at all, and long enough to be none",
    )
    .unwrap();
    let page = Site::new(&(config + &table("broken", &broken)))
        .page("/tables")
        .await;
    assert!(
        page.contains("could not be looked at") && page.contains("not a database"),
        "{page}"
    );
    assert!(page.contains("Open rows by age"), "{page}");
}

#[tokio::test]
async fn passes_that_fail_are_told_on_the_page_and_first_of_all_on_the_overview() {
    let (folder, config) = database();
    let site = Site::new(&config);
    let away = Connection::open(folder.path().join("app.db")).unwrap();
    away.execute_batch("ALTER TABLE BACKLOG RENAME TO AWAY")
        .unwrap();
    let url = format!("sqlite:{}", folder.path().join("app.db").display());
    let table = Table::new("invoices", &url, "BACKLOG").unwrap();
    let table = table.handler(|_: TableRow| async { Ok::<(), RunError>(()) });
    let adopted = site.test.backstop.adopted_table(&table);
    adopted.run().await.unwrap_err();
    site.test.clock.advance(Span::minutes(3));
    let page = site.page("/tables").await;
    assert!(
        page.contains("Passes fail.") && page.contains("1 pass failed since"),
        "{page}"
    );
    let overview = site.page("/").await;
    assert!(
        overview.contains("Passes over table invoices fail: ") && overview.contains("3 min"),
        "{overview}"
    );
    assert!(overview.contains("there is no table BACKLOG"), "{overview}");
    away.execute_batch("ALTER TABLE AWAY RENAME TO BACKLOG")
        .unwrap();
    adopted.run().await.unwrap();
    assert!(!site.page("/tables").await.contains("Passes fail."));
    assert!(!site.page("/").await.contains("Passes over table"));
}

#[tokio::test]
async fn under_a_path_every_address_is_under_it() {
    let (_folder, config) = database();
    all_under(
        &Site::mounted(&config, "/ops", ScopeSet::ALL)
            .page("/ops/tables")
            .await,
        "/ops",
    );
}
