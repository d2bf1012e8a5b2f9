//! The command line as its users meet it: real processes on real stores.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test, a panic is how to say no"
)]

mod alerts;
mod bench_http;
mod bench_pages;
mod breaker;
mod config;
mod dead;
mod demo;
mod doctor;
mod drill;
mod every_command;

mod exec;
mod hostile;
mod http;
mod job;
mod killed;
mod logs;
mod place;
mod policy;
mod push;
mod queue;
mod reason;
mod schedule;
mod serve;
mod server;
mod store;
mod stores;
mod stream;
mod sweep;
mod table;
mod token;
mod top;
#[cfg(feature = "otlp")]
mod traces;
mod work;
mod workers;
