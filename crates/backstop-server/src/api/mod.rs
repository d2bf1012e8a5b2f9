//! `/v1`: everything a worker, a producer or an operator can ask for, as JSON.
//!
//! One file a noun. A route reads, asks the library, and writes a shape of [`crate::wire`]; what is
//! wrong is a [`Problem`]. Who may do what was decided before a request comes here.

mod audit;
mod breakers;
mod bulk;
mod capabilities;
mod dead;
mod delivery;
mod jobs;
mod kinds;
mod new_queues;
mod openapi;
mod problem;
mod push;
mod queues;
mod read;
mod reason;
mod schedules;
mod scoped_reads;
mod streams;
mod sweeps;
mod tables;
mod work;
mod workers;

pub use new_queues::NewQueueLimit;
pub use openapi::{description, description_route};
pub use problem::{Problem, ProblemShape};
pub use work::WAIT_MAX;

use crate::App;
use axum::Extension;
use axum::extract::{DefaultBodyLimit, OriginalUri};
use axum::http::Method;
use backstop::core::limits::{ENQUEUE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use backstop::http_workers::SeenWorkers;
use std::sync::Arc;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

/// What the fields around a payload may take.
const ENVELOPE_BYTES_MAX: usize = 64 << 10;
/// What the fields around all payloads of a batch may take.
const BATCH_ENVELOPE_BYTES_MAX: usize = 2 << 20;
/// A request that carries one job, or none.
const ONE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + ENVELOPE_BYTES_MAX;
/// A request that carries many.
const MANY_BYTES_MAX: usize = ENQUEUE_BYTES_MAX + BATCH_ENVELOPE_BYTES_MAX;

/// The routes, without the `/v1` in front of them.
pub fn routes() -> OpenApiRouter<App> {
    let many = OpenApiRouter::new()
        .routes(or_405(routes!(push::batch)))
        .routes(or_405(routes!(work::settle)))
        .routes(or_405(routes!(work::beat)))
        .routes(or_405(routes!(streams::offer)))
        .layer(DefaultBodyLimit::max(MANY_BYTES_MAX));
    let one = OpenApiRouter::new()
        .routes(or_405(routes!(push::one, jobs::list)))
        .routes(or_405(routes!(jobs::show, jobs::delete)))
        .routes(or_405(routes!(jobs::retry)))
        .routes(or_405(routes!(jobs::cancel)))
        .routes(or_405(routes!(jobs::why)))
        .routes(or_405(routes!(work::lease)))
        .routes(or_405(routes!(queues::list)))
        .routes(or_405(routes!(queues::pause)))
        .routes(or_405(routes!(queues::resume)))
        .routes(or_405(routes!(queues::pause_all)))
        .routes(or_405(routes!(queues::resume_all)))
        .routes(or_405(routes!(dead::stats)))
        .routes(or_405(routes!(dead::groups)))
        .routes(or_405(routes!(dead::list, dead::delete)))
        .routes(or_405(routes!(dead::requeue)))
        .routes(or_405(routes!(dead::move_to)))
        .routes(or_405(routes!(dead::redrive)))
        .routes(or_405(routes!(dead::redrives)))
        .routes(or_405(routes!(dead::stop_redrive)))
        .routes(or_405(routes!(dead::resume_redrive)))
        .routes(or_405(routes!(bulk::look)))
        .routes(or_405(routes!(bulk::start, bulk::list)))
        .routes(or_405(routes!(bulk::show)))
        .routes(or_405(routes!(bulk::stop)))
        .routes(or_405(routes!(bulk::resume)))
        .routes(or_405(routes!(streams::list)))
        .routes(or_405(routes!(streams::keys)))
        .routes(or_405(routes!(streams::key, streams::forget)))
        .routes(or_405(routes!(streams::disable)))
        .routes(or_405(routes!(streams::enable)))
        .routes(or_405(routes!(streams::resume)))
        .routes(or_405(routes!(streams::skip)))
        .routes(or_405(routes!(schedules::list)))
        .routes(or_405(routes!(schedules::runs)))
        .routes(or_405(routes!(schedules::trigger)))
        .routes(or_405(routes!(schedules::pause)))
        .routes(or_405(routes!(schedules::resume)))
        .routes(or_405(routes!(sweeps::list)))
        .routes(or_405(routes!(sweeps::run)))
        .routes(or_405(routes!(tables::list)))
        .routes(or_405(routes!(workers::list)))
        .routes(or_405(routes!(workers::quiet)))
        .routes(or_405(routes!(workers::resume)))
        .routes(or_405(routes!(workers::stop)))
        .routes(or_405(routes!(kinds::list)))
        .routes(or_405(routes!(breakers::list)))
        .routes(or_405(routes!(breakers::reset)))
        .routes(or_405(routes!(breakers::open)))
        .routes(or_405(routes!(capabilities::show)))
        .routes(or_405(routes!(audit::list)))
        .layer(DefaultBodyLimit::max(ONE_BYTES_MAX));
    many.merge(one)
        .fallback(no_such_route)
        .layer(Extension(Arc::new(SeenWorkers::default())))
}

/// With an answer for methods that a path does not have.
fn or_405((schemas, paths, methods): UtoipaMethodRouter<App>) -> UtoipaMethodRouter<App> {
    (schemas, paths, methods.fallback(no_such_method))
}

async fn no_such_route(OriginalUri(uri): OriginalUri) -> Problem {
    Problem::not_found(format_args!(
        "there is no {}; /openapi.json lists what there is",
        uri.path()
    ))
}

async fn no_such_method(method: Method, OriginalUri(uri): OriginalUri) -> Problem {
    Problem::method_not_allowed(format_args!(
        "{method} does not go with {}; /openapi.json lists what does",
        uri.path()
    ))
}
