//! Checks the query plan of every statement: it must use an index, whatever the tables contain and
//! whatever statistics SQLite has.

use crate::migrate::migrate;
use rusqlite::Connection;
use std::fs;
use std::path::Path;

/// Statements that may sort, because they sort few rows.
const SORTING: [&str; 4] = ["groups", "groups_of", "list_running", "workers"];
/// Statements that scan a whole index table until they have enough, or to add it up.
const SEARCHING: [&str; 6] = [
    "groups",
    "promote_next",
    "pick_due",
    "pick_ready_all",
    "examine_miscounted",
    "examine_orphans",
];
/// If the statistics were made with a single job, the list of all jobs reads and sorts the whole
/// table, and an amendment's scan begins at the first job, or the first dead one. SQL has no way to
/// forbid it. All of them are operator commands, and a separate thread reads them.
const GIVEN_UP: [&str; 4] = [
    "list_all",
    "list_dead_arrivals",
    "pick_next",
    "pick_dead_next",
];
/// Tables that are small whatever the backlog, so that a scan of them is allowed.
const SMALL: [&str; 7] = [
    "backstop_running",
    "backstop_claim",
    "backstop_queue",
    "backstop_stream",
    "backstop_stream_lease",
    "backstop_schema",
    "sqlite_master",
];

fn store() -> Connection {
    let mut db = Connection::open_in_memory().expect("a database in memory");
    migrate(&mut db).expect("it migrates");
    db
}

/// All statements, with the names of their files.
fn statements() -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sql");
    let files = fs::read_dir(dir).expect("the directory of the statements");
    let statement = |file: fs::DirEntry| {
        let name = file
            .path()
            .file_stem()
            .expect("a file has a name")
            .to_string_lossy()
            .into_owned();
        (
            name,
            fs::read_to_string(file.path()).expect("a statement is text"),
        )
    };
    let all = files.map(|file| statement(file.expect("a file")));
    all.filter(|(name, _)| name != "schema").collect()
}

fn plan(db: &Connection, sql: &str) -> Vec<String> {
    let mut explain = db
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .expect("a statement");
    let mut rows = explain.raw_query();
    let mut plan = Vec::new();
    while let Some(row) = rows.next().expect("a plan") {
        plan.push(row.get::<_, String>(3).expect("a line of it"));
    }
    plan
}

/// Finds the table that has this alias in a statement.
fn table_of<'a>(sql: &'a str, alias: &'a str) -> &'a str {
    let words: Vec<&str> = sql
        .split(|c: char| c.is_whitespace() || "(),".contains(c))
        .collect();
    words
        .windows(2)
        .find(|pair| pair[1] == alias && pair[0].starts_with("backstop_"))
        .map_or(alias, |pair| pair[0])
}

fn check(db: &Connection, name: &str, sql: &str) {
    for line in plan(db, sql) {
        if let Some(scanned) = line.strip_prefix("SCAN ") {
            let table = table_of(sql, scanned.split(' ').next().expect("a name"));
            // Constant rows and subqueries: the parts of a subquery have lines of their own in the
            // plan.
            let is_derived = table.starts_with("CONSTANT") || table.starts_with("(subquery");
            assert!(
                SMALL.contains(&table) || SEARCHING.contains(&name) || is_derived,
                "{name}: {line}"
            );
        }
        if line.contains("TEMP B-TREE") {
            assert!(SORTING.contains(&name), "{name}: {line}");
        }
    }
}

#[test]
fn no_statement_reads_all_jobs_or_sorts_a_line() {
    let db = store();
    for (name, sql) in statements() {
        check(&db, &name, &sql);
    }
}

/// A store with one row in each table, and with statistics of that.
fn nearly_empty_store() -> Connection {
    let db = store();
    db.execute_batch(
        "INSERT INTO backstop_queue (name) VALUES ('q');
         INSERT INTO backstop_ready VALUES (1, 0, 0, 1);
         INSERT INTO backstop_due VALUES (0, 1);
         INSERT INTO backstop_finished VALUES (1, 1, 0, 1);
         INSERT INTO backstop_running VALUES (x'00', 1, 1, 1, 0, 0, 0, NULL, NULL);
         INSERT INTO backstop_claim VALUES (1, 'w', 0, 1, 0);
         INSERT INTO backstop_key VALUES (1, 'k', x'00', 0, 0, 0);
         INSERT INTO backstop_worker VALUES ('w', '', 0);
         INSERT INTO backstop_dead VALUES (1, 1, 0, 0);
         INSERT INTO backstop_cell VALUES ('c', 0, x'');
         INSERT INTO backstop_stream (name) VALUES ('s');
         INSERT INTO backstop_stream_count VALUES (1, 0, 1);
         INSERT INTO backstop_stream_key VALUES (1, 0, 0, 0, 1, 1, 0, 1, 'k', x'');
         INSERT INTO backstop_stream_record VALUES (1, 1, 0, 1, 1, 0, 1, NULL, x'');
         INSERT INTO backstop_stream_lease VALUES (1, 1, 0, 0);
         INSERT INTO backstop_stream_take VALUES (1, 1, 'w', 1);
         INSERT INTO backstop_job VALUES (1, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, x'00', 1, 0, 'k', NULL, NULL, NULL, 0, NULL, x'');
         ANALYZE;",
    )
    .expect("one row of each, and statistics");
    db
}

