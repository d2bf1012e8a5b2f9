//! How the login looks; what it decides is the business of `access`.

use super::{Frame, PageFailure, Section, View};
use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

#[derive(Template)]
#[template(path = "login.html")]
struct Page {
    frame: Frame,
    next: String,
    failure: Option<String>,
}

/// The login. `next` is the address under the base that follows it; `failure` says why the last try did not succeed.
pub fn login(
    view: &View,
    status: StatusCode,
    next: &str,
    failure: Option<&str>,
) -> Result<Response, PageFailure> {
    let mut frame = view.frame(Section::Outside, "Log in");
    // Who asks is not known, or does not matter here.
    frame.caller = None;
    let page = Page { frame, next: next.to_owned(), failure: failure.map(str::to_owned) };
    view.show_as(status, &page)
}
