//! Policies as people write them, in JSON or TOML, and the check that turns them into ones that
//! work.

use super::{Band, Curve, Jitter, RetryPolicy};
use crate::limits::{DELAY_MAX, RETRY_STEPS_MAX};
use crate::time::Span;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// A policy that cannot work, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    /// Not in the form of a policy at all.
    #[error("not a retry policy: {0}")]
    Unreadable(String),
    /// Code cannot be written down.
    #[error(
        "a custom policy is code: give it to a queue's settings in the program that works the queue"
    )]
    Custom,
    /// An unknown curve.
    #[error(
        "`{0}` is not a kind of policy; kinds are exponential, fibonacci, steps, progressive, constant, polynomial"
    )]
    UnknownKind(String),
    /// A setting of another curve.
    #[error(
        "`{field}` does not belong to a policy of kind {kind}; remove it, or name another `kind`"
    )]
    Foreign {
        /// The setting.
        field: &'static str,
        /// The curve.
        kind: String,
    },
    /// A setting that must be there.
    #[error("a policy of kind {kind} needs `{field}`")]
    Missing {
        /// The setting.
        field: &'static str,
        /// The curve.
        kind: String,
    },
    /// A setting out of bounds.
    #[error("`{field}` must be {must}")]
    OutOfBounds {
        /// The setting.
        field: &'static str,
        /// Its bounds.
        must: &'static str,
    },
}

/// What was written, before it is known to make sense.
#[derive(Deserialize, Serialize, Default)]
#[serde(deny_unknown_fields)]
struct Written {
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
    bands: Option<Vec<WrittenBand>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter: Option<WrittenJitter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<WrittenAttempts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_age: Option<Span>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct WrittenBand {
    until: Span,
    every: Span,
}

/// Reads a list no further than its bound: a policy comes in with every job that has its own.
fn read_steps<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    Ok(Option::<Steps<T>>::deserialize(deserializer)?.map(|steps| steps.0))
}

struct Steps<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Steps<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(StepsVisitor(PhantomData))
    }
}

struct StepsVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for StepsVisitor<T> {
    type Value = Steps<T>;

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
        Ok(Steps(steps))
    }
}

/// A share (`0.25`), a word (`"none"`, `"full"`, `"equal"`), yes or no, or `{"spread": 0.1}`.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum WrittenJitter {
    Share(f64),
    YesOrNo(bool),
    Word(String),
    Spread { spread: f64 },
}

/// A number, or the word `unlimited`.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum WrittenAttempts {
    Number(i64),
    Word(String),
}

const UNLIMITED: &str = "unlimited";
const CUSTOM: &str = "custom";

impl RetryPolicy {
    /// The policy that this JSON describes. One that names no kind is put over
    /// [`RetryPolicy::of_queues`].
    pub fn from_json(json: &[u8]) -> Result<Self, BadPolicy> {
        let written = serde_json::from_slice(json)
            .map_err(|error| BadPolicy::Unreadable(error.to_string()))?;
        checked(written, &Self::of_queues())
    }

    /// This policy as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&written(self)).expect("a policy has only text, numbers and lists")
    }
}

impl Serialize for RetryPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        written(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RetryPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        checked(Written::deserialize(deserializer)?, &Self::of_queues())
            .map_err(serde::de::Error::custom)
    }
}

/// The policy of a stream. One that names no kind is put over [`RetryPolicy::default`]: a record
/// that fails blocks its key, and must not do so for hours.
pub fn deserialize_for_stream<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<RetryPolicy>, D::Error> {
    let read = Option::<Written>::deserialize(deserializer)?;
    read.map(|read| checked(read, &RetryPolicy::default()))
        .transpose()
        .map_err(serde::de::Error::custom)
}

