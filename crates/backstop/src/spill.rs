//! Where dead letters wait that the store does not take: a directory of segments, fsynced line by
//! line, taken in again by itself.
//!
//! A line is a record and its checksum (`spill/line.rs`), a segment is a file of lines, locked by
//! the process that writes it (`spill/segments.rs`). What is taken in is buried by its id, so that
//! a crash between the burial and the removal of its segment changes nothing (`spill/take_in.rs`).
//! Knows nothing of retries: see [`crate::WithRetry`].

mod line;
mod segments;
mod take_in;

pub use take_in::TakeInReport;

use crate::address::{StoreAddress, StoreKind};
use crate::client::Backstop;
use crate::clock::Clock;
use crate::random::RandomSource;
use backstop_core::port::{NewDeadLetter, OperatorStore};
use backstop_core::{Span, Time};
use segments::SpillSegments;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use take_in::{FIRST_WAIT, keep_taking_in};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

pub(crate) use line::encode;

/// Bytes of a segment, unless it is told otherwise; with their payloads as texts, no more than one
/// burial may carry.
const SEGMENT_BYTES_DEFAULT: u64 = 8 << 20;
/// Bytes of all segments of a directory, unless it is told otherwise.
const TOTAL_BYTES_DEFAULT: u64 = 256 << 20;
/// The directory, unless it is told otherwise.
const DIRECTORY_DEFAULT: &str = "backstop-spill";

/// Where dead letters are spilled, and how many.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpillSettings {
    /// The directory: on a disk of this machine, and of one store only. It comes into being with
    /// the first spill.
    pub directory: PathBuf,
    /// A segment that would grow over this many bytes is followed by another one; at most 8 MiB,
    /// which is also usual.
    pub segment_bytes_max: u64,
    /// What would bring all files of the directory over this many bytes is refused; 256 MiB if
    /// nothing else is said.
    pub total_bytes_max: u64,
}

impl SpillSettings {
    /// The usual bounds in this directory.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            segment_bytes_max: SEGMENT_BYTES_DEFAULT,
            total_bytes_max: TOTAL_BYTES_DEFAULT,
        }
    }

    /// Beside an SQLite file; else in the working directory, in a place that only this address
    /// comes to.
    pub(crate) fn of(address: &StoreAddress) -> Self {
        if let (Some(StoreKind::Sqlite), Some(file)) = (address.kind(), address.sqlite_file()) {
            let mut directory = file.as_os_str().to_owned();
            directory.push("-spill");
            return Self::at(directory);
        }
        // Without user and password: a new password must not hide what was spilled under the old
        // one.
        let shown = address.to_string();
        let word = address.kind().map_or("store", StoreKind::word);
        Self::at(Path::new(DIRECTORY_DEFAULT).join(format!("{word}-{}", line::checksum(&shown))))
    }

    /// Where a store is spilled whose address nobody knows.
    pub(crate) fn default_directory() -> Self {
        Self::at(DIRECTORY_DEFAULT)
    }
}

/// Something that could not be spilled, or a spill directory that could not be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpillError {
    /// The directory is at its bound.
    #[error(
        "the spill directory {} holds {held} bytes, and {max} is the most; see why the store does not take them in, or raise `total_bytes_max`",
        directory.display()
    )]
    Full {
        directory: PathBuf,
        held: u64,
        max: u64,
    },
    /// The disk, or what it is mounted on, failed.
    #[error("{doing} {} failed: {cause}", path.display())]
    Disk {
        doing: &'static str,
        path: PathBuf,
        cause: io::Error,
    },
    /// The runtime ended before the disk answered.
    #[error("the runtime ended before the disk answered")]
    Ended,
}

impl SpillError {
    fn disk(doing: &'static str, path: &Path, cause: io::Error) -> Self {
        Self::Disk {
            doing,
            path: path.to_owned(),
            cause,
        }
    }
}

/// What lies in a spill directory, whichever process put it there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SpillStatus {
    pub directory: PathBuf,
    /// Dead letters that wait to be taken in.
    pub records: usize,
    /// Bytes of all its files.
    pub bytes: u64,
    /// When the oldest of these dead letters died.
    pub oldest: Option<Time>,
    pub segments: usize,
    /// Files with lines that nobody could read: their names end in `.bad`. A line that somebody
    /// mended can be put into a file whose name ends in `.ndjson`.
    pub set_aside: Vec<PathBuf>,
}

/// Dead letters that the store did not take. Cheap to clone; goes with its [`Backstop`].
#[derive(Clone)]
pub struct Spill(Arc<SpillInner>);

struct SpillInner {
    directory: PathBuf,
    segments: Mutex<SpillSegments>,
    /// Who takes in: the background, or whoever asks for a round.
    turn: tokio::sync::Mutex<()>,
    /// The task that takes in, while there is something to be taken in.
    taker: Mutex<Option<JoinHandle<()>>>,
    store: Arc<dyn OperatorStore>,
    clock: Arc<dyn Clock>,
    random: RandomSource,
}

