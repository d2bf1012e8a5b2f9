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

/// When and how often a failed job is tried again.
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
        /// What each further failure multiplies it by.
        factor: f64,
        /// The longest wait, before jitter.
        cap: Span,
    },
    /// `fib(failures) · unit` with fib = 0, 1, 1, 2, 3, 5, 8 …, at most `cap`.
    Fibonacci {
        /// What one step of the sequence is worth.
        unit: Span,
        cap: Span,
    },
    /// One delay after another; past the list the last repeats.
    Steps(Vec<Span>),
    /// By the age of the job: the period of the youngest band it still fits in.
    Progressive(Vec<RetryBand>),
    Constant(Span),
    /// `n⁴ + 15 + rand(30) · (n + 1)` seconds with n = failures − 1.
    Polynomial,
    /// Whatever a function says. It is code: a queue can have it, a stored job cannot.
    Custom(CustomCurve),
}

/// A function from failure count, age and a random draw to a wait; `None` ends the job as too old.
#[derive(Clone)]
pub struct CustomCurve(Arc<CurveFunction>);

type CurveFunction = dyn Fn(u32, Span, RandomDraw) -> Option<Span> + Send + Sync;

impl PartialEq for CustomCurve {
    /// The same function, not one that answers alike.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for CustomCurve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomCurve")
    }
}

/// Up to an age, one pace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryBand {
    /// Jobs as old as this, and younger ones, belong to the band.
    pub until: Span,
    /// How often they are tried.
    pub every: Span,
}

/// How a wait is spread, so that what failed together does not come back together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Jitter {
    None,
    /// Up to this share of the wait on top of it, the cap included.
    Add(f64),
    /// Up to this share of the wait more or less.
    Spread(f64),
    /// Anything from nothing to the wait.
    Full,
    /// Anything from half the wait to the wait.
    Equal,
}

/// One random draw: at least 0, below 1.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct RandomDraw(f64);

impl RandomDraw {
    pub const LOWEST: Self = Self(0.0);
    pub const HIGHEST: Self = Self(1.0 - f64::EPSILON / 2.0);

    /// The draw that sixty-four random bits make.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
    pub fn from_bits(bits: u64) -> Self {
        Self((bits >> 11) as f64 / (1_u64 << 53) as f64)
    }

    pub const fn value(self) -> f64 {
        self.0
    }
}

/// What to do after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryDecision {
    /// Try again after this long.
    RetryAfter(Span),
    AttemptsExhausted,
    /// The job is too old.
    TooOld,
}

impl Default for RetryPolicy {
    /// What `{"kind":"exponential"}` means, and what streams and `with_retry` begin with: three
    /// runs; after 1 s and 2 s, up to a quarter more. Queues begin with [`RetryPolicy::of_queues`].
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
    /// What a job gets whose queue has no policy, or one that names no kind: 20 runs in about nine
    /// hours, so that jobs outlive the restart, and the outage, of the service behind them.
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

    /// A policy of your own: what `curve` answers for failure count, age and a random draw is the
    /// wait, at most ten years; `None` ends the job. It must answer the same for the same
    /// arguments. Three attempts, unless changed.
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

    /// Whether it can be written down: anything but code.
    pub const fn is_stored(&self) -> bool {
        !matches!(self.curve, RetryCurve::Custom(_))
    }

    /// What follows the failure number `failures` of a job of this age.
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

    /// The wait after `failures` failures, whatever the ends say; `None` past the last band of a
    /// progressive curve.
    pub fn wait(&self, failures: u32, age: Span, roll: RandomDraw) -> Option<Span> {
        let wait = self.curve.wait(failures, age, roll)?;
        let wait = self.jitter.spread(wait, roll);
        // Whole milliseconds, as people and programs read them: "1196309us" says no more.
        Some(match wait.as_millis() {
            0 => wait,
            millis => Span::millis(millis),
        })
    }

    /// All runs a job may have, the first included; `None` if only its age ends it.
    pub const fn max_attempts(&self) -> Option<u32> {
        self.max_attempts
    }

    /// The age that ends a job; `None` if only its attempts do.
    pub const fn max_age(&self) -> Option<Span> {
        self.max_age
    }

    /// This policy with so many runs, the first included.
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

/// fib(0) = 0, fib(1) = fib(2) = 1, fib(6) = 8; the largest number there is from fib(93) on.
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
