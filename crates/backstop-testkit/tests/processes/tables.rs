//! A process that works a table off is killed in the middle, and another goes on: every row is
//! handled, and none twice but those that were in its hands; and every expired row becomes one dead
//! letter.

use backstop::Backstop;
use backstop::dead::DeadFilter;
use backstop::rusqlite::Connection;
use backstop_testkit::servers;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Rows that one process may have in its hands: what it takes at a time, and what is at work
/// besides.
const IN_HAND_MAX: usize = 64;
/// What no test waits longer for.
const PATIENCE: Duration = Duration::from_mins(3);
/// What starting a process, and looking at its file, may add to a time that is measured so.
const SLACK: Duration = Duration::from_secs(5);

/// Expired rows, of which a pass copies 500; and those among them that are still to be tried.
const EXPIRED: usize = 3_000;
const YOUNG: usize = 100;
/// How often the one who copies them is killed.
const KILLS: usize = 4;

/// A table of so many new rows.
struct Backlog {
    url: String,
    rows: usize,
    sql: Box<dyn Fn(&str) -> String>,
}

impl Backlog {
    fn new(url: String, rows: usize, time: &str, sql: Box<dyn Fn(&str) -> String>) -> Self {
        sql(&format!(
            "CREATE TABLE BACKLOG (ID INTEGER PRIMARY KEY, STATUS VARCHAR(16) NOT NULL, DATE_INSERTED {time}, FAILURES INTEGER, LAST_FAILURE {time})"
        ));
        let ids: Vec<usize> = (1..=rows).collect();
        for part in ids.chunks(1_000) {
            let values: Vec<String> = part
                .iter()
                .map(|id| format!("({id}, 'NEW', CURRENT_TIMESTAMP, 0, NULL)"))
                .collect();
            sql(&format!("INSERT INTO BACKLOG VALUES {}", values.join(", ")));
        }
        Self { url, rows, sql }
    }

    /// The keys of rows that are done.
    fn done(&self) -> BTreeSet<usize> {
        self.with_status("SUCCESS")
    }

    fn with_status(&self, status: &str) -> BTreeSet<usize> {
        let text = (self.sql)(&format!("SELECT ID FROM BACKLOG WHERE STATUS = '{status}'"));
        text.lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect()
    }

    /// Rows up to this one are expired, and came in together by the dozen.
    fn expire(&self, last: usize) {
        for second in 0..10 {
            (self.sql)(&format!(
                "UPDATE BACKLOG SET STATUS = 'ERROR', FAILURES = 1, DATE_INSERTED = '2020-01-01 00:00:0{second}' WHERE ID <= {last} AND ID % 10 = {second}"
            ));
        }
    }
}

/// The dead letters of a store that another process writes to.
struct Letters {
    runtime: tokio::runtime::Runtime,
    backstop: Backstop,
}

impl Letters {
    fn open(store: &str) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let backstop = runtime.block_on(Backstop::open(store)).expect("a store");
        Self { runtime, backstop }
    }

    fn count(&self) -> usize {
        let stats = self
            .runtime
            .block_on(self.backstop.dead().stats())
            .expect("stats");
        usize::try_from(stats.total).expect("a count")
    }

    /// The keys of the rows that are in them, as often as they are.
    fn keys(&self) -> Vec<usize> {
        let (mut keys, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.backstop.dead();
            let page = self
                .runtime
                .block_on(page.export(&DeadFilter::default(), cursor))
                .expect("a page");
            keys.extend(
                page.letters
                    .iter()
                    .map(|letter| key_in(letter.original_job.payload.get())),
            );
            cursor = page.next;
            if cursor.is_none() {
                return keys;
            }
        }
    }
}

/// The key in a row as JSON.
fn key_in(row: &str) -> usize {
    let row = row.to_lowercase();
    let (_, rest) = row.split_once("\"id\":").expect("a key");
    rest.trim_start()
        .split(|char: char| !char.is_ascii_digit())
        .next()
        .and_then(|key| key.parse().ok())
        .expect("a number")
}

fn start(store: &str, backlog: &Backlog, starts: &Path) -> (Child, Duration) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_table_worker"))
        .args([store, &backlog.url])
        .arg(starts)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its stdout"))
        .read_line(&mut line)
        .expect("its bound");
    let millis = line.trim().parse().expect("a number");
    (child, Duration::from_millis(millis))
}

fn started(file: &Path) -> Vec<usize> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn check(backlog: &Backlog) {
    let folder = TempDir::new().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("backstop.db").display());
    let [first, second]: [PathBuf; 2] = ["first", "second"].map(|name| folder.path().join(name));
    let (mut killed, bound) = start(&store, backlog, &first);
    until("it works", || started(&first).len() > backlog.rows / 4);
    killed.kill().expect("a kill");
    killed.wait().expect("its end");
    let died = Instant::now();
    let done = backlog.done();
    let left: BTreeSet<usize> = started(&first)
        .into_iter()
        .filter(|id| !done.contains(id))
        .collect();
    assert!(done.len() < backlog.rows, "it was in the middle");
    let (mut follower, _) = start(&store, backlog, &second);
    until("what was in its hands runs again", || {
        let again: BTreeSet<usize> = started(&second).into_iter().collect();
        left.is_subset(&again)
    });
    let took = died.elapsed();
    until("the rest is done", || {
        follower.try_wait().expect("a process").is_some()
    });
    assert!(took < bound + SLACK, "{took:?}, and not within {bound:?}");
    assert_eq!(backlog.done().len(), backlog.rows, "every row is done");
    let mut starts: BTreeMap<usize, usize> = BTreeMap::new();
    for id in started(&first).into_iter().chain(started(&second)) {
        *starts.entry(id).or_default() += 1;
    }
    assert_eq!(starts.len(), backlog.rows, "every row was handled");
    let twice: BTreeSet<usize> = starts
        .into_iter()
        .filter(|(_, count)| *count > 1)
        .map(|(id, _)| id)
        .collect();
    assert!(twice.is_disjoint(&done), "what was done is not done again");
    assert!(twice.len() <= IN_HAND_MAX, "{}", twice.len());
    println!(
        "{} rows: {} done before the kill, {} twice, again after {took:?} (bound {bound:?})",
        backlog.rows,
        done.len(),
        twice.len()
    );
}

