//! Retry policies as people write them, in JSON or TOML, and the check that makes them valid
//! policies.

use super::{Jitter, RetryBand, RetryCurve, RetryPolicy};
use crate::limits::{DELAY_MAX, RETRY_STEPS_MAX};
use crate::time::Span;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// A policy that cannot work, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    /// The input does not have the form of a policy.
    #[error("not a retry policy: {0}")]
    Unreadable(String),
    /// A custom policy is code, which cannot be serialized.
    #[error(
        "a custom policy is code: give it to a queue's settings in the program that works the queue"
    )]
    Custom,
    #[error(
        "`{0}` is not a kind of policy; kinds are exponential, fibonacci, steps, progressive, constant, polynomial"
    )]
    UnknownKind(String),
    /// The field belongs to a different curve.
    #[error(
        "`{field}` does not belong to a policy of kind {kind}; remove it, or name another `kind`"
    )]
    Foreign { field: &'static str, kind: String },
    /// The curve needs a field that is missing.
    #[error("a policy of kind {kind} needs `{field}`")]
    Missing { field: &'static str, kind: String },
    /// The value of a field is out of bounds.
    #[error("`{field}` must be {must}")]
    OutOfBounds {
        field: &'static str,
        must: &'static str,
    },
}

/// A policy as it was written, before it is checked.
#[derive(Deserialize, Serialize, Default)]
#[serde(deny_unknown_fields)]
struct PolicyInput {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    factor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cap: Option<Span>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "read_steps"
    )]
    delays: Option<Vec<Span>>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "read_steps"
    )]
    bands: Option<Vec<BandInput>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter: Option<JitterInput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<AttemptsInput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_age: Option<Span>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct BandInput {
    until: Span,
    every: Span,
}

/// Reads a list no further than its bound, because a policy arrives with every job that has its
/// own.
fn read_steps<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    Ok(Option::<BoundedList<T>>::deserialize(deserializer)?.map(|steps| steps.0))
}

struct BoundedList<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for BoundedList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(BoundedListVisitor(PhantomData))
    }
}

struct BoundedListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for BoundedListVisitor<T> {
    type Value = BoundedList<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut steps = Vec::new();
        while let Some(step) = entries.next_element()? {
            if steps.len() == RETRY_STEPS_MAX {
                return Err(A::Error::custom(format_args!(
                    "a policy has a list of 1 to {RETRY_STEPS_MAX} delays, or a list of 1 to {RETRY_STEPS_MAX} bands"
                )));
            }
            steps.push(step);
        }
        Ok(BoundedList(steps))
    }
}

/// A share (`0.25`), a word (`"none"`, `"full"`, `"equal"`), yes or no, or `{"spread": 0.1}`.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum JitterInput {
    Share(f64),
    YesOrNo(bool),
    Word(String),
    Spread { spread: f64 },
}

/// A number, or the word `unlimited`.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum AttemptsInput {
    Number(i64),
    Word(String),
}

const UNLIMITED: &str = "unlimited";
const CUSTOM: &str = "custom";

impl RetryPolicy {
    /// Parses a policy. One that names no kind changes single fields of [`RetryPolicy::of_queues`].
    pub fn from_json(json: &[u8]) -> Result<Self, InvalidPolicy> {
        let written = serde_json::from_slice(json)
            .map_err(|error| InvalidPolicy::Unreadable(error.to_string()))?;
        check_policy(written, &Self::of_queues())
    }

    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&policy_to_input(self))
            .expect("a policy has only text, numbers and lists")
    }
}

impl Serialize for RetryPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        policy_to_input(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RetryPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        check_policy(PolicyInput::deserialize(deserializer)?, &Self::of_queues())
            .map_err(serde::de::Error::custom)
    }
}

/// Parses the policy of a stream. One that names no kind changes single fields of
/// [`RetryPolicy::default`]: a record that fails blocks its key, and must not do so for hours.
pub fn deserialize_for_stream<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<RetryPolicy>, D::Error> {
    let read = Option::<PolicyInput>::deserialize(deserializer)?;
    read.map(|read| check_policy(read, &RetryPolicy::default()))
        .transpose()
        .map_err(serde::de::Error::custom)
}

/// Fills the fields that were not written from `usual`.
fn with_defaults(usual: PolicyInput, written: PolicyInput) -> PolicyInput {
    PolicyInput {
        kind: usual.kind,
        base: written.base.or(usual.base),
        factor: written.factor.or(usual.factor),
        cap: written.cap.or(usual.cap),
        jitter: written.jitter.or(usual.jitter),
        max_attempts: written.max_attempts.or(usual.max_attempts),
        max_age: written.max_age.or(usual.max_age),
        ..written
    }
}

