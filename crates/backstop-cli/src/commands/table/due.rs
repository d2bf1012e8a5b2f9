//! What a pass would take.

use super::{TableArgs, table_error};
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::TextTable as Lines;
use crate::output::words::{counted, instant};
use serde::Serialize;
use serde_json::Value;

#[derive(Serialize)]
struct DueKeysShape {
    due: Vec<Value>,
}

pub(super) async fn run(args: &TableArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let table = &args.find_table(context)?.table;
    let backstop = context.open_for_reading().await?;
    let at = args.at.unwrap_or_else(|| backstop.now());
    let rows = backstop
        .adopted_table(table)
        .due(at, None)
        .await
        .map_err(|error| table_error(table, error))?;
    let due: Vec<Value> = rows.into_iter().map(|row| row.key).collect();
    if context.output.is_json() {
        context.output.json(&DueKeysShape { due })?;
    } else if due.is_empty() {
        context.output.note(format!(
            "nothing is due at {}; try: backstop table status {}",
            instant(at),
            table.name()
        ));
    } else {
        let mut lines = Lines::new(&["ROW"]);
        for key in &due {
            lines.row([key.to_string()]);
        }
        context.output.table(&lines)?;
        let is_cut = due.len() >= table.records_max();
        let more = if is_cut {
            "; there may be more, for the passes after it"
        } else {
            ""
        };
        context.output.note(format!(
            "a pass at {} takes {}{more}",
            instant(at),
            counted(due.len() as u64, "row")
        ));
    }
    Ok(ExitStatus::Success)
}
