//! The pages of queues, jobs, dead letters, workers, breakers and the audit, as a browser gets
//! them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test, a panic is how to say no"
)]

mod actions;
mod audit;
mod breakers;
mod dead;
mod empty;
mod events;
mod frame;
mod given;
mod hostile;
mod job;
mod jobs;
mod kinds;
mod overview;
mod queues;
mod runs;
#[path = "../pages2/site.rs"]
mod site;
mod store;
