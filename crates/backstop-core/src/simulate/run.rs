//! The simulation, one event at a time.

use super::scenario::bucket_count;
use super::{InvalidScenario, Scenario, SimulationBucket, SimulationResult};
use crate::breaker::{Breaker, BreakerAdmission, BreakerSettings, CallOutcome, CallReport};
use crate::limits::SIMULATED_EVENTS_MAX;
use crate::retry::{RandomDraw, RetryDecision};
use crate::time::{Span, Time};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

const START: Time = Time::from_micros(0);
/// How much longer than a call its permit lasts. No worker dies in the simulation.
const GRACE: Span = Span::minutes(1);

/// Runs a checked scenario to its end.
pub(super) fn run(scenario: &Scenario) -> Result<SimulationResult, InvalidScenario> {
    let mut play = SimulationRun::new(scenario);
    let end = START.after(scenario.run_for);
    for _ in 0..SIMULATED_EVENTS_MAX {
        let now = play.next_moment();
        if now >= end {
            return Ok(play.report());
        }
        play.close_buckets(now);
        play.process_next_event(now);
        play.start_calls(now);
        play.look_for_backlog(now);
    }
    Err(InvalidScenario::TooLarge)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SimulatedJob {
    arrived: Time,
    failures: u32,
}

/// A job during its call.
struct SimulatedCall {
    ends: Time,
    job: SimulatedJob,
    fails: bool,
    epoch: u64,
}

/// A job that waits for its next attempt. The number keeps jobs with the same due time in the order
/// of their failures.
type WaitingJob = Reverse<(Time, u64, SimulatedJob)>;

/// The shared breaker, and its settings.
struct SimulatedBreaker {
    settings: BreakerSettings,
    breaker: Breaker,
}

struct SimulationRun<'a> {
    scenario: &'a Scenario,
    draws: SplitMixRng,
    guard: Option<SimulatedBreaker>,
    next_arrival: Time,
    ready: VecDeque<SimulatedJob>,
    waiting: BinaryHeap<WaitingJob>,
    /// All calls take the same time, so the first to begin is the first to end.
    running: VecDeque<SimulatedCall>,
    /// When to ask a breaker again that lets no call through.
    ask_again: Option<Time>,
    waits: u64,
    /// For each bucket, the calls that began after the outage.
    recovered: Vec<u64>,
    closed_buckets: usize,
    sums: SimulationResult,
}

