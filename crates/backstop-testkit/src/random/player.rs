//! Who decides what happens next. Learns from the answers, so that its leases are mostly real ones.

mod streams;

use super::{Replies, Sequence};
use crate::given::{self, START};
use crate::model::{Operation, Reply};
use backstop_core::amend::{AmendAction, Filter, Selection};
use backstop_core::bounds::DEAD_MAX_DEFAULT;
use backstop_core::failure::{ErrorReport, FailureCause, FailureRecord};
use backstop_core::limits::{AMEND_MAX, LEASE_MAX, PROMOTE_MAX, SEIZE_MAX};
use backstop_core::plan::QueueQuota;
use backstop_core::port::{
    AmendJobsRequest, BeatRequest, CellSwap, Claim, NewDeadLetter, PruneRequest, QueueState,
    Retention, SeizeRequest, SettleOutcome,
};
use backstop_core::unique::{StateSet, UniqueConstraint};
use backstop_core::verdict::{DoneRetention, EndReason, Settlement};
use backstop_core::{
    Fingerprint, JobId, JobState, Kind, Lease, LeaseNumber, LeasedRun, NewJob, Outcome, Overflow,
    Priority, QueueBounds, QueueName, Span, Time, WorkerName,
};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};

const QUEUES: [&str; 3] = ["a", "a-b", "b"];
const KINDS: [&str; 2] = ["send", "fetch"];
const KEYS: [&str; 3] = ["x", "y", "z"];
const WORKERS: [&str; 3] = ["ada", "bob", "eve"];
const CELLS: [&str; 3] = ["one", "one/more", "two"];

/// How many of all operations are on streams: one sequence in three is mostly about them, so that
/// keys meet as jobs do.
const STREAMS_SHARES: [f64; 3] = [0.8, 0.1, 0.1];
/// Leases remembered: enough for stale ones, few enough for live ones to be drawn.
const RUNS_MAX: usize = 12;

pub(super) struct Player {
    pub(super) now: Time,
    dice: StdRng,
    replies: Replies,
    pushed: Vec<NewJob>,
    runs: Vec<LeasedRun>,
    claims: Vec<Claim>,
    seizes: Vec<SeizeRequest>,
    /// The settlement that was accepted last for each job.
    settled: BTreeMap<JobId, Settlement>,
    /// Versions that cells had, or might have had.
    versions: Vec<i64>,
    /// What was accepted under each lease, by the outcome's tag.
    accepted: BTreeSet<(Lease, u8)>,
    streams: streams::Remembered,
    streams_share: f64,
}

impl Player {
    pub(super) fn new(sequence: Sequence) -> Self {
        Self {
            now: START,
            dice: StdRng::seed_from_u64(sequence.seed),
            replies: sequence.replies,
            pushed: Vec::new(),
            runs: Vec::new(),
            claims: Vec::new(),
            seizes: Vec::new(),
            settled: BTreeMap::new(),
            versions: Vec::new(),
            accepted: BTreeSet::new(),
            streams: streams::Remembered::default(),
            streams_share: STREAMS_SHARES[(sequence.seed % 3) as usize],
        }
    }

    pub(super) fn flip(&mut self, probability: f64) -> bool {
        self.dice.random_bool(probability)
    }

    pub(super) fn pushed_ids(&self) -> Vec<JobId> {
        self.pushed.iter().map(|job| job.id).collect()
    }

    /// The next operation, and the time it happens at.
    pub(super) fn next(&mut self) -> Operation {
        if self.flip(0.6) {
            self.now = self.now.after(self.span(6));
        }
        if self.flip(self.streams_share) {
            return self.next_of_streams();
        }
        match self.dice.random_range(0..100) {
            0..20 => self.enqueue(),
            20..41 => self.claim(),
            41..46 => self.begin(),
            46..64 => self.settle(),
            64..72 => self.beat(),
            72..80 => self.promote(),
            80..86 => self.seize(),
            86..92 => self.amend(),
            92..94 => self.set_gate(),
            94..96 => self.set_bounds(),
            96..97 => self.bury(),
            97..98 => self.swap(),
            _ => self.prune(),
        }
    }

    /// Takes note of what a store answered.
    pub(super) fn learn(&mut self, operation: &Operation, reply: &Reply) {
        match (operation, reply) {
            (_, Reply::Claimed(runs)) => self.runs.extend(runs.iter().cloned()),
            (Operation::Take(take), Reply::Taken(taken)) => self.learn_taken(take, taken),
            (_, Reply::Seized(seized)) => self
                .runs
                .extend(seized.iter().map(|seized| seized.run.clone())),
            (Operation::Settle(settlements), Reply::Settled(answers)) => {
                for (settlement, answer) in settlements.iter().zip(answers) {
                    if *answer == SettleOutcome::Applied {
                        self.learn_settled(settlement);
                    }
                }
            }
            _ => {}
        }
        let surplus = self.runs.len().saturating_sub(RUNS_MAX);
        self.runs.drain(..surplus);
    }

