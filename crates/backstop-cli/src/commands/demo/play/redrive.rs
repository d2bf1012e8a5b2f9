//! Now and then somebody redrives what died, carefully.

use backstop::dead::redrive::{Redrive, RedriveError};
use backstop::dead::{DeadFilter, DeadLetters, DeadSelection};
use backstop::{Backstop, QueueName};
use std::ops::ControlFlow;
use std::time::Duration;

/// How often.
const EVERY: Duration = Duration::from_secs(45);
/// How many go first.
const CANARY: u32 = 3;

/// Redrives dead webhooks for ever: those whose customer mended the cause succeed, others stop the redrive.
pub(super) async fn now_and_then(backstop: Backstop) {
    let letters = backstop.dead().by("demo");
    loop {
        tokio::time::sleep(EVERY).await;
        if let Err(error) = once(&letters).await {
            tracing::warn!(%error, "the demo could not redrive");
        }
    }
}

async fn once(letters: &DeadLetters) -> Result<(), RedriveError> {
    let queue = QueueName::new("webhooks").ok();
    let plan = Redrive {
        canary: CANARY,
        max_failures: 1,
        then_rate: "2/s".parse().map_err(|error| RedriveError::BadPlan(format!("{error}")))?,
        selection: DeadSelection::Matching(DeadFilter {
            queue,
            text: Some("503".to_owned()),
            ..DeadFilter::default()
        }),
    };
    let id = letters.redrive(plan).await?;
    letters.run_redrive(&id, |_| ControlFlow::Continue(())).await?;
    Ok(())
}
