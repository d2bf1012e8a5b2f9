//! The description of the API, in version 3.1 of its format.

use super::routes;
use crate::App;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::{any, get};
use bytes::Bytes;
use utoipa::openapi::{InfoBuilder, OpenApi, OpenApiBuilder};
use utoipa_axum::router::OpenApiRouter;

/// What the API is, path by path.
pub fn description() -> OpenApi {
    OpenApiRouter::<App>::with_openapi(empty()).nest("/v1", routes()).into_openapi()
}

/// The route that shows it: `/openapi.json`.
pub fn described() -> Router<App> {
    let text = Bytes::from(description().to_json().unwrap_or_default());
    let show = move || {
        let text = text.clone();
        async move { ([(CONTENT_TYPE, "application/json")], text) }
    };
    // What is nested under /v1 does not answer for the slash behind it.
    Router::new().route("/openapi.json", get(show)).route("/v1/", any(super::no_such_route))
}

fn empty() -> OpenApi {
    let info = InfoBuilder::new()
        .title("backstop")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("The backlog engine that never drops work. Errors are application/problem+json, with a detail that says what to do."))
        .build();
    OpenApiBuilder::new().info(info).build()
}
