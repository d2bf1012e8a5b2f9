//! The way to a service: which addresses may be called, whom to trust, and what went wrong on the
//! way.

use super::{AllowedNetworks, InvalidHttp, LinkLocalPolicy};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, redirect};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a connection may take, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an idle connection is kept. Many servers close theirs after 5 s, and a call that meets
/// the close fails.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// Whoever knows the addresses of a name.
pub(super) type NameResolver = Arc<dyn Resolve>;

#[derive(Clone, Copy, Debug)]
pub(super) enum TrustedRoots<'a> {
    /// Nobody's: there is no TLS to the service.
    None,
    Machine,
    /// Those in a PEM file, and no others.
    File(&'a Path),
}

/// A client with a pool of its own.
pub(super) fn client(
    names: NameResolver,
    networks: AllowedNetworks,
    roots: TrustedRoots<'_>,
) -> Result<Client, InvalidHttp> {
    Client::builder()
        .dns_resolver(GuardedResolver { names, networks })
        .tls_backend_preconfigured(tls(roots)?)
        .http1_only()
        .redirect(redirect::Policy::none())
        // A retry is the policy's business, and every one is on record.
        .retry(reqwest::retry::never())
        // A proxy would resolve the name by itself, past the guard.
        .no_proxy()
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_MAX)
        .user_agent(concat!("backstop/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| InvalidHttp::Client(root_cause(&error.without_url()).to_string()))
}

fn tls(roots: TrustedRoots<'_>) -> Result<ClientConfig, InvalidHttp> {
    let roots = match roots {
        TrustedRoots::None => RootCertStore::empty(),
        TrustedRoots::Machine => machine_roots(),
        TrustedRoots::File(file) => from_file(file)?,
    };
    // Named, because a process may link several providers, and then has none by default.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| InvalidHttp::Client(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn from_file(file: &Path) -> Result<RootCertStore, InvalidHttp> {
    let wrong = |cause: String| InvalidHttp::Certificates(format!("{}: {cause}", file.display()));
    let mut roots = RootCertStore::empty();
    for certificate in
        CertificateDer::pem_file_iter(file).map_err(|error| wrong(error.to_string()))?
    {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("there is no certificate in it".to_owned()));
    }
    Ok(roots)
}

/// The roots this machine trusts. None is no error yet: every service is then refused, and says
/// why.
fn machine_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// The names this machine knows.
pub(super) fn system() -> NameResolver {
    Arc::new(SystemResolver)
}

struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // The port of the address takes the place of the zero.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(Box::new(found.collect::<Vec<_>>().into_iter()) as Addrs)
        })
    }
}

/// Lets only permitted addresses through. It answers with the very addresses that are then
/// connected to, so a name that changes between two lookups gains nothing.
struct GuardedResolver {
    names: NameResolver,
    networks: AllowedNetworks,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (found, networks) = (self.names.resolve(name), self.networks.clone());
        Box::pin(async move {
            let permitted = networks.filter_allowed(found.await?.collect())?;
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

/// Why an address is not called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ForbiddenAddress {
    #[error(
        "was not called: its name leads to {0}, which is link-local or like it, where clouds hand out a machine's credentials; if it is meant, write `allow_link_local = true` beside the address"
    )]
    LinkLocal(IpAddr),
    #[error(
        "was not called: its name leads to {0}, which is in none of the networks of `allow`; if it is meant, add its network there"
    )]
    NotAllowed(IpAddr),
}

impl AllowedNetworks {
    /// Whether a service may be at this address.
    pub(super) fn check_address(&self, ip: IpAddr) -> Result<(), ForbiddenAddress> {
        if self.link_local == LinkLocalPolicy::Refused && has_credentials(ip) {
            return Err(ForbiddenAddress::LinkLocal(ip));
        }
        let is_allowed =
            self.allow.is_empty() || self.allow.iter().any(|network| network.contains(ip));
        is_allowed
            .then_some(())
            .ok_or(ForbiddenAddress::NotAllowed(ip))
    }

    /// Those of the addresses of a name where a service may be; a name that leads nowhere else is
    /// refused.
    fn filter_allowed(&self, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, ForbiddenAddress> {
        let mut first_forbidden = None;
        let mut permitted = found;
        permitted.retain(|address| {
            let judged = self.check_address(address.ip());
            first_forbidden = first_forbidden.or(judged.err());
            judged.is_ok()
        });
        match first_forbidden {
            Some(forbidden) if permitted.is_empty() => Err(forbidden),
            _ => Ok(permitted),
        }
    }
}

/// Addresses that are not link-local where clouds hand out credentials all the same: Azure,
/// Alibaba, Oracle, and AWS over IPv6.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Whether clouds hand out a machine's credentials at an address, also where an IPv6 address only
/// wraps it.
fn has_credentials(ip: IpAddr) -> bool {
    let unwrapped = match ip {
        IpAddr::V6(v6) => embedded_ipv4(v6).map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    };
    is_link_local(ip) || METADATA.contains(&unwrapped)
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => {
            ip.is_unicast_link_local() || embedded_ipv4(ip).is_some_and(|ip| ip.is_link_local())
        }
    }
}

/// The IPv4 address in a mapped (`::ffff:a.b.c.d`), compatible (`::a.b.c.d`) or NAT64
/// (`64:ff9b::a.b.c.d`) one.
fn embedded_ipv4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let [high @ .., a, b, c, d] = ip.octets();
    let is_nat64 = high == [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0];
    ip.to_ipv4()
        .or_else(|| is_nat64.then(|| Ipv4Addr::new(a, b, c, d)))
}

