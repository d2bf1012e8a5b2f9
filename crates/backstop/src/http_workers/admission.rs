//! What keeps jobs from workers elsewhere, and what it is told of them: breakers, gates, rate
//! limits, suspects.

use super::HttpWorkers;
use super::release::{self, ReleaseError};
use crate::breakers::{BreakerName, SharedBreaker, SharedGate, log_change, parse_gate_cell};
use crate::engine::metrics;
use crate::shared_cells::{read, update};
use backstop_core::blame::is_suspect;
use backstop_core::breaker::{Breaker, BreakerAdmission, CallOutcome, CallReport};
use backstop_core::gate::{Gate, GateSettings, GateUpdate};
use backstop_core::plan::QueueQuota;
use backstop_core::port::{StoreError, StoreResult};
use backstop_core::rate::RateLimit;
use backstop_core::verdict::Settlement;
use backstop_core::{Kind, Lease, LeasedRun, Outcome, QueueName, Span, Time, WorkerName};
use std::collections::{BTreeMap, BTreeSet};

/// As much of a want as breaker and rate limit let through.
pub(super) struct HttpPermit {
    pub(super) want: QueueQuota,
    /// The epoch of the queue's breaker; 0 if it has none.
    pub(super) epoch: u64,
    /// Probes of the breaker that were admitted.
    probes: bool,
    /// Leave that was taken of its rate limit.
    rate_limit: Option<RateLimit>,
}

/// What the guards of one batch of ends are to be told.
#[derive(Default)]
pub(super) struct HttpBreakerReports {
    breakers: BTreeMap<QueueName, Vec<CallReport>>,
    gates: BTreeMap<(QueueName, Kind), GateUpdate>,
}

impl HttpBreakerReports {
    pub(super) fn add_breaker_signal(&mut self, queue: &QueueName, signal: CallReport) {
        self.breakers.entry(queue.clone()).or_default().push(signal);
    }

    /// A run that was a probe of its kind's gate did not die.
    pub(super) fn add_probe_signal(&mut self, queue: &QueueName, kind: &Kind, signal: CallReport) {
        self.gates
            .entry((queue.clone(), kind.clone()))
            .or_default()
            .record_survival(signal);
    }

    /// A job died, or there was no room for its death.
    pub(super) fn add_death(
        &mut self,
        queue: &QueueName,
        kind: &Kind,
        probe: Option<u64>,
        had_room: bool,
    ) {
        self.gates
            .entry((queue.clone(), kind.clone()))
            .or_default()
            .record_death(probe, had_room);
    }
}

