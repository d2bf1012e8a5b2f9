//! backstop over HTTP: the API for workers in any language, the dashboard, metrics.
//!
//! | what | where |
//! |---|---|
//! | what every route shares: the store, the configuration, the path it is mounted under | `app.rs` |
//! | who may do what: tokens, sessions, origins, headers | `access/` |
//! | `/v1` and `/openapi.json` | `api/` |
//! | the dashboard | `pages/` |

mod app;

pub use app::App;
