//! Translates errors of SQLite into those of the port.

use backstop_core::port::StoreError;
use rusqlite::{Error, ErrorCode, ffi};

/// The first words of the cause of every failed write or fsync.
const DISK_FAILED: &str = "the disk failed";

/// Translates an error that occurred while `doing`.
pub(crate) fn store_error(doing: &'static str, error: &Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            StoreError::unavailable(doing, "the disk is full; free some space on it")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::unavailable(
            doing,
            format!(
                "another process keeps the file locked; end its transaction, or begin yours IMMEDIATE ({error})"
            ),
        ),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            StoreError::unavailable(
                doing,
                format!("the file cannot be written; check its rights ({error})"),
            )
        }
        Some(ErrorCode::SystemIoFailure) if is_harmless(error) => StoreError::unavailable(
            doing,
            format!("the disk could not be read; check it ({error})"),
        ),
        Some(ErrorCode::SystemIoFailure) => StoreError::unavailable(
            doing,
            format!("{DISK_FAILED}; free space on it, or check it ({error})"),
        ),
        Some(
            ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted
            | ErrorCode::OperationAborted
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::SchemaChanged,
        ) => StoreError::unavailable(doing, error),
        Some(ErrorCode::TooBig) => StoreError::misuse(doing, error),
        // All other errors come from the content of the file: it is damaged, or its tables are not
        // as we made them.
        _ => StoreError::corrupt(doing, error),
    }
}

/// Whether a write or fsync failed, so that earlier writes may not be on the disk.
pub(crate) fn is_disk_failure(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable { cause, .. } if cause.starts_with(DISK_FAILED))
}

/// Whether only a read failed: that loses nothing that was written.
fn is_harmless(error: &Error) -> bool {
    const READS: [i32; 3] = [
        ffi::SQLITE_IOERR_READ,
        ffi::SQLITE_IOERR_SHORT_READ,
        ffi::SQLITE_IOERR_NOMEM,
    ];
    error
        .sqlite_error()
        .is_some_and(|error| READS.contains(&error.extended_code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: i32, expected: &str) {
        let error = store_error(
            "testing",
            &Error::SqliteFailure(ffi::Error::new(code), None),
        );
        let kind = match error {
            StoreError::Unavailable { .. } => "unavailable",
            StoreError::Corrupt { .. } => "corrupt",
            _ => "misuse",
        };
        assert_eq!(kind, expected, "{code}");
    }

    #[test]
    fn what_may_pass_is_unavailable_and_what_will_not_is_corrupt() {
        for code in [
            ffi::SQLITE_FULL,
            ffi::SQLITE_IOERR,
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_BUSY,
            ffi::SQLITE_BUSY_SNAPSHOT,
            ffi::SQLITE_LOCKED,
            ffi::SQLITE_CANTOPEN,
            ffi::SQLITE_READONLY,
        ] {
            check(code, "unavailable");
        }
        for code in [
            ffi::SQLITE_CORRUPT,
            ffi::SQLITE_NOTADB,
            ffi::SQLITE_CONSTRAINT,
            ffi::SQLITE_ERROR,
        ] {
            check(code, "corrupt");
        }
        check(ffi::SQLITE_TOOBIG, "misuse");
    }

    #[test]
    fn only_a_write_or_fsync_that_failed_makes_the_file_unreliable() {
        let check = |code, expected| {
            let error = store_error(
                "testing",
                &Error::SqliteFailure(ffi::Error::new(code), None),
            );
            assert_eq!(is_disk_failure(&error), expected, "{code}: {error}");
        };
        for code in [
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_IOERR_WRITE,
            ffi::SQLITE_IOERR_TRUNCATE,
            ffi::SQLITE_IOERR,
        ] {
            check(code, true);
        }
        for code in [
            ffi::SQLITE_IOERR_READ,
            ffi::SQLITE_IOERR_SHORT_READ,
            ffi::SQLITE_FULL,
            ffi::SQLITE_BUSY,
        ] {
            check(code, false);
        }
    }

    #[test]
    fn a_full_disk_says_what_to_do() {
        let error = store_error(
            "enqueueing",
            &Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), None),
        );
        assert!(error.to_string().contains("free some space"), "{error}");
    }
}
