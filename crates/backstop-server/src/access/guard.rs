//! Stands before every route: who asks is known, and may, before any byte of a body is read.

use super::caller::{Caller, Scopes};
use super::failures::place;
use super::login::{login_address, session_ids};
use super::origin::{Here, Provenance, Stranger, Told, judge};
use super::refusal::{Audience, Refusal, see_other};
use super::remembered::Unknown;
use super::rules::{Extent, Need, extent, need};
use super::sessions;
use crate::App;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, FORWARDED, HOST, HeaderMap, ORIGIN, VIA};
use axum::http::request::Parts;
use axum::http::{HeaderName, Method, Version};
use axum::middleware::Next;
use axum::response::Response;
use backstop_core::port::StoreError;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a proxy before us says of whoever asked it.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Headers that proxies add. Some are set to send only one of them.
const OF_PROXIES: [HeaderName; 17] = [
    FORWARDED,
    FORWARDED_FOR,
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-server"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-forwarded-scheme"),
    HeaderName::from_static("x-forwarded-ssl"),
    HeaderName::from_static("x-original-forwarded-for"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-client-ip"),
    HeaderName::from_static("x-envoy-external-address"),
    HeaderName::from_static("cf-connecting-ip"),
    HeaderName::from_static("true-client-ip"),
    HeaderName::from_static("fastly-client-ip"),
    VIA,
];

/// How long the store may take to say who somebody is.
const ADMISSION_MAX: Duration = Duration::from_secs(2);
/// What it is asked for then.
const ADMISSION: &str = "finding out who asks";

/// The other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Whether it speaks TLS.
    pub is_encrypted: bool,
}

impl Default for Peer {
    /// A program of this machine.
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST.into(),
            is_encrypted: false,
        }
    }
}

/// Given to a connection when a request of it is let in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Welcome(Arc<AtomicBool>);

impl Welcome {
    pub(crate) fn give(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_given(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Lets a request through with its [`Caller`], or answers why not.
pub(crate) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    // Nothing bounds the time of a request before this: what bounds it comes after.
    let admitted = tokio::time::timeout(ADMISSION_MAX, admit(&app, &head)).await;
    match admitted.unwrap_or_else(|_| {
        Err(silent(StoreError::unavailable(
            ADMISSION,
            "no answer in time",
        )))
    }) {
        Ok(caller) => {
            // What anybody may ask for shows nothing of who asks.
            let welcome = head
                .extensions
                .get::<Welcome>()
                .filter(|_| needed(&app, &head) != Need::Nothing);
            welcome.into_iter().for_each(Welcome::give);
            head.extensions.insert(caller);
            next.run(Request::from_parts(head, body)).await
        }
        Err(refusal) => turn_away(&app, &head, &refusal),
    }
}

async fn admit(app: &App, head: &Parts) -> Result<Caller, Refusal> {
    let config = app.config();
    let (headers, is_open) = (&head.headers, !config.server.needs_tokens());
    let here = Here {
        is_open,
        origins: &config.server.origins,
    };
    let told = told(head);
    let provenance = judge(&told, &here).map_err(Refusal::Stranger)?;
    let need = needed(app, head);
    let caller = match bearer(headers).filter(|_| need != Need::Nothing) {
        Some(text) => by_token(app, head, text).await?,
        None if is_open => {
            let from = place(address(app, head));
            Caller::new("loopback", Scopes::ALL).known_by(&format!("address {from}"))
        }
        None if need == Need::Nothing => nobody(),
        None => {
            let caller = by_session(app, headers).await?;
            // A browser adds a cookie by itself, whoever made it send the request.
            if told.is_write && provenance == Provenance::Unsaid {
                return Err(Refusal::Stranger(Stranger::Unsaid));
            }
            caller
        }
    };
    let Need::Scope(scope) = need else {
        return Ok(caller);
    };
    if !caller.may(scope) {
        return Err(Refusal::Needs(scope));
    }
    match caller.reach().limits() {
        Some(limits) if reached(app, head) == Extent::Across => Err(Refusal::OtherQueues(limits)),
        _ => Ok(caller),
    }
}

fn nobody() -> Caller {
    Caller::new("nobody", Scopes::default())
}

/// What the route needs. Where there is none, being known is enough to be told so.
fn needed(app: &App, head: &Parts) -> Need {
    match head.extensions.get::<MatchedPath>() {
        Some(matched) => need(&head.method, inner_path(app, matched.as_str())),
        None => Need::Known,
    }
}

/// How far the route goes.
fn reached(app: &App, head: &Parts) -> Extent {
    let matched = head.extensions.get::<MatchedPath>();
    matched.map_or(Extent::Across, |matched| {
        extent(&head.method, inner_path(app, matched.as_str()))
    })
}

/// A path without the one everything is mounted under.
pub(crate) fn inner_path<'a>(app: &App, path: &'a str) -> &'a str {
    match path.strip_prefix(app.base()) {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    }
}

