//! `backstop sweep`: look for work that was lost before it reached the queue, and give it jobs.

use super::reason::ReasonArgs;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::{CellTone, TextTable};
use crate::output::words::{about, count, relative};
use backstop::config::DEFAULT_FILE;
use backstop::sweeps::{PastRun, Sweep, SweepError, SweepReport, Sweeper};
use backstop::{Backstop, Time};
use backstop_server::wire::sweep::{SweepReportShape, SweepShape, SweepsShape};
use clap::Args;
use serde_json::{Map, Value, json};

/// Which, and how.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  backstop sweep --dry-run                        what all sweeps would do
  backstop sweep content_changes                  run one now
  backstop sweep content_changes --dry-run --at 2026-11-15T09:00:00Z --json
  backstop sweep --history                        what past runs found

A sweep is a query over your own tables for rows that are unprocessed and older than a threshold:

  [sweeps.content_changes]
  url = \"postgres://app@db.example.org/shop\"      # or sqlite:FILE, or mysql://…
  query = \"SELECT id FROM content_changes WHERE processed_at IS NULL AND created_at <= :cutoff\"
  older_than = \"1h\"                               # :cutoff is so long ago
  every = \"30m\"                                   # workers run it by themselves, one of them at a time
  queue = \"content\"
  kind = \"ProcessContentChange\"
  unique_key = \"content_change:{id}\"              # columns in braces, here and in payload
  payload = { id = \"{id}\" }
  max_per_run = 1000

A row whose job waits or runs is alive and left alone; one whose job is dead is for a person (`backstop dead list`); any
other gets a job, under its unique key, so that it never has two. Push with the same queue and key, and rows that were
enqueued in the first place are known too; jobs that were moved to another queue are not. A row that is found again
after `max_recoveries` (3) becomes a dead letter. To cancel its job does not settle a row: mark it as processed too, or it
gets another job.
On SQLite :cutoff is text such as 2026-11-15 08:00:00, in UTC. Compare other forms of dates with it as
`datetime(created_at) <= :cutoff`, or seconds since 1970 as `created_at <= unixepoch(:cutoff)`.
The query only reads, and is stopped after `timeout` (1m). Lists show the column `id`, or the first one.")]
pub(crate) struct SweepArgs {
    /// The sweep [default: all of the configuration]
    name: Option<String>,
    /// Only say what would be done
    #[arg(long, conflicts_with = "reason")]
    dry_run: bool,
    /// Look as if it were this time, in RFC 3339
    #[arg(long, value_name = "T")]
    at: Option<Time>,
    /// Show past runs instead
    #[arg(long, conflicts_with_all = ["dry_run", "at", "reason"])]
    history: bool,
    #[command(flatten)]
    reason: ReasonArgs,
}

/// Does what was asked for.
pub(crate) async fn run(args: &SweepArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let sweeps = select_sweeps(args.name.as_deref(), context)?;
    let changes = !args.dry_run && !args.history;
    let backstop = if changes {
        context.open().await?
    } else {
        context.open_for_reading().await?
    };
    if args.history {
        return history(&sweeps, &backstop, context).await;
    }
    let at = args.at.unwrap_or_else(|| backstop.now());
    let (mut shapes, mut status) = (Map::new(), ExitStatus::Success);
    for sweep in &sweeps {
        let sweeper = backstop.sweeper(sweep);
        let outcome = if args.dry_run {
            sweeper.dry_run(at).await
        } else {
            args.reason.changes(&backstop).sweep(sweep, at).await
        };
        if args.name.is_some() {
            return print_one(
                sweep,
                &outcome.map_err(|error| sweep_error(sweep, &error))?,
                args,
                context,
            );
        }
        let shape = match &outcome {
            Ok(report) => {
                status = worse(status, exit_status(report));
                serde_json::to_value(SweepReportShape::new(report, args.dry_run))
                    .map_err(CliError::new)?
            }
            Err(error) => {
                status = ExitStatus::Failure;
                json!({ "error": error.to_string() })
            }
        };
        if !context.output.is_json() {
            match &outcome {
                Ok(report) => print_report(sweep, report, args, context)?,
                Err(error) => context
                    .output
                    .warn(format!("sweep {}: {error}", sweep.name())),
            }
        }
        shapes.insert(sweep.name().to_owned(), shape);
    }
    if context.output.is_json() {
        context.output.json(&json!({ "sweeps": shapes }))?;
    }
    Ok(status)
}

/// The sweeps a command is about.
pub(super) fn select_sweeps(
    name: Option<&str>,
    context: &CliContext,
) -> Result<Vec<Sweep>, CliError> {
    let sweeps = &context.config.sweeps;
    let Some(name) = name else {
        if sweeps.is_empty() {
            return Err(
                CliError::misuse("there are no sweeps in the configuration").advise(format!(
                    "an entry [sweeps.NAME] in {DEFAULT_FILE}; see `backstop sweep --help`"
                )),
            );
        }
        return Ok(sweeps.values().cloned().collect());
    };
    let known: Vec<&str> = sweeps.keys().map(String::as_str).collect();
    sweeps
        .get(name)
        .map(|sweep| vec![sweep.clone()])
        .ok_or_else(|| {
            let there = if known.is_empty() {
                "there are none".to_owned()
            } else {
                format!("there are {}", known.join(", "))
            };
            CliError::misuse(format!(
                "there is no sweep {name} in the configuration; {there}"
            ))
            .advise(format!(
                "an entry [sweeps.{name}] in {DEFAULT_FILE}; see `backstop sweep --help`"
            ))
        })
}

fn sweep_error(sweep: &Sweep, error: &SweepError) -> CliError {
    CliError::new(format!("sweep {}: {error}", sweep.name()))
}

const fn worse(one: ExitStatus, other: ExitStatus) -> ExitStatus {
    match (one, other) {
        (ExitStatus::Success, ExitStatus::Success) => ExitStatus::Success,
        _ => ExitStatus::Failure,
    }
}

fn exit_status(report: &SweepReport) -> ExitStatus {
    let is_whole = report.unusable.is_empty() && report.refused.is_empty();
    if is_whole {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    }
}

fn print_one(
    sweep: &Sweep,
    report: &SweepReport,
    args: &SweepArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    if context.output.is_json() {
        context
            .output
            .json(&SweepReportShape::new(report, args.dry_run))?;
        warn_of_problems(sweep, report, context);
    } else {
        print_report(sweep, report, args, context)?;
    }
    Ok(exit_status(report))
}

fn print_report(
    sweep: &Sweep,
    report: &SweepReport,
    args: &SweepArgs,
    context: &CliContext,
) -> Result<(), CliError> {
    let number = |rows: &[Value]| count(rows.len() as u64);
    let (done, rows) = if args.dry_run {
        ("to enqueue", &report.would_enqueue)
    } else {
        ("enqueued", &report.enqueued)
    };
    context.output.line(format!(
        "{}: {} found, {} alive, {} dead, {} {done}{}",
        sweep.name(),
        number(&report.found),
        number(&report.alive),
        number(&report.dead),
        number(rows),
        if report.is_cut {
            "; there may be more"
        } else {
            ""
        },
    ))?;
    for row in rows {
        context.output.line(format!("  {row}"))?;
    }
    if report.unseen {
        context.output.note("there are more rows than a run can look at: what is lost behind these is not seen until they are done with");
    }
    if !report.dead.is_empty() {
        context
            .output
            .note(format!("try: backstop dead list --queue {}", sweep.queue()));
    }
    if !report.spent.is_empty() {
        let spent = number(&report.spent);
        context.output.note(format!(
            "{spent} have a job that ended and keeps its unique key; they are left alone"
        ));
    }
    warn_of_problems(sweep, report, context);
    Ok(())
}

/// What keeps rows from being recovered.
fn warn_of_problems(sweep: &Sweep, report: &SweepReport, context: &CliContext) {
    for unusable in &report.unusable {
        context.output.warn(format!(
            "sweep {}: row {}: {}",
            sweep.name(),
            unusable.row,
            unusable.why
        ));
    }
    if !report.refused.is_empty() {
        let (refused, queue) = (count(report.refused.len() as u64), sweep.queue());
        context.output.warn(format!(
            "sweep {}: queue {queue} is full and did not take {refused}",
            sweep.name()
        ));
    }
}

async fn history(
    sweeps: &[Sweep],
    backstop: &Backstop,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let mut all = Vec::new();
    for sweep in sweeps {
        let sweeper: Sweeper = backstop.sweeper(sweep);
        all.push((sweep, sweeper.history().await?));
    }
    if context.output.is_json() {
        let sweeps = all
            .iter()
            .map(|(sweep, runs)| (sweep.name(), SweepShape::runs(runs)))
            .collect();
        context.output.json(&SweepsShape { sweeps })?;
    } else if all.iter().all(|(_, runs)| runs.is_empty()) {
        context
            .output
            .note("no sweep has run yet; workers run them by themselves, `backstop sweep` by hand");
    } else {
        context.output.table(&table(&all, backstop.now()))?;
    }
    Ok(ExitStatus::Success)
}

fn table(all: &[(&Sweep, Vec<PastRun>)], now: Time) -> TextTable {
    let mut table = TextTable::new(&[
        "SWEEP", "WHEN", "TOOK", "FOUND", "ALIVE", "DEAD", "ENQUEUED", "GIVEN UP", "KEY KEPT",
        "REFUSED", "ERROR",
    ]);
    for (sweep, run) in all
        .iter()
        .flat_map(|(sweep, runs)| runs.iter().map(move |run| (sweep, run)))
    {
        let plain = |text: String| (text, CellTone::Plain);
        let number = |number: usize| plain(count(number as u64));
        table.styled_row([
            plain(sweep.name().to_owned()),
            plain(relative(run.at, now)),
            plain(about(run.took)),
            number(run.found),
            number(run.alive),
            number(run.dead),
            number(run.enqueued),
            number(run.buried),
            number(run.spent),
            number(run.refused),
            (run.error.clone().unwrap_or_default(), CellTone::Bad),
        ]);
    }
    table
}
