//! What each command does.
#![expect(
    clippy::cast_precision_loss,
    reason = "figures are shown with few digits"
)]

mod consume;

use crate::args::{GenerateArgs, OutputArgs, RunArgs, WorkerArgs};
use anyhow::{Context, Result, ensure};
pub(crate) use consume::consume;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;
use uptime::consumer::Counts;
use uptime::memory::{Durability, Incident, Memory, SqliteMemory};
use uptime::mode::{Mode, Setup};
use uptime::report::{self, Figures, Summary};
use uptime::run::{Options, SLACK_MS, play, worker};
use uptime::svg;
use uptime::world::World;

pub(crate) fn generate(args: &GenerateArgs) -> Result<ExitCode> {
    let world = uptime::generate::generate(&args.plan.plan())?;
    world.write(&args.out)?;
    let summary = Summary::of(&world);
    if args.json {
        println!("{}", serde_json::to_string(&summary)?);
    } else {
        println!("{}\nin {}", summary.text(), args.out.display());
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    let world = match &args.world {
        Some(folder) => World::read(folder)?,
        None => uptime::generate::generate(&args.plan.plan())?,
    };
    let summary = Summary::of(&world);
    if !args.json {
        println!("{}", summary.text());
    }
    let scratch = tempfile::tempdir()?;
    let folder = args.keep.as_deref().unwrap_or(scratch.path());
    let seen = world.seen();
    let mut options = Options {
        program: std::env::current_exe().context("this program does not know where it is")?,
        mode: Mode::Immediate,
        store: args.store.clone(),
        workers: args.workers,
        speed: args.speed,
        dealing: args.dealing,
    };
    let (mut figures, mut broken) = (Vec::new(), Vec::new());
    for mode in args.mode.modes() {
        options.mode = *mode;
        let bar = progress_bar(*mode, world.trace.len());
        let ran = play(&world, &seen, &options, folder, &|taken| {
            bar.set_position(taken as u64);
        })?;
        bar.finish_and_clear();
        figures.push(report::measure(&world, &seen, *mode, &ran));
        broken = ran.broken;
    }
    show(args, &summary, &figures, &broken)?;
    if let Some(path) = &args.svg {
        fs::write(path, svg::draw(&summary, &figures))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(args: &RunArgs, summary: &Summary, figures: &[Figures], broken: &[String]) -> Result<()> {
    if args.json {
        let run = json!({ "world": summary, "workers": args.workers, "runs": figures });
        println!("{}", serde_json::to_string(&run)?);
        return Ok(());
    }
    println!("\n{}\n", report::table(figures));
    for run in figures {
        println!("{}: {}", run.mode, told(&run.counts));
    }
    for broken in broken {
        println!("  broken: {broken}");
    }
    for run in figures {
        let (took_s, behind_s) = (run.took_ms as f64 / 1000.0, run.behind_ms as f64 / 1000.0);
        println!(
            "{}: {} worker processes, {took_s:.1} s, up to {behind_s:.1} s behind",
            run.mode, args.workers
        );
        if run.behind_ms >= SLACK_MS {
            println!(
                "  too far: delays and misses may be this machine's doing; try a lower --speed"
            );
        }
    }
    Ok(())
}

pub(crate) fn output(args: &OutputArgs) -> Result<ExitCode> {
    ensure!(
        args.memory.exists(),
        "there is no {}",
        args.memory.display()
    );
    let mut memory = SqliteMemory::open(&args.memory, Durability::Full)?;
    match write_all(&mut memory, args.incidents, &mut io::stdout().lock()) {
        // Whoever reads has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        written => written.map(|()| ExitCode::SUCCESS),
    }
}

fn write_all(memory: &mut dyn Memory, incidents: bool, out: &mut impl Write) -> Result<()> {
    if incidents {
        for Incident {
            detector,
            opened_ms,
            closed_ms,
        } in memory.incidents()?
        {
            let incident =
                json!({ "detector": detector, "opened_ms": opened_ms, "closed_ms": closed_ms });
            writeln!(out, "{incident}")?;
        }
        return Ok(());
    }
    let mut after = 0;
    loop {
        let page = memory.lines(after)?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = last.seq;
        for line in page {
            writeln!(out, "{}", line.line)?;
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

pub(crate) fn worker(args: &WorkerArgs) -> Result<ExitCode> {
    let setup = Setup {
        mode: args.mode,
        directory: args.directory.clone(),
        memory: args.memory.clone(),
        store: args.store.clone(),
        stream: args.stream.clone(),
        durability: Durability::Relaxed,
        clock: args.clock,
    };
    worker::work(&setup, &mut io::stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}

fn progress_bar(mode: Mode, results: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:9} {bar:40} {pos}/{len} results, {elapsed}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(results as u64)
        .with_style(style)
        .with_prefix(mode.to_string())
}

/// Counts in words, without those that are 0.
fn told(counts: &Counts) -> String {
    let told = [
        (counts.received, "received"),
        (counts.broken, "broken"),
        (counts.unknown_subscription, "of unknown subscriptions"),
        (counts.disallowed_by_robots, "disallowed by robots"),
        (counts.shadow_region, "from a shadow region"),
        (counts.no_detector, "without a detector"),
        (counts.detector_disabled, "of disabled detectors"),
        (counts.feature_off, "without the feature"),
        (counts.admitted, "admitted"),
        (counts.offered.handled, "handled at once"),
        (counts.offered.held, "held"),
        (counts.offered.duplicates, "dropped as duplicates"),
        (counts.offered.late, "dropped as too late"),
        (counts.offered.amended, "taken as corrections"),
        (counts.offered.ignored, "of disabled keys"),
        (counts.offered.dead, "dead letters"),
    ];
    let told = told
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"));
    told.collect::<Vec<_>>().join(", ")
}
