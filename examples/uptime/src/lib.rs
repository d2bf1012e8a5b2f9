//! The consumer of uptime results, from the wire to incidents, and a race between ways of putting
//! results in order.
//!
//! Checks of a site are made every minute or so, and their results reach the consumer out of order,
//! twice, late or never. A result passes, in this order:
//!
//! | module | what it does |
//! |---|---|
//! | [`wire`] | reads it, and keeps its bytes |
//! | [`validate`] | decides with the [`directory`] whether it goes on |
//! | [`sequencer`] | decides when it is handled, and what was missed: [`immediate`], at once, or [`stream`], in order |
//! | [`process`] | judges it with the [`standing`] of its detector, and writes its line ([`output`]) |
//! | [`memory`] | keeps all of that, once for each event |
//!
//! [`consumer`] ties them together for any source: files ([`lines`]), requests ([`http`]), and with
//! the feature `kafka` a topic. [`generate`] makes a [`world`] in which results go astray, [`run`]
//! plays it to worker processes, [`report`] and [`svg`] say what came of it.

pub mod clock;
pub mod consumer;
pub mod directory;
pub mod event;
pub mod generate;
#[cfg(test)]
mod given;
pub mod http;
pub mod immediate;
pub mod intake;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod limits;
pub mod lines;
pub mod memory;
pub mod mode;
pub mod output;
pub mod process;
pub mod report;
pub mod run;
pub mod sequencer;
pub mod standing;
pub mod stream;
pub mod svg;
pub mod validate;
pub mod wire;
pub mod world;
