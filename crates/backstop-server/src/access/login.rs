//! In and out of the dashboard: a token is pasted once, and a cookie stands for it from then on.

use super::caller::Scope;
use super::guard::{ConnectionPeer, client_address, record_failure, store_unavailable};
use super::refusal::{RequestRefusal, see_other};
use super::sessions;
use super::token_cache::UnknownTokenRule;
use crate::App;
use crate::pages::{login_wait_page, unfit_token_page};
use axum::extract::{FromRequest, Request, State};
use axum::http::header::{COOKIE, HeaderMap, ORIGIN, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use axum::routing::post;
use axum::{Form, Router};
use backstop::config::{ServerConfig, ServerTransport};
use serde::Deserialize;
use std::time::{Duration, Instant};

/// The cookie where a browser speaks TLS: bound to this host, whatever other hosts of its domain
/// do.
const SECURE_COOKIE: &str = "__Host-backstop_session";
/// The cookie where it does not, and the name above would be refused.
const PLAIN_COOKIE: &str = "backstop_session";
/// Bytes of an address to go back to after logging in.
const NEXT_BYTES_MAX: usize = 2_048;

/// What browsers speak, as far as the configuration says.
///
/// | configuration | spoken | cookie |
/// |---|---|---|
/// | `tls` | TLS | for TLS |
/// | no `tls`, no proxy before us | plain | plain |
/// | a proxy, and all `origins` are https | TLS | for TLS, whatever is said: of several proxies the inner one says `http` |
/// | a proxy, and all `origins` are http | plain, unless said | plain, for TLS where the proxy says so |
/// | a proxy, otherwise | TLS, unless said | for TLS, plain where somebody says so: a proxy is there to have it |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BrowserTransport {
    Tls,
    Plain,
    TlsByDefault,
    PlainByDefault,
}

impl BrowserTransport {
    fn of(server: &ServerConfig) -> Self {
        let is_https = |origin: &String| origin.starts_with("https://");
        match &server.transport {
            ServerTransport::Tls(_) => Self::Tls,
            _ if !server.is_behind_proxy() => Self::Plain,
            _ if server.origins.is_empty() => Self::TlsByDefault,
            _ if server.origins.iter().all(is_https) => Self::Tls,
            _ if !server.origins.iter().any(is_https) => Self::PlainByDefault,
            _ => Self::TlsByDefault,
        }
    }

    /// The cookies that count. Where only TLS is spoken that is the one that no other host can have
    /// set.
    const fn cookie_names(self) -> &'static [&'static str] {
        match self {
            Self::Tls => &[SECURE_COOKIE],
            Self::Plain => &[PLAIN_COOKIE],
            Self::TlsByDefault | Self::PlainByDefault => &[SECURE_COOKIE, PLAIN_COOKIE],
        }
    }
}

/// What the login page sends.
#[derive(Deserialize)]
struct LoginForm {
    token: String,
    #[serde(default)]
    next: String,
}

/// In and out; the page itself is the dashboard's.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/login", post(log_in))
        .route("/logout", post(log_out))
}

async fn log_in(State(app): State<App>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let is_limited = login_wait(&app, &head).is_some();
    let (from, is_secure, mut login_head) = (
        client_address(&app, &head),
        is_secure(&app, &head),
        head.clone(),
    );
    let request = Request::from_parts(head, body);
    let Ok(Form(form)) = Form::<LoginForm>::from_request(request, &app).await else {
        return see_other(&refused_address(&app, ""));
    };
    // After too many wrong ones a token is compared with those that are remembered, and the store
    // is not asked: a right one still opens.
    let unknown = if is_limited {
        UnknownTokenRule::Refuse
    } else {
        UnknownTokenRule::LookUp
    };
    match open_session(&app, form.token.trim(), unknown).await {
        Ok(id) => {
            let next = next_address(&app, &form.next);
            set_cookie(
                see_other(&next),
                &render_cookie(
                    &id,
                    is_secure,
                    app.config().server.session.as_millis() / 1_000,
                ),
            )
        }
        // The token was a right one: nothing is held against anybody.
        Err(RequestRefusal::StoreUnavailable) => RequestRefusal::StoreUnavailable.page(app.base()),
        Err(refusal @ (RequestRefusal::NeedsScope(_) | RequestRefusal::OtherQueues(_))) => {
            unfit_token_page(&app, &mut login_head, explain_unfit_token(&refusal)).await
        }
        Err(refusal) => match record_failure(&app, from, refusal) {
            RequestRefusal::TooManyFailures(wait) => {
                login_wait_page(&app, &mut login_head, wait).await
            }
            _ => see_other(&refused_address(&app, &form.next)),
        },
    }
}