    fn learn_settled(&mut self, settlement: &Settlement) {
        let Settlement { lease, outcome } = settlement;
        self.accepted.insert((lease.clone(), outcome.tag()));
        self.settled.insert(lease.job, settlement.clone());
        if *outcome == Outcome::Done(DoneRetention::Gone) {
            // Of a job that is gone a store may remember the end, or not: nobody asks again.
            self.runs.retain(|run| run.lease.job != lease.job);
            self.settled.remove(&lease.job);
        }
    }

    fn enqueue(&mut self) -> Operation {
        let count = self.dice.random_range(1..=5);
        Operation::Enqueue((0..count).map(|_| self.job()).collect())
    }

    fn job(&mut self) -> NewJob {
        if self.flip(0.1) && !self.pushed.is_empty() {
            return self.pick(|player| &player.pushed);
        }
        let queue = self.queue();
        let name = format!("job-{}", self.pushed.len());
        let payload = backstop_core::Payload::from_stored(format!("\"{name}\"").into_bytes());
        let mut job = NewJob::new(JobId::named(&name), queue, self.kind(), payload);
        job.priority = *Priority::ALL
            .choose(&mut self.dice)
            .expect("there are levels");
        job.run_at = match self.dice.random_range(0..10) {
            0..6 => None,
            6 => Some(self.now.before(self.span(10))),
            _ => Some(self.now.after(self.span(15))),
        };
        if self.flip(0.4) {
            job.unique = Some(self.unique());
        }
        self.pushed.push(job.clone());
        job
    }

    fn unique(&mut self) -> UniqueConstraint {
        let waiting = StateSet::of(&[JobState::Scheduled, JobState::Ready]);
        let all_but_dead = [
            JobState::Scheduled,
            JobState::Ready,
            JobState::Running,
            JobState::Retrying,
            JobState::Done,
        ];
        let reaches = [
            StateSet::LIVE,
            StateSet::LIVE,
            StateSet::of(&JobState::ALL),
            waiting,
            StateSet::of(&all_but_dead),
        ];
        let text = KEYS.choose(&mut self.dice).expect("there are keys");
        UniqueConstraint {
            key: given::key(text),
            period: if self.flip(0.5) {
                None
            } else {
                Some(self.span(30))
            },
            states: *reaches.choose(&mut self.dice).expect("there are reaches"),
        }
    }

    fn claim(&mut self) -> Operation {
        if self.flip(0.1) && !self.claims.is_empty() {
            return Operation::Claim(self.pick(|player| &player.claims));
        }
        let mut queues = QUEUES.to_vec();
        let first = self.dice.random_range(0..queues.len());
        queues.rotate_left(first);
        queues.truncate(self.dice.random_range(1..=2));
        let wants = queues.into_iter().map(given::queue);
        let wants: Vec<QueueQuota> = wants
            .map(|queue| QueueQuota {
                queue,
                max: self.dice.random_range(1..=4),
            })
            .collect();
        let claim = Claim {
            number: self.number(),
            worker: self.worker(),
            until: self.until(),
            wants,
        };
        self.claims.push(claim.clone());
        // A claim is repeated soon or never.
        let surplus = self.claims.len().saturating_sub(3);
        self.claims.drain(..surplus);
        Operation::Claim(claim)
    }

    fn settle(&mut self) -> Operation {
        let count = self.dice.random_range(1..=4);
        let mut settlements: Vec<Settlement> = Vec::new();
        for run in self.some_runs(count) {
            let settlement = self.settlement(&run);
            // Twice in one batch, with the same word or another one.
            if self.flip(0.1) && settlement.outcome != Outcome::Done(DoneRetention::Gone) {
                let word = if self.flip(0.5) {
                    settlement.outcome.clone()
                } else {
                    given::cancelled()
                };
                let again = Settlement {
                    lease: settlement.lease.clone(),
                    outcome: word,
                };
                settlements.extend([settlement, again]);
            } else {
                settlements.push(settlement);
            }
        }
        Operation::Settle(settlements)
    }

    fn settlement(&mut self, run: &LeasedRun) -> Settlement {
        let (lease, outcome) = (run.lease.clone(), self.outcome(run));
        let last = self.settled.get(&lease.job).cloned();
        // A store need only remember the last word on a job: an older one is not said again.
        let is_old_word = self.accepted.contains(&(lease.clone(), outcome.tag()))
            && last.as_ref().is_none_or(|last| last.lease != lease);
        match last {
            Some(last) if self.flip(0.3) => last,
            _ if is_old_word || self.flip(0.05) => Settlement {
                lease: self.invented(lease),
                outcome,
            },
            _ => Settlement { lease, outcome },
        }
    }

