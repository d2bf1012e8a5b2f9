//! The description of the API, in version 3.1 of its format.

use crate::App;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::{any, get};
use bytes::Bytes;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Server};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The name of how a caller says who it is.
const TOKEN: &str = "token";

/// What the API is, path by path, on a server under the path `base`.
pub fn description(base: &str) -> OpenApi {
    // Events are pages' as well, and mounted with them.
    let events = OpenApiRouter::<App>::new().routes(routes!(crate::events::events));
    let api = OpenApiRouter::with_openapi(empty(base)).nest("/v1", super::routes());
    api.merge(events).into_openapi()
}

/// The route that shows it: `/openapi.json`.
pub fn described(base: &str) -> Router<App> {
    let text = Bytes::from(description(base).to_json().unwrap_or_default());
    let show = move || {
        let text = text.clone();
        async move { ([(CONTENT_TYPE, "application/json")], text) }
    };
    // What is nested under /v1 does not answer for the slash behind it.
    Router::new().route("/openapi.json", get(show)).route("/v1/", any(super::no_such_route))
}

fn empty(base: &str) -> OpenApi {
    let info = InfoBuilder::new()
        .title("backstop")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("The backlog engine that never drops work. Errors are application/problem+json, with a detail that says what to do."))
        .build();
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token of `backstop token create`. On a server that only this machine reaches nobody needs one."))
        .build();
    let components = ComponentsBuilder::new().security_scheme(TOKEN, SecurityScheme::Http(bearer)).build();
    let (with_token, without) = (SecurityRequirement::new(TOKEN, [""; 0]), SecurityRequirement::default());
    OpenApiBuilder::new()
        .info(info)
        .servers(Some([Server::new(if base.is_empty() { "/" } else { base })]))
        .components(Some(components))
        .security(Some([with_token, without]))
        .build()
}