/// Why there was no answer. Its text goes on after the address; it has nothing of the address in
/// it.
#[derive(Debug)]
pub(super) enum HttpCallError {
    Connect(String),
    /// There was none in time.
    ConnectTimeout,
    /// The other end could not show who it is.
    Tls(String),
    Refused(String),
    /// The connection ended, or what came was no HTTP.
    Broken(String),
}

impl HttpCallError {
    /// What an error of the client means.
    pub(super) fn of(error: reqwest::Error) -> Self {
        let error = error.without_url();
        if let Some(forbidden) = cause::<ForbiddenAddress>(&error) {
            return Self::Refused(forbidden.to_string());
        }
        let words = root_cause(&error).to_string();
        match (error.is_connect(), error.is_timeout()) {
            (true, true) => Self::ConnectTimeout,
            (true, false) if is_of_tls(&error) => Self::Tls(words),
            (true, false) => Self::Connect(words),
            (false, _) => Self::Broken(words),
        }
    }

    /// The class of the error, on record with it.
    pub(super) const fn error_type(&self) -> &'static str {
        match self {
            Self::Connect(_) | Self::ConnectTimeout => "HttpConnect",
            Self::Tls(_) => "HttpTls",
            Self::Refused(_) => "HttpRefused",
            Self::Broken(_) => "HttpBroken",
        }
    }
}

impl fmt::Display for HttpCallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(cause) => write!(f, "could not be reached: {cause}"),
            Self::ConnectTimeout => write!(
                f,
                "could not be reached within {}s",
                CONNECT_TIMEOUT.as_secs()
            ),
            Self::Tls(cause) => write!(f, "could not be trusted: {cause}"),
            Self::Refused(cause) => f.write_str(cause),
            Self::Broken(cause) => write!(f, "broke off before it answered: {cause}"),
        }
    }
}

/// An error and what lies behind it, the last the deepest. An I/O error hides its cause from
/// `source`.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let inner = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        inner
            .map(|inner| inner as &(dyn Error + 'static))
            .or_else(|| error.source())
    })
}

fn cause<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    chain(error).find_map(|error| error.downcast_ref())
}

fn is_of_tls(error: &(dyn Error + 'static)) -> bool {
    cause::<rustls::Error>(error).is_some()
}

fn root_cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    chain(error).last().unwrap_or(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(ip: &str) -> SocketAddr {
        SocketAddr::new(ip.parse().unwrap(), 0)
    }

    #[test]
    fn link_local_is_known_in_all_its_forms() {
        for ip in [
            "169.254.0.0",
            "169.254.169.254",
            "169.254.255.255",
            "fe80::",
            "fe80::1",
            "febf:ffff::1",
            "::ffff:169.254.169.254",
            "::ffff:a9fe:1",
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
        ] {
            assert!(is_link_local(ip.parse().unwrap()), "{ip}");
        }
        for ip in [
            "169.253.255.255",
            "169.255.0.0",
            "127.0.0.1",
            "10.0.0.1",
            "0.0.0.0",
            "::1",
            "::",
            "fec0::1",
            "fe7f::1",
            "fd00::1",
            "::ffff:127.0.0.1",
            "64:ff9b::8.8.8.8",
            "64:ff9b:1::169.254.169.254",
        ] {
            assert!(!is_link_local(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn other_places_of_credentials_are_known_too() {
        for ip in [
            "169.254.169.254",
            "100.100.100.200",
            "::ffff:168.63.129.16",
            "64:ff9b::192.0.0.192",
            "fd00:ec2::254",
        ] {
            assert!(has_credentials(ip.parse().unwrap()), "{ip}");
        }
        for ip in [
            "127.0.0.1",
            "::1",
            "10.0.0.1",
            "100.100.100.201",
            "fd00:ec2::253",
        ] {
            assert!(!has_credentials(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn a_name_is_called_at_those_of_its_addresses_that_are_permitted() {
        let (home, link, mapped) = (
            address("127.0.0.1"),
            address("fe80::1"),
            address("::ffff:169.254.1.1"),
        );
        let (usual, open) = (
            AllowedNetworks::default(),
            AllowedNetworks {
                link_local: LinkLocalPolicy::Allowed,
                ..AllowedNetworks::default()
            },
        );
        assert_eq!(
            usual.filter_allowed(vec![link, home, mapped]),
            Ok(vec![home])
        );
        assert_eq!(
            usual.filter_allowed(vec![mapped, link]),
            Err(ForbiddenAddress::LinkLocal(mapped.ip()))
        );
        assert_eq!(
            open.filter_allowed(vec![mapped, link]),
            Ok(vec![mapped, link])
        );
        assert_eq!(usual.filter_allowed(vec![]), Ok(vec![]));
    }

    #[test]
    fn with_networks_named_a_service_is_called_there_only() {
        let (inside, mapped, outside) = (
            address("10.1.2.3"),
            address("::ffff:10.1.2.3"),
            address("127.0.0.1"),
        );
        let allow = |networks: &[&str]| AllowedNetworks {
            allow: networks
                .iter()
                .map(|network| network.parse().unwrap())
                .collect(),
            ..AllowedNetworks::default()
        };
        let networks = allow(&["10.0.0.0/8", "fd00::/8"]);
        assert_eq!(
            networks.filter_allowed(vec![outside, inside, mapped]),
            Ok(vec![inside, mapped])
        );
        assert_eq!(
            networks.filter_allowed(vec![outside]),
            Err(ForbiddenAddress::NotAllowed(outside.ip()))
        );
        // Wide as it is, it does not say that link-local is meant.
        let link = address("169.254.169.254");
        assert_eq!(
            allow(&["0.0.0.0/0"]).filter_allowed(vec![link]),
            Err(ForbiddenAddress::LinkLocal(link.ip()))
        );
    }
}
