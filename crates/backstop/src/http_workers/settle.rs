//! Ending runs of workers elsewhere: judged here, by the rules of their queues, as the runs of a
//! worker of this process are.

use super::HttpWorkers;
use super::admission::HttpBreakerReports;
use super::lease_token::LeaseToken;
use crate::engine::Engine;
use crate::engine::settle::{log_outcome, released_for_room};
use crate::run_times::{HttpRunLookup, RunSample};
use crate::worker::QueueSettings;
use backstop_core::breaker::{CallOutcome, CallReport};
use backstop_core::failure::DeathContext;
use backstop_core::limits::{DELAY_MAX, FIND_MAX};
use backstop_core::port::{SettleOutcome, StoreError, StoreResult};
use backstop_core::verdict::{RunEnding, Settlement, judge};
use backstop_core::{
    Job, JobId, JobState, Kind, Lease, LeasedRun, Outcome, QueueName, Time, WorkerName,
};
use std::collections::{BTreeMap, BTreeSet};

/// One run that a worker over HTTP reports as ended.
#[derive(Clone, Debug)]
pub struct SettleRequest {
    pub job: JobId,
    /// The right to end it; `None` for what is no ticket of ours, and never was.
    pub token: Option<LeaseToken>,
    pub ending: RunEnding,
}

/// What became of the end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettleResult {
    /// It counts; also said when the very same end is told again while the job is kept.
    Applied,
    /// The lease was no longer the current one, or the job is gone. Nothing was changed.
    Stale,
}

/// An end that was judged.
pub(super) struct JudgedEnd {
    pub(super) settlement: Settlement,
    /// When the run was handed out.
    pub(super) began_at: Time,
    /// Its number: 1 for the first.
    pub(super) attempt: u32,
    /// What it says about the service behind the queue.
    signal: CallReport,
    /// The kind of the job, where its gate is to be told.
    kind: Option<Kind>,
    probe: Option<u64>,
    /// Whether the run had ended before: if it counts, it has counted.
    is_repeated: bool,
}

