//! What can go wrong with a store. "No" is never an error: it is a value, per item.

use crate::name::QueueName;

/// A store failed. Nothing is said about what it had already done: every method may be called again
/// as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It did not answer, or not in time; trying again later may help.
    #[error("the store did not answer while {doing}: {cause}")]
    Unavailable {
        /// What was asked of it.
        doing: &'static str,
        /// What it, or the way to it, said.
        cause: String,
    },
    /// What it holds cannot be understood; trying again will not help.
    #[error(
        "the store holds something it should not, seen while {doing}: {cause}. Run `backstop doctor`"
    )]
    Corrupt {
        /// What was asked of it.
        doing: &'static str,
        cause: String,
    },
    /// It was asked for something that cannot be.
    #[error("{doing} is refused: {cause}")]
    Misuse {
        /// What was asked of it.
        doing: &'static str,
        /// What is wrong with it.
        cause: String,
    },
    /// A pushed job names a new queue, and the store has no room for one. Nothing of the call was
    /// enqueued.
    #[error("{cause}")]
    TooManyQueues {
        /// Which queue, how many there may be, and what to do.
        cause: String,
    },
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "callers hand over causes they are done with"
)]
impl StoreError {
    /// The store did not answer.
    pub fn unavailable(doing: &'static str, cause: impl ToString) -> Self {
        Self::Unavailable {
            doing,
            cause: cause.to_string(),
        }
    }

    /// The store holds something it should not.
    pub fn corrupt(doing: &'static str, cause: impl ToString) -> Self {
        Self::Corrupt {
            doing,
            cause: cause.to_string(),
        }
    }

    pub fn misuse(doing: &'static str, cause: impl ToString) -> Self {
        Self::Misuse {
            doing,
            cause: cause.to_string(),
        }
    }

    /// A job names a new queue, and the store already has `max` of them.
    pub fn too_many_queues(queue: &QueueName, max: usize) -> Self {
        let cause = format!(
            "queue {queue} is new, and the store already has {max} queues. Push to a queue that exists, or raise \
             `max_queues` under `[store]`; nothing was enqueued"
        );
        Self::TooManyQueues { cause }
    }

    /// Whether the same call may succeed later.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

pub type StoreResult<T> = Result<T, StoreError>;
