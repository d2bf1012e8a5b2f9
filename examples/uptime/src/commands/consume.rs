//! Takes results from a file, from requests, or from a topic.

use super::told;
use crate::args::ConsumeArgs;
use anyhow::{Context, Result};
use serde_json::json;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::ExitCode;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use uptime::clock::Clock;
use uptime::consumer::{Consumer, Totals};
use uptime::intake::Intake;
use uptime::limits::BATCH_RESULTS_MAX;
use uptime::lines::Lines;
use uptime::memory::Durability;
use uptime::mode::Setup;
use uptime::sequencer::Hold;

pub(crate) fn consume(args: &ConsumeArgs) -> Result<ExitCode> {
    let setup = Setup {
        mode: args.mode,
        directory: args.directory.clone(),
        memory: args.memory.clone(),
        store: args.store.clone().unwrap_or_else(|| beside(&args.memory)),
        stream: args.stream.clone(),
        durability: Durability::Full,
        clock: Clock::wall(),
    };
    let directory = setup.directory()?;
    let mut consumer = Consumer::new(
        setup.memory()?,
        directory.clone(),
        setup.sequencer(directory)?,
    );
    let (totals, hold) = if let Some(path) = &args.source.file {
        let totals = from_file(path, &mut consumer, &setup.clock)?;
        if args.drain {
            consumer.drain()?;
        }
        (totals, consumer.finish()?)
    } else {
        let intake = Intake::new(consumer, setup.clock);
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(serve(args, &intake))?;
        intake.close(args.drain)?
    };
    show(args, &totals, hold)?;
    // What could be taken was taken; somebody must look at the rest.
    Ok(if totals.counts.broken == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The store's file, if none is named: it belongs to the memory, and is not the same file.
fn beside(memory: &Path) -> String {
    format!("sqlite:{}", memory.with_extension("stream.db").display())
}

fn from_file(path: &Path, consumer: &mut Consumer, clock: &Clock) -> Result<Totals> {
    let mut totals = Totals::default();
    let mut lines = Lines::new(input(path)?);
    loop {
        let batch = lines
            .batch(BATCH_RESULTS_MAX)
            .context("the file cannot be read on")?;
        if batch.is_empty() {
            return Ok(totals);
        }
        let (numbers, results): (Vec<u64>, Vec<_>) = batch.into_iter().unzip();
        let taken = consumer.take(results, clock.now_ms())?;
        for (place, broken) in &taken.broken {
            eprintln!("line {}: {broken}", numbers[*place]);
        }
        totals.add(&taken);
    }
}

fn input(path: &Path) -> Result<Box<dyn BufRead>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(Box::new(BufReader::new(file)))
}

async fn serve(args: &ConsumeArgs, intake: &Intake) -> Result<()> {
    let stop = interrupted()?;
    #[cfg(feature = "kafka")]
    if let Some(settings) = args.kafka() {
        eprintln!(
            "reading {} from {}",
            settings.topics.join(", "),
            settings.brokers
        );
        return uptime::kafka::serve(&settings, intake.clone(), stop).await;
    }
    let address = args.source.http.context("no source")?;
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))?;
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() {
        eprintln!("whoever reaches {address} can bring results");
    }
    eprintln!("listening on http://{address}/results");
    Ok(uptime::http::serve(listener, intake.clone(), stop).await?)
}

/// Ends when somebody wants this process to end.
fn interrupted() -> Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

fn show(args: &ConsumeArgs, totals: &Totals, hold: Option<Hold>) -> Result<()> {
    if args.json {
        let tagged = |(tags, count)| json!({ "tags": tags, "count": count });
        let by_tags: Vec<_> = totals.by_tags.iter().map(tagged).collect();
        let told = json!({ "counts": totals.counts, "by_tags": by_tags, "hold": hold });
        println!("{}", serde_json::to_string(&told)?);
        return Ok(());
    }
    println!("{}", told(&totals.counts));
    if let Some(held) = hold
        .map(|hold| hold.added - hold.removed)
        .filter(|held| *held > 0)
    {
        println!("{held} are held until their turn; whoever consumes next goes on with them");
    }
    Ok(())
}
