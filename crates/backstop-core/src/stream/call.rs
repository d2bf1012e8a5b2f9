//! The next step of a key: a handler call to make, or an event that has happened.

use super::grid::OffStep;
use crate::time::Time;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyStep {
    /// The caller runs the handler and reports the result; then the window goes on.
    Call(HandlerCall),
    /// An event that the window has already recorded.
    Event(KeyEvent),
}

/// A call of the stream's handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandlerCall {
    /// A record whose turn has come.
    Handle { position: i64 },
    /// A position whose record did not arrive.
    Miss { position: i64 },
    /// The rest of a gap that is too wide to report position by position.
    MissRange { position: i64, to: i64, count: u64 },
    /// A record that arrived after its position was declared missed.
    Amend { position: i64 },
}

impl HandlerCall {
    /// The position of the call; for a range, its first position.
    pub const fn position(self) -> i64 {
        match self {
            Self::Handle { position }
            | Self::Miss { position }
            | Self::MissRange { position, .. }
            | Self::Amend { position } => position,
        }
    }

    /// The name of the call for handlers, logs and replays.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Handle { .. } => "handled",
            Self::Miss { .. } => "miss",
            Self::MissRange { .. } => "miss_range",
            Self::Amend { .. } => "amended",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyEvent {
    /// A record at a position that is already handled, passed or held.
    Duplicate {
        position: i64,
        /// Set if the position is off the grid of its key. Then the handler may never have seen
        /// the record.
        off_step: Option<OffStep>,
    },
    /// A record at a position that was declared missed; the key drops it.
    Late { position: i64 },
    /// A record of a disabled key; the key drops it.
    Ignored { position: i64 },
    /// A record starts to wait.
    Held { position: i64 },
    /// The key waits for its gap, and is checked again at `until`.
    Wait {
        /// The lowest held position of the key.
        position: i64,
        until: Time,
        /// The number of this wait, counted from 1.
        attempt: u32,
    },
    /// The key holds too many records. It now handles all of them, with misses.
    Overflow {
        /// The lowest held position of the key.
        position: i64,
    },
    /// The key has waited long enough. It now handles all held records, with misses.
    Timeout {
        /// The lowest held position of the key.
        position: i64,
    },
    /// The last held record has left, and the key gave up nothing for it.
    Cleared { position: i64 },
}
