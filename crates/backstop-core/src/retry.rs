//! How long to wait after a failure, and when to stop.
//!
//! A policy is a curve (how the wait grows), a jitter (how it is spread) and two ends (attempts,
//! age). Its answer is a function of the failure count, the job's age and one random draw, so that
//! a wait can be stored, repeated and tested.

mod input;
mod preview;

pub use input::{InvalidPolicy, deserialize_for_stream};
pub use preview::{RetryPreview, preview, shortest_lifetime};

use crate::limits::DELAY_MAX;
use crate::time::Span;
use std::fmt;
use std::sync::Arc;

/// When and how often a failed job is retried.
#[derive(Clone, PartialEq, Debug)]
pub struct RetryPolicy {
    curve: RetryCurve,
    jitter: Jitter,
    max_attempts: Option<u32>,
    max_age: Option<Span>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum RetryCurve {
    /// `base · factor^(failures − 1)`, at most `cap`.
    Exponential {
        base: Span,
        /// The factor by which each further failure multiplies the wait.
        factor: f64,
        /// The longest wait, before jitter.
        cap: Span,
    },
    /// `fib(failures) · unit` with fib = 0, 1, 1, 2, 3, 5, 8 …, at most `cap`.
    Fibonacci {
        /// The wait that 1 in the sequence stands for.
        unit: Span,
        cap: Span,
    },
    /// One delay after another; after the end of the list the last one repeats.
    Steps(Vec<Span>),
    /// By the age of the job: the period of the youngest band that the job still fits in.
    Progressive(Vec<RetryBand>),
    Constant(Span),
    /// `n⁴ + 15 + rand(30) · (n + 1)` seconds with n = failures − 1.
    Polynomial,
    /// A function of the user's program. It is code: a queue can have it, a stored job cannot.
    Custom(CustomCurve),
}

/// A function from failure count, age and a random draw to a wait; `None` ends the job as too old.
#[derive(Clone)]
pub struct CustomCurve(Arc<CurveFunction>);

type CurveFunction = dyn Fn(u32, Span, RandomDraw) -> Option<Span> + Send + Sync;

impl PartialEq for CustomCurve {
    /// Compares identity: two functions that return the same waits are not equal.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for CustomCurve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomCurve")
    }
}

/// The retry period for jobs up to an age.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryBand {
    /// The oldest age of the band, itself included.
    pub until: Span,
    /// The wait between two attempts.
    pub every: Span,
}

/// How a wait is randomised, so that jobs that failed together do not come back together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Jitter {
    None,
    /// Adds up to this share of the wait, also to a capped one.
    Add(f64),
    /// Adds or subtracts up to this share of the wait.
    Spread(f64),
    /// Draws a wait between zero and the whole wait.
    Full,
    /// Draws a wait between half and the whole wait.
    Equal,
}

/// One random draw: at least 0, below 1.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct RandomDraw(f64);

impl RandomDraw {
    pub const LOWEST: Self = Self(0.0);
    pub const HIGHEST: Self = Self(1.0 - f64::EPSILON / 2.0);

    /// Makes a draw from 64 random bits.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
    pub fn from_bits(bits: u64) -> Self {
        Self((bits >> 11) as f64 / (1_u64 << 53) as f64)
    }

    pub const fn value(self) -> f64 {
        self.0
    }
}

/// What a policy decides after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryDecision {
    /// Retry the job after this wait.
    RetryAfter(Span),
    AttemptsExhausted,
    /// The job has reached the policy's maximum age.
    TooOld,
}

impl Default for RetryPolicy {
    /// The meaning of `{"kind":"exponential"}`, and the default of streams and `with_retry`: three
    /// runs, with waits of 1 s and 2 s and up to a quarter more. Queues use
    /// [`RetryPolicy::of_queues`].
    fn default() -> Self {
        let curve = RetryCurve::Exponential {
            base: Span::secs(1),
            factor: 2.0,
            cap: Span::secs(30),
        };
        Self {
            curve,
            jitter: Jitter::Add(0.25),
            max_attempts: Some(3),
            max_age: None,
        }
    }
}

impl RetryPolicy {
    /// The default of queues without a policy, or with one that names no kind: 20 runs in about
    /// nine hours, so that jobs outlive the restart, and the outage, of the service behind them.
    pub const fn of_queues() -> Self {
        let curve = RetryCurve::Exponential {
            base: Span::secs(1),
            factor: 2.0,
            cap: Span::hours(1),
        };
        Self {
            curve,
            jitter: Jitter::Add(0.25),
            max_attempts: Some(20),
            max_age: None,
        }
    }

