//! More rows than a run looks at, and rows that are large.

use crate::world::{World, jobs};
use backstop::core::limits::RECONCILE_MAX;
use backstop::core::unique::UniqueKey;
use backstop::core::{JobState, Time};
use backstop::sweeps::{FindError, FindResult, Finder, Finding, Sweep, UnusableRow};
use backstop::{Payload, Span};
use serde_json::json;

/// Rows that no job can be made of: so many, or as many as one asks for.
struct Useless(usize);

#[async_trait::async_trait]
impl Finder for Useless {
    async fn find(&self, _: Time, max: usize) -> Result<FindResult, FindError> {
        let unusable = |row: usize| UnusableRow {
            row: row.into(),
            why: "no key".to_owned(),
        };
        Ok(FindResult {
            unusable: (0..self.0.min(max)).map(unusable).collect(),
            ..FindResult::default()
        })
    }
}

/// Rows that stay as they are, and behind them one that is lost.
struct Hidden(usize);

#[async_trait::async_trait]
impl Finder for Hidden {
    async fn find(&self, cutoff: Time, max: usize) -> Result<FindResult, FindError> {
        let mut found = Useless(self.0).find(cutoff, max).await?;
        let key = UniqueKey::new("lost").expect("a key");
        let lost = Finding {
            row: json!("lost"),
            key,
            payload: Payload::default(),
        };
        found.findings.extend((max > self.0).then_some(lost));
        Ok(found)
    }
}

#[tokio::test]
async fn rows_that_stay_as_they_are_do_not_hide_a_lost_one_behind_them() {
    let world = World::in_memory();
    let sweep = Sweep::new("hidden", "q", Hidden(10_001)).expect("a sweep");
    let report = world.backstop.sweeper(&sweep).run().await.expect("it runs");
    assert_eq!(
        (report.unusable.len(), report.enqueued),
        (10_001, vec![json!("lost")])
    );
    assert!(!report.is_cut && !report.unseen);
    assert_eq!(world.jobs(JobState::Ready).await.len(), 1);
}

#[tokio::test]
async fn what_no_run_can_look_at_is_told() {
    let world = World::in_memory();
    for (rows, unseen) in [(RECONCILE_MAX - 1, false), (RECONCILE_MAX + 1, true)] {
        let sweep = Sweep::new("useless", "q", Useless(rows)).expect("a sweep");
        let report = world.backstop.sweeper(&sweep).run().await.expect("it runs");
        assert_eq!((report.unseen, report.is_cut), (unseen, unseen));
        let runs = world
            .backstop
            .sweeper(&sweep)
            .history()
            .await
            .expect("the history");
        assert_eq!(runs[0].unseen, unseen);
    }
}

/// A second search that fails, of a finder that gives what it can in the first.
struct Slow;

#[async_trait::async_trait]
impl Finder for Slow {
    async fn find(&self, cutoff: Time, max: usize) -> Result<FindResult, FindError> {
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

/// Large rows on SQLite, PostgreSQL and MariaDB: what a search holds has a bound, and no row is
/// hidden by it.
#[cfg(all(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod rows {
    use super::*;
    use crate::databases::Database;
    use crate::world::START;
    use backstop::core::limits::SWEEP_BYTES_MAX;
    use backstop::sweeps::{FindScope, SweepQuery};
    use std::fmt::Write;

    const ROWS: usize = 40;
    const EACH: usize = 900_000;

    fn query(database: &Database) -> SweepQuery {
        let text = database.dialect("TEXT", "TEXT", "LONGTEXT");
        let half = EACH / 2;
        let note = match database {
            Database::Sqlite(_) => format!("hex(zeroblob({half}))"),
            Database::Postgres(_) | Database::Mariadb(_) => format!("repeat('0', {EACH})"),
        };
        let mut sql = format!("CREATE TABLE big (id BIGINT PRIMARY KEY, note {text} NOT NULL)");
        for id in 0..ROWS {
            write!(sql, "; INSERT INTO big VALUES ({id}, {note})").expect("text");
        }
        database.sql(&sql);
        let sql = "SELECT * FROM big WHERE :cutoff IS NOT NULL ORDER BY id";
        SweepQuery::new(&database.url(), sql, "big:{id}", None).expect("a query")
    }

    fn bytes(found: &FindResult) -> usize {
        found
            .findings
            .iter()
            .map(|finding| finding.payload.as_bytes().len())
            .sum()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_search_holds_no_more_than_its_bound_and_no_payload_that_nobody_asked_for() {
        for database in Database::all() {
            let query = query(&database);
            let keys = query
                .find_wanted(START, 1_000, &FindScope::Keys)
                .await
                .expect("found");
            let url = database.url();
            assert_eq!(
                (keys.findings.len(), bytes(&keys), keys.is_cut),
                (ROWS, 0, false),
                "{url}"
            );
            let all = query.find(START, 1_000).await.expect("found");
            assert!(
                all.is_cut && all.findings.len() < ROWS,
                "{url}: {} of them",
                all.findings.len()
            );
            assert!(
                (SWEEP_BYTES_MAX - EACH..SWEEP_BYTES_MAX + 2 * EACH).contains(&bytes(&all)),
                "{url}"
            );
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_too_much_for_one_run_is_left_to_the_next() {
        let database = Database::all().remove(0);
        let world = World::in_memory();
        let sweep = Sweep::new("big", "q", query(&database)).expect("a sweep");
        let first = world.backstop.sweeper(&sweep).run().await.expect("it runs");
        assert!(
            first.is_cut && first.enqueued.len() < ROWS,
            "{} of them",
            first.enqueued.len()
        );
        let second = world.backstop.sweeper(&sweep).run().await.expect("it runs");
        assert_eq!(
            (first.enqueued.len() + second.enqueued.len(), second.is_cut),
            (ROWS, false)
        );
        assert_eq!(second.alive.len(), first.enqueued.len());
    }
}
