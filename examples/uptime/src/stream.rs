//! In order: a result waits for those before it, and what does not come is missed only after it was
//! waited for.
//!
//! The engine does that, on a store that all worker processes share. Here results are handed to it,
//! events are taken back from it, and its waits are put to the scale of the clock.

#[cfg(test)]
mod tests;

use crate::clock::Clock;
use crate::event::{self, Record};
use crate::limits::{DRAIN_MAX, STREAM_POLL_MIN, STREAM_THREADS};
use crate::memory::{Durability, Memory};
use crate::process::{ProcessError, process};
use crate::sequencer::{Became, Hold, Sequencer, SharedDirectory};
use crate::standing::Thresholds;
use crate::wire::SubscriptionId;
use anyhow::{Context, bail, ensure};
use backstop::streams::{
    self, EventEffect, RunningStream, Stream, StreamCounter, StreamRules, StreamSettings,
};
use backstop::{Backstop, Payload, RunError, Span, StoreAddress, StoreKind, StreamKey};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, spawn_blocking};

/// How often somebody who waits for the hold to become empty looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often the hold is measured, on the clock of the run.
const SAMPLE_EVERY: Span = Span::secs(10);

/// Where the stream is.
pub struct Place<'a> {
    /// The address of the store.
    pub store: &'a str,
    /// The name of the stream in it.
    pub stream: &'a str,
    /// What a write survives.
    pub durability: Durability,
}

/// What is done with an event whose turn has come, and with what.
pub struct Judge {
    /// Where it is remembered.
    pub memory: Mutex<Box<dyn Memory>>,
    /// What is watched.
    pub directory: SharedDirectory,
    /// How many results in a row it takes.
    pub thresholds: Thresholds,
    /// What time it is.
    pub clock: Clock,
}

/// The stream, served in this process.
pub struct Streamed {
    runtime: Runtime,
    stream: Stream,
    running: RunningStream,
    samples: Arc<Mutex<Samples>>,
    sampler: JoinHandle<()>,
}

/// What measuring the hold came to so far.
#[derive(Default)]
struct Samples {
    records: u64,
    holding: u64,
}

/// Sees to it that processes can share the store, and brings it up to date before they do.
pub fn prepare(place: &Place<'_>) -> anyhow::Result<()> {
    let is_shared = StoreAddress::new(place.store).kind() != Some(StoreKind::Memory);
    ensure!(
        is_shared,
        "processes do not share memory; name another store"
    );
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(open(place))?;
    Ok(())
}

impl Streamed {
    /// Opens the store and serves the stream.
    pub fn start(place: &Place<'_>, judge: Judge) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(STREAM_THREADS)
            .enable_all()
            .build()?;
        let samples = Arc::new(Mutex::new(Samples::default()));
        let (stream, running, sampler) = runtime.block_on(async {
            let stream = open(place).await?;
            let (settings, every) = (settings(&judge.clock), scaled(SAMPLE_EVERY, &judge.clock));
            let judge = Arc::new(judge);
            let running = stream.serve(settings, move |event| Arc::clone(&judge).take(event))?;
            let sampler = tokio::spawn(sample(stream.clone(), Arc::clone(&samples), every.into()));
            anyhow::Ok((stream, running, sampler))
        })?;
        Ok(Self {
            runtime,
            stream,
            running,
            samples,
            sampler,
        })
    }
}

async fn open(place: &Place<'_>) -> anyhow::Result<Stream> {
    let durability = match (place.durability, StoreAddress::new(place.store).kind()) {
        // What a write to Redis survives is set there.
        (Durability::Full, _) | (Durability::Relaxed, Some(StoreKind::Redis)) => {
            backstop::Durability::Full
        }
        (Durability::Relaxed, _) => backstop::Durability::Relaxed,
    };
    let opened = Backstop::open_with(place.store, durability).await;
    let backstop = opened
        .with_context(|| format!("cannot use the store {}", backstop::redacted(place.store)))?;
    Ok(backstop.stream(place.stream)?)
}

impl Sequencer for Streamed {
    fn offer(&mut self, records: Vec<Record>) -> anyhow::Result<Vec<Became>> {
        let records = records
            .into_iter()
            .map(handed_over)
            .collect::<anyhow::Result<Vec<_>>>()?;
        let keys: Vec<StreamKey> = records.iter().map(|record| record.key.clone()).collect();
        let became = self.runtime.block_on(self.running.handle(records))?;
        became
            .into_iter()
            .zip(keys)
            .map(|(became, key)| taken_on(became, &key))
            .collect()
    }

    fn forget(&mut self, key: SubscriptionId) -> anyhow::Result<()> {
        self.runtime
            .block_on(self.stream.forget(&stream_key(key)?))?;
        Ok(())
    }

    fn drain(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + DRAIN_MAX;
        self.runtime.block_on(async {
            loop {
                let held = self
                    .stream
                    .status()
                    .await?
                    .map_or(0, |status| status.records);
                if held == 0 {
                    return Ok(());
                }
                ensure!(
                    Instant::now() < deadline,
                    "{held} results are still held after {DRAIN_MAX:?}"
                );
                tokio::time::sleep(LOOK_EVERY).await;
            }
        })
    }

