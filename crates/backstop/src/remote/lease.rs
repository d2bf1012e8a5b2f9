//! Handing jobs out: at once if there are any, else as soon as there are, or when the worker has
//! waited long enough.

use super::guards::Allowed;
use super::ticket::{Past, Ticket};
use super::{Remote, beside};
use crate::worker::QueueSettings;
use crate::workers::About;
use backstop_core::blame::is_suspect;
use backstop_core::limits::{CLAIM_JOBS_MAX, LEASE_MAX, LEASE_MIN, PROMOTE_MAX};
use backstop_core::plan::{Lane, Want, wants};
use backstop_core::port::{Answer, Beat, Hints};
use backstop_core::{Leased, QueueName, Span, WorkerName};
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

/// A request for jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// From where; at least one.
    pub queues: Vec<QueueName>,
    /// At most so many, over all queues; clamped to what one claim takes.
    pub max: usize,
    /// For whom.
    pub worker: WorkerName,
    /// For how long, unless it beats; `None` for as long as the queue with the shortest lease says.
    /// Clamped to the shortest and the longest lease there is.
    pub lease: Option<Span>,
    /// How long to wait for the first job.
    pub wait: Span,
    /// What the worker tells of itself.
    pub about: About,
}

/// A job handed out, and the right to end its run.
#[derive(Clone, PartialEq, Debug)]
pub struct Handed {
    /// The job.
    pub run: Leased,
    /// To be shown when the run ends.
    pub ticket: Ticket,
}

/// What is left of a look after some of its rounds.
struct Left {
    /// Queues that may have more.
    queues: Vec<QueueName>,
    /// How long until a rate limit that is met has room again.
    room_in: Option<Span>,
}

