//! The ways of putting results in order that there are: one file each, and one line here.

use crate::clock::Clock;
use crate::directory::Directory;
use crate::immediate::Immediate;
use crate::memory::{Durability, SqliteMemory};
use crate::sequencer::{Sequencer, SharedDirectory};
use crate::standing::Thresholds;
use crate::stream::{self, Judge, Place, Streamed};
use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};

/// A way of putting results in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A gap is a miss at once, and a result that was overtaken is dropped
    Immediate,
    /// A result waits for those before it, for three minutes at most; what does not come in that
    /// time is a miss
    Backstop,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Immediate => f.write_str("immediate"),
            Self::Backstop => f.write_str("backstop"),
        }
    }
}

/// What a consumer needs to begin.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How results are put in order.
    pub mode: Mode,
    /// The file of the directory.
    pub directory: PathBuf,
    /// The file of the memory.
    pub memory: PathBuf,
    /// The address of the store that the stream is in.
    pub store: String,
    /// The name of the stream.
    pub stream: String,
    /// What the commits of both survive.
    pub durability: Durability,
    /// What time it is.
    pub clock: Clock,
}

impl Setup {
    /// The memory, on a connection of its own.
    pub fn memory(&self) -> Result<Box<SqliteMemory>> {
        let opened = SqliteMemory::open(&self.memory, self.durability);
        Ok(Box::new(opened.with_context(|| {
            format!("cannot use {}", self.memory.display())
        })?))
    }

    /// The directory.
    pub fn directory(&self) -> Result<SharedDirectory> {
        let path = &self.directory;
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let directory =
            Directory::from_json(&text).with_context(|| format!("in {}", path.display()))?;
        Ok(Arc::new(RwLock::new(directory)))
    }

    /// Makes the store ready that several processes will share.
    pub fn prepare(&self) -> Result<()> {
        match self.mode {
            Mode::Immediate => Ok(()),
            Mode::Backstop => stream::prepare(&self.place()),
        }
    }

    fn place(&self) -> Place<'_> {
        Place {
            store: &self.store,
            stream: &self.stream,
            durability: self.durability,
        }
    }

    /// The way of putting results in order, at work.
    pub fn sequencer(&self, directory: SharedDirectory) -> Result<Box<dyn Sequencer>> {
        match self.mode {
            Mode::Immediate => Ok(Box::new(Immediate {
                memory: self.memory()?,
                directory,
                thresholds: Thresholds::default(),
                clock: self.clock,
            })),
            Mode::Backstop => {
                let judge = Judge {
                    memory: Mutex::new(self.memory()?),
                    directory,
                    thresholds: Thresholds::default(),
                    clock: self.clock,
                };
                Ok(Box::new(Streamed::start(&self.place(), judge)?))
            }
        }
    }
}