/// The host that a request names. Who names two, in two headers or in the address beside one, names
/// none: what a proxy before us took for the host need not be what is looked at here.
fn host(head: &Parts) -> Option<&str> {
    let authority = head.uri.authority().map(axum::http::uri::Authority::as_str);
    let headers = head
        .headers
        .get_all(HOST)
        .iter()
        .map(|value| value.to_str().unwrap_or_default());
    let mut named = headers.chain(authority);
    let first = named.next()?;
    Some(if named.all(|other| other.eq_ignore_ascii_case(first)) {
        first
    } else {
        ""
    })
}

fn told(head: &Parts) -> Told<'_> {
    let headers = &head.headers;
    let text = |name: HeaderName| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or_default())
    };
    Told {
        host: host(head),
        origin: text(ORIGIN),
        site: text(HeaderName::from_static("sec-fetch-site")),
        mode: text(HeaderName::from_static("sec-fetch-mode")),
        destination: text(HeaderName::from_static("sec-fetch-dest")),
        is_encrypted: peer(head).is_encrypted,
        is_forwarded: is_forwarded(head),
        is_write: !matches!(head.method, Method::GET | Method::HEAD),
    }
}

/// Whether a proxy has passed a request on. One that is set to add no header still speaks HTTP/1.0
/// in many cases, or leaves out the host; browsers and programs of today do neither.
fn is_forwarded(head: &Parts) -> bool {
    let is_old = matches!(head.version, Version::HTTP_09 | Version::HTTP_10);
    is_old
        || host(head).is_none()
        || OF_PROXIES
            .iter()
            .any(|name| head.headers.contains_key(name))
}

/// What stands in the Authorization header, if there is one: also what is no token, so that it is
/// refused as a wrong one.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().unwrap_or_default();
    let (scheme, text) = value.split_once(' ').unwrap_or((value, ""));
    Some(if scheme.eq_ignore_ascii_case("bearer") {
        text.trim()
    } else {
        ""
    })
}

async fn by_token(app: &App, head: &Parts, text: &str) -> Result<Caller, Refusal> {
    let from = address(app, head);
    let is_limited = app.failures().limited_for(from, Instant::now()).is_some();
    let unknown = if is_limited {
        Unknown::Refuse
    } else {
        Unknown::Ask
    };
    let found = app
        .tokens()
        .find(app.backstop(), text, unknown)
        .await
        .map_err(silent)?;
    let refusal = match found {
        Some(token) if !token.is_expired(app.backstop().now()) => return Ok(token.caller()),
        Some(_) => Refusal::ExpiredToken,
        None => Refusal::WrongToken,
    };
    // A right token is let in whatever came before: others behind the same address must not lock
    // its holder out.
    Err(failed(app, from, refusal))
}

/// Holds a failure against an address; after too many the answer is to wait.
pub(super) fn failed(app: &App, address: IpAddr, refusal: Refusal) -> Refusal {
    let now = Instant::now();
    let mut failures = app.failures();
    if let Some(wait) = failures.limited_for(address, now) {
        return Refusal::TooMany(wait);
    }
    failures.note(address, now);
    refusal
}

async fn by_session(app: &App, headers: &HeaderMap) -> Result<Caller, Refusal> {
    let backstop = app.backstop();
    for id in session_ids(&app.config().server, headers) {
        let Some(session) = sessions::find(backstop, id).await.map_err(silent)? else {
            continue;
        };
        // A session ends with the token that opened it.
        let token = app
            .tokens()
            .by_id(backstop, &session.token)
            .await
            .map_err(silent)?;
        if let Some(token) = token.filter(|token| !token.is_expired(backstop.now())) {
            return Ok(token.caller());
        }
    }
    Err(Refusal::NoToken)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it is what errors are mapped with"
)]
pub(super) fn silent(error: StoreError) -> Refusal {
    tracing::warn!(%error, "whether a request may pass could not be read");
    Refusal::StoreSilent
}

/// The other end of its connection.
fn peer(head: &Parts) -> Peer {
    head.extensions.get::<Peer>().copied().unwrap_or_default()
}

/// Where a request comes from. Behind a proxy that is what the proxy, last of all, has added.
pub(super) fn address(app: &App, head: &Parts) -> IpAddr {
    let is_proxied = app.config().server.is_behind_proxy();
    let added = head.headers.get_all(FORWARDED_FOR).iter().next_back();
    let last = added.and_then(|value| value.to_str().ok()?.rsplit(',').next()?.trim().parse().ok());
    last.filter(|_| is_proxied)
        .unwrap_or_else(|| peer(head).address)
}

fn turn_away(app: &App, head: &Parts, refusal: &Refusal) -> Response {
    let path = inner_path(app, head.uri.path());
    match Audience::of(path) {
        Audience::Program => refusal.problem(),
        Audience::Person if refusal.is_about_login() => {
            let is_look = matches!(head.method, Method::GET | Method::HEAD);
            let whole = head
                .uri
                .path_and_query()
                .map(axum::http::uri::PathAndQuery::as_str);
            see_other(&login_address(app, whole.filter(|_| is_look)))
        }
        Audience::Person => refusal.page(app.base()),
    }
}
