//! Sweeps over a database of a user's: what they found, what they would do, and what becomes of a
//! page when it is broken.

use crate::site::{HOSTILE, Site, all_under};
use axum::http::StatusCode;
use backstop::rusqlite::Connection;
use backstop_server::access::ScopeSet;
use tempfile::TempDir;

/// A database with one lost row, which is called as badly as it can be.
fn database() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.db");
    let base = Connection::open(&file).unwrap();
    base.execute_batch("CREATE TABLE changes (id TEXT, created_at TEXT, processed_at TEXT)")
        .unwrap();
    base.execute(
        "INSERT INTO changes VALUES (?1, '2020-01-01 00:00:00', NULL)",
        [HOSTILE],
    )
    .unwrap();
    let config = format!(
        r#"
[sweeps.changes]
url = "sqlite:{}"
query = "SELECT id FROM changes WHERE processed_at IS NULL AND created_at <= :cutoff"
queue = "content"
unique_key = "change:{{id}}"
payload = {{ id = "{{id}}" }}
"#,
        file.display()
    );
    (folder, config)
}

#[tokio::test]
async fn without_sweeps_the_page_teaches_how_to_get_one() {
    let page = Site::new("").page("/sweeps").await;
    assert!(
        page.contains("[sweeps.content_changes]") && page.contains("--dry-run"),
        "{page}"
    );
}

#[tokio::test]
async fn a_dry_run_says_what_would_be_done_and_does_nothing() {
    let (_folder, config) = database();
    let site = Site::new(&config);
    assert!(site.page("/sweeps").await.contains("never"));
    let page = site.page("/sweeps/changes?look=dry").await;
    assert!(
        page.contains("Would get a job") && page.contains("alert(7)"),
        "{page}"
    );
    assert!(
        site.test
            .backstop
            .store()
            .queues(site.test.backstop.now())
            .await
            .unwrap()
            .is_empty()
    );
    let compared = site.page("/sweeps/changes?look=compare").await;
    assert!(compared.contains("They do not match"), "{compared}");
}

#[tokio::test]
async fn a_run_by_hand_enqueues_is_audited_and_is_listed() {
    let (_folder, config) = database();
    let site = Site::new(&config);
    let done = site.post("/sweeps/changes/run", "").await;
    assert_eq!(
        (done.status, done.location.as_str()),
        (StatusCode::SEE_OTHER, "/sweeps/changes")
    );
    assert_eq!(
        site.audit().await,
        [("token ada".to_owned(), "sweep run".to_owned())]
    );
    let page = site.page("/sweeps/changes").await;
    assert!(page.contains("<span class=\"strong\">1</span>"), "{page}");
    let again = site.page("/sweeps/changes?look=dry").await;
    assert!(again.contains("Nothing is lost"), "{again}");
    let compared = site.page("/sweeps/changes?look=compare").await;
    assert!(compared.contains("They match"), "{compared}");
}

#[tokio::test]
async fn a_broken_database_is_shown_as_its_error_and_the_page_stays() {
    let (folder, config) = database();
    std::fs::write(
        folder.path().join("app.db"),
        "this is no database at all, and long enough to be none",
    )
    .unwrap();
    let site = Site::new(&config);
    for look in ["dry", "compare"] {
        let page = site.page(&format!("/sweeps/changes?look={look}")).await;
        assert!(
            page.contains("The search failed") && page.contains("not a database"),
            "{page}"
        );
        assert!(page.contains("Last runs"), "{page}");
    }
    let run = site.post("/sweeps/changes/run", "").await;
    assert_eq!(run.status, StatusCode::SEE_OTHER);
    let page = site.page("/sweeps/changes").await;
    assert!(
        page.contains("not a database"),
        "the failed run is among the last ones: {page}"
    );
    assert!(site.page("/sweeps").await.contains("failed</span>"));
}

#[tokio::test]
async fn an_unknown_sweep_and_an_unknown_look_change_nothing() {
    let (_folder, config) = database();
    let site = Site::new(&config);
    assert_eq!(
        site.get("/sweeps/nobody").await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        site.post("/sweeps/nobody/run", "").await.status,
        StatusCode::NOT_FOUND
    );
    assert!(
        !site
            .page("/sweeps/changes?look=%22%3E%3Cscript%3E")
            .await
            .contains("What was seen")
    );
    assert!(site.audit().await.is_empty());
}

#[tokio::test]
async fn under_a_path_every_address_is_under_it() {
    let (_folder, config) = database();
    let site = Site::mounted(&config, "/ops", ScopeSet::ALL);
    all_under(&site.page("/ops/sweeps").await, "/ops");
    all_under(&site.page("/ops/sweeps/changes?look=dry").await, "/ops");
}
