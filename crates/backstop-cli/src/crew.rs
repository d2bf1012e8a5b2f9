//! What works beside the commands that serve: the worker and the streams of a configuration.

pub(crate) mod announce;
pub(crate) mod programs;
mod source;
mod stream;

pub(crate) use stream::ServedStream;

use crate::output::Output;
use crate::trouble::Trouble;
use backstop::config::{Config, HandlerConfig, QueueConfig, TableConfig, USUAL_FILE};
use backstop::sweeps::Sweep;
use backstop::tables::Table;
use backstop::{Backstop, BadHttp, QueueName, QueueSettings, Running, Span, Timing, WorkerBuilder};
use backstop_core::port::{Shelf, StoreError};
use tokio_util::sync::CancellationToken;

/// One queue to serve.
pub(crate) struct Lane {
    pub(crate) queue: QueueName,
    pub(crate) handler: HandlerConfig,
    pub(crate) settings: QueueSettings,
}

/// A worker with these queues, sweeps and tables, and the schedules of the configuration.
pub(crate) fn worker(
    backstop: &Backstop,
    lanes: &[Lane],
    sweeps: &[Sweep],
    tables: &[Table],
    config: &Config,
) -> Result<WorkerBuilder, Trouble> {
    let worker = sweeps
        .iter()
        .cloned()
        .fold(patient(backstop, config), WorkerBuilder::sweep);
    let worker = tables.iter().cloned().fold(worker, WorkerBuilder::table);
    let mut worker = config
        .schedules
        .values()
        .cloned()
        .fold(worker, WorkerBuilder::schedule);
    for lane in lanes {
        let queue = lane.queue.as_str();
        worker = match &lane.handler {
            HandlerConfig::Exec(exec) => worker.handle_queue(queue, exec.clone()),
            HandlerConfig::Http(http) => {
                let handler = http
                    .handler()
                    .map_err(|problem| uncallable(queue, &problem))?;
                worker.handle_queue(queue, handler)
            }
        };
        worker = worker.queue(queue, lane.settings.clone());
    }
    Ok(worker)
}

/// A worker that lets its runs end for as long as the configuration says.
fn patient(backstop: &Backstop, config: &Config) -> WorkerBuilder {
    backstop.worker().timing(Timing {
        grace: config.grace,
        ..Timing::default()
    })
}

/// The tables that the configuration gives a handler.
pub(crate) fn tables(config: &Config) -> Result<Vec<Table>, Trouble> {
    let handled = config
        .tables
        .iter()
        .filter(|(_, table)| table.handler.is_some());
    let table = |(name, table): (&String, &TableConfig)| {
        table
            .handled()
            .map_err(|problem| Trouble::misuse(format!("table {name}: {problem}")))
    };
    handled.map(table).collect()
}

/// A description that is right and yet leads nowhere, because of a file or the machine.
fn uncallable(queue: &str, problem: &BadHttp) -> Trouble {
    Trouble::misuse(format!("queue {queue}: {problem}")).advise(format!(
        "its handler in {USUAL_FILE} says how it is called; see `backstop work --help`"
    ))
}

/// Everything a configuration says is to be worked on here: its queues, streams, tables, sweeps and
/// schedules.
pub(crate) struct Crew {
    worker: Running,
    streams: Vec<ServedStream>,
    tables: Vec<Table>,
}

impl Crew {
    /// Starts it, or nothing of it.
    pub(crate) async fn start(backstop: &Backstop, config: &Config) -> Result<Self, Trouble> {
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
                Err(trouble) => {
                    futures_util::future::join_all(streams.into_iter().map(ServedStream::stop))
                        .await;
                    return Err(trouble.about(format!("stream {name}")));
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
    pub(crate) fn at_rest(backstop: &Backstop, config: &Config) -> Result<Self, Trouble> {
        let minded = |worker: WorkerBuilder, (queue, entry): (&QueueName, &QueueConfig)| {
            worker.queue(queue.as_str(), entry.settings.clone())
        };
        let worker = worker(backstop, &[], &sweeps(config), &[], config)?;
        let worker = config.queues.iter().fold(worker, minded);
        let worker = worker.keep_house(usual_shelf()).start()?;
        Ok(Self {
            worker,
            streams: Vec::new(),
            tables: Vec::new(),
        })
    }

    /// Says what it works on beside queues.
    pub(crate) fn announce(&self, config: &Config, output: Output) {
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
    pub(crate) fn was_asked_to_stop(&self) -> bool {
        self.worker.was_asked_to_stop()
    }

    /// Whether everything that it needs is there; starts nothing.
    pub(crate) fn check(backstop: &Backstop, config: &Config) -> Result<(), Trouble> {
        drop(whole_worker(backstop, &tables(config)?, config)?);
        for (name, stream) in &config.streams {
            ServedStream::check(stream)
                .map_err(|trouble| trouble.about(format!("stream {name}")))?;
        }
        Ok(())
    }

    /// Waits until the worker has ended, which it never should unless it is asked to. Safe to drop
    /// while waiting and to call again.
    pub(crate) async fn broken(&mut self) {
        self.worker.ended().await;
    }

    /// What the store said, if the worker ended because of that.
    pub(crate) fn refused(&self) -> Option<StoreError> {
        self.worker.refused()
    }

    /// Whether the store ever let its worker work.
    pub(crate) fn was_served(&self) -> bool {
        self.worker.was_served()
    }

    /// Lets what runs end, and puts the rest by for others; once `force` is cancelled, what runs is
    /// called off and given back.
    pub(crate) async fn dismiss(self, force: CancellationToken) {
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
) -> Result<WorkerBuilder, Trouble> {
    let lanes: Vec<Lane> = config.queues.iter().filter_map(lane).collect();
    let mut worker = worker(backstop, &lanes, &sweeps(config), tables, config)?;
    for (queue, entry) in config
        .queues
        .iter()
        .filter(|(_, entry)| entry.handler.is_none())
    {
        worker = worker.queue(queue.as_str(), entry.settings.clone());
    }
    Ok(worker.keep_house(usual_shelf()))
}

fn sweeps(config: &Config) -> Vec<Sweep> {
    config.sweeps.values().cloned().collect()
}

fn lane((queue, entry): (&QueueName, &QueueConfig)) -> Option<Lane> {
    let handler = entry.handler.clone()?;
    Some(Lane {
        queue: queue.clone(),
        handler,
        settings: entry.settings.clone(),
    })
}

/// For queues without an entry: done jobs go as usual; what died or was cancelled stays for whoever
/// knows the queue.
fn usual_shelf() -> Shelf {
    use backstop_core::limits::DELAY_MAX;
    Shelf {
        cancelled_for: DELAY_MAX,
        dead_for: DELAY_MAX,
        ..Shelf::default()
    }
}
