//! Taking in again: from the segments to the store, until nothing is left.

use super::segments::{SegmentEntry, SegmentRest, SpillSegments, read};
use super::{SpillError, SpillInner};
use backstop_core::Span;
use backstop_core::limits::BURY_MAX;
use backstop_core::port::{EnqueueOutcome, NewDeadLetter, StoreError};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// The wait after the first spill, and after a round that took something in.
pub(super) const FIRST_WAIT: Span = Span::secs(1);
/// The longest wait between two rounds.
const WAIT_MAX: Span = Span::secs(60);

/// What one round of taking in did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TakeInReport {
    /// Dead letters that are in the store now.
    pub records: usize,
    /// Dead letters whose queue has no room for them. They stay.
    pub full: usize,
    /// Lines that nobody can read, kept in a file whose name ends in `.bad`.
    pub set_aside: usize,
    /// Why the store took others not, if it said so. They stay.
    pub trouble: Option<StoreError>,
}

impl TakeInReport {
    /// Whether to ask the store for nothing more in this round.
    fn is_cut_short(&self) -> bool {
        self.trouble.as_ref().is_some_and(StoreError::is_transient)
    }
}

/// Takes in, round after round, until nothing is left or nobody has the spill any more.
pub(super) async fn keep_taking_in(spill: Weak<SpillInner>, first_wait: Span) {
    let mut wait = first_wait;
    loop {
        tokio::time::sleep(wait.into()).await;
        let Some(spill) = spill.upgrade() else { return };
        let taken = match spill.round().await {
            Ok(taken) => taken.records + taken.set_aside,
            Err(error) => {
                tracing::warn!(%error, "spilled dead letters cannot be taken in; they stay where they are");
                0
            }
        };
        if spill.ends().await {
            return;
        }
        let longer = if taken > 0 {
            FIRST_WAIT
        } else {
            wait.times(2).max(FIRST_WAIT).min(WAIT_MAX)
        };
        // Spread, so that processes that lost one store do not come back to it together.
        wait = longer.scaled(0.75 + 0.25 * spill.random.unit());
    }
}

impl SpillInner {
    /// Offers everything to the store once.
    pub(super) async fn round(self: &Arc<Self>) -> Result<TakeInReport, SpillError> {
        let _turn = self.turn.lock().await;
        let mut taken = TakeInReport::default();
        for path in self.on_disk(SpillSegments::adopt).await?? {
            self.take_segment(path, &mut taken).await;
        }
        // The one being written comes last, and only if the store answers: every sealing makes
        // another file.
        if !taken.is_cut_short()
            && let Some(path) = self.on_disk(SpillSegments::seal).await?
        {
            self.take_segment(path, &mut taken).await;
        }
        if taken.records > 0 {
            tracing::info!(
                records = taken.records,
                "spilled dead letters are in the store"
            );
        }
        Ok(taken)
    }

    /// A segment that the disk does not give is left for the next round, and hides none behind it.
    async fn take_segment(self: &Arc<Self>, path: PathBuf, taken: &mut TakeInReport) {
        if taken.is_cut_short() {
            return;
        }
        if let Err(error) = self.try_take_segment(path, taken).await {
            tracing::warn!(%error, "a spilled segment could not be taken in; it stays");
        }
    }

    async fn try_take_segment(
        self: &Arc<Self>,
        path: PathBuf,
        taken: &mut TakeInReport,
    ) -> Result<(), SpillError> {
        let from = path.clone();
        let contents = self.on_disk(move |_| read(&from)).await??;
        let before = taken.records;
        let mut lines = Vec::new();
        let mut entries = contents.entries.into_iter().peekable();
        while entries.peek().is_some() {
            let batch: Vec<SegmentEntry> = entries.by_ref().take(BURY_MAX).collect();
            lines.extend(self.bury(batch, taken).await);
        }
        for (_, why) in &contents.bad {
            tracing::error!(path = %path.display(), %why, "a spilled line cannot be read; it is set aside in a file that ends in `.bad`");
        }
        let bad: Vec<_> = contents.bad.into_iter().map(|(line, _)| line).collect();
        let set_aside = bad.len();
        let rest = SegmentRest {
            lines,
            bad,
            taken: taken.records - before,
        };
        self.on_disk(move |segments| segments.settle(&path, &rest))
            .await??;
        taken.set_aside += set_aside;
        Ok(())
    }

    /// Offers a batch to the store; answers the lines it did not take. If it refuses the batch as a
    /// whole, each is offered by itself, so that one does not keep out the others.
    async fn bury(&self, batch: Vec<SegmentEntry>, taken: &mut TakeInReport) -> Vec<String> {
        if taken.is_cut_short() {
            return batch.into_iter().map(|entry| entry.line).collect();
        }
        let burials = batch.iter().map(|entry| entry.burial.clone()).collect();
        match self.offer(burials).await {
            Ok(answers) => batch
                .into_iter()
                .zip(answers)
                .filter_map(|(entry, answer)| taken.count(answer).then_some(entry.line))
                .collect(),
            Err(error) if error.is_transient() || batch.len() == 1 => {
                taken.trouble = Some(error);
                batch.into_iter().map(|entry| entry.line).collect()
            }
            Err(_) => {
                let mut left = Vec::new();
                for entry in batch {
                    left.extend(Box::pin(self.bury(vec![entry], taken)).await);
                }
                left
            }
        }
    }

    async fn offer(&self, burials: Vec<NewDeadLetter>) -> Result<Vec<EnqueueOutcome>, StoreError> {
        let count = burials.len();
        let answers = self.store.bury(burials, self.clock.now()).await?;
        if answers.len() != count {
            return Err(StoreError::corrupt(
                "burying",
                format!("{} answers for {count} burials", answers.len()),
            ));
        }
        Ok(answers)
    }
}

impl TakeInReport {
    /// Counts an answer; whether the dead letter is left.
    fn count(&mut self, answer: EnqueueOutcome) -> bool {
        match answer {
            EnqueueOutcome::Inserted | EnqueueOutcome::Same => {
                self.records += 1;
                false
            }
            EnqueueOutcome::Full | EnqueueOutcome::Duplicate(_) | EnqueueOutcome::Conflict => {
                self.full += 1;
                true
            }
        }
    }
}
