//! `backstop job why`: the one gate a job stands before, and what opens it.

use crate::context::Context;
use crate::output::words::to_the_millisecond;
use crate::trouble::{Trouble, Verdict};
use backstop::JobId;
use backstop::why::Why;
use backstop_server::wire::why::WhyShape;

/// Answers; exits 1 if there is no such job.
pub(crate) async fn run(id: JobId, context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
    let explained = backstop.why(id, |job| context.config.max_attempts(job)).await?;
    if context.output.is_json() {
        context.output.json(&WhyShape::new(&explained))?;
    } else {
        context.output.line(to_the_millisecond(&explained.why.to_string()))?;
        if let Some(next) = explained.next_step() {
            context.output.line(format!("  try: {}", context.output.paint().command(next)))?;
        }
    }
    Ok(if explained.why == Why::NotFound { Verdict::FallsShort } else { Verdict::Fine })
}
