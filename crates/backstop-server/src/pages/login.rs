//! The login: a token is pasted once. What becomes of it is decided by `access`.

use super::{PageFailure, PageFrame, PageSection, PageView};
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
struct LoginPage {
    frame: PageFrame,
    next: String,
    is_refused: bool,
    /// Why a token that is a right one opens no page.
    unfit: Option<String>,
    /// Seconds before an unknown token is looked up again.
    wait_secs: Option<u32>,
}

/// The page, which leads on to the address `next`; `refused` says that the last token was not
/// taken.
async fn login(view: PageView, head: Parts) -> Result<Response, PageFailure> {
    let wait = access::login_wait(view.app(), &head);
    page(&view, wait, None)
}

/// The page for somebody whose token was wrong, after too many others that were.
pub(crate) async fn login_wait_page(app: &App, head: &mut Parts, wait: Duration) -> Response {
    let Ok(view) = PageView::from_request_parts(head, app).await;
    page(&view, Some(wait), None).into_response()
}

/// The page for somebody whose token is a right one and opens no page; `why` is a sentence.
pub(crate) async fn unfit_token_page(app: &App, head: &mut Parts, why: String) -> Response {
    let Ok(view) = PageView::from_request_parts(head, app).await;
    page(&view, None, Some(why)).into_response()
}

fn page(
    view: &PageView,
    wait: Option<Duration>,
    unfit: Option<String>,
) -> Result<Response, PageFailure> {
    let mut frame = view.frame(PageSection::Outside, "Log in");
    // Who asks is not known, or does not matter here: there is nowhere to go but in.
    (frame.caller, frame.has_session) = (None, false);
    // Nor is it anybody's business yet what is behind it.
    frame.store.clear();
    let (is_refused, wait_secs) = (
        view.query("refused").is_some(),
        wait.map(access::whole_seconds),
    );
    let status = match wait {
        Some(_) => StatusCode::TOO_MANY_REQUESTS,
        None if unfit.is_some() => StatusCode::FORBIDDEN,
        None if is_refused => StatusCode::UNAUTHORIZED,
        None => StatusCode::OK,
    };
    let next = view.query("next").unwrap_or_default().to_owned();
    let mut answer = view.show_as(
        status,
        &LoginPage {
            frame,
            next,
            is_refused,
            unfit,
            wait_secs,
        },
    )?;
    if let Some(secs) = wait_secs {
        answer.headers_mut().insert(RETRY_AFTER, secs.into());
    }
    Ok(answer)
}