/// Killed as soon as letters are seen: before or after it is noted that they are there, and how far
/// the walk is.
fn check_expired(backlog: &Backlog) {
    backlog.expire(EXPIRED);
    let expired: BTreeSet<usize> = (1..=EXPIRED).collect();
    let folder = TempDir::new().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("backstop.db").display());
    let (starts, letters) = (folder.path().join("starts"), Letters::open(&store));
    let mut seen = Vec::new();
    for _ in 0..KILLS {
        let before = letters.count();
        let (mut killed, _) = start(&store, backlog, &starts);
        until("there are letters", || letters.count() > before);
        killed.kill().expect("a kill");
        killed.wait().expect("its end");
        seen.push(letters.count());
    }
    assert!(
        seen.iter().all(|count| *count < EXPIRED),
        "each was in the middle: {seen:?}"
    );
    let (mut follower, _) = start(&store, backlog, &starts);
    until("the rest is copied", || {
        follower.try_wait().expect("a process").is_some()
    });
    let mut keys = letters.keys();
    assert_eq!(keys.len(), EXPIRED, "one letter each");
    keys.sort_unstable();
    assert!(keys.iter().eq(&expired), "none twice, and none missing");
    assert_eq!(
        backlog.with_status("ERROR"),
        expired,
        "the rows themselves stay as they are"
    );
    assert_eq!(backlog.done().len(), YOUNG);
    assert!(
        started(&starts).iter().all(|id| !expired.contains(id)),
        "none of them was tried"
    );
    println!("{EXPIRED} expired rows, killed after {seen:?} letters: each has one");
}

#[test]
fn a_killed_process_of_a_table_is_followed_on_sqlite() {
    check(&on_sqlite(&TempDir::new().expect("a folder"), 10_000));
}

#[test]
fn a_killed_process_of_a_table_is_followed_on_postgres() {
    check(&on_postgres("killed", 4_000));
}

#[test]
fn a_killed_process_of_a_table_is_followed_on_mariadb() {
    check(&on_mariadb(4_000));
}

#[test]
fn expired_rows_become_one_letter_each_however_often_a_process_is_killed_on_sqlite() {
    check_expired(&on_sqlite(
        &TempDir::new().expect("a folder"),
        EXPIRED + YOUNG,
    ));
}

#[test]
fn expired_rows_become_one_letter_each_however_often_a_process_is_killed_on_postgres() {
    check_expired(&on_postgres("expired", EXPIRED + YOUNG));
}

#[test]
fn expired_rows_become_one_letter_each_however_often_a_process_is_killed_on_mariadb() {
    check_expired(&on_mariadb(EXPIRED + YOUNG));
}

fn on_sqlite(folder: &TempDir, rows: usize) -> Backlog {
    let file = folder.path().join("app.db");
    let sql = move |statements: &str| {
        let db = Connection::open(&file).expect("a database");
        db.busy_timeout(Duration::from_secs(10)).expect("a timeout");
        if statements.starts_with("SELECT") {
            let mut statement = db.prepare(statements).expect("a query");
            let rows = statement
                .query_map([], |row| row.get::<_, i64>(0))
                .expect("rows");
            let keys: Vec<String> = rows.map(|id| id.expect("a key").to_string()).collect();
            return keys.join("\n");
        }
        db.execute_batch(statements).expect(statements);
        String::new()
    };
    let url = format!("sqlite:{}", folder.path().join("app.db").display());
    sql("PRAGMA journal_mode = WAL");
    Backlog::new(url, rows, "TEXT", Box::new(sql))
}

fn on_postgres(schema: &'static str, rows: usize) -> Backlog {
    let server = servers::postgres();
    server.sql(&format!(
        "CREATE SCHEMA {schema}; GRANT ALL ON SCHEMA {schema} TO backstop"
    ));
    let url = format!("{}?options=-c%20search_path%3D{schema}", server.url());
    let sql = move |statements: &str| {
        server.sql(&format!(
            "SET ROLE backstop; SET search_path = {schema}; {statements}"
        ))
    };
    Backlog::new(url, rows, "timestamptz", Box::new(sql))
}

fn on_mariadb(rows: usize) -> Backlog {
    let server = servers::mariadb();
    let url = server.fresh_url();
    let place = url.clone();
    let sql = move |statements: &str| {
        server.sql_in(&place, &format!("SET time_zone = '+00:00'; {statements}"))
    };
    Backlog::new(url, rows, "DATETIME(6)", Box::new(sql))
}
