//! The JSON shapes that the API and the command line share: written once, so that both say the
//! same.
//!
//! Shapes whose fields stand in alphabetical order came from the command line, which has always
//! written them so.

pub mod audit;
pub mod breaker;
pub mod bulk;
pub mod capabilities;
pub mod dead;
pub mod job;
pub mod kind;
pub(crate) mod letter;
pub mod list;
mod payload;
pub mod push;
pub mod queue;
pub mod schedule;
pub mod stream;
pub mod sweep;
pub mod table;
pub mod why;
pub mod work;
pub mod worker;

pub use payload::PayloadShape;
