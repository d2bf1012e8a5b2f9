//! Stores that fail under load: jobs are pushed and worked all the time while a server, or the way
//! to it, goes away and comes back. Afterwards the worker must be at work again without anybody's
//! help, and no promise may be broken.

#![expect(
    clippy::print_stdout,
    reason = "what was measured belongs to what a test says"
)]

mod failover;
mod network;
mod restart;
mod slots;
mod stream;
