//! What is said about one table.

use super::HandlerConfig;
use super::raw::RawHandler;
use crate::tables::{Columns, Command, Dates, OnExpired, States, Table, usual_strategy};
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
    /// The table with its handler, if it has one. Reads what the handler's description names, such as certificates.
    pub fn handled(&self) -> Result<Table, String> {
        let table = self.table.clone();
        Ok(match &self.handler {
            None => table,
            Some(HandlerConfig::Exec(exec)) => table.handler(Command::new(exec.clone())),
            #[cfg(feature = "http")]
            Some(HandlerConfig::Http(http)) => {
                table.handler(Command::new(http.handler().map_err(|error| error.to_string())?))
            }
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTable {
    url: String,
    table: String,
    columns: Option<Columns>,
    states: Option<States>,
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
    pub(super) fn checked(self, name: &str) -> Result<TableConfig, String> {
        let handler_timeout = self.handler.as_ref().and_then(RawHandler::timeout);
        if self.timeout.is_some() && handler_timeout.is_some() {
            return Err("`timeout` stands both in the table and in its handler; keep one of them".to_owned());
        }
        let timeout = self.timeout.or(handler_timeout);
        if timeout.is_some_and(Span::is_zero) {
            return Err("`timeout` must be longer than nothing; leave it out for none".to_owned());
        }
        let strategy = self.strategy.map_or_else(|| Ok(usual_strategy()), strategy)?;
        let handler = self.handler.map(RawHandler::checked).transpose()?;
        let (columns, states) = (self.columns.unwrap_or_default(), self.states.unwrap_or_default());
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
        let table = build().map_err(|error: crate::tables::BadTable| error.to_string())?;
        Ok(TableConfig { table, handler: handler.map(|handler| handler.within(timeout)) })
    }
}

/// The policy that was written. A job's is over after three attempts unless it says otherwise; a row is tried until it is too old.
fn strategy(mut written: toml::Table) -> Result<RetryPolicy, String> {
    written.entry("max_attempts").or_insert_with(|| "unlimited".into());
    toml::Value::Table(written).try_into::<RetryPolicy>().map_err(|error| format!("`strategy`: {error}"))
}
