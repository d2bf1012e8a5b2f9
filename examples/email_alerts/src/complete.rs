//! Which digest runs are over: all their subscribers are processed.

use crate::desk::Desk;
use crate::tasks::MarkDigestRunsComplete;
use backstop::{Run, RunError};

const MARK: &str = include_str!("sql/complete.sql");

/// Handles [`MarkDigestRunsComplete`].
pub async fn mark(_: MarkDigestRunsComplete, run: Run) -> Result<(), RunError> {
    run.state::<Desk>()?
        .database
        .connection()
        .await?
        .execute(MARK, &[])
        .await?;
    Ok(())
}
