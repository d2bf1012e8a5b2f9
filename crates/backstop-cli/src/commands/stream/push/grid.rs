//! Whether the records that are pushed are on the grid of their keys. Whoever serves the stream
//! decides what becomes of them; whoever pushes is told before that.

use backstop::StreamKey;
use backstop::core::stream::OffStep;
use backstop::streams::{Record, Standing, Stream};
use std::collections::HashMap;

/// Keys that are looked at in one run; records of further ones are pushed unlooked at.
const KEYS_MAX: usize = 1_000;

/// The grids of the keys that records were pushed to.
#[derive(Default)]
pub(super) struct Grids(HashMap<StreamKey, Grid>);

/// The last record that the grid is counted from.
#[derive(Clone, Copy, Default)]
struct Grid {
    from: Option<i64>,
    step: Option<i64>,
}

impl Grids {
    /// Where a record is, if that is off the grid of its key. A key that cannot be read keeps
    /// nobody from pushing.
    pub(super) async fn off_step(&mut self, stream: &Stream, record: &Record) -> Option<OffStep> {
        let mut grid = match self.0.get(&record.key) {
            Some(grid) => *grid,
            None if self.0.len() >= KEYS_MAX => return None,
            None => read(stream, &record.key).await,
        };
        let off_step = OffStep::of(record.position, record.step, grid.from, grid.step);
        if grid.from.is_none_or(|from| record.position > from) {
            grid = Grid {
                from: Some(record.position),
                step: Some(record.step),
            };
        }
        self.0.insert(record.key.clone(), grid);
        off_step
    }
}

async fn read(stream: &Stream, key: &StreamKey) -> Grid {
    let Ok(Some(stored)) = stream.key(key).await else {
        return Grid::default();
    };
    let step = Standing::from_bytes(&stored.standing)
        .ok()
        .and_then(|standing| standing.step);
    Grid {
        from: stored.watermark,
        step,
    }
}

/// What will become of a record that is off the grid.
pub(super) const fn fate(off: &OffStep) -> &'static str {
    if off.position > off.from {
        "It is handled in its turn, and the steps go on from it"
    } else {
        "Behind the watermark it is dropped as a duplicate"
    }
}
