//! Adopted tables: how long it takes to find what is due in a large one, without the suggested
//! indexes and with them.
//!
//! Of the rows half are finished, and half failed and are not due; between them lie those that are.
//! Both strategies look at the same rows. By age those are due that came in on the last day: all
//! others have hours to go until their band ticks.

mod fixture;

use super::BenchArgs;
use super::figures::{BenchLatency, BenchRate};
use super::report::grouped;
use anyhow::{Result, ensure};
use backstop::core::limits::TABLE_STATEMENT_MAX;
use backstop::tables::{AdoptedTable, Table, TableError};
use backstop::{Backstop, RetryPolicy, Span, Time};
use comfy_table::{Cell, CellAlignment, Table as Drawn, presets};
use fixture::TableFixture;
use indicatif::ProgressBar;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Rows that are due, and that one pass takes.
const DUE: usize = 1_000;
/// Looks at a table. Those without an index take as long as the whole table does: no more than
/// about so long are spent on them.
const LOOKS: usize = 25;
const LOOKS_TIME: Duration = Duration::from_secs(10);
/// 2026-03-01, noon: when it is looked at.
const NOON_S: i64 = 1_772_366_400;

#[derive(Debug, Clone, Serialize)]
pub(super) struct TablesBench {
    database: &'static str,
    rows: usize,
    due: usize,
    fill: BenchRate,
    /// The look at every open row that a worker takes once an hour.
    survey_seconds: f64,
    #[serde(flatten)]
    by_failures: DueScanTimes,
    by_age: DueScanTimes,
    indexes_seconds: f64,
    indexes: Vec<String>,
}

/// How long it takes to find what is due, from connecting to the last key; `None` if the database
/// was stopped at the time limit of a statement.
#[derive(Debug, Clone, Copy, Serialize)]
struct DueScanTimes {
    without_indexes: Option<BenchLatency>,
    with_indexes: Option<BenchLatency>,
    /// With the indexes: connecting, the catalogue, and how the dates are written.
    opening: Option<BenchLatency>,
    /// With the indexes: the rest.
    selecting: Option<BenchLatency>,
}

/// The same of one state of the table.
#[derive(Clone, Copy)]
struct DueScanParts {
    whole: BenchLatency,
    opening: BenchLatency,
    selecting: BenchLatency,
}

/// The table by one strategy, and when it is looked at.
struct StrategyRun {
    adopted: AdoptedTable,
    at: Time,
}

/// Measures in a table of its own, which is gone afterwards.
pub(super) async fn measure(args: &BenchArgs, bar: &ProgressBar) -> Result<TablesBench> {
    ensure!(
        args.rows >= 2 * DUE,
        "--rows must be at least {}, for {} of them are due",
        2 * DUE,
        grouped(DUE)
    );
    let mut ground = TableFixture::open(args.url.as_deref()).await?;
    let measured = measure_on(&mut ground, args.rows, bar).await;
    bar.set_message("cleaning up");
    let dropped = ground.drop_table().await;
    let measured = measured?;
    dropped?;
    Ok(measured)
}

async fn measure_on(
    ground: &mut TableFixture,
    rows: usize,
    bar: &ProgressBar,
) -> Result<TablesBench> {
    let began = Instant::now();
    ground
        .fill(rows, DUE, |done| {
            bar.set_message(format!(
                "filling in {} of {} rows",
                grouped(done),
                grouped(rows)
            ));
        })
        .await?;
    let fill = BenchRate::of(rows, began.elapsed());
    // Nothing is claimed: what a store would keep is of no weight here.
    let backstop = Backstop::open("memory:").await?;
    let [by_failures, by_age] = strategies(&backstop, ground).await?;
    // As a pass does once an hour: what it finds holds for those after it.
    bar.set_message("looking at every open row, as a worker does once an hour");
    let began = Instant::now();
    by_failures.adopted.survey().await?;
    let survey_seconds = began.elapsed().as_secs_f64();
    by_age.adopted.survey().await?;
    bar.set_message("finding what is due, without an index");
    let without = [by_failures.looks().await?, by_age.looks().await?];
    bar.set_message("making the suggested indexes");
    let began = Instant::now();
    let checked = by_failures.adopted.check().await?;
    let indexes: Vec<String> = checked.indexes.into_iter().map(|index| index.ddl).collect();
    for ddl in &indexes {
        ground.run(ddl).await?;
    }
    ground.analyse().await?;
    let indexes_seconds = began.elapsed().as_secs_f64();
    bar.set_message("finding what is due, with the suggested indexes");
    let with = [by_failures.looks().await?, by_age.looks().await?];
    let [by_failures, by_age] = [0, 1].map(|at| DueScanTimes::new(without[at], with[at]));
    let (database, due) = (checked.database, DUE);
    Ok(TablesBench {
        database,
        rows,
        due,
        fill,
        survey_seconds,
        by_failures,
        by_age,
        indexes_seconds,
        indexes,
    })
}

