//! What is said about the server.

use backstop_core::Span;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Where the server listens when nobody says where.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7007);
/// Connections it may be told to hold at once.
pub const CONNECTIONS_MAX: usize = 100_000;
/// The longest session it may be told to grant.
pub const SESSION_MAX: Span = Span::days(30);
/// The longest time it may be told to give a request.
pub const TIMEOUT_MAX: Span = Span::minutes(10);
/// Characters of the path in front of every address.
const BASE_CHARS_MAX: usize = 128;
/// What the server answers at the root, whatever path it stands under.
const RESERVED_PATHS: [&str; 4] = ["healthz", "readyz", "metrics", "openapi.json"];
/// Addresses people may reach it under.
const ORIGINS_MAX: usize = 32;

/// How the server is reached, and what it bears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    /// The path in front of every address, such as `/backstop`; empty at the root.
    pub base: String,
    pub transport: ServerTransport,
    /// Where browsers find it behind a proxy, such as `https://jobs.example.org`.
    pub origins: Vec<String>,
    /// How long a login to the dashboard lasts.
    pub session: Span,
    /// How long a request may take; long polls and event streams may take longer.
    pub timeout: Span,
    /// How many connections it holds at once.
    pub connections_max: usize,
}

/// Whether the server speaks HTTP or HTTPS, and why HTTP is allowed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ServerTransport {
    /// Without encryption: on loopback only.
    #[default]
    Plain,
    /// Without encryption, since a proxy in front of it has that.
    BehindProxy,
    Tls(TlsFiles),
}

/// The files of a certificate.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate and those that vouch for it, as PEM.
    pub cert: PathBuf,
    /// Its private key, as PEM.
    pub key: PathBuf,
}

impl ServerConfig {
    /// Whether only programs of this machine can reach it.
    pub fn is_loopback(&self) -> bool {
        self.listen.ip().to_canonical().is_loopback()
    }

    /// Whether nobody gets in without a token: wherever others can reach it, by itself or through a
    /// proxy.
    pub fn needs_tokens(&self) -> bool {
        !self.is_loopback()
            || !self.origins.is_empty()
            || self.transport == ServerTransport::BehindProxy
    }

    /// Whether whoever comes comes through a proxy: by `plain_http`, or since it listens to this
    /// machine alone and is found elsewhere.
    pub fn is_behind_proxy(&self) -> bool {
        self.transport == ServerTransport::BehindProxy
            || self.is_loopback() && !self.origins.is_empty()
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: DEFAULT_LISTEN,
            base: String::new(),
            transport: ServerTransport::default(),
            origins: Vec::new(),
            session: Span::hours(12),
            timeout: Span::secs(30),
            connections_max: 1_000,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawServer {
    listen: Option<String>,
    base: Option<String>,
    tls: Option<TlsFiles>,
    plain_http: Option<bool>,
    origins: Option<Vec<String>>,
    session: Option<Span>,
    timeout: Option<Span>,
    connections_max: Option<usize>,
}

impl RawServer {
    /// What it means, with the usual settings where it is silent.
    pub(super) fn build(self) -> Result<ServerConfig, String> {
        let usual = ServerConfig::default();
        let transport = match (self.tls, self.plain_http) {
            (Some(_), Some(true)) => {
                return Err(
                    "`tls` and `plain_http = true` contradict each other; keep one of them"
                        .to_owned(),
                );
            }
            (Some(files), _) => ServerTransport::Tls(files),
            (None, Some(true)) => ServerTransport::BehindProxy,
            (None, _) => ServerTransport::Plain,
        };
        Ok(ServerConfig {
            listen: self
                .listen
                .as_deref()
                .map_or(Ok(usual.listen), listen)
                .map_err(|problem| format!("`listen`: {problem}"))?,
            base: self
                .base
                .as_deref()
                .map_or(Ok(usual.base), base)
                .map_err(|problem| format!("`base`: {problem}"))?,
            transport,
            origins: origins(self.origins.unwrap_or_default())?,
            session: check_at_most(
                "session",
                self.session.unwrap_or(usual.session),
                SESSION_MAX,
            )?,
            timeout: check_at_most(
                "timeout",
                self.timeout.unwrap_or(usual.timeout),
                TIMEOUT_MAX,
            )?,
            connections_max: connections(self.connections_max.unwrap_or(usual.connections_max))?,
        })
    }
}

/// An address to listen at. `localhost` is 127.0.0.1: what else it may stand for on a machine is
/// nobody's guess here.
pub(super) fn listen(text: &str) -> Result<SocketAddr, String> {
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
        None => text.to_owned(),
    };
    numeric.parse().map_err(|_| {
        format!("{text:?} is not an address to listen at; write one such as \"127.0.0.1:7007\" or \"0.0.0.0:7007\"")
    })
}

/// The path in front of every address, without an end slash.
pub(super) fn base(text: &str) -> Result<String, String> {
    let path = text.trim_end_matches('/');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~');
    let is_part =
        |part: &str| !part.is_empty() && part.chars().all(is_plain) && !matches!(part, "." | "..");
    match path.strip_prefix('/') {
        _ if path.is_empty() => Ok(String::new()),
        Some(name) if RESERVED_PATHS.contains(&name) => Err(format!(
            "{text:?} is where machines look for something else; write one such as \"/backstop\""
        )),
        Some(parts) if path.len() <= BASE_CHARS_MAX && parts.split('/').all(is_part) => {
            Ok(path.to_owned())
        }
        _ => Err(format!(
            "{text:?} is not a path to stand under; write one such as \"/backstop\", of letters, digits and - _ . ~"
        )),
    }
}

/// As a browser writes them in its Origin header: no path, no usual port, all in small letters.
fn origins(written: Vec<String>) -> Result<Vec<String>, String> {
    if written.len() > ORIGINS_MAX {
        return Err(format!(
            "`origins` has {} entries; at most {ORIGINS_MAX} are kept",
            written.len()
        ));
    }
    written.into_iter().map(|text| origin(&text)).collect()
}

fn origin(text: &str) -> Result<String, String> {
    let small = text.trim_end_matches('/').to_ascii_lowercase();
    let (small, host) = match small.split_once("://") {
        Some(("https", host)) => (small.strip_suffix(":443").unwrap_or(&small), host),
        Some(("http", host)) => (small.strip_suffix(":80").unwrap_or(&small), host),
        _ => (small.as_str(), ""),
    };
    let is_host =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '[' | ']');
    if host.is_empty() || !host.chars().all(is_host) {
        return Err(format!(
            "`origins`: {text:?} is not where a browser finds a site; write one such as \"https://jobs.example.org\""
        ));
    }
    Ok(small.to_owned())
}

