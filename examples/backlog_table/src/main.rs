//! Shows when the rows of a backlog table are tried.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use anyhow::{Context, Result};
use backlog_table::{ARTICLE, FRESH, Played, Sample, Strategy, chart, first_run, play, svg};
use backstop::Span;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;

/// A backlog table that somebody has already, worked off by two strategies: when its rows are tried
/// in 360 days.
#[derive(Parser)]
struct Args {
    /// How many days are played
    #[arg(long, default_value_t = 360, value_parser = clap::value_parser!(u16).range(1..=360))]
    days: u16,
    /// Draw it as well
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let (rows, due) = first_run().await?;
    println!("One run over the table; the service is down for 1 and 4:\n");
    for ((id, status), row) in rows.iter().zip(ARTICLE) {
        println!("  {id}  {:>4} old  NEW → {status}", row.age.to_string());
    }
    let due: Vec<String> = due.iter().map(ToString::to_string).collect();
    println!(
        "\nA minute later {} are due again. If every try fails, for {} days:\n",
        due.join(" and "),
        args.days
    );
    let samples: Vec<Sample> = [FRESH].into_iter().chain(ARTICLE).collect();
    let mut all = Vec::new();
    for strategy in Strategy::ALL {
        let played = show(strategy, &samples, args.days).await?;
        println!("{}", chart::draw(&played, &samples));
        println!(
            "{} passes; in the end {} of {} rows are expired\n",
            played.passes,
            played.expired,
            samples.len()
        );
        all.push(played);
    }
    if let Some(file) = args.svg {
        std::fs::write(&file, svg::draw(&all, &samples))
            .with_context(|| format!("{} could not be written", file.display()))?;
    }
    Ok(())
}

/// Plays with a bar that shows how far it is.
async fn show(strategy: Strategy, samples: &[Sample], days: u16) -> Result<Played> {
    let bar = ProgressBar::new(u64::from(days));
    if let Ok(style) = ProgressStyle::with_template("{bar:32.cyan/dim} day {pos} of {len}  {msg}") {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar.set_message(strategy.name());
    let day = |after: Span| bar.set_position(after.as_millis().unsigned_abs() / 86_400_000);
    let played = play(samples, strategy, Span::days(days.into()), day).await;
    bar.finish_and_clear();
    played
}
