//! A lease as it travels: everything that ending its run needs to know, beside the job's id.

use backstop_core::{JobId, Lease, LeaseNumber, LeasedRun, QueueName, Span, Time};
use std::fmt;
use std::str::FromStr;

/// The right to end a run, in the hands of a worker elsewhere. Written as one word that says
/// nothing to whoever carries it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseToken {
    pub(super) number: LeaseNumber,
    /// The run it is for: 1 for the first.
    pub(super) attempt: u32,
    /// How long the lease was asked for: a beat asks for as much.
    pub(super) term: Span,
    pub(super) data: TokenData,
    pub(super) queue: QueueName,
}

/// What came before, for the most part nothing; a ticket without any of it does not write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct TokenData {
    /// Runs of the job whose worker vanished.
    pub(super) lost_leases: u32,
    /// When the run was handed out.
    pub(super) began_at: Time,
    /// The epoch of its queue's breaker.
    pub(super) epoch: u64,
    /// The epoch of its kind's gate, plus one, if it is a probe of it.
    pub(super) probe: u64,
}

/// Text that is no ticket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this is not the `lease` of a job that was handed out here")]
pub struct InvalidLeaseToken;

impl LeaseToken {
    pub(super) fn new(run: &LeasedRun, term: Span, data: TokenData) -> Self {
        Self {
            number: run.lease.number,
            attempt: run.attempt(),
            term,
            data,
            queue: run.lease.queue.clone(),
        }
    }

    /// The lease of a job.
    pub(super) fn lease(self, job: JobId) -> Lease {
        Lease {
            queue: self.queue,
            job,
            number: self.number,
        }
    }

    /// The queue of its job, as it says itself. The number beside it is known only to whoever took
    /// the job from there.
    pub const fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// The ticket that `text` is; `before` is one whose queue it likely shares, so that a batch of
    /// one queue makes its name once.
    pub fn read(text: &str, before: Option<&Self>) -> Result<Self, InvalidLeaseToken> {
        let mut parts = text.splitn(5, '-');
        let mut part = || parts.next().ok_or(InvalidLeaseToken);
        let number =
            LeaseNumber::from_i64(i64::from_str_radix(part()?, 16).map_err(|_| InvalidLeaseToken)?);
        let attempt = part()?.parse().map_err(|_| InvalidLeaseToken)?;
        let term = Span::millis(i64::from_str_radix(part()?, 16).map_err(|_| InvalidLeaseToken)?);
        let data = TokenData::read(part()?).ok_or(InvalidLeaseToken)?;
        let queue = part()?;
        let queue = match before.filter(|before| before.queue.as_str() == queue) {
            Some(before) => before.queue.clone(),
            None => QueueName::new(queue).map_err(|_| InvalidLeaseToken)?,
        };
        Ok(Self {
            number,
            attempt,
            term,
            data,
            queue,
        })
    }
}

impl TokenData {
    fn read(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::default());
        }
        let mut parts = text
            .split('.')
            .map(|part| u64::from_str_radix(part, 16).ok());
        let mut part = || parts.next().flatten();
        let data = Self {
            lost_leases: u32::try_from(part()?).ok()?,
            began_at: Time::from_micros(part()?.cast_signed()),
            epoch: part()?,
            probe: part()?,
        };
        parts.next().is_none().then_some(data)
    }
}

impl fmt::Display for TokenData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return Ok(());
        }
        let Self {
            lost_leases,
            began_at,
            epoch,
            probe,
        } = self;
        write!(
            f,
            "{lost_leases:x}.{:x}.{epoch:x}.{probe:x}",
            began_at.as_micros()
        )
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            attempt,
            term,
            data: past,
            queue,
        } = self;
        write!(
            f,
            "{:x}-{attempt}-{:x}-{past}-{queue}",
            number.as_i64(),
            term.as_millis()
        )
    }
}

impl FromStr for LeaseToken {
    type Err = InvalidLeaseToken;

    fn from_str(text: &str) -> Result<Self, InvalidLeaseToken> {
        Self::read(text, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_reads_back_whatever_the_queue_is_called() {
        let data = TokenData {
            lost_leases: 2,
            began_at: Time::from_millis(1_767_225_600_000),
            epoch: 7,
            probe: 1,
        };
        for past in [
            TokenData::default(),
            data,
            TokenData {
                epoch: 3,
                ..TokenData::default()
            },
        ] {
            for queue in ["q", "a-b--c", "-", "x.y_z"] {
                let ticket = LeaseToken {
                    number: LeaseNumber::draw(99),
                    attempt: 3,
                    term: Span::secs(15),
                    data: past,
                    queue: QueueName::new(queue).unwrap(),
                };
                assert_eq!(ticket.to_string().parse(), Ok(ticket.clone()), "{ticket}");
                assert_eq!(
                    LeaseToken::read(&ticket.to_string(), Some(&ticket)),
                    Ok(ticket)
                );
            }
        }
    }

    #[test]
    fn what_nobody_handed_out_is_no_ticket() {
        for text in [
            "",
            "-",
            "----",
            "1",
            "4000-1-3a98--",
            "4000-1-3a98-1-q",
            "x-1-3a98--q",
            "4000-1-3a98--a b",
            "4000--1-3a98--q",
        ] {
            assert!(text.parse::<LeaseToken>().is_err(), "{text}");
        }
    }
}
