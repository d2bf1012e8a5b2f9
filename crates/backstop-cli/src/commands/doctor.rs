//! `backstop doctor`: what can be relied on, and what should be mended.

use crate::context::Context;
use crate::output::table::{Table, Tone};
use crate::trouble::{Trouble, Verdict};
use backstop_core::port::{Examination, Finding, Grade};
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
pub(crate) async fn run(context: &Context) -> Result<Verdict, Trouble> {
    refuse_missing(context)?;
    let backstop = context.connect().await?;
    let examination = backstop.examine(context.shortest_lease()).await?;
    if context.output.is_json() {
        context.output.json(&ExaminationShape::new(&examination))?;
    } else {
        tell(context, &examination)?;
    }
    let falls_short = examination
        .findings
        .iter()
        .any(|finding| finding.grade == Grade::Bad);
    Ok(if falls_short {
        Verdict::FallsShort
    } else {
        Verdict::Fine
    })
}

/// Connecting would make the file, and there would be nothing to examine in it.
fn refuse_missing(context: &Context) -> Result<(), Trouble> {
    match context
        .config
        .store
        .sqlite_file()
        .filter(|file| !file.exists())
    {
        None => Ok(()),
        Some(file) => Err(
            Trouble::new(format!("there is no store at {}", file.display()))
                .advise("--store sqlite:FILE, or backstop migrate to make one"),
        ),
    }
}

fn tell(context: &Context, examination: &Examination) -> Result<(), Trouble> {
    let (output, paint) = (context.output, context.output.paint());
    output.line(paint.bold(&examination.store))?;
    output.line(&examination.promise)?;
    output.line("")?;
    let mut table = Table::new(&["GRADE", "FINDING", "ADVICE"]);
    for finding in &examination.findings {
        let tone = match finding.grade {
            Grade::Good => Tone::Good,
            Grade::Warning => Tone::Warning,
            Grade::Bad => Tone::Bad,
        };
        let advice = finding.advice.clone().unwrap_or_default();
        table.toned([
            (word(finding.grade).to_owned(), tone),
            (finding.what.clone(), Tone::Plain),
            (advice, Tone::Plain),
        ]);
    }
    output.table(&table)
}

impl<'a> ExaminationShape<'a> {
    fn new(examination: &'a Examination) -> Self {
        let finding = |finding: &'a Finding| FindingShape {
            grade: word(finding.grade),
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

const fn word(grade: Grade) -> &'static str {
    match grade {
        Grade::Good => "good",
        Grade::Warning => "warning",
        Grade::Bad => "bad",
    }
}
