//! Ending runs of workers elsewhere: judged here, by the rules of their queues, as the runs of a
//! worker of this process are.

use super::Remote;
use super::guards::News;
use super::ticket::Ticket;
use crate::engine::Engine;
use crate::engine::settle::{given_back, tell};
use crate::spreads::{Elsewhere, Ran};
use crate::worker::QueueSettings;
use backstop_core::breaker::{Sign, Signal};
use backstop_core::failure::Context;
use backstop_core::limits::{DELAY_MAX, FIND_MAX};
use backstop_core::port::{Answer, Settled, StoreError};
use backstop_core::verdict::{Ending, Settlement, judge};
use backstop_core::{Job, JobId, Kind, Lease, Leased, Outcome, QueueName, State, Time, WorkerName};
use std::collections::{BTreeMap, BTreeSet};

/// A run that ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Whose.
    pub job: JobId,
    /// The right to end it; `None` for what is no ticket of ours, and never was.
    pub ticket: Option<Ticket>,
    /// How.
    pub ending: Ending,
}

/// What became of the end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    /// It counts; also said when the very same end is told again while the job is kept.
    Applied,
    /// The lease was no longer the current one, or the job is gone. Nothing was changed.
    Stale,
}

/// An end that was judged.
pub(super) struct Judged {
    pub(super) settlement: Settlement,
    /// When the run was handed out.
    pub(super) began_at: Time,
    /// Its number: 1 for the first.
    pub(super) attempt: u32,
    /// What it says about the service behind the queue.
    signal: Signal,
    /// The kind of the job, where its gate is to be told.
    kind: Option<Kind>,
    probe: Option<u64>,
    /// Whether the run had ended before: if it counts, it has counted.
    is_repeated: bool,
}

