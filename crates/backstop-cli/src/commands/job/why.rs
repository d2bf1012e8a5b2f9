//! `backstop job why`: the one gate a job stands before, and what opens it.

use super::{IdArg, called};
use crate::context::Context;
use crate::output::words::to_the_millisecond;
use crate::trouble::{Trouble, Verdict};
use backstop::JobId;
use backstop::why::{Explained, Why};
use backstop_server::wire::why::WhyShape;

/// Answers; exits 1 if there is no such job.
pub(crate) async fn run(args: &IdArg, context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
    let explained = match args.job(&backstop).await? {
        Some(job) => {
            backstop
                .why_of(job, |job| context.config.max_attempts(job))
                .await?
        }
        None => Explained {
            id: JobId::from_text(&args.id),
            job: None,
            why: Why::NotFound,
        },
    };
    if context.output.is_json() {
        context.output.json(&WhyShape::new(&explained))?;
    } else {
        let why = match &explained.why {
            Why::NotFound => {
                format!(
                    "there is no such job: {}; it may have been deleted or pruned",
                    called(&args.id)
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
    Ok(if explained.why == Why::NotFound {
        Verdict::FallsShort
    } else {
        Verdict::Fine
    })
}
