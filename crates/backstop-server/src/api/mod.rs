//! `/v1`: everything a worker, a producer or an operator can ask for, as JSON.

use crate::App;
use utoipa_axum::router::OpenApiRouter;

/// The routes, without the `/v1` in front of them.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
}
