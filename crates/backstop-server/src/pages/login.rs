//! The login: a token is pasted once. What becomes of it is decided by `access`.

use super::{Frame, PageFailure, Section, View};
use crate::App;
use askama::Template;
use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;

pub(super) fn routes() -> Router<App> {
    Router::new().route("/login", get(login))
}

#[derive(Template)]
#[template(path = "login.html")]
struct Page {
    frame: Frame,
    next: String,
    is_refused: bool,
}

/// The page, which leads on to the address `next`; `refused` says that the last token was not taken.
async fn login(view: View) -> Result<Response, PageFailure> {
    let mut frame = view.frame(Section::Outside, "Log in");
    // Who asks is not known, or does not matter here: there is nowhere to go but in.
    (frame.caller, frame.has_session) = (None, false);
    // Nor is it anybody's business yet what is behind it.
    frame.store.clear();
    let is_refused = view.query("refused").is_some();
    let page = Page { frame, next: view.query("next").unwrap_or_default().to_owned(), is_refused };
    view.show_as(if is_refused { StatusCode::UNAUTHORIZED } else { StatusCode::OK }, &page)
}