impl HttpWorkers<'_> {
    /// How much may be claimed of each want; nothing where a breaker is open or a limit is met. And
    /// how long until a limit that is met has room again.
    pub(super) async fn get_permits(
        &self,
        wants: Vec<QueueQuota>,
    ) -> StoreResult<(Vec<HttpPermit>, Option<Span>)> {
        let (mut permits, mut room_in) = (Vec::with_capacity(wants.len()), None::<Span>);
        for mut want in wants {
            let (epoch, probes, max) = self.admit(&want).await?;
            want.max = max;
            let limit = self
                .settings(&want.queue)
                .and_then(|settings| settings.rate_limit);
            if let Some(limit) = limit.filter(|_| max > 0) {
                let wanted = u32::try_from(max).unwrap_or(u32::MAX);
                let grant = self
                    .backstop
                    .take_tokens(&want.queue, &limit, wanted)
                    .await?;
                want.max = grant.taken as usize;
                if grant.taken == 0 {
                    room_in =
                        Some(room_in.map_or(grant.free_in, |room_in| room_in.min(grant.free_in)));
                }
            }
            if want.max > 0 {
                permits.push(HttpPermit {
                    want,
                    epoch,
                    probes,
                    rate_limit: limit,
                });
            }
        }
        Ok((permits, room_in))
    }

    /// What the breaker of a queue lets through: the epoch, whether they are probes, and how many.
    async fn admit(&self, want: &QueueQuota) -> StoreResult<(u64, bool, usize)> {
        let Some(absent) = self.breaker_of(&want.queue) else {
            return Ok((0, false, want.max));
        };
        let (name, now) = (
            BreakerName::Breaker(want.queue.clone()).cell_name(),
            self.backstop.now(),
        );
        let cell = self
            .backstop
            .store()
            .cells(vec![name.clone()])
            .await?
            .pop()
            .flatten();
        let breaker = cell
            .as_ref()
            .and_then(read)
            .unwrap_or_else(|| absent.clone());
        match breaker.state.admits(&breaker.settings, now) {
            BreakerAdmission::Unlimited { epoch } => Ok((epoch, false, want.max)),
            BreakerAdmission::Blocked { .. } => Ok((0, false, 0)),
            BreakerAdmission::Probes { .. } => {
                let calls = u32::try_from(want.max).unwrap_or(u32::MAX);
                let until = self.probe_deadline(&want.queue);
                let admit = |breaker: &mut SharedBreaker| {
                    breaker.state.admit(&breaker.settings, calls, until, now)
                };
                let (_, admitted) = update(self.backstop, &name, absent, admit).await?;
                Ok((admitted.epoch, true, admitted.calls as usize))
            }
        }
    }

    /// Leave and probes for which there were no jobs, or none that may run. Where the store does
    /// not take them back they count as used, for a while.
    pub(super) async fn return_unused(
        &self,
        passed: &[(LeasedRun, Option<u64>)],
        permits: &[HttpPermit],
    ) {
        for one in permits
            .iter()
            .filter(|one| one.probes || one.rate_limit.is_some())
        {
            let used = passed
                .iter()
                .filter(|(run, _)| run.lease.queue == one.want.queue)
                .count();
            let unused = u32::try_from(one.want.max.saturating_sub(used)).unwrap_or(u32::MAX);
            if unused == 0 {
                continue;
            }
            if let Err(error) = self.give_back(one, unused).await {
                tracing::warn!(%error, queue = %one.want.queue, "unused leave could not be given back");
            }
        }
    }

    async fn give_back(&self, one: &HttpPermit, unused: u32) -> StoreResult<()> {
        let queue = &one.want.queue;
        if let Some(limit) = &one.rate_limit {
            self.backstop.return_tokens(queue, limit, unused).await?;
        }
        if let Some(absent) = self.breaker_of(queue).filter(|_| one.probes) {
            let (name, now) = (
                BreakerName::Breaker(queue.clone()).cell_name(),
                self.backstop.now(),
            );
            update(self.backstop, &name, absent, |breaker| {
                breaker
                    .state
                    .give_back(&breaker.settings, one.epoch, unused, now);
            })
            .await?;
        }
        Ok(())
    }

    /// Those that may run, with the epoch of the gate they are a probe of. Those that may not go
    /// back, not charged, and so do all if they cannot be judged. `has_suspect`: one is in the
    /// answer already.
    pub(super) async fn through_gates(
        &self,
        runs: Vec<LeasedRun>,
        worker: &WorkerName,
        has_suspect: bool,
    ) -> StoreResult<Vec<(LeasedRun, Option<u64>)>> {
        if runs.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.backstop.now();
        let leases =
            |runs: &[LeasedRun]| runs.iter().map(|run| run.lease.clone()).collect::<Vec<_>>();
        let shut = match self.shut_gates(&runs).await {
            Ok(shut) => shut,
            Err(error) => return Err(self.release_after_error(leases(&runs), error).await),
        };
        if shut.is_empty() && !runs.iter().any(|run| is_suspect(run, now)) {
            return Ok(runs.into_iter().map(|run| (run, None)).collect());
        }
        let claimed = leases(&runs);
        match self
            .through_closed_gates(runs, &shut, worker, has_suspect)
            .await
        {
            Ok(passed) => Ok(passed),
            Err(error) => Err(self.release_after_error(claimed, error).await),
        }
    }

    /// Lets go of what was claimed and cannot be handed out, because of `error`.
    async fn release_after_error(&self, leases: Vec<Lease>, error: StoreError) -> StoreError {
        if let Err(ReleaseError { error, .. }) = release::release(self.backstop, &leases).await {
            tracing::warn!(%error, "jobs that were not handed out could not be put back; their leases run out");
        }
        error
    }

    async fn through_closed_gates(
        &self,
        runs: Vec<LeasedRun>,
        shut: &BTreeMap<(QueueName, Kind), SharedGate>,
        worker: &WorkerName,
        has_suspect: bool,
    ) -> StoreResult<Vec<(LeasedRun, Option<u64>)>> {
        let (runs, mut back) = self.admit_suspects(runs, worker, has_suspect).await?;
        let (now, mut passed) = (self.backstop.now(), Vec::new());
        // A gate that has let its last probe through lets none of the others through.
        let mut refused = BTreeMap::<(QueueName, Kind), Time>::new();
        for run in runs {
            let release = |at: Time| Settlement {
                lease: run.lease.clone(),
                outcome: Outcome::Released { at },
            };
            let at = (run.lease.queue.clone(), run.kind.clone());
            let way = match (refused.get(&at), shut.get(&at)) {
                (Some(until), _) => Err(*until),
                (None, Some(gate)) => self.gate_decision(&run, gate).await?,
                (None, None) => Ok(None),
            };
            match way {
                Err(until) => {
                    back.push(release(until));
                    refused.insert(at, until);
                }
                Ok(probe) => passed.push((run, probe)),
            }
        }
        if !back.is_empty() {
            self.backstop.store().settle(back, now).await?;
        }
        self.record_begin(passed).await
    }

    /// A suspect is noted before it is handed out: if its worker dies, the note tells it from its
    /// neighbours.
    async fn record_begin(
        &self,
        passed: Vec<(LeasedRun, Option<u64>)>,
    ) -> StoreResult<Vec<(LeasedRun, Option<u64>)>> {
        let now = self.backstop.now();
        let suspects: Vec<_> = passed
            .iter()
            .filter(|(run, _)| is_suspect(run, now))
            .map(|(run, _)| run.lease.clone())
            .collect();
        if suspects.is_empty() {
            return Ok(passed);
        }
        let lost: BTreeSet<_> = self
            .backstop
            .store()
            .begin(suspects, now)
            .await?
            .into_iter()
            .collect();
        for (run, _) in &passed {
            if let Some((waited, _)) = run
                .history
                .record_rerun(now)
                .filter(|_| run.lost_leases > 0)
            {
                metrics::record_rerun(&run.lease.queue, waited);
            }
        }
        Ok(passed
            .into_iter()
            .filter(|(run, _)| !lost.contains(&run.lease))
            .collect())
    }

    /// The gates before these runs that do not let everything through.
    async fn shut_gates(
        &self,
        runs: &[LeasedRun],
    ) -> StoreResult<BTreeMap<(QueueName, Kind), SharedGate>> {
        let kinds: BTreeSet<(&QueueName, &Kind)> = runs
            .iter()
            .map(|run| (&run.lease.queue, &run.kind))
            .collect();
        let names: Vec<String> = kinds
            .into_iter()
            .map(|(queue, kind)| BreakerName::Gate(queue.clone(), kind.clone()).cell_name())
            .collect();
        let mut shut = BTreeMap::new();
        for names in names.chunks(backstop_core::limits::CELLS_MAX) {
            let cells = self.backstop.store().cells(names.to_vec()).await?;
            shut.extend(
                cells
                    .iter()
                    .flatten()
                    .filter_map(parse_gate_cell)
                    .filter(|(_, gate)| {
                        let admission = gate.state.admits(&gate.settings, self.backstop.now());
                        !matches!(admission, BreakerAdmission::Unlimited { .. })
                    }),
            );
        }
        Ok(shut)
    }

    /// The way of a run through a gate that is not open: a probe's epoch, or until when it goes
    /// back.
    async fn gate_decision(
        &self,
        run: &LeasedRun,
        gate: &SharedGate,
    ) -> StoreResult<Result<Option<u64>, Time>> {
        let now = self.backstop.now();
        let again = now.after(gate.settings.breaker.recovery_timeout);
        if let BreakerAdmission::Blocked { until } = gate.state.admits(&gate.settings, now) {
            return Ok(Err(until.unwrap_or(again)));
        }
        let name = BreakerName::Gate(run.lease.queue.clone(), run.kind.clone()).cell_name();
        let until = self.probe_deadline(&run.lease.queue);
        let (_, way) = update(
            self.backstop,
            &name,
            gate.clone(),
            |gate: &mut SharedGate| match gate.state.admits(&gate.settings, now) {
                BreakerAdmission::Unlimited { .. } => Ok(None),
                _ => match gate.state.admit(&gate.settings, 1, until, now) {
                    admitted if admitted.calls > 0 => Ok(Some(admitted.epoch)),
                    _ => Err(again),
                },
            },
        )
        .await?;
        Ok(way)
    }

    /// Tells breakers and gates what happened. Where the store does not take it, others tell them
    /// by their own runs.
    pub(super) async fn send_reports(&self, news: HttpBreakerReports) {
        for (queue, signals) in news.breakers {
            if let Err(error) = self.report_to_breaker(&queue, &signals).await {
                tracing::warn!(%error, %queue, "its breaker could not be told");
            }
        }
        for ((queue, kind), gate_update) in news.gates {
            if let Err(error) = self.report_to_gate(&queue, &kind, &gate_update).await {
                tracing::warn!(%error, %queue, %kind, "its gate could not be told");
            }
        }
    }

    /// Whether the breaker of a queue wants to know how runs end.
    pub(super) fn has_breaker(&self, queue: &QueueName) -> bool {
        self.settings(queue)
            .is_some_and(|settings| settings.breaker.is_some())
    }

    /// Whether the breaker of a queue is closed, with nothing to count.
    pub(super) async fn is_calm(&self, queue: &QueueName) -> StoreResult<bool> {
        let cell = self
            .backstop
            .store()
            .cells(vec![BreakerName::Breaker(queue.clone()).cell_name()])
            .await?;
        let breaker = cell
            .first()
            .and_then(Option::as_ref)
            .and_then(read::<SharedBreaker>);
        Ok(breaker.is_none_or(|breaker| breaker.state.has_no_recent_failures()))
    }

    async fn report_to_breaker(
        &self,
        queue: &QueueName,
        signals: &[CallReport],
    ) -> StoreResult<()> {
        let Some(absent) = self.breaker_of(queue) else {
            return Ok(());
        };
        let (name, now) = (BreakerName::Breaker(queue.clone()), self.backstop.now());
        let has_failure = signals
            .iter()
            .any(|signal| signal.outcome == CallOutcome::Failure);
        let (breaker, before) = update(self.backstop, &name.cell_name(), absent, |breaker| {
            let before = breaker.state.phase(&breaker.settings, now);
            // Successes of a calm breaker are told to nobody: a healthy service costs no write.
            if has_failure || !breaker.state.has_no_recent_failures() {
                breaker.state.record(&breaker.settings, signals, now);
            }
            before
        })
        .await?;
        let status = breaker.state.status(&breaker.settings, now);
        log_change(&name, before, &status);
        Ok(())
    }

    async fn report_to_gate(
        &self,
        queue: &QueueName,
        kind: &Kind,
        gate_update: &GateUpdate,
    ) -> StoreResult<()> {
        let settings: GateSettings = self
            .settings(queue)
            .map(|settings| settings.gate)
            .unwrap_or_default();
        let (name, now) = (
            BreakerName::Gate(queue.clone(), kind.clone()),
            self.backstop.now(),
        );
        let absent = SharedGate {
            settings,
            state: Gate::default(),
        };
        let (gate, before) = update(self.backstop, &name.cell_name(), absent, |gate| {
            let before = gate.state.phase(&gate.settings, now);
            gate.settings = settings;
            gate.state.apply_update(&settings, gate_update, now);
            before
        })
        .await?;
        let status = gate.state.status(&gate.settings, now);
        log_change(&name, before, &status.breaker);
        Ok(())
    }

    fn breaker_of(&self, queue: &QueueName) -> Option<SharedBreaker> {
        let settings = self.settings(queue)?.breaker?;
        Some(SharedBreaker {
            settings,
            state: Breaker::default(),
        })
    }

    /// Until when a probe must have ended, unless its worker died.
    fn probe_deadline(&self, queue: &QueueName) -> Time {
        let now = self.backstop.now();
        let Some(settings) = self.settings(queue) else {
            return now.after(Span::minutes(1));
        };
        let recovery = settings
            .breaker
            .unwrap_or(settings.gate.breaker)
            .recovery_timeout;
        now.after(
            settings
                .timeout
                .unwrap_or_else(|| recovery.times(4))
                .max(settings.lease),
        )
    }
}
