//! The files of a spill directory: written, sealed, taken over and removed. Knows no store.
//!
//! Whoever writes a segment, or takes one in, holds a lock on the file that ends with its process:
//! a locked segment is left alone, one that can be locked belongs to whoever locks it. Only the
//! holder removes a segment, and no name is used twice.

use super::line::{InvalidSpillLine, decode};
use super::{SpillError, SpillSettings};
use crate::random::RandomSource;
use backstop_core::port::NewDeadLetter;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How the name of a segment ends.
const SEGMENT: &str = "ndjson";
/// How the name of a file ends that holds lines nobody could read.
const SET_ASIDE: &str = "bad";
/// Segments one process holds at once: each is an open file.
const HELD_MAX: usize = 64;
/// From so many segments on, small ones are written together, even if nothing of them has gone in.
const CROWDED_FILES: usize = 8;
/// Names tried for a new segment before something must be wrong.
const NAMES_MAX: u32 = 100;

/// What one process holds of a spill directory.
pub(crate) struct SpillSegments {
    settings: SpillSettings,
    random: RandomSource,
    /// The process and a random part: the names of its segments begin with it. Drawn with the
    /// first one: whoever never spills has the same random numbers as ever.
    owner: Option<String>,
    sequence: u32,
    /// The one that is written.
    open: Option<SpillSegment>,
    /// Those that are only read: its own, and those of dead processes.
    sealed: Vec<SpillSegment>,
}

/// A file that this process has locked.
struct SpillSegment {
    path: PathBuf,
    file: File,
    bytes: u64,
}

#[derive(Default)]
pub(crate) struct SegmentContents {
    pub(crate) entries: Vec<SegmentEntry>,
    /// Lines that are none, without their ends.
    pub(crate) bad: Vec<(Vec<u8>, InvalidSpillLine)>,
}

/// A dead letter and the line it stands in.
pub(crate) struct SegmentEntry {
    pub(crate) line: String,
    pub(crate) burial: NewDeadLetter,
}

/// What is left of a segment after its dead letters were offered to the store.
pub(crate) struct SegmentRest {
    /// Lines that the store did not take.
    pub(crate) lines: Vec<String>,
    /// Lines that nobody can read.
    pub(crate) bad: Vec<Vec<u8>>,
    /// How many dead letters the store has.
    pub(crate) taken: usize,
}

impl SpillSegments {
    pub(crate) fn new(settings: SpillSettings, random: RandomSource) -> Self {
        Self {
            settings,
            random,
            owner: None,
            sequence: 0,
            open: None,
            sealed: Vec::new(),
        }
    }

    /// Writes a line durably, if there is room for it. Two processes at once may exceed the bound
    /// by a line.
    pub(crate) fn append(&mut self, line: &str) -> Result<PathBuf, SpillError> {
        let held = total_bytes(&self.settings.directory)?;
        if held + line.len() as u64 >= self.settings.total_bytes_max {
            let (directory, max) = (
                self.settings.directory.clone(),
                self.settings.total_bytes_max,
            );
            return Err(SpillError::Full {
                directory,
                held,
                max,
            });
        }
        self.write(&format!("{line}\n"))
    }

    /// Closes the segment that is written; the next line begins another one.
    pub(crate) fn seal(&mut self) -> Option<PathBuf> {
        let segment = self.open.take()?;
        let path = segment.path.clone();
        self.sealed.push(segment);
        Some(path)
    }

    /// Takes over what dead processes left; answers all sealed segments.
    pub(crate) fn adopt(&mut self) -> Result<Vec<PathBuf>, SpillError> {
        for path in segments_in(&self.settings.directory)? {
            if self.sealed.len() >= HELD_MAX {
                break;
            }
            if self.holds(&path) {
                continue;
            }
            match SpillSegment::adopt(&path) {
                Ok(Some(segment)) => self.sealed.push(segment),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a spilled segment cannot be opened; it stays");
                }
            }
        }
        Ok(self
            .sealed
            .iter()
            .map(|segment| segment.path.clone())
            .collect())
    }

    /// Ends a round with a segment: what is left of it is written anew, if that makes a difference,
    /// before it is removed. A crash in between leaves lines twice; taken in, they are one.
    pub(crate) fn settle(&mut self, path: &Path, rest: &SegmentRest) -> Result<(), SpillError> {
        if !rest.bad.is_empty() {
            set_aside(&path.with_extension(SET_ASIDE), &rest.bad)?;
        }
        if !rest.lines.is_empty() {
            if rest.taken == 0 && rest.bad.is_empty() && !self.is_crowded_by(path) {
                return Ok(());
            }
            let lines: String = rest.lines.iter().flat_map(|line| [line, "\n"]).collect();
            self.write(&lines)?;
        }
        self.remove(path)
    }

    /// Whether this process holds nothing that is to be taken in.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_none() && self.sealed.is_empty()
    }

    fn holds(&self, path: &Path) -> bool {
        self.sealed
            .iter()
            .chain(&self.open)
            .any(|segment| segment.path == path)
    }

    fn is_crowded_by(&self, path: &Path) -> bool {
        let small = |segment: &SpillSegment| segment.bytes * 2 < self.settings.segment_bytes_max;
        self.sealed.len() > CROWDED_FILES
            && self
                .sealed
                .iter()
                .any(|segment| segment.path == path && small(segment))
    }

    fn write(&mut self, text: &str) -> Result<PathBuf, SpillError> {
        let is_over = |segment: &SpillSegment| {
            segment.bytes + text.len() as u64 > self.settings.segment_bytes_max
        };
        if self.open.as_ref().is_some_and(is_over) {
            self.seal();
        }
        let mut segment = match self.open.take() {
            Some(segment) => segment,
            None => self.create()?,
        };
        let path = segment.path.clone();
        let written = segment.append(text.as_bytes());
        match written {
            Ok(()) => self.open = Some(segment),
            // What a failed write or fsync left behind is not to be relied on; nothing more is
            // written there.
            Err(_) => self.sealed.push(segment),
        }
        written.map_err(|cause| SpillError::disk("writing to", &path, cause))?;
        Ok(path)
    }

    fn create(&mut self) -> Result<SpillSegment, SpillError> {
        let directory = self.settings.directory.clone();
        make_directory(&directory)
            .map_err(|cause| SpillError::disk("making", &directory, cause))?;
        let draw = || format!("{}-{:016x}", std::process::id(), self.random.bits());
        let owner = self.owner.get_or_insert_with(draw);
        for _ in 0..NAMES_MAX {
            self.sequence += 1;
            let path = directory.join(format!("{owner}-{:06}.{SEGMENT}", self.sequence));
            if let Some(segment) = SpillSegment::create(&path)
                .map_err(|cause| SpillError::disk("making", &path, cause))?
            {
                sync_directory(&directory)
                    .map_err(|cause| SpillError::disk("fsyncing", &directory, cause))?;
                return Ok(segment);
            }
        }
        let cause = io::Error::other(format!("{NAMES_MAX} names in a row are taken"));
        Err(SpillError::disk("making a segment in", &directory, cause))
    }

    fn remove(&mut self, path: &Path) -> Result<(), SpillError> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(SpillError::disk("removing", path, error));
            }
            _ => self.sealed.retain(|segment| segment.path != path),
        }
        // Unsynced, the segment may come back after a power cut; its dead letters are known by
        // then.
        sync_directory(&self.settings.directory)
            .map_err(|cause| SpillError::disk("fsyncing", &self.settings.directory, cause))
    }
}

