//! One round of measurements of backstop itself, the middle of repetitions.

use super::BenchArgs;
use super::figures::{Latency, Rate};
use super::measure::{self, Done};
use super::place::Place;
use anyhow::Result;
use backstop::Backstop;
use indicatif::ProgressBar;
use serde::Serialize;
use std::time::Duration;

/// One round of measurements.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Round {
    /// Jobs of other states that were present.
    pub(super) present: usize,
    pub(super) enqueue_single: Rate,
    pub(super) enqueue_callers: Rate,
    pub(super) enqueue_bulk: Rate,
    pub(super) drain: Rate,
    /// The same where done jobs are gone at once, as those of the raw loops are.
    pub(super) drain_gone: Rate,
    pub(super) pickup: Latency,
}

/// One repetition of a round.
struct Repetition {
    enqueue_single: Rate,
    enqueue_callers: Rate,
    enqueue_bulk: Rate,
    drain: Rate,
    drain_gone: Rate,
    pickups: Vec<Duration>,
}

/// Measures as often as asked for, with `present` other jobs in the store.
pub(super) async fn measure(
    place: &Place,
    backstop: &Backstop,
    args: &BenchArgs,
    present: usize,
    bar: &ProgressBar,
) -> Result<Round> {
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
    let rate = |of: fn(&Repetition) -> Rate| Rate::median(repetitions.iter().map(of));
    Ok(Round {
        present,
        enqueue_single: rate(|one| one.enqueue_single),
        enqueue_callers: rate(|one| one.enqueue_callers),
        enqueue_bulk: rate(|one| one.enqueue_bulk),
        drain: rate(|one| one.drain),
        drain_gone: rate(|one| one.drain_gone),
        pickup: Latency::of(
            repetitions
                .into_iter()
                .flat_map(|one| one.pickups)
                .collect(),
        ),
    })
}

async fn repeat(
    place: &Place,
    backstop: &Backstop,
    args: &BenchArgs,
    say: &(dyn Fn(&str) + Sync),
) -> Result<Repetition> {
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
    measure::drain(backstop, pushed, args.handlers, Done::Kept).await?;
    place.calm().await?;
    say("pushing in batches");
    let enqueue_bulk = measure::bulk(backstop, args.jobs(), Done::Kept).await?;
    place.calm().await?;
    say("draining");
    let drain = measure::drain(backstop, enqueue_bulk.count, args.handlers, Done::Kept).await?;
    say("draining, done jobs not kept");
    let pushed = measure::bulk(backstop, args.jobs(), Done::Gone)
        .await?
        .count;
    place.calm().await?;
    let drain_gone = measure::drain(backstop, pushed, args.handlers, Done::Gone).await?;
    Ok(Repetition {
        enqueue_single,
        enqueue_callers,
        enqueue_bulk,
        drain,
        drain_gone,
        pickups,
    })
}
