//! What is told through the `metrics` facade, written down to be asserted: everything that the
//! thread of a test tells.
//!
//! A meter is written as its name and its labels in the order of their names,
//! `backstop_recovered_total{outcome=dead,queue=q}`.

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, LocalRecorderGuard,
    Metadata, Recorder, SharedString, Unit,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All that was told, meter by meter.
#[derive(Clone, Default, Debug)]
pub struct Meters(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

impl Meters {
    /// Writes down what this thread tells, until the answer is dropped.
    pub fn listen(&self) -> LocalRecorderGuard<'_> {
        metrics::set_default_local_recorder(self)
    }

    /// What a histogram recorded, or the values a gauge was set to, in their order; empty if the
    /// meter was never told of.
    pub fn told(&self, meter: &str) -> Vec<f64> {
        self.lock().get(meter).cloned().unwrap_or_default()
    }

    /// What a gauge says.
    pub fn says(&self, meter: &str) -> Option<f64> {
        self.told(meter).pop()
    }

    /// What a counter has come to.
    #[expect(clippy::cast_sign_loss, reason = "a count is not negative")]
    pub fn counted(&self, meter: &str) -> u64 {
        self.says(meter).map_or(0, |count| count as u64)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<f64>>> {
        // One map, always whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meter(&self, key: &Key) -> Arc<Meter> {
        let mut labels: Vec<String> = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        labels.sort();
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        };
        Arc::new(Meter {
            all: self.clone(),
            name: format!("{}{labels}", key.name()),
        })
    }
}

impl Recorder for Meters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.meter(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.meter(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.meter(key))
    }
}

struct Meter {
    all: Meters,
    name: String,
}

impl Meter {
    fn tell(&self, value: impl FnOnce(f64) -> f64) {
        let mut all = self.all.lock();
        let told = all.entry(self.name.clone()).or_default();
        let last = told.last().copied().unwrap_or_default();
        told.push(value(last));
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a test counts to less than that"
)]
impl CounterFn for Meter {
    fn increment(&self, value: u64) {
        self.tell(|last| last + value as f64);
    }

    fn absolute(&self, value: u64) {
        self.tell(|_| value as f64);
    }
}

impl GaugeFn for Meter {
    fn increment(&self, value: f64) {
        self.tell(|last| last + value);
    }

    fn decrement(&self, value: f64) {
        self.tell(|last| last - value);
    }

    fn set(&self, value: f64) {
        self.tell(|_| value);
    }
}

impl HistogramFn for Meter {
    fn record(&self, value: f64) {
        self.tell(|_| value);
    }
}
