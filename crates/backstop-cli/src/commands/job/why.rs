//! `backstop job why`: the one gate a job stands before, and what opens it.

use super::{JobIdArgs, describe_id};
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::words::to_the_millisecond;
use backstop::JobId;
use backstop::why::{ExplainedJob, JobExplanation};
use backstop_server::wire::why::WhyShape;

/// Answers; exits 1 if there is no such job.
pub(crate) async fn run(args: &JobIdArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let explained = match args.job(&backstop).await? {
        Some(job) => {
            backstop
                .explain_loaded(job, |job| context.config.max_attempts(job))
                .await?
        }
        None => ExplainedJob {
            id: JobId::from_text(&args.id),
            job: None,
            explanation: JobExplanation::NotFound,
        },
    };
    if context.output.is_json() {
        context.output.json(&WhyShape::new(&explained))?;
    } else {
        let why = match &explained.explanation {
            JobExplanation::NotFound => {
                format!(
                    "there is no such job: {}; it may have been deleted or pruned",
                    describe_id(&args.id)
                )
            }
            why => why.to_string(),
        };
        context.output.line(to_the_millisecond(&why))?;
        if let Some(next) = explained.next_step() {
            context
                .output
                .line(format!("  try: {}", context.output.paint().command(next)))?;
        }
    }
    Ok(if explained.explanation == JobExplanation::NotFound {
        ExitStatus::Failure
    } else {
        ExitStatus::Success
    })
}