/// Why a right token opens no page, and what to do.
fn explain_unfit_token(refusal: &RequestRefusal) -> String {
    match refusal {
        RequestRefusal::OtherQueues(limits) => format!(
            "That token is a right one, but it is for {limits} only, and the pages here show all queues. Use one that was made without --queue. Programs go on using this one: the API under /v1 answers it for its queues."
        ),
        _ => "That token is a right one, but it does not let anybody look: it needs the scope read. `backstop token create --scope read` makes one.".to_owned(),
    }
}

/// How long wrong tokens from where a request comes from are not looked up; `None` if they are.
pub(crate) fn login_wait(app: &App, head: &Parts) -> Option<Duration> {
    app.failures()
        .wait_left(client_address(app, head), Instant::now())
}

/// Opens a session for the holder of a token; answers the id for the cookie.
async fn open_session(
    app: &App,
    text: &str,
    unknown: UnknownTokenRule,
) -> Result<String, RequestRefusal> {
    let backstop = app.backstop();
    let found = app
        .tokens()
        .find(backstop, text, unknown)
        .await
        .map_err(store_unavailable)?;
    let token = found.ok_or(RequestRefusal::WrongToken)?;
    if token.is_expired(backstop.now()) {
        return Err(RequestRefusal::ExpiredToken);
    }
    // Without it no page would be shown.
    if !token.caller().may(Scope::Read) {
        return Err(RequestRefusal::NeedsScope(Scope::Read));
    }
    // Nor with one for some queues: pages go across all.
    if let Some(limits) = token.caller().queue_scope().describe_queues() {
        return Err(RequestRefusal::OtherQueues(limits));
    }
    let session = sessions::open(backstop, &token.id, app.config().server.session).await;
    Ok(session.map_err(store_unavailable)?.reveal().to_owned())
}

async fn log_out(State(app): State<App>, headers: HeaderMap) -> Response {
    for id in session_ids(&app.config().server, &headers) {
        if let Err(error) = sessions::close(app.backstop(), id).await {
            return store_unavailable(error).page(app.base());
        }
    }
    let mut response = see_other(&format!("{}/login", app.base()));
    for is_secure in [true, false] {
        response = set_cookie(response, &render_cookie("", is_secure, 0));
    }
    response
}

/// The ids of sessions among the cookies of a request.
pub(super) fn session_ids<'a>(
    server: &ServerConfig,
    headers: &'a HeaderMap,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let names = BrowserTransport::of(server).cookie_names();
    let texts = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let cookies = texts
        .flat_map(|text| text.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    // A browser sends one; who sends many makes the store work.
    cookies
        .filter(|(name, _)| names.contains(name))
        .map(|(_, id)| id)
        .take(names.len())
}

/// Whether the browser speaks TLS, to us or to the proxy before us. Browsers send `Origin: null`
/// with our forms, and a proxy need not say anything.
fn is_secure(app: &App, head: &Parts) -> bool {
    let is_encrypted = head
        .extensions
        .get::<ConnectionPeer>()
        .is_some_and(|peer| peer.is_encrypted);
    is_encrypted
        || match BrowserTransport::of(&app.config().server) {
            BrowserTransport::Tls => true,
            BrowserTransport::Plain => false,
            BrowserTransport::TlsByDefault => {
                forwarded_scheme(&head.headers).as_deref() != Some("http")
            }
            BrowserTransport::PlainByDefault => {
                forwarded_scheme(&head.headers).as_deref() == Some("https")
            }
        }
}

/// What the proxy says that the browser speaks, or the browser where the proxy says nothing.
fn forwarded_scheme(headers: &HeaderMap) -> Option<String> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let scheme = match text(HeaderName::from_static("x-forwarded-proto")) {
        // Of several proxies the first one heard the browser.
        Some(proto) => proto.split(',').next().map(str::trim),
        None => text(ORIGIN)
            .and_then(|origin| origin.split_once("://"))
            .map(|(scheme, _)| scheme),
    };
    scheme.map(str::to_ascii_lowercase)
}

fn render_cookie(id: &str, is_secure: bool, seconds: i64) -> String {
    let (name, secure) = if is_secure {
        (SECURE_COOKIE, "; Secure")
    } else {
        (PLAIN_COOKIE, "")
    };
    format!("{name}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}

fn set_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(SET_COOKIE, value);
    }
    response
}

