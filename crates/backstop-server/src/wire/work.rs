//! What workers elsewhere say and are told: leases, ends, beats.

use super::PayloadShape;
use super::list::LimitedList;
use super::push::BorrowedText;
use backstop::core::failure::{ErrorReport, FailureCause};
use backstop::core::limits::{BEAT_LEASES_MAX, CLAIM_QUEUES_MAX, SETTLE_MAX};
use backstop::core::verdict::{FailureAdvice, RunEnding};
use backstop::http_workers::{LeaseToken, LeasedJob, SettleResult};
use backstop::workers::WorkerDescription;
use backstop::{JobId, QueueName, Span, Time};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// How long a job stays away that is released without saying for how long.
const RELEASED_WAIT: Span = Span::secs(1);

/// A request for jobs.
#[derive(Deserialize, ToSchema, Debug)]
#[serde(
    deny_unknown_fields,
    expecting = "a request for jobs: an object with a list `queues`"
)]
#[schema(as = Lease)]
pub struct LeaseRequestShape<'a> {
    /// From where: 1 to 256 queues.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 256)]
    pub queues: LimitedList<QueueName, CLAIM_QUEUES_MAX>,
    /// At most so many, over all queues: 1 if not said, and never more than 1000. With 0, or less,
    /// none is taken and nothing is waited for.
    #[serde(default)]
    #[schema(value_type = Option<i64>)]
    pub max: Option<f64>,
    /// Who asks; shown to people, and in what went wrong.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub worker: Option<BorrowedText<'a>>,
    /// For how long, unless it beats; the queue's lease if not said. What is less than 500 ms
    /// counts as 500 ms, more than 24 h as 24 h.
    #[serde(default)]
    pub lease_ms: Option<f64>,
    /// How long to wait for the first job; at most 30 s, not at all if not said.
    #[serde(default)]
    pub wait_ms: Option<f64>,
    /// The machine it runs on; shown to people, as is all that follows.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub host: Option<BorrowedText<'a>>,
    /// Its process there.
    #[serde(default)]
    pub pid: Option<u32>,
    /// What it calls its version.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub version: Option<BorrowedText<'a>>,
    /// When this run of the worker started. Send it, so that a `stop` meant for the last run of
    /// this name does not stop this one. Without it, a worker of the same name counts as the
    /// same run until it was silent for 30 s.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Time>,
    /// How many jobs it can run at once.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// How much memory it has in use.
    #[serde(default, deserialize_with = "bytes_of_memory")]
    pub memory_bytes: Option<u64>,
}

/// A number that the description of the API allows for 64 bits.
fn bytes_of_memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let bytes = Option::<u64>::deserialize(deserializer)?;
    match bytes.filter(|bytes| i64::try_from(*bytes).is_err()) {
        Some(_) => Err(serde::de::Error::custom(
            "`memory_bytes` is at most 9223372036854775807",
        )),
        None => Ok(bytes),
    }
}

/// Both requests carry the same fields about their worker, and neither lets others pass: shapes
/// that are read strictly cannot share them.
macro_rules! tells_of_its_worker {
    ($shape:ident) => {
        impl $shape<'_> {
            /// What the worker tells of itself.
            pub fn about(&self) -> WorkerDescription {
                let text = |text: &BorrowedText<'_>| text.0.to_string();
                WorkerDescription {
                    host: self.host.as_ref().map(text),
                    pid: self.pid,
                    version: self.version.as_ref().map(text),
                    since: self.started_at,
                    places: self.concurrency,
                    memory: self.memory_bytes,
                }
            }
        }
    };
}

tells_of_its_worker!(LeaseRequestShape);
tells_of_its_worker!(BeatRequestShape);

/// Jobs that were handed out.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Leased)]
pub struct LeaseAnswerShape<'a> {
    /// The jobs; none if there were none in time.
    pub jobs: Vec<LeasedJobShape<'a>>,
    /// What the worker is asked for by its operator: quiet (it gets no jobs), or stop (it gets
    /// none, and is to end). Only there while something is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    #[serde(rename = "asked")]
    pub desired_state: Option<&'static str>,
}

