//! Stands before every route: who asks is known, and may, before any byte of a body is read.

use super::caller::{Caller, ScopeSet};
use super::login::{login_address, session_ids};
use super::origin::{ForeignOrigin, OriginVerdict, RequestOrigin, ServerOrigin, check_origin};
use super::refusal::{RequestAudience, RequestRefusal, see_other};
use super::rules::{RequiredAccess, RouteScope, required_access, route_scope};
use super::sessions;
use super::token_cache::UnknownTokenRule;
use super::token_failures::client_network;
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
const PROXY_HEADERS: [HeaderName; 17] = [
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
const ADMISSION_CALL: &str = "finding out who asks";

/// The other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionPeer {
    pub address: IpAddr,
    pub is_encrypted: bool,
}

impl Default for ConnectionPeer {
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
pub(crate) struct AdmissionFlag(Arc<AtomicBool>);

impl AdmissionFlag {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Lets a request through with its [`Caller`], or answers why not.
pub(crate) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    // Nothing bounds the time of a request before this: what bounds it comes after.
    let admitted = tokio::time::timeout(ADMISSION_MAX, admit(&app, &head)).await;
    match admitted.unwrap_or_else(|_| {
        Err(store_unavailable(StoreError::unavailable(
            ADMISSION_CALL,
            "no answer in time",
        )))
    }) {
        Ok(caller) => {
            // What anybody may ask for shows nothing of who asks.
            let admission = head
                .extensions
                .get::<AdmissionFlag>()
                .filter(|_| required_access_of(&app, &head) != RequiredAccess::Public);
            admission.into_iter().for_each(AdmissionFlag::set);
            head.extensions.insert(caller);
            next.run(Request::from_parts(head, body)).await
        }
        Err(refusal) => answer_refusal(&app, &head, &refusal),
    }
}

async fn admit(app: &App, head: &Parts) -> Result<Caller, RequestRefusal> {
    let config = app.config();
    let (headers, is_open) = (&head.headers, !config.server.needs_tokens());
    let server = ServerOrigin {
        is_open,
        origins: &config.server.origins,
    };
    let request = request_origin(head);
    let provenance = check_origin(&request, &server).map_err(RequestRefusal::ForeignOrigin)?;
    let need = required_access_of(app, head);
    let caller = match bearer_token(headers).filter(|_| need != RequiredAccess::Public) {
        Some(text) => authenticate_token(app, head, text).await?,
        None if is_open => {
            let from = client_network(client_address(app, head));
            Caller::new("loopback", ScopeSet::ALL).with_key(&format!("address {from}"))
        }
        None if need == RequiredAccess::Public => anonymous_caller(),
        None => {
            let caller = authenticate_session(app, headers).await?;
            // A browser adds a cookie by itself, whoever made it send the request.
            if request.is_write && provenance == OriginVerdict::Unstated {
                return Err(RequestRefusal::ForeignOrigin(ForeignOrigin::Unstated));
            }
            caller
        }
    };
    let RequiredAccess::Scope(scope) = need else {
        return Ok(caller);
    };
    if !caller.may(scope) {
        return Err(RequestRefusal::NeedsScope(scope));
    }
    match caller.queue_scope().describe_queues() {
        Some(limits) if route_scope_of(app, head) == RouteScope::AllQueues => {
            Err(RequestRefusal::OtherQueues(limits))
        }
        _ => Ok(caller),
    }
}

fn anonymous_caller() -> Caller {
    Caller::new("nobody", ScopeSet::default())
}

/// What the route needs. Where there is none, being known is enough to be told so.
fn required_access_of(app: &App, head: &Parts) -> RequiredAccess {
    match head.extensions.get::<MatchedPath>() {
        Some(matched) => required_access(&head.method, inner_path(app, matched.as_str())),
        None => RequiredAccess::AnyCaller,
    }
}

/// How far the route goes.
fn route_scope_of(app: &App, head: &Parts) -> RouteScope {
    let matched = head.extensions.get::<MatchedPath>();
    matched.map_or(RouteScope::AllQueues, |matched| {
        route_scope(&head.method, inner_path(app, matched.as_str()))
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

fn request_origin(head: &Parts) -> RequestOrigin<'_> {
    let headers = &head.headers;
    let text = |name: HeaderName| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or_default())
    };
    RequestOrigin {
        host: host(head),
        origin: text(ORIGIN),
        site: text(HeaderName::from_static("sec-fetch-site")),
        mode: text(HeaderName::from_static("sec-fetch-mode")),
        destination: text(HeaderName::from_static("sec-fetch-dest")),
        is_encrypted: connection_peer(head).is_encrypted,
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
        || PROXY_HEADERS
            .iter()
            .any(|name| head.headers.contains_key(name))
}

/// What stands in the Authorization header, if there is one: also what is no token, so that it is
/// refused as a wrong one.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().unwrap_or_default();
    let (scheme, text) = value.split_once(' ').unwrap_or((value, ""));
    Some(if scheme.eq_ignore_ascii_case("bearer") {
        text.trim()
    } else {
        ""
    })
}

async fn authenticate_token(app: &App, head: &Parts, text: &str) -> Result<Caller, RequestRefusal> {
    let from = client_address(app, head);
    let is_limited = app.failures().wait_left(from, Instant::now()).is_some();
    let unknown = if is_limited {
        UnknownTokenRule::Refuse
    } else {
        UnknownTokenRule::LookUp
    };
    let found = app
        .tokens()
        .find(app.backstop(), text, unknown)
        .await
        .map_err(store_unavailable)?;
    let refusal = match found {
        Some(token) if !token.is_expired(app.backstop().now()) => return Ok(token.caller()),
        Some(_) => RequestRefusal::ExpiredToken,
        None => RequestRefusal::WrongToken,
    };
    // A right token is let in whatever came before: others behind the same address must not lock
    // its holder out.
    Err(record_failure(app, from, refusal))
}

/// Holds a failure against an address; after too many the answer is to wait.
pub(super) fn record_failure(
    app: &App,
    address: IpAddr,
    refusal: RequestRefusal,
) -> RequestRefusal {
    let now = Instant::now();
    let mut failures = app.failures();
    if let Some(wait) = failures.wait_left(address, now) {
        return RequestRefusal::TooManyFailures(wait);
    }
    failures.record(address, now);
    refusal
}

async fn authenticate_session(app: &App, headers: &HeaderMap) -> Result<Caller, RequestRefusal> {
    let backstop = app.backstop();
    for id in session_ids(&app.config().server, headers) {
        let Some(session) = sessions::find(backstop, id)
            .await
            .map_err(store_unavailable)?
        else {
            continue;
        };
        // A session ends with the token that opened it.
        let token = app
            .tokens()
            .by_id(backstop, &session.token)
            .await
            .map_err(store_unavailable)?;
        if let Some(token) = token.filter(|token| !token.is_expired(backstop.now())) {
            return Ok(token.caller());
        }
    }
    Err(RequestRefusal::NoToken)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it is what errors are mapped with"
)]
pub(super) fn store_unavailable(error: StoreError) -> RequestRefusal {
    tracing::warn!(%error, "whether a request may pass could not be read");
    RequestRefusal::StoreUnavailable
}