impl HttpWorkers<'_> {
    /// Ends runs; answers in the order of `ended`. Safe to repeat.
    pub async fn settle(&self, requests: Vec<SettleRequest>) -> StoreResult<Vec<SettleResult>> {
        let watched = self.watched_queues(&requests).await?;
        let known = self.load_jobs(&requests, &watched).await?;
        let judged = requests
            .into_iter()
            .map(|request| self.judge_end(request, &watched, &known))
            .collect();
        let judged = self.with_context(judged).await;
        let settlements: Vec<Settlement> = judged
            .iter()
            .flatten()
            .map(|judged| judged.settlement.clone())
            .collect();
        if settlements.is_empty() {
            return Ok(vec![SettleResult::Stale; judged.len()]);
        }
        let settled = self
            .backstop
            .store()
            .settle(settlements, self.backstop.now())
            .await?;
        if settled.contains(&SettleOutcome::Unanswered) {
            // Told again, what counts already is known to.
            return Err(StoreError::unavailable(
                "settling",
                "not every queue answers",
            ));
        }
        let (mut answers, mut reports, mut releases) = (
            settled.iter().copied(),
            HttpBreakerReports::default(),
            Vec::new(),
        );
        let results = judged.iter().map(|judged| {
            let (Some(judged), Some(answer)) =
                (judged, judged.as_ref().and_then(|_| answers.next()))
            else {
                return SettleResult::Stale;
            };
            self.record_answer(judged, answer, &mut reports, &mut releases)
        });
        let results: Vec<SettleResult> = results.collect();
        if !releases.is_empty() {
            self.backstop
                .store()
                .settle(releases, self.backstop.now())
                .await?;
        }
        self.send_reports(reports).await;
        self.note_overlaps(&judged, &settled).await;
        Ok(results)
    }

    /// Takes note of an answer.
    fn record_answer(
        &self,
        judged: &JudgedEnd,
        answer: SettleOutcome,
        reports: &mut HttpBreakerReports,
        releases: &mut Vec<Settlement>,
    ) -> SettleResult {
        let queue = &judged.settlement.lease.queue;
        if answer == SettleOutcome::Stale {
            let Lease { queue, job, .. } = &judged.settlement.lease;
            tracing::warn!(%job, %queue, "a run elsewhere ended that was no longer its worker's: its job was cancelled or taken over; its outcome does not count");
            return SettleResult::Stale;
        }
        if judged.is_repeated {
            return SettleResult::Applied;
        }
        self.count_run(judged);
        if answer == SettleOutcome::Full {
            releases.push(released_for_room(&judged.settlement, self.backstop.now()));
        } else {
            log_outcome(self.backstop, &judged.settlement);
        }
        if self.has_breaker(queue) {
            reports.add_breaker_signal(queue, judged.signal);
        }
        if let Some(kind) = &judged.kind {
            match (&judged.settlement.outcome, judged.probe) {
                (Outcome::Dead { .. }, probe) => {
                    reports.add_death(queue, kind, probe, answer != SettleOutcome::Full);
                }
                (Outcome::Done(_), Some(epoch)) => {
                    reports.add_probe_signal(
                        queue,
                        kind,
                        CallReport {
                            epoch,
                            outcome: CallOutcome::Success,
                        },
                    );
                }
                (_, Some(epoch)) => reports.add_probe_signal(
                    queue,
                    kind,
                    CallReport {
                        epoch,
                        outcome: CallOutcome::Neutral,
                    },
                ),
                (_, None) => {}
            }
        }
        SettleResult::Applied
    }

    /// Counts a run for the charts. For its kind it counts where it was handed out, however it
    /// ended: elsewhere only what failed is read, and a share of failures would be of those alone.
    fn count_run(&self, judged: &JudgedEnd) {
        let Settlement { lease, outcome } = &judged.settlement;
        let Some(failed) = outcome.has_failed() else {
            return;
        };
        let (kind, wait) = match self
            .backstop
            .run_times_counter()
            .take_leased(lease.job, lease.number)
        {
            HttpRunLookup::First(kind, wait) => (Some(kind), Some(wait)),
            HttpRunLookup::Again => return,
            HttpRunLookup::Unknown => (None, None),
        };
        let now = self.backstop.now();
        let took = now.since(judged.began_at);
        let ran = RunSample {
            queue: &lease.queue,
            kind: kind.as_ref(),
            wait,
            took,
            failed,
        };
        self.backstop.run_times_counter().note(&ran, now);
    }

    /// The queues among these whose breakers count every end: one that is told twice must not count
    /// twice.
    async fn watched_queues(&self, requests: &[SettleRequest]) -> StoreResult<BTreeSet<QueueName>> {
        let queues = requests
            .iter()
            .filter_map(|request| request.token.as_ref())
            .map(|token| &token.queue);
        let queues: BTreeSet<&QueueName> = queues.filter(|queue| self.has_breaker(queue)).collect();
        let mut watched = BTreeSet::new();
        for queue in queues {
            if !self.is_calm(queue).await? {
                watched.insert(queue.clone());
            }
        }
        Ok(watched)
    }

    /// The jobs whose past decides what an end means, or whether it was told before: read together,
    /// by queue.
    async fn load_jobs(
        &self,
        requests: &[SettleRequest],
        watched: &BTreeSet<QueueName>,
    ) -> StoreResult<BTreeMap<JobId, Job>> {
        let mut unread: BTreeMap<&QueueName, BTreeSet<JobId>> = BTreeMap::new();
        for SettleRequest { job, token, ending } in requests {
            if let Some(token) = token
                .as_ref()
                .filter(|token| !is_independent_of_past(token, ending, watched))
            {
                unread.entry(&token.queue).or_default().insert(*job);
            }
        }
        let mut known = BTreeMap::new();
        for (queue, ids) in unread {
            let ids: Vec<JobId> = ids.into_iter().collect();
            for part in ids.chunks(FIND_MAX) {
                let found = self
                    .backstop
                    .store()
                    .find(queue.clone(), part.to_vec(), self.backstop.now())
                    .await?;
                known.extend(found.into_iter().flatten().map(|job| (job.id, job)));
            }
        }
        Ok(known)
    }

    /// What an end means; `None` if it cannot count.
    fn judge_end(
        &self,
        request: SettleRequest,
        watched: &BTreeSet<QueueName>,
        known: &BTreeMap<JobId, Job>,
    ) -> Option<JudgedEnd> {
        let SettleRequest { job, token, ending } = request;
        let token = token?;
        let signal = CallReport {
            epoch: token.data.epoch,
            outcome: ending.judge_service(),
        };
        let (probe, began_at, attempt) = (
            token.data.probe.checked_sub(1),
            token.data.began_at,
            token.attempt,
        );
        let usual = QueueSettings::default_for(&token.queue);
        let settings = self.settings(&token.queue).unwrap_or(&usual);
        let (rules, now) = (Engine::rules(settings), self.backstop.now());
        let outcome = match &ending {
            _ if !is_independent_of_past(&token, &ending, watched) => None,
            RunEnding::Released(wait) => Some(Outcome::Released {
                at: now.after((*wait).min(DELAY_MAX)),
            }),
            _ => Some(Outcome::Done(rules.keep)),
        };
        if let Some(outcome) = outcome {
            let settlement = Settlement {
                lease: token.lease(job),
                outcome,
            };
            return Some(JudgedEnd {
                settlement,
                began_at,
                attempt,
                signal,
                kind: None,
                probe,
                is_repeated: false,
            });
        }
        let known = known.get(&job)?.clone();
        let (kind, worker) = (Some(known.kind.clone()), worker_of(&known));
        let is_repeated = known.state != JobState::Running || known.attempt != token.attempt;
        let run = run_of(known, token);
        let outcome = judge(
            &run,
            ending,
            &worker,
            rules,
            now,
            self.backstop.random().roll(),
        );
        let settlement = Settlement {
            lease: run.lease,
            outcome,
        };
        Some(JudgedEnd {
            settlement,
            began_at,
            attempt,
            signal,
            kind,
            probe,
            is_repeated,
        })
    }

    /// Dead letters tell what was known about the world; it is looked at once for all of them.
    async fn with_context(&self, mut judged: Vec<Option<JudgedEnd>>) -> Vec<Option<JudgedEnd>> {
        let is_dead =
            |judged: &JudgedEnd| matches!(judged.settlement.outcome, Outcome::Dead { .. });
        if !judged.iter().flatten().any(is_dead) {
            return judged;
        }
        let known = self.current_context().await;
        for judged in judged.iter_mut().flatten() {
            if let Outcome::Dead { history, .. } = &mut judged.settlement.outcome {
                let worker = history.failures().pop().map(|failure| failure.worker);
                *history = history.with_context(DeathContext {
                    worker,
                    ..known.clone()
                });
            }
        }
        judged
    }

    /// What is known now. What the store does not tell is left out. The host is this process's: of
    /// the worker's only its name is known.
    async fn current_context(&self) -> DeathContext {
        let now = self.backstop.now();
        let queues = self.backstop.store().queues(now).await.unwrap_or_default();
        let guards = self.backstop.breakers().list().await.unwrap_or_default();
        let depths = queues
            .into_iter()
            .map(|queue| (queue.name.to_string(), queue.counts.live()));
        let states = guards
            .into_iter()
            .map(|guard| (guard.name.to_string(), guard.word().to_owned()));
        DeathContext {
            queue_depths: depths.take(CONTEXT_MAX).collect(),
            breakers: states.take(CONTEXT_MAX).collect::<BTreeMap<_, _>>(),
            worker: None,
            host: Some(
                rustix::system::uname()
                    .nodename()
                    .to_string_lossy()
                    .into_owned(),
            ),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            lost_workers: Vec::new(),
        }
    }
}