impl<'a> SimulationRun<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let bucket_at = |n: i64| SimulationBucket {
            at: scenario.bucket.times(n),
            ..SimulationBucket::default()
        };
        let buckets: Vec<SimulationBucket> = (0..bucket_count(scenario)).map(bucket_at).collect();
        let guard = scenario.breaker.map(|settings| SimulatedBreaker {
            settings,
            breaker: Breaker::default(),
        });
        let mut play = Self {
            scenario,
            draws: SplitMixRng(scenario.seed),
            guard,
            next_arrival: START,
            ready: VecDeque::new(),
            waiting: BinaryHeap::new(),
            running: VecDeque::new(),
            ask_again: None,
            waits: 0,
            recovered: vec![0; buckets.len()],
            closed_buckets: 0,
            sums: empty_result(buckets, scenario.outage.1),
        };
        play.next_arrival = play.arrival(0);
        play
    }

    /// The arrival time of job number `n`: a random moment of its own share of time.
    #[expect(
        clippy::cast_precision_loss,
        reason = "the number of jobs is far below 2^53"
    )]
    fn arrival(&mut self, n: u64) -> Time {
        let share = n as f64 + self.draws.roll().value();
        START.after(Span::secs(1).scaled(share / self.scenario.arrivals_per_second))
    }

    fn next_moment(&self) -> Time {
        let end_of_call = self.running.front().map(|call| call.ends);
        let end_of_wait = self.waiting.peek().map(|Reverse((due, ..))| *due);
        let others = [end_of_call, end_of_wait, self.ask_again];
        others
            .into_iter()
            .flatten()
            .fold(self.next_arrival, Time::min)
    }

    /// Processes one due event. The end of a call comes first, so that its slot is free for the
    /// next one.
    fn process_next_event(&mut self, now: Time) {
        if self.running.front().is_some_and(|call| call.ends <= now) {
            if let Some(call) = self.running.pop_front() {
                self.end(&call, now);
            }
        } else if self
            .waiting
            .peek()
            .is_some_and(|Reverse((due, ..))| *due <= now)
        {
            self.ready
                .extend(self.waiting.pop().map(|Reverse((.., job))| job));
        } else if self.next_arrival <= now {
            self.ready.push_back(SimulatedJob {
                arrived: now,
                failures: 0,
            });
            self.sums.jobs += 1;
            self.next_arrival = self.arrival(self.sums.jobs);
        }
    }

    fn end(&mut self, call: &SimulatedCall, now: Time) {
        if let Some(guard) = &mut self.guard {
            let sign = if call.fails {
                CallOutcome::Failure
            } else {
                CallOutcome::Success
            };
            guard.breaker.record(
                &guard.settings,
                &[CallReport {
                    epoch: call.epoch,
                    outcome: sign,
                }],
                now,
            );
        }
        if !call.fails {
            self.sums.done += 1;
            return;
        }
        let failures = call.job.failures.saturating_add(1);
        match self
            .scenario
            .policy
            .next(failures, now.since(call.job.arrived), self.draws.roll())
        {
            RetryDecision::RetryAfter(wait) => {
                self.waiting.push(Reverse((
                    now.after(wait),
                    self.waits,
                    SimulatedJob {
                        failures,
                        ..call.job
                    },
                )));
                self.waits += 1;
            }
            RetryDecision::AttemptsExhausted | RetryDecision::TooOld => {
                self.sums.dead += 1;
                let at = self.bucket(now);
                self.sums.buckets[at].dead += 1;
            }
        }
    }

    fn start_calls(&mut self, now: Time) {
        self.ask_again = None;
        while self.running.len() < self.scenario.concurrency as usize && !self.ready.is_empty() {
            let Some(epoch) = self.admission(now) else {
                break;
            };
            if let Some(job) = self.ready.pop_front() {
                self.start(job, epoch, now);
            }
        }
    }

    /// The epoch for one more call. If the breaker blocks it, returns `None` and sets when to ask
    /// again.
    fn admission(&mut self, now: Time) -> Option<u64> {
        let Some(guard) = &mut self.guard else {
            return Some(0);
        };
        match guard.breaker.admits(&guard.settings, now) {
            BreakerAdmission::Unlimited { epoch } => Some(epoch),
            BreakerAdmission::Probes { .. } => {
                let until = now.after(self.scenario.service_time).after(GRACE);
                self.sums.probes += 1;
                Some(guard.breaker.admit(&guard.settings, 1, until, now).epoch)
            }
            BreakerAdmission::Blocked { until } => {
                self.ask_again = until;
                None
            }
        }
    }

    fn start(&mut self, job: SimulatedJob, epoch: u64, now: Time) {
        let (from, until) = self.scenario.outage;
        let ends = now.after(self.scenario.service_time);
        let fails = now < START.after(until) && ends > START.after(from);
        let at = self.bucket(now);
        self.sums.calls += 1;
        self.sums.buckets[at].calls += 1;
        self.sums.failed_calls += u64::from(fails);
        self.sums.buckets[at].failed += u64::from(fails);
        self.sums.calls_during_outage += u64::from(fails && now >= START.after(from));
        self.recovered[at] += u64::from(now >= START.after(until));
        self.running.push_back(SimulatedCall {
            ends,
            job,
            fails,
            epoch,
        });
    }

    fn look_for_backlog(&mut self, now: Time) {
        let is_over = now >= START.after(self.scenario.outage.1);
        if is_over
            && self.sums.backlog_gone_at.is_none()
            && self.ready.is_empty()
            && self.waiting.is_empty()
        {
            self.sums.backlog_gone_at = Some(now.since(START));
        }
    }

    fn bucket(&self, at: Time) -> usize {
        let micros = at.since(START).as_micros().unsigned_abs();
        (micros / self.scenario.bucket.as_micros().unsigned_abs()) as usize
    }

    /// Records the backlog at the end of every bucket that is over.
    fn close_buckets(&mut self, now: Time) {
        let current = self.bucket(now);
        let backlog = self.backlog();
        for bucket in &mut self.sums.buckets[self.closed_buckets..current] {
            bucket.backlog = backlog;
        }
        self.closed_buckets = current;
    }

    fn backlog(&self) -> u64 {
        (self.ready.len() + self.waiting.len() + self.running.len()) as u64
    }

    fn report(mut self) -> SimulationResult {
        let backlog = self.backlog();
        for bucket in &mut self.sums.buckets[self.closed_buckets..] {
            bucket.backlog = backlog;
        }
        for (calls, bucket) in self.recovered.iter().zip(&self.sums.buckets) {
            if *calls > self.sums.peak_calls_per_bucket_after_recovery {
                self.sums.peak_calls_per_bucket_after_recovery = *calls;
                self.sums.peak_after_recovery_at = bucket.at;
            }
        }
        self.sums
    }
}

fn empty_result(buckets: Vec<SimulationBucket>, recovery: Span) -> SimulationResult {
    SimulationResult {
        buckets,
        jobs: 0,
        done: 0,
        dead: 0,
        calls: 0,
        failed_calls: 0,
        calls_during_outage: 0,
        probes: 0,
        peak_calls_per_bucket_after_recovery: 0,
        peak_after_recovery_at: recovery,
        backlog_gone_at: None,
    }
}

/// A repeatable random generator: splitmix64, for which every seed is a good one.
struct SplitMixRng(u64);

impl SplitMixRng {
    fn roll(&mut self) -> RandomDraw {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        RandomDraw::from_bits(bits ^ (bits >> 31))
    }
}
