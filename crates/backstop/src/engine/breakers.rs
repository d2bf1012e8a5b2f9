//! What a worker knows of the breakers and gates that all workers share, and what it has to tell
//! them.
//!
//! Workers look at a copy of their own, read once in a while and after every change of theirs; they
//! write only what the others must know. A healthy service costs nothing: successes of a calm
//! breaker are told to nobody.

use super::Engine;
use crate::breakers::{BreakerName, GATE, SharedBreaker, SharedGate, log_change, parse_gate_cell};
use crate::shared_cells::{cells, read, update};
use crate::worker::QueueSettings;
use backstop_core::breaker::{
    AdmittedCalls, Breaker, BreakerAdmission, BreakerPhase, CallOutcome, CallReport,
};
use backstop_core::gate::{Gate, GateSettings, GateUpdate, ShutReason};
use backstop_core::port::StoreResult;
use backstop_core::{JobState, Kind, Lease, Outcome, QueueName, Span, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What happens within this time is told at once.
const LINGER: Duration = Duration::from_millis(5);
/// How often a queue that is nearly full is mentioned.
const PRESSURE_PERIOD: Duration = Duration::from_secs(30);
/// Shut gates that a dead letter names.
const STATES_MAX: usize = 20;
/// How long the last news of a worker that stops may take.
const LAST_REPORT: Duration = Duration::from_secs(2);
/// How often a copy is read anew.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

type GateKey = (QueueName, Kind);

/// The guards as one worker knows them.
#[derive(Default)]
pub(crate) struct LocalBreakers {
    copies: Mutex<LocalBreakerCopies>,
    /// Rung when something is to be told.
    reported: Notify,
    /// Rung when more, or less, may be claimed than before.
    pub(crate) changed: Notify,
}

#[derive(Default)]
struct LocalBreakerCopies {
    breakers: BTreeMap<QueueName, SharedBreaker>,
    gates: BTreeMap<GateKey, SharedGate>,
    /// Queues with successes that nobody was told of.
    unreported: BTreeSet<QueueName>,
    reports: LocalBreakerReports,
    /// Jobs that are about to die, until the store has said whether there is room.
    dying: BTreeMap<Lease, (Kind, Option<u64>)>,
}

/// What the others must be told.
#[derive(Default)]
struct LocalBreakerReports {
    signals: BTreeMap<QueueName, Vec<CallReport>>,
    gates: BTreeMap<GateKey, GateUpdate>,
}

/// The way through a kind's gate.
pub(crate) enum GateDecision {
    /// Open; the epoch is a probe's.
    Open(Option<u64>),
    Blocked(Time),
}

impl LocalBreakers {
    fn lock(&self) -> MutexGuard<'_, LocalBreakerCopies> {
        // Every critical section leaves it whole.
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a job is about to die; `probe` is the epoch of its way through a shut gate.
    pub(crate) fn note_dying(&self, lease: &Lease, kind: &Kind, probe: Option<u64>) {
        self.lock()
            .dying
            .insert(lease.clone(), (kind.clone(), probe));
    }

    /// Takes note of how a probe of a shut gate ended, unless it is about to die.
    pub(crate) fn note_probe(&self, queue: &QueueName, kind: &Kind, epoch: u64, outcome: &Outcome) {
        let sign = match outcome {
            Outcome::Done(_) => CallOutcome::Success,
            Outcome::Dead { .. } => return,
            Outcome::Retry { .. }
            | Outcome::Cancelled { .. }
            | Outcome::Released { .. }
            | Outcome::Reran { .. }
            | Outcome::Lost { .. } => CallOutcome::Neutral,
        };
        self.queue_gate_report((queue.clone(), kind.clone()), |news| {
            news.record_survival(CallReport {
                epoch,
                outcome: sign,
            });
        });
    }

    /// The store took a job in among the dead letters, or had no room for it.
    pub(crate) fn note_death(&self, lease: &Lease, had_room: bool) {
        let Some((kind, probe)) = self.lock().dying.remove(lease) else {
            return;
        };
        self.note_death_of((lease.queue.clone(), kind), probe, had_room);
    }

    /// As [`Self::died`], for a job that this worker did not run.
    pub(crate) fn note_death_of(&self, of: GateKey, probe: Option<u64>, had_room: bool) {
        self.queue_gate_report(of, |news| news.record_death(probe, had_room));
    }

    /// The lease was lost: what was to become of its job is not for us to tell.
    pub(crate) fn forget(&self, lease: &Lease) {
        self.lock().dying.remove(lease);
    }

    fn queue_gate_report(&self, of: GateKey, apply_report: impl FnOnce(&mut GateUpdate)) {
        apply_report(self.lock().reports.gates.entry(of).or_default());
        self.reported.notify_one();
    }

    /// The states of all of them, for people who look at a dead letter.
    pub(crate) fn states(&self, now: Time) -> BTreeMap<String, String> {
        let known = self.lock();
        let breakers = known.breakers.iter().map(|(queue, breaker)| {
            (
                queue.to_string(),
                breaker.state.phase(&breaker.settings, now).to_string(),
            )
        });
        let shut = known
            .gates
            .iter()
            .map(|(of, gate)| (of, gate.state.phase(&gate.settings, now)));
        let shut = shut
            .filter(|(_, phase)| *phase != BreakerPhase::Closed)
            .take(STATES_MAX);
        let gates = shut.map(|((queue, kind), phase)| {
            let name = BreakerName::Gate(queue.clone(), kind.clone());
            (name.to_string(), name.word(phase).to_owned())
        });
        breakers.chain(gates).collect()
    }
}

impl Engine {
    /// What the breaker of a queue lets through: everything if it has none, nothing before it was
    /// first heard of.
    pub(crate) fn admission(&self, queue: &QueueName) -> BreakerAdmission {
        if self
            .queues
            .get(queue)
            .is_none_or(|settings| settings.breaker.is_none())
        {
            return BreakerAdmission::Unlimited { epoch: 0 };
        }
        let known = self.breakers.lock();
        let breaker = known.breakers.get(queue);
        breaker.map_or(BreakerAdmission::Blocked { until: None }, |breaker| {
            breaker.state.admits(&breaker.settings, self.now())
        })
    }

    /// Takes note of how a run ended that was admitted under `epoch`. The worker's own copy hears
    /// it at once: nothing more is started while the others are being told.
    pub(crate) fn report(&self, queue: &QueueName, epoch: u64, sign: CallOutcome) {
        let mut known = self.breakers.lock();
        let Some(breaker) = known.breakers.get_mut(queue) else {
            return;
        };
        if breaker.state.has_no_recent_failures() && sign != CallOutcome::Failure {
            if sign == CallOutcome::Success && !known.unreported.contains(queue) {
                known.unreported.insert(queue.clone());
            }
            return;
        }
        let signal = CallReport {
            epoch,
            outcome: sign,
        };
        breaker
            .state
            .record(&breaker.settings, &[signal], self.now());
        // Failures of others are not in a row with this one if something succeeded here meanwhile.
        let success = known.unreported.remove(queue).then_some(CallReport {
            epoch,
            outcome: CallOutcome::Success,
        });
        known
            .reports
            .signals
            .entry(queue.clone())
            .or_default()
            .extend(success.into_iter().chain([signal]));
        self.breakers.reported.notify_one();
    }

    /// Asks the breaker of a queue to let `want` runs through; answers how many, and their epoch.
    pub(crate) async fn admit(&self, queue: &QueueName, want: u32) -> StoreResult<AdmittedCalls> {
        let Some(absent) = self.breaker_of(queue) else {
            return Ok(AdmittedCalls {
                epoch: 0,
                calls: want,
            });
        };
        let (name, until) = (
            BreakerName::Breaker(queue.clone()).cell_name(),
            self.probe_deadline(queue),
        );
        let (breaker, admitted) = update(&self.backstop, &name, absent, |breaker| {
            breaker
                .state
                .admit(&breaker.settings, want, until, self.now())
        })
        .await?;
        self.breakers.lock().breakers.insert(queue.clone(), breaker);
        Ok(admitted)
    }

    /// The way of a job through its kind's gate. Usually there is none, or it is open.
    pub(crate) async fn gate_decision(&self, queue: &QueueName, kind: &Kind) -> GateDecision {
        let of = (queue.clone(), kind.clone());
        let now = self.now();
        // A copy is made only of a gate that is shut: most runs pass one that is open.
        let is_shut = |gate: &&SharedGate| {
            !matches!(
                gate.state.admits(&gate.settings, now),
                BreakerAdmission::Unlimited { .. }
            )
        };
        let shut = self.breakers.lock().gates.get(&of).filter(is_shut).cloned();
        let Some(gate) = shut else {
            return GateDecision::Open(None);
        };
        let again = || now.after(gate.settings.breaker.recovery_timeout);
        match gate.state.admits(&gate.settings, now) {
            BreakerAdmission::Unlimited { .. } => GateDecision::Open(None),
            BreakerAdmission::Blocked { until } => {
                GateDecision::Blocked(until.unwrap_or_else(again))
            }
            BreakerAdmission::Probes { .. } => {
                let name = BreakerName::Gate(queue.clone(), kind.clone()).cell_name();
                let until = self.probe_deadline(queue);
                let probe = |gate: &mut SharedGate| match gate.state.admits(&gate.settings, now) {
                    BreakerAdmission::Unlimited { .. } => Some(None),
                    _ => Some(gate.state.admit(&gate.settings, 1, until, now))
                        .filter(|admitted| admitted.calls > 0)
                        .map(|admitted| Some(admitted.epoch)),
                };
                match update(&self.backstop, &name, gate.clone(), probe).await {
                    Ok((gate, gate_decision)) => {
                        self.breakers.lock().gates.insert(of, gate);
                        gate_decision
                            .map_or_else(|| GateDecision::Blocked(again()), GateDecision::Open)
                    }
                    // Whether the gate is shut is not known; that the store does not answer is told
                    // where it settles.
                    Err(_) => GateDecision::Blocked(now.after(Span::secs(1))),
                }
            }
        }
    }

    /// Until when a probe of this queue must have ended, unless its worker died: a service that
    /// hangs must not be sent more probes while those it has are running.
    fn probe_deadline(&self, queue: &QueueName) -> Time {
        let Some(settings) = self.queues.get(queue) else {
            return self.now();
        };
        let recovery = settings
            .breaker
            .unwrap_or(settings.gate.breaker)
            .recovery_timeout;
        let longest = settings.timeout.map_or(recovery.times(4), |timeout| {
            timeout.plus(self.timing.cancel_grace)
        });
        self.now().after(longest.max(settings.lease))
    }

    /// A queue's breaker as this worker is told to have it.
    fn breaker_of(&self, queue: &QueueName) -> Option<SharedBreaker> {
        let settings = self.queues.get(queue)?.breaker?;
        Some(SharedBreaker {
            settings,
            state: Breaker::default(),
        })
    }

    fn gate_settings(&self, queue: &QueueName) -> GateSettings {
        self.queues
            .get(queue)
            .map(|settings| settings.gate)
            .unwrap_or_default()
    }
}

/// Tells and hears until told to stop; then tells what is left.
pub(crate) async fn breaker_loop(engine: &Engine, stop: &CancellationToken) {
    let mut due = BreakerLoopTimes::default();
    loop {
        refresh_if_due(engine, &mut due).await;
        tokio::select! {
            biased;
            () = stop.cancelled() => {
                // What the store does not take by then is known to the others by their own runs.
                let _ = tokio::time::timeout(LAST_REPORT, send_reports(engine)).await;
                return;
            }
            () = async {
                engine.breakers.reported.notified().await;
                tokio::time::sleep(LINGER).await;
            } => send_reports(engine).await,
            // What could not be told before is told again: nobody else may be there to ring.
            () = tokio::time::sleep(LOOK_PERIOD) => send_reports(engine).await,
        }
    }
}

/// When the loop did what it does once in a while.
#[derive(Default)]
struct BreakerLoopTimes {
    is_declared: bool,
    refreshed: Option<Instant>,
    pressure_checked: Option<Instant>,
}

async fn refresh_if_due(engine: &Engine, due: &mut BreakerLoopTimes) {
    let is_over = |at: Option<Instant>, period| at.is_none_or(|at| at.elapsed() >= period);
    if !is_over(due.refreshed, LOOK_PERIOD) {
        return;
    }
    due.refreshed = Some(Instant::now());
    if !due.is_declared {
        due.is_declared = declare_settings(engine)
            .await
            .inspect_err(log_read_error)
            .is_ok();
    }
    refresh(engine)
        .await
        .unwrap_or_else(|error| log_read_error(&error));
    if is_over(due.pressure_checked, PRESSURE_PERIOD) {
        due.pressure_checked = Some(Instant::now());
        warn_of_full_queues(engine)
            .await
            .unwrap_or_else(|error| log_read_error(&error));
    }
}

fn log_read_error(error: &backstop_core::port::StoreError) {
    tracing::warn!(%error, "breakers and gates could not be read; the last that is known of them holds");
}

/// Says so if a bounded queue is nearly full: what comes then is refused, or pushes something out.
async fn warn_of_full_queues(engine: &Engine) -> StoreResult<()> {
    let bounded: BTreeSet<&QueueName> = engine
        .known_queues()
        .filter(|(_, settings)| {
            settings
                .bounds
                .is_some_and(|bounds| bounds.max_size.is_some())
        })
        .map(|(queue, _)| queue)
        .collect();
    if bounded.is_empty() {
        return Ok(());
    }
    for status in engine.store().queues(engine.now()).await? {
        let live = status.counts.live();
        if bounded.contains(&status.name) && status.bounds.is_under_pressure(live) {
            let (queue, max) = (&status.name, status.bounds.max_size.unwrap_or_default());
            tracing::warn!(%queue, live, max, then = %status.bounds.overflow, "the queue is nearly full");
        }
    }
    Ok(())
}

/// Writes down what this worker was told about queues, be they its own or those of workers over
/// HTTP, which can tell nobody: that they are configured, bounds, and the settings of breakers.
async fn declare_settings(engine: &Engine) -> StoreResult<()> {
    let names = engine.known_queues().map(|(queue, _)| queue.clone());
    let mut answer = engine.backstop.declare_queues(names.collect()).await;
    for (queue, settings) in engine.known_queues() {
        if let Err(error) = declare_breaker(engine, queue, settings).await {
            answer = Err(error);
        }
        // A queue whose bounds cannot be set must not keep the others from their breakers.
        if let Some(bounds) = settings.bounds
            && let Err(error) = engine
                .store()
                .set_bounds(queue.clone(), bounds, engine.now())
                .await
        {
            answer = Err(error);
        }
    }
    engine.breakers.changed.notify_one();
    answer
}

async fn declare_breaker(
    engine: &Engine,
    queue: &QueueName,
    settings: &QueueSettings,
) -> StoreResult<()> {
    let Some(wanted) = settings.breaker else {
        return Ok(());
    };
    let absent = SharedBreaker {
        settings: wanted,
        state: Breaker::default(),
    };
    let name = BreakerName::Breaker(queue.clone()).cell_name();
    let (breaker, ()) = update(&engine.backstop, &name, absent, |breaker| {
        breaker.settings = wanted;
    })
    .await?;
    // What is known of a breaker is kept up to date for queues that are served here; elsewhere it
    // would go stale.
    if engine.queues.contains_key(queue) {
        engine
            .breakers
            .lock()
            .breakers
            .insert(queue.clone(), breaker);
    }
    Ok(())
}

async fn refresh(engine: &Engine) -> StoreResult<()> {
    let guarded: Vec<&QueueName> = engine
        .queues
        .iter()
        .filter(|(_, settings)| settings.breaker.is_some())
        .map(|(queue, _)| queue)
        .collect();
    let names = guarded
        .iter()
        .map(|queue| BreakerName::Breaker((*queue).clone()).cell_name())
        .collect();
    let breakers = if guarded.is_empty() {
        Vec::new()
    } else {
        engine.store().cells(names).await?
    };
    let is_served = |((queue, _), _): &(GateKey, SharedGate)| engine.queues.contains_key(queue);
    let gates: BTreeMap<GateKey, SharedGate> = cells(&engine.backstop, GATE)
        .await?
        .iter()
        .filter_map(parse_gate_cell)
        .filter(is_served)
        .collect();
    let lacking: BTreeSet<GateKey> = gates
        .iter()
        .filter(|(_, gate)| gate.state.shut() == Some(ShutReason::Full))
        .map(|(of, _)| of.clone())
        .collect();
    let now = engine.now();
    let changed = {
        let mut known = engine.breakers.lock();
        let before = known.phases(now);
        for (queue, cell) in guarded.into_iter().zip(breakers) {
            if let Some(breaker) = cell.as_ref().and_then(read) {
                known.breakers.insert(queue.clone(), breaker);
            }
        }
        known.gates = gates;
        before != known.phases(now)
    };
    if changed {
        engine.breakers.changed.notify_one();
    }
    follow_clock(engine).await?;
    if !lacking.is_empty() {
        reopen_gates_with_room(engine, lacking).await?;
    }
    Ok(())
}

/// After the clock was set back, waits that began in what is now the future begin anew: nobody else
/// would start them.
async fn follow_clock(engine: &Engine) -> StoreResult<()> {
    let now = engine.now();
    let behind = |breaker: &SharedBreaker| breaker.state.clone().follow_clock(now);
    let queues: Vec<QueueName> = {
        let known = engine.breakers.lock();
        known
            .breakers
            .iter()
            .filter(|(_, breaker)| behind(breaker))
            .map(|(queue, _)| queue.clone())
            .collect()
    };
    for queue in queues {
        let Some(absent) = engine.breaker_of(&queue) else {
            continue;
        };
        let name = BreakerName::Breaker(queue.clone()).cell_name();
        let (breaker, _) = update(&engine.backstop, &name, absent, |breaker| {
            breaker.state.follow_clock(now)
        })
        .await?;
        engine.breakers.lock().breakers.insert(queue, breaker);
    }
    let gates: Vec<GateKey> = {
        let known = engine.breakers.lock();
        known
            .gates
            .iter()
            .filter(|(_, gate)| gate.state.clone().follow_clock(now))
            .map(|(of, _)| of.clone())
            .collect()
    };
    for of in gates {
        let name = BreakerName::Gate(of.0.clone(), of.1.clone());
        let (gate, _) = update_gate(engine, &name, |gate| gate.state.follow_clock(now)).await?;
        engine.breakers.lock().gates.insert(of, gate);
    }
    Ok(())
}

impl LocalBreakerCopies {
    /// What decides how much may be claimed.
    fn phases(&self, now: Time) -> Vec<BreakerPhase> {
        let breakers = self
            .breakers
            .values()
            .map(|breaker| breaker.state.phase(&breaker.settings, now));
        breakers
            .chain(
                self.gates
                    .values()
                    .map(|gate| gate.state.phase(&gate.settings, now)),
            )
            .collect()
    }
}

/// Opens gates that were shut because the dead letters were full, once somebody has made room.
async fn reopen_gates_with_room(engine: &Engine, lacking: BTreeSet<GateKey>) -> StoreResult<()> {
    let queues = engine.store().queues(engine.now()).await?;
    for (queue, kind) in lacking {
        let status = queues.iter().find(|status| status.name == queue);
        let has_room =
            status.is_some_and(|status| status.counts.of(JobState::Dead) < status.bounds.dead_max);
        if has_room {
            let name = BreakerName::Gate(queue.clone(), kind.clone());
            let (gate, ()) =
                update_gate(engine, &name, |gate| gate.state.record_room(engine.now())).await?;
            engine.breakers.lock().gates.insert((queue, kind), gate);
            tracing::info!(gate = %name, "the dead letters have room again; the kind goes on");
            engine.breakers.changed.notify_one();
        }
    }
    Ok(())
}

async fn update_gate<R>(
    engine: &Engine,
    name: &BreakerName,
    change: impl FnMut(&mut SharedGate) -> R,
) -> StoreResult<(SharedGate, R)> {
    let absent = SharedGate {
        settings: engine.gate_settings(name.queue()),
        state: Gate::default(),
    };
    update(&engine.backstop, &name.cell_name(), absent, change).await
}

/// Tells the others what happened here. What the store does not take is told with the next; once it
/// does not answer, the rest waits as well.
async fn send_reports(engine: &Engine) {
    let news = std::mem::take(&mut engine.breakers.lock().reports);
    let mut answers = true;
    for (queue, signals) in news.signals {
        if answers {
            let sent = report_to_breaker(engine, &queue, &signals)
                .await
                .inspect_err(log_read_error);
            answers = sent.is_ok();
        }
        if !answers {
            let mut known = engine.breakers.lock();
            let later = known.reports.signals.entry(queue).or_default();
            later.splice(0..0, signals);
            later.truncate(SIGNALS_MAX);
        }
    }
    for (of, gate_update) in news.gates {
        if answers {
            answers = report_to_gate(engine, &of, &gate_update)
                .await
                .inspect_err(log_read_error)
                .is_ok();
        }
        if !answers {
            let mut known = engine.breakers.lock();
            let later = known.reports.gates.entry(of).or_default();
            later.deaths = later.deaths.saturating_add(gate_update.deaths);
            later.is_refused |= gate_update.is_refused;
            later.probes.splice(0..0, gate_update.probes);
            later.probes.truncate(SIGNALS_MAX);
        }
    }
}

/// Signals that may wait for a store that does not answer; by then the newest say nothing new.
const SIGNALS_MAX: usize = 10_000;

async fn report_to_breaker(
    engine: &Engine,
    queue: &QueueName,
    signals: &[CallReport],
) -> StoreResult<()> {
    let Some(absent) = engine.breaker_of(queue) else {
        return Ok(());
    };
    let name = BreakerName::Breaker(queue.clone());
    let (breaker, before) = update(&engine.backstop, &name.cell_name(), absent, |breaker| {
        let before = breaker.state.phase(&breaker.settings, engine.now());
        breaker
            .state
            .record(&breaker.settings, signals, engine.now());
        before
    })
    .await?;
    let status = breaker.state.status(&breaker.settings, engine.now());
    if log_change(&name, before, &status) {
        engine.breakers.changed.notify_one();
    }
    engine
        .breakers
        .lock()
        .breakers
        .insert(queue.clone(), breaker);
    Ok(())
}

async fn report_to_gate(
    engine: &Engine,
    of: &GateKey,
    gate_update: &GateUpdate,
) -> StoreResult<()> {
    let name = BreakerName::Gate(of.0.clone(), of.1.clone());
    let settings = engine.gate_settings(&of.0);
    let phase = |gate: &SharedGate| gate.state.phase(&gate.settings, engine.now());
    let (gate, before) = update_gate(engine, &name, |gate| {
        let before = phase(gate);
        gate.settings = settings;
        gate.state
            .apply_update(&settings, gate_update, engine.now());
        before
    })
    .await?;
    let status = gate.state.status(&gate.settings, engine.now());
    if log_change(&name, before, &status.breaker) {
        engine.breakers.changed.notify_one();
    }
    engine.breakers.lock().gates.insert(of.clone(), gate);
    Ok(())
}
