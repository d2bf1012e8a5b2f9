//! `backstop doctor`: what can be relied on, and what should be mended.

use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::{CellTone, TextTable};
use backstop_core::port::{ExaminationReport, FindingSeverity, StoreFinding};
use serde::Serialize;

#[derive(Serialize)]
struct ExaminationShape<'a> {
    store: &'a str,
    promise: &'a str,
    findings: Vec<FindingShape<'a>>,
}

#[derive(Serialize)]
struct FindingShape<'a> {
    grade: &'static str,
    what: &'a str,
    advice: Option<&'a str>,
}

/// Examines the store as it is; exits 1 if anything falls short.
pub(crate) async fn run(context: &CliContext) -> Result<ExitStatus, CliError> {
    refuse_missing(context)?;
    let backstop = context.connect().await?;
    let examination = backstop.examine(context.shortest_lease()).await?;
    if context.output.is_json() {
        context.output.json(&ExaminationShape::new(&examination))?;
    } else {
        print_findings(context, &examination)?;
    }
    let falls_short = examination
        .findings
        .iter()
        .any(|finding| finding.severity == FindingSeverity::Bad);
    Ok(if falls_short {
        ExitStatus::Failure
    } else {
        ExitStatus::Success
    })
}

/// Connecting would make the file, and there would be nothing to examine in it.
fn refuse_missing(context: &CliContext) -> Result<(), CliError> {
    match context
        .config
        .store
        .sqlite_file()
        .filter(|file| !file.exists())
    {
        None => Ok(()),
        Some(file) => Err(
            CliError::new(format!("there is no store at {}", file.display()))
                .advise("--store sqlite:FILE, or backstop migrate to make one"),
        ),
    }
}

fn print_findings(context: &CliContext, examination: &ExaminationReport) -> Result<(), CliError> {
    let (output, paint) = (context.output, context.output.paint());
    output.line(paint.bold(&examination.store))?;
    output.line(&examination.promise)?;
    output.line("")?;
    let mut table = TextTable::new(&["GRADE", "FINDING", "ADVICE"]);
    for finding in &examination.findings {
        let tone = match finding.severity {
            FindingSeverity::Good => CellTone::Good,
            FindingSeverity::Warning => CellTone::Warning,
            FindingSeverity::Bad => CellTone::Bad,
        };
        let advice = finding.advice.clone().unwrap_or_default();
        table.styled_row([
            (word(finding.severity).to_owned(), tone),
            (finding.what.clone(), CellTone::Plain),
            (advice, CellTone::Plain),
        ]);
    }
    output.table(&table)
}

impl<'a> ExaminationShape<'a> {
    fn new(examination: &'a ExaminationReport) -> Self {
        let finding = |finding: &'a StoreFinding| FindingShape {
            grade: word(finding.severity),
            what: &finding.what,
            advice: finding.advice.as_deref(),
        };
        Self {
            store: &examination.store,
            promise: &examination.promise,
            findings: examination.findings.iter().map(finding).collect(),
        }
    }
}

const fn word(grade: FindingSeverity) -> &'static str {
    match grade {
        FindingSeverity::Good => "good",
        FindingSeverity::Warning => "warning",
        FindingSeverity::Bad => "bad",
    }
}