    fn finish(self: Box<Self>) -> anyhow::Result<Option<Hold>> {
        let Self {
            runtime,
            stream,
            running,
            samples,
            sampler,
        } = *self;
        sampler.abort();
        runtime.block_on(running.stop());
        let counts = runtime
            .block_on(stream.status())?
            .map(|status| status.counts)
            .unwrap_or_default();
        let mean_held = lock(&samples).mean();
        Ok(Some(Hold {
            added: counts[StreamCounter::Added],
            removed: counts[StreamCounter::Removed],
            timeouts: counts[StreamCounter::Timeout],
            overflows: counts[StreamCounter::CircuitBreaker],
            mean_held,
        }))
    }
}

impl Judge {
    /// The memory blocks, so it is used where that does no harm.
    async fn take(self: Arc<Self>, event: streams::StreamEvent) -> Result<(), RunError> {
        let done = spawn_blocking(move || {
            let event = taken_back(event).map_err(RunError::dead)?;
            let directory = self
                .directory
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            let mut memory = lock(&self.memory);
            let now_ms = self.clock.now_ms();
            match process(&mut **memory, &event, &directory, &self.thresholds, now_ms) {
                Ok(_) => Ok(()),
                Err(error @ ProcessError::Memory(_)) => Err(RunError::retry(error)),
                Err(error @ (ProcessError::Broken(..) | ProcessError::Empty(_))) => {
                    Err(RunError::dead(error))
                }
            }
        });
        done.await
            .unwrap_or_else(|error| Err(RunError::retry(error)))
    }
}

/// The usual rules on the clock of the run; the lease stays real, since it is about processes and
/// not about results.
fn settings(clock: &Clock) -> StreamSettings {
    let usual = StreamSettings::default();
    let rules = StreamRules {
        steps: usual
            .rules
            .steps
            .iter()
            .map(|step| scaled(*step, clock))
            .collect(),
        hold_for: scaled(usual.rules.hold_for, clock),
        ..usual.rules
    };
    StreamSettings {
        poll: scaled(usual.poll, clock).max(STREAM_POLL_MIN),
        // A repeat changes nothing here, so a whole run of results may be handled between two
        // writes.
        run: rules.max_held as usize,
        rules,
        ..usual
    }
}

fn scaled(span: Span, clock: &Clock) -> Span {
    span.scaled(1.0 / clock.speed()).max(Span::millis(1))
}

fn stream_key(key: SubscriptionId) -> anyhow::Result<StreamKey> {
    Ok(StreamKey::new(&key.to_string())?)
}

fn handed_over(record: Record) -> anyhow::Result<streams::Record> {
    Ok(streams::Record {
        key: stream_key(record.key)?,
        position: record.position,
        step: record.step,
        tenant: Some(record.tenant.into()),
        payload: Payload::json(record.payload)?,
    })
}

fn taken_back(event: streams::StreamEvent) -> Result<event::Event, String> {
    let key = event
        .key
        .as_str()
        .parse()
        .map_err(|_| format!("{} is no subscription", event.key))?;
    Ok(event::Event {
        key,
        position: event.position,
        step: event.step,
        effect: match event.effect {
            EventEffect::Handled => event::Effect::Handled,
            EventEffect::Miss => event::Effect::Miss,
            EventEffect::MissRange { to, count } => event::Effect::MissRange { to, count },
            EventEffect::Amended => event::Effect::Amended,
        },
        payload: event.payload.map(Payload::into_bytes),
        following: event.following.map(Payload::into_bytes),
    })
}

fn taken_on(became: streams::RecordOutcome, key: &StreamKey) -> anyhow::Result<Became> {
    Ok(match became {
        streams::RecordOutcome::Handled => Became::Handled,
        streams::RecordOutcome::Held => Became::Held,
        streams::RecordOutcome::Duplicate => Became::Duplicate,
        streams::RecordOutcome::Late => Became::Late,
        streams::RecordOutcome::Amended => Became::Amended,
        streams::RecordOutcome::Ignored => Became::Ignored,
        streams::RecordOutcome::Dead => Became::Dead,
        streams::RecordOutcome::Full => {
            bail!("{key} keeps as much as it can; bring its results again later")
        }
    })
}

/// Measures the hold until it is told to stop. A look that fails is one look fewer.
async fn sample(stream: Stream, samples: Arc<Mutex<Samples>>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        if let Ok(Some(status)) = stream.status().await {
            let mut samples = lock(&samples);
            samples.records += status.records;
            samples.holding += status.holding;
        }
    }
}

impl Samples {
    #[expect(clippy::cast_precision_loss, reason = "a mean is shown with one digit")]
    fn mean(&self) -> f64 {
        if self.holding == 0 {
            0.0
        } else {
            self.records as f64 / self.holding as f64
        }
    }
}

/// Whoever panicked with a lock left nothing half done: memory has transactions, samples are two
/// sums.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
