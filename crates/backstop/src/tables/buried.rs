//! Which expired rows were copied to the dead letters. A letter may be removed long before its row is, and is not to come back.

use super::adopted::Adopted;
use super::row::Key;
use crate::shared::{read, update};
use backstop_core::limits::{TABLE_BURIED_CELL_MAX, TABLE_BURIED_CELLS_MAX};
use backstop_core::port::Answer;
use backstop_core::{JobId, Time};
use std::collections::HashSet;

/// What a row is remembered by: its key and its time of insertion, as sixteen digits. A row that its owner dates anew may expire anew.
pub(super) fn mark(key: &Key, inserted: Time) -> String {
    let name = JobId::named(&format!("{} {}", inserted.as_micros(), key.token()));
    name.as_bytes()[..8].iter().fold(String::with_capacity(MARK), |text, byte| text + &format!("{byte:02x}"))
}

/// Characters of a mark.
const MARK: usize = 16;

impl Adopted {
    /// The rows that are remembered.
    pub(super) async fn buried(&self) -> Answer<HashSet<String>> {
        let names = (0..TABLE_BURIED_CELLS_MAX).map(|number| self.table.buried_cell(number)).collect();
        let cells = self.backstop.store().cells(names).await?;
        let texts = cells.iter().flatten().filter_map(read::<String>);
        Ok(texts.flat_map(|text| marks(&text).map(ToOwned::to_owned).collect::<Vec<_>>()).collect())
    }

    /// Remembers rows, in the first cells that have room for them.
    pub(super) async fn remember_buried(&self, mut marks: Vec<String>) -> Answer<()> {
        for number in 0..TABLE_BURIED_CELLS_MAX {
            if marks.is_empty() {
                return Ok(());
            }
            let put = |text: &mut String| {
                let room = TABLE_BURIED_CELL_MAX.saturating_sub(text.len() / MARK);
                text.extend(marks.iter().take(room).map(String::as_str));
                room.min(marks.len())
            };
            let (_, kept) =
                update(&self.backstop, &self.table.buried_cell(number), String::new(), put).await?;
            marks.drain(..kept);
        }
        Ok(())
    }
}

fn marks(text: &str) -> impl Iterator<Item = &str> {
    (0..text.len() / MARK).filter_map(|at| text.get(at * MARK..(at + 1) * MARK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::Table;
    use crate::testing;

    #[tokio::test]
    async fn rows_are_remembered_however_many_there_are() {
        let test = testing::start();
        let adopted = test.backstop.adopted(&Table::new("t", "sqlite:nowhere.db", "t").expect("a table"));
        let all: Vec<String> = (0..9_000).map(|number| mark(&Key::Whole(number), Time::default())).collect();
        for part in all.chunks(700) {
            adopted.remember_buried(part.to_vec()).await.expect("remembered");
        }
        let known = adopted.buried().await.expect("marks");
        assert!(all.iter().all(|mark| known.contains(mark)));
        assert_eq!(known.len(), all.len());
        assert!(!known.contains(&mark(&Key::Whole(1), Time::from_micros(1))), "dated anew");
    }
}
