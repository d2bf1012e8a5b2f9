//! A store that could not be opened: what to look at depends on what it is.

use super::CliError;
use backstop::core::port::StoreError;
use backstop::{OpenError, StoreAddress, StoreKind};

/// What to tell about a store that could not be opened.
pub(crate) fn open_error(error: OpenError, address: &StoreAddress) -> CliError {
    match error {
        OpenError::UnknownStore(_) => CliError::misuse(error).advise("--store sqlite:backstop.db"),
        OpenError::NotBuiltIn(_) => CliError::misuse(error),
        OpenError::RedisDecides => {
            CliError::misuse(error).advise("the same without relaxed durability")
        }
        OpenError::Postgres(_) => {
            CliError::misuse(error).advise("--store postgres://USER:PASSWORD@HOST:PORT/DATABASE")
        }
        OpenError::Redis(_) => CliError::misuse(error).advise(
            "--store redis://HOST:PORT, redis+cluster://HOST:PORT,HOST:PORT or \
             redis+sentinel://HOST:PORT,HOST:PORT/NAME",
        ),
        OpenError::Store(error) => store_open_error(error, address),
        other => CliError::new(other).advise("another --store, or mend what the message names"),
    }
}

/// Whatever a server says while it is opened, nothing was asked of it yet that could be wrong use.
fn store_open_error(error: StoreError, address: &StoreAddress) -> CliError {
    let advice = match (address.kind(), &error) {
        (_, StoreError::Misuse { cause, .. }) if is_unknown_schema(cause) => {
            "another --store, or the program that made this one"
        }
        (Some(StoreKind::Postgres), StoreError::Misuse { .. }) => {
            "backstop migrate as the owner of the schema; the first time: GRANT CREATE ON DATABASE … TO …"
        }
        (Some(StoreKind::Postgres), _) => {
            "psql with the same address: is the server up, does it let this role in from here, is the name right?"
        }
        (Some(StoreKind::Redis), StoreError::Misuse { cause, .. })
            if cause.contains("redis+cluster://") =>
        {
            let shown = address.to_string();
            let (scheme, place) = shown.split_once("://").unwrap_or(("redis", "HOST:PORT"));
            let hosts = place.split(['/', '?']).next().unwrap_or_default();
            return CliError::new(format!("{address}: {error}"))
                .advise(format!("--store {scheme}+cluster://{hosts}"));
        }
        (Some(StoreKind::Redis), StoreError::Misuse { .. }) => {
            "the right user and password: --store redis://USER:PASSWORD@HOST:PORT; redis-cli -u with the same address and PING tells"
        }
        (Some(StoreKind::Redis), _) => {
            "redis-cli -u with the same address and PING: is the server up, is the password right?"
        }
        (Some(StoreKind::Sqlite | StoreKind::Memory) | None, _) => return error.into(),
    };
    CliError::new(format!("{address}: {error}")).advise(advice)
}

/// Whether the store has a schema that this program does not know, as
/// [`SchemaMark::check`](backstop::core::port::SchemaMark::check) says it.
fn is_unknown_schema(cause: &str) -> bool {
    [
        "made by a pre-release of backstop",
        "this program knows versions up to",
    ]
    .iter()
    .any(|part| cause.contains(part))
}
