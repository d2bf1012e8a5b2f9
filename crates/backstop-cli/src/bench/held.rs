//! What a transaction that somebody forgot costs: rounds of draining while a snapshot is held open on PostgreSQL.
//!
//! As long as it is open the server may not remove what has been deleted since; a queue that has to step over that gets
//! slower from round to round.

use super::BenchArgs;
use super::figures::Rate;
use super::measure::{self, Done};
use super::server;
use anyhow::{Context, Result};
use backstop::{Address, Backstop};
use indicatif::ProgressBar;
use serde::Serialize;

/// Rounds of pushing and draining.
const ROUNDS: usize = 10;
/// An idle transaction that reads: what a report, a backup or a console left open is.
const HOLD: &str = "SET idle_in_transaction_session_timeout = 0;
    BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT count(*) FROM pg_class";

/// How draining went, round by round.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Held {
    pub(super) rounds: Vec<Rate>,
    pub(super) last_to_first: f64,
}

/// Measures with a snapshot held open in the database at `address`.
pub(super) async fn measure(
    backstop: &Backstop,
    address: &Address,
    args: &BenchArgs,
    bar: &ProgressBar,
) -> Result<Held> {
    let holder = server::connect(address).await?;
    holder.batch_execute(HOLD).await?;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for round in 1..=ROUNDS {
        bar.set_message(format!("draining with a snapshot held open, {round} of {ROUNDS}"));
        let pushed = measure::bulk(backstop, args.jobs() / 4, Done::Kept).await?;
        rounds.push(measure::drain(backstop, pushed.count, args.handlers, Done::Kept).await?);
    }
    holder.batch_execute("COMMIT").await.context("the snapshot was not held to the end")?;
    let last_to_first = rounds[ROUNDS - 1].ratio_to(rounds[0]);
    Ok(Held { rounds, last_to_first })
}
