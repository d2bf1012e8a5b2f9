//! Failures: one record per failure, and the history of a job's failures that the job carries.

use crate::job::JobId;
use crate::lease::{LeaseNumber, WorkerName};
use crate::limits::{
    ERROR_CHARS_MAX, HISTORY_MAX, LOST_WITHIN, RESPONSE_CHARS_MAX, STACK_CHARS_MAX,
};
use crate::time::{Span, Time};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Why a run did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    Failed,
    /// The run exceeded its timeout.
    TimedOut,
    Panicked,
    Lost,
}

/// The error that a handler reports for a failure.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ErrorReport {
    pub message: String,
    /// The class of the error.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack_trace: Option<String>,
    /// The status of the HTTP response behind the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    /// The body of that HTTP response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_body: Option<String>,
}

impl ErrorReport {
    /// An error of which only the message is known.
    pub fn message(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }

    /// Truncates the texts to their limits, and marks each cut.
    #[must_use]
    fn bounded(self) -> Self {
        let message = if self.message.trim().is_empty() {
            "Unknown error".to_owned()
        } else {
            self.message
        };
        Self {
            message: truncate_text(message, ERROR_CHARS_MAX),
            error_type: self
                .error_type
                .map(|text| truncate_text(text, ERROR_CHARS_MAX)),
            stack_trace: self
                .stack_trace
                .map(|text| truncate_text(text, STACK_CHARS_MAX)),
            http_status: self.http_status,
            response_body: self
                .response_body
                .map(|text| truncate_text(text, RESPONSE_CHARS_MAX)),
        }
    }
}

const TRUNCATED: &str = " [truncated]";

/// Truncates a text to `chars_max` characters, including the mark of the cut.
pub fn truncate_text(text: String, chars_max: usize) -> String {
    if text.len() <= chars_max || text.chars().count() <= chars_max {
        return text;
    }
    let kept = chars_max.saturating_sub(TRUNCATED.len());
    text.chars().take(kept).chain(TRUNCATED.chars()).collect()
}

/// One failure of one job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailureRecord {
    pub at: Time,
    /// The number of the run that failed, counted from 1.
    pub attempt: u32,
    pub cause: FailureCause,
    pub worker: String,
    #[serde(flatten)]
    pub error: ErrorReport,
    /// How long the job waited before its next run, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in: Option<Span>,
    /// The context of the failure, if the job died of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<DeathContext>,
}

/// What a worker knew about its surroundings when a job died. Facts that it could not find out are
/// absent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeathContext {
    /// The number of live jobs in each queue that the worker serves.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub queue_depths: BTreeMap<String, u64>,
    /// The states of the breakers and gates that apply to the worker.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub breakers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The machine on which the worker ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The workers that vanished while they ran the job, if it died of that; the latest is last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost_workers: Vec<String>,
}

impl FailureRecord {
    /// The record of a failure, with its texts truncated.
    pub fn new(
        at: Time,
        attempt: u32,
        cause: FailureCause,
        worker: &WorkerName,
        error: ErrorReport,
    ) -> Self {
        Self {
            at,
            attempt,
            cause,
            worker: worker.to_string(),
            error: error.bounded(),
            retry_in: None,
            context: None,
        }
    }

    /// The record of a run whose worker vanished.
    pub fn of_lost_lease(
        at: Time,
        attempt: u32,
        worker: &WorkerName,
        lease: LeaseNumber,
        job: JobId,
    ) -> Self {
        let message = lost_message(worker, lease, job);
        let error = ErrorReport {
            error_type: Some("LostLease".to_owned()),
            ..ErrorReport::message(message)
        };
        Self::new(at, attempt, FailureCause::Lost, worker, error)
    }

    /// Whether the failure is a lost lease within the time `within` before `now`.
    fn is_strike(&self, now: Time, within: Span) -> bool {
        self.cause == FailureCause::Lost && now.since(self.at) <= within
    }
}

fn lost_message(worker: &WorkerName, lease: LeaseNumber, job: JobId) -> String {
    // In hexadecimal, because the `lease` of a worker over HTTP begins with these digits.
    format!(
        "worker {worker} vanished while it ran {job} under lease {:x}",
        lease.as_i64()
    )
}

/// The failures of a job as a store keeps them: opaque bytes, always rewritten as a whole by the
/// holder of the lease.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FailureHistory(Option<Bytes>);

impl FailureHistory {
    pub fn from_stored(bytes: Option<Vec<u8>>) -> Self {
        Self(bytes.map(Bytes::from))
    }

    /// The bytes for the store; `None` if there was no failure.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }

    /// Whether the job has had no failure.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The failures, oldest first. Unreadable bytes become one entry that says so.
    pub fn failures(&self) -> Vec<FailureRecord> {
        let Some(bytes) = &self.0 else {
            return Vec::new();
        };
        serde_json::from_slice(bytes).unwrap_or_else(|error| vec![unreadable(&error)])
    }

    /// The message of the latest failure; empty if there is none.
    pub fn last_error(&self) -> String {
        self.failures()
            .pop()
            .map(|failure| failure.error.message)
            .unwrap_or_default()
    }

