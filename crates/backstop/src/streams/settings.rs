//! How a stream is served.

use backstop_core::Span;
use backstop_core::limits::{LEASE_MAX, LEASE_MIN};
use backstop_core::name::InvalidName;
use backstop_core::stream::StreamRules;

/// How a stream is served.
#[derive(Clone, Debug)]
pub struct StreamSettings {
    /// How long to wait, how much to hold, what to do with what comes too late.
    pub rules: StreamRules,
    /// Calls of the handler at once.
    pub concurrency: usize,
    /// How long one call may take.
    pub timeout: Option<Span>,
    /// How long a key stays with a process that gives no sign of life.
    pub lease: Span,
    /// Calls for one key between two writes to the store. At 1, a killed process repeats at most
    /// the call that was in flight for each key; with more, that many, and a batch with many
    /// records of one key costs fewer round trips.
    pub run: usize,
    /// The longest time between two looks for keys that are due; hints make it shorter.
    pub poll: Span,
    /// How long the first finished key of a batch waits for company before it is written.
    pub linger: Span,
    /// How long the store may be silent before records are handled without it, at once and with
    /// misses.
    pub patience: Span,
    /// How long a stopping stream waits for calls that are under way.
    pub grace: Span,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self {
            rules: StreamRules::default(),
            concurrency: 64,
            timeout: None,
            lease: Span::secs(15),
            run: 1,
            poll: Span::secs(1),
            linger: Span::millis(5),
            patience: Span::secs(5),
            grace: Span::secs(30),
        }
    }
}

/// A stream that cannot be served.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StreamSetupError {
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error("stream {stream}: {problem}")]
    Settings {
        stream: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// The thread that keeps leases alive could not be started.
    #[error("the stream's service thread could not be started: {0}")]
    Thread(String),
}

impl StreamSettings {
    pub(crate) fn check(&self) -> Result<(), String> {
        self.rules.check().map_err(|error| error.to_string())?;
        if self.concurrency == 0 {
            return Err("`concurrency` must be at least 1".to_owned());
        }
        if self.run == 0 {
            return Err("`run` must be at least 1".to_owned());
        }
        if !(LEASE_MIN..=LEASE_MAX).contains(&self.lease) {
            return Err(format!(
                "`lease` must be from {LEASE_MIN} to {LEASE_MAX}; it is {}",
                self.lease
            ));
        }
        if self.timeout.is_some_and(Span::is_zero) {
            return Err("`timeout` must be longer than nothing; leave it out for none".to_owned());
        }
        Ok(())
    }
}
