//! What became of the lines.

use super::super::same;
use crate::context::Context;
use crate::output::words::count;
use crate::trouble::{Trouble, Verdict};
use backstop::JobId;
use backstop::core::port::Enqueued;
use serde::Serialize;

/// Bad lines told one by one to people.
const TOLD_MAX: usize = 20;
/// Bad lines told one by one to programs; a file of garbage must not fill the memory.
const KEPT_MAX: usize = 10_000;

/// A line that is no job.
#[derive(Serialize, Debug)]
pub(super) struct BadLine {
    /// Its number: 1 for the first.
    pub(super) line: u64,
    /// Why.
    pub(super) error: String,
}

/// What became of the lines.
#[derive(Serialize, Default)]
pub(super) struct Report {
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
    others_told: Vec<JobId>,
    bad: Vec<BadLine>,
    bad_count: u64,
}

impl Report {
    /// Takes in what a store answered.
    pub(super) fn pushed_some(&mut self, answers: &[Enqueued]) {
        for answer in answers {
            *match answer {
                Enqueued::Inserted => &mut self.inserted,
                Enqueued::Same => &mut self.same,
                Enqueued::Duplicate(_) => &mut self.duplicate,
                Enqueued::Full => &mut self.full,
                Enqueued::Conflict => &mut self.conflict,
            } += 1;
        }
    }

    /// Takes in ids that stand for something else.
    pub(super) fn others(&mut self, ids: &[JobId]) {
        self.other += ids.len() as u64;
        let room = same::TOLD_MAX - self.others_told.len();
        self.others_told.extend(ids.iter().take(room));
    }

    /// Takes in bad lines.
    pub(super) fn bad(&mut self, lines: Vec<BadLine>) {
        self.bad_count += lines.len() as u64;
        let room = KEPT_MAX - self.bad.len();
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
    pub(super) fn tell(&self, context: &Context) -> Result<Verdict, Trouble> {
        if context.output.is_json() {
            context.output.json(self)?;
        } else {
            for bad in self.bad.iter().take(TOLD_MAX) {
                context
                    .output
                    .warn(format!("line {}: {}", bad.line, bad.error));
            }
            if let Some(more) = self
                .bad_count
                .checked_sub(TOLD_MAX as u64)
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
        same::tell(&self.others_told, self.other, context);
        Ok(if self.is_whole() {
            Verdict::Fine
        } else {
            Verdict::FallsShort
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
