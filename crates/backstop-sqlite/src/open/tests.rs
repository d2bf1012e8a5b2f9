use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_new_file_belongs_to_its_owner_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    let opened = open(&path, 1).expect("the file opens");
    opened
        .writer
        .execute_batch("CREATE TABLE t (x)")
        .expect("a write");
    for suffix in ["", "-wal", "-shm"] {
        let file = dir.path().join(format!("store.db{suffix}"));
        let mode = std::fs::metadata(&file)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
}

#[test]
fn connections_are_set_up_as_they_must_be() {
    let dir = tempfile::tempdir().expect("a directory");
    let opened = open(&dir.path().join("store.db"), 2).expect("the file opens");
    let pragma = |db: &Connection, name: &str| {
        db.query_row(&format!("PRAGMA {name}"), [], |row| {
            row.get::<_, rusqlite::types::Value>(0)
        })
        .expect("a setting")
    };
    assert_eq!(
        pragma(&opened.writer, "journal_mode"),
        "wal".to_owned().into()
    );
    assert_eq!(pragma(&opened.writer, "wal_autocheckpoint"), 0.into());
    assert_eq!(
        pragma(&opened.writer, "journal_size_limit"),
        WAL_BYTES_KEPT.into()
    );
    for db in std::iter::once(&opened.writer).chain(&opened.readers) {
        assert_eq!(pragma(db, "mmap_size"), 0.into());
    }
    for db in &opened.readers {
        assert!(
            db.execute_batch("CREATE TABLE t (x)").is_err(),
            "a reader cannot write"
        );
    }
}

#[test]
fn what_cannot_be_a_store_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let check = |path: &Path, expected: &str| {
        let error = open(path, 1).map(drop).expect_err("refused");
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(
        &dir.path().join("missing/store.db"),
        "Its directory must exist",
    );
    let text = dir.path().join("text");
    std::fs::write(&text, "no database at all ".repeat(100)).expect("a file");
    check(&text, "SQLite cannot use");
}

#[test]
fn a_file_that_cannot_be_written_to_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    drop(open(&path, 0).expect("the file opens"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).expect("the owner may");
    // Root may write to any file, whatever its mode.
    if rustix::process::geteuid().is_root() {
        return;
    }
    let error = open(&path, 0).map(drop).expect_err("refused");
    assert!(matches!(error, SqliteOpenError::File { .. }), "{error}");
}

/// The locks that this process has on a file, as the kernel lists them.
#[cfg(target_os = "linux")]
fn locks_on(path: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let inode = std::fs::metadata(path).expect("the file is there").ino();
    let (process, ending) = (std::process::id().to_string(), format!(":{inode}"));
    let locks = std::fs::read_to_string("/proc/locks").expect("the list of locks");
    let fields = locks
        .lines()
        .map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>());
    let mut ours: Vec<String> = fields
        .filter(|lock| lock.len() == 7 && lock[3] == process && lock[4].ends_with(&ending))
        .map(|lock| lock.join(" "))
        .collect();
    ours.sort();
    // The list is not a snapshot: while other processes lock and unlock, a line may come twice.
    ours.dedup();
    ours
}

#[cfg(target_os = "linux")]
#[test]
fn a_second_open_in_one_process_leaves_the_locks_of_the_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    let first = open(&path, 1).expect("the file opens");
    first
        .writer
        .execute_batch("CREATE TABLE t (x)")
        .expect("a write");
    let before = locks_on(&path);
    assert!(!before.is_empty(), "SQLite holds the file of a log shared");
    let second = open(&path, 1).expect("it opens again");
    assert_eq!(locks_on(&path), before);
    drop(second);
    assert_eq!(locks_on(&path), before);
}

#[cfg(target_os = "linux")]
#[test]
fn a_users_own_connection_keeps_its_locks_when_a_store_opens() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    let user = Connection::open(&path).expect("a connection");
    user.execute_batch(
        "PRAGMA journal_mode = WAL; CREATE TABLE t (x); BEGIN IMMEDIATE; INSERT INTO t VALUES (1)",
    )
    .expect("a write that is not committed");
    let log = dir.path().join("store.db-shm");
    let (before, before_log) = (locks_on(&path), locks_on(&log));
    assert!(
        !before.is_empty() && !before_log.is_empty(),
        "{before:?} {before_log:?}"
    );
    let store = open(&path, 1).expect("the store opens");
    assert_eq!((locks_on(&path), locks_on(&log)), (before, before_log));
    drop(store);
    user.execute_batch("COMMIT")
        .expect("its lock was never lost");
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
        "CREATE TABLE backstop_schema (version); INSERT INTO backstop_schema VALUES (999)",
    )
    .expect("a version of the future");
    let error = open(&path, 0).map(drop).expect_err("refused");
    assert!(
        matches!(error, SqliteOpenError::Newer { version: 999, .. }),
        "{error}"
    );
}

#[test]
fn a_file_of_a_pre_release_is_refused_with_what_to_do() {
    for version in [1, 5] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store.db");
        let db = open(&path, 0).expect("the file opens").writer;
        db.execute_batch(&format!(
            "CREATE TABLE backstop_meta (key, value);
             INSERT INTO backstop_meta VALUES ('schema', {version})"
        ))
        .expect("its mark");
        let error = open(&path, 0).map(drop).expect_err("refused");
        assert!(
            matches!(error, SqliteOpenError::PreRelease { .. }),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .ends_with("with that program, or use a new file"),
            "{error}"
        );
    }
}
