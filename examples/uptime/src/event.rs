//! What goes into the stream and what comes out of it.
//!
//! The words and fields are those of the engine, so that handing over is copying.

use crate::wire::SubscriptionId;
use bytes::Bytes;

/// A result that passed validation, on its way into the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The subscription.
    pub key: SubscriptionId,
    /// When the check was to be made, in milliseconds since 1970.
    pub position: i64,
    /// Milliseconds from one check to the next.
    pub step: i64,
    /// The organization.
    pub tenant: String,
    /// The result, byte for byte.
    pub payload: Bytes,
}

/// Something whose turn has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The subscription.
    pub key: SubscriptionId,
    /// When the check was to be made.
    pub position: i64,
    /// Milliseconds from one check to the next.
    pub step: i64,
    /// What happened to that position.
    pub effect: Effect,
    /// The result, where there is one.
    pub payload: Option<Bytes>,
    /// For a miss: the result after the gap.
    pub following: Option<Bytes>,
}

/// What happened to a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Its result is there.
    Handled,
    /// It was given up.
    Miss,
    /// It and those after it were given up.
    MissRange {
        /// The last of them.
        to: i64,
        /// How many.
        count: u64,
    },
    /// Its result came after it was given up.
    Amended,
}

impl Effect {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Handled => "handled",
            Self::Miss => "miss",
            Self::MissRange { .. } => "miss_range",
            Self::Amended => "amended",
        }
    }
}
