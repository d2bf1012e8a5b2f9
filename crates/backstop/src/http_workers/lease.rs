//! Handing jobs out: at once if there are any, else as soon as there are, or when the worker has
//! waited long enough.

use super::admission::HttpPermit;
use super::lease_token::{LeaseToken, TokenData};
use super::{HttpWorkers, side_wait};
use crate::worker::QueueSettings;
use crate::workers::WorkerDescription;
use backstop_core::blame::is_suspect;
use backstop_core::limits::{CLAIM_JOBS_MAX, LEASE_MAX, LEASE_MIN, PROMOTE_MAX};
use backstop_core::plan::{QueueLoad, QueueQuota, plan_claim};
use backstop_core::port::{BeatRequest, HintSubscription, StoreResult};
use backstop_core::{LeasedRun, QueueName, Span, WorkerName};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The longest time between two looks for jobs; hints make it shorter.
const POLL: Duration = Duration::from_secs(1);
/// Looks follow hints no closer than this: many who wait must not all ask with every job of others.
const HINT_GAP: Duration = Duration::from_millis(2);
/// Jobs whose time has come are made ready no more often than this, by all who ask together:
/// whoever asks again and again without waiting makes the store look no more often.
const PROMOTE_GAP: Duration = Duration::from_millis(20);
/// Claims of one look: what one queue does not have is asked of the others.
const ROUNDS_MAX: usize = 4;

/// A request for jobs by a worker over HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseRequest {
    /// From where; at least one.
    pub queues: Vec<QueueName>,
    /// At most so many, over all queues; clamped to what one claim takes.
    pub max: usize,
    pub worker: WorkerName,
    /// For how long, unless it beats; `None` for as long as the queue with the shortest lease
    /// says. Clamped to the shortest and the longest lease there is.
    pub lease: Option<Span>,
    /// How long to wait for the first job.
    pub wait: Span,
    /// What the worker tells of itself.
    pub about: WorkerDescription,
}

/// A job handed out, and the right to end its run.
#[derive(Clone, PartialEq, Debug)]
pub struct LeasedJob {
    pub run: LeasedRun,
    /// To be shown when the run ends.
    pub token: LeaseToken,
}

/// What is left of a look after some of its rounds.
struct LookProgress {
    /// Queues that may have more.
    queues: Vec<QueueName>,
    /// How long until a rate limit that is met has room again.
    room_in: Option<Span>,
}

