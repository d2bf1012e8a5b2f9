//! Ordered streams: records that arrive out of order, twice, late or never are handled per key in
//! the order of their positions, once, and what is missing is declared missing once, and only after
//! it was waited for.
//!
//! A [`Window`] is what is known of one key: its watermark, the records it holds, what it waits
//! for. Arrivals are put in with [`Window::arrive`]; [`Window::next`] then says step by step what
//! follows. A [`Note`] is a fact the window has already taken in; a [`Call`] asks for the handler,
//! and the window goes on with [`Window::done`], [`Window::failed`] or [`Window::buried`]. Nothing
//! here reads a clock or a store: a worker, a replay and a test go through the same steps.
//!
//! | a record at | of a key that | is |
//! |---|---|---|
//! | any position | is new | handled: the baseline |
//! | any position | is disabled | ignored |
//! | or below the watermark | had declared it missed | late: dropped, or handled as a correction |
//! | or below the watermark | had not | a duplicate; one that is off the grid of its key is told and counted as such, too |
//! | a position that is held | | a duplicate |
//! | up to watermark + step | holds nothing | handled |
//! | up to watermark + step | waits for a later gap or, `drain = "scheduled"`, for its turn | handled with its run; or held |
//! | further up | | held: there is a gap |
//!
//! | a key with a gap | then |
//! |---|---|
//! | has something handled | its wait starts anew, for the next gap |
//! | was looked at in vain | waits for the next of `steps` |
//! | was looked at in vain after the last of them, or holds a record for `hold_for` | gives up: timeout |
//! | holds `max_held` records | gives up: overflow |
//! | gives up | all it holds is handled in order, with a miss for each position that is missing |
//! | has a record whose handler failed | is blocked until its next attempt; nothing is given up meanwhile |
//! | has a record that failed for good | goes past it, or halts until somebody acts |
//!
//! The watermark moves with misses as it does with records, so that a crash between two of them
//! repeats none.

mod alarm;
mod call;
mod counts;
mod grid;
mod key_state;
mod missed;
mod record;
pub mod replay;
mod rollout;
mod rules;
mod stored;
mod window;

pub use alarm::{AlarmWatch, StreamAlarm, recent_alarms};
pub use call::{HandlerCall, KeyEvent, KeyStep};
pub use counts::{StreamCounter, StreamCounts};
pub use grid::OffStep;
pub use key_state::{FailingCall, GapWait, InvalidKeyState, KeyState, OffStepRecord, OfflineRange};
pub use missed::MissedPositions;
pub use record::{HeldRecord, InvalidRecord, Record};
pub use rollout::Rollout;
pub use rules::{DeadRecordPolicy, DrainMode, InvalidStreamRules, LatePolicy, StreamRules};
pub use stored::{KeyChange, StoredKey, StoredRecord};
pub use window::{
    CallCompletion, FailedCallDecision, HandlerFailure, KeyWindow, RememberedKey, ResumeFrom,
};

#[cfg(test)]
mod tests;
