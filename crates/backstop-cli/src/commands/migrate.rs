//! `backstop migrate`: the store's tables, brought up to what this version needs.

use crate::context::CliContext;
use crate::error::{CliError, ExitStatus, open_error};
use serde_json::json;

/// Migrates, and says from which version to which.
pub(crate) async fn run(context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.connect().await?;
    let migrated = backstop.store().migrate().await;
    let migrated = migrated.map_err(|error| open_error(error.into(), &context.config.store))?;
    let (from, to) = (migrated.from, migrated.to);
    if context.output.is_json() {
        context.output.json(&json!({ "from": from, "to": to }))?;
    } else if from == to {
        context.output.line(format!(
            "{}: version {to}, nothing to do",
            context.config.store
        ))?;
    } else {
        context.output.line(format!(
            "{}: from version {from} to {to}",
            context.config.store
        ))?;
    }
    Ok(ExitStatus::Success)
}
