//! backstop over HTTP: the API for workers in any language, the dashboard, metrics.
//!
//! | what | where |
//! |---|---|
//! | what every route shares: the store, the configuration, the path it is mounted under | `app.rs` |
//! | who may do what: tokens, sessions, origins, headers | `access/` |
//! | `/v1` and `/openapi.json` | `api/` |
//! | the JSON shapes that the API and the command line share | `wire/` |
//! | the dashboard | `pages/` |
//! | what happened in the last week, minute by minute | `history/` |
//! | `/metrics`, `/healthz`, `/readyz` | `meters/` |
//! | alert rules and a board for what `/metrics` tells | `alerts/` |
//! | listening, TLS, limits, going down in good order | `serve/` |

pub mod access;
pub mod alerts;
pub mod api;
mod app;
pub mod history;
pub mod meters;
pub mod pages;
pub mod serve;
pub mod wire;

pub use app::App;
