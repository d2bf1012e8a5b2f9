//! Pages that say what went wrong, and what to do.

use super::assets::{ICON, STYLE};
use super::jobs::capital;
use super::section::PageSection;
use super::view::PageView;
use askama::Template;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use backstop_core::port::StoreError;
use std::fmt::Display;

/// A page that could not be made; answered with one that says why.
pub struct PageFailure(Box<(PageView, PageFailureCause)>);

enum PageFailureCause {
    /// There is no such thing.
    Missing(String),
    /// It was asked for in a way that cannot work.
    Bad(String),
    Store(StoreError),
    Broken(String),
}

#[derive(Template)]
#[template(path = "failure.html")]
struct FailurePage {
    frame: super::PageFrame,
    status: u16,
    sentence: String,
    detail: String,
    advice: &'static str,
}

/// The page of a request that was turned away before it was looked at: it knows of nobody, and says
/// nothing of what is here.
#[derive(Template)]
#[template(path = "refusal.html")]
struct RefusalPage<'a> {
    base: &'a str,
    style: String,
    icon: String,
    status: u16,
    title: &'a str,
    detail: &'a str,
}

/// That page. `base` is the path everything is mounted under.
pub(crate) fn render_refusal(
    base: &str,
    status: StatusCode,
    title: &str,
    detail: &str,
) -> Response {
    let (style, icon) = (
        format!("{base}{}", STYLE.path()),
        format!("{base}{}", ICON.path()),
    );
    // A sentence of its own on a page; to programs it is told as it is.
    let detail = capital(detail);
    let page = RefusalPage {
        base,
        style,
        icon,
        status: status.as_u16(),
        title,
        detail: &detail,
    };
    let content = [(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    )];
    match page.render() {
        Ok(body) => (status, content, body).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

impl PageView {
    /// There is no such thing; `what` is a sentence.
    pub fn missing(&self, what: impl Into<String>) -> PageFailure {
        PageFailure(Box::new((
            self.clone(),
            PageFailureCause::Missing(what.into()),
        )))
    }

    /// The address, or what was sent, cannot be understood; `why` is a sentence.
    pub fn bad(&self, why: impl Display) -> PageFailure {
        PageFailure(Box::new((
            self.clone(),
            PageFailureCause::Bad(why.to_string()),
        )))
    }

    pub fn store_failed(&self, error: StoreError) -> PageFailure {
        PageFailure(Box::new((self.clone(), PageFailureCause::Store(error))))
    }

    pub(super) fn broken(&self, error: &impl Display) -> PageFailure {
        PageFailure(Box::new((
            self.clone(),
            PageFailureCause::Broken(error.to_string()),
        )))
    }
}

impl IntoResponse for PageFailure {
    fn into_response(self) -> Response {
        let (view, cause) = *self.0;
        let (status, title, sentence, detail, advice) = cause.into_parts();
        let frame = view.frame(PageSection::Outside, title);
        let page = FailurePage {
            frame,
            status: status.as_u16(),
            sentence,
            detail,
            advice,
        };
        view.show_as(status, &page)
            .unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
    }
}

impl PageFailureCause {
    fn into_parts(self) -> (StatusCode, &'static str, String, String, &'static str) {
        match self {
            Self::Missing(what) => (
                StatusCode::NOT_FOUND,
                "Not here",
                what,
                String::new(),
                "It may have ended and been pruned, or the address has a slip in it.",
            ),
            Self::Bad(why) => (
                StatusCode::BAD_REQUEST,
                "That does not work",
                why,
                String::new(),
                "Nothing was changed. Go back, correct it and try again.",
            ),
            Self::Store(error) if error.is_transient() => {
                tracing::warn!(%error, "a page could not be made");
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    "The store does not answer",
                    "Nothing is shown, because nothing could be read. Jobs are where they were; nothing is lost.".to_owned(),
                    error.to_string(),
                    "Check that the store runs and can be reached from here, then load this page again.",
                )
            }
            Self::Store(error @ StoreError::Misuse { .. }) => (
                StatusCode::BAD_REQUEST,
                "That does not work",
                "The store was asked for something that cannot be.".to_owned(),
                error.to_string(),
                "Nothing was changed. Go back to the list and start again from there.",
            ),
            Self::Store(error) => {
                tracing::error!(%error, "a page could not be made");
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    "The store holds something it should not",
                    "This page cannot be made from what the store holds.".to_owned(),
                    error.to_string(),
                    "Run `backstop doctor`: it names what is damaged and what to do.",
                )
            }
            Self::Broken(error) => {
                tracing::error!(%error, "a page could not be written");
                (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "This page failed",
                    "The server could not write this page.".to_owned(),
                    String::new(),
                    "The server's log says why. The API and the command line still work.",
                )
            }
        }
    }
}
