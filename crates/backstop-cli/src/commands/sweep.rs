//! `backstop sweep`: look for work that was lost before it reached the queue, and give it jobs.

use super::because::Because;
use crate::context::Context;
use crate::output::table::{Table, Tone};
use crate::output::words::{about, count, relative};
use crate::trouble::{Trouble, Verdict};
use backstop::config::USUAL_FILE;
use backstop::sweeps::{PastRun, Report, Sweep, SweepError, Sweeper};
use backstop::{Backstop, Time};
use backstop_server::wire::sweep::{ReportShape, SweepShape, SweepsShape};
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
    because: Because,
}

/// Does what was asked for.
pub(crate) async fn run(args: &SweepArgs, context: &Context) -> Result<Verdict, Trouble> {
    let sweeps = chosen(args.name.as_deref(), context)?;
    let changes = !args.dry_run && !args.history;
    let backstop = if changes {
        context.open().await?
    } else {
        context.look().await?
    };
    if args.history {
        return history(&sweeps, &backstop, context).await;
    }
    let at = args.at.unwrap_or_else(|| backstop.now());
    let (mut shapes, mut verdict) = (Map::new(), Verdict::Fine);
    for sweep in &sweeps {
        let sweeper = backstop.sweeper(sweep);
        let outcome = if args.dry_run {
            sweeper.dry_run(at).await
        } else {
            args.because.changes(&backstop).sweep(sweep, at).await
        };
        if args.name.is_some() {
            return tell_one(
                sweep,
                &outcome.map_err(|error| failed(sweep, &error))?,
                args,
                context,
            );
        }
        let shape = match &outcome {
            Ok(report) => {
                verdict = worse(verdict, of(report));
                serde_json::to_value(ReportShape::new(report, args.dry_run))
                    .map_err(Trouble::new)?
            }
            Err(error) => {
                verdict = Verdict::FallsShort;
                json!({ "error": error.to_string() })
            }
        };
        if !context.output.is_json() {
            match &outcome {
                Ok(report) => tell(sweep, report, args, context)?,
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
    Ok(verdict)
}

/// The sweeps a command is about.
pub(super) fn chosen(name: Option<&str>, context: &Context) -> Result<Vec<Sweep>, Trouble> {
    let sweeps = &context.config.sweeps;
    let Some(name) = name else {
        if sweeps.is_empty() {
            return Err(
                Trouble::misuse("there are no sweeps in the configuration").advise(format!(
                    "an entry [sweeps.NAME] in {USUAL_FILE}; see `backstop sweep --help`"
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
            Trouble::misuse(format!(
                "there is no sweep {name} in the configuration; {there}"
            ))
            .advise(format!(
                "an entry [sweeps.{name}] in {USUAL_FILE}; see `backstop sweep --help`"
            ))
        })
}

fn failed(sweep: &Sweep, error: &SweepError) -> Trouble {
    Trouble::new(format!("sweep {}: {error}", sweep.name()))
}

const fn worse(one: Verdict, other: Verdict) -> Verdict {
    match (one, other) {
        (Verdict::Fine, Verdict::Fine) => Verdict::Fine,
        _ => Verdict::FallsShort,
    }
}

fn of(report: &Report) -> Verdict {
    let is_whole = report.unusable.is_empty() && report.refused.is_empty();
    if is_whole {
        Verdict::Fine
    } else {
        Verdict::FallsShort
    }
}

fn tell_one(
    sweep: &Sweep,
    report: &Report,
    args: &SweepArgs,
    context: &Context,
) -> Result<Verdict, Trouble> {
    if context.output.is_json() {
        context
            .output
            .json(&ReportShape::new(report, args.dry_run))?;
        complain(sweep, report, context);
    } else {
        tell(sweep, report, args, context)?;
    }
    Ok(of(report))
}

fn tell(
    sweep: &Sweep,
    report: &Report,
    args: &SweepArgs,
    context: &Context,
) -> Result<(), Trouble> {
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
    complain(sweep, report, context);
    Ok(())
}

/// What keeps rows from being recovered.
fn complain(sweep: &Sweep, report: &Report, context: &Context) {
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
    context: &Context,
) -> Result<Verdict, Trouble> {
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
    Ok(Verdict::Fine)
}

fn table(all: &[(&Sweep, Vec<PastRun>)], now: Time) -> Table {
    let mut table = Table::new(&[
        "SWEEP", "WHEN", "TOOK", "FOUND", "ALIVE", "DEAD", "ENQUEUED", "GIVEN UP", "KEY KEPT",
        "REFUSED", "ERROR",
    ]);
    for (sweep, run) in all
        .iter()
        .flat_map(|(sweep, runs)| runs.iter().map(move |run| (sweep, run)))
    {
        let plain = |text: String| (text, Tone::Plain);
        let number = |number: usize| plain(count(number as u64));
        table.toned([
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
            (run.error.clone().unwrap_or_default(), Tone::Bad),
        ]);
    }
    table
}
