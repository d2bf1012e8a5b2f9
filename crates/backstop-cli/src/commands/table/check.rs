//! Whether a table can be worked off, what it lacks, and which index would help.

use super::{TableArgs, table_error};
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::{CellTone, TextTable as Lines};
use backstop::tables::{
    CheckedColumn, CheckedIndex, PlanSummary, StatusWords, Table, TableCheckReport,
};
use clap::Args;
use serde::Serialize;

#[derive(Serialize)]
struct TableCheckShape<'a> {
    table: &'a str,
    database: &'a str,
    fine: bool,
    columns: Vec<CheckedColumnShape<'a>>,
    missing: &'a [String],
    indexes: Vec<CheckedIndexShape<'a>>,
    plan: &'a [String],
    plan_indexed: Option<&'a [String]>,
    may_read: bool,
    may_write: bool,
    /// Why it may not be read or changed.
    refused: Vec<&'a str>,
    /// The entry of the configuration that names columns which are called otherwise.
    proposal: Option<&'a str>,
    words: Option<Vec<StatusWordShape<'a>>>,
    notes: &'a [String],
}

/// A word of the status column.
#[derive(Serialize)]
struct StatusWordShape<'a> {
    word: Option<&'a str>,
    rows: u64,
    undated: u64,
}

#[derive(Serialize)]
struct CheckedColumnShape<'a> {
    role: &'a str,
    wanted: &'a str,
    found: Option<&'a str>,
    #[serde(rename = "type")]
    type_name: Option<&'a str>,
    dates: Option<&'a str>,
    problem: Option<&'a str>,
}

#[derive(Serialize)]
struct CheckedIndexShape<'a> {
    columns: &'a [String],
    why: &'a str,
    existing: Option<&'a str>,
    ddl: &'a str,
}

/// Which table, and how much of it.
#[derive(Args, Debug)]
pub(crate) struct TableCheckArgs {
    #[command(flatten)]
    table: TableArgs,
    /// Show the database's plans whole: a line for each wait that rows may be in
    #[arg(long)]
    plans: bool,
}

pub(super) async fn run(
    args: &TableCheckArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let table = &args.table.find_table(context)?.table;
    let backstop = context.open_for_reading().await?;
    let at = args.table.at.unwrap_or_else(|| backstop.now());
    let mut checked = backstop
        .adopted_table(table)
        .check_at(at)
        .await
        .map_err(|error| table_error(table, error))?;
    checked
        .notes
        .extend(table.unshared_store_warning(&context.config.store));
    if context.output.is_json() {
        context.output.json(&shape(&checked))?;
    } else {
        print_check(table, &checked, args.plans, context)?;
    }
    Ok(if checked.is_fine() {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    })
}

fn shape(checked: &TableCheckReport) -> TableCheckShape<'_> {
    TableCheckShape {
        table: &checked.table,
        database: checked.database,
        fine: checked.is_fine(),
        columns: checked.columns.iter().map(column_shape).collect(),
        missing: &checked.missing,
        indexes: checked.indexes.iter().map(index_shape).collect(),
        plan: &checked.plan,
        plan_indexed: checked.plan_indexed.as_deref(),
        may_read: checked.may_read.is_ok(),
        may_write: checked.may_write.is_ok(),
        refused: refused(checked).map(|(_, why)| why).collect(),
        proposal: checked.proposal.as_deref(),
        words: checked.words.as_ref().map(words_shape),
        notes: &checked.notes,
    }
}

fn words_shape(words: &StatusWords) -> Vec<StatusWordShape<'_>> {
    let mut shapes = Vec::with_capacity(words.words.len());
    for found in &words.words {
        let (rows, undated) = (found.rows, found.undated);
        shapes.push(StatusWordShape {
            word: found.word.as_deref(),
            rows,
            undated,
        });
    }
    shapes
}

fn column_shape(column: &CheckedColumn) -> CheckedColumnShape<'_> {
    CheckedColumnShape {
        role: column.role,
        wanted: &column.wanted,
        found: column.found.as_deref(),
        type_name: column.type_name.as_deref(),
        dates: column.dates.as_deref(),
        problem: column.problem.as_deref(),
    }
}

fn index_shape(index: &CheckedIndex) -> CheckedIndexShape<'_> {
    CheckedIndexShape {
        columns: &index.columns,
        why: index.why,
        existing: index.existing.as_deref(),
        ddl: &index.ddl,
    }
}

/// What we may not do, and why not.
fn refused(checked: &TableCheckReport) -> impl Iterator<Item = (&'static str, &str)> {
    let both = [("read", &checked.may_read), ("changed", &checked.may_write)];
    both.into_iter()
        .filter_map(|(what, may)| Some((what, may.as_ref().err()?.as_str())))
}

