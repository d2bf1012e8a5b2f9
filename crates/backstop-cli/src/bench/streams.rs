//! Ordered streams: records in order and out of order, of few keys and of many, beside what the
//! same store does with jobs.

use super::BenchArgs;
use super::figures::BenchRate;
use super::measure::{self, DoneJobRetention};
use anyhow::{Result, ensure};
use backstop::streams::{Record, RecordOutcome, RunningStream, StreamEvent, StreamSettings};
use backstop::{Backstop, Payload, RunError, StreamKey};
use comfy_table::{Table, presets};
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::json;
use std::time::Instant;

const BATCH: usize = 1_000;
/// Batches under way at once, each of keys of its own.
const LANES: usize = 2;
const FEW_KEYS: usize = 1_000;
const MANY_KEYS: usize = 100_000;
/// Every so manieth record comes one position too late.
const LATE_EVERY: usize = 10;

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct StreamsBench {
    /// Jobs of the same store, for comparison.
    drain: BenchRate,
    in_order: BenchRate,
    out_of_order: BenchRate,
    many_keys: BenchRate,
}

/// Measures jobs and records in one run.
pub(super) async fn measure(
    backstop: &Backstop,
    args: &BenchArgs,
    bar: &ProgressBar,
) -> Result<StreamsBench> {
    let mut repetitions = Vec::with_capacity(args.repeat);
    for repetition in 1..=args.repeat {
        let say = |what: &str| bar.set_message(format!("{what}, {repetition} of {}", args.repeat));
        say("draining jobs");
        let pushed = measure::bulk(backstop, args.jobs(), DoneJobRetention::Kept).await?;
        let drain = measure::drain(
            backstop,
            pushed.count,
            args.handlers,
            DoneJobRetention::Kept,
        )
        .await?;
        say("records in order, 1,000 keys");
        let in_order = run(
            backstop,
            &format!("in-order-{repetition}"),
            FEW_KEYS,
            args.jobs(),
            ArrivalOrder::Kept,
        )
        .await?;
        say("records, 10 % out of order, 1,000 keys");
        let name = format!("out-of-order-{repetition}");
        let out_of_order =
            run(backstop, &name, FEW_KEYS, args.jobs(), ArrivalOrder::Broken).await?;
        say("records in order, 100,000 keys");
        let many = if args.quick { FEW_KEYS * 5 } else { MANY_KEYS };
        let many_keys = run(
            backstop,
            &format!("many-keys-{repetition}"),
            many,
            args.jobs(),
            ArrivalOrder::Kept,
        )
        .await?;
        repetitions.push(StreamsBench {
            drain,
            in_order,
            out_of_order,
            many_keys,
        });
    }
    let rate = |of: fn(&StreamsBench) -> BenchRate| BenchRate::median(repetitions.iter().map(of));
    Ok(StreamsBench {
        drain: rate(|one| one.drain),
        in_order: rate(|one| one.in_order),
        out_of_order: rate(|one| one.out_of_order),
        many_keys: rate(|one| one.many_keys),
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ArrivalOrder {
    Kept,
    /// Of every tenth key, each second record comes before the first.
    Broken,
}

/// Brings `count` records of `keys` keys, handled by a handler that does nothing.
async fn run(
    backstop: &Backstop,
    name: &str,
    keys: usize,
    count: usize,
    order: ArrivalOrder,
) -> Result<BenchRate> {
    let stream = backstop.stream(name)?;
    let settings = StreamSettings {
        concurrency: BATCH * LANES,
        ..StreamSettings::default()
    };
    let running = stream.serve(settings, |_: StreamEvent| async { Ok::<(), RunError>(()) })?;
    let names: Vec<StreamKey> = (0..keys)
        .map(|n| StreamKey::new(&format!("key-{n:06}")))
        .collect::<Result<_, _>>()?;
    let lanes: Vec<&[StreamKey]> = names.chunks(keys.div_ceil(LANES)).collect();
    // Every key has its baseline before the clock starts.
    let first = lanes
        .iter()
        .map(|lane| bring(&running, lane, 0, 1, ArrivalOrder::Kept));
    futures_util::future::try_join_all(first).await?;
    let rounds = count.div_ceil(keys).max(1);
    let started = Instant::now();
    let all = lanes
        .iter()
        .map(|lane| bring(&running, lane, 1, rounds, order));
    futures_util::future::try_join_all(all).await?;
    let rate = BenchRate::of(rounds * keys, started.elapsed());
    let status = stream.status().await?;
    ensure!(
        status.is_some_and(|status| status.records == 0),
        "records of stream {name} are still held; their gaps were all filled"
    );
    running.stop().await;
    Ok(rate)
}

/// Brings positions `first` to `first + rounds` of a lane's keys, batch after batch.
async fn bring(
    running: &RunningStream,
    lane: &[StreamKey],
    first: usize,
    rounds: usize,
    order: ArrivalOrder,
) -> Result<()> {
    for round in first..first + rounds {
        for (at, keys) in lane.chunks(BATCH).enumerate() {
            let records = keys.iter().enumerate().map(|(n, key)| {
                let swapped =
                    order == ArrivalOrder::Broken && (at * BATCH + n).is_multiple_of(LATE_EVERY);
                record(key, position(round, first, rounds, swapped))
            });
            let became = running.handle(records.collect::<Result<_>>()?).await?;
            ensure!(
                became
                    .iter()
                    .all(|became| matches!(became, RecordOutcome::Handled | RecordOutcome::Held)),
                "a record was neither handled nor held"
            );
        }
    }
    Ok(())
}

/// Which position comes in a round: of two rounds, swapped ones come in reverse.
fn position(round: usize, first: usize, rounds: usize, swapped: bool) -> usize {
    let nth = round - first;
    let partner = nth ^ 1;
    if swapped && partner < rounds {
        first + partner
    } else {
        round
    }
}

/// A record of a hundred bytes.
pub(super) fn record(key: &StreamKey, position: usize) -> Result<Record> {
    let payload = Payload::from_stored(measure::payload(position));
    Ok(Record {
        key: key.clone(),
        position: i64::try_from(position)?,
        step: 1,
        tenant: None,
        payload,
    })
}

impl StreamsBench {
    pub(super) fn json(&self, store: &str) -> Result<String> {
        let report = json!({
            "store": store,
            "figures": self,
            "in_order_to_drain": self.in_order.ratio_to(self.drain),
            "out_of_order_to_in_order": self.out_of_order.ratio_to(self.in_order),
            "many_keys_to_in_order": self.many_keys.ratio_to(self.in_order),
        });
        Ok(serde_json::to_string_pretty(&report)? + "\n")
    }

    pub(super) fn text(&self, store: &str) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_header([store, "a second", "beside"]);
        let share = |rate: BenchRate, other: BenchRate, of: &str| {
            format!("{:.2} of {of}", rate.ratio_to(other))
        };
        let mut row = |what: &str, rate: BenchRate, beside: String| {
            table.add_row([what.to_owned(), rate.count_per_second().to_string(), beside]);
        };
        row("jobs, full cycle", self.drain, String::new());
        row(
            "records in order, 1,000 keys",
            self.in_order,
            share(self.in_order, self.drain, "the jobs"),
        );
        row(
            "10 % out of order",
            self.out_of_order,
            share(self.out_of_order, self.in_order, "in order"),
        );
        row(
            "in order, 100,000 keys",
            self.many_keys,
            share(self.many_keys, self.in_order, "1,000 keys"),
        );
        format!(
            "{table}\nBatches of {BATCH}, {LANES} at a time; a handler that does nothing; every record written when it is answered.\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapped_records_come_in_reverse_and_none_is_left_out() {
        let all = |rounds: usize| -> Vec<usize> {
            (1..=rounds)
                .map(|round| position(round, 1, rounds, true))
                .collect()
        };
        assert_eq!(all(4), [2, 1, 4, 3]);
        assert_eq!(all(5), [2, 1, 4, 3, 5]);
    }
}
