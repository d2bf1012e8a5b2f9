//! Tells the story of the detection pipeline on a store of its own.

use backstop::Backstop;
use clap::Parser;
use detection::Options;
use std::time::Duration;

/// Cameras, a flaky detector and an analysis behind it: retries, a breaker, dead letters and a
/// redrive.
#[derive(Parser)]
struct Args {
    /// The store; a new SQLite file that is removed at the end, unless named. It must be empty.
    #[arg(long)]
    store: Option<String>,
    /// Pictures on a good day, and as many again in the outage
    #[arg(long, default_value_t = 200)]
    pictures: u64,
    /// Seconds the outage lasts
    #[arg(long, default_value_t = 3)]
    outage: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let directory = tempfile::tempdir()?;
    let own = format!("sqlite:{}", directory.path().join("detection.db").display());
    let backstop = Backstop::open(args.store.as_deref().unwrap_or(&own)).await?;
    let outage = Duration::from_secs(args.outage);
    detection::run(
        backstop,
        Options {
            pictures: args.pictures,
            raw_pictures: 30,
            outage,
            quiet: false,
        },
    )
    .await?;
    Ok(())
}
