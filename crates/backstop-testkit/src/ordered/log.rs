//! One log that all processes append to, outside the store: the order of its lines is the order in
//! which things happened.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// A log to write to.
#[derive(Debug)]
pub struct EventLog(File);

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// The process it is about; every start of one has a number of its own.
    pub process: u32,
    /// What was seen.
    pub seen: Seen,
}

/// What was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// A handler was called. Written before it does anything.
    Began {
        /// Whose turn it is.
        key: String,
        /// The position.
        position: i64,
        /// The effect, by its word.
        effect: String,
    },
    /// A handler came back, or was dropped because its lease was lost. Written before anybody tells
    /// the store.
    Ended {
        /// Whose turn it was.
        key: String,
        /// The position.
        position: i64,
    },
    /// Records were answered as handled: they are, for good.
    Answered(Vec<(String, i64)>),
    /// The process lives, and lost its lease of a key: the machine was too busy to keep it. Written
    /// when it learns of it.
    Lost {
        /// Of which.
        key: String,
    },
    /// The process is gone. Written by who killed it, when it was.
    Killed,
}

/// A line ends with this word; one without it was cut by the death of its process, and did not
/// happen.
const END: &str = ".";

impl EventLog {
    /// Opens a log, new or not, to write at its end.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self(
            OpenOptions::new().append(true).create(true).open(path)?,
        ))
    }

    /// Writes one line.
    pub fn append(&self, line: &Line) -> io::Result<()> {
        let Line { process, seen } = line;
        // The break comes first: what a killed process left half written stays a line of its own.
        let text = match seen {
            Seen::Began {
                key,
                position,
                effect,
            } => {
                format!("\n{process} began {key} {position} {effect} {END}")
            }
            Seen::Ended { key, position } => format!("\n{process} ended {key} {position} {END}"),
            Seen::Answered(records) => {
                let records = records
                    .iter()
                    .map(|(key, position)| format!(" {key} {position}"));
                format!("\n{process} answered{} {END}", records.collect::<String>())
            }
            Seen::Lost { key } => format!("\n{process} lost {key} {END}"),
            Seen::Killed => format!("\n{process} killed {END}"),
        };
        let written = (&self.0).write(text.as_bytes())?;
        if written < text.len() {
            return Err(io::Error::new(
                io::ErrorKind::WriteZero,
                "a line was written in part",
            ));
        }
        Ok(())
    }

    /// How long it is.
    pub fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    /// Reads a log: all lines that were finished.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<Line>> {
        let text = std::fs::read_to_string(path)?;
        Ok(text.lines().filter_map(parse).collect())
    }
}

fn parse(line: &str) -> Option<Line> {
    let words: Vec<&str> = line.split(' ').collect();
    let (process, words) = words.strip_suffix(&[END])?.split_first()?;
    let seen = match words {
        ["began", key, position, effect] => Seen::Began {
            key: (*key).to_owned(),
            position: position.parse().ok()?,
            effect: (*effect).to_owned(),
        },
        ["ended", key, position] => Seen::Ended {
            key: (*key).to_owned(),
            position: position.parse().ok()?,
        },
        ["answered", records @ ..] => {
            let record =
                |pair: &[&str]| Some((pair.first()?.to_string(), pair.get(1)?.parse().ok()?));
            Seen::Answered(records.chunks(2).map(record).collect::<Option<_>>()?)
        }
        ["lost", key] => Seen::Lost {
            key: (*key).to_owned(),
        },
        ["killed"] => Seen::Killed,
        _ => return None,
    };
    Some(Line {
        process: process.parse().ok()?,
        seen,
    })
}
