//! Real worker processes on one store, and `kill -9`: what they wrote down outside the store is
//! checked against what the store ended up with.

#![expect(
    clippy::print_stdout,
    reason = "what was measured belongs to what a test says"
)]

mod crash;
mod crew;
mod fleet;
mod ordered;
mod poison;
mod share;
mod tables;