/// A job that was handed out.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = LeasedJob)]
pub struct LeasedJobShape<'a> {
    /// Names it for ever.
    #[schema(value_type = String)]
    id: JobId,
    /// The right to end this run: to be sent back as it is.
    #[serde(serialize_with = "serialize_ticket")]
    #[schema(value_type = String)]
    lease: &'a LeaseToken,
    /// Where it waited.
    queue: &'a str,
    /// Which handler it is for.
    kind: &'a str,
    /// What the handler gets, byte for byte.
    #[schema(value_type = Value)]
    payload: PayloadShape<'a>,
    /// The number of this run: 1 for the first.
    attempt: u32,
    /// Where in a trace it was pushed from, as the W3C's header of that name: to be handed on to
    /// services its run calls. Only there if it was pushed with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    traceparent: Option<String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out a reference to the field"
)]
fn serialize_ticket<S: Serializer>(ticket: &&LeaseToken, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(ticket)
}

impl<'a> LeasedJobShape<'a> {
    /// The shape of a job that is handed out.
    pub fn new(leased: &'a LeasedJob) -> Self {
        let run = &leased.run;
        Self {
            id: run.lease.job,
            lease: &leased.token,
            queue: run.lease.queue.as_str(),
            kind: run.kind.as_str(),
            payload: PayloadShape::new(run.payload.as_bytes()),
            attempt: run.attempt(),
            traceparent: run.options.trace().map(|trace| trace.to_string()),
        }
    }
}

/// Runs that ended.
#[derive(Deserialize, ToSchema, Debug)]
#[serde(
    deny_unknown_fields,
    expecting = "ends of runs: an object with a list `settle`"
)]
#[schema(as = Settle)]
pub struct SettleRequestShape<'a> {
    /// One for each run; at most 5000.
    #[serde(borrow)]
    #[schema(value_type = Vec<RunEndShape<'a>>, max_items = 5000)]
    pub settle: LimitedList<RunEndShape<'a>, SETTLE_MAX>,
}

/// A run that ended.
#[derive(Deserialize, ToSchema, Debug)]
#[serde(
    deny_unknown_fields,
    expecting = "the end of a run: an object with `id`, `lease` and `outcome`"
)]
#[schema(as = End)]
pub struct RunEndShape<'a> {
    /// The job.
    #[serde(borrow)]
    #[schema(value_type = String)]
    id: BorrowedText<'a>,
    /// The `lease` it was handed out with.
    #[serde(borrow)]
    #[schema(value_type = String)]
    lease: &'a RawValue,
    /// done, failed, dead, cancelled or released.
    outcome: OutcomeWord,
    /// What went wrong.
    #[serde(default)]
    error: Option<RunErrorShape>,
    /// How long to wait before the next run, such as `10s`: of what failed, instead of what the
    /// policy says; of what is released, instead of 1 s.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    retry_in: Option<Span>,
}

/// How a run ended.
#[derive(Deserialize, ToSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[schema(as = Outcome)]
pub enum OutcomeWord {
    /// The work is done.
    Done,
    /// It is not; tried again as the retry policy says.
    Failed,
    /// No other try can help.
    Dead,
    /// The work is no longer wanted.
    Cancelled,
    /// It did not run; tried again soon, no attempt is spent.
    Released,
}

/// What a worker tells about a failure. Long texts are cut.
#[derive(Deserialize, ToSchema, Debug)]
#[serde(
    deny_unknown_fields,
    expecting = "`error` as an object: {\"message\":\"boom\"}"
)]
#[schema(as = Error)]
pub struct RunErrorShape {
    /// What happened, in words.
    pub message: String,
    /// The class of the error.
    pub r#type: Option<String>,
    /// Where it happened.
    pub stack_trace: Option<String>,
    /// The status of the HTTP answer behind it.
    pub http_status: Option<u16>,
    /// The body of that answer.
    pub response_body: Option<String>,
}

