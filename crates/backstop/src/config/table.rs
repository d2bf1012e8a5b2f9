//! What is said about one table.

use super::HandlerConfig;
use super::raw::RawHandler;
use crate::tables::{
    ColumnNames, Dates, OnExpired, RowJobHandler, StatusValues, Table, default_strategy,
};
use backstop_core::{RetryPolicy, Span};
use serde::Deserialize;

/// What is said about one table.
#[derive(Clone, Debug)]
pub struct TableConfig {
    /// The table, without a handler.
    pub table: Table,
    /// What handles its rows, if anything here does.
    pub handler: Option<HandlerConfig>,
}

impl TableConfig {
    /// The table with its handler, if it has one. Reads what the handler's description names, such
    /// as certificates.
    pub fn with_handler(&self) -> Result<Table, String> {
        let table = self.table.clone();
        Ok(match &self.handler {
            None => table,
            Some(HandlerConfig::Exec(exec)) => table.handler(RowJobHandler::new(exec.clone())),
            #[cfg(feature = "http")]
            Some(HandlerConfig::Http(http)) => table.handler(RowJobHandler::new(
                http.handler().map_err(|error| error.to_string())?,
            )),
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTable {
    url: String,
    table: String,
    columns: Option<ColumnNames>,
    states: Option<StatusValues>,
    strategy: Option<toml::Table>,
    max_age: Option<Span>,
    max_records: Option<usize>,
    every: Option<Span>,
    concurrency: Option<usize>,
    timeout: Option<Span>,
    dates: Option<Dates>,
    handler: Option<RawHandler>,
    on_expired: Option<OnExpired>,
}

impl RawTable {
    /// What it means, with the usual settings where it is silent.
    pub(super) fn build(self, name: &str) -> Result<TableConfig, String> {
        let handler_timeout = self.handler.as_ref().and_then(RawHandler::timeout);
        if self.timeout.is_some() && handler_timeout.is_some() {
            return Err(
                "`timeout` stands both in the table and in its handler; keep one of them"
                    .to_owned(),
            );
        }
        let timeout = self.timeout.or(handler_timeout);
        if timeout.is_some_and(Span::is_zero) {
            return Err("`timeout` must be longer than nothing; leave it out for none".to_owned());
        }
        let strategy = self
            .strategy
            .map_or_else(|| Ok(default_strategy()), strategy)?;
        let handler = self.handler.map(RawHandler::build).transpose()?;
        let (columns, states) = (
            self.columns.unwrap_or_default(),
            self.states.unwrap_or_default(),
        );
        let (max_records, every, concurrency) = (self.max_records, self.every, self.concurrency);
        let build = || {
            let mut table = Table::new(name, &self.url, &self.table)?
                .columns(columns)?
                .states(states)?
                .strategy(&strategy, self.max_age)?;
            if let Some(max) = max_records {
                table = table.max_records(max)?;
            }
            if let Some(every) = every {
                table = table.every(every)?;
            }
            if let Some(concurrency) = concurrency {
                table = table.concurrency(concurrency)?;
            }
            let table = table.timeout(timeout).dates(self.dates);
            Ok(table.on_expired(self.on_expired.unwrap_or_default()))
        };
        let table = build().map_err(|error: crate::tables::InvalidTable| error.to_string())?;
        Ok(TableConfig {
            table,
            handler: handler.map(|handler| handler.within(timeout)),
        })
    }
}

/// The policy that was written. A job's is over after three attempts unless it says otherwise; a
/// row is tried until it is too old.
fn strategy(mut written: toml::Table) -> Result<RetryPolicy, String> {
    if !written.contains_key("kind") {
        return Err(
            "`strategy` names no `kind`; write { kind = \"fibonacci\" }, or leave it out"
                .to_owned(),
        );
    }
    written
        .entry("max_attempts")
        .or_insert_with(|| "unlimited".into());
    toml::Value::Table(written)
        .try_into::<RetryPolicy>()
        .map_err(|error| format!("`strategy`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::TableConfig;
    use crate::config::{ConfigFile, ConfigOverrides, resolve};
    use backstop_core::Span;

    const ENTRY: &str = r#"
[tables.invoices]
url = "sqlite:app.db"
table = "BACKLOG"
columns = { id = "ID", status = "STATUS", inserted = "DATE_INSERTED", failures = "FAILURES", last_failure = "LAST_FAILURE" }
states = { new = "NEW", error = "ERROR", success = "SUCCESS" }
strategy = { kind = "fibonacci", unit = "1m", cap = "1d" }
max_age = "30d"
max_records = 100
every = "1m"
handler = { exec = ["./invoice"] }
on_expired = "keep"
"#;

    fn read(text: &str) -> Result<TableConfig, String> {
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
            .map(|config| config.tables["invoices"].clone())
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn the_documented_entry_is_read() {
        let config = read(ENTRY).unwrap();
        let table = config.with_handler().unwrap();
        assert!(table.is_handled() && !config.table.is_handled());
        assert_eq!(
            (table.name(), table.table_name(), table.records_max()),
            ("invoices", "BACKLOG", 100)
        );
        assert_eq!(
            (table.period(), table.rules().max_age()),
            (Span::minutes(1), Span::days(30))
        );
        assert_eq!(
            table.rules().max_failures(),
            None,
            "a row is tried until it is too old"
        );
        let silent = "[tables.invoices]\nurl = \"sqlite:app.db\"\ntable = \"BACKLOG\"\n";
        let usual = read(silent).unwrap();
        assert!(usual.handler.is_none() && usual.table.rules().counts_failures());
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn a_strategy_by_age_ends_with_its_last_band() {
        let by_age = ENTRY.replace(
            "kind = \"fibonacci\", unit = \"1m\", cap = \"1d\"",
            "kind = \"progressive\"",
        );
        assert_eq!(
            read(&by_age).unwrap().table.rules().max_age(),
            Span::days(30)
        );
        let silent = by_age.replace("max_age = \"30d\"\n", "");
        assert_eq!(
            read(&silent).unwrap().table.rules().max_age(),
            Span::days(360)
        );
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn what_makes_no_sense_is_refused_with_what_to_write() {
        let refused = |from: &str, to: &str| read(&ENTRY.replace(from, to)).unwrap_err();
        let unknown = refused("max_age", "age_max");
        assert!(
            unknown.contains("unknown field `age_max`") && unknown.contains(":8:"),
            "{unknown}"
        );
        assert!(refused("every = \"1m\"", "every = \"5ms\"").contains("`every` must be from 1s"));
        assert!(refused("max_records = 100", "max_records = 0").contains("from 1 to 10000"));
        assert!(refused("max_age = \"30d\"", "max_age = \"0s\"").contains("`max_age` must be"));
        assert!(
            refused("cap = \"1d\"", "cap = \"1d\", max_age = \"1d\"")
                .contains("belongs to the table")
        );
        assert!(refused("\"fibonacci\"", "\"fibonaci\"").contains("is not a kind of policy"));
        assert!(
            refused("error = \"ERROR\"", "error = \"NEW\"")
                .contains("`states` are not all different")
        );
        assert!(
            refused(
                "last_failure = \"LAST_FAILURE\"",
                "last_failure = \"failures\""
            )
            .contains("`columns`")
        );
        assert!(refused("table = \"BACKLOG\"", "table = \"\"").contains("`table` is empty"));
        assert!(refused("\"keep\"", "\"forget\"").contains("keep"));
        assert!(refused("exec = [\"./invoice\"]", "exec = []").contains("`exec` is empty"));
    }

    #[test]
    fn no_password_is_shown() {
        let error = read(&ENTRY.replace("sqlite:app.db", "redis://ada:secret@h")).unwrap_err();
        assert!(
            !error.contains("secret") && error.contains("is not a database"),
            "{error}"
        );
    }
}
