//! Lists that processes share and only ever add to: one cell an entry, the newest kept.
//!
//! Entries are named by their time, so that a list of cells is a list by time. Old ones go in small steps, as new ones come.

use crate::client::Backstop;
use crate::shared::{Shared, Walk, read, remove, update};
use backstop_core::Time;
use backstop_core::port::Answer;
use std::collections::VecDeque;

/// Entries that go at most when one comes.
const TRIM_STEP: usize = 100;
/// One addition in so many looks whether there are too many: it has to read them all.
const TRIM_EVERY: u64 = 16;

/// One list.
pub(crate) struct Journal<'a> {
    backstop: &'a Backstop,
    prefix: &'static str,
    entries_max: usize,
}

impl<'a> Journal<'a> {
    /// The list of entries whose names begin with `prefix`; so many are kept.
    pub(crate) const fn new(backstop: &'a Backstop, prefix: &'static str, entries_max: usize) -> Self {
        Self { backstop, prefix, entries_max }
    }

    /// Adds an entry; answers its name, under which it can be changed.
    pub(crate) async fn add<T: Shared>(&self, at: Time, entry: &T) -> Answer<String> {
        let random = self.backstop.random().bits();
        let name = format!("{}{:020}-{random:016x}", self.prefix, at.as_micros().max(0));
        update(self.backstop, &name, entry.clone(), |_| ()).await?;
        if random.is_multiple_of(TRIM_EVERY) {
            // Too many entries are no reason not to add one; the next addition looks again.
            if let Err(error) = self.trim(self.entries_max).await {
                tracing::warn!(%error, list = self.prefix, "old entries could not be removed");
            }
        }
        Ok(name)
    }

    /// The entries, the newest first; one that cannot be read is left out, and logged.
    pub(crate) async fn newest<T: Shared>(&self, limit: usize) -> Answer<Vec<T>> {
        let mut newest = VecDeque::new();
        let mut walk = Walk::new(self.backstop, self.prefix);
        while let Some(cells) = walk.next().await? {
            newest.extend(cells.iter().filter_map(read::<T>));
            let surplus = newest.len().saturating_sub(limit);
            newest.drain(..surplus);
        }
        Ok(newest.into_iter().rev().collect())
    }

    /// Removes the oldest entries over `keep`, a few at a time.
    pub(crate) async fn trim(&self, keep: usize) -> Answer<usize> {
        let (mut oldest, mut total) = (Vec::new(), 0);
        let mut walk = Walk::new(self.backstop, self.prefix);
        while let Some(cells) = walk.next().await? {
            total += cells.len();
            let wanted = TRIM_STEP - oldest.len();
            oldest.extend(cells.into_iter().take(wanted));
        }
        oldest.truncate(total.saturating_sub(keep));
        remove(self.backstop, &oldest).await?;
        Ok(oldest.len())
    }
}
