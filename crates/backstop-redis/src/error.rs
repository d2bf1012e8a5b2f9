//! Maps errors of Redis to errors of the port.

use backstop_core::port::StoreError;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// How the store reacts to an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RedisErrorKind {
    /// Transient: the call may succeed on another connection or another server.
    Connection,
    /// Transient: the call may succeed on this connection.
    Passing,
    /// The server does not know the script yet.
    NoScript,
    /// The server does not accept our login. The next connection may succeed: passwords change, and
    /// a server that takes over may not have its users yet.
    Stranger,
    /// The caller lacks the permission, or the server cannot do it.
    Refused,
    /// The server holds data that should not be there.
    Damage,
}

/// Classifies an error of the Redis client.
pub(crate) fn kind(error: &RedisError) -> RedisErrorKind {
    let kind = plain_kind(error);
    if kind == RedisErrorKind::Damage {
        wrapped_kind(&error.to_string()).unwrap_or(kind)
    } else {
        kind
    }
}

fn wrapped_kind(text: &str) -> Option<RedisErrorKind> {
    let says = |word: &&str| is_wrapped(text, word);
    if ["READONLY", "MASTERDOWN"].iter().any(says) {
        return Some(RedisErrorKind::Connection);
    }
    ["OOM", "MISCONF", "NOREPLICAS"]
        .iter()
        .any(says)
        .then_some(RedisErrorKind::Passing)
}

/// Before version 7, Redis wraps an error inside a script into another one; the inner error code is
/// in the text.
fn is_wrapped(text: &str, word: &str) -> bool {
    text.contains("user_script") && text.contains(&format!("-{word}"))
}

fn plain_kind(error: &RedisError) -> RedisErrorKind {
    match error.kind() {
        ErrorKind::Server(server) => server_kind(server),
        ErrorKind::AuthenticationFailed => RedisErrorKind::Stranger,
        ErrorKind::InvalidClientConfig => RedisErrorKind::Refused,
        ErrorKind::UnexpectedReturnType => RedisErrorKind::Damage,
        ErrorKind::Extension => extension_kind(error.code().unwrap_or_default()),
        _ => RedisErrorKind::Connection,
    }
}

const fn server_kind(kind: ServerErrorKind) -> RedisErrorKind {
    match kind {
        ServerErrorKind::NoScript => RedisErrorKind::NoScript,
        ServerErrorKind::ReadOnly
        | ServerErrorKind::MasterDown
        | ServerErrorKind::Moved
        | ServerErrorKind::Ask => RedisErrorKind::Connection,
        ServerErrorKind::BusyLoading | ServerErrorKind::TryAgain | ServerErrorKind::ClusterDown => {
            RedisErrorKind::Passing
        }
        ServerErrorKind::NoPerm | ServerErrorKind::CrossSlot => RedisErrorKind::Refused,
        _ => RedisErrorKind::Damage,
    }
}

/// Classifies errors that the client has no name for, by their error code.
fn extension_kind(code: &str) -> RedisErrorKind {
    match code {
        "OOM" | "BUSY" | "MISCONF" | "NOREPLICAS" | "UNBLOCKED" => RedisErrorKind::Passing,
        "NOAUTH" | "WRONGPASS" => RedisErrorKind::Stranger,
        "NOPERM" | "DENIED" => RedisErrorKind::Refused,
        _ => RedisErrorKind::Damage,
    }
}

/// The port's error for an error that occurred while `doing`.
pub(crate) fn store_error(doing: &'static str, error: &RedisError) -> StoreError {
    let says = |word: &str| error.code() == Some(word) || is_wrapped(&error.to_string(), word);
    match kind(error) {
        RedisErrorKind::Passing if says("OOM") => StoreError::unavailable(
            doing,
            format!("Redis is full; raise `maxmemory`, or let jobs be done ({error})"),
        ),
        RedisErrorKind::Passing if says("MISCONF") => StoreError::unavailable(
            doing,
            format!("Redis cannot write to its disk; free some space on it ({error})"),
        ),
        RedisErrorKind::Refused if error.kind() == ErrorKind::InvalidClientConfig => {
            StoreError::misuse(doing, error)
        }
        RedisErrorKind::Stranger => StoreError::unavailable(
            doing,
            format!(
                "Redis does not let this user in; check user and password in the address ({error})"
            ),
        ),
        RedisErrorKind::Refused => StoreError::misuse(
            doing,
            format!("Redis refuses; check the rights of the user in the address ({error})"),
        ),
        RedisErrorKind::Damage => StoreError::corrupt(doing, error),
        RedisErrorKind::Connection | RedisErrorKind::Passing | RedisErrorKind::NoScript => {
            StoreError::unavailable(doing, error)
        }
    }
}

/// The error for a reply that none of our scripts gives.
pub(crate) fn strange(doing: &'static str) -> StoreError {
    StoreError::corrupt(
        doing,
        "an answer that cannot be read; the server may hold keys of another program",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: ErrorKind, expected: &str) {
        let word = match store_error("testing", &RedisError::from((kind, "said"))) {
            StoreError::Unavailable { .. } => "unavailable",
            StoreError::Corrupt { .. } => "corrupt",
            _ => "misuse",
        };
        assert_eq!(word, expected, "{kind:?}");
    }

    #[test]
    fn what_may_pass_is_unavailable_and_what_will_not_is_said() {
        for server in [
            ServerErrorKind::BusyLoading,
            ServerErrorKind::ClusterDown,
            ServerErrorKind::ReadOnly,
            ServerErrorKind::MasterDown,
            ServerErrorKind::TryAgain,
        ] {
            check(ErrorKind::Server(server), "unavailable");
        }
        check(ErrorKind::Io, "unavailable");
        check(ErrorKind::ClusterConnectionNotFound, "unavailable");
        // The PostgreSQL store does the same.
        check(ErrorKind::AuthenticationFailed, "unavailable");
        check(ErrorKind::InvalidClientConfig, "misuse");
        check(ErrorKind::Server(ServerErrorKind::NoPerm), "misuse");
        check(ErrorKind::Server(ServerErrorKind::ResponseError), "corrupt");
    }

    #[test]
    fn who_is_not_known_may_be_by_the_next_connection_and_who_may_not_does_not() {
        for (word, is_transient) in [("NOAUTH", true), ("WRONGPASS", true), ("NOPERM", false)] {
            let error = redis::make_extension_error(word.to_owned(), None);
            assert_eq!(
                store_error("claiming", &error).is_transient(),
                is_transient,
                "{word}"
            );
        }
        let error = redis::make_extension_error("WRONGPASS".to_owned(), None);
        assert!(
            store_error("claiming", &error)
                .to_string()
                .contains("check user and password"),
            "{error}"
        );
    }

    #[test]
    fn a_full_server_says_what_to_do() {
        let inside = "Error running script (call to f_4f): @user_script:10: @user_script: 10: -OOM command not allowed";
        for error in [
            redis::make_extension_error("OOM".to_owned(), None),
            RedisError::from((
                ErrorKind::Server(ServerErrorKind::ResponseError),
                "said",
                inside.to_owned(),
            )),
        ] {
            assert!(
                store_error("enqueueing", &error)
                    .to_string()
                    .contains("maxmemory"),
                "{error}"
            );
            assert!(store_error("enqueueing", &error).is_transient(), "{error}");
        }
    }
}
