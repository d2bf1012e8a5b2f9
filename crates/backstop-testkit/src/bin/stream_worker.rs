//! A process that serves a stream and is made to be killed: `stream_worker STORE FOLDER
//! LEASE_MILLIS SEED KEYS POSITIONS WAVE SHARES SHARE PROCESS`. Ends with its input.
//!
//! It is given orders on its input, one a line, and says each back when it is done:
//!
//! | order | it |
//! |---|---|
//! | `serve MILLIS` | serves the stream; a gap is waited for that long |
//! | `bring WAVE` | brings its share of the wave, but for batches that were answered before |
//! | `sweep WAVE` | brings the wave's last record of each key it looks after again, so that the key is looked at |
//!
//! What its handler does goes to `FOLDER/log`, which all processes share, before anybody tells the
//! store. Which batches were answered is in `FOLDER/answered-SHARE`, as a source keeps its offsets.
//! What the library warns of, a lost lease above all, is in `FOLDER/warnings`.

use backstop::streams::{
    Record, RecordOutcome, RunningStream, StreamEvent, StreamRules, StreamSettings,
};
use backstop::{Backstop, RunError, Span};
use backstop_testkit::ordered::{EventLog, Line, STEP, Seen, Trace};
use futures_util::stream::{StreamExt, TryStreamExt, iter};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, channel};
use tracing::field::{Field, Visit};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{self, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

const STREAM: &str = "ordered";
/// More than any key ever holds, or misses in a row.
const MUCH: u32 = 10_000;
/// Nothing goes on without the store here, however slow it is.
const PATIENCE: Span = Span::hours(1);
/// Batches that are brought at once.
const BATCHES_AT_ONCE: usize = 4;
/// Between two tries to bring a batch.
const AGAIN: Duration = Duration::from_millis(20);

type Failed = Box<dyn std::error::Error>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(worker) = Worker::from_arguments(&arguments) else {
        return ExitCode::from(2);
    };
    match worker.work().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

struct Worker {
    store: String,
    folder: PathBuf,
    lease: Span,
    trace: Trace,
    share: usize,
    process: u32,
}

impl Worker {
    fn from_arguments(arguments: &[String]) -> Option<Self> {
        let [
            store,
            folder,
            lease,
            seed,
            keys,
            positions,
            wave,
            shares,
            share,
            process,
        ] = arguments
        else {
            return None;
        };
        let trace = Trace {
            seed: seed.parse().ok()?,
            keys: keys.parse().ok()?,
            positions: positions.parse().ok()?,
            wave: wave.parse().ok()?,
            shares: shares.parse().ok()?,
        };
        Some(Self {
            store: store.clone(),
            folder: PathBuf::from(folder),
            lease: Span::millis(lease.parse().ok()?),
            trace,
            share: share.parse().ok()?,
            process: process.parse().ok()?,
        })
    }

    async fn work(&self) -> Result<(), Failed> {
        let log = Arc::new(EventLog::open(self.folder.join("log"))?);
        self.heed_warnings(&log)?;
        let backstop = Backstop::open(&self.store).await?;
        let mut orders = orders();
        let mut running: Option<RunningStream> = None;
        while let Some(order) = orders.recv().await {
            let (word, number) = order.split_once(' ').ok_or("an order has two words")?;
            match (word, &running) {
                ("serve", _) => {
                    if let Some(running) = running.take() {
                        running.stop().await;
                    }
                    running = Some(self.serve(&backstop, &log, Span::millis(number.parse()?))?);
                }
                ("bring", Some(running)) => self.bring(running, &log, number.parse()?).await?,
                ("sweep", Some(running)) => {
                    let records = self.trace.last_of_wave(number.parse()?, self.share);
                    self.handle(running, &log, &records).await?;
                }
                _ => return Err(format!("`{order}` cannot be done").into()),
            }
            say(&order);
        }
        if let Some(running) = running {
            running.stop().await;
        }
        Ok(())
    }

    /// What the library warns of; a key whose lease was lost is noted in the log, too: its call may
    /// come again without a kill.
    fn heed_warnings(&self, log: &Arc<EventLog>) -> Result<(), Failed> {
        let warnings = OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.folder.join("warnings"))?;
        let written = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(Arc::new(warnings));
        let noted = LostLeases {
            log: Arc::clone(log),
            process: self.process,
        };
        let lost = Targets::new().with_target("backstop::streams::leases", LevelFilter::INFO);
        let lost = lost.with_target("backstop::streams::hand", LevelFilter::WARN);
        let heeded = tracing_subscriber::registry().with(written.with_filter(LevelFilter::WARN));
        Ok(heeded.with(noted.with_filter(lost)).try_init()?)
    }

    fn serve(
        &self,
        backstop: &Backstop,
        log: &Arc<EventLog>,
        wait: Span,
    ) -> Result<RunningStream, Failed> {
        let rules = StreamRules {
            steps: vec![wait],
            max_held: MUCH,
            max_misses: MUCH,
            ..StreamRules::default()
        };
        let settings = StreamSettings {
            rules,
            lease: self.lease,
            patience: PATIENCE,
            poll: Span::millis(100),
            ..StreamSettings::default()
        };
        let (log, process) = (Arc::clone(log), self.process);
        let handler = move |event: StreamEvent| handle(event, Arc::clone(&log), process);
        Ok(backstop.stream(STREAM)?.serve(settings, handler)?)
    }

    async fn bring(
        &self,
        running: &RunningStream,
        log: &EventLog,
        wave: usize,
    ) -> Result<(), Failed> {
        let path = self.folder.join(format!("answered-{}", self.share));
        let answered = OpenOptions::new().append(true).create(true).open(&path)?;
        let before = std::fs::read_to_string(&path)?;
        let before: BTreeSet<&str> = before.lines().collect();
        let batches = self.trace.batches(wave, self.share).into_iter().enumerate();
        let batches = batches.map(|(at, batch)| (format!("{wave}/{at};"), batch));
        let unanswered = batches.filter(|(name, _)| !before.contains(name.as_str()));
        let brought = iter(unanswered).map(|(name, batch)| async move {
            self.handle(running, log, &batch).await?;
            Ok::<String, Failed>(name)
        });
        brought
            .buffer_unordered(BATCHES_AT_ONCE)
            .try_for_each(|name| {
                let written = (&answered).write_all(format!("{name}\n").as_bytes());
                async move { Ok(written?) }
            })
            .await
    }

    /// Brings records until they are answered.
    async fn handle(
        &self,
        running: &RunningStream,
        log: &EventLog,
        records: &[Record],
    ) -> Result<(), Failed> {
        let became = loop {
            match running.handle(records.to_vec()).await {
                Err(error) if error.is_transient() => tokio::time::sleep(AGAIN).await,
                answer => break answer?,
            }
        };
        if let Some(at) = became.iter().position(|became| {
            !matches!(
                became,
                RecordOutcome::Handled | RecordOutcome::Held | RecordOutcome::Duplicate
            )
        }) {
            return Err(format!("{:?} became {:?}", records[at], became[at]).into());
        }
        let handled = records
            .iter()
            .zip(&became)
            .filter(|(_, became)| **became == RecordOutcome::Handled);
        let handled = handled
            .map(|(record, _)| (record.key.to_string(), record.position))
            .collect();
        Ok(log.append(&Line {
            process: self.process,
            seen: Seen::Answered(handled),
        })?)
    }
}