impl HttpWorkers<'_> {
    /// Hands out ready jobs, waiting for the first if need be. Nothing is handed out of paused
    /// queues, behind open breakers and shut gates, over a rate limit, or to a worker that is asked
    /// to take no new jobs.
    pub async fn lease(&self, request: &LeaseRequest) -> StoreResult<Vec<LeasedJob>> {
        self.lease_until(request, &CancellationToken::new()).await
    }

    /// The same, and waits no longer once `closing` is cancelled: nobody is kept by a process that
    /// goes down, and no claim is cut off.
    pub async fn lease_until(
        &self,
        request: &LeaseRequest,
        closing: &CancellationToken,
    ) -> StoreResult<Vec<LeasedJob>> {
        let term = request
            .lease
            .unwrap_or_else(|| self.shortest_lease(&request.queues))
            .clamp(LEASE_MIN, LEASE_MAX);
        let deadline = Instant::now() + Duration::from(request.wait);
        // Before the first look: what is pushed during it is not missed.
        let mut hints = (!request.wait.is_zero()).then(|| self.backstop.store().watch());
        let request = &LeaseRequest {
            queues: distinct(&request.queues),
            ..request.clone()
        };
        let mut promote_at = Instant::now();
        let mut takes_jobs = false;
        loop {
            let command = self.command_for(&request.worker, &request.about).await?;
            self.note_alive(request, term).await?;
            let has_command = command.is_some();
            if let Some(command) = command
                .filter(|command| takes_jobs || !self.was_delivered(&request.worker, command))
            {
                // It hears at once what it is asked for. Who asks again in spite of that waits as
                // long as for jobs.
                self.deliver(&request.worker, command);
                return Ok(Vec::new());
            }
            takes_jobs = !has_command;
            let (leased, room_in) = if has_command {
                (Vec::new(), None)
            } else {
                self.look_once(request, term).await?
            };
            if !leased.is_empty() {
                return Ok(leased);
            }
            if has_command {
                promote_at = Instant::now() + POLL;
            } else if Instant::now() >= promote_at {
                let (moved, next) = self.promote().await?;
                promote_at = Instant::now() + next;
                if moved {
                    continue;
                }
            }
            if Instant::now() >= deadline || closing.is_cancelled() {
                return Ok(Vec::new());
            }
            let room_at =
                room_in.map(|span| Instant::now() + Duration::from(span).max(PROMOTE_GAP));
            let next = room_at.map_or(promote_at, |room_at| promote_at.min(room_at));
            tokio::select! {
                biased;
                () = closing.cancelled() => return Ok(Vec::new()),
                () = wait_for_hint(hints.as_mut()) => {}
                () = tokio::time::sleep_until(next.min(deadline)) => {}
            }
        }
    }

    fn shortest_lease(&self, queues: &[QueueName]) -> Span {
        let usual_lease = QueueSettings::default().lease;
        let leases = queues.iter().map(|queue| {
            self.settings(queue)
                .map_or(usual_lease, |settings| settings.lease)
        });
        leases.min().unwrap_or(usual_lease)
    }

    /// Notes that the worker is alive, unless that was done moments ago.
    async fn note_alive(&self, request: &LeaseRequest, term: Span) -> StoreResult<()> {
        let now = self.backstop.now();
        if !self.seen_workers.is_due(&request.worker, now) {
            return Ok(());
        }
        let (worker, queues) = (request.worker.clone(), request.queues.clone());
        let beat = BeatRequest {
            worker,
            queues,
            leases: Vec::new(),
            until: now.after(term),
        };
        self.backstop.store().beat(beat, now).await?;
        self.save_heartbeat(&request.worker, &request.about, side_wait(term))
            .await;
        self.seen_workers
            .note(&request.worker, &request.queues, now);
        Ok(())
    }

    /// Makes jobs ready whose time has come; whether there were any, and when to do it again.
    async fn promote(&self) -> StoreResult<(bool, Duration)> {
        let now = self.backstop.now();
        if let Some(next) = self.seen_workers.promoted_within(PROMOTE_GAP, now) {
            return Ok((false, next));
        }
        let promoted = self.backstop.store().promote(PROMOTE_MAX, now).await?;
        let next: Duration = promoted.next_due.map_or(POLL, |due| due.since(now).into());
        let next = next.clamp(PROMOTE_GAP, POLL);
        self.seen_workers.note_promotion(now, next);
        Ok((promoted.moved > 0, next))
    }

    /// One look at all queues. What was handed out before something failed is handed out: it is the
    /// worker's already. And how long until a rate limit that is met has room again.
    async fn look_once(
        &self,
        request: &LeaseRequest,
        term: Span,
    ) -> StoreResult<(Vec<LeasedJob>, Option<Span>)> {
        let max = request.max.clamp(1, CLAIM_JOBS_MAX);
        let mut leased: Vec<LeasedJob> = Vec::new();
        let mut progress = LookProgress {
            queues: request.queues.clone(),
            room_in: None,
        };
        for _ in 0..ROUNDS_MAX {
            let now = self.backstop.now();
            let has_suspect = leased.iter().any(|one| is_suspect(&one.run, now));
            // Beside a suspect there are likely more, and they would only go back.
            let room = if has_suspect { 1 } else { max - leased.len() };
            match self
                .claim_round(request, term, &mut progress, room, has_suspect)
                .await
            {
                Ok(more) => leased.extend(more),
                Err(error) if leased.is_empty() => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "fewer jobs are handed out than were asked for");
                    break;
                }
            }
            if progress.queues.is_empty() || request.queues.len() == 1 || leased.len() >= max {
                break;
            }
        }
        Ok((leased, progress.room_in))
    }

    /// One claim of at most `room` jobs. Leaves of the queues those that may have more.
    async fn claim_round(
        &self,
        request: &LeaseRequest,
        term: Span,
        progress: &mut LookProgress,
        room: usize,
        has_suspect: bool,
    ) -> StoreResult<Vec<LeasedJob>> {
        let turn = self.backstop.random().bits() as usize;
        let (permits, room_in) = self
            .get_permits(plan_claim(&queue_loads(&progress.queues, room), room, turn))
            .await?;
        progress.room_in = progress.room_in.or(room_in);
        if permits.is_empty() {
            progress.queues.clear();
            return Ok(Vec::new());
        }
        let runs = self.claim(request, term, &permits).await?;
        let of = |want: &QueueQuota| {
            runs.iter()
                .filter(|run| run.lease.queue == want.queue)
                .count()
        };
        // A queue that gave all it was asked for may have more.
        let more = permits
            .iter()
            .map(|one| &one.want)
            .filter(|want| of(want) >= want.max);
        progress.queues = more.map(|want| want.queue.clone()).collect();
        let passed = self.through_gates(runs, &request.worker, has_suspect).await;
        self.return_unused(passed.as_deref().unwrap_or_default(), &permits)
            .await;
        Ok(self.with_tokens(passed?, &permits, term))
    }

    fn with_tokens(
        &self,
        passed: Vec<(LeasedRun, Option<u64>)>,
        permits: &[HttpPermit],
        term: Span,
    ) -> Vec<LeasedJob> {
        let now = self.backstop.now();
        let epoch_of = |queue: &QueueName| {
            permits
                .iter()
                .find(|one| one.want.queue == *queue)
                .map_or(0, |one| one.epoch)
        };
        let leased = passed.into_iter().map(|(run, probe)| {
            let data = TokenData {
                lost_leases: run.lost_leases,
                began_at: now,
                epoch: epoch_of(&run.lease.queue),
                probe: probe.map_or(0, |epoch| epoch.saturating_add(1)),
            };
            let (job, number, wait) = (run.lease.job, run.lease.number, now.since(run.run_at));
            self.backstop
                .run_times_counter()
                .note_leased(job, number, run.kind.clone(), wait);
            LeasedJob {
                token: LeaseToken::new(&run, term, data),
                run,
            }
        });
        leased.collect()
    }
}

/// Returns a moment after the next hint; never, if nobody listens for one.
async fn wait_for_hint(hints: Option<&mut Box<dyn HintSubscription>>) {
    match hints {
        Some(hints) => hints.next().await,
        None => std::future::pending().await,
    }
    tokio::time::sleep(HINT_GAP).await;
}

/// Each queue once, where it was first named: what is asked for twice would be counted twice.
fn distinct(queues: &[QueueName]) -> Vec<QueueName> {
    let mut seen = BTreeSet::new();
    queues
        .iter()
        .filter(|queue| seen.insert(*queue))
        .cloned()
        .collect()
}

/// Queues of a worker that has room for `max` jobs, whichever they are of.
fn queue_loads(queues: &[QueueName], max: usize) -> Vec<QueueLoad> {
    let load = |queue: &QueueName| QueueLoad {
        queue: queue.clone(),
        concurrency: max,
        prefetch: 0,
        running: 0,
        buffered: 0,
    };
    queues.iter().map(load).collect()
}
