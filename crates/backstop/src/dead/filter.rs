//! Which dead letters: by where they are, and by what they died of.

use super::letter::DeathCause;
use backstop_core::amend::Filter;
use backstop_core::port::ListOrder;
use backstop_core::redact::Redaction;
use backstop_core::{Fingerprint, Job, JobState, Kind, QueueName, Time};
use serde::{Deserialize, Serialize};

/// Which dead letters; what is `None` does not matter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeadFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Dead of an error of this class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// That died at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// That died at this time or earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// With this in the error, its class or the payload, in whatever case; space around it counts
    /// for nothing. What is redacted is not searched: a search must not tell what a page hides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl DeadFilter {
    /// Whether it says nothing at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The name of a field that has nothing but space in it, if there is one: every letter would
    /// fit it, or none.
    pub(super) fn blank_field(&self) -> Option<&'static str> {
        let texts = [
            ("text", self.text.as_deref()),
            ("error_type", self.error_type.as_deref()),
        ];
        let is_blank = |text: &str| text.trim().is_empty();
        texts
            .into_iter()
            .find(|(_, text)| text.is_some_and(is_blank))
            .map(|(name, _)| name)
    }

    /// As reports and the audit tell it: secrets in its texts are hidden.
    #[must_use]
    pub(super) fn redacted(&self, redaction: &Redaction) -> Self {
        let shown = |text: &String| redaction.text(text);
        Self {
            error_type: self.error_type.as_ref().map(shown),
            text: self.text.as_ref().map(shown),
            ..self.clone()
        }
    }

    /// Whether a job is a dead letter that fits.
    pub fn fits(&self, job: &Job, redaction: &Redaction) -> bool {
        // Making a fingerprint takes a hash; most filters want none.
        let fingerprint = self.fingerprint.and_then(|_| job.fingerprint());
        self.store_filter()
            .fits(&job.queue, &job.kind, job.state, fingerprint)
            && self
                .since
                .is_none_or(|since| job.finished_at.is_some_and(|at| at >= since))
            && self
                .until
                .is_none_or(|until| job.finished_at.is_some_and(|at| at <= until))
            && self.fits_death(job, redaction)
    }

    fn fits_death(&self, job: &Job, redaction: &Redaction) -> bool {
        if self.error_type.is_none() && self.text.is_none() {
            return true;
        }
        let death = DeathCause::of(job.reason, job.history.failures().last(), redaction);
        let has_type = self.error_type.is_none() || self.error_type == death.error_type;
        let Some(text) = &self.text else {
            return has_type;
        };
        let (text, payload) = (
            text.trim().to_lowercase(),
            redaction.payload(job.payload.as_bytes()),
        );
        let shown = [
            death.message,
            death.error_type.unwrap_or_default(),
            String::from_utf8_lossy(&payload).into(),
        ];
        has_type
            && shown
                .iter()
                .any(|shown| shown.to_lowercase().contains(&text))
    }

    /// As much of it as the store can tell.
    pub(super) fn store_filter(&self) -> Filter {
        Filter {
            queue: self.queue.clone(),
            kind: self.kind.clone(),
            state: Some(JobState::Dead),
            fingerprint: self.fingerprint,
        }
    }

    /// Whether the store can tell all of it.
    pub(super) const fn is_covered_by_store(&self) -> bool {
        self.error_type.is_none()
            && self.since.is_none()
            && self.until.is_none()
            && self.text.is_none()
    }

    /// Only what was dead at `now`: what dies again behind our back is not met a second time.
    #[must_use]
    pub(super) fn as_of(&self, now: Time) -> Self {
        Self {
            until: Some(self.until.map_or(now, |until| until.min(now))),
            ..self.clone()
        }
    }

    /// Whether nothing behind `job` can fit, in a list of this order.
    pub(super) fn is_passed_at(&self, job: &Job, order: ListOrder) -> bool {
        job.finished_at.is_some_and(|at| match order {
            ListOrder::Newest => self.since.is_some_and(|since| at < since),
            ListOrder::Oldest => self.until.is_some_and(|until| at > until),
        })
    }
}

#[cfg(test)]
mod tests;
