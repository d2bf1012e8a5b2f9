//! The due rows of a table as bounds for a query: [`TableRules::judge`] for all rows at once.

use super::{OpenRow, TableRules, TableStrategy, has_ticked};
use crate::time::{Span, Time};

/// The bounds that select the due rows among the open ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DueCriteria {
    pub inserted_from: Time,
    pub due: DueRows,
}

/// The bounds by failures or by age, in addition to the maximum age.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DueRows {
    /// Rows in one of these groups. Rows without failures, and rows whose last failure has no known
    /// time, are due as well.
    ByFailures {
        /// The groups, ordered by their number of failures.
        groups: Vec<FailureGroup>,
        /// Rows with this many failures or more are never due.
        max_failures: Option<u32>,
    },
    /// Rows inserted in one of these windows, which do not touch each other.
    ByAge(Vec<InsertWindow>),
}

/// The rows that have the same wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailureGroup {
    pub failures: u32,
    pub or_more: bool,
    /// A row of the group is due if its last failure was at or before this time.
    pub last_failure_until: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InsertWindow {
    pub from: Time,
    /// The exclusive end of the window; `None` for no end.
    pub before: Option<Time>,
}

impl TableRules {
    /// The bounds that select the rows due now.
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

    /// The insert windows of the bands that have ticked; adjacent windows are merged.
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
    /// Restricts the bounds to rows inserted at or before `newest` and at or after `oldest`. By
    /// failures, this changes nothing.
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

    /// Whether the bounds select this row.
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