impl From<RunErrorShape> for ErrorReport {
    fn from(error: RunErrorShape) -> Self {
        Self {
            message: error.message,
            error_type: error.r#type,
            stack_trace: error.stack_trace,
            http_status: error.http_status,
            response_body: error.response_body,
        }
    }
}

impl RunEndShape<'_> {
    /// The id as it was sent.
    pub fn id(&self) -> &str {
        &self.id.0
    }

    /// The job, its ticket if it is one, and how the run ended. `before` is a ticket whose queue
    /// this one likely shares.
    pub fn read(self, before: Option<&LeaseToken>) -> (JobId, Option<LeaseToken>, RunEnding) {
        let job = JobId::from_text(&self.id.0);
        (
            job,
            ticket(self.lease, before),
            ending(
                self.outcome,
                self.error.map(ErrorReport::from),
                self.retry_in,
            ),
        )
    }
}

/// The ticket that a lease on the wire is. Anything else was never handed out, and can only be
/// stale.
fn ticket(lease: &RawValue, before: Option<&LeaseToken>) -> Option<LeaseToken> {
    // No letter of a ticket is ever escaped.
    let text = lease.get().strip_prefix('"')?.strip_suffix('"')?;
    LeaseToken::read(text, before).ok()
}

fn ending(word: OutcomeWord, error: Option<ErrorReport>, retry_in: Option<Span>) -> RunEnding {
    let failed = |error: Option<ErrorReport>, advice| RunEnding::Failed {
        cause: FailureCause::Failed,
        error: error.unwrap_or_default(),
        advice,
        progressed: false,
    };
    match word {
        OutcomeWord::Done => RunEnding::Done,
        OutcomeWord::Failed => failed(
            error,
            retry_in.map_or(FailureAdvice::Retry, FailureAdvice::RetryAfter),
        ),
        OutcomeWord::Dead => failed(error, FailureAdvice::Dead),
        OutcomeWord::Cancelled => {
            let message = error
                .map(|error| error.message)
                .filter(|message| !message.trim().is_empty());
            RunEnding::Cancelled(
                message.unwrap_or_else(|| "its worker found it no longer wanted".to_owned()),
            )
        }
        OutcomeWord::Released => RunEnding::Released(retry_in.unwrap_or(RELEASED_WAIT)),
    }
}

/// What became of ends that were told, in their order.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Settled)]
pub struct SettleAnswerShape {
    /// One for each run.
    pub results: Vec<SettleResultShape>,
}

/// What became of the end of one run.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = SettledJob)]
pub struct SettleResultShape {
    /// The job, as it was named in the request.
    id: String,
    /// applied, also if the very same end was told before; or stale: the lease was no longer the
    /// current one, and nothing was changed. Of a job that was gone at once (`keep_done = "0s"`)
    /// nothing is left to know an end by that is told again: that is stale too.
    result: &'static str,
}

impl SettleResultShape {
    /// What became of the end of a run of `id`.
    pub const fn new(id: String, outcome: SettleResult) -> Self {
        let result = match outcome {
            SettleResult::Applied => "applied",
            SettleResult::Stale => "stale",
        };
        Self { id, result }
    }
}

/// A sign of life.
#[derive(Deserialize, ToSchema, Debug)]
#[serde(
    deny_unknown_fields,
    expecting = "a sign of life: an object with `worker` and a list `leases`"
)]
#[schema(as = Beat)]
pub struct BeatRequestShape<'a> {
    /// Whose.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub worker: Option<BorrowedText<'a>>,
    /// The leases it holds.
    #[serde(borrow, default)]
    #[schema(value_type = Vec<HeldLeaseShape<'a>>, required = false, max_items = 50000)]
    pub leases: LimitedList<HeldLeaseShape<'a>, BEAT_LEASES_MAX>,
    /// For how long; as long as they were asked for if not said. What is less than 500 ms counts
    /// as 500 ms, more than 24 h as 24 h.
    #[serde(default)]
    pub lease_ms: Option<f64>,
    /// The machine it runs on; shown to people, as is all that follows.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub host: Option<BorrowedText<'a>>,
    /// Its process there.
    #[serde(default)]
    pub pid: Option<u32>,
    /// What it calls its version.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub version: Option<BorrowedText<'a>>,
    /// When this run of the worker started. Send it, so that a `stop` meant for the last run of
    /// this name does not stop this one. Without it, a worker of the same name counts as the
    /// same run until it was silent for 30 s.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Time>,
    /// How many jobs it can run at once.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// How much memory it has in use.
    #[serde(default, deserialize_with = "bytes_of_memory")]
    pub memory_bytes: Option<u64>,
}

