//! Which entries of the audit are removed when there are too many: those of the caller that wrote
//! the most.

use super::PREFIX;
use crate::client::Backstop;
use crate::shared_cells::{CellWalk, read, remove};
use backstop_core::Time;
use backstop_core::limits::{AUDIT_ENTRIES_MAX, AUDIT_KEPT, AUDIT_RECENT_MAX};
use backstop_core::port::{Cell, StoreResult};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One entry in so many looks whether there are too many: it has to read them all.
pub(super) const TRIM_EVERY: u64 = 64;
/// Entries that one look removes at most.
const TRIM_STEP: usize = 400;

/// What an entry counts for.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct AuditEntryOwner {
    who: String,
    at: Time,
}

/// Removes entries of those who wrote the most, as far as there are too many.
pub(super) async fn trim(backstop: &Backstop, now: Time) -> StoreResult<()> {
    let (mut cells, mut owned) = (Vec::new(), Vec::new());
    let mut walk = CellWalk::new(backstop, PREFIX);
    while let Some(page) = walk.next().await? {
        owned.extend(
            page.iter()
                .map(|cell| read::<AuditEntryOwner>(cell).unwrap_or_default()),
        );
        cells.extend(page.into_iter().map(|cell| Cell {
            value: Vec::new(),
            ..cell
        }));
    }
    let gone: Vec<Cell> = surplus(&owned, now)
        .into_iter()
        .map(|at| cells[at].clone())
        .collect();
    remove(backstop, &gone).await
}

/// The places of the entries to be removed; `entries` come newest first. The caller with the most
/// entries loses its oldest, unless that one is recent and there is still room for recent ones.
fn surplus(entries: &[AuditEntryOwner], now: Time) -> Vec<usize> {
    let mut of_callers = BTreeMap::<&str, Vec<usize>>::new();
    for (at, entry) in entries.iter().enumerate() {
        of_callers.entry(&entry.who).or_default().push(at);
    }
    let (mut gone, mut left) = (Vec::new(), entries.len());
    while left > AUDIT_ENTRIES_MAX && gone.len() < TRIM_STEP {
        let Some(most) = of_callers.values_mut().max_by_key(|of_one| of_one.len()) else {
            break;
        };
        let Some(oldest) = most.pop() else { break };
        if left <= AUDIT_RECENT_MAX && now.since(entries[oldest].at) < AUDIT_KEPT {
            break;
        }
        gone.push(oldest);
        left -= 1;
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::Span;

    /// So many entries of a caller, one a second, the newest first; the newest is this old.
    fn entries(who: &str, count: usize, age: Span, now: Time) -> Vec<AuditEntryOwner> {
        let at = |n: usize| {
            let secs = i64::try_from(n).expect("a test has few entries");
            now.before(age).before(Span::secs(secs))
        };
        (0..count)
            .map(|n| AuditEntryOwner {
                who: who.to_owned(),
                at: at(n),
            })
            .collect()
    }

    fn removed(entries: &[AuditEntryOwner], now: Time) -> Vec<(String, Time)> {
        surplus(entries, now)
            .into_iter()
            .map(|at| (entries[at].who.clone(), entries[at].at))
            .collect()
    }

    #[test]
    fn nothing_is_removed_that_is_recent_or_among_ten_thousand() {
        let now = Time::from_millis(1_800_000_000_000);
        let recent = entries("a", AUDIT_RECENT_MAX, Span::ZERO, now);
        assert!(removed(&recent, now).is_empty());
        let old = entries("a", AUDIT_ENTRIES_MAX, Span::days(400), now);
        assert!(removed(&old, now).is_empty());
    }

    #[test]
    fn whoever_writes_the_most_loses_its_own_oldest_and_nobody_else_loses_any() {
        let now = Time::from_millis(1_800_000_000_000);
        let mut all = entries("flood", AUDIT_RECENT_MAX + 3, Span::ZERO, now);
        // The oldest of all, by somebody else.
        all.extend(entries("ada", 1, Span::days(300), now));
        let gone = removed(&all, now);
        assert_eq!(gone.len(), 4);
        assert!(gone.iter().all(|(who, _)| who == "flood"), "{gone:?}");
        assert_eq!(gone[0].1, all[AUDIT_RECENT_MAX + 2].at, "its oldest first");
    }

    #[test]
    fn what_is_older_than_thirty_days_makes_room_in_small_steps() {
        let now = Time::from_millis(1_800_000_000_000);
        let old = entries("a", AUDIT_ENTRIES_MAX + 1_000, AUDIT_KEPT, now);
        assert_eq!(removed(&old, now).len(), TRIM_STEP);
        let few = entries("a", AUDIT_ENTRIES_MAX + 7, AUDIT_KEPT, now);
        assert_eq!(removed(&few, now).len(), 7);
    }
}
