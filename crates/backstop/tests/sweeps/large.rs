//! More rows than a run looks at, and rows that are large.

use crate::world::{START, World, jobs};
use backstop::core::failure::History;
use backstop::core::limits::{BURY_MAX, RECONCILE_MAX, SWEEP_BYTES_MAX};
use backstop::core::port::{Burial, Operator};
use backstop::core::unique::{Unique, UniqueKey};
use backstop::core::verdict::Reason;
use backstop::core::{Bounds, NewJob, State, Time};
use backstop::sweeps::{FindError, Finder, Found, Sweep, Unusable};
use backstop::{JobId, Kind, Payload, QueueName, Span};
use serde_json::json;

/// Makes the job of each of these rows a dead letter.
async fn bury(world: &World, rows: std::ops::Range<u64>) {
    let queue = QueueName::new("q").expect("a queue");
    let bounds = Bounds { dead_max: 100_000, ..Bounds::default() };
    world.store.set_bounds(queue.clone(), bounds, START).await.expect("bounded");
    let burial = |id: u64| {
        let job = NewJob::new(
            JobId::named(&id.to_string()),
            queue.clone(),
            Kind::new("process").expect("a kind"),
            Payload::default(),
        );
        let key = UniqueKey::new(&format!("row:{id}")).expect("a key");
        Burial {
            job: NewJob { unique: Some(Unique::live(key)), ..job },
            attempts: 1,
            lost_leases: 0,
            requeues: 0,
            inserted_at: START,
            finished_at: START,
            reason: Reason::AttemptsExhausted,
            history: History::default(),
        }
    };
    let rows: Vec<u64> = rows.collect();
    for part in rows.chunks(BURY_MAX) {
        let burials = part.iter().copied().map(burial).collect();
        world.store.bury(burials, START).await.expect("buried");
    }
}

#[tokio::test]
async fn rows_that_stay_as_they_are_do_not_hide_a_lost_one_behind_them() {
    let world = World::in_memory();
    for id in 0..=10_001 {
        world.table.write(id, START);
    }
    bury(&world, 0..10_001).await;
    world.clock.advance(Span::hours(1));
    let report = world.run().await;
    assert_eq!((report.dead.len(), report.enqueued), (10_001, vec![json!(10_001)]));
    assert!(!report.is_cut && !report.unseen);
    let ready = world.jobs(State::Ready).await;
    assert_eq!((ready.len(), ready[0].payload.as_bytes()), (1, b"10001".as_slice()));
}

/// Rows that no job can be made of: so many, or as many as one asks for.
struct Useless(usize);

#[async_trait::async_trait]
impl Finder for Useless {
    async fn find(&self, _: Time, max: usize) -> Result<Found, FindError> {
        let unusable = |row: usize| Unusable { row: row.into(), why: "no key".to_owned() };
        Ok(Found { unusable: (0..self.0.min(max)).map(unusable).collect(), ..Found::default() })
    }
}

#[tokio::test]
async fn what_no_run_can_look_at_is_told() {
    let world = World::in_memory();
    for (rows, unseen) in [(RECONCILE_MAX - 1, false), (RECONCILE_MAX + 1, true)] {
        let sweep = Sweep::new("useless", "q", Useless(rows)).expect("a sweep");
        let report = world.backstop.sweeper(&sweep).run().await.expect("it runs");
        assert_eq!((report.unseen, report.is_cut), (unseen, unseen));
        let runs = world.backstop.sweeper(&sweep).history().await.expect("the history");
        assert_eq!(runs[0].unseen, unseen);
    }
}

/// A second search that fails, of a finder that gives what it can in the first.
struct Slow;

#[async_trait::async_trait]
impl Finder for Slow {
    async fn find(&self, cutoff: Time, max: usize) -> Result<Found, FindError> {
        if max > 10_000 {
            Err(FindError::TooSlow(Span::minutes(1)))
        } else {
            Useless(max).find(cutoff, max).await
        }
    }
}

#[tokio::test]
async fn a_query_that_cannot_give_more_does_not_fail_the_run() {
    let world = World::in_memory();
    let sweep = Sweep::new("slow", "q", Slow).expect("a sweep");
    let report = world.backstop.sweeper(&sweep).run().await.expect("it runs");
    assert_eq!((report.unusable.len(), report.unseen), (10_000, true));
    assert_eq!(jobs(&world.backstop, None).await.len(), 0);
}

/// A query whose rows are large, on SQLite, PostgreSQL and MariaDB: what a search holds has a bound, and no row is hidden by it.
#[cfg(all(feature = "sqlite", feature = "postgres", feature = "mysql"))]
#[tokio::test(flavor = "multi_thread")]
async fn large_rows_are_recovered_a_part_at_a_time_and_none_is_held_that_is_not_asked_for() {
    use backstop::sweeps::{Query, Wanted};
    const ROWS: usize = 45;
    const EACH: usize = 900_000;
    for database in crate::databases::Database::all() {
        let text = database.dialect("TEXT", "TEXT", "LONGTEXT");
        database.sql(&format!("CREATE TABLE big (id BIGINT PRIMARY KEY, note {text} NOT NULL)"));
        for id in 0..ROWS {
            let note = database.dialect("hex(zeroblob({n}))", "repeat('0', {m})", "REPEAT('0', {m})");
            let note = note.replace("{n}", &(EACH / 2).to_string()).replace("{m}", &EACH.to_string());
            database.sql(&format!("INSERT INTO big VALUES ({id}, {note})"));
        }
        let sql = "SELECT * FROM big WHERE :cutoff IS NOT NULL ORDER BY id";
        let query = Query::new(&database.url(), sql, "big:{id}", None).expect("a query");
        let bytes = |found: &Found| -> usize {
            found.findings.iter().map(|finding| finding.payload.as_bytes().len()).sum()
        };
        let keys = query.find_wanted(START, 1_000, &Wanted::Keys).await.expect("found");
        assert_eq!((keys.findings.len(), bytes(&keys), keys.is_cut), (ROWS, 0, false), "{}", database.url());
        let all = query.find(START, 1_000).await.expect("found");
        assert!(all.is_cut && all.findings.len() < ROWS, "{} of them", all.findings.len());
        assert!((SWEEP_BYTES_MAX - EACH..SWEEP_BYTES_MAX + 2 * EACH).contains(&bytes(&all)));
        // What is too much for one run is left to the next, which goes on behind it.
        let world = World::in_memory();
        let sweep = Sweep::new("big", "q", query).expect("a sweep");
        let first = world.backstop.sweeper(&sweep).run().await.expect("it runs");
        assert_eq!((first.enqueued.len(), first.is_cut), (all.findings.len(), true));
        let second = world.backstop.sweeper(&sweep).run().await.expect("it runs");
        assert_eq!((first.enqueued.len() + second.enqueued.len(), second.is_cut), (ROWS, false));
        assert_eq!(second.alive.len(), first.enqueued.len());
    }
}