    /// A policy with your own curve. `curve` gets the failure count, the job's age and a random
    /// draw, and returns the wait, at most ten years; `None` ends the job. It must return the same
    /// for the same arguments. The policy allows three attempts, unless changed.
    pub fn custom(
        curve: impl Fn(u32, Span, RandomDraw) -> Option<Span> + Send + Sync + 'static,
    ) -> Self {
        let curve = RetryCurve::Custom(CustomCurve(Arc::new(curve)));
        Self {
            curve,
            jitter: Jitter::None,
            ..Self::default()
        }
    }

    /// Whether the policy can be serialized: every policy but a custom one.
    pub const fn is_stored(&self) -> bool {
        !matches!(self.curve, RetryCurve::Custom(_))
    }

    /// Decides what follows failure number `failures` of a job of this age.
    pub fn next(&self, failures: u32, age: Span, roll: RandomDraw) -> RetryDecision {
        if self.max_attempts.is_some_and(|max| failures >= max) {
            return RetryDecision::AttemptsExhausted;
        }
        if self.max_age.is_some_and(|max| age >= max) {
            return RetryDecision::TooOld;
        }
        self.wait(failures, age, roll)
            .map_or(RetryDecision::TooOld, RetryDecision::RetryAfter)
    }

    /// The wait after `failures` failures, whether or not the policy would end the job; `None` past
    /// the last band of a progressive curve.
    pub fn wait(&self, failures: u32, age: Span, roll: RandomDraw) -> Option<Span> {
        let wait = self.curve.wait(failures, age, roll)?;
        let wait = self.jitter.spread(wait, roll);
        // Rounds to whole milliseconds: people and programs gain nothing from "1196309us".
        Some(match wait.as_millis() {
            0 => wait,
            millis => Span::millis(millis),
        })
    }

    /// All runs that a job may have, the first included; `None` if only its age ends it.
    pub const fn max_attempts(&self) -> Option<u32> {
        self.max_attempts
    }

    /// The age that ends a job; `None` if only its attempts end it.
    pub const fn max_age(&self) -> Option<Span> {
        self.max_age
    }

    /// This policy with `max` runs, the first included.
    #[must_use]
    pub const fn with_max_attempts(mut self, max: std::num::NonZeroU32) -> Self {
        self.max_attempts = Some(max.get());
        self
    }

    pub const fn curve(&self) -> &RetryCurve {
        &self.curve
    }

    pub const fn jitter(&self) -> Jitter {
        self.jitter
    }
}

impl RetryCurve {
    fn wait(&self, failures: u32, age: Span, roll: RandomDraw) -> Option<Span> {
        Some(match self {
            Self::Exponential { base, factor, cap } => {
                exponential(*base, *factor, failures).min(*cap)
            }
            Self::Fibonacci { unit, cap } => unit.times(fibonacci(failures)).min(*cap),
            Self::Steps(delays) => step(delays, failures),
            Self::Progressive(bands) => bands.iter().find(|band| age <= band.until)?.every,
            Self::Constant(every) => *every,
            Self::Polynomial => polynomial(failures, roll).min(DELAY_MAX),
            Self::Custom(curve) => (curve.0)(failures, age, roll)?.min(DELAY_MAX),
        })
    }
}

fn exponential(base: Span, factor: f64, failures: u32) -> Span {
    let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
    base.scaled(factor.powi(exponent))
}

/// fib(0) = 0, fib(1) = fib(2) = 1, fib(6) = 8; saturates from fib(93) on.
fn fibonacci(n: u32) -> i64 {
    let (mut current, mut following) = (0_i64, 1_i64);
    for _ in 0..n.min(93) {
        (current, following) = (following, current.saturating_add(following));
    }
    current
}

fn step(delays: &[Span], failures: u32) -> Span {
    let at = (failures.saturating_sub(1) as usize).min(delays.len().saturating_sub(1));
    delays.get(at).copied().unwrap_or(Span::ZERO)
}

fn polynomial(failures: u32, roll: RandomDraw) -> Span {
    let n = i64::from(failures.saturating_sub(1));
    let draw = (roll.0 * 30.0) as i64;
    let secs = n
        .saturating_pow(4)
        .saturating_add(15)
        .saturating_add(draw.saturating_mul(n.saturating_add(1)));
    Span::secs(secs)
}

impl Jitter {
    fn spread(self, wait: Span, roll: RandomDraw) -> Span {
        match self {
            Self::None => wait,
            Self::Add(share) => wait.plus(wait.scaled(share * roll.0)),
            Self::Spread(share) => wait.scaled(1.0 - share + 2.0 * share * roll.0),
            Self::Full => wait.scaled(roll.0),
            Self::Equal => wait.scaled(0.5 + 0.5 * roll.0),
        }
    }
}

#[cfg(test)]
mod tests;
