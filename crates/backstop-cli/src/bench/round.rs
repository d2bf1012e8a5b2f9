//! One round of measurements of backstop itself, the middle of repetitions.

use super::BenchArgs;
use super::bench_store::BenchStore;
use super::figures::{BenchLatency, BenchRate};
use super::measure::{self, DoneJobRetention};
use anyhow::Result;
use backstop::Backstop;
use indicatif::ProgressBar;
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct BenchRound {
    /// Jobs of other states that were present.
    pub(super) present: usize,
    pub(super) enqueue_single: BenchRate,
    pub(super) enqueue_callers: BenchRate,
    pub(super) enqueue_bulk: BenchRate,
    pub(super) drain: BenchRate,
    /// The same where done jobs are gone at once, as those of the raw loops are.
    pub(super) drain_gone: BenchRate,
    pub(super) pickup: BenchLatency,
}

/// One repetition of a round.
struct RoundRepetition {
    enqueue_single: BenchRate,
    enqueue_callers: BenchRate,
    enqueue_bulk: BenchRate,
    drain: BenchRate,
    drain_gone: BenchRate,
    pickups: Vec<Duration>,
}

/// Measures as often as asked for, with `present` other jobs in the store.
pub(super) async fn measure(
    place: &BenchStore,
    backstop: &Backstop,
    args: &BenchArgs,
    present: usize,
    bar: &ProgressBar,
) -> Result<BenchRound> {
    let beside = if present > 0 {
        format!(", {present} other jobs present")
    } else {
        String::new()
    };
    let mut repetitions = Vec::with_capacity(args.repeat);
    for repetition in 1..=args.repeat {
        let say = |what: &str| {
            bar.set_message(format!("{what}{beside}, {repetition} of {}", args.repeat));
        };
        repetitions.push(repeat(place, backstop, args, &say).await?);
    }
    let rate =
        |of: fn(&RoundRepetition) -> BenchRate| BenchRate::median(repetitions.iter().map(of));
    Ok(BenchRound {
        present,
        enqueue_single: rate(|one| one.enqueue_single),
        enqueue_callers: rate(|one| one.enqueue_callers),
        enqueue_bulk: rate(|one| one.enqueue_bulk),
        drain: rate(|one| one.drain),
        drain_gone: rate(|one| one.drain_gone),
        pickup: BenchLatency::of(
            repetitions
                .into_iter()
                .flat_map(|one| one.pickups)
                .collect(),
        ),
    })
}

async fn repeat(
    place: &BenchStore,
    backstop: &Backstop,
    args: &BenchArgs,
    say: &(dyn Fn(&str) + Sync),
) -> Result<RoundRepetition> {
    place.calm().await?;
    say("pickup of single jobs");
    let pickups = measure::pickup(backstop, args.samples).await?;
    say("pushing, one caller");
    let single = (args.jobs() / 100).max(100);
    let enqueue_single = measure::callers(backstop, single, 1).await?;
    say("pushing, many callers");
    let grouped = (args.jobs() / 4).max(args.callers);
    let enqueue_callers = measure::callers(backstop, grouped, args.callers).await?;
    let pushed = enqueue_single.count + enqueue_callers.count;
    measure::drain(backstop, pushed, args.handlers, DoneJobRetention::Kept).await?;
    place.calm().await?;
    say("pushing in batches");
    let enqueue_bulk = measure::bulk(backstop, args.jobs(), DoneJobRetention::Kept).await?;
    place.calm().await?;
    say("draining");
    let drain = measure::drain(
        backstop,
        enqueue_bulk.count,
        args.handlers,
        DoneJobRetention::Kept,
    )
    .await?;
    say("draining, done jobs not kept");
    let pushed = measure::bulk(backstop, args.jobs(), DoneJobRetention::Gone)
        .await?
        .count;
    place.calm().await?;
    let drain_gone =
        measure::drain(backstop, pushed, args.handlers, DoneJobRetention::Gone).await?;
    Ok(RoundRepetition {
        enqueue_single,
        enqueue_callers,
        enqueue_bulk,
        drain,
        drain_gone,
        pickups,
    })
}
