//! Checks that the open file is still the one at its path.
//!
//! If a file is removed or replaced under a running process, it exists without a name until the
//! process ends. What the process writes to it meanwhile looks safe, and is lost with the process.
//! So the store neither reads nor writes while its path leads to another file. If the user puts the
//! file back, it continues.

use crate::open::SqliteOpenError;
use backstop_core::port::{StoreError, StoreResult};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The path, device and inode of the opened file.
#[derive(Debug)]
pub(crate) struct FileIdentity {
    path: PathBuf,
    file: (u64, u64),
}

impl FileIdentity {
    /// Remembers the file that is at the path now.
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

    /// Returns an error if the path leads to another file or to none. If the path cannot be read,
    /// the file is taken to be there.
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
