//! `/v1`, route by route: what it answers when all is well, and when it is not.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test, a panic is how to say no"
)]

mod audit;
mod breakers;
mod bulk;
mod dead;
mod fuzz;
mod given;
mod gone;
mod hostile;
mod jobs;
mod kinds;
mod large;
mod openapi;
mod push;
mod queues;
mod recovery;
mod sqlite;
mod streams;
mod traces;
mod work;
mod workers;