fn print_check(
    table: &Table,
    checked: &TableCheckReport,
    plans: bool,
    context: &CliContext,
) -> Result<(), CliError> {
    let (output, paint) = (context.output, context.output.paint());
    let place = table.source().address();
    output.line(format!(
        "{} in {place} ({})",
        paint.bold(&checked.table),
        checked.database
    ))?;
    output.table(&columns(&checked.columns))?;
    for (what, why) in refused(checked) {
        output.line(paint.bad(format!("it may not be {what}: {why}")))?;
    }
    print_missing(table, checked, context)?;
    let wanted: Vec<&String> = checked
        .indexes
        .iter()
        .filter(|index| index.existing.is_none())
        .map(|index| &index.ddl)
        .collect();
    for index in &checked.indexes {
        if let Some(name) = &index.existing {
            output.line(format!("index {} is there: {}", name, index.why))?;
        }
    }
    if !wanted.is_empty() {
        output.blank()?;
        output.line(
            paint.warning("Indexes by which due rows are found without a look at all others:"),
        )?;
        statements(wanted.into_iter(), context)?;
    }
    print_plans(checked, plans, context)?;
    for note in &checked.notes {
        output.note(format!("note: {note}"));
    }
    if checked.is_fine() {
        output.blank()?;
        output.line(if checked.has_nothing_to_try() {
            paint.warning("Nothing is missing, and no row is there to be worked off now.")
        } else {
            paint.good("It can be worked off as it is.")
        })?;
    }
    Ok(())
}

/// How the columns that are there are named in the configuration, and the statements that add those
/// that are not.
fn print_missing(
    table: &Table,
    checked: &TableCheckReport,
    context: &CliContext,
) -> Result<(), CliError> {
    let (output, paint) = (context.output, context.output.paint());
    let lacks = checked.columns.iter().any(|column| column.found.is_none());
    if !lacks {
        return Ok(());
    }
    output.blank()?;
    let entry = format!("[tables.{}]", table.name());
    match &checked.proposal {
        Some(columns) => {
            output.line(paint.bad(format!(
                "Columns are missing. If yours have other names, say so in {entry}:"
            )))?;
            output.line(format!("  {}", paint.command(columns)))?;
        }
        None => output.line(paint.bad(format!(
            "Columns are missing. If yours have other names, say so in {entry}: {}",
            missing_entry(&checked.columns)
        )))?,
    }
    if !checked.missing.is_empty() {
        output.line("If it has none for that, these statements add them, empty:")?;
        statements(checked.missing.iter(), context)?;
    }
    Ok(())
}

/// The entry of the configuration that names the missing columns, with the names left open.
fn missing_entry(columns: &[CheckedColumn]) -> String {
    let missing = columns.iter().filter(|column| column.found.is_none());
    let names: Vec<String> = missing
        .map(|column| format!("{} = \"…\"", column.role))
        .collect();
    format!("columns = {{ {} }}", names.join(", "))
}

fn columns(columns: &[CheckedColumn]) -> Lines {
    let mut lines = Lines::new(&["FOR", "COLUMN", "TYPE", "DATES", "PROBLEM"]);
    for column in columns {
        let text = |text: &Option<String>| (text.clone().unwrap_or_default(), CellTone::Plain);
        let name = match &column.found {
            Some(found) => (found.clone(), CellTone::Good),
            None => (format!("{} (not there)", column.wanted), CellTone::Bad),
        };
        let problem = (column.problem.clone().unwrap_or_default(), CellTone::Bad);
        let role = (column.role.to_owned(), CellTone::Plain);
        lines.styled_row([
            role,
            name,
            text(&column.type_name),
            text(&column.dates),
            problem,
        ]);
    }
    lines
}

fn statements<'a>(
    statements: impl Iterator<Item = &'a String>,
    context: &CliContext,
) -> Result<(), CliError> {
    for statement in statements {
        context
            .output
            .line(format!("  {}", context.output.paint().command(statement)))?;
    }
    Ok(())
}

/// How rows are found: in a line, or the whole of what the database says.
fn print_plans(
    checked: &TableCheckReport,
    whole: bool,
    context: &CliContext,
) -> Result<(), CliError> {
    if checked.plan.is_empty() {
        return Ok(());
    }
    let short = |looks: &PlanSummary| vec![looks.to_string()];
    let now = if whole {
        checked.plan.clone()
    } else {
        short(&checked.plan_summary())
    };
    let then = if whole {
        checked.plan_indexed.clone()
    } else {
        checked.plan_summary_indexed().as_ref().map(short)
    };
    plan("How the database finds what is due:", &now, context)?;
    if let Some(then) = then {
        plan("How it would with these indexes:", &then, context)?;
    }
    if !whole {
        context.output.note("the whole plans: --plans");
    }
    Ok(())
}

fn plan(title: &str, plan: &[String], context: &CliContext) -> Result<(), CliError> {
    context.output.blank()?;
    context.output.line(title)?;
    for line in plan {
        context
            .output
            .line(format!("  {}", context.output.paint().dim(line)))?;
    }
    Ok(())
}