#[test]
fn statistics_of_nearly_empty_tables_change_no_plan() {
    let db = nearly_empty_store();
    for (name, sql) in statements()
        .into_iter()
        .filter(|(name, _)| !GIVEN_UP.contains(&name.as_str()))
    {
        check(&db, &name, &sql);
    }
}

#[test]
fn a_claim_reads_the_ready_line_and_its_jobs_by_number() {
    let db = store();
    let check = |sql, expected| assert_eq!(plan(&db, sql), [expected]);
    check(
        include_str!("sql/claim_take.sql"),
        "SEARCH backstop_ready USING PRIMARY KEY (queue=?)",
    );
    check(
        include_str!("sql/claim_job.sql"),
        "SEARCH backstop_job USING INTEGER PRIMARY KEY (rowid=?)",
    );
}

#[test]
fn ended_jobs_of_all_queues_come_from_one_index() {
    for db in [store(), nearly_empty_store()] {
        let check = |sql, expected: &str| assert!(plan(&db, sql)[0].starts_with(expected));
        let finished = "SEARCH f USING COVERING INDEX backstop_finished_at (state=?";
        check(include_str!("sql/list_finished_all.sql"), finished);
        check(include_str!("sql/list_finished_all_oldest.sql"), finished);
        let dead = "SEARCH d USING COVERING INDEX backstop_dead_at (fingerprint=?";
        check(include_str!("sql/list_dead_all.sql"), dead);
        check(include_str!("sql/list_dead_all_oldest.sql"), dead);
    }
}

#[test]
fn expired_claims_are_read_in_their_order() {
    let plan = plan(&store(), include_str!("sql/seize_expired.sql"));
    let reads: Vec<&String> = plan
        .iter()
        .filter(|line| line.contains("backstop_claim"))
        .collect();
    assert_eq!(reads.len(), 2, "{plan:?}");
    for read in reads {
        assert!(
            read.starts_with("SEARCH") && read.contains("INDEX backstop_claim_until"),
            "{plan:?}"
        );
    }
}

#[test]
fn groups_are_added_up_in_the_index_of_deaths() {
    for db in [store(), nearly_empty_store()] {
        let check = |sql, expected| {
            let plan = plan(&db, sql);
            assert_eq!(plan[0], expected);
            assert!(
                !plan.iter().any(|line| line.contains("GROUP BY")),
                "{plan:?}"
            );
        };
        check(
            include_str!("sql/groups.sql"),
            "SCAN d USING COVERING INDEX backstop_dead_group",
        );
        let of_one = "SEARCH d USING COVERING INDEX backstop_dead_group (queue=?)";
        check(include_str!("sql/groups_of.sql"), of_one);
        let of_group =
            "SEARCH d USING COVERING INDEX backstop_dead_group (queue=? AND fingerprint=?)";
        check(include_str!("sql/groups_sample.sql"), of_group);
    }
}

#[test]
fn the_victim_of_an_overflow_is_found_at_the_head_of_its_level() {
    for db in [store(), nearly_empty_store()] {
        let found = plan(&db, include_str!("sql/enqueue_victim.sql"));
        assert_eq!(
            found[0],
            "SEARCH backstop_ready USING PRIMARY KEY (queue=? AND level=?)"
        );
        assert_eq!(
            found[2],
            "SEARCH backstop_ready USING PRIMARY KEY (queue=?)"
        );
    }
}

#[test]
fn keys_that_are_due_or_hold_records_are_found_among_any_number_of_others() {
    for db in [store(), nearly_empty_store(), store_with_many_keys()] {
        let check = |sql, expected| assert_eq!(plan(&db, sql)[0], expected);
        let due = "SEARCH k USING COVERING INDEX backstop_stream_key_due (stream=? AND due<?)";
        check(include_str!("sql/take_due.sql"), due);
        let next = "SEARCH backstop_stream_key USING COVERING INDEX backstop_stream_key_due (stream=? AND due>?)";
        check(include_str!("sql/take_next.sql"), next);
        let holding = "SEARCH k USING INDEX backstop_stream_key_holding (stream=? AND key>?)";
        check(include_str!("sql/streams_holding.sql"), holding);
        let named =
            "SEARCH backstop_stream_key USING INDEX backstop_stream_key_name (stream=? AND key=?)";
        check(include_str!("sql/stream_key_find.sql"), named);
        let window =
            "SEARCH backstop_stream_record USING INDEX backstop_stream_record_position (key=?)";
        check(include_str!("sql/records_window.sql"), window);
        check(include_str!("sql/records_of.sql"), window);
        let oldest = "SEARCH backstop_stream_record USING COVERING INDEX backstop_stream_record_at (stream=?)";
        check(include_str!("sql/streams_oldest.sql"), oldest);
    }
}

/// A store with 100,000 keys, of which every hundredth holds a record, and without statistics.
fn store_with_many_keys() -> Connection {
    let db = store();
    db.execute_batch(
        "INSERT INTO backstop_stream (name) VALUES ('s');
         WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100000)
         INSERT INTO backstop_stream_key SELECT n, 0, 0, 0, 1, n % 100 = 0, iif(n % 100, NULL, n), 1, 'k' || n, x'' FROM n;
         INSERT INTO backstop_stream_record SELECT NULL, id, 0, 1, 1, id, 1, NULL, x'' FROM backstop_stream_key WHERE records > 0;",
    )
    .expect("many keys");
    db
}
