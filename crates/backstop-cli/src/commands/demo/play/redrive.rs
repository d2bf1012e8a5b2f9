//! Now and then somebody redrives what died, carefully.

use backstop::dead::redrive::{RedriveError, RedrivePlan};
use backstop::dead::{DeadFilter, DeadLetters, DeadSelection};
use backstop::{Backstop, QueueName};
use std::ops::ControlFlow;
use std::time::Duration;

/// When the first time: the first outage is over then.
const FIRST: Duration = Duration::from_secs(40);
/// How long after one the next begins.
const EVERY: Duration = Duration::from_secs(45);
const CANARY: u32 = 3;

/// Redrives dead webhooks for ever: those whose customer mended the cause succeed, others stop the
/// redrive.
pub(super) async fn run_periodically(backstop: Backstop) {
    let letters = backstop.dead().by("demo");
    tokio::time::sleep(FIRST).await;
    loop {
        if let Err(error) = once(&letters).await {
            tracing::warn!(%error, "the demo could not redrive");
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn once(letters: &DeadLetters) -> Result<(), RedriveError> {
    let queue = QueueName::new("webhooks").ok();
    let plan = RedrivePlan {
        canary: CANARY,
        max_failures: 1,
        then_rate: "2/s"
            .parse()
            .map_err(|error| RedriveError::BadPlan(format!("{error}")))?,
        selection: DeadSelection::Matching(DeadFilter {
            queue,
            text: Some("503".to_owned()),
            ..DeadFilter::default()
        }),
    };
    let id = letters.redrive(plan).await?;
    letters
        .run_redrive(&id, |_| ControlFlow::Continue(()))
        .await?;
    Ok(())
}
