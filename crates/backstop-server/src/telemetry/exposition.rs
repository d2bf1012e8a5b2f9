//! Prometheus' text format, for what is read at the scrape.

use std::fmt::Write as _;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MetricType {
    /// It goes up and down.
    Gauge,
    Counter,
}

/// A metric: its name, what it is, and what it means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) shape: MetricType,
    pub(super) help: &'static str,
}

/// A text that grows by one metric after the other.
#[derive(Default, Debug)]
pub(super) struct MetricsText(String);

impl MetricsText {
    /// All samples of a metric: their labels and values. A metric without any is not told of.
    pub(super) fn write_samples<'a>(
        &mut self,
        metric: Metric,
        samples: impl IntoIterator<Item = (Vec<(&'static str, &'a str)>, f64)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let Metric { name, shape, help } = metric;
        let shape = if shape == MetricType::Counter {
            "counter"
        } else {
            "gauge"
        };
        // Writing to a text cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {shape}");
        for (labels, value) in samples {
            let _ = writeln!(self.0, "{name}{} {value}", render_labels(&labels));
        }
    }

    /// The one sample of a metric without labels.
    pub(super) fn write_value(&mut self, metric: Metric, value: f64) {
        self.write_samples(metric, [(Vec::new(), value)]);
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

fn render_labels(labels: &[(&'static str, &str)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let written: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", escape_label(value)))
        .collect();
    format!("{{{}}}", written.join(","))
}

/// A value between quotes: a kind may hold anything, quotes and line ends included.
fn escape_label(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPTH: Metric = Metric {
        name: "depth",
        shape: MetricType::Gauge,
        help: "how deep",
    };

    #[test]
    fn samples_stand_under_their_metric() {
        let mut text = MetricsText::default();
        text.write_samples(
            DEPTH,
            [
                (vec![("queue", "a"), ("state", "ready")], 3.0),
                (vec![("queue", "b")], 0.5),
            ],
        );
        let expected = "# HELP depth how deep\n# TYPE depth gauge\ndepth{queue=\"a\",state=\"ready\"} 3\ndepth{queue=\"b\"} 0.5\n";
        assert_eq!(text.into_text(), expected);
    }

    #[test]
    fn a_metric_without_samples_is_not_told_of() {
        let mut text = MetricsText::default();
        text.write_samples(DEPTH, []);
        assert_eq!(text.into_text(), "");
    }

    #[test]
    fn no_name_can_end_its_label() {
        let mut text = MetricsText::default();
        text.write_samples(DEPTH, [(vec![("kind", "a\"} 1\nevil{\\")], 1.0)]);
        assert!(
            text.into_text()
                .ends_with("depth{kind=\"a\\\"} 1\\nevil{\\\\\"} 1\n")
        );
    }
}
