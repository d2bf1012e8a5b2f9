//! One JSON object a line.
//!
//! `{"at":…,"level":…,"message":…,"target":…}`, the fields of the event, and those of the spans
//! around it: of a run that is `job`, `queue`, `kind`, `attempt`, `worker` and `trace`. What the
//! event says itself wins over what is around it.

use backstop::Time;
use backstop_core::redact::{REDACTED, Redaction};
use backstop_core::terminal::escaped_json;
use serde_json::{Map, Value};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::{LookupSpan, Scope};

/// Writes events as JSON, without what must not be shown.
pub(super) struct JsonFormatter {
    redaction: Redaction,
}

impl JsonFormatter {
    pub(super) const fn new(redaction: Redaction) -> Self {
        Self { redaction }
    }

    fn redact_value(&self, name: &str, value: Value) -> Value {
        match value {
            _ if self.redaction.is_secret(name) => Value::from(REDACTED),
            Value::String(text) => Value::from(self.redaction.text(&text)),
            other => other,
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> FormatEvent<S, JsonFields> for JsonFormatter {
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<JsonFields>>();
            let fields =
                fields.and_then(|fields| serde_json::from_str::<Map<String, Value>>(fields).ok());
            // What is for whoever exports spans says nothing in a log.
            line.extend(
                fields
                    .into_iter()
                    .flatten()
                    .filter(|(name, _)| !name.starts_with("otel.")),
            );
        }
        event.record(&mut JsonFieldVisitor(&mut line));
        let metadata = event.metadata();
        let mut line: Map<String, Value> = line
            .into_iter()
            .map(|(name, value)| {
                let value = self.redact_value(&name, value);
                (name, value)
            })
            .collect();
        line.insert("at".to_owned(), Value::from(now().to_string()));
        line.insert(
            "level".to_owned(),
            Value::from(metadata.level().as_str().to_lowercase()),
        );
        line.insert("target".to_owned(), Value::from(metadata.target()));
        writeln!(writer, "{}", escaped_json(&Value::Object(line).to_string()))
    }
}

fn now() -> Time {
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Time::from_micros(i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX))
}

/// Takes the fields of an event in.
struct JsonFieldVisitor<'a>(&'a mut Map<String, Value>);

impl Visit for JsonFieldVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0
            .insert(field.name().to_owned(), Value::from(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), Value::from(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().to_owned(), Value::from(value));
    }
}
