//! `/metrics` for Prometheus, `/healthz` and `/readyz`.
//!
//! | what is told | by whom |
//! |---|---|
//! | what this process does: the tables in the heads of `backstop/src/{engine,schedules,sweeps,streams,tables}/metrics.rs` | `recorder` |
//! | its requests: the table of `http` | `recorder` |
//! | what is in the store, whoever put it there: the table of `snapshot` | read at the scrape, by `store_scrape` |
//!
//! A store that does not answer is told as `backstop_store_up 0`, and nothing else of what is in
//! it: no zeros, no old numbers.

mod exposition;
mod help;
mod http;
mod labels;
mod recorder;
mod snapshot;
mod store_scrape;

pub use http::{measure, trace_of};
pub use recorder::install;

use crate::App;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;
use store_scrape::StoreScrape;

/// What Prometheus calls its text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The routes. What this process tells is gathered from here on.
pub fn routes() -> Router<App> {
    let handle = install();
    let scrape = Arc::new(StoreScrape::default());
    let for_readiness = Arc::clone(&scrape);
    Router::new()
        .route("/healthz", get(|| async { "alive\n" }))
        .route(
            "/readyz",
            get(move |State(app): State<App>| async move {
                answer_readiness(&app, for_readiness.is_up(&app).await)
            }),
        )
        .route(
            "/metrics",
            get(move |State(app): State<App>| async move {
                let of_store = scrape.read(&app).await;
                let text = format!("{}{}", handle.render(), of_store.render());
                ([(header::CONTENT_TYPE, TEXT_FORMAT)], text)
            }),
        )
}

/// Whether the store answers, and has the tables this version needs, and the server is here to
/// stay. Says no more than that: nobody has to show a token here.
fn answer_readiness(app: &App, is_up: bool) -> Response {
    let words = match (is_up, app.is_leaving()) {
        (true, false) => return "ready\n".into_response(),
        (true, true) => "not ready: the server goes down when what it runs has ended\n",
        (false, _) => {
            "not ready: the store does not answer, or was not migrated; `backstop doctor` says more\n"
        }
    };
    (StatusCode::SERVICE_UNAVAILABLE, words).into_response()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use tests::{exported, is_of_store};
