//! Listening: how the parts are put together, and what stands before them.

use crate::{App, api, meters, pages};
use axum::Router;
use utoipa_axum::router::OpenApiRouter;

/// Everything that is served, under the path of `app`.
pub fn router(app: &App) -> Router {
    let (api, _description) = OpenApiRouter::new().nest("/v1", api::routes()).split_for_parts();
    let all = Router::new().merge(api).merge(pages::routes()).merge(meters::routes());
    // Around everything that has a route: it knows the pattern, and never the address.
    let all = all.layer(axum::middleware::from_fn(meters::measure));
    let mounted = if app.base().is_empty() { all } else { Router::new().nest(app.base(), all) };
    mounted.with_state(app.clone())
}
