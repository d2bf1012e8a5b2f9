//! What this process tells through the `metrics` facade, kept until it is scraped.
//!
//! Histograms have buckets, all of them chosen here: without, the exporter would make summaries,
//! which cannot be added up over processes. Gauges that nobody has set for a while are forgotten:
//! their queue, schedule or sweep may be gone.

use super::help::describe;
use super::labels::{LabelValues, OTHER, known_label};
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Metadata, Recorder, SharedString, Unit,
};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use metrics_util::MetricKindMask;
use std::sync::OnceLock;
use std::time::Duration;

/// A gauge that was not set for so long is forgotten: longer than the pause between two sweeps,
/// usually.
const GAUGES_KEPT: Duration = Duration::from_hours(1);
/// How often samples are put into their buckets; without, they would pile up until somebody
/// scrapes.
const UPKEEP_PERIOD: Duration = Duration::from_secs(5);

/// Times of calls and runs: from a tenth of a millisecond to ten minutes.
const SHORT: [f64; 15] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0,
];
/// Times that people wait for: from a tenth of a second to a day.
const LONG: [f64; 14] = [
    0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0,
];
/// The recovery bound, 18 s as it usually is, and what lies around it.
const RECOVERY: [f64; 10] = [0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 18.0, 20.0, 30.0, 60.0];
const COUNTS: [f64; 9] = [1.0, 2.0, 3.0, 5.0, 10.0, 25.0, 50.0, 100.0, 1_000.0];

/// Every histogram there is, with its buckets.
pub(super) const HISTOGRAMS: [(&str, &[f64]); 9] = [
    ("backstop_run_seconds", &SHORT),
    ("backstop_start_delay_seconds", &LONG),
    ("backstop_detect_to_rerun_seconds", &RECOVERY),
    ("backstop_schedule_lateness_seconds", &LONG),
    ("backstop_stream_missing", &COUNTS),
    ("backstop_stream_delay_seconds", &LONG),
    ("backstop_sweep_seconds", &SHORT),
    ("backstop_table_pass_seconds", &SHORT),
    ("backstop_http_request_seconds", &SHORT),
];

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Gathers what this process tells, from now on; once in a process. If the program around it has a
/// recorder of its own, that one goes on, and `/metrics` tells only what is in the store.
pub fn install() -> PrometheusHandle {
    HANDLE
        .get_or_init(|| {
            let recorder = build_recorder();
            let handle = recorder.handle();
            if metrics::set_global_recorder(BoundedRecorder { inner: recorder, seen: LabelValues::default() }).is_err() {
                tracing::warn!(
                    "this program has a recorder of metrics already; /metrics tells only what is in the store"
                );
            }
            spawn_upkeep(handle.clone());
            handle
        })
        .clone()
}

/// With buckets for every histogram, and words for every metric.
fn build_recorder() -> PrometheusRecorder {
    let usual = PrometheusBuilder::new()
        .idle_timeout(MetricKindMask::GAUGE, Some(GAUGES_KEPT))
        .set_buckets(&SHORT)
        .expect("there are buckets");
    let with_buckets = HISTOGRAMS
        .into_iter()
        .fold(usual, |builder, (name, buckets)| {
            builder
                .set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)
                .expect("there are buckets")
        });
    let recorder = with_buckets.build_recorder();
    describe(&recorder);
    recorder
}

/// On a thread of its own: what is installed for the process outlives any runtime.
fn spawn_upkeep(handle: PrometheusHandle) {
    let upkeep = move || {
        loop {
            std::thread::sleep(UPKEEP_PERIOD);
            handle.run_upkeep();
        }
    };
    if let Err(error) = std::thread::Builder::new()
        .name("backstop-meters".to_owned())
        .spawn(upkeep)
    {
        tracing::error!(%error, "no thread for metrics; samples of histograms pile up until /metrics is asked");
    }
}

/// Lets only known labels through, with a bounded number of values each.
struct BoundedRecorder<R> {
    inner: R,
    seen: LabelValues,
}

impl<R> BoundedRecorder<R> {
    fn bound_key(&self, key: &Key) -> Key {
        let bound_label = |label: &Label| {
            let name = known_label(label.key())?;
            let value = if self.seen.admits(name, label.value()) {
                label.value()
            } else {
                OTHER
            };
            Some(Label::new(name, value.to_owned()))
        };
        Key::from_parts(
            key.name().to_owned(),
            key.labels().filter_map(bound_label).collect::<Vec<_>>(),
        )
    }
}

impl<R: Recorder> Recorder for BoundedRecorder<R> {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.inner.describe_counter(key, unit, description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.inner.describe_gauge(key, unit, description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.inner.describe_histogram(key, unit, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.inner.register_counter(&self.bound_key(key), metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.inner.register_gauge(&self.bound_key(key), metadata)
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.inner
            .register_histogram(&self.bound_key(key), metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::labels::VALUES_MAX;

    fn told(tell: impl FnOnce()) -> String {
        let recorder = build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(
            &BoundedRecorder {
                inner: recorder,
                seen: LabelValues::default(),
            },
            tell,
        );
        handle.render()
    }

    #[test]
    fn every_histogram_has_buckets() {
        let text = told(|| {
            for (name, _) in HISTOGRAMS {
                metrics::histogram!(name).record(1.0);
            }
        });
        for (name, _) in HISTOGRAMS {
            assert!(
                text.contains(&format!("# TYPE {name} histogram")),
                "{name}: {text}"
            );
            assert!(
                text.contains(&format!("{name}_bucket{{le=\"+Inf\"}} 1")),
                "{name}: {text}"
            );
        }
    }

    #[test]
    fn every_metric_says_what_it_means() {
        let exported = crate::telemetry::exported();
        let of_process = || {
            exported
                .iter()
                .filter(|name| !crate::telemetry::is_of_store(name))
        };
        assert!(of_process().count() > 50, "{exported:?}");
        let text = told(|| {
            for name in of_process() {
                if HISTOGRAMS.iter().any(|(histogram, _)| histogram == name) {
                    metrics::histogram!(name.clone()).record(1.0);
                } else if name.ends_with("_total") {
                    metrics::counter!(name.clone()).increment(1);
                } else {
                    metrics::gauge!(name.clone()).set(1.0);
                }
            }
        });
        for name in of_process() {
            assert!(
                text.contains(&format!("# HELP {name} ")),
                "{name} has no help"
            );
        }
    }

    #[test]
    fn a_queue_too_many_is_told_as_other_and_unknown_labels_are_left_out() {
        let text = told(|| {
            for n in 0..VALUES_MAX + 5 {
                let queue = format!("q{n}");
                metrics::counter!("backstop_runs_total", "queue" => queue, "job" => n.to_string())
                    .increment(1);
            }
        });
        assert_eq!(
            text.matches("backstop_runs_total{queue=\"q").count(),
            VALUES_MAX
        );
        assert!(
            text.contains("backstop_runs_total{queue=\"other\"} 5"),
            "{text}"
        );
        assert!(!text.contains("job="), "{text}");
    }
}
