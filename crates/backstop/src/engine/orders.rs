//! Tells who this worker is, and hears what its operator asks of it.
//!
//! A card is written when it has something new to say, and what changes all the time is told every
//! ten seconds: a fleet at work costs its store a tenth of a write a second for each worker, and at
//! rest none.

use super::Engine;
use super::beat::period;
use crate::workers::About;
use crate::workers::card::{Card, put_card, read_order, withdraw};
use backstop_core::order::{Asked, Duty};
use backstop_core::port::Answer;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often orders are looked for.
const LOOK_PERIOD: Duration = Duration::from_secs(2);
/// How often is looked whether there is something to tell.
const TELL_PERIOD: Duration = Duration::from_secs(10);
/// How often a card is put down although it says nothing new: memory is no news by itself, and
/// somebody may have taken the card away.
const AGAIN_PERIOD: Duration = Duration::from_mins(1);
/// How long the last news of a worker that stops may take.
const LAST_NEWS: Duration = Duration::from_secs(2);

/// What a worker does about its jobs.
#[derive(Default)]
pub(crate) struct Orders {
    state: Mutex<State>,
    /// Rung when that changes.
    pub(crate) changed: Notify,
}

#[derive(Clone, Copy, Default)]
struct State {
    duty: Duty,
    /// Whether it stops because somebody asked for it.
    was_asked: bool,
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Two words, always whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn duty(&self) -> Duty {
        self.lock().duty
    }

    /// Whether it takes new jobs.
    pub(crate) fn takes_jobs(&self) -> bool {
        self.duty() == Duty::Working
    }

    /// Whether it was an operator who had it stopped.
    pub(crate) fn was_asked_to_stop(&self) -> bool {
        self.lock().was_asked
    }

    /// Heeds what is asked for; whether it is to stop from now on.
    fn heed(&self, asked: Option<Asked>) -> bool {
        let (before, after) = {
            let mut state = self.lock();
            let before = state.duty;
            state.duty = before.heeding(asked);
            state.was_asked |= before != Duty::Stopping && state.duty == Duty::Stopping;
            (before, state.duty)
        };
        if before != after {
            self.changed.notify_one();
        }
        before != after && after == Duty::Stopping
    }

    /// It stops by itself, or by a signal.
    fn stops(&self) {
        self.lock().duty = Duty::Stopping;
    }
}

/// Tells and hears until told to stop; then takes back what it told. `worker_stop` stops the
/// worker.
pub(crate) async fn order_loop(
    engine: &Engine,
    stop: &CancellationToken,
    worker_stop: &CancellationToken,
) {
    let mut told = Told::default();
    loop {
        // A store that does not answer keeps nobody from ending.
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = hear_and_tell(engine, &mut told, worker_stop) => {}
        }
        let is_stopping = engine.orders.duty() == Duty::Stopping;
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = worker_stop.cancelled(), if !is_stopping => engine.orders.stops(),
            () = engine.refusals.finally(), if !is_stopping => engine.orders.stops(),
            () = tokio::time::sleep(LOOK_PERIOD) => {}
        }
    }
    let withdrawn = tokio::time::timeout(
        LAST_NEWS,
        withdraw(&engine.backstop, &engine.name, &engine.run),
    )
    .await;
    if !matches!(withdrawn, Ok(Ok(()))) {
        tracing::debug!(
            ?withdrawn,
            "what this worker told is still to be read; it is forgotten in a day"
        );
    }
}

async fn hear_and_tell(engine: &Engine, told: &mut Told, worker_stop: &CancellationToken) {
    if let Err(error) = hear(engine, worker_stop).await {
        tracing::debug!(%error, "what this worker is asked for could not be read; what it was asked for last holds");
    }
    told.tell(engine).await;
}

