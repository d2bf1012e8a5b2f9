//! Dead letters: jobs that were given up, with everything that is known about why.
//!
//! [`Backstop::dead`] gives the handle. Looking is [`DeadLetters::stats`],
//! [`groups`](DeadLetters::groups), [`list`](DeadLetters::list) and [`show`](DeadLetters::show);
//! changing is [`requeue`](DeadLetters::requeue), [`move_to`](DeadLetters::move_to),
//! [`delete`](DeadLetters::delete) and [`clear`](DeadLetters::clear);
//! [`export`](DeadLetters::export) and [`import`](DeadLetters::import) carry them elsewhere;
//! [`redrive`] requeues a few, watches them, and goes on or stops by itself.
//!
//! - A store that fails is an error, never an empty answer. A letter that cannot be read is told as
//!   damaged and hides no other.
//! - Every change is made by the store, one job at a time and only while that job is dead: it is
//!   never in neither place, and one that has left the dead letters meanwhile is not touched.
//! - Nothing is changed before an entry of the [`audit`](crate::audit) says who is about to.
//! - What is shown is redacted by name. The payload is whole in [`show`](DeadLetters::show) and
//!   [`export`](DeadLetters::export); error texts are redacted there too, so that a backup never
//!   holds more of an answer's credentials than a page does. An import therefore has errors as they
//!   were shown, and groups them by these.

mod change;
mod filter;
mod groups;
mod import;
mod letter;
mod page;
pub mod redrive;

use crate::audit::{AuditEntry, AuditLog, AuditReason};
use crate::client::Backstop;
use crate::worker::QueueSettings;
use backstop_core::amend::Filter;
use backstop_core::port::StoreResult;
use backstop_core::redact::Redaction;
use backstop_core::{Job, JobId, JobState, QueueName, RetryPolicy};
pub use change::{DeadChangeResult, DeadSelection};
pub use filter::DeadFilter;
pub use groups::{DeadGroup, DeadGroupSample};
pub use import::{ImportedDeadLetter, InvalidDeadLetter, LETTER_BYTES_MAX};
pub use letter::{DeadLetter, OriginalJob};
pub use page::DeadPage;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many dead letters there are.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct DeadStats {
    /// Of every queue, those without any included.
    pub queues: BTreeMap<QueueName, u64>,
    pub total: u64,
}

/// What became of a search for one dead letter.
#[derive(Clone, Debug)]
pub enum DeadLetterLookup {
    /// Here it is, with its payload whole.
    Letter(Box<DeadLetter>),
    /// The job is there, and in another state.
    OtherState(JobState),
    /// There is no such job.
    NotFound,
}

/// The dead letters of a store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    backstop: Backstop,
    log: AuditLog,
    redaction: Arc<Redaction>,
    policies: Arc<BTreeMap<QueueName, RetryPolicy>>,
}

impl Backstop {
    /// The dead letters of this store.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use backstop::dead::{DeadFilter, DeadSelection};
    ///
    /// let backstop = backstop::Backstop::open("memory:").await?;
    /// let dead = backstop.dead().by("ada@example.org");
    /// assert_eq!(dead.stats().await?.total, 0);
    /// let timeouts = DeadFilter { error_type: Some("Timeout".to_owned()), ..DeadFilter::default() };
    /// let changed = dead.requeue(&DeadSelection::Matching(timeouts)).await?;
    /// assert_eq!(changed.count, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn dead(&self) -> DeadLetters {
        DeadLetters {
            backstop: self.clone(),
            log: self.audit("unknown"),
            redaction: self.redaction(),
            policies: Arc::default(),
        }
    }
}

impl DeadLetters {
    /// On behalf of this person or program: what the audit says.
    #[must_use]
    pub fn by(mut self, who: &str) -> Self {
        self.log = self.log.by(who);
        self
    }

    /// For this reason, if there is one: what the audit says of every change from here on.
    #[must_use]
    pub fn because(mut self, reason: impl Into<Option<AuditReason>>) -> Self {
        self.log = self.log.because(reason);
        self
    }

