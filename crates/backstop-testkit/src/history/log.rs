//! A history on disk: many processes append to it, any of them may be killed at any moment.

use super::{BadLine, Event};
use std::fs::{File, OpenOptions, read_to_string};
use std::io::{self, Write};
use std::path::Path;

/// A log to write to. Several processes may have the same file open.
#[derive(Debug)]
pub struct HistoryLog {
    file: File,
}

/// A log that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The file cannot.
    #[error("the history could not be read: {0}")]
    File(#[from] io::Error),
    /// One of its lines cannot. The last line of a writer that was killed is not counted.
    #[error("line {line}: {cause}")]
    Line {
        /// Which, counted from 1.
        line: usize,
        /// Why.
        cause: BadLine,
    },
}

impl HistoryLog {
    /// Opens a log, new or not, to write at its end.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self {
            file: OpenOptions::new().append(true).create(true).open(path)?,
        })
    }

    /// Writes one event down.
    pub fn append(&self, event: &Event) -> io::Result<()> {
        let line = format!("{event}\n");
        // One write of the whole line to a file opened for appending: no other process can get in
        // between, and a process that is killed has written all of it or, at worst, is the one with
        // a torn last line.
        let written = (&self.file).write(line.as_bytes())?;
        if written < line.len() {
            return Err(io::Error::new(
                io::ErrorKind::WriteZero,
                "an event was written in part",
            ));
        }
        Ok(())
    }

    /// Reads the events of a log. A last line without its end was never finished, and did not
    /// happen.
    pub fn read(path: impl AsRef<Path>) -> Result<Vec<Event>, Unreadable> {
        let text = read_to_string(path)?;
        let finished = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = finished.lines().enumerate();
        lines
            .map(|(index, line)| {
                line.parse().map_err(|cause| Unreadable::Line {
                    line: index + 1,
                    cause,
                })
            })
            .collect()
    }
}
