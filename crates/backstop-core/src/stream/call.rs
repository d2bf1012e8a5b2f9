//! What follows for a key: something to do, or something that is so.

use super::grid::OffStep;
use crate::time::Time;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyStep {
    /// The handler is to be called; the window goes on when it is told what came of it.
    Call(HandlerCall),
    /// Something is so; the window has taken it in.
    Event(KeyEvent),
}

/// A call of the handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandlerCall {
    /// A record, at its turn.
    Handle { position: i64 },
    /// A position whose record did not come.
    Miss { position: i64 },
    /// The rest of a gap that is too wide to be told one by one.
    MissRange { position: i64, to: i64, count: u64 },
    /// A record that came after it was declared missing.
    Amend { position: i64 },
}

impl HandlerCall {
    /// The place it is about; the first of a range.
    pub const fn position(self) -> i64 {
        match self {
            Self::Handle { position }
            | Self::Miss { position }
            | Self::MissRange { position, .. }
            | Self::Amend { position } => position,
        }
    }

    /// Its word for handlers, logs and replays.
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
    /// A record for a position that was handled, passed or is held.
    Duplicate {
        position: i64,
        /// Where that is, if it is off the grid of its key: then nobody may have seen the record.
        off_step: Option<OffStep>,
    },
    /// A record for a position that was declared missing; it is dropped.
    Late { position: i64 },
    /// A record of a disabled key.
    Ignored { position: i64 },
    /// A record waits from now on.
    Held { position: i64 },
    /// The key will be looked at again.
    Wait {
        /// The lowest place that is held.
        position: i64,
        until: Time,
        /// For the how manieth time.
        attempt: u32,
    },
    /// Too much is held: all of it is handled now, with misses.
    Overflow {
        /// The lowest place that is held.
        position: i64,
    },
    /// It was waited for long enough: all that is held is handled now, with misses.
    Timeout {
        /// The lowest place that is held.
        position: i64,
    },
    /// Nothing is held any more, and nothing was given up for it.
    Cleared { position: i64 },
}
