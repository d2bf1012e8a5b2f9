//! The dashboard: pages made on the server, which work without script.

pub mod chart;

use crate::App;
use axum::Router;

/// The pages, the style and the script.
pub fn routes() -> Router<App> {
    Router::new()
}