async fn hear(engine: &Engine, worker_stop: &CancellationToken) -> Answer<()> {
    let order = read_order(&engine.backstop, &engine.name)
        .await?
        .filter(|order| order.is_for(&engine.run));
    let before = engine.orders.duty();
    let is_to_stop = engine.orders.heed(order.as_ref().map(|order| order.asked));
    match (&order, engine.orders.duty()) {
        (_, after) if after == before => {}
        (Some(order), _) => {
            tracing::info!(worker = %engine.name, by = order.by, "asked to {}", told_of(order.asked));
        }
        (None, _) => {
            tracing::info!(worker = %engine.name, "goes on: what it was asked for was taken back");
        }
    }
    if is_to_stop {
        worker_stop.cancel();
    }
    Ok(())
}

const fn told_of(asked: Asked) -> &'static str {
    match asked {
        Asked::Quiet => "take no new jobs; what runs may end",
        Asked::Stop => "stop; what runs may end within its grace",
    }
}

/// What was told last.
#[derive(Default)]
struct Told(Option<Last>);

struct Last {
    card: Card,
    looked: Instant,
    written: Instant,
}

impl Told {
    async fn tell(&mut self, engine: &Engine) {
        let (now, duty) = (Instant::now(), engine.orders.duty());
        let is_due = |last: &Last| last.card.duty != duty || now - last.looked >= TELL_PERIOD;
        if !self.0.as_ref().is_none_or(is_due) {
            return;
        }
        let card = engine.card();
        if let Some(last) = &mut self.0 {
            last.looked = now;
            if last.card.says_as_much_as(&card) && now - last.written < AGAIN_PERIOD {
                return;
            }
        }
        match put_card(&engine.backstop, &engine.name, &card).await {
            Ok(()) => {
                self.0 = Some(Last {
                    card,
                    looked: now,
                    written: now,
                });
            }
            Err(error) => {
                tracing::debug!(%error, "who this worker is could not be told; it is tried again");
                self.0 = None;
            }
        }
    }
}

impl Engine {
    /// What it tells of itself.
    fn card(&self) -> Card {
        let places: usize = self
            .queues
            .values()
            .map(|settings| settings.concurrency)
            .sum();
        let about = About {
            host: Some(
                rustix::system::uname()
                    .nodename()
                    .to_string_lossy()
                    .into_owned(),
            ),
            pid: Some(std::process::id()),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            since: Some(self.run.since),
            places: Some(u32::try_from(places).unwrap_or(u32::MAX)),
            memory: resident_bytes(),
        };
        Card::here(
            about,
            self.run.clone(),
            self.held.running(),
            self.orders.duty(),
        )
        .beating_every(period(self))
    }
}

/// What this process has in memory, where the system tells.
fn resident_bytes() -> Option<u64> {
    resident_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_where_the_system_tells_it() {
        assert_eq!(
            resident_in("Name:\tx\nVmRSS:\t   12344 kB\nThreads:\t1\n"),
            Some(12_344 * 1024)
        );
        for status in [
            "",
            "VmRSS:",
            "VmRSS: many kB",
            "VmRSS: 1 MB",
            "VmRSS: 18446744073709551615 kB",
        ] {
            assert_eq!(resident_in(status), None, "{status}");
        }
    }

    #[test]
    fn who_stops_by_a_signal_was_not_asked_to_and_does_not_go_back() {
        let orders = Orders::default();
        orders.stops();
        assert!(!orders.heed(Some(Asked::Stop)), "it stops already");
        assert!(!orders.was_asked_to_stop());
        assert!(!orders.heed(None) && orders.duty() == Duty::Stopping);
    }

    #[test]
    fn an_order_is_heeded_once_and_taken_back() {
        let orders = Orders::default();
        assert!(!orders.heed(Some(Asked::Quiet)) && !orders.takes_jobs());
        assert!(!orders.heed(None) && orders.takes_jobs());
        assert!(orders.heed(Some(Asked::Stop)) && orders.was_asked_to_stop());
        assert!(!orders.heed(Some(Asked::Stop)), "it was told already");
    }
}
