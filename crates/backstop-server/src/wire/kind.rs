//! Kinds, and how long their runs took.

use crate::history::{PERCENTS, TimeWindow};
use backstop::core::histogram::{Histogram, RunHistograms, upper};
use backstop::{Kind, QueueName};
use serde::Serialize;
use utoipa::ToSchema;

/// Kinds with a run in a window.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Kinds)]
pub struct KindsShape<'a> {
    /// 5m, 1h, 24h or 7d.
    pub window: &'static str,
    /// The busiest first.
    pub kinds: Vec<KindShape<'a>>,
}

/// A kind in a queue: its runs, and how long they took.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = KindRuns)]
pub struct KindShape<'a> {
    /// Its queue.
    queue: &'a str,
    /// Its word.
    kind: &'a str,
    /// Runs that ended.
    runs: u64,
    /// Those of them that failed: their jobs are tried again, or dead.
    failed: u64,
    /// How long runs took.
    run_ms: PercentilesShape,
    /// From when jobs were to run to the start of their runs.
    wait_ms: PercentilesShape,
    /// Runs by how long they took; buckets without any are left out.
    buckets: Vec<RunBucketShape>,
}

/// Percentiles in milliseconds, each to within its bucket; null of none.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Percentiles)]
struct PercentilesShape {
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
}

/// Runs that took about as long.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = RunBucket)]
struct RunBucketShape {
    /// The longest of them, in milliseconds; null for the last bucket, which has no end.
    le_ms: Option<f64>,
    /// How many.
    count: u64,
}

impl PercentilesShape {
    fn new(histogram: &Histogram) -> Self {
        let [p50, p95, p99] = PERCENTS.map(|percent| {
            crate::history::percentile_seconds(histogram, percent).map(|seconds| seconds * 1_000.0)
        });
        Self { p50, p95, p99 }
    }
}

impl<'a> KindsShape<'a> {
    /// The shape of what a window shows.
    pub fn new(
        window: TimeWindow,
        kinds: impl Iterator<Item = &'a (QueueName, Kind, RunHistograms)>,
    ) -> Self {
        let shape = |(queue, kind, spread): &'a (QueueName, Kind, RunHistograms)| {
            let counted = spread
                .run
                .buckets()
                .iter()
                .enumerate()
                .filter(|(_, count)| **count > 0);
            let bucket = |(bucket, count): (usize, &u64)| RunBucketShape {
                le_ms: upper(bucket).map(|end| end.as_secs_f64() * 1_000.0),
                count: *count,
            };
            KindShape {
                queue: queue.as_str(),
                kind: kind.as_str(),
                runs: spread.runs(),
                failed: spread.failed,
                run_ms: PercentilesShape::new(&spread.run),
                wait_ms: PercentilesShape::new(&spread.wait),
                buckets: counted.map(bucket).collect(),
            }
        };
        Self {
            window: window.as_str(),
            kinds: kinds.map(shape).collect(),
        }
    }
}
