//! Ordered streams. Records may arrive out of order, twice, late or never. The handler gets the
//! records of each key once, in the order of their positions. A missing position is declared missed
//! once, and only after the stream has waited for it.
//!
//! A [`KeyWindow`] is the state of one key: its watermark, its held records and the gap it waits
//! for. [`KeyWindow::arrive`] adds arrivals; each call of [`KeyWindow::next`] then returns the next
//! step. A [`KeyEvent`] reports a fact that the window has already recorded. A [`HandlerCall`] asks
//! the caller to run the handler; the caller reports the result with [`KeyWindow::complete`],
//! [`KeyWindow::fail`] or [`KeyWindow::bury`]. Nothing here reads a clock or a store, so a worker,
//! a replay and a test take the same steps.
//!
//! | a record at | of a key that | is |
//! |---|---|---|
//! | any position | is new | handled; it is the baseline |
//! | any position | is disabled | ignored |
//! | the watermark or below it | had declared the position missed | late: dropped, or handled as a correction |
//! | the watermark or below it | had not | a duplicate; if it is off the grid of its key, it is also logged and counted as off-step |
//! | the position of a held record | | a duplicate |
//! | up to watermark + step | holds nothing | handled |
//! | up to watermark + step | waits for a later gap or, with `drain = "scheduled"`, for its turn | handled with the records that follow it without a gap; or held |
//! | a higher position | | held: there is a gap |
//!
//! | a key with a gap | then |
//! |---|---|
//! | has a record handled | starts a new wait, for the next gap |
//! | reaches the end of a wait, and the gap is still open | waits for the next of `steps` |
//! | reaches the end of the last wait, or has held a record for `hold_for` | gives up: timeout |
//! | holds `max_held` records | gives up: overflow |
//! | gives up | handles all held records in order, with a miss for each missing position |
//! | has a record whose handler failed | is blocked until the next attempt, and gives up nothing meanwhile |
//! | has a record that failed for good | goes past it, or halts until an operator acts |
//!
//! A miss moves the watermark just as a record does, so a crash between two misses repeats neither.

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
