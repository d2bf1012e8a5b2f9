//! One event, one line.

use super::{Accepted, Event, Heard, Ran};
use backstop_core::{JobId, LeaseNumber, WorkerName};
use std::fmt;
use std::str::FromStr;

/// A line that is no event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an event of a history")]
pub struct BadLine(String);

impl fmt::Display for Event {
    /// Words with spaces between; the worker's name, which may be any text, comes last and escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enqueued { job, heard } => write!(f, "enqueued {job} {}", heard.as_str()),
            Self::Granted { job, lease } => write!(f, "granted {job} {lease}"),
            Self::Started {
                job,
                attempt,
                lease,
                worker,
            } => {
                write!(
                    f,
                    "started {job} {attempt} {lease} {}",
                    escaped(worker.as_str())
                )
            }
            Self::Ended { job, lease, ran } => write!(f, "ended {job} {lease} {}", ran.as_str()),
            Self::Settled {
                job,
                lease,
                accepted,
            } => {
                write!(f, "settled {job} {lease} {}", accepted.as_str())
            }
        }
    }
}

impl FromStr for Event {
    type Err = BadLine;

    fn from_str(line: &str) -> Result<Self, BadLine> {
        parse(line).ok_or_else(|| BadLine(line.to_owned()))
    }
}

fn parse(line: &str) -> Option<Event> {
    let words: Vec<&str> = line.split(' ').collect();
    let job = words.get(1)?.parse::<JobId>().ok()?;
    let lease = |word: &str| word.parse().ok().map(LeaseNumber::from_i64);
    Some(match *words.as_slice() {
        ["enqueued", _, heard] => Event::Enqueued {
            job,
            heard: Heard::parse(heard)?,
        },
        ["granted", _, number] => Event::Granted {
            job,
            lease: lease(number)?,
        },
        ["started", _, attempt, number, worker] => Event::Started {
            job,
            attempt: attempt.parse().ok()?,
            lease: lease(number)?,
            worker: WorkerName::new(&unescaped(worker)?),
        },
        ["ended", _, number, ran] => Event::Ended {
            job,
            lease: lease(number)?,
            ran: Ran::parse(ran)?,
        },
        ["settled", _, number, accepted] => Event::Settled {
            job,
            lease: lease(number)?,
            accepted: Accepted::parse(accepted)?,
        },
        _ => return None,
    })
}

/// The words of an enum, in both directions.
macro_rules! words {
    ($name:ident { $($value:ident = $word:literal),* $(,)? }) => {
        impl $name {
            const fn as_str(self) -> &'static str {
                match self { $(Self::$value => $word),* }
            }

            fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$value),)* _ => None }
            }
        }
    };
}

words!(Heard { Ok = "ok", Unknown = "unknown" });
words!(Ran { Done = "done", Failed = "failed", Released = "released", Cancelled = "cancelled" });
words!(Accepted {
    Done = "done",
    Retry = "retry",
    Dead = "dead",
    Cancelled = "cancelled",
    Released = "released",
    Lost = "lost",
});

/// The text as bytes in hexadecimal where they are neither letters nor digits, so that a line stays
/// one line.
fn escaped(text: &str) -> String {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b'@');
    text.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02x}")
            }
        })
        .collect()
}

fn unescaped(word: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}