/// Where somebody logs in, and comes back from.
pub(super) fn login_address(app: &App, next: Option<&str>) -> String {
    match next.filter(|next| is_own_page(app, next)) {
        Some(next) => format!("{}/login?next={}", app.base(), percent_encode(next)),
        None => format!("{}/login", app.base()),
    }
}

/// The login page, which says that the token was not taken.
fn refused_address(app: &App, next: &str) -> String {
    let next = if is_own_page(app, next) {
        format!("&next={}", percent_encode(next))
    } else {
        String::new()
    };
    format!("{}/login?refused=1{next}", app.base())
}

/// Where to go after logging in: only to a page of ours.
fn next_address(app: &App, next: &str) -> String {
    if is_own_page(app, next) {
        next.to_owned()
    } else {
        format!("{}/", app.base())
    }
}

/// Whether an address is a page of this server, and cannot be read as anything else: browsers take
/// `//host` and `/\host` for other hosts, and leave out tabs and line ends.
fn is_own_page(app: &App, next: &str) -> bool {
    let rest = next.strip_prefix(app.base()).unwrap_or_default();
    let is_plain = next
        .bytes()
        .all(|byte| matches!(byte, b'!'..=b'~') && byte != b'\\');
    let is_login = rest.starts_with("/login") || rest.starts_with("/logout");
    next.len() <= NEXT_BYTES_MAX
        && is_plain
        && rest.starts_with('/')
        && !next.starts_with("//")
        && !is_login
}

/// A text as the value of a parameter.
fn percent_encode(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop::config::{ConfigOverrides, resolve};

    fn app(base: &str) -> App {
        let config = resolve(None, ConfigOverrides::default(), ConfigOverrides::default()).unwrap();
        App::new(backstop::testing::start().backstop, config, base)
    }

    #[test]
    fn after_logging_in_nobody_is_sent_elsewhere() {
        let root = app("");
        for next in [
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "\\/evil.example",
            "/\t/evil.example",
            "/\n/evil.example",
            "evil.example",
            "javascript:alert(1)",
            "",
            "/é",
            "/login",
            "/login?next=/",
            "/logout",
        ] {
            assert_eq!(next_address(&root, next), "/", "{next:?}");
            assert_eq!(login_address(&root, Some(next)), "/login", "{next:?}");
        }
        for next in ["/", "/jobs?queue=a&state=dead", "/streams/s/keys/%2F"] {
            assert_eq!(next_address(&root, next), next);
        }
        let mounted = app("/jobs");
        for next in [
            "/",
            "/queues",
            "/jobsx/",
            "//evil.example",
            "/jobs//evil.example/..",
        ] {
            let expected = if next.starts_with("/jobs/") {
                next
            } else {
                "/jobs/"
            };
            assert_eq!(next_address(&mounted, next), expected, "{next:?}");
        }
        assert_eq!(
            login_address(&mounted, Some("/jobs/dead?a=b&c")),
            "/jobs/login?next=/jobs/dead%3Fa%3Db%26c"
        );
    }

    #[test]
    fn a_cookie_says_everything_that_keeps_it_in() {
        let secure = render_cookie("x", true, 43_200);
        assert_eq!(
            secure,
            "__Host-backstop_session=x; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200; Secure"
        );
        let plain = render_cookie("x", false, 43_200);
        assert_eq!(
            plain,
            "backstop_session=x; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200"
        );
    }

    #[test]
    fn over_tls_only_the_cookie_of_this_host_counts() {
        let mut headers = HeaderMap::new();
        let both = "a=b; backstop_session=planted; __Host-backstop_session=ours";
        headers.append(COOKIE, HeaderValue::from_static(both));
        let tls = ServerTransport::Tls(backstop::config::TlsFiles {
            cert: "c".into(),
            key: "k".into(),
        });
        let ids = |transport: &ServerTransport, origins: &[&str]| {
            let origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
            let server = ServerConfig {
                transport: transport.clone(),
                origins,
                ..ServerConfig::default()
            };
            session_ids(&server, &headers)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(&tls, &[]), ["ours"]);
        assert_eq!(ids(&ServerTransport::Plain, &[]), ["planted"]);
        assert_eq!(ids(&ServerTransport::BehindProxy, &[]), ["planted", "ours"]);
        for proxied in [ServerTransport::Plain, ServerTransport::BehindProxy] {
            assert_eq!(ids(&proxied, &["https://a", "https://b"]), ["ours"]);
            assert_eq!(ids(&proxied, &["http://a"]), ["planted", "ours"]);
            assert_eq!(
                ids(&proxied, &["http://a", "https://a"]),
                ["planted", "ours"]
            );
        }
    }
}
