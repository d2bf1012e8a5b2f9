//! What `doctor` reads.

use super::{fresh_store, user};
use backstop_core::port::{ExaminationReport, FindingSeverity, Store};

fn graded(examined: &ExaminationReport, grade: FindingSeverity) -> Vec<&str> {
    examined
        .findings
        .iter()
        .filter(|found| found.severity == grade)
        .map(|found| found.what.as_str())
        .collect()
}

async fn examine(store: &dyn Store) -> ExaminationReport {
    store.examine().await.expect("it can be examined")
}

#[tokio::test]
async fn a_server_without_fsync_falls_short_and_says_so() {
    let (store, _schema) = fresh_store().await;
    let examined = examine(&*store).await;
    assert_eq!(graded(&examined, FindingSeverity::Bad), ["fsync = off"]);
    assert!(
        examined
            .promise
            .contains("a power cut may lose or damage everything"),
        "{}",
        examined.promise
    );
}

#[tokio::test]
async fn a_missing_index_and_a_changed_function_are_found() {
    let (store, schema) = fresh_store().await;
    let change = format!(
        "DROP INDEX {schema}.job_no; CREATE OR REPLACE FUNCTION {schema}.add_up(p_max int) RETURNS void LANGUAGE sql AS ''"
    );
    user()
        .await
        .batch_execute(&change)
        .await
        .expect("an owner may do so");
    let examined = examine(&*store).await;
    let bad = graded(&examined, FindingSeverity::Bad).join("; ");
    assert!(
        bad.contains("index job_no") && bad.contains("function add_up(p_max integer)"),
        "{bad}"
    );
}
