//! Makes a world from a seed: subscriptions, their checks, and the ways in which results reach a
//! consumer.
//!
//! The same plan always gives the same world. Whatever the plan, a result that counts as in time is
//! there before a stream gives it up, and lateness and loss keep away from everything else that is
//! out of order: what a consumer then calls missed beyond the truth is its own fault.

mod course;
mod dice;
mod sent;
#[cfg(test)]
mod tests;
mod watched;

use crate::limits::{MINUTES_MAX, SUBSCRIPTIONS_MAX};
use crate::world::{Arrival, Slot, Truth, World};
use course::{Course, Fate, Stalls};
use dice::Dice;
use sent::Sender;
use watched::Watched;

/// How long a stream waits for a gap to close: 10, 20, 30, 60 and 60 s.
pub const GIVE_UP_MS: i64 = 180_000;
/// What is left of that for a result in time, however long it is awaited: a machine may fall so far
/// behind before a stream calls something missed that is not.
pub const SLACK_MS: i64 = GIVE_UP_MS - course::FILL_MAX_MS;
/// Records of one key a stream holds before it drains them.
pub const HELD_MAX: usize = 10;
/// 2026-01-01T00:00:00Z.
const STARTS_AT_MS: i64 = 1_767_225_600_000;

/// What the world is to be like. Shares are between 0 and 1.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Decides everything that the plan leaves open.
    pub seed: u64,
    /// Subscriptions that are watched.
    pub subscriptions: u32,
    /// How long checks are made.
    pub minutes: u32,
    /// The share of results that a slow worker holds back.
    pub slow: f64,
    /// For how long at most, in seconds.
    pub slow_max_s: u32,
    /// Minutes from one stall of the consumer to the next; what comes during one arrives in a heap
    /// afterwards.
    pub stall_every_min: u32,
    /// How long a stall lasts, in seconds. 0: there is none.
    pub stall_s: u32,
    /// The share of results that never arrive.
    pub dropped: f64,
    /// The share of results that arrive when they have been given up.
    pub late: f64,
    /// The share of results that arrive twice.
    pub duplicates: f64,
    /// The share of results that are followed by something that is none.
    pub broken: f64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            subscriptions: 600,
            minutes: 30,
            slow: 0.2,
            slow_max_s: 120,
            stall_every_min: 10,
            stall_s: 180,
            dropped: 0.003,
            late: 0.002,
            duplicates: 0.01,
            broken: 0.0005,
        }
    }
}

/// Why a plan cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A share is none.
    #[error("{0} is a share: it must be between 0 and 1, not {1}")]
    Share(&'static str, f64),
    /// A number is out of bounds.
    #[error("{0} must be between {1} and {2}, not {3}")]
    Bounds(&'static str, u32, u32, u32),
    /// Stalls would run into each other.
    #[error("stalls of {0} s every {1} min leave no time between them; at least 2 min are needed")]
    Stalls(u32, u32),
}

impl Plan {
    fn check(&self) -> Result<(), PlanError> {
        for (name, share) in [
            ("slow", self.slow),
            ("dropped", self.dropped),
            ("late", self.late),
            ("duplicates", self.duplicates),
            ("broken", self.broken),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(PlanError::Share(name, share));
            }
        }
        for (name, min, max, number) in [
            ("subscriptions", 1, SUBSCRIPTIONS_MAX, self.subscriptions),
            ("minutes", 1, MINUTES_MAX, self.minutes),
            ("slow_max_s", 1, 120, self.slow_max_s),
            ("stall_s", 0, 240, self.stall_s),
            ("stall_every_min", 1, MINUTES_MAX, self.stall_every_min),
        ] {
            if !(min..=max).contains(&number) {
                return Err(PlanError::Bounds(name, min, max, number));
            }
        }
        if self.stall_s > 0 && self.stall_every_min * 60 < self.stall_s + 120 {
            return Err(PlanError::Stalls(self.stall_s, self.stall_every_min));
        }
        Ok(())
    }

    fn ends_at_ms(&self) -> i64 {
        STARTS_AT_MS + i64::from(self.minutes) * 60_000
    }
}