/// Whether an end means the same whatever the job's past.
fn is_independent_of_past(
    token: &LeaseToken,
    ending: &RunEnding,
    watched: &BTreeSet<QueueName>,
) -> bool {
    let is_quiet = token.data.probe == 0 && !watched.contains(&token.queue);
    let is_easy = match ending {
        RunEnding::Done => true,
        RunEnding::Released(_) => token.data.lost_leases == 0,
        _ => false,
    };
    is_quiet && is_easy
}

/// Queues and guards that a dead letter names.
const CONTEXT_MAX: usize = 20;

/// Who ran it, as far as the store still knows.
fn worker_of(job: &Job) -> WorkerName {
    job.held_by.as_ref().map_or_else(
        || WorkerName::new("unknown"),
        |holder| holder.worker.clone(),
    )
}

/// The run that a ticket is for. A job that has gone on since is judged as it was: the store then
/// refuses, or recognises what it was told before.
fn run_of(job: Job, token: LeaseToken) -> LeasedRun {
    let rerun = (token.data.lost_leases > 0)
        .then(|| job.history.record_rerun(token.data.began_at))
        .flatten();
    LeasedRun {
        kind: job.kind,
        payload: job.payload,
        priority: job.priority,
        attempts_before: token.attempt.saturating_sub(1),
        lost_leases: token.data.lost_leases,
        inserted_at: job.inserted_at,
        run_at: job.run_at,
        options: job.options,
        history: rerun.map_or(job.history, |(_, history)| history),
        lease: token.lease(job.id),
    }
}
