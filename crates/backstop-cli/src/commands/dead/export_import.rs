//! `backstop dead export` and `backstop dead import`: NDJSON out, NDJSON in.

use super::letters;
use super::select::DeadFilterArgs;
use crate::commands::job::list::warn_of_damaged;
use crate::commands::reason::ReasonArgs;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::json_text;
use crate::output::words::counted;
use backstop::Time;
use backstop::core::limits::BURY_MAX;
use backstop::core::port::{DamagedJob, EnqueueOutcome};
use backstop::dead::{DeadLetters, ImportedDeadLetter, LETTER_BYTES_MAX};
use backstop_server::wire::job::DamagedJobShape;
use clap::Args;
use serde::Serialize;
use serde_json::json;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes of lines taken in by one call.
const BATCH_BYTES: usize = 8 << 20;
/// Bad lines told one by one to people; programs get all of them.
const BAD_LINES_SHOWN_MAX: usize = 20;

/// Which letters, and where to.
#[derive(Args, Debug)]
pub(crate) struct DeadExportArgs {
    #[command(flatten)]
    filter: DeadFilterArgs,
    /// Into this file, which appears when it is complete [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Where from.
#[derive(Args, Debug)]
pub(crate) struct DeadImportArgs {
    /// The file, or - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    reason: ReasonArgs,
}

/// Writes letters, page after page.
pub(super) async fn export(
    args: &DeadExportArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let dead = letters(&backstop, context);
    let filter = args.filter.filter(backstop.now());
    let (mut target, mut count, mut damaged) =
        (ExportTarget::open(args.output.as_deref())?, 0, Vec::new());
    let mut cursor = None;
    loop {
        let page = dead.export(&filter, cursor).await?;
        for letter in &page.letters {
            target.line(json_text(letter)?.as_bytes())?;
        }
        count += page.letters.len() as u64;
        damaged.extend(page.damaged);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    target.finish()?;
    print_export(args, count, &damaged, context)
}

fn print_export(
    args: &DeadExportArgs,
    count: u64,
    damaged: &[DamagedJob],
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    if let Some(file) = &args.output {
        if context.output.is_json() {
            let damaged: Vec<_> = damaged.iter().map(DamagedJobShape::new).collect();
            context
                .output
                .json(&json!({ "count": count, "file": file, "damaged": damaged }))?;
        } else {
            context.output.line(format!(
                "{} written to {}",
                counted(count, "dead letter"),
                file.display()
            ))?;
        }
    }
    warn_of_damaged(damaged, context.output);
    Ok(if damaged.is_empty() {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    })
}

enum ExportTarget {
    Stdout,
    /// A file that takes its name when it is complete.
    File(BufWriter<tempfile::NamedTempFile>, PathBuf),
}

impl ExportTarget {
    fn open(file: Option<&Path>) -> Result<Self, CliError> {
        let Some(path) = file else {
            return Ok(Self::Stdout);
        };
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or_else(|| Path::new("."));
        let unwritable = |error| {
            CliError::misuse(format!("{} cannot be written: {error}", path.display()))
                .advise("--output with a file in a folder that exists and can be written to")
        };
        let temporary = tempfile::NamedTempFile::new_in(folder).map_err(unwritable)?;
        Ok(Self::File(BufWriter::new(temporary), path.to_owned()))
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        let mut stdout;
        let target: &mut dyn Write = match self {
            Self::Stdout => {
                stdout = io::stdout().lock();
                &mut stdout
            }
            Self::File(file, _) => file,
        };
        target.write_all(line)?;
        target.write_all(b"\n")
    }

    fn finish(self) -> Result<(), CliError> {
        let Self::File(file, path) = self else {
            return Ok(());
        };
        let file = file
            .into_inner()
            .map_err(|error| CliError::new(error.into_error()))?;
        file.as_file().sync_all()?;
        let unnamed = |error: tempfile::PersistError| {
            CliError::new(format!(
                "{} cannot be written: {}",
                path.display(),
                error.error
            ))
        };
        file.persist(&path).map_err(unnamed)?;
        Ok(())
    }
}

#[derive(Serialize, Default)]
struct DeadImportReport {
    count: u64,
    same: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bad: Vec<BadImportLine>,
}

/// A line that was not taken in.
#[derive(Serialize)]
struct BadImportLine {
    line: u64,
    why: String,
}

/// Takes letters in, some at a time.
pub(super) async fn import(
    args: &DeadImportArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let mut input = open(&args.file)?;
    let backstop = context.open().await?;
    let dead = letters(&backstop, context).because(args.reason.reason());
    let (mut report, mut number, mut batch, mut bytes) =
        (DeadImportReport::default(), 0, Vec::new(), 0);
    while let Some(line) = next_line(&mut *input)? {
        number += 1;
        bytes += line.as_ref().map_or(0, Vec::len);
        match read(line, backstop.current_time().await) {
            None => continue,
            Some(Ok(letter)) => batch.push((number, letter)),
            Some(Err(why)) => report.bad.push(BadImportLine { line: number, why }),
        }
        if batch.len() >= BURY_MAX || bytes >= BATCH_BYTES {
            take_in(&dead, std::mem::take(&mut batch), &mut report).await?;
            bytes = 0;
        }
    }
    if !batch.is_empty() {
        take_in(&dead, batch, &mut report).await?;
    }
    report.bad.sort_by_key(|bad| bad.line);
    report.print(context)
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, CliError> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).map_err(|error| {
        CliError::misuse(format!("{} cannot be read: {error}", path.display()))
            .advise("backstop dead import with the path of a file that exists, or - for stdin")
    })?;
    Ok(Box::new(BufReader::new(file)))
}

/// The bytes of a line; an error for one that is too long to be a letter.
type ImportLine = Result<Vec<u8>, ImportLineTooLong>;

struct ImportLineTooLong;

/// The next line. One that is too long is read past.
fn next_line(input: &mut dyn BufRead) -> io::Result<Option<ImportLine>> {
    let mut line = Vec::new();
    let read = input
        .take(LETTER_BYTES_MAX as u64 + 1)
        .read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.len() <= LETTER_BYTES_MAX || line.ends_with(b"\n") {
        return Ok(Some(Ok(line)));
    }
    input.skip_until(b'\n')?;
    Ok(Some(Err(ImportLineTooLong)))
}

/// The letter of a line, if there is anything on it.
fn read(line: ImportLine, now: Time) -> Option<Result<ImportedDeadLetter, String>> {
    let Ok(line) = line else {
        return Some(Err(format!("longer than {LETTER_BYTES_MAX} bytes")));
    };
    if line.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    Some(ImportedDeadLetter::read(&line, now).map_err(|error| error.to_string()))
}

async fn take_in(
    dead: &DeadLetters,
    batch: Vec<(u64, ImportedDeadLetter)>,
    report: &mut DeadImportReport,
) -> Result<(), CliError> {
    let (numbers, letters): (Vec<u64>, Vec<ImportedDeadLetter>) = batch.into_iter().unzip();
    for (number, answer) in numbers.into_iter().zip(dead.import(letters).await?) {
        match answer {
            EnqueueOutcome::Inserted => report.count += 1,
            EnqueueOutcome::Same | EnqueueOutcome::Duplicate(_) => report.same += 1,
            EnqueueOutcome::Conflict => {
                report.bad.push(BadImportLine { line: number, why: "a job of another queue has its id".to_owned() });
            }
            EnqueueOutcome::Full => report.bad.push(BadImportLine {
                line: number,
                why: "its queue holds as many dead letters as it may; raise `dead.max`, or remove some"
                    .to_owned(),
            }),
        }
    }
    Ok(())
}

impl DeadImportReport {
    fn print(&self, context: &CliContext) -> Result<ExitStatus, CliError> {
        let output = context.output;
        if output.is_json() {
            output.json(self)?;
        } else {
            let known = if self.same > 0 {
                format!(", {} known already", self.same)
            } else {
                String::new()
            };
            output.line(format!(
                "{} taken in{known}",
                counted(self.count, "dead letter")
            ))?;
            for bad in self.bad.iter().take(BAD_LINES_SHOWN_MAX) {
                output.warn(format!("line {}: {}", bad.line, bad.why));
            }
            if self.bad.len() > BAD_LINES_SHOWN_MAX {
                output.warn(format!(
                    "… and {} more bad lines",
                    self.bad.len() - BAD_LINES_SHOWN_MAX
                ));
            }
        }
        Ok(if self.bad.is_empty() {
            ExitStatus::Success
        } else {
            ExitStatus::Failure
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_too_long_is_read_past() {
        let mut input = vec![b'1'; LETTER_BYTES_MAX + 7];
        input.extend_from_slice(b"\n2\n3");
        let mut input = &input[..];
        assert!(matches!(
            next_line(&mut input),
            Ok(Some(Err(ImportLineTooLong)))
        ));
        for expected in [&b"2\n"[..], b"3"] {
            assert!(matches!(next_line(&mut input), Ok(Some(Ok(line))) if line == expected));
        }
        assert!(matches!(next_line(&mut input), Ok(None)));
    }
}
