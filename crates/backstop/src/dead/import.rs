//! Taking dead letters in: those of an export, and those that another program wrote in its form.

use super::DeadLetters;
use super::letter::{DeadLetter, OriginalJob};
use backstop_core::failure::{ErrorReport, FailureCause, FailureHistory, FailureRecord};
use backstop_core::lease::WorkerName;
use backstop_core::limits::{BURY_MAX, ENQUEUE_BYTES_MAX};
use backstop_core::port::{EnqueueOutcome, NewDeadLetter, StoreResult};
use backstop_core::unique::{UniqueConstraint, UniqueKey};
use backstop_core::verdict::EndReason;
use backstop_core::{NewJob, Payload, RetryPolicy, Time};

/// Bytes of a line of an export: the largest payload, as text and as bytes in hexadecimal, and the
/// longest history.
pub const LETTER_BYTES_MAX: usize = 8 << 20;

/// A line that is no dead letter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDeadLetter {
    /// Not JSON in the shape of a dead letter.
    #[error("not a dead letter: {0}")]
    Unreadable(String),
    /// A dead letter with something in it that cannot be taken in.
    #[error("`{field}`: {problem}")]
    Field {
        field: &'static str,
        problem: String,
    },
}

/// A dead letter to be taken in.
#[derive(Clone, PartialEq, Debug)]
pub struct ImportedDeadLetter(pub(super) NewDeadLetter);

impl ImportedDeadLetter {
    /// Reads a line of an export. Only `id`, `queue` and the payload of `original_job` must be
    /// there; the unique key is taken for one that counts while the job is alive, without a period.
    pub fn read(line: &[u8], now: Time) -> Result<Self, InvalidDeadLetter> {
        let letter: DeadLetter = serde_json::from_slice(line)
            .map_err(|error| InvalidDeadLetter::Unreadable(error.to_string()))?;
        letter.burial(now).map(Self)
    }

    fn bytes(&self) -> usize {
        self.0.job.payload.len()
    }
}

impl DeadLetters {
    /// Takes dead letters in, and answers for each: `Inserted`, `Same` if its id is known, or
    /// `Full`. Doing it again is harmless.
    pub async fn import(
        &self,
        letters: Vec<ImportedDeadLetter>,
    ) -> StoreResult<Vec<EnqueueOutcome>> {
        let entry = self
            .log
            .open_entry("import", serde_json::json!({ "letters": letters.len() }))
            .await?;
        let mut answers = Vec::with_capacity(letters.len());
        let done = self.bury(letters, &mut answers).await;
        let inserted = answers
            .iter()
            .filter(|answer| **answer == EnqueueOutcome::Inserted)
            .count();
        self.log
            .record_end(
                entry,
                inserted as u64,
                done.as_ref().err().map(ToString::to_string),
            )
            .await;
        done.map(|()| answers)
    }

    async fn bury(
        &self,
        letters: Vec<ImportedDeadLetter>,
        answers: &mut Vec<EnqueueOutcome>,
    ) -> StoreResult<()> {
        let mut letters = letters.into_iter().peekable();
        while letters.peek().is_some() {
            let (mut burials, mut bytes) = (Vec::new(), 0);
            while let Some(letter) = letters.next_if(|letter| {
                burials.is_empty()
                    || (burials.len() < BURY_MAX && bytes + letter.bytes() <= ENQUEUE_BYTES_MAX)
            }) {
                bytes += letter.bytes();
                burials.push(letter.0);
            }
            answers.extend(
                self.backstop
                    .store()
                    .bury(burials, self.backstop.current_time().await)
                    .await?,
            );
        }
        Ok(())
    }
}

fn invalid_field(field: &'static str) -> impl FnOnce(String) -> InvalidDeadLetter {
    move |problem| InvalidDeadLetter::Field { field, problem }
}

