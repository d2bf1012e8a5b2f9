//! backstop over HTTP: the API for workers in any language, the dashboard, metrics.
//!
//! | what | where |
//! |---|---|
//! | what every route shares: the store, the configuration, the path it is mounted under | `app.rs` |
//! | who may do what: tokens, sessions, origins, headers | `access/` |
//! | `/v1` and `/openapi.json` | `api/` |
//! | the JSON shapes that the API and the command line share | `wire/` |
//! | the dashboard | `pages/` |
//! | live updates | `events/` |
//! | actions on all jobs that match, in the background | `bulk/` |
//! | what the doctor says of the store, looked at in the background | `doctor.rs` |
//! | reads of one caller, large bodies and answers: a few at once | `reads.rs`, `work_limits.rs` |
//! | how many names workers elsewhere may use | `worker_names.rs` |
//! | redrives that servers run | `redrives.rs` |
//! | what a server that is gone left unfinished | `resume.rs` |
//! | what happened in the last week, minute by minute | `history/` |
//! | what a retry policy does, for the command line and the page | `policy_lab/` |
//! | numbers and times as people read them | `words.rs` |
//! | `/metrics`, `/healthz`, `/readyz` | `telemetry/` |
//! | alert rules and a board for what `/metrics` tells | `alerts/` |
//! | listening, TLS, limits, going down in good order | `serve/` |

pub mod access;
pub mod alerts;
pub mod api;
mod app;
pub mod bulk;
mod detached;
mod doctor;
pub mod events;
pub mod history;
mod markup;
pub mod pages;
pub mod policy_lab;
mod reads;
mod redrives;
pub mod resume;
pub mod serve;
pub mod telemetry;
pub mod wire;
pub mod words;
mod work_limits;
mod worker_names;

pub use app::App;
