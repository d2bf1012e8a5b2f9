//! Why a job does not run.

use backstop::why::ExplainedJob;
use backstop::{JobId, JobState};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Why a job does not run, and what to do.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Why)]
pub struct WhyShape {
    /// What the sentence says, in parts.
    #[schema(value_type = Object)]
    details: Map<String, Value>,
    /// The one gate it stands before, in a word.
    gate: &'static str,
    /// The job.
    #[schema(value_type = String)]
    id: JobId,
    /// Where it stands.
    #[schema(value_type = Option<String>)]
    state: Option<JobState>,
    /// What opens the gate, if something does.
    r#try: Option<String>,
    /// The answer, in a sentence.
    why: String,
}

impl WhyShape {
    /// The shape of an answer.
    pub fn new(explained: &ExplainedJob) -> Self {
        Self {
            details: explained.explanation.details(),
            gate: explained.explanation.gate(),
            id: explained.id,
            state: explained.job.as_ref().map(|job| job.state),
            r#try: explained.next_step(),
            why: explained.explanation.to_string(),
        }
    }
}
