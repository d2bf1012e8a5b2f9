//! A process that works a table off is killed in the middle, and another goes on: every row is handled, and none twice but those that were in
//! its hands.

use backstop::rusqlite::Connection;
use backstop_testkit::servers;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Rows that one process may have in its hands: what it takes at a time, and what is at work besides.
const IN_HAND_MAX: usize = 64;
/// What no test waits longer for.
const PATIENCE: Duration = Duration::from_mins(3);
/// What starting a process, and looking at its file, may add to a time that is measured so.
const SLACK: Duration = Duration::from_secs(5);

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
            let values: Vec<String> =
                part.iter().map(|id| format!("({id}, 'NEW', CURRENT_TIMESTAMP, 0, NULL)")).collect();
            sql(&format!("INSERT INTO BACKLOG VALUES {}", values.join(", ")));
        }
        Self { url, rows, sql }
    }

    /// The keys of rows that are done.
    fn done(&self) -> BTreeSet<usize> {
        let text = (self.sql)("SELECT ID FROM BACKLOG WHERE STATUS = 'SUCCESS'");
        text.lines().filter_map(|line| line.trim().parse().ok()).collect()
    }
}

fn start(store: &str, backlog: &Backlog, starts: &Path) -> (Child, Duration) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_table_worker"))
        .args([store, &backlog.url])
        .arg(starts)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its stdout")).read_line(&mut line).expect("its bound");
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
    let left: BTreeSet<usize> = started(&first).into_iter().filter(|id| !done.contains(id)).collect();
    assert!(done.len() < backlog.rows, "it was in the middle");
    let (mut follower, _) = start(&store, backlog, &second);
    until("what was in its hands runs again", || {
        let again: BTreeSet<usize> = started(&second).into_iter().collect();
        left.is_subset(&again)
    });
    let took = died.elapsed();
    until("the rest is done", || follower.try_wait().expect("a process").is_some());
    assert!(took < bound + SLACK, "{took:?}, and not within {bound:?}");
    assert_eq!(backlog.done().len(), backlog.rows, "every row is done");
    let mut starts: BTreeMap<usize, usize> = BTreeMap::new();
    for id in started(&first).into_iter().chain(started(&second)) {
        *starts.entry(id).or_default() += 1;
    }
    assert_eq!(starts.len(), backlog.rows, "every row was handled");
    let twice: BTreeSet<usize> =
        starts.into_iter().filter(|(_, count)| *count > 1).map(|(id, _)| id).collect();
    assert!(twice.is_disjoint(&done), "what was done is not done again");
    assert!(twice.len() <= IN_HAND_MAX, "{}", twice.len());
    println!(
        "{} rows: {} done before the kill, {} twice, again after {took:?} (bound {bound:?})",
        backlog.rows,
        done.len(),
        twice.len()
    );
}

#[test]
fn a_killed_process_of_a_table_is_followed_on_sqlite() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("app.db");
    let sql = move |statements: &str| {
        let db = Connection::open(&file).expect("a database");
        db.busy_timeout(Duration::from_secs(10)).expect("a timeout");
        if statements.starts_with("SELECT") {
            let mut statement = db.prepare(statements).expect("a query");
            let rows = statement.query_map([], |row| row.get::<_, i64>(0)).expect("rows");
            let keys: Vec<String> = rows.map(|id| id.expect("a key").to_string()).collect();
            return keys.join("\n");
        }
        db.execute_batch(statements).expect(statements);
        String::new()
    };
    let url = format!("sqlite:{}", folder.path().join("app.db").display());
    sql("PRAGMA journal_mode = WAL");
    check(&Backlog::new(url, 10_000, "TEXT", Box::new(sql)));
}

#[test]
fn a_killed_process_of_a_table_is_followed_on_postgres() {
    let server = servers::postgres();
    server.sql("CREATE SCHEMA killed; GRANT ALL ON SCHEMA killed TO backstop");
    let url = format!("{}?options=-c%20search_path%3Dkilled", server.url());
    let sql = move |statements: &str| {
        server.sql(&format!("SET ROLE backstop; SET search_path = killed; {statements}"))
    };
    check(&Backlog::new(url, 4_000, "timestamptz", Box::new(sql)));
}

#[test]
fn a_killed_process_of_a_table_is_followed_on_mariadb() {
    let server = servers::mariadb();
    let url = server.fresh_url();
    let place = url.clone();
    let sql =
        move |statements: &str| server.sql_in(&place, &format!("SET time_zone = '+00:00'; {statements}"));
    check(&Backlog::new(url, 4_000, "DATETIME(6)", Box::new(sql)));
}
