//! What a transaction that somebody forgot costs: rounds of work while a snapshot is held open on
//! PostgreSQL.
//!
//! As long as it is open the server may not remove what has been deleted since; a queue that has to
//! step over that gets slower from round to round. Batches show what many jobs of one claim meet,
//! single jobs what a claim of its own for each does: those leave the most behind.

use super::BenchArgs;
use super::figures::BenchRate;
use super::measure::{self, DoneJobRetention};
use super::server;
use anyhow::{Context, Result};
use backstop::{Backstop, StoreAddress};
use indicatif::ProgressBar;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Rounds of pushing and draining.
const ROUNDS: usize = 10;
/// Single jobs of a round, however short it is.
const SINGLE_MIN: usize = 100;
/// The slowest round is no slower than this share of the first.
const WORST_MIN: f64 = 0.7;
/// An idle transaction that reads: what a report, a backup or a console left open is.
const HOLD: &str = "SET idle_in_transaction_session_timeout = 0;
    BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT count(*) FROM pg_class";

/// How it went, round by round.
#[derive(Debug, Clone, Serialize)]
pub(super) struct HeldSnapshotBench {
    /// For how long the snapshot was held.
    seconds: f64,
    /// Draining what was pushed in batches.
    pub(super) rounds: Vec<BenchRate>,
    /// Jobs pushed, claimed, run and ended one after the other.
    pub(super) single: Vec<BenchRate>,
    last_to_first: f64,
    worst_to_first: f64,
    single_worst_to_first: f64,
}

impl HeldSnapshotBench {
    fn of(rounds: Vec<BenchRate>, single: Vec<BenchRate>, held: Duration) -> Self {
        Self {
            seconds: held.as_secs_f64(),
            last_to_first: rounds[rounds.len() - 1].ratio_to(rounds[0]),
            worst_to_first: worst_to_first(&rounds),
            single_worst_to_first: worst_to_first(&single),
            rounds,
            single,
        }
    }

    /// Whether a round was too slow.
    pub(super) fn falls_short(&self) -> bool {
        self.worst_to_first.min(self.single_worst_to_first) < WORST_MIN
    }

    pub(super) fn text(&self, per_second: fn(BenchRate) -> String) -> String {
        let row = |rates: &[BenchRate]| {
            rates
                .iter()
                .map(|rate| per_second(*rate))
                .collect::<Vec<_>>()
                .join(", ")
        };
        format!(
            "with a snapshot held open for {:.0} s, round by round\n\
             full cycle: {}; the last is {:.2} of the first, the worst {:.2}\n\
             single jobs: {}; the worst is {:.2} of the first\n\
             {} of at least {WORST_MIN}\n",
            self.seconds,
            row(&self.rounds),
            self.last_to_first,
            self.worst_to_first,
            row(&self.single),
            self.single_worst_to_first,
            if self.falls_short() {
                "falls short"
            } else {
                "as promised"
            },
        )
    }
}

fn worst_to_first(rates: &[BenchRate]) -> f64 {
    rates
        .iter()
        .map(|rate| rate.ratio_to(rates[0]))
        .fold(f64::INFINITY, f64::min)
}

/// Measures with a snapshot held open in the database at `address`.
pub(super) async fn measure(
    backstop: &Backstop,
    address: &StoreAddress,
    args: &BenchArgs,
    bar: &ProgressBar,
) -> Result<HeldSnapshotBench> {
    let holder = server::connect(address).await?;
    holder.batch_execute(HOLD).await?;
    let (began, lasting) = (Instant::now(), args.held_for());
    let (mut rounds, mut single) = (Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS));
    for round in 1..=ROUNDS {
        bar.set_message(format!(
            "draining with a snapshot held open, {round} of {ROUNDS}"
        ));
        // A drain lasts half a second: the middle of several, or the server's own upkeep decides
        // what a round says.
        let mut drains = Vec::with_capacity(args.repeat);
        for _ in 0..args.repeat {
            let pushed = measure::bulk(backstop, args.jobs() / 4, DoneJobRetention::Kept).await?;
            drains.push(
                measure::drain(
                    backstop,
                    pushed.count,
                    args.handlers,
                    DoneJobRetention::Kept,
                )
                .await?,
            );
        }
        rounds.push(BenchRate::median(drains));
        bar.set_message(format!(
            "single jobs with a snapshot held open, {round} of {ROUNDS}"
        ));
        let ends_at = began + lasting * round as u32 / ROUNDS as u32;
        single.push(measure::single(backstop, SINGLE_MIN, ends_at).await?);
    }
    let held = began.elapsed();
    holder
        .batch_execute("COMMIT")
        .await
        .context("the snapshot was not held to the end")?;
    Ok(HeldSnapshotBench::of(rounds, single, held))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(rounds: &[usize], single: &[usize]) -> HeldSnapshotBench {
        let rates = |counts: &[usize]| {
            counts
                .iter()
                .map(|count| BenchRate::of(*count, Duration::from_secs(1)))
                .collect()
        };
        HeldSnapshotBench::of(rates(rounds), rates(single), Duration::from_secs(2))
    }

    #[test]
    fn the_slowest_round_of_either_kind_decides() {
        assert!(!held(&[100, 70, 90], &[10, 20, 7]).falls_short());
        assert!(held(&[100, 69, 100], &[10, 10, 10]).falls_short());
        assert!(held(&[100, 100, 100], &[10, 6, 10]).falls_short());
    }
}
