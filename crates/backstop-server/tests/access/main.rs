//! Who gets in, and who does not: every route there is, asked by everybody who might.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test, a panic is how to say no"
)]

mod counted;
mod failures;
mod given;
mod headers;
mod limits;
mod listener;
mod looking;
mod mounted;
mod new_queues;
mod outage;
mod reach;
mod reads;
mod routes;
mod same_id;
mod scopes;
mod sessions;
mod strangers;
mod tls;
