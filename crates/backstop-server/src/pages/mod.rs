//! The dashboard: pages made on the server, which work without script.
//!
//! | what | where |
//! |---|---|
//! | one request: who asks, parameters, the store's answers | `view.rs` |
//! | what surrounds every page, and its sections | `frame.rs`, `section.rs`, `templates/frame.html` |
//! | what the last action did, over the redirect | `flash.rs` |
//! | jobs picked one by one, with their queues | `job_ref.rs` |
//! | pages that say what went wrong | `failure.rs` |
//! | the style, the script, the icon | `assets.rs`, `assets/` |
//! | numbers and times as people read them | `text.rs` |
//! | the way through the pages of a list | `pagination.rs` |
//! | charts, drawn here | `chart/` |
//! | looks into databases of users, within a page's patience | `cached_query.rs` |
//!
//! A page is a handler `async fn page(view: PageView, …) -> Result<Response, PageFailure>`, a
//! struct that derives `askama::Template` with a field `frame: PageFrame`, and a template that
//! extends `frame.html` with the blocks `head` (the heading), `still` (what is not refreshed) and
//! `live` (what is). Nothing here counts by scanning.

mod assets;
mod audit;
mod breakers;
mod cached_query;
pub mod chart;
mod components;
mod dead;
mod failure;
mod flash;
mod form;
mod frame;
mod job;
mod job_ref;
mod jobs;
mod kinds;
mod link;
mod login;
mod overview;
mod pagination;
mod payload;
mod policy;
mod queues;
mod runs;
mod schedules;
mod section;
mod streams;
mod sweeps;
mod tables;
pub mod text;
mod view;
mod workers;

pub use components::{RelativeTime, StateBadge, StateBar};
pub use failure::PageFailure;
pub(crate) use failure::render_refusal;
pub use flash::{FlashMessage, FlashTone};
pub use form::PostedForm;
pub use frame::PageFrame;
pub use link::{PageLink, anchor, part};
pub(crate) use login::{login_wait_page, unfit_token_page};
pub use payload::PayloadView;
pub use section::{NAVIGATION, NavigationGroup, PageSection};
pub use view::PageView;

use crate::App;
use axum::Router;
use axum::routing::MethodRouter;

/// The addresses of all pages, as the router has them: for whoever goes through all of them.
pub const ADDRESSES: [&str; 29] = [
    "/",
    "/queues",
    "/queues/{queue}",
    "/kinds",
    "/jobs",
    "/jobs/confirm",
    "/jobs/runs",
    "/jobs/runs/{id}",
    "/jobs/{id}",
    "/dead",
    "/dead/confirm",
    "/dead/redrive",
    "/dead/redrives",
    "/dead/redrives/{id}",
    "/dead/{id}",
    "/streams",
    "/streams/{stream}",
    "/streams/{stream}/key",
    "/streams/{stream}/keys/{key}",
    "/schedules",
    "/schedules/{schedule}",
    "/sweeps",
    "/sweeps/{sweep}",
    "/tables",
    "/workers",
    "/breakers",
    "/policy",
    "/audit",
    "/login",
];

/// The pages, the style, the script and the live updates.
pub fn routes() -> Router<App> {
    let work = Router::new()
        .merge(overview::routes())
        .merge(queues::routes())
        .merge(kinds::routes())
        .merge(jobs::routes())
        .merge(job::routes())
        .merge(dead::routes())
        .merge(runs::routes());
    let order_and_time = Router::new()
        .merge(streams::routes())
        .merge(schedules::routes())
        .merge(sweeps::routes())
        .merge(tables::routes());
    let operations = Router::new()
        .merge(workers::routes())
        .merge(breakers::routes())
        .merge(policy::routes())
        .merge(audit::routes());
    Router::new()
        .merge(assets::routes())
        .merge(login::routes())
        .merge(work)
        .merge(order_and_time)
        .merge(operations)
        .merge(crate::events::routes())
        .fallback(not_found)
}

/// The overview, for the address that people come to.
pub(crate) fn front() -> MethodRouter<App> {
    overview::front()
}

/// An address that nothing is at.
pub(crate) async fn not_found(view: PageView) -> PageFailure {
    view.missing("There is nothing at this address.")
}