/// What was written, with the rest as `usual` has it.
fn put_over(usual: Written, written: Written) -> Written {
    Written {
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

/// Checks a policy; one that names no kind is put over `unnamed`.
fn checked(written: Written, unnamed: &RetryPolicy) -> Result<RetryPolicy, BadPolicy> {
    let mut written = if written.kind.is_none() {
        put_over(self::written(unnamed), written)
    } else {
        written
    };
    let kind = written.kind.take().unwrap_or_default();
    let jitter = written.jitter.take();
    let max_attempts = checked_attempts(written.max_attempts.take(), &kind)?;
    let max_age = written
        .max_age
        .take()
        .map(|age| positive("max_age", age))
        .transpose()?;
    let curve = checked_curve(&kind, &mut written)?;
    refuse_foreign(&written, &kind)?;
    let jitter = checked_jitter(jitter, &curve, &kind)?;
    Ok(RetryPolicy {
        curve,
        jitter,
        max_attempts,
        max_age,
    })
}

fn checked_curve(kind: &str, written: &mut Written) -> Result<Curve, BadPolicy> {
    let missing = |field| BadPolicy::Missing {
        field,
        kind: kind.to_owned(),
    };
    match kind {
        "exponential" => Ok(Curve::Exponential {
            base: positive("base", written.base.take().unwrap_or(Span::secs(1)))?,
            factor: growing(written.factor.take().unwrap_or(2.0))?,
            cap: positive("cap", written.cap.take().unwrap_or(Span::secs(30)))?,
        }),
        "fibonacci" => Ok(Curve::Fibonacci {
            unit: positive("unit", written.unit.take().unwrap_or(Span::minutes(1)))?,
            cap: positive("cap", written.cap.take().unwrap_or(DELAY_MAX))?,
        }),
        "steps" => checked_steps(written.delays.take().ok_or_else(|| missing("delays"))?),
        "progressive" => checked_bands(written.bands.take()),
        "constant" => Ok(Curve::Constant(positive(
            "every",
            written.every.take().ok_or_else(|| missing("every"))?,
        )?)),
        "polynomial" => Ok(Curve::Polynomial),
        CUSTOM => Err(BadPolicy::Custom),
        other => Err(BadPolicy::UnknownKind(other.to_owned())),
    }
}

fn checked_steps(delays: Vec<Span>) -> Result<Curve, BadPolicy> {
    let must = "a list of 1 to 100 delays, each longer than nothing and at most ten years";
    let is_countable = (1..=RETRY_STEPS_MAX).contains(&delays.len());
    if !is_countable
        || delays
            .iter()
            .any(|delay| delay.is_zero() || *delay > DELAY_MAX)
    {
        return Err(BadPolicy::OutOfBounds {
            field: "delays",
            must,
        });
    }
    Ok(Curve::Steps(delays))
}

/// The bands of the article the idea comes from.
const BANDS: [Band; 6] = [
    Band {
        until: Span::days(1),
        every: Span::minutes(5),
    },
    Band {
        until: Span::days(7),
        every: Span::hours(1),
    },
    Band {
        until: Span::days(14),
        every: Span::hours(12),
    },
    Band {
        until: Span::days(30),
        every: Span::hours(24),
    },
    Band {
        until: Span::days(180),
        every: Span::hours(96),
    },
    Band {
        until: Span::days(360),
        every: Span::hours(192),
    },
];

fn checked_bands(written: Option<Vec<WrittenBand>>) -> Result<Curve, BadPolicy> {
    let Some(written) = written else {
        return Ok(Curve::Progressive(BANDS.to_vec()));
    };
    let bands: Vec<Band> = written
        .iter()
        .map(|band| Band {
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
        return Err(BadPolicy::OutOfBounds {
            field: "bands",
            must,
        });
    }
    Ok(Curve::Progressive(bands))
}

fn positive(field: &'static str, span: Span) -> Result<Span, BadPolicy> {
    if span.is_zero() || span > DELAY_MAX {
        return Err(BadPolicy::OutOfBounds {
            field,
            must: "longer than nothing and at most ten years",
        });
    }
    Ok(span)
}

fn growing(factor: f64) -> Result<f64, BadPolicy> {
    if !(1.0..=1_000.0).contains(&factor) {
        return Err(BadPolicy::OutOfBounds {
            field: "factor",
            must: "from 1 to 1000",
        });
    }
    Ok(factor)
}

fn checked_attempts(
    written: Option<WrittenAttempts>,
    kind: &str,
) -> Result<Option<u32>, BadPolicy> {
    let must = "at least 1, or \"unlimited\": it counts all runs, the first included";
    let bad = BadPolicy::OutOfBounds {
        field: "max_attempts",
        must,
    };
    match written {
        // A progressive policy ends by age; three tries would end it within a quarter of an hour.
        None => Ok((kind != "progressive").then_some(3)),
        Some(WrittenAttempts::Number(number)) => match u32::try_from(number) {
            Ok(number) if number >= 1 => Ok(Some(number)),
            _ => Err(bad),
        },
        Some(WrittenAttempts::Word(word)) if word == UNLIMITED => Ok(None),
        Some(WrittenAttempts::Word(_)) => Err(bad),
    }
}

fn checked_jitter(
    written: Option<WrittenJitter>,
    curve: &Curve,
    kind: &str,
) -> Result<Jitter, BadPolicy> {
    let usual = if matches!(curve, Curve::Exponential { .. }) {
        Jitter::Add(0.25)
    } else {
        Jitter::None
    };
    let Some(written) = written else {
        return Ok(usual);
    };
    if matches!(curve, Curve::Polynomial) {
        // Its formula has a random part already.
        return Err(BadPolicy::Foreign {
            field: "jitter",
            kind: kind.to_owned(),
        });
    }
    let must =
        "a share from 0 to 1, true, false, \"none\", \"full\", \"equal\" or {\"spread\": share}";
    let share = |share: f64| {
        let bad = BadPolicy::OutOfBounds {
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
        WrittenJitter::Share(0.0) | WrittenJitter::YesOrNo(false) => Ok(Jitter::None),
        WrittenJitter::Share(written) => Ok(Jitter::Add(share(written)?)),
        WrittenJitter::YesOrNo(true) => Ok(Jitter::Add(0.25)),
        WrittenJitter::Spread { spread } => Ok(Jitter::Spread(share(spread)?)),
        WrittenJitter::Word(word) => match word.as_str() {
            "none" => Ok(Jitter::None),
            "full" => Ok(Jitter::Full),
            "equal" => Ok(Jitter::Equal),
            _ => Err(BadPolicy::OutOfBounds {
                field: "jitter",
                must,
            }),
        },
    }
}

/// What is left after a curve took its own settings was meant for another one.
fn refuse_foreign(left: &Written, kind: &str) -> Result<(), BadPolicy> {
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
        Some((field, _)) => Err(BadPolicy::Foreign {
            field,
            kind: kind.to_owned(),
        }),
        None => Ok(()),
    }
}

fn written(policy: &RetryPolicy) -> Written {
    let jitter = match policy.jitter {
        _ if policy.curve == Curve::Polynomial => None,
        Jitter::None => Some(WrittenJitter::Word("none".to_owned())),
        Jitter::Add(share) => Some(WrittenJitter::Share(share)),
        Jitter::Spread(spread) => Some(WrittenJitter::Spread { spread }),
        Jitter::Full => Some(WrittenJitter::Word("full".to_owned())),
        Jitter::Equal => Some(WrittenJitter::Word("equal".to_owned())),
    };
    let max_attempts = match policy.max_attempts {
        Some(number) => WrittenAttempts::Number(i64::from(number)),
        None => WrittenAttempts::Word(UNLIMITED.to_owned()),
    };
    let ends = Written {
        jitter,
        max_attempts: Some(max_attempts),
        max_age: policy.max_age,
        ..Written::default()
    };
    written_curve(&policy.curve, ends)
}

fn written_curve(curve: &Curve, rest: Written) -> Written {
    let kind = |kind: &str| Some(kind.to_owned());
    match curve {
        Curve::Exponential { base, factor, cap } => Written {
            kind: kind("exponential"),
            base: Some(*base),
            factor: Some(*factor),
            cap: Some(*cap),
            ..rest
        },
        Curve::Fibonacci { unit, cap } => Written {
            kind: kind("fibonacci"),
            unit: Some(*unit),
            cap: Some(*cap),
            ..rest
        },
        Curve::Steps(delays) => Written {
            kind: kind("steps"),
            delays: Some(delays.clone()),
            ..rest
        },
        Curve::Progressive(bands) => {
            let band = |band: &Band| WrittenBand {
                until: band.until,
                every: band.every,
            };
            Written {
                kind: kind("progressive"),
                bands: Some(bands.iter().map(band).collect()),
                ..rest
            }
        }
        Curve::Constant(every) => Written {
            kind: kind("constant"),
            every: Some(*every),
            ..rest
        },
        Curve::Polynomial => Written {
            kind: kind("polynomial"),
            ..rest
        },
        Curve::Custom(_) => Written {
            kind: kind(CUSTOM),
            ..rest
        },
    }
}