impl SpillSegment {
    /// A new file, locked; `None` if the name is taken, or if somebody took it for a dead process's
    /// in between.
    fn create(path: &Path) -> io::Result<Option<Self>> {
        let file = match OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
        {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            opened => opened?,
        };
        Ok(try_lock(&file)?.then(|| Self {
            path: path.to_owned(),
            file,
            bytes: 0,
        }))
    }

    /// A dead process's segment, locked; `None` if its process lives, or somebody else has it or
    /// had it.
    fn adopt(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        if !try_lock(&file)? {
            return Ok(None);
        }
        let metadata = file.metadata()?;
        // Opened before and locked after its last holder removed it: all of it is taken in.
        let is_there = metadata.nlink() > 0;
        Ok(is_there.then(|| Self {
            path: path.to_owned(),
            file,
            bytes: metadata.len(),
        }))
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        let written = self
            .file
            .write_all(text)
            .and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => self.bytes += text.len() as u64,
            // Tidiness only: a torn line would be recognised.
            Err(_) => drop(self.file.set_len(self.bytes)),
        }
        written
    }
}

/// Whether the lock on a file is ours now.
fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// What the segment at `path` holds.
pub(crate) fn read(path: &Path) -> Result<SegmentContents, SpillError> {
    let bytes = std::fs::read(path).map_err(|cause| SpillError::disk("reading", path, cause))?;
    let mut contents = SegmentContents::default();
    for line in bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        match decode(line) {
            Ok(burial) => {
                let line = String::from_utf8_lossy(line).into_owned();
                contents.entries.push(SegmentEntry { line, burial });
            }
            Err(why) => contents.bad.push((line.to_vec(), why)),
        }
    }
    Ok(contents)
}

/// All segments of a directory, whoever holds them, in the order of their names.
pub(crate) fn segments_in(directory: &Path) -> Result<Vec<PathBuf>, SpillError> {
    paths_in(directory, SEGMENT)
}

/// Files with lines that nobody could read, in the order of their names.
pub(crate) fn set_aside_in(directory: &Path) -> Result<Vec<PathBuf>, SpillError> {
    paths_in(directory, SET_ASIDE)
}

/// Bytes of all files of a directory that are ours.
pub(crate) fn total_bytes(directory: &Path) -> Result<u64, SpillError> {
    let files = files_in(directory, SEGMENT)?
        .into_iter()
        .chain(files_in(directory, SET_ASIDE)?);
    Ok(files.map(|(_, bytes)| bytes).sum())
}

fn paths_in(directory: &Path, ending: &str) -> Result<Vec<PathBuf>, SpillError> {
    let mut paths: Vec<_> = files_in(directory, ending)?
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    paths.sort_unstable();
    Ok(paths)
}

/// The files whose names end like this, and their sizes; none in a directory that is not there.
fn files_in(directory: &Path, ending: &str) -> Result<Vec<(PathBuf, u64)>, SpillError> {
    let failed = |cause| SpillError::disk("listing", directory, cause);
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.path().extension().is_none_or(|found| found != ending) {
            continue;
        }
        match entry.metadata() {
            // Somebody else took it in meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            metadata => files.push((entry.path(), metadata.map_err(failed)?.len())),
        }
    }
    Ok(files)
}

/// Keeps lines that nobody could read, for whoever can. Written whole, so that a repetition changes
/// nothing.
fn set_aside(path: &Path, lines: &[Vec<u8>]) -> Result<(), SpillError> {
    let mut text = lines.join(&b'\n');
    text.push(b'\n');
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    let written = file.and_then(|mut file| {
        file.write_all(&text)?;
        file.sync_all()?;
        sync_directory(path.parent().unwrap_or(path))
    });
    written.map_err(|cause| SpillError::disk("writing to", path, cause))
}

/// Makes the directory and those above it, for nobody else to look into, and durably.
fn make_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = directory.parent().unwrap_or(Path::new("/"));
    make_directory(parent)?;
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => sync_directory(parent),
    }
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