/// Fibonacci at noon; and by age five minutes later, when the youngest rows are due and no others.
async fn strategies(backstop: &Backstop, ground: &TableFixture) -> Result<[StrategyRun; 2]> {
    let table =
        |name| anyhow::Ok(Table::new(name, ground.url(), ground.table())?.max_records(DUE)?);
    let noon = Time::from_millis(NOON_S * 1_000);
    let by_failures = StrategyRun {
        adopted: backstop.adopted_table(&table("bench")?),
        at: noon,
    };
    let policy = RetryPolicy::from_json(br#"{"kind":"progressive"}"#)?;
    let table = table("bench_by_age")?.strategy(&policy, None)?;
    let by_age = StrategyRun {
        adopted: backstop.adopted_table(&table),
        at: noon.after(Span::minutes(5)),
    };
    by_age.adopted.skip_to(noon).await?;
    Ok([by_failures, by_age])
}

impl StrategyRun {
    /// How long a look takes; `None` if one takes longer than a statement may.
    async fn looks(&self) -> Result<Option<DueScanParts>> {
        let (mut whole, mut opening, mut selecting) = (Vec::new(), Vec::new(), Vec::new());
        while whole.len() < LOOKS && whole.iter().sum::<Duration>() < LOOKS_TIME {
            // Where none is wanted, nothing is asked of the rows.
            let began = Instant::now();
            self.adopted.due(self.at, Some(0)).await?;
            let (opened, began) = (began.elapsed(), Instant::now());
            match self.adopted.due(self.at, Some(DUE)).await {
                Ok(due) => ensure!(
                    due.len() == DUE,
                    "{} rows were found due, not {DUE}",
                    due.len()
                ),
                Err(TableError::TooSlow(_)) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            whole.push(began.elapsed());
            opening.push(opened);
            selecting.push(began.elapsed().saturating_sub(opened));
        }
        let [whole, opening, selecting] = [whole, opening, selecting].map(BenchLatency::of);
        Ok(Some(DueScanParts {
            whole,
            opening,
            selecting,
        }))
    }
}

impl DueScanTimes {
    fn new(without: Option<DueScanParts>, with: Option<DueScanParts>) -> Self {
        Self {
            without_indexes: without.map(|times| times.whole),
            with_indexes: with.map(|times| times.whole),
            opening: with.map(|times| times.opening),
            selecting: with.map(|times| times.selecting),
        }
    }
}

impl TablesBench {
    pub(super) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    pub(super) fn text(&self) -> String {
        let mut drawn = Drawn::new();
        drawn.load_style(presets::UTF8_FULL_CONDENSED);
        let right = |text: &str| Cell::new(text).set_alignment(CellAlignment::Right);
        let what = format!(
            "{}: {} due of {} rows",
            self.database,
            grouped(self.due),
            grouped(self.rows)
        );
        drawn.set_header([Cell::new(what), right("p50"), right("p99")]);
        let mut row = |what: &str, latency: Option<BenchLatency>| {
            let time = |of: fn(&BenchLatency) -> f64| match &latency {
                Some(latency) => format!("{:.1} ms", of(latency)),
                None => format!("over {TABLE_STATEMENT_MAX}"),
            };
            let cells = [
                time(|latency| latency.p50_ms),
                time(|latency| latency.p99_ms),
            ];
            drawn.add_row([Cell::new(what), right(&cells[0]), right(&cells[1])]);
        };
        for (strategy, looks) in [("by failures", self.by_failures), ("by age", self.by_age)] {
            row(
                &format!("{strategy}, without an index"),
                looks.without_indexes,
            );
            row(
                &format!("{strategy}, with the suggested indexes"),
                looks.with_indexes,
            );
            row(
                "  of that: connecting, and looking the table up",
                looks.opening,
            );
            row("  of that: selecting the rows", looks.selecting);
        }
        let (fill, indexes, survey) =
            (self.fill.seconds, self.indexes_seconds, self.survey_seconds);
        format!(
            "{drawn}\nFrom connecting to the last key. Half of the rows are finished, half failed and are not due. Filled in {fill:.1} s; \
             the hourly look at every open row takes {survey:.1} s without an index; the indexes took {indexes:.1} s:\n  {}\n",
            self.indexes.join("\n  ")
        )
    }
}
