//! Parses the address of a store. Nothing is connected here.

use crate::dialer::RedisDialer;
use crate::keys::KeyNames;
use redis::cluster::ClusterClientBuilder;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo,
    TlsCertificates, TlsMode,
};
use std::path::PathBuf;

const PREFIX: &str = "backstop";
const PREFIX_CHARS_MAX: usize = 64;
const PORT: u16 = 6_379;
const SENTINEL_PORT: u16 = 26_379;
/// How often the cluster client itself follows a moved slot or retries a node.
const CLUSTER_RETRIES: u32 = 4;
/// The client's backoff between these tries, in milliseconds. Its default is longer than other
/// calls may be delayed.
const CLUSTER_RETRY_WAIT_MS: std::ops::Range<u64> = 10..50;

/// Why an address cannot be used. No message repeats a part of the address that could be a
/// password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisOpenError {
    /// The address has none of the schemes of Redis.
    #[error(
        "an address of Redis begins with redis://, rediss://, redis+cluster://, rediss+cluster:// or redis+sentinel://"
    )]
    Scheme,
    /// A host or its port is missing or wrong.
    #[error(
        "hosts are written host:port, several of them (for a cluster or sentinels only) with commas between; \
         in user and password write %40 for @, %2F for / and %3F for ?"
    )]
    Hosts,
    /// The part after the hosts is wrong.
    #[error(
        "behind the hosts comes /DATABASE, a number; for sentinels /MASTER or /MASTER/DATABASE; for a cluster nothing"
    )]
    Path,
    /// A percent sign is not followed by two hexadecimal digits.
    #[error(
        "a percent sign in user, password or file is followed by two hexadecimal digits; write %25 for %"
    )]
    Escape,
    /// The prefix has characters that a key may not have.
    #[error("a prefix has 1 to {PREFIX_CHARS_MAX} of A-Z a-z 0-9 _ -; write ?prefix=NAME")]
    Prefix,
    /// An option of the address is unknown.
    #[error(
        "the options of an address are prefix=NAME and, for rediss, ca=FILE; write ?prefix=NAME&ca=FILE"
    )]
    Option,
    /// The file of trusted certificates cannot be read.
    #[error("cannot read the trusted certificates in {path}: {cause}. `ca` names a PEM file")]
    Ca {
        path: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// The Redis client rejects the address.
    #[error("the Redis client does not take the address: {0}")]
    Client(String),
}

pub(crate) struct ParsedAddress {
    pub(crate) dial: RedisDialer,
    pub(crate) keys: KeyNames,
    /// The address without user and password.
    pub(crate) shown: String,
}

