//! How a store can fail. A refusal is never an error: it is a value, per item.

use crate::name::QueueName;

/// A store failed. The call may have been applied or not; every method may be repeated with the
/// same arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store did not answer in time; a later retry may succeed.
    #[error("the store did not answer while {doing}: {cause}")]
    Unavailable {
        /// The operation that the caller asked for.
        doing: &'static str,
        /// The error that the store or the network reported.
        cause: String,
    },
    /// The store holds data that this program cannot read; a retry does not help.
    #[error(
        "the store holds something it should not, seen while {doing}: {cause}. Run `backstop doctor`"
    )]
    Corrupt {
        /// The operation that the caller asked for.
        doing: &'static str,
        cause: String,
    },
    /// The store refuses a call that breaks a limit or a rule.
    #[error("{doing} is refused: {cause}")]
    Misuse {
        /// The operation that the caller asked for.
        doing: &'static str,
        /// Why the store refuses the call.
        cause: String,
    },
    /// A pushed job names a new queue, and the store already has its maximum number of queues.
    /// Nothing of the call was enqueued.
    #[error("{cause}")]
    TooManyQueues {
        /// The whole message: which queue, how many are allowed, and what to do.
        cause: String,
    },
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "callers hand over causes they are done with"
)]
impl StoreError {
    pub fn unavailable(doing: &'static str, cause: impl ToString) -> Self {
        Self::Unavailable {
            doing,
            cause: cause.to_string(),
        }
    }

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

    /// A job names a new queue, and the store already has `max` queues.
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