/// The other end of its connection.
fn connection_peer(head: &Parts) -> ConnectionPeer {
    head.extensions
        .get::<ConnectionPeer>()
        .copied()
        .unwrap_or_default()
}

/// Where a request comes from. Behind a proxy that is what the proxy, last of all, has added.
pub(super) fn client_address(app: &App, head: &Parts) -> IpAddr {
    let is_proxied = app.config().server.is_behind_proxy();
    let added = head.headers.get_all(FORWARDED_FOR).iter().next_back();
    let last = added.and_then(|value| value.to_str().ok()?.rsplit(',').next()?.trim().parse().ok());
    last.filter(|_| is_proxied)
        .unwrap_or_else(|| connection_peer(head).address)
}

fn answer_refusal(app: &App, head: &Parts, refusal: &RequestRefusal) -> Response {
    let path = inner_path(app, head.uri.path());
    match RequestAudience::of(path) {
        RequestAudience::Program => refusal.problem(),
        RequestAudience::Person if refusal.is_about_login() => {
            let is_look = matches!(head.method, Method::GET | Method::HEAD);
            let whole = head
                .uri
                .path_and_query()
                .map(axum::http::uri::PathAndQuery::as_str);
            see_other(&login_address(app, whole.filter(|_| is_look)))
        }
        RequestAudience::Person => refusal.page(app.base()),
    }
}
