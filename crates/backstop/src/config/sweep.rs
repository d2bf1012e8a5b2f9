//! What is said about one sweep.

use crate::sweeps::{Sweep, SweepQuery};
use backstop_core::Span;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSweep {
    url: String,
    query: String,
    queue: String,
    unique_key: String,
    kind: Option<String>,
    payload: Option<toml::Value>,
    older_than: Option<Span>,
    every: Option<Span>,
    max_per_run: Option<usize>,
    max_recoveries: Option<u32>,
    timeout: Option<Span>,
}

impl RawSweep {
    /// What it means, with the usual settings where it is silent.
    pub(super) fn build(self, name: &str) -> Result<Sweep, String> {
        let payload = self.payload.as_ref().map(json);
        let query = SweepQuery::new(&self.url, &self.query, &self.unique_key, payload.as_ref());
        let query =
            query.and_then(|query| query.timeout(self.timeout.unwrap_or(SweepQuery::TIMEOUT)));
        let query = query.map_err(|error| error.to_string())?;
        let (kind, every) = (self.kind, self.every);
        let (max_per_run, max_recoveries) = (self.max_per_run, self.max_recoveries);
        let build = || {
            let mut sweep = Sweep::new(name, &self.queue, query)?;
            if let Some(kind) = kind {
                sweep = sweep.kind(&kind)?;
            }
            if let Some(every) = every {
                sweep = sweep.every(every)?;
            }
            if let Some(max) = max_per_run {
                sweep = sweep.max_per_run(max)?;
            }
            if let Some(max) = max_recoveries {
                sweep = sweep.max_recoveries(max)?;
            }
            Ok(match self.older_than {
                Some(older_than) => sweep.older_than(older_than),
                None => sweep,
            })
        };
        build().map_err(|error: crate::sweeps::InvalidSweep| error.to_string())
    }
}

/// The same value as JSON; dates, which JSON has none of, are text.
fn json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.as_str().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) => (*number).into(),
        toml::Value::Boolean(is) => (*is).into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(values) => values.iter().map(json).collect(),
        toml::Value::Table(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), json(value)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{ConfigFile, ConfigOverrides, resolve};
    use crate::sweeps::Sweep;
    use backstop_core::Span;

    const ENTRY: &str = r#"
[sweeps.content_changes]
url = "sqlite:app.db"
query = "SELECT id FROM content_changes WHERE processed_at IS NULL AND created_at <= :cutoff"
older_than = "15m"
every = "5m"
queue = "content"
kind = "ProcessContentChange"
unique_key = "content_change:{id}"
payload = { id = "{id}", at = 2026-01-01T00:00:00Z, list = [1, "x"] }
max_per_run = 500
"#;

    fn read(text: &str) -> Result<Sweep, String> {
        let written = ConfigFile {
            path: "backstop.toml",
            text,
        };
        let config = resolve(
            Some(written),
            ConfigOverrides::default(),
            ConfigOverrides::default(),
        );
        config
            .map_err(|error| error.to_string())
            .map(|config| config.sweeps["content_changes"].clone())
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn the_documented_entry_is_read() {
        let sweep = read(ENTRY).unwrap();
        assert_eq!(
            (sweep.name(), sweep.queue().as_str()),
            ("content_changes", "content")
        );
        assert_eq!(
            (sweep.threshold(), sweep.period()),
            (Span::minutes(15), Span::minutes(5))
        );
        let silent = ENTRY.replace("older_than = \"15m\"\nevery = \"5m\"\n", "");
        let usual = read(&silent).unwrap();
        assert_eq!(
            (usual.threshold(), usual.period()),
            (Span::hours(1), Span::minutes(30))
        );
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn what_makes_no_sense_is_refused_with_what_to_write() {
        let refused = |from: &str, to: &str| read(&ENTRY.replace(from, to)).unwrap_err();
        let unknown = refused("older_than", "younger_than");
        assert!(
            unknown.contains("unknown field `younger_than`") && unknown.contains(":5:"),
            "{unknown}"
        );
        assert!(refused("every = \"5m\"", "every = \"5ms\"").contains("`every` must be from 1s"));
        assert!(refused(":cutoff", "'2026'").contains("created_at <= :cutoff"));
        assert!(refused("content_change:{id}", "content_change").contains("names no column"));
        assert!(refused("content_change:{id}", "content_change:{id").contains("`unique_key`"));
        assert!(refused("max_per_run = 500", "max_per_run = 0").contains("from 1 to 10000"));
        assert!(refused("queue = \"content\"", "queue = \"a b\"").contains("is not a queue name"));
        assert!(refused("[1, \"x\"]", "[1, \"{\"]").contains("`payload`"));
        assert!(refused("queue = \"content\"\n", "").contains("missing field `queue`"));
    }

    #[test]
    fn no_password_is_shown() {
        for url in ["redis://ada:secret@h", "mongodb://ada:secret@h/db"] {
            let error = read(&ENTRY.replace("sqlite:app.db", url)).unwrap_err();
            assert!(
                !error.contains("secret") && error.contains("is not a database"),
                "{error}"
            );
        }
        let broken = ENTRY.replace(
            "url = \"sqlite:app.db\"",
            "url = \"postgres://ada:secret@h\" x",
        );
        assert!(!read(&broken).unwrap_err().contains("secret"));
    }
}