    /// Adds the context of a death to the last failure.
    #[must_use]
    pub fn with_context(&self, context: DeathContext) -> Self {
        let mut failures = self.failures();
        let Some(last) = failures.last_mut() else {
            return self.clone();
        };
        last.context = Some(context);
        Self(serde_json::to_vec(&failures).ok().map(Bytes::from))
    }

    /// Adds a failure. If there are too many, the first failure is always kept, then the lost
    /// leases that still count as strikes, then the latest failures.
    #[must_use]
    pub fn with_failure(&self, failure: FailureRecord) -> Self {
        let mut failures = self.failures();
        let now = failure.at;
        failures.push(failure);
        while failures.len() > HISTORY_MAX {
            // Without this, a job that fails often between its crashes would lose its strikes, and
            // never reach three of them.
            let between = 1..failures.len() - 1;
            let oldest = between
                .clone()
                .find(|at| !failures[*at].is_strike(now, LOST_WITHIN));
            failures.remove(oldest.unwrap_or(between.start));
        }
        Self(serde_json::to_vec(&failures).ok().map(Bytes::from))
    }

    /// Adds the wait between the last lost lease and a run that begins `now`. Returns the wait and
    /// the new history; `None` if the last failure is no lost lease, or an earlier run has already
    /// followed it.
    pub fn record_rerun(&self, now: Time) -> Option<(Span, Self)> {
        let mut failures = self.failures();
        let last = failures
            .last_mut()
            .filter(|last| last.cause == FailureCause::Lost && last.retry_in.is_none())?;
        let waited = now.since(last.at);
        last.retry_in = Some(waited);
        Some((
            waited,
            Self(serde_json::to_vec(&failures).ok().map(Bytes::from)),
        ))
    }

    /// Whether the last failure is a lost lease after which the job has run again.
    pub fn is_rerun(&self) -> bool {
        self.failures()
            .pop()
            .is_some_and(|last| last.cause == FailureCause::Lost && last.retry_in.is_some())
    }

    /// The number of lost leases within the time `within` before `now`.
    pub fn lost_since(&self, now: Time, within: Span) -> usize {
        self.lost_workers(now, within).len()
    }

    /// The workers that vanished with the job within the time `within` before `now`; the latest is
    /// last.
    pub fn lost_workers(&self, now: Time, within: Span) -> Vec<String> {
        let strikes = self
            .failures()
            .into_iter()
            .filter(|failure| failure.is_strike(now, within));
        strikes.map(|failure| failure.worker).collect()
    }

    /// The record of the loss of this very lease, if there is one.
    pub fn loss_of(&self, job: JobId, lease: LeaseNumber) -> Option<FailureRecord> {
        let is_of_lease = |failure: &FailureRecord| {
            failure.cause == FailureCause::Lost
                && failure.error.message
                    == lost_message(&WorkerName::new(&failure.worker), lease, job)
        };
        self.failures().into_iter().find(is_of_lease)
    }
}