    fn invented(&mut self, lease: Lease) -> Lease {
        Lease {
            number: self.number(),
            ..lease
        }
    }

    fn outcome(&mut self, run: &LeasedRun) -> Outcome {
        let worker = self.worker();
        let word = if self.flip(0.5) { "failure" } else { "trouble" };
        let error = ErrorReport::message(format!("{word} at {}", self.now));
        let failure = FailureRecord::new(
            self.now,
            run.attempt(),
            FailureCause::Failed,
            &worker,
            error,
        );
        let history = run.history.with_failure(failure);
        let at = if self.flip(0.5) {
            self.now
        } else {
            self.now.after(self.span(12))
        };
        let death = if self.flip(0.3) {
            EndReason::CrashedWorker
        } else {
            EndReason::AttemptsExhausted
        };
        match self.dice.random_range(0..12) {
            0..3 => Outcome::Done(DoneRetention::Listed),
            3 => Outcome::Done(DoneRetention::Gone),
            4..6 => Outcome::Retry {
                at,
                history,
                anew: self.flip(0.3),
            },
            6..8 => Outcome::Dead {
                reason: death,
                history,
            },
            8 => Outcome::Cancelled {
                reason: EndReason::Unwanted,
                history,
            },
            9 => Outcome::Released { at },
            10 => Outcome::Reran { at, history },
            _ => Outcome::Lost { at, history },
        }
    }

    fn begin(&mut self) -> Operation {
        let count = self.dice.random_range(1..=4);
        Operation::Begin(self.some_leases(count))
    }

    fn beat(&mut self) -> Operation {
        let count = self.dice.random_range(0..=4);
        let leases = self.some_leases(count);
        let queues = vec![self.queue()];
        Operation::Beat(BeatRequest {
            worker: self.worker(),
            queues,
            leases,
            until: self.until(),
        })
    }

    fn promote(&mut self) -> Operation {
        // A repeated promotion goes on where the first one stopped, so that it must not stop early
        // to be compared.
        let is_small = self.replies == Replies::Heard && self.flip(0.3);
        Operation::Promote(if is_small {
            self.dice.random_range(1..=2)
        } else {
            PROMOTE_MAX
        })
    }

    fn seize(&mut self) -> Operation {
        if self.flip(0.15) && !self.seizes.is_empty() {
            return Operation::Seize(self.pick(|player| &player.seizes));
        }
        let (number, worker, until) = (self.number(), self.worker(), self.until());
        // Which part of a claim goes first is the store's choice, so that the whole is asked for.
        let seize = SeizeRequest {
            number,
            worker,
            until,
            max: SEIZE_MAX,
            spared: Vec::new(),
        };
        self.seizes.push(seize.clone());
        let surplus = self.seizes.len().saturating_sub(2);
        self.seizes.drain(..surplus);
        Operation::Seize(seize)
    }

    fn amend(&mut self) -> Operation {
        let action = match self.dice.random_range(0..4) {
            0 => AmendAction::Retry,
            1 => AmendAction::Cancel,
            2 => AmendAction::Delete,
            _ => AmendAction::Move(self.queue()),
        };
        let only = JobState::ALL
            .choose(&mut self.dice)
            .copied()
            .filter(|_| self.flip(0.2));
        let selection = match self.dice.random_range(0..20) {
            0 => Selection::All,
            1 => Selection::Matching(Filter::default()),
            2..9 => Selection::Matching(self.filter()),
            9..12 => Selection::Within(self.queue(), self.some_ids()),
            _ => Selection::Ids(self.some_ids()),
        };
        let max = if self.flip(0.5) {
            self.dice.random_range(0..=3)
        } else {
            AMEND_MAX
        };
        Operation::Amend(AmendJobsRequest {
            selection,
            action,
            only,
            cursor: None,
            max,
        })
    }

    fn some_ids(&mut self) -> Vec<JobId> {
        let mut ids = vec![JobId::named("nobody")];
        ids.extend(self.pushed.sample(&mut self.dice, 3).map(|job| job.id));
        if self.flip(0.8) {
            ids.remove(0);
        }
        ids
    }

    fn filter(&mut self) -> Filter {
        Filter {
            queue: Some(self.queue()).filter(|_| self.flip(0.5)),
            kind: Some(self.kind()).filter(|_| self.flip(0.3)),
            state: JobState::ALL
                .choose(&mut self.dice)
                .copied()
                .filter(|_| self.flip(0.6)),
            fingerprint: Some(Fingerprint::of(&ErrorReport::message("failure at 1")))
                .filter(|_| self.flip(0.1)),
        }
    }