    /// With other names of secrets than the usual ones.
    #[must_use]
    pub fn redacting(mut self, redaction: Redaction) -> Self {
        self.redaction = Arc::new(redaction);
        self
    }

    /// With the retry policies of queues, for jobs that have none of their own: they say how many
    /// runs there could be.
    #[must_use]
    pub fn with_retry_policies(mut self, policies: BTreeMap<QueueName, RetryPolicy>) -> Self {
        self.policies = Arc::new(policies);
        self
    }

    /// The changes, of dead letters and of everything else, the newest first.
    pub async fn audit(&self, limit: usize) -> StoreResult<Vec<AuditEntry>> {
        self.log.entries(limit).await
    }

    pub async fn stats(&self) -> StoreResult<DeadStats> {
        let queues = self
            .backstop
            .store()
            .queues(self.backstop.current_time().await)
            .await?;
        let counts = queues
            .into_iter()
            .map(|queue| (queue.name, queue.counts.of(JobState::Dead)));
        let queues: BTreeMap<_, _> = counts.collect();
        Ok(DeadStats {
            total: queues.values().sum(),
            queues,
        })
    }

    /// How many fit, where that can be told without reading them all.
    pub async fn estimate(&self, filter: &DeadFilter) -> StoreResult<Option<u64>> {
        let by_queue = DeadFilter {
            queue: filter.queue.clone(),
            ..DeadFilter::default()
        };
        if *filter == by_queue {
            let stats = self.stats().await?;
            let of_queue = |queue| stats.queues.get(queue).copied().unwrap_or_default();
            return Ok(Some(filter.queue.as_ref().map_or(stats.total, of_queue)));
        }
        let by_group = DeadFilter {
            fingerprint: filter.fingerprint,
            ..by_queue
        };
        if *filter != by_group {
            return Ok(None);
        }
        let groups = self
            .raw_groups(filter.queue.clone(), backstop_core::limits::GROUPS_MAX)
            .await?;
        let fitting = groups
            .iter()
            .filter(|group| Some(group.fingerprint) == filter.fingerprint);
        Ok(Some(fitting.map(|group| group.count).sum()))
    }

    /// One of them, with its payload whole.
    pub async fn show(&self, id: JobId) -> StoreResult<DeadLetterLookup> {
        Ok(self.look_up(self.backstop.job(id).await?.as_ref()))
    }

    /// What there is to show of a job that was looked for.
    pub fn look_up(&self, job: Option<&Job>) -> DeadLetterLookup {
        match job {
            None => DeadLetterLookup::NotFound,
            Some(job) if job.state == JobState::Dead => {
                DeadLetterLookup::Letter(Box::new(self.full_letter(job)))
            }
            Some(job) => DeadLetterLookup::OtherState(job.state),
        }
    }

    /// As it may be seen by whoever may see the job itself.
    fn full_letter(&self, job: &Job) -> DeadLetter {
        DeadLetter::new(job, self.max_attempts(job), &self.redaction)
    }

    /// As it may be seen in a list.
    fn redacted_letter(&self, job: &Job) -> DeadLetter {
        let payload =
            backstop_core::Payload::from_stored(self.redaction.payload(job.payload.as_bytes()));
        let mut letter = self.full_letter(&Job {
            payload,
            ..job.clone()
        });
        // Beside what is hidden, the bytes of the rest would only look like the payload.
        letter.original_job.payload_hex = None;
        letter
    }

    fn max_attempts(&self, job: &Job) -> Option<u32> {
        let of_queue = || self.policies.get(&job.queue).cloned();
        let policy = job.options.retry().or_else(of_queue);
        policy
            .unwrap_or_else(|| QueueSettings::default_for(&job.queue).retry)
            .max_attempts()
    }
}

/// What the store's own filter can tell of dead letters in this queue.
fn of_queue(queue: Option<QueueName>) -> Filter {
    Filter {
        queue,
        state: Some(JobState::Dead),
        ..Filter::default()
    }
}

#[cfg(test)]
mod tests;