impl Remote<'_> {
    /// Hands out ready jobs, waiting for the first if need be. Nothing is handed out of paused
    /// queues, behind open breakers and shut gates, over a rate limit, or to a worker that is asked
    /// to take no new jobs.
    pub async fn lease(&self, ask: &Ask) -> Answer<Vec<Handed>> {
        self.lease_until(ask, &CancellationToken::new()).await
    }

    /// The same, and waits no longer once `closing` is cancelled: nobody is kept by a process that
    /// goes down, and no claim is cut off.
    pub async fn lease_until(&self, ask: &Ask, closing: &CancellationToken) -> Answer<Vec<Handed>> {
        let term = ask
            .lease
            .unwrap_or_else(|| self.usual_term(&ask.queues))
            .clamp(LEASE_MIN, LEASE_MAX);
        let deadline = Instant::now() + Duration::from(ask.wait);
        // Before the first look: what is pushed during it is not missed.
        let mut hints = (!ask.wait.is_zero()).then(|| self.backstop.store().watch());
        let ask = &Ask {
            queues: distinct(&ask.queues),
            ..ask.clone()
        };
        let mut promote_at = Instant::now();
        let mut takes_jobs = false;
        loop {
            let order = self.order_for(&ask.worker, &ask.about).await?;
            self.attend(ask, term).await?;
            let is_asked = order.is_some();
            if let Some(order) =
                order.filter(|order| takes_jobs || !self.was_told(&ask.worker, order))
            {
                // It hears at once what it is asked for. Who asks again in spite of that waits as
                // long as for jobs.
                self.tell_of(&ask.worker, order);
                return Ok(Vec::new());
            }
            takes_jobs = !is_asked;
            let (handed, room_in) = if is_asked {
                (Vec::new(), None)
            } else {
                self.look(ask, term).await?
            };
            if !handed.is_empty() {
                return Ok(handed);
            }
            if is_asked {
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
                () = hinted(hints.as_mut()) => {}
                () = tokio::time::sleep_until(next.min(deadline)) => {}
            }
        }
    }

    fn usual_term(&self, queues: &[QueueName]) -> Span {
        let usual = QueueSettings::default().lease;
        let said = queues.iter().map(|queue| {
            self.settings(queue)
                .map_or(usual, |settings| settings.lease)
        });
        said.min().unwrap_or(usual)
    }

    /// Notes that the worker is alive, unless that was done moments ago.
    async fn attend(&self, ask: &Ask, term: Span) -> Answer<()> {
        let now = self.backstop.now();
        if !self.attendance.is_due(&ask.worker, now) {
            return Ok(());
        }
        let (worker, queues) = (ask.worker.clone(), ask.queues.clone());
        let beat = Beat {
            worker,
            queues,
            leases: Vec::new(),
            until: now.after(term),
        };
        self.backstop.store().beat(beat, now).await?;
        self.put_down(&ask.worker, &ask.about, beside(term)).await;
        self.attendance.note(&ask.worker, &ask.queues, now);
        Ok(())
    }

    /// Makes jobs ready whose time has come; whether there were any, and when to do it again.
    async fn promote(&self) -> Answer<(bool, Duration)> {
        let now = self.backstop.now();
        if let Some(next) = self.attendance.promoted_within(PROMOTE_GAP, now) {
            return Ok((false, next));
        }
        let promoted = self.backstop.store().promote(PROMOTE_MAX, now).await?;
        let next: Duration = promoted.next_due.map_or(POLL, |due| due.since(now).into());
        let next = next.clamp(PROMOTE_GAP, POLL);
        self.attendance.note_promotion(now, next);
        Ok((promoted.moved > 0, next))
    }

    /// One look at all queues. What was handed out before something failed is handed out: it is the
    /// worker's already. And how long until a rate limit that is met has room again.
    async fn look(&self, ask: &Ask, term: Span) -> Answer<(Vec<Handed>, Option<Span>)> {
        let max = ask.max.clamp(1, CLAIM_JOBS_MAX);
        let mut handed: Vec<Handed> = Vec::new();
        let mut left = Left {
            queues: ask.queues.clone(),
            room_in: None,
        };
        for _ in 0..ROUNDS_MAX {
            let now = self.backstop.now();
            let has_suspect = handed.iter().any(|one| is_suspect(&one.run, now));
            // Beside a suspect there are likely more, and they would only go back.
            let room = if has_suspect { 1 } else { max - handed.len() };
            match self.round(ask, term, &mut left, room, has_suspect).await {
                Ok(more) => handed.extend(more),
                Err(error) if handed.is_empty() => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "fewer jobs are handed out than were asked for");
                    break;
                }
            }
            if left.queues.is_empty() || ask.queues.len() == 1 || handed.len() >= max {
                break;
            }
        }
        Ok((handed, left.room_in))
    }

    /// One claim of at most `room` jobs. Leaves of the queues those that may have more.
    async fn round(
        &self,
        ask: &Ask,
        term: Span,
        left: &mut Left,
        room: usize,
        has_suspect: bool,
    ) -> Answer<Vec<Handed>> {
        let turn = self.backstop.random().bits() as usize;
        let (allowed, room_in) = self
            .allowed(wants(&lanes(&left.queues, room), room, turn))
            .await?;
        left.room_in = left.room_in.or(room_in);
        if allowed.is_empty() {
            left.queues.clear();
            return Ok(Vec::new());
        }
        let runs = self.claim(ask, term, &allowed).await?;
        let of = |want: &Want| {
            runs.iter()
                .filter(|run| run.lease.queue == want.queue)
                .count()
        };
        // A queue that gave all it was asked for may have more.
        let more = allowed
            .iter()
            .map(|one| &one.want)
            .filter(|want| of(want) >= want.max);
        left.queues = more.map(|want| want.queue.clone()).collect();
        let passed = self.through_gates(runs, &ask.worker, has_suspect).await;
        self.return_unused(passed.as_deref().unwrap_or_default(), &allowed)
            .await;
        Ok(self.with_tickets(passed?, &allowed, term))
    }

    fn with_tickets(
        &self,
        passed: Vec<(Leased, Option<u64>)>,
        allowed: &[Allowed],
        term: Span,
    ) -> Vec<Handed> {
        let now = self.backstop.now();
        let epoch_of = |queue: &QueueName| {
            allowed
                .iter()
                .find(|one| one.want.queue == *queue)
                .map_or(0, |one| one.epoch)
        };
        let handed = passed.into_iter().map(|(run, probe)| {
            let past = Past {
                lost_leases: run.lost_leases,
                began_at: now,
                epoch: epoch_of(&run.lease.queue),
                probe: probe.map_or(0, |epoch| epoch.saturating_add(1)),
            };
            let (job, number, wait) = (run.lease.job, run.lease.number, now.since(run.run_at));
            self.backstop
                .tally()
                .handed(job, number, run.kind.clone(), wait);
            Handed {
                ticket: Ticket::new(&run, term, past),
                run,
            }
        });
        handed.collect()
    }
}

/// Returns a moment after the next hint; never, if nobody listens for one.
async fn hinted(hints: Option<&mut Box<dyn Hints>>) {
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
fn lanes(queues: &[QueueName], max: usize) -> Vec<Lane> {
    let lane = |queue: &QueueName| Lane {
        queue: queue.clone(),
        concurrency: max,
        prefetch: 0,
        running: 0,
        buffered: 0,
    };
    queues.iter().map(lane).collect()
}
