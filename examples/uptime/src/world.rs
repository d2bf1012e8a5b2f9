//! A world to play: who is watched, which results arrive when, and what is true about them.
//!
//! On disk it is a folder with three files, all of them readable without this program.

#[cfg(test)]
mod tests;

use crate::directory::Directory;
use crate::validate::{Ending, validate};
use crate::wire::{CheckResult, SubscriptionId};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The name of the directory's file.
pub const DIRECTORY_FILE: &str = "directory.json";
/// The name of the trace's file.
pub const TRACE_FILE: &str = "trace.ndjson";
/// The name of the truth's file.
pub const TRUTH_FILE: &str = "truth.json";

/// A world to play.
#[derive(Clone, PartialEq, Debug)]
pub struct World {
    /// Who is watched.
    pub directory: Directory,
    /// What arrives, in the order of its arrival.
    pub trace: Vec<Arrival>,
    /// What is true about it.
    pub truth: Truth,
}

/// Bytes that arrive: a result, or something that is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// When.
    pub at_ms: i64,
    /// What.
    pub bytes: Bytes,
}

/// One check that was to be made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Slot {
    /// Of which subscription.
    pub key: SubscriptionId,
    /// When.
    pub position: i64,
}

/// What an arrival is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The check.
    pub slot: Slot,
    /// Whether validation lets it pass.
    pub is_admitted: bool,
}

/// What is true about a trace, whatever a consumer makes of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Truth {
    /// When the trace begins.
    pub starts_at_ms: i64,
    /// Checks of watched subscriptions whose results arrive in time.
    pub in_time: u64,
    /// Second copies of results.
    pub duplicates: u64,
    /// Arrivals that are no results.
    pub broken: u64,
    /// Checks whose results never arrive.
    pub dropped: BTreeSet<Slot>,
    /// Checks whose results arrive when every consumer has given them up.
    pub late: BTreeSet<Slot>,
}

impl Truth {
    /// Whether a check is rightly called missed.
    pub fn is_missing(&self, slot: Slot) -> bool {
        self.dropped.contains(&slot) || self.late.contains(&slot)
    }

    /// Checks that are rightly called missed.
    pub fn missing(&self) -> u64 {
        (self.dropped.len() + self.late.len()) as u64
    }
}

impl World {
    /// What each arrival is about; nothing for what is no result.
    pub fn seen(&self) -> Vec<Option<Seen>> {
        let see = |arrival: &Arrival| {
            let result = CheckResult::read(&arrival.bytes).ok()?;
            let slot = Slot {
                key: result.subscription_id,
                position: result.scheduled_check_time_ms,
            };
            let ending = validate(&result, &self.directory, arrival.at_ms).ending;
            Some(Seen {
                slot,
                is_admitted: matches!(ending, Ending::Admitted(_)),
            })
        };
        self.trace.iter().map(see).collect()
    }

    /// Writes it to a folder, which is made if it is not there.
    pub fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut trace = String::new();
        for arrival in &self.trace {
            trace.push_str(&arrival.to_line());
            trace.push('\n');
        }
        let truth = serde_json::to_string_pretty(&self.truth)?;
        for (name, text) in [
            (DIRECTORY_FILE, self.directory.to_json()),
            (TRACE_FILE, trace),
            (TRUTH_FILE, truth),
        ] {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Reads it from a folder.
    pub fn read(folder: &Path) -> Result<Self> {
        let text = |name| {
            let path = folder.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let trace = text(TRACE_FILE)?;
        let arrivals = trace.lines().enumerate().map(|(nth, line)| {
            Arrival::from_line(line).with_context(|| format!("line {} of {TRACE_FILE}", nth + 1))
        });
        let world = Self {
            directory: Directory::from_json(&text(DIRECTORY_FILE)?)?,
            trace: arrivals.collect::<Result<_>>()?,
            truth: serde_json::from_str(&text(TRUTH_FILE)?).context("the truth cannot be read")?,
        };
        if !world.trace.is_sorted_by_key(|arrival| arrival.at_ms) {
            bail!("{TRACE_FILE} is not in the order of `at_ms`");
        }
        Ok(world)
    }
}

/// One arrival as a line: `result` where the bytes are a JSON object on one line, else `hex`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArrivalLine<'a> {
    at_ms: i64,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
}

impl Arrival {
    /// As a line of a trace, without its end.
    pub fn to_line(&self) -> String {
        let result = str::from_utf8(&self.bytes)
            .ok()
            .filter(|text| !text.contains(['\n', '\r']))
            .filter(|text| text.starts_with('{'))
            .and_then(|text| {
                serde_json::from_str::<&RawValue>(text)
                    .ok()
                    .filter(|raw| raw.get() == text)
            });
        let hex = result.is_none().then(|| to_hex(&self.bytes));
        serde_json::to_string(&ArrivalLine {
            at_ms: self.at_ms,
            result,
            hex,
        })
        .expect("text is always JSON")
    }

    /// Reads a line of a trace.
    pub fn from_line(line: &str) -> Result<Self> {
        let ArrivalLine { at_ms, result, hex } = serde_json::from_str(line)?;
        let bytes = match (result, hex) {
            (Some(result), None) => result.get().as_bytes().to_vec(),
            (None, Some(hex)) => from_hex(&hex).context("`hex` must be pairs of hex digits")?,
            _ => bail!("an arrival has either `result` or `hex`"),
        };
        Ok(Self {
            at_ms,
            bytes: bytes.into(),
        })
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    hex.as_bytes().chunks(2).map(pair).collect()
}
