//! Translates errors of PostgreSQL into those of the port.

use backstop_core::port::StoreError;
use deadpool_postgres::PoolError;
use std::error::Error as _;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

pub(crate) const TOO_MANY_QUEUES: &str = "BS003";

/// Translates an error that occurred while `doing`.
pub(crate) fn store_error(doing: &'static str, error: &Error) -> StoreError {
    let Some(db_error) = error.as_db_error() else {
        return unreachable(doing, error);
    };
    let cause = format!("{} ({})", db_error.message(), db_error.code().code());
    match db_error.code() {
        _ if is_outdated(error) => StoreError::unavailable(doing, cause),
        code if code.code() == TOO_MANY_QUEUES => StoreError::TooManyQueues {
            cause: db_error.message().to_owned(),
        },
        &SqlState::INSUFFICIENT_PRIVILEGE => {
            let cause = cause.replacen("permission denied for ", "not allowed: ", 1);
            let advice = "grant the role what the documentation lists, or use one that may";
            StoreError::misuse(doing, format!("{cause}; {advice}"))
        }
        &SqlState::UNDEFINED_TABLE
        | &SqlState::UNDEFINED_FUNCTION
        | &SqlState::INVALID_SCHEMA_NAME => StoreError::misuse(
            doing,
            format!("{cause}; run `backstop migrate` on this address"),
        ),
        &SqlState::DISK_FULL => StoreError::unavailable(
            doing,
            format!("{cause}; free some space on the server's disk"),
        ),
        &SqlState::READ_ONLY_SQL_TRANSACTION => StoreError::unavailable(
            doing,
            format!("{cause}; this server is a standby or was set read-only"),
        ),
        code => match &code.code()[..2] {
            // Failed connections, missing resources, actions of an operator, and conflicts or lock
            // waits of transactions.
            "08" | "40" | "53" | "55" | "57" | "58" => StoreError::unavailable(doing, cause),
            "28" | "3D" => StoreError::unavailable(
                doing,
                format!("{cause}; check user, password and database"),
            ),
            "0A" | "22" | "54" => StoreError::misuse(doing, cause),
            _ => StoreError::corrupt(doing, cause),
        },
    }
}

/// Translates the error of a pool that could not provide a connection.
pub(crate) fn pool_error(doing: &'static str, error: &PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => store_error(doing, error),
        other => StoreError::unavailable(doing, other),
    }
}

/// Whether the same call may succeed on another connection or a moment later.
pub(crate) fn is_passing(error: &Error) -> bool {
    match error.code() {
        Some(code) => {
            matches!(&code.code()[..2], "08" | "40")
                || is_outdated(error)
                || [
                    SqlState::ADMIN_SHUTDOWN,
                    SqlState::CRASH_SHUTDOWN,
                    SqlState::CANNOT_CONNECT_NOW,
                    SqlState::TOO_MANY_CONNECTIONS,
                ]
                .contains(code)
        }
        None => true,
    }
}

/// Whether the call waited too long for a lock: another transaction is taking long.
pub(crate) fn is_in_the_way(error: &Error) -> bool {
    let codes = [SqlState::LOCK_NOT_AVAILABLE, SqlState::QUERY_CANCELED];
    error.code().is_some_and(|code| codes.contains(code))
}

/// Whether a connection's prepared statements are outdated: another process has upgraded the
/// schema, or the session does not have them. The failed call changed nothing.
pub(crate) fn is_outdated(error: &Error) -> bool {
    let is_of_old = |db_error: &DbError| db_error.routine() == Some("RevalidateCachedQuery");
    error.as_db_error().is_some_and(is_of_old) || is_unprepared(error)
}

/// Whether the session has other prepared statements than its connection has made: a pooler changes
/// or resets sessions.
pub(crate) fn is_unprepared(error: &Error) -> bool {
    let codes = [
        SqlState::INVALID_SQL_STATEMENT_NAME,
        SqlState::DUPLICATE_PSTATEMENT,
    ];
    error.code().is_some_and(|code| codes.contains(code))
}

fn unreachable(doing: &'static str, error: &Error) -> StoreError {
    let mut cause = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_says = inner.to_string();
        if !cause.contains(&inner_says) {
            cause = format!("{cause}: {inner_says}");
        }
        source = inner.source();
    }
    // The driver could not encode a parameter or decode a column.
    if cause.contains("serializing parameter") || cause.contains("deserializing column") {
        return StoreError::corrupt(doing, cause);
    }
    let advice = if cause.contains("does not support TLS") {
        "; switch `ssl` on in the server, or say `sslmode=disable`"
    } else if cause.contains("certificate") || cause.contains("UnknownIssuer") {
        "; name the authority's file with `sslrootcert=FILE`, or say `sslmode=disable`"
    } else if cause.contains("unsupported startup parameter") {
        "; behind PgBouncer say `pooler=transaction`"
    } else {
        ""
    };
    StoreError::unavailable(doing, format!("{cause}{advice}"))
}
