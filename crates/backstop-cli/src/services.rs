//! What works beside the commands that serve: the worker and the streams of a configuration.

pub(crate) mod announce;
pub(crate) mod programs;
mod source;
mod stream;

pub(crate) use stream::ServedStream;

use crate::error::CliError;
use crate::output::CliOutput;
use backstop::config::{Config, DEFAULT_FILE, HandlerConfig, QueueConfig, TableConfig};
use backstop::sweeps::Sweep;
use backstop::tables::Table;
use backstop::{
    Backstop, InvalidHttp, QueueName, QueueSettings, RunningWorker, Span, WorkerBuilder,
    WorkerTiming,
};
use backstop_core::port::{Retention, StoreError};
use tokio_util::sync::CancellationToken;

pub(crate) struct HandledQueue {
    pub(crate) queue: QueueName,
    pub(crate) handler: HandlerConfig,
    pub(crate) settings: QueueSettings,
}

/// A worker with these queues, sweeps and tables, and the schedules of the configuration.
pub(crate) fn worker(
    backstop: &Backstop,
    handled_queues: &[HandledQueue],
    sweeps: &[Sweep],
    tables: &[Table],
    config: &Config,
) -> Result<WorkerBuilder, CliError> {
    let worker = sweeps
        .iter()
        .cloned()
        .fold(worker_builder(backstop, config), WorkerBuilder::sweep);
    let worker = tables.iter().cloned().fold(worker, WorkerBuilder::table);
    let mut worker = config
        .schedules
        .values()
        .cloned()
        .fold(worker, WorkerBuilder::schedule);
    for handled_queue in handled_queues {
        let queue = handled_queue.queue.as_str();
        worker = match &handled_queue.handler {
            HandlerConfig::Exec(exec) => worker.handle_queue(queue, exec.clone()),
            HandlerConfig::Http(http) => {
                let handler = http
                    .handler()
                    .map_err(|problem| http_handler_error(queue, &problem))?;
                worker.handle_queue(queue, handler)
            }
        };
        worker = worker.queue(queue, handled_queue.settings.clone());
    }
    Ok(worker)
}

/// A worker that lets its runs end for as long as the configuration says.
fn worker_builder(backstop: &Backstop, config: &Config) -> WorkerBuilder {
    backstop.worker().timing(WorkerTiming {
        grace: config.grace,
        ..WorkerTiming::default()
    })
}

/// The tables that the configuration gives a handler.
pub(crate) fn tables(config: &Config) -> Result<Vec<Table>, CliError> {
    let handled = config
        .tables
        .iter()
        .filter(|(_, table)| table.handler.is_some());
    let table = |(name, table): (&String, &TableConfig)| {
        table
            .with_handler()
            .map_err(|problem| CliError::misuse(format!("table {name}: {problem}")))
    };
    handled.map(table).collect()
}

/// A description that is right and yet leads nowhere, because of a file or the machine.
fn http_handler_error(queue: &str, problem: &InvalidHttp) -> CliError {
    CliError::misuse(format!("queue {queue}: {problem}")).advise(format!(
        "its handler in {DEFAULT_FILE} says how it is called; see `backstop work --help`"
    ))
}

/// Everything a configuration says is to be worked on here: its queues, streams, tables, sweeps and
/// schedules.
pub(crate) struct ConfiguredServices {
    worker: RunningWorker,
    streams: Vec<ServedStream>,
    tables: Vec<Table>,
}

impl ConfiguredServices {
    /// Starts it, or nothing of it.
    pub(crate) async fn start(backstop: &Backstop, config: &Config) -> Result<Self, CliError> {
        programs::check_all(config)?;
        let tables = tables(config)?;
        let worker = whole_worker(backstop, &tables, config)?;
        let mut streams = Vec::new();
        for (name, stream) in config
            .streams
            .iter()
            .filter(|(_, stream)| stream.handler.is_some())
        {
            match ServedStream::start(backstop, name, stream.clone()) {
                Ok(served) => streams.push(served),
                Err(error) => {
                    futures_util::future::join_all(streams.into_iter().map(ServedStream::stop))
                        .await;
                    return Err(error.add_context(format!("stream {name}")));
                }
            }
        }
        Ok(Self {
            worker: worker.start()?,
            streams,
            tables,
        })
    }

