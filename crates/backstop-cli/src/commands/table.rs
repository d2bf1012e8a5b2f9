//! `backstop table`: a table that somebody has already, worked off as it is.

mod check;
mod due;
mod run;
mod status;

use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use backstop::Time;
use backstop::config::{DEFAULT_FILE, TableConfig};
use backstop::tables::{Table, TableError};
use clap::{Args, Subcommand};

/// Look at adopted tables, and work them off.
#[derive(Subcommand, Debug)]
pub(crate) enum TableSubcommand {
    /// Whether a table can be worked off, what it lacks, and which index would help
    #[command(after_help = "\
Examples:
  backstop table check invoices
  backstop table check invoices --plans                 the whole plans of the database
  backstop table check invoices --json | jq -r '.missing[], (.indexes[] | select(.existing == null) | .ddl)'

A table of yours with a key, a status and the time at which a row came in:

  [tables.invoices]
  url = \"sqlite:app.db\"                 # or postgres://…, or mysql://… (with TLS: ?ssl-mode=verify-identity&ssl-ca=FILE)
  table = \"BACKLOG\"
  columns = { id = \"ID\", status = \"STATUS\", inserted = \"DATE_INSERTED\", failures = \"FAILURES\", last_failure = \"LAST_FAILURE\" }
  states = { new = \"NEW\", error = \"ERROR\", success = \"SUCCESS\" }
  strategy = { kind = \"fibonacci\", unit = \"1m\", cap = \"1d\" }      # or { kind = \"progressive\" }, which needs neither
  max_age = \"30d\"                        # of the last two columns; or any retry policy
  max_records = 100
  every = \"1m\"
  handler = { exec = [\"./invoice\"] }     # gets the row as a JSON object; or { http = \"http://…\" }
  on_expired = \"keep\"                    # or \"dead\": a copy to the dead letters

Looks the table up in the catalogue of its database, prints the statements that would make it complete and the indexes
by which due rows are found without a look at all others, and shows in short how the database finds them without and with
those indexes. Runs none of these statements and changes no row. Exits 1 if the table cannot be worked off as it is.")]
    Check(check::TableCheckArgs),
    /// What a pass would take, in its order; runs nothing
    #[command(after_help = "\
Examples:
  backstop table due invoices
  backstop table due invoices --at 2026-11-16T09:30:00Z --json      {\"due\":[4,3,2,1]}

What `backstop table run` with the same --at would take, in that order: rows that a runner left who is gone, then what is left
of a round of a progressive strategy that was cut at its limit, then the newest first, at most `max_records`. Rows in somebody's
hands are not listed. Rows that are not due never take the place of rows that are.")]
    Due(TableArgs),
    /// Work off what is due: one pass
    Run(run::TableRunArgs),
    /// How a table stands: rows by state and by age, what is due, what is not tried any more
    Status(status::TableStatusArgs),
}

/// Which table, and seen from when.
#[derive(Args, Debug)]
pub(crate) struct TableArgs {
    /// The table, by its name in the configuration
    name: String,
    /// As if it were this time, in RFC 3339 [default: now]
    #[arg(long, value_name = "T")]
    at: Option<Time>,
}

/// Does what was asked for.
pub(crate) async fn run(
    command: &TableSubcommand,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    match command {
        TableSubcommand::Check(args) => check::run(args, context).await,
        TableSubcommand::Due(args) => due::run(args, context).await,
        TableSubcommand::Run(args) => run::run(args, context).await,
        TableSubcommand::Status(args) => status::run(args, context).await,
    }
}

impl TableArgs {
    /// The table as it is configured.
    fn find_table<'a>(&self, context: &'a CliContext) -> Result<&'a TableConfig, CliError> {
        let (tables, name) = (&context.config.tables, &self.name);
        tables.get(name).ok_or_else(|| {
            let known: Vec<&str> = tables.keys().map(String::as_str).collect();
            let there = match &known[..] {
                [] => "there are none".to_owned(),
                known => format!("there are {}", known.join(", ")),
            };
            CliError::misuse(format!(
                "there is no table {name} in the configuration; {there}"
            ))
            .advise(format!(
                "an entry [tables.{name}] in {DEFAULT_FILE}; see `backstop table check --help`"
            ))
        })
    }
}

/// What went wrong with a table, and the next step.
fn table_error(table: &Table, error: TableError) -> CliError {
    match error {
        TableError::Store(error) => error.into(),
        error => CliError::new(format!("table {}: {error}", table.name())),
    }
}
