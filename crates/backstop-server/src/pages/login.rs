//! The login: a token is pasted once. What becomes of it is decided by `access`.

use super::{Frame, PageFailure, Section, View};
use crate::App;
use crate::access;
use askama::Template;
use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::time::Duration;

pub(super) fn routes() -> Router<App> {
    Router::new().route("/login", get(login))
}

#[derive(Template)]
#[template(path = "login.html")]
struct Page {
    frame: Frame,
    next: String,
    is_refused: bool,
    /// Seconds before a token is looked at again.
    wait_secs: Option<u32>,
}

/// The page, which leads on to the address `next`; `refused` says that the last token was not taken.
async fn login(view: View, head: Parts) -> Result<Response, PageFailure> {
    let wait = access::login_wait(view.app(), &head);
    page(&view, wait)
}

/// The page for somebody who has to wait before any token is looked at, a right one included.
pub(crate) async fn waiting(app: &App, head: &mut Parts, wait: Duration) -> Response {
    let Ok(view) = View::from_request_parts(head, app).await;
    page(&view, Some(wait)).into_response()
}

fn page(view: &View, wait: Option<Duration>) -> Result<Response, PageFailure> {
    let mut frame = view.frame(Section::Outside, "Log in");
    // Who asks is not known, or does not matter here: there is nowhere to go but in.
    (frame.caller, frame.has_session) = (None, false);
    // Nor is it anybody's business yet what is behind it.
    frame.store.clear();
    let (is_refused, wait_secs) = (view.query("refused").is_some(), wait.map(access::seconds));
    let page = Page { frame, next: view.query("next").unwrap_or_default().to_owned(), is_refused, wait_secs };
    let status = match wait {
        Some(_) => StatusCode::TOO_MANY_REQUESTS,
        None if is_refused => StatusCode::UNAUTHORIZED,
        None => StatusCode::OK,
    };
    let mut answer = view.show_as(status, &page)?;
    if let Some(secs) = wait_secs {
        answer.headers_mut().insert(RETRY_AFTER, secs.into());
    }
    Ok(answer)
}
