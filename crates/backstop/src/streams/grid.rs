//! Whether the records that somebody pushes are on the grid of their keys. Whoever serves the
//! stream decides what becomes of them, perhaps hours later; this tells the producer at once.

use super::{KeyState, Record, Stream};
use backstop_core::StreamKey;
use backstop_core::stream::{OffStep, StoredKey};
use std::collections::{BTreeMap, HashMap};

/// Positions remembered for each key, the highest ones.
const POSITIONS_MAX: usize = 256;

/// The grids of the keys that records are pushed to.
#[derive(Debug)]
pub struct KeyGrids {
    keys: HashMap<StreamKey, KeyGrid>,
    keys_max: usize,
}

/// What the steps of a key are counted from: the record that comes before a position, or the
/// watermark where none does.
#[derive(Default, Debug)]
struct KeyGrid {
    watermark: Option<i64>,
    /// The step of the record that was handled last.
    step: Option<i64>,
    /// The steps of the records that wait, by position.
    waiting: BTreeMap<i64, i64>,
}

impl KeyGrids {
    /// Reads at most `keys_max` keys from the store; nothing is said of records of further ones.
    pub fn new(keys_max: usize) -> Self {
        Self {
            keys: HashMap::new(),
            keys_max,
        }
    }

    /// Where a record is, if that is off the grid of its key. Ask before the record is offered. A
    /// key that cannot be read keeps nobody from pushing.
    pub async fn off_step(&mut self, stream: &Stream, record: &Record) -> Option<OffStep> {
        if !self.keys.contains_key(&record.key) {
            if self.keys.len() >= self.keys_max {
                return None;
            }
            let stored = stream.key(&record.key).await.ok().flatten();
            let grid = stored
                .map(|stored| KeyGrid::new(&stored))
                .unwrap_or_default();
            self.keys.insert(record.key.clone(), grid);
        }
        self.keys.get_mut(&record.key)?.place(record)
    }
}

impl KeyGrid {
    fn new(stored: &StoredKey) -> Self {
        let key_state = KeyState::from_bytes(&stored.state);
        let mut grid = Self {
            watermark: stored.watermark,
            step: key_state.ok().and_then(|key_state| key_state.step),
            waiting: BTreeMap::new(),
        };
        for record in &stored.records {
            grid.note(record.position, record.step);
        }
        grid
    }

    fn place(&mut self, record: &Record) -> Option<OffStep> {
        let before = self.waiting.range(..=record.position).next_back();
        let (from, step) = before.map_or((self.watermark, self.step), |(position, step)| {
            (Some(*position), Some(*step))
        });
        self.note(record.position, record.step);
        OffStep::of(record.position, record.step, from, step)
    }

    fn note(&mut self, position: i64, step: i64) {
        // What is not ahead of the watermark is dropped: no step is counted from it.
        if self.watermark.is_none_or(|watermark| position > watermark) {
            self.waiting.insert(position, step);
        }
        if self.waiting.len() > POSITIONS_MAX {
            self.waiting.pop_first();
        }
    }
}