/// A lease that is held.
#[derive(Deserialize, ToSchema, Debug)]
#[serde(
    deny_unknown_fields,
    expecting = "a lease: an object with `id` and `lease`"
)]
#[schema(as = Held)]
pub struct HeldLeaseShape<'a> {
    /// The job.
    #[serde(borrow)]
    #[schema(value_type = String)]
    id: BorrowedText<'a>,
    /// The `lease` it was handed out with.
    #[serde(borrow)]
    #[schema(value_type = String)]
    lease: &'a RawValue,
}

impl HeldLeaseShape<'_> {
    /// The job, and its ticket if it is one.
    pub fn read(&self, before: Option<&LeaseToken>) -> (JobId, Option<LeaseToken>) {
        (JobId::from_text(&self.id.0), ticket(self.lease, before))
    }
}

/// Which jobs are no longer the worker's own, and what else it is to know.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Lost)]
pub struct BeatAnswerShape {
    /// Their ids: their runs are to be stopped.
    #[schema(value_type = Vec<String>)]
    pub lost: Vec<JobId>,
    /// What the worker is asked for by its operator: quiet, to take no new jobs, or stop, to end
    /// what it runs and then itself. Only there while something is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    #[serde(rename = "asked")]
    pub desired_state: Option<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: &RunEnding) {
        let end: RunEndShape<'_> = serde_json::from_str(json).unwrap();
        assert_eq!(&end.read(None).2, expected, "{json}");
    }

    #[test]
    fn every_word_has_its_meaning() {
        let end = |rest: &str| format!(r#"{{"id":"a","lease":"x",{rest}}}"#);
        check(&end(r#""outcome":"done""#), &RunEnding::Done);
        check(
            &end(r#""outcome":"released""#),
            &RunEnding::Released(Span::secs(1)),
        );
        check(
            &end(r#""outcome":"released","retry_in":"5m""#),
            &RunEnding::Released(Span::minutes(5)),
        );
        let failed = |advice| RunEnding::Failed {
            cause: FailureCause::Failed,
            error: ErrorReport {
                http_status: Some(503),
                ..ErrorReport::message("no")
            },
            advice,
            progressed: false,
        };
        let error = r#""error":{"message":"no","http_status":503}"#;
        check(
            &end(&format!(r#""outcome":"failed",{error}"#)),
            &failed(FailureAdvice::Retry),
        );
        let in_ten = failed(FailureAdvice::RetryAfter(Span::secs(10)));
        check(
            &end(&format!(r#""outcome":"failed",{error},"retry_in":"10s""#)),
            &in_ten,
        );
        check(
            &end(&format!(r#""outcome":"dead",{error}"#)),
            &failed(FailureAdvice::Dead),
        );
        check(
            &end(&format!(r#""outcome":"cancelled",{error}"#)),
            &RunEnding::Cancelled("no".to_owned()),
        );
    }

    #[test]
    fn what_is_no_lease_of_ours_is_read_and_can_only_be_stale() {
        for lease in ["7", "\"\"", "\"nope\"", "null", "{}", "\"\\u0000\""] {
            let json = format!(r#"{{"id":"a","lease":{lease},"outcome":"done"}}"#);
            let end: RunEndShape<'_> = serde_json::from_str(&json).unwrap();
            assert_eq!(end.read(None).1, None, "{lease}");
        }
    }
}
