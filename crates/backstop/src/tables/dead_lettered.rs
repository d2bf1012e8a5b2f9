//! Which expired rows were copied to the dead letters. A letter may be removed long before its row
//! is, and is not to come back.
//!
//! No row is copied whose mark would find no room. Marks of rows that are gone, or open no more,
//! make room for others.

use super::adopted_table::AdoptedTable;
use super::row::RowKey;
use crate::shared_cells::{read, update};
use backstop_core::limits::{TABLE_BURIED_CELL_MAX, TABLE_BURIED_CELLS_MAX};
use backstop_core::port::StoreResult;
use backstop_core::{JobId, Time};
use std::collections::HashSet;

/// What a row is remembered by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct DeadLetteredMark(u64);

/// Characters of a mark, as digits.
const DIGITS: usize = 16;
/// Marks that runners may make at the same time, each of them seeing room: so many places are kept
/// for them.
const MARKS_MAX: usize = TABLE_BURIED_CELL_MAX / 2;

impl DeadLetteredMark {
    /// Of its key and its time of insertion: a row that its owner dates anew may expire anew.
    pub(super) fn of(key: &RowKey, inserted: Time) -> Self {
        let name = JobId::named(&format!("{} {}", inserted.as_micros(), key.token()));
        Self(
            name.as_bytes()[..8]
                .iter()
                .fold(0, |mark, byte| mark << 8 | u64::from(*byte)),
        )
    }

    fn read(digits: &str) -> Option<Self> {
        u64::from_str_radix(digits, 16).ok().map(Self)
    }

    fn digits(self) -> String {
        format!("{:0DIGITS$x}", self.0)
    }
}

impl AdoptedTable {
    /// The rows that are remembered.
    pub(super) async fn load_dead_lettered(&self) -> StoreResult<HashSet<DeadLetteredMark>> {
        let names = (0..TABLE_BURIED_CELLS_MAX)
            .map(|number| self.table.dead_lettered_cell(number))
            .collect();
        let cells = self.backstop.store().cells(names).await?;
        let texts: Vec<String> = cells.iter().flatten().filter_map(read::<String>).collect();
        Ok(texts.iter().flat_map(|text| marks(text)).collect())
    }

    /// Whether a few more can be remembered, as far as the last cell says: a walk over all of them
    /// knows better.
    pub(super) async fn has_room_for_marks(&self) -> StoreResult<bool> {
        let name = self.table.dead_lettered_cell(TABLE_BURIED_CELLS_MAX - 1);
        let cell = self
            .backstop
            .store()
            .cells(vec![name])
            .await?
            .pop()
            .flatten();
        let text = cell.as_ref().and_then(read::<String>).unwrap_or_default();
        Ok(text.len() / DIGITS < MARKS_MAX)
    }

    /// Remembers rows, in the first cells that have room for them.
    pub(super) async fn remember_dead_lettered(
        &self,
        mut new: Vec<DeadLetteredMark>,
    ) -> StoreResult<()> {
        for number in 0..TABLE_BURIED_CELLS_MAX {
            if new.is_empty() {
                return Ok(());
            }
            let put = |text: &mut String| {
                let room = TABLE_BURIED_CELL_MAX.saturating_sub(text.len() / DIGITS);
                text.extend(new.iter().take(room).map(|mark| mark.digits()));
                room.min(new.len())
            };
            let (_, kept) = update(
                &self.backstop,
                &self.table.dead_lettered_cell(number),
                String::new(),
                put,
            )
            .await?;
            new.drain(..kept);
        }
        if !new.is_empty() {
            tracing::error!(
                table = self.table.name(),
                rows = new.len(),
                "so many runners made dead letters at once that not all are remembered; these may come back once they are removed"
            );
        }
        Ok(())
    }

    /// Forgets rows; answers how many.
    pub(super) async fn forget_dead_lettered(
        &self,
        gone: &HashSet<DeadLetteredMark>,
    ) -> StoreResult<usize> {
        let mut forgotten = 0;
        for number in 0..TABLE_BURIED_CELLS_MAX {
            let drop = |text: &mut String| {
                let before = text.len();
                let kept: Vec<DeadLetteredMark> =
                    marks(text).filter(|mark| !gone.contains(mark)).collect();
                if kept.len() * DIGITS < before {
                    *text = kept.into_iter().map(DeadLetteredMark::digits).collect();
                }
                (before - text.len()) / DIGITS
            };
            forgotten += update(
                &self.backstop,
                &self.table.dead_lettered_cell(number),
                String::new(),
                drop,
            )
            .await?
            .1;
        }
        Ok(forgotten)
    }
}

/// How many more rows can be remembered beside so many.
pub(super) const fn room_left(known: usize) -> usize {
    (TABLE_BURIED_CELLS_MAX * TABLE_BURIED_CELL_MAX - MARKS_MAX).saturating_sub(known)
}

fn marks(text: &str) -> impl Iterator<Item = DeadLetteredMark> {
    (0..text.len() / DIGITS)
        .filter_map(|at| DeadLetteredMark::read(text.get(at * DIGITS..(at + 1) * DIGITS)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::Table;
    use crate::testing;

    #[tokio::test]
    async fn rows_are_remembered_however_many_there_are_until_they_are_forgotten() {
        let test = testing::start();
        let adopted = test
            .backstop
            .adopted_table(&Table::new("t", "sqlite:nowhere.db", "t").expect("a table"));
        let mark = |number| DeadLetteredMark::of(&RowKey::Whole(number), Time::default());
        let all: Vec<DeadLetteredMark> = (0..9_000).map(mark).collect();
        for part in all.chunks(700) {
            adopted
                .remember_dead_lettered(part.to_vec())
                .await
                .expect("remembered");
        }
        let known = adopted.load_dead_lettered().await.expect("marks");
        assert!(all.iter().all(|mark| known.contains(mark)));
        assert_eq!(known.len(), all.len());
        assert!(
            !known.contains(&DeadLetteredMark::of(
                &RowKey::Whole(1),
                Time::from_micros(1)
            )),
            "dated anew"
        );
        let gone: HashSet<DeadLetteredMark> = (0..5_000).map(mark).collect();
        assert_eq!(
            adopted
                .forget_dead_lettered(&gone)
                .await
                .expect("forgotten"),
            5_000
        );
        assert_eq!(
            adopted.load_dead_lettered().await.expect("marks"),
            &known - &gone
        );
        let first: Vec<DeadLetteredMark> = gone.into_iter().take(100).collect();
        adopted
            .remember_dead_lettered(first.clone())
            .await
            .expect("remembered");
        assert_eq!(
            adopted.load_dead_lettered().await.expect("marks").len(),
            4_100,
            "where there was room again"
        );
        assert!(adopted.has_room_for_marks().await.expect("room"));
    }
}
