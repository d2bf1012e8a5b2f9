//! Typed tasks, shared state, retries and a graceful stop: `cargo run -p backstop --example
//! emails`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use backstop::{Backstop, QueueSettings, Run, RunError, Span, Task};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Serialize, Deserialize)]
struct Welcome {
    to: String,
}

impl Task for Welcome {
    const KIND: &'static str = "welcome";
    const QUEUE: &'static str = "emails";
}

#[derive(Serialize, Deserialize)]
struct Digest {
    to: String,
    articles: Vec<u64>,
}

impl Task for Digest {
    const KIND: &'static str = "digest";
    const QUEUE: &'static str = "emails";
}

/// Stands for a client of a mail service.
#[derive(Clone, Default)]
struct Mailer {
    sent: Arc<AtomicU32>,
}

impl Mailer {
    async fn send(&self, to: &str, key: &str) -> Result<(), std::io::Error> {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        if to.ends_with("@unreachable.example") {
            return Err(std::io::Error::other("connection refused"));
        }
        self.sent.fetch_add(1, Ordering::Relaxed);
        println!("sent to {to} (idempotency key {key})");
        Ok(())
    }
}

async fn welcome(task: Welcome, run: Run) -> Result<(), RunError> {
    if !task.to.contains('@') {
        return Err(RunError::dead(format!("`{}` is not an address", task.to)));
    }
    // The id is the same in every run of the job: a service that takes it sends once, however often
    // we ask.
    run.state::<Mailer>()?
        .send(&task.to, &run.id().to_string())
        .await?;
    Ok(())
}

async fn digest(task: Digest, run: Run) -> Result<(), RunError> {
    if task.articles.is_empty() {
        return Err(RunError::snooze(Span::minutes(5)));
    }
    run.state::<Mailer>()?
        .send(&task.to, &run.id().to_string())
        .await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backstop = Backstop::open("memory:").await?;
    for to in ["ada@example.org", "nobody", "grace@unreachable.example"] {
        backstop.push(&Welcome { to: to.to_owned() }).await?;
    }
    let weekly = Digest {
        to: "ada@example.org".to_owned(),
        articles: vec![1, 2, 3],
    };
    backstop
        .draft(Digest::QUEUE)
        .task(&weekly)
        .unique_key("digest:ada")
        .after(Span::millis(300))
        .push()
        .await?;

    let mailer = Mailer::default();
    let settings = QueueSettings {
        concurrency: 16,
        timeout: Some(Span::secs(30)),
        ..QueueSettings::default()
    };
    let worker = backstop
        .worker()
        .state(mailer.clone())
        .handle(welcome)
        .handle(digest)
        .queue("emails", settings)
        .start()?;
    println!(
        "a dead worker's job runs again within {}",
        worker.recovery_bound()
    );

    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    worker.stop();
    let progress = worker.stopped().await;
    println!(
        "{} sent, {} tried again, {} dead",
        progress.done, progress.retried, progress.dead
    );
    Ok(())
}