/// Checks a policy. One that names no kind changes single fields of `unnamed`.
fn check_policy(written: PolicyInput, unnamed: &RetryPolicy) -> Result<RetryPolicy, InvalidPolicy> {
    let mut written = if written.kind.is_none() {
        with_defaults(self::policy_to_input(unnamed), written)
    } else {
        written
    };
    let kind = written.kind.take().unwrap_or_default();
    let jitter = written.jitter.take();
    let max_attempts = check_attempts(written.max_attempts.take(), &kind)?;
    let max_age = written
        .max_age
        .take()
        .map(|age| check_positive("max_age", age))
        .transpose()?;
    let curve = check_curve(&kind, &mut written)?;
    refuse_foreign(&written, &kind)?;
    let jitter = check_jitter(jitter, &curve, &kind)?;
    Ok(RetryPolicy {
        curve,
        jitter,
        max_attempts,
        max_age,
    })
}

fn check_curve(kind: &str, written: &mut PolicyInput) -> Result<RetryCurve, InvalidPolicy> {
    let missing = |field| InvalidPolicy::Missing {
        field,
        kind: kind.to_owned(),
    };
    match kind {
        "exponential" => Ok(RetryCurve::Exponential {
            base: check_positive("base", written.base.take().unwrap_or(Span::secs(1)))?,
            factor: check_factor(written.factor.take().unwrap_or(2.0))?,
            cap: check_positive("cap", written.cap.take().unwrap_or(Span::secs(30)))?,
        }),
        "fibonacci" => Ok(RetryCurve::Fibonacci {
            unit: check_positive("unit", written.unit.take().unwrap_or(Span::minutes(1)))?,
            cap: check_positive("cap", written.cap.take().unwrap_or(DELAY_MAX))?,
        }),
        "steps" => check_steps(written.delays.take().ok_or_else(|| missing("delays"))?),
        "progressive" => check_bands(written.bands.take()),
        "constant" => Ok(RetryCurve::Constant(check_positive(
            "every",
            written.every.take().ok_or_else(|| missing("every"))?,
        )?)),
        "polynomial" => Ok(RetryCurve::Polynomial),
        CUSTOM => Err(InvalidPolicy::Custom),
        other => Err(InvalidPolicy::UnknownKind(other.to_owned())),
    }
}

fn check_steps(delays: Vec<Span>) -> Result<RetryCurve, InvalidPolicy> {
    let must = "a list of 1 to 100 delays, each longer than nothing and at most ten years";
    let is_countable = (1..=RETRY_STEPS_MAX).contains(&delays.len());
    if !is_countable
        || delays
            .iter()
            .any(|delay| delay.is_zero() || *delay > DELAY_MAX)
    {
        return Err(InvalidPolicy::OutOfBounds {
            field: "delays",
            must,
        });
    }
    Ok(RetryCurve::Steps(delays))
}

/// The default bands, from the article that the idea comes from.
const BANDS: [RetryBand; 6] = [
    RetryBand {
        until: Span::days(1),
        every: Span::minutes(5),
    },
    RetryBand {
        until: Span::days(7),
        every: Span::hours(1),
    },
    RetryBand {
        until: Span::days(14),
        every: Span::hours(12),
    },
    RetryBand {
        until: Span::days(30),
        every: Span::hours(24),
    },
    RetryBand {
        until: Span::days(180),
        every: Span::hours(96),
    },
    RetryBand {
        until: Span::days(360),
        every: Span::hours(192),
    },
];

fn check_bands(written: Option<Vec<BandInput>>) -> Result<RetryCurve, InvalidPolicy> {
    let Some(written) = written else {
        return Ok(RetryCurve::Progressive(BANDS.to_vec()));
    };
    let bands: Vec<RetryBand> = written
        .iter()
        .map(|band| RetryBand {
            until: band.until,
            every: band.every,
        })
        .collect();
    let rising = bands.windows(2).all(|pair| pair[0].until < pair[1].until);
    let sound = bands.iter().all(|band| {
        !band.until.is_zero()
            && !band.every.is_zero()
            && band.until <= DELAY_MAX
            && band.every <= DELAY_MAX
    });
    if !(1..=RETRY_STEPS_MAX).contains(&bands.len()) || !rising || !sound {
        let must =
            "a list of 1 to 100 bands with rising `until`, and no `until` or `every` of nothing";
        return Err(InvalidPolicy::OutOfBounds {
            field: "bands",
            must,
        });
    }
    Ok(RetryCurve::Progressive(bands))
}

fn check_positive(field: &'static str, span: Span) -> Result<Span, InvalidPolicy> {
    if span.is_zero() || span > DELAY_MAX {
        return Err(InvalidPolicy::OutOfBounds {
            field,
            must: "longer than nothing and at most ten years",
        });
    }
    Ok(span)
}

fn check_factor(factor: f64) -> Result<f64, InvalidPolicy> {
    if !(1.0..=1_000.0).contains(&factor) {
        return Err(InvalidPolicy::OutOfBounds {
            field: "factor",
            must: "from 1 to 1000",
        });
    }
    Ok(factor)
}

fn check_attempts(
    written: Option<AttemptsInput>,
    kind: &str,
) -> Result<Option<u32>, InvalidPolicy> {
    let must = "at least 1, or \"unlimited\": it counts all runs, the first included";
    let bad = InvalidPolicy::OutOfBounds {
        field: "max_attempts",
        must,
    };
    match written {
        // A progressive policy ends by age; three attempts would end it within a quarter of an
        // hour.
        None => Ok((kind != "progressive").then_some(3)),
        Some(AttemptsInput::Number(number)) => match u32::try_from(number) {
            Ok(number) if number >= 1 => Ok(Some(number)),
            _ => Err(bad),
        },
        Some(AttemptsInput::Word(word)) if word == UNLIMITED => Ok(None),
        Some(AttemptsInput::Word(_)) => Err(bad),
    }
}

