//! The pages of streams, schedules, sweeps, tables and the policy lab, as a browser gets them.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is how to say no")]

mod policy;
mod schedules;
mod site;
mod streams;
mod sweeps;
mod tables;
