//! `/metrics` for Prometheus, `/healthz` and `/readyz`.

use crate::App;
use axum::Router;

/// The routes.
pub fn routes() -> Router<App> {
    Router::new()
}
