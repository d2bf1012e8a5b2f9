//! A dashboard on a store in memory, asked as a browser would.

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use axum::{Extension, Router};
use backstop::Span;
use backstop::config::{ConfigFile, ConfigOverrides, resolve};
use backstop::testing::{self, TestBackstop};
use backstop_server::access::{Caller, Scope, ScopeSet};
use backstop_server::{App, pages};
use tower::ServiceExt as _;

/// Text that would be markup if it were let.
pub(crate) const HOSTILE: &str = "\"><script>alert(7)</script><img src=x onerror='alert(8)'>&amp;";

/// A dashboard.
pub(crate) struct Site {
    pub(crate) test: TestBackstop,
    pub(crate) app: App,
    router: Router,
}

/// What a browser got.
pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) location: String,
    pub(crate) body: String,
}

impl Site {
    /// With this configuration, at the root, for who may do everything.
    pub(crate) fn new(config: &str) -> Self {
        Self::mounted(config, "", ScopeSet::ALL)
    }

    /// Under a path, for a caller with these rights.
    pub(crate) fn mounted(config: &str, base: &str, scopes: ScopeSet) -> Self {
        let test = testing::start();
        let written = ConfigFile {
            path: "backstop.toml",
            text: config,
        };
        let config = resolve(
            Some(written),
            ConfigOverrides::default(),
            ConfigOverrides::default(),
        )
        .unwrap();
        let app = App::new(test.backstop.clone(), config, base);
        let routes = pages::routes().layer(Extension(Caller::new("token ada", scopes)));
        let router = if base.is_empty() {
            routes
        } else {
            Router::new().nest(base, routes)
        };
        Self {
            router: router.with_state(app.clone()),
            test,
            app,
        }
    }

    /// For who may only look.
    pub(crate) fn read_only(config: &str) -> Self {
        Self::mounted(config, "", [Scope::Read].into_iter().collect())
    }

    pub(crate) async fn get(&self, address: &str) -> Got {
        self.ask(Request::get(address).body(Body::empty()).unwrap())
            .await
    }

    /// A page that is there, and harmless.
    pub(crate) async fn page(&self, address: &str) -> String {
        let got = self.get(address).await;
        assert_eq!(got.status, StatusCode::OK, "{address}: {}", got.body);
        harmless(&got.body);
        got.body
    }

    /// Presses a button; a moment passes, so that the audit is in order.
    pub(crate) async fn post(&self, address: &str, form: &str) -> Got {
        self.test.clock.advance(Span::millis(10));
        let request = Request::post(address)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::from(form.to_owned()))
            .unwrap();
        self.ask(request).await
    }

    async fn ask(&self, request: Request<Body>) -> Got {
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let status = answer.status();
        let location = answer
            .headers()
            .get(header::LOCATION)
            .map(|at| at.to_str().unwrap().to_owned());
        let body = to_bytes(answer.into_body(), 16 << 20).await.unwrap();
        Got {
            status,
            location: location.unwrap_or_default(),
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    /// What the audit says, the newest first.
    pub(crate) async fn audit(&self) -> Vec<(String, String)> {
        let entries = self.test.backstop.audit("").entries(100).await.unwrap();
        entries
            .into_iter()
            .map(|entry| (entry.who, entry.what))
            .collect()
    }
}

/// Nothing of the hostile text is markup, no script and no style stands in the page, and all that
/// is opened is closed.
pub(crate) fn harmless(body: &str) {
    for markup in [
        "<script>",
        "<img",
        "onerror='",
        " style=",
        "<style",
        "javascript:",
    ] {
        assert!(!body.contains(markup), "{markup} in {body}");
    }
    let mut open: Vec<&str> = Vec::new();
    let void = ["meta", "link", "input", "br", "hr", "!doctype"];
    for tag in body.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        let name = tag
            .trim_start_matches('/')
            .split([' ', '\n', '/'])
            .next()
            .unwrap_or_default();
        if void.contains(&name.to_ascii_lowercase().as_str()) || tag.ends_with('/') {
            continue;
        }
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed out of order in {body}");
        } else {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?} stays open in {body}");
}

/// Every address in a page is under its base.
pub(crate) fn all_under(body: &str, base: &str) {
    for attribute in ["href=\"", "action=\"", "src=\""] {
        for address in body
            .split(attribute)
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
        {
            let is_here = address.starts_with('#') || address.starts_with('?');
            assert!(
                is_here || address.starts_with(base),
                "{address} is not under {base}"
            );
        }
    }
}
