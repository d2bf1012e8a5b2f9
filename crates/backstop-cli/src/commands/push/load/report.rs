//! What became of the lines.

use super::super::id_conflicts;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::words::count;
use backstop::JobId;
use backstop::core::port::EnqueueOutcome;
use serde::Serialize;

/// Bad lines told one by one to people.
const BAD_LINES_SHOWN_MAX: usize = 20;
/// Bad lines told one by one to programs; a file of garbage must not fill the memory.
const BAD_LINES_KEPT_MAX: usize = 10_000;

/// A line that is no job.
#[derive(Serialize, Debug)]
pub(super) struct BadPushLine {
    /// Its number: 1 for the first.
    pub(super) line: u64,
    pub(super) error: String,
}

/// What became of the lines.
#[derive(Serialize, Default)]
pub(super) struct PushReport {
    inserted: u64,
    same: u64,
    duplicate: u64,
    /// Refused because their queue is full.
    full: u64,
    /// Refused because a job of another queue has their id.
    #[serde(skip_serializing_if = "is_zero")]
    conflict: u64,
    /// Of those that are the same: their id stands for something else.
    #[serde(skip_serializing_if = "is_zero")]
    other: u64,
    #[serde(skip)]
    conflict_ids: Vec<JobId>,
    bad: Vec<BadPushLine>,
    bad_count: u64,
}

impl PushReport {
    /// Takes in what a store answered.
    pub(super) fn add_answers(&mut self, answers: &[EnqueueOutcome]) {
        for answer in answers {
            *match answer {
                EnqueueOutcome::Inserted => &mut self.inserted,
                EnqueueOutcome::Same => &mut self.same,
                EnqueueOutcome::Duplicate(_) => &mut self.duplicate,
                EnqueueOutcome::Full => &mut self.full,
                EnqueueOutcome::Conflict => &mut self.conflict,
            } += 1;
        }
    }

    /// Takes in ids that stand for something else.
    pub(super) fn add_id_conflicts(&mut self, ids: &[JobId]) {
        self.other += ids.len() as u64;
        let room = id_conflicts::SHOWN_MAX - self.conflict_ids.len();
        self.conflict_ids.extend(ids.iter().take(room));
    }

    pub(super) fn add_bad_lines(&mut self, lines: Vec<BadPushLine>) {
        self.bad_count += lines.len() as u64;
        let room = BAD_LINES_KEPT_MAX - self.bad.len();
        self.bad.extend(lines.into_iter().take(room));
    }

    /// Whether every line was good.
    pub(super) const fn is_clean(&self) -> bool {
        self.bad_count == 0
    }

    /// Whether everything is in that could be.
    const fn is_whole(&self) -> bool {
        self.is_clean() && self.full == 0 && self.conflict == 0 && self.other == 0
    }

    /// Lines a store answered for.
    pub(super) const fn pushed(&self) -> u64 {
        self.inserted + self.same + self.duplicate + self.full + self.conflict
    }

    /// Tells it all; bad lines fall short.
    pub(super) fn print(&self, context: &CliContext) -> Result<ExitStatus, CliError> {
        if context.output.is_json() {
            context.output.json(self)?;
        } else {
            for bad in self.bad.iter().take(BAD_LINES_SHOWN_MAX) {
                context
                    .output
                    .warn(format!("line {}: {}", bad.line, bad.error));
            }
            if let Some(more) = self
                .bad_count
                .checked_sub(BAD_LINES_SHOWN_MAX as u64)
                .filter(|more| *more > 0)
            {
                context
                    .output
                    .warn(format!("… and {} more bad lines", count(more)));
            }
            context.output.line(format!(
                "{} inserted, {} same, {} duplicate, {} bad{}",
                count(self.inserted),
                count(self.same),
                count(self.duplicate),
                count(self.bad_count),
                refused(self.full)
            ))?;
        }
        if self.conflict > 0 {
            context.output.warn(format!(
                "{} refused because jobs of another queue have their ids; push them under other ids",
                count(self.conflict)
            ));
        }
        id_conflicts::warn(&self.conflict_ids, self.other, context);
        Ok(if self.is_whole() {
            ExitStatus::Success
        } else {
            ExitStatus::Failure
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it on so")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What a full queue refused; nothing if it refused nothing.
fn refused(full: u64) -> String {
    match full {
        0 => String::new(),
        _ => {
            format!(
                ", {} refused because the queue is full; push them again when there is room",
                count(full)
            )
        }
    }
}