impl Spill {
    pub(crate) fn on(
        mut settings: SpillSettings,
        store: Arc<dyn OperatorStore>,
        clock: Arc<dyn Clock>,
        random: RandomSource,
    ) -> Self {
        // The working directory may change; what was spilled stays where it is.
        if let Ok(absolute) = std::path::absolute(&settings.directory) {
            settings.directory = absolute;
        }
        settings.segment_bytes_max = settings.segment_bytes_max.min(SEGMENT_BYTES_DEFAULT);
        let directory = settings.directory.clone();
        let segments = Mutex::new(SpillSegments::new(settings, random.clone()));
        let turn = tokio::sync::Mutex::default();
        Self(Arc::new(SpillInner {
            directory,
            segments,
            turn,
            taker: Mutex::default(),
            store,
            clock,
            random,
        }))
    }

    /// What waits to be taken in, of all processes. Reads every segment.
    pub async fn status(&self) -> Result<SpillStatus, SpillError> {
        let directory = self.0.directory.clone();
        tokio::task::spawn_blocking(move || status(directory))
            .await
            .map_err(|_| SpillError::Ended)?
    }

    /// Offers what waits to the store, now: this process's dead letters and those of processes that
    /// are no more. Happens by itself after a spill and when a store is opened.
    pub async fn take_in(&self) -> Result<TakeInReport, SpillError> {
        self.0.round().await
    }

    /// Keeps a dead letter durably until the store takes it; answers the file it is in.
    pub(crate) async fn put(&self, burial: &NewDeadLetter) -> Result<PathBuf, SpillError> {
        let line = encode(burial);
        let path = self
            .0
            .on_disk(move |segments| segments.append(&line))
            .await??;
        self.0.start_taking_in(FIRST_WAIT);
        Ok(path)
    }

    /// Takes in what earlier processes left, if they left something.
    pub(crate) fn resume(&self) {
        let left =
            segments::segments_in(&self.0.directory).is_ok_and(|segments| !segments.is_empty());
        if left {
            self.0.start_taking_in(Span::ZERO);
        }
    }
}

impl SpillInner {
    fn start_taking_in(self: &Arc<Self>, first_wait: Span) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut taker = self.taker.lock().unwrap_or_else(PoisonError::into_inner);
        // One whose runtime is gone is finished, too.
        if taker.as_ref().is_none_or(JoinHandle::is_finished) {
            *taker = Some(runtime.spawn(keep_taking_in(Arc::downgrade(self), first_wait)));
        }
    }

    /// Whether there is nothing left to take in; the next spill then starts a task of its own.
    async fn ends(self: &Arc<Self>) -> bool {
        let inner = Arc::clone(self);
        let ends = tokio::task::spawn_blocking(move || {
            // First the taker: a spill in between finds it gone, or is found.
            let mut taker = inner.taker.lock().unwrap_or_else(PoisonError::into_inner);
            let is_empty = inner.segments().is_empty();
            if is_empty {
                *taker = None;
            }
            is_empty
        });
        ends.await.unwrap_or(true)
    }

    fn segments(&self) -> MutexGuard<'_, SpillSegments> {
        // Segments are whole between any two of their changes; what is on the disk is what counts.
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something that waits for the disk.
    async fn on_disk<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut SpillSegments) -> T + Send + 'static,
    ) -> Result<T, SpillError> {
        let inner = Arc::clone(self);
        let worked = tokio::task::spawn_blocking(move || work(&mut inner.segments()));
        worked.await.map_err(|_| SpillError::Ended)
    }
}

fn status(directory: PathBuf) -> Result<SpillStatus, SpillError> {
    let mut status = SpillStatus::default();
    for path in segments::segments_in(&directory)? {
        let contents = match segments::read(&path) {
            // Taken in meanwhile.
            Err(SpillError::Disk { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
                continue;
            }
            contents => contents?,
        };
        status.segments += 1;
        status.records += contents.entries.len();
        let died = contents
            .entries
            .iter()
            .map(|entry| entry.burial.finished_at);
        status.oldest = status.oldest.into_iter().chain(died).min();
    }
    status.bytes = segments::total_bytes(&directory)?;
    status.set_aside = segments::set_aside_in(&directory)?;
    Ok(SpillStatus {
        directory,
        ..status
    })
}

impl Backstop {
    /// Spills into this directory what the store does not take, and takes in again what it finds
    /// there. The usual one is `FILE-spill` beside an SQLite file, and `backstop-spill/` with a
    /// name made of the address in the working directory for other stores. Two stores must not
    /// share one.
    #[must_use]
    pub fn spill_to(self, directory: impl Into<PathBuf>) -> Self {
        self.spill_with(SpillSettings::at(directory))
    }

    /// As [`Backstop::spill_to`], with bounds of your own.
    #[must_use]
    pub fn spill_with(self, settings: SpillSettings) -> Self {
        let (store, clock) = (self.store().clone(), self.clock().clone());
        let spill = Spill::on(settings, store, clock, self.random().clone());
        spill.resume();
        self.with_spill(spill)
    }
}

impl fmt::Debug for Spill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spill")
            .field("directory", &self.0.directory)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
