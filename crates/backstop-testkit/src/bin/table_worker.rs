//! A worker of a table made to be killed: `table_worker STORE DATABASE STARTS_FILE`. Works until no
//! row of BACKLOG is to be tried any more and all that are expired have become dead letters, or
//! somebody ends it.
//!
//! It says first within how many milliseconds a dead worker's rows run again. It writes the key of
//! every row that its handler begins with into a file of its own, outside the store and the table.

use backstop::tables::{OnExpired, Table, TableRow};
use backstop::{Backstop, RunError, Span};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, database, starts] = &arguments[..] else {
        return ExitCode::from(2);
    };
    match work(store, database, starts).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the table worker failed");
            ExitCode::FAILURE
        }
    }
}

async fn work(store: &str, database: &str, starts: &str) -> Result<(), Box<dyn std::error::Error>> {
    let backstop = Backstop::open(store).await?;
    let starts = Arc::new(Mutex::new(
        OpenOptions::new().create(true).append(true).open(starts)?,
    ));
    let table = Table::new("backlog", database, "BACKLOG")?
        .max_records(10_000)?
        .every(Span::secs(1))?
        .concurrency(16)?
        .on_expired(OnExpired::Dead)
        .handler(move |row: TableRow| handle(row, Arc::clone(&starts)));
    say(table.recovery_bound().as_millis());
    let adopted = backstop.adopted_table(&table);
    let worker = backstop.worker().table(table).start()?;
    loop {
        let status = adopted.status(backstop.now()).await?;
        let letters = backstop.dead().stats().await?.total;
        if status.new + status.error == status.expired && letters >= status.expired {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    worker.stop();
    worker.stopped().await;
    Ok(())
}

/// A few milliseconds of work.
async fn handle(row: TableRow, starts: Arc<Mutex<File>>) -> Result<(), RunError> {
    writeln!(
        starts.lock().unwrap_or_else(PoisonError::into_inner),
        "{}",
        row.key
    )?;
    tokio::time::sleep(Duration::from_millis(2)).await;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "whoever started it reads this")]
fn say(bound_ms: i64) {
    println!("{bound_ms}");
}