fn check_jitter(
    written: Option<JitterInput>,
    curve: &RetryCurve,
    kind: &str,
) -> Result<Jitter, InvalidPolicy> {
    let usual = if matches!(curve, RetryCurve::Exponential { .. }) {
        Jitter::Add(0.25)
    } else {
        Jitter::None
    };
    let Some(written) = written else {
        return Ok(usual);
    };
    if matches!(curve, RetryCurve::Polynomial) {
        // The formula of the curve has a random part already.
        return Err(InvalidPolicy::Foreign {
            field: "jitter",
            kind: kind.to_owned(),
        });
    }
    let must =
        "a share from 0 to 1, true, false, \"none\", \"full\", \"equal\" or {\"spread\": share}";
    let share = |share: f64| {
        let bad = InvalidPolicy::OutOfBounds {
            field: "jitter",
            must,
        };
        if (0.0..=1.0).contains(&share) {
            Ok(share)
        } else {
            Err(bad)
        }
    };
    match written {
        JitterInput::Share(0.0) | JitterInput::YesOrNo(false) => Ok(Jitter::None),
        JitterInput::Share(written) => Ok(Jitter::Add(share(written)?)),
        JitterInput::YesOrNo(true) => Ok(Jitter::Add(0.25)),
        JitterInput::Spread { spread } => Ok(Jitter::Spread(share(spread)?)),
        JitterInput::Word(word) => match word.as_str() {
            "none" => Ok(Jitter::None),
            "full" => Ok(Jitter::Full),
            "equal" => Ok(Jitter::Equal),
            _ => Err(InvalidPolicy::OutOfBounds {
                field: "jitter",
                must,
            }),
        },
    }
}

/// Refuses fields that remain after the curve took its own: they belong to a different curve.
fn refuse_foreign(left: &PolicyInput, kind: &str) -> Result<(), InvalidPolicy> {
    let fields = [
        ("base", left.base.is_some()),
        ("factor", left.factor.is_some()),
        ("unit", left.unit.is_some()),
        ("cap", left.cap.is_some()),
        ("delays", left.delays.is_some()),
        ("bands", left.bands.is_some()),
        ("every", left.every.is_some()),
    ];
    match fields.into_iter().find(|(_, is_left)| *is_left) {
        Some((field, _)) => Err(InvalidPolicy::Foreign {
            field,
            kind: kind.to_owned(),
        }),
        None => Ok(()),
    }
}

fn policy_to_input(policy: &RetryPolicy) -> PolicyInput {
    let jitter = match policy.jitter {
        _ if policy.curve == RetryCurve::Polynomial => None,
        Jitter::None => Some(JitterInput::Word("none".to_owned())),
        Jitter::Add(share) => Some(JitterInput::Share(share)),
        Jitter::Spread(spread) => Some(JitterInput::Spread { spread }),
        Jitter::Full => Some(JitterInput::Word("full".to_owned())),
        Jitter::Equal => Some(JitterInput::Word("equal".to_owned())),
    };
    let max_attempts = match policy.max_attempts {
        Some(number) => AttemptsInput::Number(i64::from(number)),
        None => AttemptsInput::Word(UNLIMITED.to_owned()),
    };
    let ends = PolicyInput {
        jitter,
        max_attempts: Some(max_attempts),
        max_age: policy.max_age,
        ..PolicyInput::default()
    };
    curve_to_input(&policy.curve, ends)
}

fn curve_to_input(curve: &RetryCurve, rest: PolicyInput) -> PolicyInput {
    let kind = |kind: &str| Some(kind.to_owned());
    match curve {
        RetryCurve::Exponential { base, factor, cap } => PolicyInput {
            kind: kind("exponential"),
            base: Some(*base),
            factor: Some(*factor),
            cap: Some(*cap),
            ..rest
        },
        RetryCurve::Fibonacci { unit, cap } => PolicyInput {
            kind: kind("fibonacci"),
            unit: Some(*unit),
            cap: Some(*cap),
            ..rest
        },
        RetryCurve::Steps(delays) => PolicyInput {
            kind: kind("steps"),
            delays: Some(delays.clone()),
            ..rest
        },
        RetryCurve::Progressive(bands) => {
            let band = |band: &RetryBand| BandInput {
                until: band.until,
                every: band.every,
            };
            PolicyInput {
                kind: kind("progressive"),
                bands: Some(bands.iter().map(band).collect()),
                ..rest
            }
        }
        RetryCurve::Constant(every) => PolicyInput {
            kind: kind("constant"),
            every: Some(*every),
            ..rest
        },
        RetryCurve::Polynomial => PolicyInput {
            kind: kind("polynomial"),
            ..rest
        },
        RetryCurve::Custom(_) => PolicyInput {
            kind: kind(CUSTOM),
            ..rest
        },
    }
}
