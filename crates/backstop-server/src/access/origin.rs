//! Where a request comes from: from us, from a program, or from a web page that has no business
//! here.
//!
//! Browsers say so in `Origin` and `Sec-Fetch-Site`, and no page can make them lie. Where no token
//! is needed this is all that stands between a web page and the server, so there the `Host` must be
//! this machine too: a name that a page's owner points at 127.0.0.1 is not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a request says of where it comes from.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestOrigin<'a> {
    /// The host it was sent to, as its sender names it.
    pub(super) host: Option<&'a str>,
    /// The page it comes from.
    pub(super) origin: Option<&'a str>,
    /// How that page is related to the host.
    pub(super) site: Option<&'a str>,
    /// Whether somebody goes to a page, or a page fetches something.
    pub(super) mode: Option<&'a str>,
    /// What it is fetched for.
    pub(super) destination: Option<&'a str>,
    /// Whether it came to us over TLS: then so did our page.
    pub(super) is_encrypted: bool,
    /// Whether a proxy has passed it on.
    pub(super) is_forwarded: bool,
    /// Whether it may change something.
    pub(super) is_write: bool,
}

/// What is known of the server it was sent to.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerOrigin<'a> {
    /// Whether everybody who reaches it may do everything.
    pub(super) is_open: bool,
    /// Where browsers find it, besides at the host they name.
    pub(super) origins: &'a [String],
}

/// What the answers come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OriginVerdict {
    /// A browser says: from a page of ours, or typed in by somebody.
    Ours,
    /// Nothing is said: no browser of today.
    Unstated,
}

/// Why a request is turned away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ForeignOrigin {
    /// It was sent to a name that is not this machine's.
    Host,
    /// A proxy passed it on to a server that trusts whoever reaches it.
    Forwarded,
    /// It comes from another site's page.
    Page,
    /// It changes something by a session, and nothing shows that our page sent it.
    Unstated,
}

/// Whether a request comes from where it may.
pub(super) fn check_origin(
    request: &RequestOrigin<'_>,
    server: &ServerOrigin<'_>,
) -> Result<OriginVerdict, ForeignOrigin> {
    if server.is_open && !request.host.is_none_or(is_this_machine) {
        return Err(ForeignOrigin::Host);
    }
    if server.is_open && request.is_forwarded {
        return Err(ForeignOrigin::Forwarded);
    }
    // Under our `no-referrer` browsers call the origin of our own forms `null`; what
    // `Sec-Fetch-Site` says of them still holds.
    let named = request
        .origin
        .filter(|origin| *origin != "null" || request.site != Some("same-origin"));
    let by_origin = named.map(|origin| is_own_origin(origin, request, server.origins));
    let by_site = request
        .site
        .map(|site| matches!(site, "same-origin" | "none"));
    match (by_origin, by_site) {
        (Some(false), _) => Err(ForeignOrigin::Page),
        (_, Some(false)) if request.is_write || !is_navigation(request) => Err(ForeignOrigin::Page),
        (None, None) => Ok(OriginVerdict::Unstated),
        _ => Ok(OriginVerdict::Ours),
    }
}

/// Whether somebody follows a link from elsewhere: that shows them a page and changes nothing.
fn is_navigation(request: &RequestOrigin<'_>) -> bool {
    request.mode == Some("navigate") && request.destination.is_none_or(|what| what == "document")
}

/// Whether an origin is where browsers find us. Behind a proxy it is not known here what browsers
/// speak, and either will do.
fn is_own_origin(origin: &str, request: &RequestOrigin<'_>, origins: &[String]) -> bool {
    let origin = origin.to_ascii_lowercase();
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    let usual_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let without = |text: &str| text.strip_suffix(usual_port).unwrap_or(text).to_owned();
    let is_host = request
        .host
        .is_some_and(|host| without(&host.to_ascii_lowercase()) == without(authority));
    let is_spoken = scheme == "https" || !request.is_encrypted;
    is_host && is_spoken || origins.iter().any(|known| *known == without(&origin))
}

/// Whether a `Host` names this machine and nothing else: a number that is, or a name that resolves
/// to nothing else by its rules.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.to_ascii_lowercase();
    let by_number = |ip: IpAddr| ip.to_canonical().is_loopback();
    match name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(number) => number
            .parse::<Ipv6Addr>()
            .is_ok_and(|ip| by_number(ip.into())),
        None => {
            name == "localhost"
                || name.ends_with(".localhost")
                || name
                    .parse::<Ipv4Addr>()
                    .is_ok_and(|ip| by_number(ip.into()))
        }
    }
}

#[cfg(test)]
mod tests;
