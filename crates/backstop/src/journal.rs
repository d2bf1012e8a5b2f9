//! Lists that processes share and only ever add to: one cell an entry, the newest kept.
//!
//! Entries are named by how long before the end of time they came in, so that a list of cells is
//! the list of entries, the newest first, and a page of it costs no more than its own entries. Old
//! ones go in small steps, as new ones come.

use crate::client::Backstop;
use crate::shared_cells::{CellValue, CellWalk, read, remove, update};
use backstop_core::Time;
use backstop_core::limits::CELLS_MAX;
use backstop_core::port::{Cell, ListCellsRequest, StoreResult};
use std::collections::VecDeque;

/// Entries that go at most when one comes.
const TRIM_STEP: usize = 100;
/// One addition in so many looks whether there are too many: it has to read them all.
const TRIM_EVERY: u64 = 16;

pub(crate) struct CellJournal<'a> {
    backstop: &'a Backstop,
    prefix: &'static str,
    entries_max: usize,
}

/// Some of its entries, the newest first.
pub(crate) struct JournalPage<T> {
    /// Those that can be read, each with the name of its cell; one that cannot be is logged.
    pub(crate) entries: Vec<(String, T)>,
    /// The name of the last one looked at; `None` if there are no more.
    pub(crate) next: Option<String>,
}

impl<'a> CellJournal<'a> {
    /// The list of entries whose names begin with `prefix`; so many are kept.
    pub(crate) const fn new(
        backstop: &'a Backstop,
        prefix: &'static str,
        entries_max: usize,
    ) -> Self {
        Self {
            backstop,
            prefix,
            entries_max,
        }
    }

    /// Adds an entry; answers its name, under which it can be changed.
    pub(crate) async fn add<T: CellValue>(&self, at: Time, entry: &T) -> StoreResult<String> {
        let (name, random) = self.put(at, entry).await?;
        if random.is_multiple_of(TRIM_EVERY) {
            // Too many entries are no reason not to add one; the next addition looks again.
            if let Err(error) = self.trim(self.entries_max).await {
                tracing::warn!(%error, list = self.prefix, "old entries could not be removed");
            }
        }
        Ok(name)
    }

    /// Adds an entry and removes none; answers its name, and the random number in it.
    pub(crate) async fn put<T: CellValue>(
        &self,
        at: Time,
        entry: &T,
    ) -> StoreResult<(String, u64)> {
        let random = self.backstop.random().bits();
        let until_the_end = i64::MAX - at.as_micros().max(0);
        // The mark comes before every digit: entries that were once named by their time alone count
        // as the oldest.
        let name = format!("{}-{until_the_end:019}-{random:016x}", self.prefix);
        update(self.backstop, &name, entry.clone(), |_| ()).await?;
        Ok((name, random))
    }

    /// The entries, the newest first; one that cannot be read is left out, and logged.
    pub(crate) async fn newest<T: CellValue>(&self, limit: usize) -> StoreResult<Vec<T>> {
        let (mut newest, mut after) = (Vec::new(), None);
        while newest.len() < limit {
            let part = self
                .page(after, (limit - newest.len()).min(CELLS_MAX))
                .await?;
            newest.extend(part.entries.into_iter().map(|(_, entry)| entry));
            after = part.next;
            if after.is_none() {
                break;
            }
        }
        Ok(newest)
    }

    /// The next entries behind the one of this name, or from the newest on; looks at no more than
    /// `limit`.
    pub(crate) async fn page<T: CellValue>(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> StoreResult<JournalPage<T>> {
        let query = ListCellsRequest {
            prefix: self.prefix.to_owned(),
            after,
            limit,
        };
        let cells = self.backstop.store().list_cells(query).await?;
        let next = (cells.len() >= limit)
            .then(|| cells.last().map(|cell| cell.name.clone()))
            .flatten();
        let entry = |cell: &Cell| Some((cell.name.clone(), read(cell)?));
        Ok(JournalPage {
            entries: cells.iter().filter_map(entry).collect(),
            next,
        })
    }

    /// Removes the oldest entries over `keep`, a few at a time.
    pub(crate) async fn trim(&self, keep: usize) -> StoreResult<usize> {
        let (mut oldest, mut total) = (VecDeque::new(), 0_usize);
        let mut walk = CellWalk::new(self.backstop, self.prefix);
        while let Some(cells) = walk.next().await? {
            total += cells.len();
            oldest.extend(cells);
            let surplus = oldest.len().saturating_sub(TRIM_STEP);
            oldest.drain(..surplus);
        }
        let surplus = oldest.len().saturating_sub(total.saturating_sub(keep));
        oldest.drain(..surplus);
        remove(self.backstop, oldest.make_contiguous()).await?;
        Ok(oldest.len())
    }
}