/// Makes the world.
pub fn generate(plan: &Plan) -> Result<World, PlanError> {
    plan.check()?;
    let stalls = Stalls::of(plan);
    let (directory, watched, unwatched) = watched::populate(plan);
    let mut making = Making {
        plan,
        arrivals: Vec::new(),
        truth: Truth {
            starts_at_ms: STARTS_AT_MS,
            ..Truth::default()
        },
    };
    for (nth, subscription) in (0..).zip(&watched) {
        let mut dice = Dice::new(plan.seed, nth);
        let course = Course::run(plan, &stalls, subscription.interval, &mut dice);
        making.send(subscription, &course, &stalls, &mut dice);
    }
    for (nth, subscription) in (u64::from(u32::MAX)..).zip(&unwatched) {
        making.send_unwatched(subscription, &mut Dice::new(plan.seed, nth));
    }
    // The sort is stable: what arrives in the same millisecond stays in the order in which it was
    // made.
    making.arrivals.sort_by_key(|arrival| arrival.at_ms);
    Ok(World {
        directory,
        trace: making.arrivals,
        truth: making.truth,
    })
}

struct Making<'a> {
    plan: &'a Plan,
    arrivals: Vec<Arrival>,
    truth: Truth,
}

impl Making<'_> {
    fn send(&mut self, subscription: &Watched, course: &Course, stalls: &Stalls, dice: &mut Dice) {
        let mut sender = Sender::new(subscription, dice);
        for passage in &course.passages {
            let bytes = sender.result(passage.position, dice);
            let slot = Slot {
                key: subscription.key,
                position: passage.position,
            };
            match passage.fate {
                Fate::Dropped => {
                    self.truth.dropped.insert(slot);
                }
                Fate::Late(at_ms) => {
                    self.truth.late.insert(slot);
                    self.arrivals.push(Arrival { at_ms, bytes });
                }
                Fate::InTime(at_ms) => {
                    self.truth.in_time += 1;
                    self.spoil(at_ms, &bytes, dice);
                    self.arrivals.push(Arrival {
                        at_ms,
                        bytes: bytes.clone(),
                    });
                    if dice.chance(self.plan.duplicates) {
                        self.truth.duplicates += 1;
                        let at_ms = stalls.pass(at_ms + 10 + dice.below(90_000), dice);
                        let bytes = if dice.chance(0.5) {
                            bytes
                        } else {
                            sender.result(passage.position, dice)
                        };
                        self.arrivals.push(Arrival { at_ms, bytes });
                    }
                }
            }
            if let Some(bytes) = sender.shadow(passage.position, dice) {
                let at_ms = stalls.pass(passage.position + 50 + dice.below(2_000), dice);
                self.arrivals.push(Arrival { at_ms, bytes });
            }
        }
    }

    /// Half of a result arrives beside the whole one.
    fn spoil(&mut self, at_ms: i64, bytes: &bytes::Bytes, dice: &mut Dice) {
        if dice.chance(self.plan.broken) {
            self.truth.broken += 1;
            self.arrivals.push(Arrival {
                at_ms,
                bytes: bytes.slice(..bytes.len() / 2),
            });
        }
    }

    /// Results that validation does not let pass: prompt, once a minute.
    fn send_unwatched(&mut self, subscription: &Watched, dice: &mut Dice) {
        let mut sender = Sender::new(subscription, dice);
        let mut position = STARTS_AT_MS + dice.below(60) * 1000;
        while position < self.plan.ends_at_ms() {
            let bytes = sender.result(position, dice);
            self.arrivals.push(Arrival {
                at_ms: position + 50 + dice.below(2_000),
                bytes,
            });
            position += subscription.interval.millis();
        }
    }
}
