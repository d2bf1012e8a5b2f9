//! Ordered streams whose processes are killed: what is brought to them, what their handlers did,
//! and what must hold of it.
//!
//! | a key's calls, as the log has them | must |
//! |---|---|
//! | one after the other | never overlap; the call of a killed process ends with it |
//! | by position | be all that were brought, each once, and one miss for each that was not, in order |
//! | that were in flight when their process was killed | come again, at most, right behind themselves |
//! | whose records were answered as handled | never come again |

mod check;
mod log;
mod trace;

pub use check::{Checked, Violation, check};
pub use log::{EventLog, Line, Seen};
pub use trace::{Expected, STEP, Trace};

#[cfg(test)]
mod tests;
