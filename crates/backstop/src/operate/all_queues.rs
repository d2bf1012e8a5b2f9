//! All queues at once: what they depend on is down, and nothing is to be started until it is back.
//!
//! | a queue | all are paused | those are resumed |
//! |---|---|---|
//! | is open | noted, then paused | stays open |
//! | was paused by itself | stays paused, is not noted | stays paused |
//! | was paused with all others | stays paused | opened, its note removed |
//! | was, and somebody has paused or resumed it by itself since | that took its note away: as a queue without | stays as it is |
//!
//! The note comes before the pause, so that a process that is killed between them leaves nothing
//! paused that nobody opens again. A queue that comes into being meanwhile is not paused.

use super::AuditedChanges;
use crate::shared_cells::{self, cells};
use backstop_core::QueueName;
use backstop_core::limits::CELLS_MAX;
use backstop_core::port::{CellSwap, QueueState, StoreResult};
use serde_json::json;

/// The notes: one cell a queue.
const PREFIX: &str = "paused/";
/// Queues that an entry of the audit names.
const NAMES_SHOWN: usize = 100;

impl AuditedChanges {
    /// Pauses every queue that is open; answers which.
    pub async fn pause_all(&self) -> StoreResult<Vec<QueueName>> {
        let queues = self
            .backstop
            .store()
            .queues(self.backstop.current_time().await)
            .await?;
        let open = queues
            .into_iter()
            .filter(|queue| queue.state == QueueState::Active)
            .map(|queue| queue.name);
        let open: Vec<QueueName> = open.collect();
        if open.is_empty() {
            return Ok(open);
        }
        let change = async {
            self.note_paused(&open).await?;
            self.set_gates(&open, QueueState::Paused).await?;
            Ok((open.len() as u64, ()))
        };
        self.log
            .record("queue pause", queues_json(&open), change)
            .await?;
        Ok(open)
    }

    /// Opens the queues that were paused with all others; answers which.
    pub async fn resume_all(&self) -> StoreResult<Vec<QueueName>> {
        let noted = cells(&self.backstop, PREFIX).await?;
        let named = noted
            .iter()
            .filter_map(|cell| QueueName::new(&cell.name[PREFIX.len()..]).ok());
        let named: Vec<QueueName> = named.collect();
        if noted.is_empty() {
            return Ok(named);
        }
        let change = async {
            self.set_gates(&named, QueueState::Active).await?;
            // Opened first: killed in between, this is asked for once more and opens what is open.
            shared_cells::remove(&self.backstop, &noted).await?;
            Ok((named.len() as u64, ()))
        };
        self.log
            .record("queue resume", queues_json(&named), change)
            .await?;
        Ok(named)
    }

    /// Somebody means this queue: what becomes of all others no longer counts for it. Whether it
    /// did.
    pub(super) async fn single_out(&self, queue: &QueueName) -> StoreResult<bool> {
        let name = format!("{PREFIX}{queue}");
        let noted: Vec<_> = self
            .backstop
            .store()
            .cells(vec![name])
            .await?
            .into_iter()
            .flatten()
            .collect();
        shared_cells::remove(&self.backstop, &noted).await?;
        Ok(!noted.is_empty())
    }

    async fn set_gates(&self, queues: &[QueueName], gate: QueueState) -> StoreResult<()> {
        for queue in queues {
            self.backstop
                .store()
                .set_queue_state(queue.clone(), gate, self.backstop.current_time().await)
                .await?;
        }
        Ok(())
    }

    /// A note that is there already says the same.
    async fn note_paused(&self, queues: &[QueueName]) -> StoreResult<()> {
        for part in queues.chunks(CELLS_MAX) {
            let note = |queue: &QueueName| CellSwap {
                name: format!("{PREFIX}{queue}"),
                seen: None,
                version: self.backstop.random().bits().cast_signed(),
                value: Some(b"{}".to_vec()),
            };
            self.backstop
                .store()
                .swap(part.iter().map(note).collect())
                .await?;
        }
        Ok(())
    }
}

fn queues_json(queues: &[QueueName]) -> serde_json::Value {
    let named = &queues[..queues.len().min(NAMES_SHOWN)];
    match queues.len() - named.len() {
        0 => json!({ "all": true, "queues": named }),
        more => json!({ "all": true, "queues": named, "more": more }),
    }
}

#[cfg(test)]
mod tests;