    fn set_bounds(&mut self) -> Operation {
        // What gives way to a later job of its batch may free a key: the same push, made again,
        // then answers differently.
        let overflow = match self.replies {
            Replies::Heard => *Overflow::ALL
                .choose(&mut self.dice)
                .expect("there are ways"),
            Replies::SometimesLost => Overflow::Reject,
        };
        let bounds = QueueBounds {
            max_size: Some(self.dice.random_range(1..=8)).filter(|_| self.flip(0.5)),
            overflow,
            dead_max: if self.flip(0.5) {
                self.dice.random_range(0..=5)
            } else {
                DEAD_MAX_DEFAULT
            },
        };
        Operation::SetBounds(self.queue(), bounds)
    }

    fn bury(&mut self) -> Operation {
        let count = self.dice.random_range(1..=3);
        Operation::Bury((0..count).map(|_| self.burial()).collect())
    }

    fn burial(&mut self) -> NewDeadLetter {
        let job = self.job();
        let finished_at = self.now.before(self.span(20));
        NewDeadLetter {
            job,
            attempts: self.dice.random_range(0..=9),
            lost_leases: self.dice.random_range(0..=2),
            requeues: self.dice.random_range(0..=2),
            inserted_at: finished_at.before(self.span(20)),
            finished_at,
            reason: *EndReason::ALL
                .choose(&mut self.dice)
                .expect("there are reasons"),
            history: given::history("failure at 7"),
        }
    }

    fn swap(&mut self) -> Operation {
        let count = self.dice.random_range(1..=3);
        Operation::Swap((0..count).map(|_| self.one_swap()).collect())
    }

    fn one_swap(&mut self) -> CellSwap {
        let version = self.dice.random();
        let seen = self.versions.last().copied().filter(|_| self.flip(0.8));
        self.versions.push(version);
        CellSwap {
            name: (*CELLS.choose(&mut self.dice).expect("there are cells")).to_owned(),
            seen,
            version,
            value: Some(version.to_be_bytes().to_vec()).filter(|_| self.flip(0.8)),
        }
    }

    fn set_gate(&mut self) -> Operation {
        let gate = if self.flip(0.4) {
            QueueState::Paused
        } else {
            QueueState::Active
        };
        Operation::SetGate(self.queue(), gate)
    }

    fn prune(&mut self) -> Operation {
        let usual = Some(self.shelf()).filter(|_| self.flip(0.7));
        let own = (self.queue(), self.shelf());
        Operation::Prune(PruneRequest {
            default: usual,
            queues: vec![own],
            max: self.dice.random_range(1..=50),
        })
    }

    fn shelf(&mut self) -> Retention {
        Retention {
            done_for: self.span(60),
            done_max: self.dice.random_range(0..=4),
            cancelled_for: self.span(60),
            dead_for: self.span(60),
        }
    }

    /// Runs of different jobs, as they were handed out: some of them are over, or were taken away.
    fn some_runs(&mut self, count: usize) -> Vec<LeasedRun> {
        let mut runs: Vec<LeasedRun> = self.runs.sample(&mut self.dice, count).cloned().collect();
        runs.sort_by_key(|run| run.lease.job);
        runs.dedup_by_key(|run| run.lease.job);
        runs
    }

    fn some_leases(&mut self, count: usize) -> Vec<Lease> {
        let mut leases: Vec<Lease> = self
            .some_runs(count)
            .into_iter()
            .map(|run| run.lease)
            .collect();
        if let (true, Some(lease)) = (self.flip(0.1), leases.pop()) {
            leases.push(self.invented(lease));
        }
        leases
    }

    fn until(&mut self) -> Time {
        if self.flip(0.02) {
            return self.now.after(LEASE_MAX).after(Span::days(9));
        }
        self.now.after(self.span(12)).after(Span::millis(1))
    }

    /// Up to so many seconds, to the microsecond.
    fn span(&mut self, secs_max: i64) -> Span {
        Span::micros(self.dice.random_range(0..=secs_max * 1_000_000))
    }

    fn number(&mut self) -> LeaseNumber {
        LeaseNumber::draw(self.dice.random())
    }

    fn worker(&mut self) -> WorkerName {
        WorkerName::new(WORKERS.choose(&mut self.dice).expect("there are workers"))
    }

    fn queue(&mut self) -> QueueName {
        given::queue(QUEUES.choose(&mut self.dice).expect("there are queues"))
    }

    fn kind(&mut self) -> Kind {
        let kind = KINDS.choose(&mut self.dice).expect("there are kinds");
        Kind::new(kind).expect("a kind")
    }

    fn pick<T: Clone>(&mut self, of: impl Fn(&Self) -> &Vec<T>) -> T {
        let index = self.dice.random_range(0..of(self).len());
        of(self)[index].clone()
    }
}
