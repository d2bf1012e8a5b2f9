//! The due rows of a table as bounds: what [`Rules::judge`] says of one row, said of all of them.

use super::{OpenRow, TableRules, TableStrategy, has_ticked};
use crate::time::{Span, Time};

/// Which open rows are due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DueCriteria {
    pub inserted_from: Time,
    pub due: DueRows,
}

/// What more a due row is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DueRows {
    /// In one of these groups. Rows without failures, and rows that failed nobody knows when, are
    /// due as well.
    ByFailures {
        /// The groups, by their failures.
        groups: Vec<FailureGroup>,
        /// Rows with so many failures, or more, are not due at all.
        max_failures: Option<u32>,
    },
    /// Inserted in one of these windows, which do not touch.
    ByAge(Vec<InsertWindow>),
}

/// Rows with the same wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailureGroup {
    pub failures: u32,
    pub or_more: bool,
    /// Due if their last failure was not after this.
    pub last_failure_until: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InsertWindow {
    pub from: Time,
    /// And before this; `None` for no end.
    pub before: Option<Time>,
}

impl TableRules {
    /// The bounds of what is due now.
    pub fn criteria(&self, last_pass: Option<Time>, now: Time) -> DueCriteria {
        let inserted_from = now.before(self.max_age);
        let due = match &self.strategy {
            TableStrategy::ByAge(_) => DueRows::ByAge(self.windows(last_pass, now, inserted_from)),
            TableStrategy::ByFailures {
                waits,
                max_failures,
            } => {
                let last = waits.len();
                let group = |(before, wait): (usize, &Span)| FailureGroup {
                    failures: u32::try_from(before + 1).unwrap_or(u32::MAX),
                    or_more: before + 1 == last,
                    last_failure_until: now.before(*wait),
                };
                let groups = waits.iter().enumerate().map(group);
                let is_tried =
                    |group: &FailureGroup| max_failures.is_none_or(|max| group.failures < max);
                DueRows::ByFailures {
                    groups: groups.filter(is_tried).collect(),
                    max_failures: *max_failures,
                }
            }
        };
        DueCriteria { inserted_from, due }
    }

    /// When rows were inserted whose band has ticked; what is next to each other is one window.
    fn windows(
        &self,
        last_pass: Option<Time>,
        now: Time,
        inserted_from: Time,
    ) -> Vec<InsertWindow> {
        let mut windows: Vec<InsertWindow> = Vec::new();
        let mut before = None;
        for band in self.bands() {
            let from = now.before(band.until).max(inserted_from);
            if before.is_none_or(|before| from < before) && has_ticked(*band, last_pass, now) {
                match windows.last_mut() {
                    Some(window) if Some(window.from) == before => window.from = from,
                    _ => windows.push(InsertWindow { from, before }),
                }
            }
            before = Some(from);
        }
        windows
    }
}

impl DueCriteria {
    /// The same for rows that were inserted no later than one of these times, and no earlier than
    /// the other. By failures nothing changes.
    #[must_use]
    pub fn between(mut self, newest: Option<Time>, oldest: Option<Time>) -> Self {
        let DueRows::ByAge(windows) = &mut self.due else {
            return self;
        };
        for window in windows.iter_mut() {
            let before = newest.map(|newest| newest.after(Span::micros(1)));
            window.before = window.before.into_iter().chain(before).min();
            window.from = oldest.map_or(window.from, |oldest| oldest.max(window.from));
        }
        windows.retain(|window| window.before.is_none_or(|before| window.from < before));
        self
    }

    /// Whether they say that a row is due.
    pub fn admit(&self, row: OpenRow) -> bool {
        let is_due = match &self.due {
            DueRows::ByAge(windows) => windows.iter().any(|window| window.admits(row.inserted)),
            DueRows::ByFailures {
                groups,
                max_failures,
            } => {
                let is_tried = max_failures.is_none_or(|max| row.failures < max);
                let is_fresh = row.failures == 0 || row.last_failure.is_none();
                is_tried && (is_fresh || groups.iter().any(|group| group.admits(row)))
            }
        };
        row.inserted >= self.inserted_from && is_due
    }
}

impl InsertWindow {
    fn admits(&self, inserted: Time) -> bool {
        inserted >= self.from && self.before.is_none_or(|before| inserted < before)
    }
}

impl FailureGroup {
    fn admits(&self, row: OpenRow) -> bool {
        let is_in = if self.or_more {
            row.failures >= self.failures
        } else {
            row.failures == self.failures
        };
        is_in
            && row
                .last_failure
                .is_none_or(|last| last <= self.last_failure_until)
    }
}
