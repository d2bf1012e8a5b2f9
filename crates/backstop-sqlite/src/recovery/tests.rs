use super::*;

fn connect(path: &Path) -> Connection {
    let db = Connection::open(path).expect("a connection");
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))
        .expect("a log");
    db
}

fn rows(path: &Path) -> i64 {
    let db = Connection::open(path).expect("a connection");
    db.query_row("SELECT count(*) FROM t", [], |row| row.get(0))
        .expect("a count")
}

/// A file with 100 rows in its log, such as a killed process leaves behind.
fn left_log(path: &Path) {
    let db = connect(path);
    db.execute_batch("CREATE TABLE t (x); PRAGMA wal_checkpoint(TRUNCATE)")
        .expect("a table");
    for n in 0..100 {
        db.execute("INSERT INTO t VALUES (?1)", [n]).expect("a row");
    }
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .expect("a setting");
}

#[test]
fn a_log_is_folded_into_the_file_and_the_marker_goes() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    left_log(&path);
    assert!(is_needed(&path));
    FailureMarker::of(&path).set().expect("a marker");
    assert_eq!(recover(&path).expect("recovered"), RecoveryOutcome::Done);
    assert!(!is_needed(&path), "neither log nor marker");
    assert_eq!(rows(&path), 100);
}

#[test]
fn a_log_with_a_hole_ends_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    left_log(&path);
    let log = OpenOptions::new()
        .write(true)
        .open(log_of(&path))
        .expect("the log");
    let half = log.metadata().expect("a size").len() / 2;
    log.write_all_at(&[0; 4_096], half).expect("a hole");
    assert_eq!(recover(&path).expect("recovered"), RecoveryOutcome::Done);
    let left = rows(&path);
    assert!((1..100).contains(&left), "{left}");
}

#[test]
fn a_file_that_others_have_open_is_left_to_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    let other = connect(&path);
    other.execute_batch("CREATE TABLE t (x)").expect("a table");
    FailureMarker::of(&path).set().expect("a marker");
    assert_eq!(recover(&path).expect("an attempt"), RecoveryOutcome::InUse);
    assert!(FailureMarker::of(&path).is_set());
    drop(other);
    assert_eq!(recover(&path).expect("recovered"), RecoveryOutcome::Done);
}
