use super::*;

const STEPS: [&str; 3] = [
    "CREATE TABLE backstop_a (x)",
    "CREATE TABLE backstop_b (x); INSERT INTO backstop_a VALUES (1);",
    "ALTER TABLE backstop_a ADD COLUMN y; INSERT INTO backstop_b VALUES (1);",
];

fn rows(db: &Connection) -> (i64, i64) {
    let count = |table| {
        db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("a count")
    };
    (count("backstop_a"), count("backstop_b"))
}

#[test]
fn a_ladder_left_at_any_step_is_climbed_to_its_end() {
    for reached in 0..=STEPS.len() {
        let mut db = Connection::open_in_memory().expect("a database");
        climb(&mut db, &STEPS[..reached]).expect("the first steps");
        let migrated = climb(&mut db, &STEPS).expect("the rest");
        assert_eq!(migrated, Migrated { from: reached as u32, to: 3 });
        assert_eq!(rows(&db), (1, 1), "from {reached}");
        assert_eq!(climb(&mut db, &STEPS), Ok(Migrated { from: 3, to: 3 }));
    }
}

#[test]
fn a_step_cut_short_leaves_nothing_behind() {
    for cut in 0..STEPS.len() {
        let mut db = Connection::open_in_memory().expect("a database");
        let mut broken = STEPS.map(str::to_owned);
        broken[cut].push_str("; SELECT no_such_function();");
        let broken: Vec<&str> = broken.iter().map(String::as_str).collect();
        assert!(climb(&mut db, &broken).is_err(), "the step that is cut");
        assert_eq!(version(&db), Ok(cut as u32));
        climb(&mut db, &STEPS).expect("the second try");
        assert_eq!(rows(&db), (1, 1), "cut in step {cut}");
    }
}

#[test]
fn two_who_migrate_at_once_both_succeed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    let all = std::thread::scope(|threads| {
        let climbers: Vec<_> = (0..4)
            .map(|_| {
                threads.spawn(|| {
                    let mut db = crate::open::open(&path, 0).expect("the file opens").writer;
                    migrate(&mut db)
                })
            })
            .collect();
        climbers.into_iter().map(|climber| climber.join().expect("no panic")).collect::<Vec<_>>()
    });
    for migrated in all {
        assert_eq!(migrated.expect("migrated").to, VERSION);
    }
}

#[test]
fn a_newer_store_is_refused_with_what_to_do() {
    let mut db = Connection::open_in_memory().expect("a database");
    migrate(&mut db).expect("migrated");
    db.execute(SCHEMA_SET, [VERSION + 1]).expect("a version of the future");
    for answer in [migrate(&mut db).map(drop), check_version(&db, "claiming")] {
        let error = answer.expect_err("refused");
        assert!(matches!(error, StoreError::Misuse { .. }), "{error:?}");
        assert!(error.to_string().contains("use the program that migrated it"), "{error}");
    }
}

#[test]
fn an_unmigrated_store_is_refused_with_what_to_do() {
    let db = Connection::open_in_memory().expect("a database");
    let error = check_version(&db, "claiming").expect_err("refused");
    assert!(matches!(error, StoreError::Misuse { .. }), "{error:?}");
    assert!(error.to_string().contains("backstop migrate"), "{error}");
}
