//! Whether the file that is open is still the one at its path.
//!
//! A file that is removed or replaced under a running process lives on without a name until the
//! process ends: what is written to it meanwhile looks safe, and is gone with the process. So
//! nothing is written, or read as if it were the store, while the path leads elsewhere. If the file
//! is put back, everything goes on.

use crate::open::SqliteOpenError;
use backstop_core::port::{StoreError, StoreResult};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file that was opened.
#[derive(Debug)]
pub(crate) struct FileIdentity {
    path: PathBuf,
    file: (u64, u64),
}

impl FileIdentity {
    /// The file that is at the path now.
    pub(crate) fn at(path: &Path) -> Result<Self, SqliteOpenError> {
        let file = path.metadata().map_err(|cause| SqliteOpenError::File {
            path: path.to_owned(),
            cause,
        })?;
        Ok(Self {
            path: path.to_owned(),
            file: identity(&file),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses where the path leads to another file, or to none. What cannot be looked at is taken
    /// to be there.
    pub(crate) fn check(&self, doing: &'static str) -> StoreResult<()> {
        let what = match self.path.metadata() {
            Ok(found) if identity(&found) == self.file => return Ok(()),
            Ok(_) => "replaced by another",
            Err(error) if error.kind() == io::ErrorKind::NotFound => "removed",
            Err(_) => return Ok(()),
        };
        Err(StoreError::unavailable(
            doing,
            format!(
                "{} was {what} while this process used it, and what is written now would be gone with the process; put the file back, or \
                 copy what this process still has of it (on Linux from /proc/{}/fd) before it ends",
                self.path.display(),
                std::process::id()
            ),
        ))
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}