/// Notes the keys of what the library says about lost leases.
struct LostLeases {
    log: Arc<EventLog>,
    process: u32,
}

impl<S: tracing::Subscriber> Layer<S> for LostLeases {
    fn on_event(&self, event: &tracing::Event<'_>, _: layer::Context<'_, S>) {
        let mut named = NamedKey(None);
        event.record(&mut named);
        let Some(key) = named.0 else { return };
        if let Err(error) = self.log.append(&Line {
            process: self.process,
            seen: Seen::Lost { key },
        }) {
            complain(&format!("a lost lease was not written down: {error}"));
        }
    }
}

/// The field `key` of an event.
struct NamedKey(Option<String>);

impl Visit for NamedKey {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "key" {
            self.0 = Some(format!("{value:?}"));
        }
    }
}

/// The lines of the input, until its end.
fn orders() -> Receiver<String> {
    let (sender, receiver) = channel(1);
    std::thread::spawn(move || {
        for order in std::io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(order).is_err() {
                return;
            }
        }
    });
    receiver
}

/// A moment of work, so that there is something to kill.
async fn handle(event: StreamEvent, log: Arc<EventLog>, process: u32) -> Result<(), RunError> {
    let call = Call {
        key: event.key.to_string(),
        position: event.position,
        log,
        process,
    };
    let (key, position, effect) = (call.key.clone(), event.position, event.effect.to_string());
    call.log.append(&Line {
        process,
        seen: Seen::Began {
            key,
            position,
            effect,
        },
    })?;
    let pause = u64::try_from(event.position / STEP % 4)?;
    tokio::time::sleep(Duration::from_millis(pause)).await;
    drop(call);
    Ok(())
}

/// A call under way; it ends when this is dropped, however it ends.
struct Call {
    key: String,
    position: i64,
    log: Arc<EventLog>,
    process: u32,
}

impl Drop for Call {
    fn drop(&mut self) {
        let seen = Seen::Ended {
            key: std::mem::take(&mut self.key),
            position: self.position,
        };
        if let Err(error) = self.log.append(&Line {
            process: self.process,
            seen,
        }) {
            complain(&format!("the end of a call was not written down: {error}"));
        }
    }
}

#[expect(clippy::print_stdout, reason = "whoever started it reads this")]
fn say(text: &str) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "whoever started it reads this")]
fn complain(text: &str) {
    eprintln!("{text}");
}
