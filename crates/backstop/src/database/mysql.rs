//! Connections to MySQL and MariaDB: with TLS where the address asks for it, and then always with
//! the server's certificate and name checked.

use crate::address::StoreAddress;
use backstop_core::Span;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, OptsBuilder, ServerError, SslOpts};

/// The server stopped a statement at its time limit: MariaDB's number for it, and MySQL's.
const STOPPED: [u16; 2] = [1_969, 3_024];
/// The driver's own words for TLS, which could switch its checks off.
const DRIVER_PARAMETERS: [&str; 4] = [
    "require_ssl",
    "verify_ca",
    "verify_identity",
    "built_in_roots",
];

/// An address in parts: what the driver takes, and what it does not.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct MysqlAddress {
    url: String,
    tls: MysqlTls,
}

#[derive(PartialEq, Eq, Debug)]
enum MysqlTls {
    Off,
    /// With whoever this file vouches for, or else this machine.
    Verified(Option<String>),
}

impl MysqlAddress {
    /// What an address says; or what is wrong with what it says about TLS.
    pub(crate) fn new(address: &str) -> Result<Self, String> {
        let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (mut kept, mut mode, mut file) = (Vec::new(), None, None);
        for param in query.split('&').filter(|param| !param.is_empty()) {
            match param.split_once('=').unwrap_or((param, "")) {
                ("ssl-mode", value) => mode = Some(value.to_ascii_lowercase()),
                ("ssl-ca", value) => file = Some(value.to_owned()),
                (word, _) if DRIVER_PARAMETERS.contains(&word) => {
                    return Err(format!(
                        "`{word}` is not for here; write ssl-mode=verify-identity for TLS"
                    ));
                }
                _ => kept.push(param),
            }
        }
        let tls = match mode.as_deref() {
            None if file.is_none() => MysqlTls::Off,
            Some("disabled") => MysqlTls::Off,
            None | Some("required" | "verify-identity") => MysqlTls::Verified(file),
            Some(other) => {
                return Err(format!(
                    "ssl-mode={other} is not one of disabled, required and verify-identity; with either of the last two the server's \
                     certificate and name are checked"
                ));
            }
        };
        let query = if kept.is_empty() {
            String::new()
        } else {
            format!("?{}", kept.join("&"))
        };
        Ok(Self {
            url: format!("mysql://{place}{query}"),
            tls,
        })
    }

    fn opts(&self) -> Result<OptsBuilder, Error> {
        let opts = OptsBuilder::from_opts(Opts::from_url(&self.url)?);
        let MysqlTls::Verified(file) = &self.tls else {
            return Ok(opts);
        };
        // Fails only if the program has chosen one already, and then that one is used.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let roots = if let Some(file) = file {
            let read = std::fs::read(file);
            vec![read.map_err(|error| Error::Other(format!("ssl-ca={file}: {error}").into()))?]
        } else {
            let known = rustls_native_certs::load_native_certs().certs;
            known
                .into_iter()
                .map(|certificate| certificate.to_vec())
                .collect()
        };
        let roots = roots.into_iter().map(Into::into).collect();
        let ssl = SslOpts::default()
            .with_disable_built_in_roots(true)
            .with_root_certs(roots);
        Ok(opts.ssl_opts(Some(ssl)))
    }
}

/// A connection of one's own. A change counts the rows it found, also where it left them as they
/// were.
pub(crate) async fn connect(address: &StoreAddress) -> mysql_async::Result<Conn> {
    let dial =
        MysqlAddress::new(address.as_written()).map_err(|wrong| Error::Other(wrong.into()))?;
    Conn::new(dial.opts()?.client_found_rows(true)).await
}

/// Whether it is MariaDB: its words for some things are its own.
pub(crate) async fn is_mariadb(conn: &mut Conn) -> mysql_async::Result<bool> {
    let version: Option<String> = conn.query_first("SELECT VERSION()").await?;
    Ok(version.is_some_and(|version| version.contains("MariaDB")))
}

/// Each has its own word for it, and MariaDB counts in seconds.
pub(crate) fn time_limit(is_mariadb: bool, limit: Span) -> String {
    let millis = limit.as_millis().max(1);
    if is_mariadb {
        format!(
            "SET SESSION max_statement_time = {}.{:03}",
            millis / 1_000,
            millis % 1_000
        )
    } else {
        format!("SET SESSION max_execution_time = {millis}")
    }
}

/// Whether the server stopped a statement at its time limit.
pub(crate) fn is_stopped(error: &ServerError) -> bool {
    STOPPED.contains(&error.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_whether_tls_is_wanted_and_never_that_it_is_not_checked() {
        let dial = |query: &str| MysqlAddress::new(&format!("mariadb://ada:x@db/shop{query}"));
        let url = "mysql://ada:x@db/shop".to_owned();
        assert_eq!(
            dial(""),
            Ok(MysqlAddress {
                url: url.clone(),
                tls: MysqlTls::Off
            })
        );
        assert_eq!(
            dial("?ssl-mode=DISABLED"),
            Ok(MysqlAddress {
                url: url.clone(),
                tls: MysqlTls::Off
            })
        );
        let checked = MysqlAddress {
            url: format!("{url}?wait_timeout=9"),
            tls: MysqlTls::Verified(None),
        };
        assert_eq!(dial("?ssl-mode=required&wait_timeout=9"), Ok(checked));
        let own = MysqlAddress {
            url,
            tls: MysqlTls::Verified(Some("/ca.pem".to_owned())),
        };
        assert_eq!(dial("?ssl-ca=/ca.pem"), Ok(own));
        for refused in [
            "?ssl-mode=preferred",
            "?ssl-mode=",
            "?require_ssl=true&verify_ca=false",
        ] {
            assert!(
                dial(refused).is_err_and(|wrong| wrong.contains("verify-identity")),
                "{refused}"
            );
        }
    }
}