impl DeadLetter {
    fn burial(mut self, now: Time) -> Result<NewDeadLetter, InvalidDeadLetter> {
        let other = |field| {
            Err(InvalidDeadLetter::Field {
                field,
                problem: "is another than in `original_job`".to_owned(),
            })
        };
        if self.original_job.id.is_some_and(|id| id != self.id) {
            return other("id");
        }
        if self
            .original_job
            .queue
            .as_ref()
            .is_some_and(|queue| *queue != self.queue)
        {
            return other("queue");
        }
        let reason = self
            .reason
            .as_deref()
            .map_or(Ok(EndReason::AttemptsExhausted), str::parse);
        let reason = reason
            .map_err(|error: backstop_core::verdict::InvalidEndReason| error.to_string())
            .map_err(invalid_field("reason"))?;
        // A death to come would outlive every retention.
        let finished_at = self
            .original_job
            .finished_at
            .or(self.last_failed_at)
            .unwrap_or(now)
            .min(now);
        let failures = std::mem::take(&mut self.original_job.errors);
        let failures = if failures.is_empty() {
            self.failure_from_letter(finished_at)
        } else {
            failures
        };
        Ok(NewDeadLetter {
            attempts: self.original_job.attempt.unwrap_or(self.attempt_count),
            lost_leases: self.original_job.lost_leases,
            requeues: self.requeues,
            inserted_at: self
                .original_job
                .inserted_at
                .or(self.first_failed_at)
                .unwrap_or(finished_at),
            finished_at,
            reason,
            history: failures
                .into_iter()
                .map(truncate_failure)
                .fold(FailureHistory::default(), |history, failure| {
                    history.with_failure(failure)
                }),
            job: self.job()?,
        })
    }

    /// What the letter itself tells, for one without a history. A death by overflow has none to
    /// tell.
    fn failure_from_letter(&mut self, at: Time) -> Vec<FailureRecord> {
        if self.error.is_empty() || self.reason.as_deref() == Some(EndReason::Overflow.as_str()) {
            return Vec::new();
        }
        let error = ErrorReport {
            message: std::mem::take(&mut self.error),
            error_type: self.error_type.take(),
            stack_trace: self.stack_trace.take(),
            http_status: self.http_status,
            response_body: self.response_body.take(),
        };
        let failure = FailureRecord::new(
            at,
            self.attempt_count,
            FailureCause::Failed,
            &WorkerName::new(""),
            error,
        );
        vec![FailureRecord {
            context: self.context.take(),
            ..failure
        }]
    }

    fn job(self) -> Result<NewJob, InvalidDeadLetter> {
        let original = self.original_job;
        let unique = original
            .unique_key
            .as_deref()
            .map(UniqueKey::new)
            .transpose();
        let retry = original
            .retry
            .as_ref()
            .map(|policy| RetryPolicy::from_json(policy.get().as_bytes()))
            .transpose();
        Ok(NewJob {
            id: self.id,
            payload: original.bytes()?,
            priority: original.priority,
            run_at: original.run_at,
            unique: unique
                .map_err(|error| error.to_string())
                .map_err(invalid_field("unique_key"))?
                .map(UniqueConstraint::live),
            retry: retry
                .map_err(|error| error.to_string())
                .map_err(invalid_field("retry"))?,
            trace: original.traceparent,
            kind: original.kind.unwrap_or(self.kind),
            queue: self.queue,
        })
    }
}

impl OriginalJob {
    fn bytes(&self) -> Result<Payload, InvalidDeadLetter> {
        let bytes = match &self.payload_hex {
            Some(hex) => from_hex(hex)
                .ok_or_else(|| invalid_field("payload_hex")("not hexadecimal".to_owned()))?,
            None => self.payload.get().as_bytes().to_vec(),
        };
        Payload::json(bytes).map_err(|error| invalid_field("payload")(error.to_string()))
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            u8::from_str_radix(
                std::str::from_utf8(pair)
                    .ok()
                    .filter(|pair| pair.len() == 2)?,
                16,
            )
            .ok()
        })
        .collect()
}

/// Within the limits that a failure of our own has.
fn truncate_failure(failure: FailureRecord) -> FailureRecord {
    let FailureRecord {
        at,
        attempt,
        cause,
        worker,
        error,
        retry_in,
        context,
    } = failure;
    FailureRecord {
        retry_in,
        context,
        ..FailureRecord::new(at, attempt, cause, &WorkerName::new(&worker), error)
    }
}
