//! Dead letters grouped by what they died of.

use super::letter::DeathCause;
use super::{DeadFilter, DeadLetters};
use backstop_core::port::{DeadLetterGroup, ListGroupsRequest, StoreError, StoreResult};
use backstop_core::{Fingerprint, Job, JobId, JobState, Kind, QueueName, Time};
use serde::Serialize;

/// Dead letters of one queue that died of the same.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DeadGroup {
    /// What they have in common.
    pub fingerprint: Fingerprint,
    pub queue: QueueName,
    pub count: u64,
    /// When the first of those present died.
    pub first_at: Time,
    /// When the last one did.
    pub last_at: Time,
    pub sample: DeadGroupSample,
}

/// One letter that stands for its group. What could not be read, or was gone by then, is absent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DeadGroupSample {
    pub id: JobId,
    pub kind: Option<Kind>,
    /// Its error, or why that cannot be told.
    pub error: String,
    /// The class of its error.
    pub error_type: Option<String>,
}

impl DeadLetters {
    /// Groups of deaths, the largest first: of one queue, or of all. `limit` is clamped as the
    /// store's is.
    pub async fn groups(
        &self,
        queue: Option<QueueName>,
        limit: usize,
    ) -> StoreResult<Vec<DeadGroup>> {
        let mut groups = Vec::new();
        for group in self.raw_groups(queue, limit).await? {
            let sample = self.sample(&group.queue, group.sample).await?;
            groups.push(DeadGroup {
                fingerprint: group.fingerprint,
                queue: group.queue,
                count: group.count,
                first_at: group.first_at,
                last_at: group.last_at,
                sample,
            });
        }
        Ok(groups)
    }

    pub(super) async fn raw_groups(
        &self,
        queue: Option<QueueName>,
        limit: usize,
    ) -> StoreResult<Vec<DeadLetterGroup>> {
        self.backstop
            .store()
            .groups(
                ListGroupsRequest { queue, limit },
                self.backstop.current_time().await,
            )
            .await
    }

    /// A sample that cannot be read hides no group. It is the queue's own: on Redis another may
    /// have a job of the same id.
    async fn sample(&self, queue: &QueueName, id: JobId) -> StoreResult<DeadGroupSample> {
        let unknown = |why: String| DeadGroupSample {
            id,
            kind: None,
            error: why,
            error_type: None,
        };
        match self.backstop.job_in(queue, id).await {
            Ok(Some(job)) if job.state == JobState::Dead => Ok(self.sample_of(&job)),
            Ok(_) => Ok(unknown(
                "the last of them was requeued or removed just now".to_owned(),
            )),
            Err(error @ StoreError::Corrupt { .. }) => Ok(unknown(error.to_string())),
            Err(error) => Err(error),
        }
    }

    fn sample_of(&self, job: &Job) -> DeadGroupSample {
        let death = DeathCause::of(job.reason, job.history.failures().last(), &self.redaction);
        DeadGroupSample {
            id: job.id,
            kind: Some(job.kind.clone()),
            error: death.message,
            error_type: death.error_type,
        }
    }
}

impl From<&DeadGroup> for DeadFilter {
    /// The letters of the group.
    fn from(group: &DeadGroup) -> Self {
        Self {
            queue: Some(group.queue.clone()),
            fingerprint: Some(group.fingerprint),
            ..Self::default()
        }
    }
}
