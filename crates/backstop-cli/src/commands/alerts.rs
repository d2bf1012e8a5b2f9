//! `backstop alerts`: rules and a board for what `/metrics` tells.

use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use backstop_server::alerts;
use clap::Args;

pub(crate) const EXAMPLES: &str = "\
Examples:
  backstop alerts --prometheus > /etc/prometheus/rules/backstop.yml
  backstop alerts --grafana > backstop.json

The rules take the maximum over all servers of a store where they all tell the same. Check them with
  promtool check rules backstop.yml
The board is imported in Grafana under Dashboards, New, Import; it asks for the data source.";

/// For whom.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct AlertsArgs {
    /// Alert rules for Prometheus, as YAML
    #[arg(long)]
    prometheus: bool,
    /// A dashboard for Grafana, as JSON
    #[arg(long)]
    grafana: bool,
}

/// Writes one of them to stdout.
pub(crate) fn run(args: &AlertsArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let text = if args.grafana {
        alerts::board()
    } else {
        alerts::RULES.to_owned()
    };
    context.output.verbatim(text)?;
    Ok(ExitStatus::Success)
}