fn check_at_most(name: &str, span: Span, most: Span) -> Result<Span, String> {
    if span < Span::secs(1) || span > most {
        return Err(format!("`{name}` must be from 1s to {most}; it is {span}"));
    }
    Ok(span)
}

fn connections(number: usize) -> Result<usize, String> {
    if number == 0 || number > CONNECTIONS_MAX {
        return Err(format!(
            "`connections_max` must be from 1 to {CONNECTIONS_MAX}"
        ));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigFile, ConfigOverrides, resolve};

    const ENTRY: &str = r#"
[server]
listen = "0.0.0.0:7007"
base = "/jobs/"
tls = { cert = "cert.pem", key = "key.pem" }
origins = ["https://Jobs.example.org:443/", "http://10.0.0.7:8080"]
session = "1h"
timeout = "5s"
connections_max = 10
"#;

    fn read(text: &str) -> Result<ServerConfig, String> {
        let written = ConfigFile {
            path: "backstop.toml",
            text,
        };
        let config = resolve(
            Some(written),
            ConfigOverrides::default(),
            ConfigOverrides::default(),
        );
        config
            .map(|config| config.server)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_key_arrives() {
        let config = read(ENTRY).unwrap();
        let files = TlsFiles {
            cert: "cert.pem".into(),
            key: "key.pem".into(),
        };
        let expected = ServerConfig {
            listen: "0.0.0.0:7007".parse().unwrap(),
            base: "/jobs".to_owned(),
            transport: ServerTransport::Tls(files),
            origins: vec![
                "https://jobs.example.org".to_owned(),
                "http://10.0.0.7:8080".to_owned(),
            ],
            session: Span::hours(1),
            timeout: Span::secs(5),
            connections_max: 10,
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn nothing_written_means_loopback_and_no_token() {
        let usual = read("").unwrap();
        assert_eq!(
            (usual.listen.to_string().as_str(), usual.base.as_str()),
            ("127.0.0.1:7007", "")
        );
        assert!(usual.is_loopback() && !usual.needs_tokens());
        assert_eq!(
            read("[server]\nlisten = \"localhost:1\"\n")
                .unwrap()
                .listen
                .to_string(),
            "127.0.0.1:1"
        );
    }

    #[test]
    fn whatever_others_can_reach_needs_tokens() {
        let at = |listen: &str| read(&format!("[server]\nlisten = \"{listen}\"\n")).unwrap();
        for open in [
            "127.0.0.1:1",
            "127.9.9.9:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(!at(open).needs_tokens(), "{open}");
        }
        for reached in [
            "0.0.0.0:1",
            "[::]:1",
            "10.0.0.1:1",
            "[::ffff:10.0.0.1]:1",
            "128.0.0.1:1",
        ] {
            assert!(at(reached).needs_tokens(), "{reached}");
        }
        let proxied = read("[server]\norigins = [\"https://jobs.example.org\"]\n").unwrap();
        assert!(proxied.is_loopback() && proxied.needs_tokens() && proxied.is_behind_proxy());
        let proxied = read("[server]\nplain_http = true\n").unwrap();
        assert!(
            proxied.is_loopback() && proxied.needs_tokens(),
            "whoever comes comes through a proxy"
        );
        assert!(proxied.is_behind_proxy() && !read(ENTRY).unwrap().is_behind_proxy());
        assert!(!read("").unwrap().is_behind_proxy());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_to_write() {
        let refused = |from: &str, to: &str| read(&ENTRY.replace(from, to)).unwrap_err();
        let unknown = refused("timeout =", "time_out =");
        assert!(
            unknown.contains("unknown field `time_out`") && unknown.contains(":8:"),
            "{unknown}"
        );
        assert!(refused("0.0.0.0:7007", "example.org").contains("\"127.0.0.1:7007\""));
        for base in [
            "jobs",
            "/a b",
            "/a//b",
            "/../x",
            "/a?b",
            "/<b>",
            "/metrics",
            "/healthz/",
        ] {
            assert!(refused("/jobs/", base).contains("`base`"), "{base}");
        }
        assert!(refused("session = \"1h\"", "plain_http = true").contains("contradict"));
        for origin in [
            "jobs.example.org",
            "ftp://h",
            "https://",
            "https://h/path",
            "*",
        ] {
            assert!(
                refused("http://10.0.0.7:8080", origin).contains("`origins`"),
                "{origin}"
            );
        }
        assert!(refused("\"1h\"", "\"0s\"").contains("`session` must be from 1s to 30d"));
        assert!(refused("\"5s\"", "\"1h\"").contains("`timeout` must be from 1s to 10m"));
        assert!(
            refused("connections_max = 10", "connections_max = 0").contains("`connections_max`")
        );
        assert!(refused(", key = \"key.pem\"", "").contains("missing field `key`"));
    }
}
