//! The dashboard: pages made on the server, which work without script.
//!
//! | what | where |
//! |---|---|
//! | one request: who asks, parameters, the store's answers | `view.rs` |
//! | what surrounds every page, and its sections | `frame.rs`, `section.rs`, `templates/frame.html` |
//! | what the last action did, over the redirect | `note.rs` |
//! | pages that say what went wrong | `failure.rs` |
//! | the style, the script, the icon | `assets.rs`, `assets/` |
//! | numbers and times as people read them | `text.rs` |
//!
//! A page is a handler `async fn page(view: View, …) -> Result<Response, PageFailure>`, a struct that derives
//! `askama::Template` with a field `frame: Frame`, and a template that extends `frame.html` with the blocks `head`
//! (the heading), `still` (what is not refreshed) and `live` (what is). Nothing here counts by scanning.

mod assets;
mod audit;
mod breakers;
mod dead;
mod failure;
mod frame;
mod job;
mod jobs;
mod link;
mod login;
mod mark;
mod note;
mod overview;
mod payload;
mod posted;
mod queues;
mod runs;
mod section;
pub mod text;
mod view;
mod workers;

pub use failure::PageFailure;
pub use frame::Frame;
pub use link::{Link, part};
pub use login::login;
pub use mark::{Spread, StateMark, When};
pub use note::{Note, Tone};
pub use payload::ShownPayload;
pub use posted::Posted;
pub use section::{Group, NAVIGATION, Section};
pub use view::View;

pub mod chart;

use crate::App;
use crate::bulk::Runs;
use axum::{Extension, Router};

/// The pages, the style, the script and the live updates.
pub fn routes() -> Router<App> {
    Router::new()
        .merge(assets::routes())
        .merge(overview::routes())
        .merge(queues::routes())
        .merge(jobs::routes())
        .merge(job::routes())
        .merge(dead::routes())
        .merge(runs::routes())
        .merge(workers::routes())
        .merge(breakers::routes())
        .merge(audit::routes())
        .merge(crate::events::routes())
        .layer(Extension(Runs::default()))
        .fallback(nowhere)
}

/// An address that nothing is at.
async fn nowhere(view: View) -> PageFailure {
    view.missing("There is nothing at this address.")
}
