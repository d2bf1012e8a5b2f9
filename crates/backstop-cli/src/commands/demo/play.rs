//! The workload that plays itself: four systems, all failing and recovering, for as long as it is
//! held.
//!
//! What happens when is decided by numbers and by [`DemoOutages`], not by chance: every demo shows
//! the same within minutes.

mod app;
mod config;
mod jobs;
mod outages;
mod redrive;
mod sites;
mod worker_killer;

use crate::commands::demo::workload::QUEUES;
use crate::error::CliError;
use app::DemoShop;
use backstop::config::Config;
use backstop::streams::{RunningStream, dead_letter_queue};
use backstop::{Backstop, RunningWorker, StoreAddress, WorkerBuilder};
pub(super) use config::config;
use outages::DemoOutages;
use std::path::Path;
use std::sync::Arc;
use tokio::task::JoinSet;

/// What plays. Dropped, it stops where it stands, as a process that is killed would.
pub(super) struct DemoSession {
    worker: RunningWorker,
    stream: Arc<RunningStream>,
    players: JoinSet<()>,
}

impl DemoSession {
    /// Starts everything on `backstop`; the demo's own application keeps its tables in `folder`.
    pub(super) fn start(
        backstop: &Backstop,
        address: &StoreAddress,
        config: &Config,
        folder: &Path,
        file: &Path,
    ) -> Result<Self, CliError> {
        let app = DemoShop::open(&config::app_file(folder))?;
        let outages = DemoOutages::start();
        let stream = Arc::new(sites::serve(backstop, config)?);
        let worker = worker(backstop, config, &app, outages, &stream)?.start()?;
        let mut players = JoinSet::new();
        for queue in &QUEUES {
            players.spawn(jobs::produce(backstop.clone(), queue));
        }
        players.spawn(app::trade(backstop.clone(), app.clone()));
        players.spawn(app::bill(app));
        players.spawn(sites::watch(backstop.clone(), Arc::clone(&stream)));
        players.spawn(redrive::run_periodically(backstop.clone()));
        if let Some(vanishing) = worker_killer::WorkerKiller::new(address, file)? {
            players.spawn(vanishing.run_periodically());
        }
        Ok(Self {
            worker,
            stream,
            players,
        })
    }

    /// Lets what runs come to its end.
    pub(super) async fn stop(mut self) {
        self.players.shutdown().await;
        self.worker.stop();
        self.worker.ended().await;
        if let Ok(stream) = Arc::try_unwrap(self.stream).map_err(drop) {
            stream.stop().await;
        }
    }
}

/// One worker for everything that is not ordered.
fn worker(
    backstop: &Backstop,
    config: &Config,
    app: &DemoShop,
    outages: DemoOutages,
    stream: &RunningStream,
) -> Result<WorkerBuilder, CliError> {
    let mut worker = config
        .schedules
        .values()
        .cloned()
        .fold(backstop.worker(), WorkerBuilder::schedule);
    worker = config
        .sweeps
        .values()
        .cloned()
        .fold(worker, WorkerBuilder::sweep);
    for table in config.tables.values() {
        worker = worker.table(table.table.clone().handler(app::invoice));
    }
    for (name, queue) in &config.queues {
        worker = worker.queue(name.as_str(), queue.settings.clone());
    }
    for queue in &QUEUES {
        worker = worker.handle_raw(queue.name, move |run| jobs::handle(queue, outages, run));
    }
    let orders = app.clone();
    worker = worker.handle_raw("orders", move |run| app::fulfil(orders.clone(), run));
    worker = worker.handle_raw("reports", jobs::report);
    let letters = dead_letter_queue(&sites::stream()?);
    Ok(worker.handle_queue(letters.as_str(), stream.dead_letter_handler()))
}
