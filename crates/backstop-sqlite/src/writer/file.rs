//! The state of the file in the writer: open, or closed because a write or fsync failed; see
//! [`crate::recovery`].

use crate::file_identity::FileIdentity;
use crate::hints::OtherWriters;
use crate::open::{self, SyncLevel};
use crate::readers::ReaderSlots;
use crate::recovery::{FailureMarker, RecoveryOutcome, recover};
use backstop_core::limits::{FILE_RECOVERY_WAIT_MAX, FILE_RECOVERY_WAIT_MIN};
use backstop_core::port::{StoreError, StoreResult};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

const IN_USE: &str = "another program, or another connection of this one, has it open. Close that";
const IS_READ: &str = "reads of it still run. They end by themselves";

/// The file, open or closed, and what its recovery needs.
pub(crate) struct WriterFile {
    state: WriterFileState,
    file_identity: Arc<FileIdentity>,
    marker: FailureMarker,
    readers: Arc<ReaderSlots>,
}

enum WriterFileState {
    Open(OpenFile),
    Closed(FileOutage),
}

/// The writer's connection, and its settings.
pub(super) struct OpenFile {
    pub(super) db: Connection,
    /// The current `synchronous` level; `None` until the writer sets it.
    pub(super) sync: Option<SyncLevel>,
    pub(super) others: OtherWriters,
}

/// Why the file is closed, and when the next recovery is due.
struct FileOutage {
    cause: String,
    /// Why the last recovery did not succeed.
    obstacle: Option<String>,
    is_marked: bool,
    next_try: Instant,
    wait: Duration,
}

impl WriterFile {
    pub(crate) fn new(
        db: Connection,
        file_identity: Arc<FileIdentity>,
        readers: Arc<ReaderSlots>,
    ) -> Self {
        let marker = FailureMarker::of(file_identity.path());
        Self {
            state: WriterFileState::Open(OpenFile::new(db)),
            file_identity,
            marker,
            readers,
        }
    }

    /// Returns the connection if the file can be relied on. Recovers the file first if that is due.
    pub(super) fn get(&mut self, doing: &'static str) -> StoreResult<&mut OpenFile> {
        self.file_identity.check(doing)?;
        if matches!(self.state, WriterFileState::Open(_)) && self.marker.is_set() {
            self.close(
                "another process met a write or fsync that failed".to_owned(),
                true,
            );
        }
        self.recover_if_due();
        match &mut self.state {
            WriterFileState::Open(open) => Ok(open),
            WriterFileState::Closed(outage) => Err(StoreError::unavailable(
                doing,
                outage.describe(&self.file_identity),
            )),
        }
    }

    /// Returns the connection if the file is open.
    pub(super) fn open(&mut self) -> Option<&mut OpenFile> {
        match &mut self.state {
            WriterFileState::Open(open) => Some(open),
            WriterFileState::Closed(_) => None,
        }
    }

    /// Closes the file after a failed write or fsync: further commits might not reach the disk.
    pub(super) fn fail(&mut self, error: &StoreError) {
        let is_marked = self.marker.set();
        if let Err(error) = &is_marked {
            tracing::warn!(%error, "other processes cannot be told that the disk failed");
        }
        self.close(error.to_string(), is_marked.is_ok());
    }

    fn close(&mut self, cause: String, is_marked: bool) {
        tracing::error!(
            path = %self.file_identity.path().display(), %cause,
            "nothing is acknowledged until the file is recovered, which is tried at once and again by itself"
        );
        let outage = FileOutage::new(cause, is_marked);
        if let WriterFileState::Open(open) =
            std::mem::replace(&mut self.state, WriterFileState::Closed(outage))
        {
            leave_log(&open.db);
        }
    }

    fn recover_if_due(&mut self) {
        let WriterFileState::Closed(outage) = &self.state else {
            return;
        };
        if Instant::now() < outage.next_try {
            return;
        }
        let cause = outage.describe(&self.file_identity);
        let is_recovered = outage.is_marked && !self.marker.is_set();
        match self.reopen(&cause, is_recovered) {
            Ok(open) => {
                self.state = WriterFileState::Open(open);
                tracing::warn!(path = %self.file_identity.path().display(), "the file is recovered");
            }
            Err(obstacle) => {
                if let WriterFileState::Closed(outage) = &mut self.state {
                    outage.postpone(obstacle);
                }
            }
        }
    }

    fn reopen(&self, cause: &str, is_recovered: bool) -> Result<OpenFile, String> {
        if !self.readers.close(cause) {
            return Err(IS_READ.to_owned());
        }
        let path = self.file_identity.path();
        if !is_recovered && recover(path).map_err(|error| advise(&error))? == RecoveryOutcome::InUse
        {
            return Err(IN_USE.to_owned());
        }
        let db = open::connect_writer(path).map_err(|error| advise(&error))?;
        self.readers
            .open(|| open::connect_reader(path))
            .map_err(|error| advise(&error))?;
        Ok(OpenFile::new(db))
    }

    /// Checkpoints the whole log, so that the file alone is the store. If other connections still
    /// read it, the log stays.
    pub(super) fn finish(self) {
        let WriterFileState::Open(open) = self.state else {
            return;
        };
        if self.marker.is_set() {
            return leave_log(&open.db);
        }
        let folded = open
            .db
            .busy_timeout(Duration::from_millis(100))
            .and_then(|()| {
                open.db
                    .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            });
        if let Err(error) = folded {
            tracing::debug!(%error, "the log stays as it is");
            leave_log(&open.db);
        }
    }
}

/// Turns off SQLite's checkpoint on close. The last connection that closes would otherwise copy the
/// log into the file, and its missing frames would be lost there, too.
pub(crate) fn leave_log(db: &Connection) {
    if let Err(error) = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
        tracing::error!(%error, "the log cannot be kept out of the file");
    }
}

fn advise(error: &impl Display) -> String {
    format!("{error}. Free space on its disk, or check the disk")
}

impl OpenFile {
    fn new(db: Connection) -> Self {
        Self {
            db,
            sync: None,
            others: OtherWriters::default(),
        }
    }
}

impl FileOutage {
    fn new(cause: String, is_marked: bool) -> Self {
        let wait = FILE_RECOVERY_WAIT_MIN.into();
        Self {
            cause,
            obstacle: None,
            is_marked,
            next_try: Instant::now(),
            wait,
        }
    }

    fn postpone(&mut self, obstacle: String) {
        self.obstacle = Some(obstacle);
        self.next_try = Instant::now() + self.wait;
        self.wait = (self.wait * 2).min(FILE_RECOVERY_WAIT_MAX.into());
    }

    fn describe(&self, file: &FileIdentity) -> String {
        let path = file.path().display();
        let obstacle = self.obstacle.as_deref().unwrap_or("it is being recovered");
        format!(
            "{path} is closed until it is recovered, because what was written might not be on the disk ({}): \
             {obstacle}. Nothing is acknowledged until then; recovery is tried again by itself",
            self.cause
        )
    }
}
