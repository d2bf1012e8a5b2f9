//! One request for a page: who asks, how, and how it is answered.

use super::failure::PageFailure;
use super::flash::FlashMessage;
use super::form::PostedForm;
use super::frame::PageFrame;
use super::section::PageSection;
use crate::App;
use crate::access::{Caller, Scope};
use askama::Template;
use axum::extract::FromRequestParts;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, COOKIE, SET_COOKIE, VARY};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use backstop::audit::AuditLog;
use backstop::operate::AuditedChanges;
use backstop_core::Time;
use backstop_core::port::{Store, StoreResult};
use std::convert::Infallible;
use std::sync::Arc;

/// The header by which the script asks for the part of a page that changes.
const FRAGMENT: &str = "backstop-fragment";
/// The cookies of a login, with TLS and without; whether it is a good one was decided before a page
/// is made.
const SESSIONS: [&str; 2] = ["__Host-backstop_session", "backstop_session"];
/// The cookie that remembers which theme somebody chose.
const THEME: &str = "backstop_theme";

/// One request for a page. Every handler of a page takes it as its first argument.
#[derive(Clone)]
pub struct PageView {
    app: App,
    caller: Option<Caller>,
    query: Vec<(String, String)>,
    is_fragment: bool,
    has_session: bool,
    theme: Option<&'static str>,
    note: Option<FlashMessage>,
}

impl PageView {
    pub fn app(&self) -> &App {
        &self.app
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        self.app.backstop().store()
    }

    /// The time on the store's time line.
    pub fn now(&self) -> Time {
        self.app.backstop().now()
    }

    /// The caller's word in the audit log.
    pub fn who(&self) -> &str {
        self.caller.as_ref().map_or("nobody", Caller::name)
    }

    /// What can be changed, in the caller's name and for the reason that a form gives.
    pub fn changes(&self, posted: &PostedForm) -> Result<AuditedChanges, PageFailure> {
        Ok(self
            .app
            .backstop()
            .changes(self.who())
            .because(posted.reason(self)?))
    }

    /// The audit, in the caller's name and for the reason that a form gives.
    pub fn audit(&self, posted: &PostedForm) -> Result<AuditLog, PageFailure> {
        Ok(self
            .app
            .backstop()
            .audit(self.who())
            .because(posted.reason(self)?))
    }

    /// Whether the caller may do what the buttons say.
    pub fn may_write(&self) -> bool {
        self.caller
            .as_ref()
            .is_some_and(|caller| caller.may(Scope::Admin))
    }

    /// The first value of a parameter of the address; an empty one is none.
    pub fn query(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found
            .map(|(_, value)| value.trim())
            .filter(|value| !value.is_empty())
    }

    /// The same to the letter: a name that begins or ends with a space is another name than one
    /// without it.
    pub fn query_exact(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// All values of a parameter of the address.
    pub fn query_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.query
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// All parameters of the address.
    pub fn queries(&self) -> &[(String, String)] {
        &self.query
    }

    /// An address under the base: `path` begins with `/`.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.app.base())
    }

    pub fn frame(&self, section: PageSection, title: impl Into<String>) -> PageFrame {
        PageFrame {
            title: title.into(),
            section,
            base: self.app.base().to_owned(),
            style: self.at(&super::assets::STYLE.path()),
            script: self.at(&super::assets::SCRIPT.path()),
            icon: self.at(&super::assets::ICON.path()),
            caller: self.caller.as_ref().map(|caller| caller.name().to_owned()),
            may_write: self.may_write(),
            has_session: self.has_session,
            theme: self.theme,
            note: self.note.clone(),
            is_fragment: self.is_fragment,
            is_live: false,
            store: self.app.config().store.to_string(),
            version: env!("CARGO_PKG_VERSION"),
            made_at: super::text::second(self.now()),
            reason: self.query("reason").unwrap_or_default().to_owned(),
        }
    }

    pub fn show(&self, page: &impl Template) -> Result<Response, PageFailure> {
        self.show_as(StatusCode::OK, page)
    }

    /// A page with a status of its own.
    pub fn show_as(
        &self,
        status: StatusCode,
        page: &impl Template,
    ) -> Result<Response, PageFailure> {
        let body = page.render().map_err(|error| self.broken(&error))?;
        let mut answer = (status, headers(), body).into_response();
        if self.note.is_some() && !self.is_fragment {
            answer
                .headers_mut()
                .append(SET_COOKIE, FlashMessage::removal_cookie(self.app.base()));
        }
        Ok(answer)
    }

    /// The store's answer, or the page that says that it has none.
    pub async fn ask<T>(
        &self,
        answer: impl Future<Output = StoreResult<T>>,
    ) -> Result<T, PageFailure> {
        answer.await.map_err(|error| self.store_failed(error))
    }
}

fn headers() -> [(axum::http::HeaderName, HeaderValue); 3] {
    [
        (
            CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        ),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (VARY, HeaderValue::from_static(FRAGMENT)),
    ]
}

impl FromRequestParts<App> for PageView {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self {
            app: app.clone(),
            caller: parts.extensions.get::<Caller>().cloned(),
            query: form_urlencoded::parse(query.as_bytes())
                .into_owned()
                .collect(),
            is_fragment: parts.headers.contains_key(FRAGMENT),
            has_session: SESSIONS
                .iter()
                .any(|name| cookie(&parts.headers, name).is_some()),
            theme: theme(cookie(&parts.headers, THEME).as_deref()),
            note: cookie(&parts.headers, FlashMessage::COOKIE)
                .and_then(|text| FlashMessage::read(&text)),
        })
    }
}

/// The value of a cookie.
fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let lines = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok());
    let mut pairs = lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.to_owned())
}

fn theme(chosen: Option<&str>) -> Option<&'static str> {
    match chosen? {
        "dark" => Some("dark"),
        "light" => Some("light"),
        _ => None,
    }
}
