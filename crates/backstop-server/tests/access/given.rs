//! A server that others can reach, with a token for each right.

use crate::routes::Route;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::request::Builder;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use backstop::config::{Config, ConfigFile, ConfigOverrides, resolve};
use backstop::testing::start;
use backstop::{Backstop, ManualClock, RandomSource, Span};
use backstop_core::port::Store;
use backstop_memory::MemoryStore;
use backstop_server::access::{ConnectionPeer, CreatedToken, NewToken, Scope, TokenRegistry};
use backstop_server::{App, serve};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tower::ServiceExt;

/// Where it is reached.
pub(crate) const HOST: &str = "jobs.example.org:7007";
/// Where a page that has no business here comes from.
pub(crate) const FOREIGN: &str = "https://evil.example";

/// A server that others can reach.
pub(crate) const GUARDED: &str = "[server]\nlisten = \"0.0.0.0:7007\"\nplain_http = true\n";
/// One behind a proxy of its own machine, as the refusal of a request that a proxy passed on
/// advises.
pub(crate) const PROXIED: &str = "[server]\norigins = [\"https://jobs.example.org\"]\n";
/// A server for this machine.
pub(crate) const OPEN: &str = "";

pub(crate) struct Site {
    pub(crate) router: Router,
    pub(crate) app: App,
    pub(crate) backstop: Backstop,
    pub(crate) clock: Arc<ManualClock>,
}

pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

pub(crate) fn config(text: &str) -> Config {
    let written = ConfigFile {
        path: "backstop.toml",
        text,
    };
    resolve(
        Some(written),
        ConfigOverrides::default(),
        ConfigOverrides::default(),
    )
    .unwrap()
}

impl Site {
    pub(crate) fn new(text: &str) -> Self {
        Self::on(Arc::new(MemoryStore::new()), text)
    }

    /// On a store that does as the test says.
    pub(crate) fn on(store: Arc<dyn Store>, text: &str) -> Self {
        let clock = start().clock;
        let backstop = Backstop::on(
            store,
            Arc::<ManualClock>::clone(&clock),
            RandomSource::seeded(1),
        );
        let config = config(text);
        let base = config.server.base.clone();
        let app = App::new(backstop.clone(), config, &base);
        Self {
            router: serve::router(&app),
            app,
            backstop,
            clock,
        }
    }

    pub(crate) async fn token(&self, scopes: &[Scope], expires_in: Option<Span>) -> CreatedToken {
        let new = NewToken {
            name: "ada".to_owned(),
            scopes: scopes.to_vec(),
            queues: Vec::new(),
            expires_in,
        };
        TokenRegistry::of(&self.backstop)
            .create("test", new)
            .await
            .unwrap()
    }

    /// A token of this name: tokens of one name have shares together.
    pub(crate) async fn token_named(&self, name: &str, scopes: &[Scope]) -> String {
        let new = NewToken {
            name: name.to_owned(),
            scopes: scopes.to_vec(),
            queues: Vec::new(),
            expires_in: None,
        };
        let tokens = TokenRegistry::of(&self.backstop);
        tokens.create("test", new).await.unwrap().token
    }

    /// A token for these queues only.
    pub(crate) async fn token_for(&self, scopes: &[Scope], queues: &[&str]) -> String {
        let queues = queues.iter().map(|queue| queue.parse().unwrap()).collect();
        let new = NewToken {
            name: "bob".to_owned(),
            scopes: scopes.to_vec(),
            queues,
            expires_in: None,
        };
        TokenRegistry::of(&self.backstop)
            .create("test", new)
            .await
            .unwrap()
            .token
    }

    /// What is answered; only the head of it, since some answers never end.
    pub(crate) async fn ask(&self, request: Request<Body>) -> Got {
        let (head, _) = self
            .router
            .clone()
            .oneshot(request)
            .await
            .unwrap()
            .into_parts();
        Got {
            status: head.status,
            headers: head.headers,
        }
    }

    /// What is answered, with its text.
    pub(crate) async fn read(&self, request: Request<Body>) -> (Got, String) {
        let (head, body) = self
            .router
            .clone()
            .oneshot(request)
            .await
            .unwrap()
            .into_parts();
        let text = to_bytes(body, 1 << 20).await.unwrap();
        (
            Got {
                status: head.status,
                headers: head.headers,
            },
            String::from_utf8(text.to_vec()).unwrap(),
        )
    }

    /// Logs in with a token; answers the cookie as a browser sends it back.
    pub(crate) async fn log_in(&self, token: &str) -> String {
        let got = self.ask(login(token, "")).await;
        assert_eq!(got.status, StatusCode::SEE_OTHER);
        let cookie = got.text(header::SET_COOKIE);
        cookie.split(';').next().unwrap().to_owned()
    }
}

impl Got {
    pub(crate) fn text(&self, name: header::HeaderName) -> String {
        self.headers
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
            .unwrap_or_default()
    }

    /// Turned away for want of a token: told so, or sent to log in.
    pub(crate) fn is_unknown(&self, route: &Route) -> bool {
        if route.is_page() {
            self.status == StatusCode::SEE_OTHER
                && self.text(header::LOCATION).starts_with("/login")
        } else {
            self.status == StatusCode::UNAUTHORIZED
                && self.text(header::WWW_AUTHENTICATE).starts_with("Bearer")
                && self.text(header::CONTENT_TYPE) == "application/problem+json"
        }
    }
}

/// A request, each from an address of its own: what others did wrong is not held against it.
pub(crate) fn request(method: Method, address: &str) -> Builder {
    static NEXT: AtomicU32 = AtomicU32::new(0x0a00_0001);
    let ip = IpAddr::V4(Ipv4Addr::from(NEXT.fetch_add(1, Ordering::Relaxed)));
    let peer = ConnectionPeer {
        address: ip,
        is_encrypted: false,
    };
    Request::builder()
        .method(method)
        .uri(address)
        .header(header::HOST, HOST)
        .extension(peer)
}

pub(crate) fn to(route: &Route) -> Builder {
    request(route.method(), &route.address)
}

pub(crate) fn bearing(builder: Builder, token: &str) -> Builder {
    builder.header(header::AUTHORIZATION, format!("Bearer {token}"))
}

pub(crate) fn empty(builder: Builder) -> Request<Body> {
    builder.body(Body::empty()).unwrap()
}

/// What the login page sends.
pub(crate) fn login(token: &str, next: &str) -> Request<Body> {
    let builder = request(Method::POST, "/login")
        .header(header::ORIGIN, format!("http://{HOST}"))
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    builder
        .body(Body::from(format!("token={token}&next={next}")))
        .unwrap()
}