pub(crate) fn open(address: &str) -> Result<ParsedAddress, RedisOpenError> {
    let address = RedisAddress::parse(address)?;
    let shown = address.shown();
    let certificates = address.certificates()?;
    if address.tls == TlsSetting::Verified {
        // This fails only if the program has already chosen a provider; then that one is used.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    let dial = address
        .dial(certificates)
        .map_err(|error| RedisOpenError::Client(error.to_string()))?;
    Ok(ParsedAddress {
        dial,
        keys: KeyNames::new(address.prefix),
        shown,
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TlsSetting {
    Off,
    Verified,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum ServerTopology {
    Server { db: i64 },
    Cluster,
    Sentinel { master: String, db: i64 },
}

#[derive(PartialEq, Eq)]
struct RedisAddress {
    tls: TlsSetting,
    topology: ServerTopology,
    hosts: Vec<(String, u16)>,
    user: Option<String>,
    password: Option<String>,
    prefix: String,
    ca: Option<PathBuf>,
}

impl RedisAddress {
    fn parse(text: &str) -> Result<Self, RedisOpenError> {
        let (scheme, rest) = text.split_once("://").ok_or(RedisOpenError::Scheme)?;
        let (tls, topology) = match scheme {
            "redis" => (TlsSetting::Off, ServerTopology::Server { db: 0 }),
            "rediss" => (TlsSetting::Verified, ServerTopology::Server { db: 0 }),
            "redis+cluster" => (TlsSetting::Off, ServerTopology::Cluster),
            "rediss+cluster" => (TlsSetting::Verified, ServerTopology::Cluster),
            "redis+sentinel" => (
                TlsSetting::Off,
                ServerTopology::Sentinel {
                    master: String::new(),
                    db: 0,
                },
            ),
            _ => return Err(RedisOpenError::Scheme),
        };
        // The last @ ends the password, whatever the password contains, so no message repeats any
        // of it.
        let (login, rest) = rest
            .rsplit_once('@')
            .map_or((None, rest), |(login, rest)| (Some(login), rest));
        let (user, password) = login.map_or(Ok((None, None)), parse_login)?;
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
        let topology = parse_path(&topology, path)?;
        let hosts = parse_hosts(hosts, &topology)?;
        let mut address = Self {
            tls,
            topology,
            hosts,
            user,
            password,
            prefix: PREFIX.to_owned(),
            ca: None,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            address.set(option)?;
        }
        Ok(address)
    }

    fn set(&mut self, option: &str) -> Result<(), RedisOpenError> {
        match option.split_once('=') {
            Some(("prefix", prefix)) => self.prefix = checked_prefix(prefix)?,
            Some(("ca", file)) if self.tls == TlsSetting::Verified => {
                self.ca = Some(unescape(file)?.into());
            }
            _ => return Err(RedisOpenError::Option),
        }
        Ok(())
    }

    fn certificates(&self) -> Result<Option<TlsCertificates>, RedisOpenError> {
        let Some(path) = &self.ca else {
            return Ok(None);
        };
        let root_cert = std::fs::read(path).map_err(|cause| RedisOpenError::Ca {
            path: path.clone(),
            cause,
        })?;
        Ok(Some(TlsCertificates {
            client_tls: None,
            root_cert: Some(root_cert),
        }))
    }

    fn shown(&self) -> String {
        let hosts: Vec<String> = self
            .hosts
            .iter()
            .map(|(host, port)| format!("{host}:{port}"))
            .collect();
        let kind = match &self.topology {
            ServerTopology::Server { .. } => "",
            ServerTopology::Cluster => " (cluster)",
            ServerTopology::Sentinel { .. } => " (sentinels)",
        };
        format!("{}{kind}", hosts.join(","))
    }

    fn addrs(&self) -> Vec<ConnectionAddr> {
        let addr = |(host, port): &(String, u16)| match self.tls {
            TlsSetting::Off => ConnectionAddr::Tcp(host.clone(), *port),
            TlsSetting::Verified => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: false,
                tls_params: None,
            },
        };
        self.hosts.iter().map(addr).collect()
    }

    fn settings(&self, db: i64) -> RedisConnectionInfo {
        let mut settings = RedisConnectionInfo::default().set_db(db);
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        settings
    }

    fn infos(&self, db: i64) -> redis::RedisResult<Vec<ConnectionInfo>> {
        let info = |addr: ConnectionAddr| {
            Ok(addr
                .into_connection_info()?
                .set_redis_settings(self.settings(db)))
        };
        self.addrs().into_iter().map(info).collect()
    }

    fn dial(&self, certificates: Option<TlsCertificates>) -> redis::RedisResult<RedisDialer> {
        match &self.topology {
            ServerTopology::Server { db } => {
                let info = self.infos(*db)?.remove(0);
                let client = match certificates {
                    Some(certificates) => Client::build_with_tls(info, certificates)?,
                    None => Client::open(info)?,
                };
                Ok(RedisDialer::Server(client))
            }
            ServerTopology::Cluster => self.dial_cluster(certificates.as_ref()),
            ServerTopology::Sentinel { master, db } => self.dial_sentinel(master, *db),
        }
    }

    fn dial_cluster(
        &self,
        certificates: Option<&TlsCertificates>,
    ) -> redis::RedisResult<RedisDialer> {
        let infos = self.infos(0)?;
        let mut builder = ClusterClientBuilder::new(infos.clone())
            // We retry ourselves, and sooner let calls go on that do not need the failed node.
            .retries(CLUSTER_RETRIES)
            .min_retry_wait(CLUSTER_RETRY_WAIT_MS.start)
            .max_retry_wait(CLUSTER_RETRY_WAIT_MS.end)
            .connection_timeout(crate::link::CONNECT_TIME_MAX)
            .response_timeout(crate::link::ANSWER_TIME_MAX)
            .overall_response_timeout(Some(crate::link::ANSWER_TIME_MAX));
        if self.tls == TlsSetting::Verified {
            builder = builder.tls(TlsMode::Secure);
        }
        if let Some(certificates) = certificates {
            builder = builder.certs(certificates.clone());
        }
        let node = |info: ConnectionInfo| match certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        };
        let nodes = infos.into_iter().map(node).collect::<Result<_, _>>()?;
        Ok(RedisDialer::Cluster {
            client: builder.build()?,
            nodes,
        })
    }

    fn dial_sentinel(&self, master: &str, db: i64) -> redis::RedisResult<RedisDialer> {
        let mut builder =
            SentinelClientBuilder::new(self.addrs(), master, SentinelServerType::Master)?
                .set_client_to_redis_db(db);
        if let Some(user) = &self.user {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = &self.password {
            builder = builder.set_client_to_redis_password(password);
        }
        Ok(RedisDialer::Sentinel(tokio::sync::Mutex::new(
            builder.build()?,
        )))
    }
}

type LoginParts = (Option<String>, Option<String>);

fn parse_login(login: &str) -> Result<LoginParts, RedisOpenError> {
    let filled = |text: String| Some(text).filter(|text| !text.is_empty());
    match login.split_once(':') {
        Some((user, password)) => Ok((filled(unescape(user)?), filled(unescape(password)?))),
        None => Ok((None, filled(unescape(login)?))),
    }
}

fn parse_path(topology: &ServerTopology, path: &str) -> Result<ServerTopology, RedisOpenError> {
    let db = |text: &str| match text {
        "" => Ok(0),
        text => text
            .parse::<u16>()
            .map(i64::from)
            .map_err(|_| RedisOpenError::Path),
    };
    match topology {
        ServerTopology::Server { .. } => Ok(ServerTopology::Server { db: db(path)? }),
        ServerTopology::Cluster if path.is_empty() => Ok(ServerTopology::Cluster),
        ServerTopology::Cluster => Err(RedisOpenError::Path),
        ServerTopology::Sentinel { .. } => {
            let (master, number) = path.split_once('/').unwrap_or((path, ""));
            let master = unescape(master)?;
            if master.is_empty() {
                Err(RedisOpenError::Path)
            } else {
                Ok(ServerTopology::Sentinel {
                    master,
                    db: db(number)?,
                })
            }
        }
    }
}

fn parse_hosts(
    hosts: &str,
    topology: &ServerTopology,
) -> Result<Vec<(String, u16)>, RedisOpenError> {
    let port = if matches!(topology, ServerTopology::Sentinel { .. }) {
        SENTINEL_PORT
    } else {
        PORT
    };
    let hosts: Vec<_> = hosts
        .split(',')
        .map(|host| parse_host(host, port))
        .collect::<Result<_, _>>()?;
    if hosts.len() > 1 && matches!(topology, ServerTopology::Server { .. }) {
        Err(RedisOpenError::Hosts)
    } else {
        Ok(hosts)
    }
}

fn parse_host(text: &str, usual: u16) -> Result<(String, u16), RedisOpenError> {
    let bracketed = text
        .strip_prefix('[')
        .map(|rest| rest.split_once(']').ok_or(RedisOpenError::Hosts));
    let (host, port) = match bracketed.transpose()? {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => text
            .split_once(':')
            .map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(usual), |port| {
        port.parse().map_err(|_| RedisOpenError::Hosts)
    })?;
    if host.is_empty() || port == 0 {
        Err(RedisOpenError::Hosts)
    } else {
        Ok((host.to_owned(), port))
    }
}

fn checked_prefix(prefix: &str) -> Result<String, RedisOpenError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let fits = (1..=PREFIX_CHARS_MAX).contains(&prefix.len()) && prefix.bytes().all(allowed);
    if fits {
        Ok(prefix.to_owned())
    } else {
        Err(RedisOpenError::Prefix)
    }
}

fn unescape(text: &str) -> Result<String, RedisOpenError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || {
            rest.next()
                .and_then(|digit| char::from(digit).to_digit(16))
                .ok_or(RedisOpenError::Escape)
        };
        bytes.push((digit()? * 16 + digit()?) as u8);
    }
    String::from_utf8(bytes).map_err(|_| RedisOpenError::Escape)
}

#[cfg(test)]
mod tests;
