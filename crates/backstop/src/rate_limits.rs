//! Rate limits as all workers share them, and as an operator sees them: one cell a queue,
//! `rates/QUEUE`.
//!
//! A cell holds the limit beside the bucket, so that whoever reads it can tell what happens next.

use crate::client::Backstop;
use crate::shared_cells::{cells, read, update};
use backstop_core::port::{Cell, StoreResult};
use backstop_core::rate::{RateBucket, RateLimit};
use backstop_core::{QueueName, Span, Time};
use serde::{Deserialize, Serialize};

/// A bucket with its limit.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct SharedRateLimit {
    #[serde(flatten)]
    bucket: RateBucket,
    /// The limit of whoever asked last.
    #[serde(default)]
    limit: Option<RateLimit>,
    /// When somebody last got less leave than was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused_at: Option<Time>,
}

/// A rate limit as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateStatus {
    pub limit: RateLimit,
    /// From when on there is room for a run; not after now, if there is.
    pub room_at: Time,
    /// When a job was last one too many.
    pub refused_at: Option<Time>,
}

/// What came of asking leave.
pub(crate) struct TokenGrant {
    pub(crate) taken: u32,
    /// How long until there is room for one more.
    pub(crate) free_in: Span,
}

impl Backstop {
    /// How the rate limit of a queue stands; `None` if no worker has heeded one yet.
    pub async fn rate_of(&self, queue: &QueueName) -> StoreResult<Option<RateStatus>> {
        let cell = self.store().cells(vec![cell(queue)]).await?.pop().flatten();
        let now = self.current_time().await;
        Ok(cell.as_ref().and_then(|cell| status(cell, now)))
    }

    /// The rate limits of all queues that have one which a worker has heeded.
    pub async fn rates(&self) -> StoreResult<Vec<(QueueName, RateStatus)>> {
        let (cells, now) = (cells(self, RATES).await?, self.current_time().await);
        let of = |cell: &Cell| {
            Some((
                QueueName::new(cell.name.strip_prefix(RATES)?).ok()?,
                status(cell, now)?,
            ))
        };
        Ok(cells.iter().filter_map(of).collect())
    }

    pub(crate) async fn take_tokens(
        &self,
        queue: &QueueName,
        limit: &RateLimit,
        wanted: u32,
    ) -> StoreResult<TokenGrant> {
        let now = self.now();
        let (shared, taken) = update(self, &cell(queue), SharedRateLimit::default(), |shared| {
            let taken = shared.bucket.take(limit, wanted, now);
            shared.limit = Some(*limit);
            if taken < wanted {
                shared.refused_at = Some(now);
            }
            taken
        })
        .await?;
        Ok(TokenGrant {
            taken,
            free_in: shared.bucket.free_in(limit, now),
        })
    }

    /// Gives back leave that was not used.
    pub(crate) async fn return_tokens(
        &self,
        queue: &QueueName,
        limit: &RateLimit,
        unused: u32,
    ) -> StoreResult<()> {
        let now = self.now();
        let give_back = |shared: &mut SharedRateLimit| shared.bucket.give_back(limit, unused, now);
        update(self, &cell(queue), SharedRateLimit::default(), give_back)
            .await
            .map(drop)
    }
}

/// What the names of the cells begin with.
const RATES: &str = "rates/";

fn cell(queue: &QueueName) -> String {
    format!("{RATES}{queue}")
}

/// How the limit of a cell stands, if it says one.
fn status(cell: &Cell, now: Time) -> Option<RateStatus> {
    let shared: SharedRateLimit = read(cell)?;
    shared.limit.map(|limit| RateStatus {
        limit,
        room_at: now.after(shared.bucket.free_in(&limit, now)),
        refused_at: shared.refused_at,
    })
}