impl Remote<'_> {
    /// Ends runs; answers in the order of `ended`. Safe to repeat.
    pub async fn settle(&self, ended: Vec<Ended>) -> Answer<Vec<Said>> {
        let watched = self.watched(&ended).await?;
        let known = self.known(&ended, &watched).await?;
        let judged = ended
            .into_iter()
            .map(|ended| self.judged(ended, &watched, &known))
            .collect();
        let judged = self.in_context(judged).await;
        let settlements: Vec<Settlement> = judged
            .iter()
            .flatten()
            .map(|judged| judged.settlement.clone())
            .collect();
        if settlements.is_empty() {
            return Ok(vec![Said::Stale; judged.len()]);
        }
        let settled = self
            .backstop
            .store()
            .settle(settlements, self.backstop.now())
            .await?;
        if settled.contains(&Settled::Unanswered) {
            // Told again, what counts already is known to.
            return Err(StoreError::unavailable(
                "settling",
                "not every queue answers",
            ));
        }
        let (mut answers, mut news, mut back) =
            (settled.iter().copied(), News::default(), Vec::new());
        let said = judged.iter().map(|judged| {
            let (Some(judged), Some(answer)) =
                (judged, judged.as_ref().and_then(|_| answers.next()))
            else {
                return Said::Stale;
            };
            self.account(judged, answer, &mut news, &mut back)
        });
        let said: Vec<Said> = said.collect();
        if !back.is_empty() {
            self.backstop
                .store()
                .settle(back, self.backstop.now())
                .await?;
        }
        self.tell(news).await;
        self.note_overlaps(&judged, &settled).await;
        Ok(said)
    }

    /// Takes note of an answer.
    fn account(
        &self,
        judged: &Judged,
        answer: Settled,
        news: &mut News,
        back: &mut Vec<Settlement>,
    ) -> Said {
        let queue = &judged.settlement.lease.queue;
        if answer == Settled::Stale {
            let Lease { queue, job, .. } = &judged.settlement.lease;
            tracing::warn!(%job, %queue, "a run elsewhere ended that was no longer its worker's: its job was cancelled or taken over; its outcome does not count");
            return Said::Stale;
        }
        if judged.is_repeated {
            return Said::Applied;
        }
        self.note_ran(judged);
        if answer == Settled::Full {
            back.push(given_back(&judged.settlement, self.backstop.now()));
        } else {
            tell(self.backstop, &judged.settlement);
        }
        if self.has_breaker(queue) {
            news.of_breaker(queue, judged.signal);
        }
        if let Some(kind) = &judged.kind {
            match (&judged.settlement.outcome, judged.probe) {
                (Outcome::Dead { .. }, probe) => {
                    news.of_death(queue, kind, probe, answer != Settled::Full);
                }
                (Outcome::Done(_), Some(epoch)) => {
                    news.of_probe(
                        queue,
                        kind,
                        Signal {
                            epoch,
                            sign: Sign::Success,
                        },
                    );
                }
                (_, Some(epoch)) => news.of_probe(
                    queue,
                    kind,
                    Signal {
                        epoch,
                        sign: Sign::Neutral,
                    },
                ),
                (_, None) => {}
            }
        }
        Said::Applied
    }

    /// Counts a run for the charts. For its kind it counts where it was handed out, however it
    /// ended: elsewhere only what failed is read, and a share of failures would be of those alone.
    fn note_ran(&self, judged: &Judged) {
        let Settlement { lease, outcome } = &judged.settlement;
        let Some(failed) = outcome.has_failed() else {
            return;
        };
        let (kind, wait) = match self.backstop.tally().ended(lease.job, lease.number) {
            Elsewhere::First(kind, wait) => (Some(kind), Some(wait)),
            Elsewhere::Again => return,
            Elsewhere::Unknown => (None, None),
        };
        let now = self.backstop.now();
        let took = now.since(judged.began_at);
        let ran = Ran {
            queue: &lease.queue,
            kind: kind.as_ref(),
            wait,
            took,
            failed,
        };
        self.backstop.tally().note(&ran, now);
    }

    /// The queues among these whose breakers count every end: one that is told twice must not count
    /// twice.
    async fn watched(&self, ended: &[Ended]) -> Answer<BTreeSet<QueueName>> {
        let queues = ended
            .iter()
            .filter_map(|ended| ended.ticket.as_ref())
            .map(|ticket| &ticket.queue);
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
    async fn known(
        &self,
        ended: &[Ended],
        watched: &BTreeSet<QueueName>,
    ) -> Answer<BTreeMap<JobId, Job>> {
        let mut unread: BTreeMap<&QueueName, BTreeSet<JobId>> = BTreeMap::new();
        for Ended {
            job,
            ticket,
            ending,
        } in ended
        {
            if let Some(ticket) = ticket
                .as_ref()
                .filter(|ticket| !is_plain(ticket, ending, watched))
            {
                unread.entry(&ticket.queue).or_default().insert(*job);
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
    fn judged(
        &self,
        ended: Ended,
        watched: &BTreeSet<QueueName>,
        known: &BTreeMap<JobId, Job>,
    ) -> Option<Judged> {
        let Ended {
            job,
            ticket,
            ending,
        } = ended;
        let ticket = ticket?;
        let signal = Signal {
            epoch: ticket.past.epoch,
            sign: ending.sign(),
        };
        let (probe, began_at, attempt) = (
            ticket.past.probe.checked_sub(1),
            ticket.past.began_at,
            ticket.attempt,
        );
        let usual = QueueSettings::usual(&ticket.queue);
        let settings = self.settings(&ticket.queue).unwrap_or(&usual);
        let (rules, now) = (Engine::rules(settings), self.backstop.now());
        let outcome = match &ending {
            _ if !is_plain(&ticket, &ending, watched) => None,
            Ending::Released(wait) => Some(Outcome::Released {
                at: now.after((*wait).min(DELAY_MAX)),
            }),
            _ => Some(Outcome::Done(rules.keep)),
        };
        if let Some(outcome) = outcome {
            let settlement = Settlement {
                lease: ticket.lease(job),
                outcome,
            };
            return Some(Judged {
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
        let is_repeated = known.state != State::Running || known.attempt != ticket.attempt;
        let run = run_of(known, ticket);
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
        Some(Judged {
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
    async fn in_context(&self, mut judged: Vec<Option<Judged>>) -> Vec<Option<Judged>> {
        let is_dead = |judged: &Judged| matches!(judged.settlement.outcome, Outcome::Dead { .. });
        if !judged.iter().flatten().any(is_dead) {
            return judged;
        }
        let known = self.context().await;
        for judged in judged.iter_mut().flatten() {
            if let Outcome::Dead { history, .. } = &mut judged.settlement.outcome {
                let worker = history.failures().pop().map(|failure| failure.worker);
                *history = history.in_context(Context {
                    worker,
                    ..known.clone()
                });
            }
        }
        judged
    }

    /// What is known now. What the store does not tell is left out. The host is this process's: of
    /// the worker's only its name is known.
    async fn context(&self) -> Context {
        let now = self.backstop.now();
        let queues = self.backstop.store().queues(now).await.unwrap_or_default();
        let guards = self.backstop.breakers().list().await.unwrap_or_default();
        let depths = queues
            .into_iter()
            .map(|queue| (queue.name.to_string(), queue.counts.live()));
        let states = guards
            .into_iter()
            .map(|guard| (guard.name.to_string(), guard.word().to_owned()));
        Context {
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
fn is_plain(ticket: &Ticket, ending: &Ending, watched: &BTreeSet<QueueName>) -> bool {
    let is_quiet = ticket.past.probe == 0 && !watched.contains(&ticket.queue);
    let is_easy = match ending {
        Ending::Done => true,
        Ending::Released(_) => ticket.past.lost_leases == 0,
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
fn run_of(job: Job, ticket: Ticket) -> Leased {
    let rerun = (ticket.past.lost_leases > 0)
        .then(|| job.history.rerun(ticket.past.began_at))
        .flatten();
    Leased {
        kind: job.kind,
        payload: job.payload,
        priority: job.priority,
        attempts_before: ticket.attempt.saturating_sub(1),
        lost_leases: ticket.past.lost_leases,
        inserted_at: job.inserted_at,
        run_at: job.run_at,
        terms: job.terms,
        history: rerun.map_or(job.history, |(_, history)| history),
        lease: ticket.lease(job.id),
    }
}