    /// What keeps house for workers elsewhere, and runs nothing. Schedules and sweeps are part of
    /// that: they put jobs into queues which others may serve.
    pub(crate) fn start_housekeeping(
        backstop: &Backstop,
        config: &Config,
    ) -> Result<Self, CliError> {
        let manage_queue = |worker: WorkerBuilder, (queue, entry): (&QueueName, &QueueConfig)| {
            worker.queue(queue.as_str(), entry.settings.clone())
        };
        let worker = worker(backstop, &[], &sweeps(config), &[], config)?;
        let worker = config.queues.iter().fold(worker, manage_queue);
        let worker = worker.maintain_other_queues(default_retention()).start()?;
        Ok(Self {
            worker,
            streams: Vec::new(),
            tables: Vec::new(),
        })
    }

    /// Says what it works on beside queues.
    pub(crate) fn announce(&self, config: &Config, output: CliOutput) {
        let streams = config
            .streams
            .iter()
            .filter(|(_, stream)| stream.handler.is_some());
        let streams: Vec<&str> = streams.map(|(name, _)| name.as_str()).collect();
        if !streams.is_empty() {
            output.announce(format!(
                "handlers of the configuration serve the streams {}",
                streams.join(", ")
            ));
        }
        announce::schedules(self.worker.name(), config, output);
        announce::sweeps(&sweeps(config), output);
        announce::tables(&self.tables, config, output);
    }

    /// Within which time a dead worker's job runs again.
    pub(crate) fn recovery_bound(&self) -> Span {
        self.worker.recovery_bound()
    }

    /// Whether its worker stops, or has stopped, because an operator asked for it.
    pub(crate) fn was_stopped_by_operator(&self) -> bool {
        self.worker.was_stopped_by_operator()
    }

    /// Whether everything that it needs is there; starts nothing.
    pub(crate) fn check(backstop: &Backstop, config: &Config) -> Result<(), CliError> {
        drop(whole_worker(backstop, &tables(config)?, config)?);
        for (name, stream) in &config.streams {
            ServedStream::check(stream)
                .map_err(|error| error.add_context(format!("stream {name}")))?;
        }
        Ok(())
    }

    /// Waits until the worker has ended, which it never should unless it is asked to. Safe to drop
    /// while waiting and to call again.
    pub(crate) async fn ended(&mut self) {
        self.worker.ended().await;
    }

    /// What the store said, if the worker ended because of that.
    pub(crate) fn refusal(&self) -> Option<StoreError> {
        self.worker.permission_error()
    }

    /// Whether the store ever let its worker work.
    pub(crate) fn was_served(&self) -> bool {
        self.worker.was_served()
    }

    /// Lets what runs end, and puts the rest by for others; once `force` is cancelled, what runs is
    /// called off and given back.
    pub(crate) async fn shut_down(self, force: CancellationToken) {
        let Self {
            mut worker,
            streams,
            ..
        } = self;
        worker.stop();
        let streams = futures_util::future::join_all(streams.into_iter().map(ServedStream::stop));
        tokio::select! {
            _ = futures_util::future::join(streams, worker.ended()) => return,
            () = force.cancelled() => {}
        }
        worker.force();
        worker.ended().await;
    }
}

/// A worker for all that has a handler, which keeps house for all that has none: workers elsewhere
/// rely on it.
fn whole_worker(
    backstop: &Backstop,
    tables: &[Table],
    config: &Config,
) -> Result<WorkerBuilder, CliError> {
    let handled_queues: Vec<HandledQueue> =
        config.queues.iter().filter_map(handled_queue).collect();
    let mut worker = worker(backstop, &handled_queues, &sweeps(config), tables, config)?;
    for (queue, entry) in config
        .queues
        .iter()
        .filter(|(_, entry)| entry.handler.is_none())
    {
        worker = worker.queue(queue.as_str(), entry.settings.clone());
    }
    Ok(worker.maintain_other_queues(default_retention()))
}

fn sweeps(config: &Config) -> Vec<Sweep> {
    config.sweeps.values().cloned().collect()
}

fn handled_queue((queue, entry): (&QueueName, &QueueConfig)) -> Option<HandledQueue> {
    let handler = entry.handler.clone()?;
    Some(HandledQueue {
        queue: queue.clone(),
        handler,
        settings: entry.settings.clone(),
    })
}

/// For queues without an entry: done jobs go as usual; what died or was cancelled stays for whoever
/// knows the queue.
fn default_retention() -> Retention {
    use backstop_core::limits::DELAY_MAX;
    Retention {
        cancelled_for: DELAY_MAX,
        dead_for: DELAY_MAX,
        ..Retention::default()
    }
}
