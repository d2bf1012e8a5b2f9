use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_new_file_belongs_to_its_owner_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    let opened = open(&path, 1).expect("the file opens");
    opened.writer.execute_batch("CREATE TABLE t (x)").expect("a write");
    for suffix in ["", "-wal", "-shm"] {
        let file = dir.path().join(format!("store.db{suffix}"));
        let mode = std::fs::metadata(&file).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
}

#[test]
fn connections_are_set_up_as_they_must_be() {
    let dir = tempfile::tempdir().expect("a directory");
    let opened = open(&dir.path().join("store.db"), 2).expect("the file opens");
    let pragma = |db: &Connection, name: &str| {
        db.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, rusqlite::types::Value>(0))
            .expect("a setting")
    };
    assert_eq!(pragma(&opened.writer, "journal_mode"), "wal".to_owned().into());
    assert_eq!(pragma(&opened.writer, "wal_autocheckpoint"), WAL_PAGES_MAX.into());
    assert_eq!(pragma(&opened.writer, "journal_size_limit"), WAL_BYTES_KEPT.into());
    for db in std::iter::once(&opened.writer).chain(&opened.readers) {
        assert_eq!(pragma(db, "mmap_size"), 0.into());
    }
    for db in &opened.readers {
        assert!(db.execute_batch("CREATE TABLE t (x)").is_err(), "a reader cannot write");
    }
}

#[test]
fn what_cannot_be_a_store_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let check = |path: &Path, expected: &str| {
        let error = open(path, 1).map(drop).expect_err("refused");
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(&dir.path().join("missing/store.db"), "Its directory must exist");
    let text = dir.path().join("text");
    std::fs::write(&text, "no database at all ".repeat(100)).expect("a file");
    check(&text, "SQLite cannot use");
}

#[test]
fn an_old_sqlite_is_refused() {
    assert!(check_sqlite(SQLITE_VERSION_MIN).is_ok());
    let error = check_sqlite(3_051_002).expect_err("refused");
    assert!(error.to_string().contains("3.51.3"), "{error}");
}

#[test]
fn a_newer_file_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    let db = open(&path, 0).expect("the file opens").writer;
    db.execute_batch(
        "CREATE TABLE backstop_meta (key, value); INSERT INTO backstop_meta VALUES ('schema', 999)",
    )
    .expect("a version of the future");
    let error = open(&path, 0).map(drop).expect_err("refused");
    assert!(matches!(error, OpenError::Newer { version: 999, .. }), "{error}");
}
