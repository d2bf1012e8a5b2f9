//! A process of the service, until its input ends.
//!
//! | role | handlers | schedules | sweeps |
//! |---|---|---|---|
//! | worker | all | all | |
//! | sweeper | | all | all |

use crate::config;
use crate::database::Database;
use crate::desk::Desk;
use crate::loss::Loss;
use crate::provider::Provider;
use crate::{complete, generate, initiate, process, send};
use anyhow::{Context, Result};
use backstop::config::Config;
use backstop::{Backstop, Durability, RunningWorker, Span, WorkerBuilder, WorkerTiming};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read, stdin};
use tokio::task::spawn_blocking;

/// What a process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs jobs.
    Worker,
    /// Looks for lost ones.
    Sweeper,
}

/// What a process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The `backstop.toml` it runs on; it names the database.
    pub config: String,
    /// The provider's address.
    pub provider: String,
    /// Which of its enqueues get lost.
    pub loss: Loss,
    /// Emails made in one go.
    pub email_batch: i64,
}

impl Setup {
    /// What its handlers need, and what it runs on.
    pub async fn desk(&self) -> Result<(Desk, Config)> {
        let config = config::read(&self.config)?;
        let url = config.store.as_written();
        let backstop = Backstop::connect(url, Durability::Full).await?;
        let (database, provider) = (Database::at(url), Provider::at(&self.provider)?);
        let desk = Desk {
            backstop,
            database,
            provider,
            loss: self.loss,
            email_batch: self.email_batch,
        };
        Ok((desk, config))
    }
}

/// Works until the input ends: whoever started it is gone then, or wants it to stop. The first line
/// of it is role and setup; an argument or a variable would show the database's password to others.
pub async fn work() -> Result<()> {
    let (role, setup): (Role, Setup) = spawn_blocking(first_line).await??;
    let (desk, config) = setup.desk().await?;
    let running = start(role, desk, &config)?;
    spawn_blocking(|| stdin().lock().read_to_end(&mut Vec::new())).await??;
    running.stop();
    running.stopped().await;
    Ok(())
}

fn first_line() -> Result<(Role, Setup)> {
    let mut line = String::new();
    stdin().lock().read_line(&mut line)?;
    serde_json::from_str(&line).context("a worker needs its setup on its input")
}

fn start(role: Role, desk: Desk, config: &Config) -> Result<RunningWorker> {
    let timing = WorkerTiming {
        poll: Span::millis(500),
        maintenance_interval: Span::millis(500),
        ..WorkerTiming::default()
    };
    let process = desk.backstop.worker().timing(timing).state(desk);
    let process = config
        .schedules
        .values()
        .cloned()
        .fold(process, WorkerBuilder::schedule);
    let process = match role {
        Role::Worker => working(process, config),
        Role::Sweeper => config
            .sweeps
            .values()
            .cloned()
            .fold(process, WorkerBuilder::sweep),
    };
    Ok(process.start()?)
}

fn working(builder: WorkerBuilder, config: &Config) -> WorkerBuilder {
    let queues = config.queues.iter();
    let served = queues.fold(builder, |builder, (queue, served)| {
        builder.queue(queue.as_str(), served.settings.clone())
    });
    served
        .handle(process::content_change)
        .handle(process::message)
        .handle(initiate::daily)
        .handle(initiate::weekly)
        .handle(generate::digest)
        .handle(complete::mark)
        .handle(send::email)
        .handle(send::transactional)
}