fn unreadable(error: &serde_json::Error) -> FailureRecord {
    let report = ErrorReport {
        error_type: Some("UnreadableHistory".to_owned()),
        ..ErrorReport::message(format!(
            "earlier failures of this job could not be read: {error}"
        ))
    };
    FailureRecord::new(
        Time::default(),
        0,
        FailureCause::Failed,
        &WorkerName::new(""),
        report,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(attempt: u32, cause: FailureCause) -> FailureRecord {
        let at = Time::default().after(Span::hours(i64::from(attempt)));
        FailureRecord::new(
            at,
            attempt,
            cause,
            &WorkerName::new("w"),
            ErrorReport::message("boom"),
        )
    }

    #[test]
    fn text_is_cut_on_character_borders_and_marked_within_the_limit() {
        let exact = "é".repeat(4096);
        assert_eq!(truncate_text(exact.clone(), 4096), exact);
        let cut = truncate_text("é".repeat(4097), 4096);
        assert_eq!(cut.chars().count(), 4096);
        assert!(cut.ends_with("é [truncated]"));
        assert_eq!(truncate_text("x".repeat(2049), 2048).len(), 2048);
    }

    #[test]
    fn a_lost_lease_is_named_as_workers_over_http_know_it() {
        let (worker, job) = (WorkerName::new("w"), JobId::named("a"));
        let lease = LeaseNumber::from_i64(0x60e0_361d_0000_00ff);
        let failure = FailureRecord::of_lost_lease(Time::default(), 1, &worker, lease, job);
        assert_eq!(
            failure.error.message,
            format!("worker w vanished while it ran {job} under lease 60e0361d000000ff")
        );
    }

    #[test]
    fn an_error_without_words_is_unknown() {
        let failure = FailureRecord::new(
            Time::default(),
            1,
            FailureCause::Failed,
            &WorkerName::new("w"),
            ErrorReport::default(),
        );
        assert_eq!(failure.error.message, "Unknown error");
    }

    #[test]
    fn history_keeps_the_first_and_the_latest() {
        let history = (1..=100).fold(FailureHistory::default(), |history, n| {
            history.with_failure(failure(n, FailureCause::Failed))
        });
        let attempts: Vec<u32> = history
            .failures()
            .iter()
            .map(|failure| failure.attempt)
            .collect();
        assert_eq!(
            attempts,
            std::iter::once(1).chain(82..=100).collect::<Vec<_>>()
        );
        assert_eq!(
            FailureHistory::from_stored(history.as_bytes().map(<[u8]>::to_vec)),
            history
        );
    }

    #[test]
    fn lost_leases_are_counted_within_their_window() {
        let history = [
            (1, FailureCause::Lost),
            (2, FailureCause::Failed),
            (70, FailureCause::Lost),
            (75, FailureCause::Lost),
        ]
        .into_iter()
        .fold(FailureHistory::default(), |history, (hour, cause)| {
            history.with_failure(failure(hour, cause))
        });
        let at = |hour| Time::default().after(Span::hours(hour));
        assert_eq!(history.lost_since(at(73), Span::hours(72)), 3);
        assert_eq!(history.lost_since(at(76), Span::hours(72)), 2);
    }

    #[test]
    fn strikes_are_kept_whatever_fails_between_them() {
        let minutes = |n: i64| Time::default().after(Span::minutes(n));
        let at = |n, cause| FailureRecord {
            at: minutes(n),
            ..failure(1, cause)
        };
        let is_lost = |n: &i64| [0, 21, 41, 61].contains(n);
        let history = (0..80).fold(FailureHistory::default(), |history, n| {
            history.with_failure(at(
                n,
                if is_lost(&n) {
                    FailureCause::Lost
                } else {
                    FailureCause::Failed
                },
            ))
        });
        assert_eq!(history.failures().len(), HISTORY_MAX);
        assert_eq!(history.lost_since(minutes(80), LOST_WITHIN), 4);
        let latest: Vec<Time> = history
            .failures()
            .iter()
            .rev()
            .take(16)
            .map(|failure| failure.at)
            .collect();
        assert_eq!(
            latest,
            (64..80).rev().map(minutes).collect::<Vec<_>>(),
            "and the latest beside them"
        );
        // A lost lease that no longer counts is removed like any other failure; the first failure
        // stays.
        let later = (0..40).fold(history, |history, n| {
            history.with_failure(at(5_000 + n, FailureCause::Failed))
        });
        assert_eq!(
            later
                .failures()
                .iter()
                .filter(|failure| failure.cause == FailureCause::Lost)
                .count(),
            1
        );
        let losses = (0..50).fold(FailureHistory::default(), |history, n| {
            history.with_failure(at(n, FailureCause::Lost))
        });
        assert_eq!(
            losses.failures().len(),
            HISTORY_MAX,
            "bounded, whatever it is made of"
        );
    }

    #[test]
    fn a_loss_is_known_by_its_lease() {
        let (job, worker) = (JobId::named("j"), WorkerName::new("w"));
        let number = |n| LeaseNumber::draw(n);
        let lost = FailureRecord::of_lost_lease(Time::from_millis(5), 1, &worker, number(1), job);
        let history = FailureHistory::default()
            .with_failure(failure(1, FailureCause::Failed))
            .with_failure(lost.clone());
        assert_eq!(history.loss_of(job, number(1)), Some(lost));
        assert_eq!(history.loss_of(job, number(2)), None);
        assert_eq!(history.loss_of(JobId::named("other"), number(1)), None);
    }

    #[test]
    fn a_loss_is_made_up_for_once() {
        let lost = FailureHistory::default()
            .with_failure(failure(1, FailureCause::Failed))
            .with_failure(failure(2, FailureCause::Lost));
        assert!(!lost.is_rerun());
        let at = |minutes| {
            Time::default()
                .after(Span::hours(2))
                .after(Span::minutes(minutes))
        };
        let (waited, rerun) = lost.record_rerun(at(3)).expect("it was lost");
        assert_eq!((waited, rerun.is_rerun()), (Span::minutes(3), true));
        assert_eq!(rerun.record_rerun(at(9)), None, "by the run before");
        let again = rerun.with_failure(failure(3, FailureCause::Lost));
        assert_eq!(
            again.record_rerun(at(61)).map(|(waited, _)| waited),
            Some(Span::minutes(1)),
            "the next loss"
        );
        assert_eq!(
            again
                .with_failure(failure(4, FailureCause::Failed))
                .record_rerun(at(200)),
            None
        );
        assert_eq!(FailureHistory::default().record_rerun(at(0)), None);
    }

    #[test]
    fn damaged_history_says_so_and_goes_on() {
        let damaged = FailureHistory::from_stored(Some(b"[{\"at\":".to_vec()));
        let failures = damaged
            .with_failure(failure(4, FailureCause::Failed))
            .failures();
        assert_eq!(failures.len(), 2);
        assert_eq!(
            failures[0].error.error_type.as_deref(),
            Some("UnreadableHistory")
        );
        assert_eq!(failures[1].attempt, 4);
    }
}
