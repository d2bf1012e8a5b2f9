//! Rows that are never tried again: listed, and copied to the dead letters if somebody wants that.

use super::Table;
use super::adopted::place;
use super::adopted::{Adopted, Opened, TableError};
use super::buried::{Mark, room_beside};
use super::claim::{cursor, place as place_of};
use super::row::{Cell, Key};
use super::sql;
use super::work::row_id;
use backstop_core::failure::{Cause, ErrorReport, Failure, History};
use backstop_core::limits::{BURY_MAX, PAYLOAD_BYTES_MAX, TABLE_CLAIM_MAX, TABLE_TOLD_MAX};
use backstop_core::port::{Burial, Enqueued};
use backstop_core::table::{Full, Unburied};
use backstop_core::verdict::Reason;
use backstop_core::{Kind, NewJob, Payload, Span, Time};
use serde_json::Value;
use std::collections::HashSet;

/// Expired rows that one pass copies; and that it looks at for those that were not copied before.
const BATCH: usize = 500;
const LISTED: usize = 10_000;
/// Rows that failed too often and are looked through faster in the order of insertion than sorted
/// into it.
const DENSE: usize = 100_000;

/// A row that becomes a dead letter.
pub(super) struct Letter {
    pub(super) key: Key,
    pub(super) json: String,
    pub(super) inserted: Time,
    pub(super) failures: u32,
    pub(super) reason: Reason,
    pub(super) error: String,
}

/// What became of rows that were to become dead letters.
#[derive(Clone, Copy, Default)]
pub(super) struct Buried {
    /// Letters that were not there before.
    pub(super) new: u64,
    /// Where one found no room.
    pub(super) full: Option<Full>,
    /// Those that are no letters.
    pub(super) left: u64,
}

impl Adopted {
    /// Keys of open rows that are never tried again, the oldest first.
    pub async fn expired(&self, at: Time, max: usize) -> Result<Vec<Value>, TableError> {
        let (mut opened, _) = self.open_surveyed().await?;
        let rows = opened
            .list_expired(&self.table, None, at, max.min(TABLE_TOLD_MAX))
            .await?;
        Ok(rows
            .iter()
            .filter_map(|row| Key::of(row.first()?))
            .map(|key| key.json())
            .collect())
    }

    /// Goes on with the walk over expired rows, and copies those that were not copied before.
    /// Letters come first, then the note that they are there, then the next place: whoever is
    /// killed in between is followed by one who does the rest. A letter that lies there already
    /// stays as it is.
    pub(super) async fn bury_expired(
        &self,
        opened: &mut Opened,
        at: Time,
    ) -> Result<Buried, TableError> {
        let desk = self.desk().await?;
        let (seen, mut walk) = (&desk.walk, desk.walk.onward(self.backstop.now()));
        let past = walk
            .cursor
            .as_ref()
            .and_then(|cursor| place_of(cursor, &opened.shape));
        let rows = opened
            .list_expired(&self.table, past.as_ref(), at, LISTED)
            .await?;
        let known = if rows.is_empty() {
            HashSet::new()
        } else {
            self.buried().await?
        };
        let (mut found, mut looked_at) = (Vec::new(), 0);
        for row in &rows {
            if found.len() == BATCH {
                break;
            }
            looked_at += 1;
            let Some((place, mark)) = marked(opened, row) else {
                continue;
            };
            walk.cursor = Some(cursor(&place));
            if !known.contains(&mark) {
                found.push(place.key);
            }
        }
        walk.is_through = looked_at == rows.len() && rows.len() < LISTED;
        let mut letters = Vec::with_capacity(found.len());
        for keys in found.chunks(TABLE_CLAIM_MAX) {
            let rows = opened.look_at(&self.table, keys).await?;
            letters.extend(
                rows.into_iter()
                    .filter_map(|row| row.expired_letter(&self.table, at)),
            );
        }
        let mut buried = Buried::default();
        let (count, room) = (letters.len(), room_beside(known.len()));
        if room > 0 {
            buried = self.bury(letters.into_iter().take(room).collect()).await?;
        }
        if count > room {
            (buried.full, buried.left) = (
                buried.full.or(Some(Full::Marks)),
                buried.left + (count - room) as u64,
            );
            self.forget_gone(opened, known, at).await?;
        }
        // Not past one that found no room: it is tried again until there is some.
        if buried.full.is_none() {
            self.change_desk(|desk| desk.walk_on(seen, walk.clone()))
                .await?;
        }
        Ok(buried)
    }

    /// What was not copied is known to all, and told once.
    pub(super) async fn note_unburied(&self, buried: Buried) -> Result<(), TableError> {
        let before = self.desk().await?.unburied;
        let unburied = buried.full.map(|full| Unburied {
            rows: buried.left,
            full,
        });
        if unburied != before {
            self.change_desk(|desk| desk.unburied = unburied).await?;
        }
        if let Some(Unburied { rows, full }) = unburied.filter(|_| unburied != before) {
            tracing::warn!(table = self.table.name(), queue = %self.table.letters_queue(), rows, "expired rows are not copied to the dead letters: {}", full.advice());
        }
        Ok(())
    }

    /// Forgets rows that were copied and are gone, or open no more, or dated anew: now and then,
    /// for it looks at all that is expired.
    async fn forget_gone(
        &self,
        opened: &mut Opened,
        mut gone: HashSet<Mark>,
        at: Time,
    ) -> Result<(), TableError> {
        let now = self.backstop.now();
        if !self.change_desk(|desk| desk.take_pruning(now)).await?.1 {
            return Ok(());
        }
        let mut past = None;
        loop {
            let before = past.clone();
            let rows = opened
                .list_expired(&self.table, past.as_ref(), at.max(now), LISTED)
                .await?;
            for (place, mark) in rows.iter().filter_map(|row| marked(opened, row)) {
                gone.remove(&mark);
                past = Some(place);
            }
            if self.stop.is_cancelled() {
                return Ok(());
            }
            if rows.len() < LISTED || past == before {
                break;
            }
        }
        let forgotten = self.forget_buried(&gone).await?;
        tracing::info!(
            table = self.table.name(),
            rows = forgotten,
            "forgot dead letters of rows that are gone"
        );
        Ok(())
    }

    /// Puts rows into the dead letters, up to the first that finds no room there, and remembers
    /// those that lie there.
    pub(super) async fn bury(&self, letters: Vec<Letter>) -> Result<Buried, TableError> {
        let mut buried = Buried::default();
        let mut letters = letters.into_iter().peekable();
        while letters.peek().is_some() {
            let part: Vec<Letter> = letters.by_ref().take(BURY_MAX).collect();
            let marks: Vec<Mark> = part
                .iter()
                .map(|letter| Mark::of(&letter.key, letter.inserted))
                .collect();
            let burials: Vec<Burial> = part.into_iter().map(|letter| self.burial(letter)).collect();
            let answers = self
                .backstop
                .store()
                .bury(burials, self.backstop.now())
                .await?;
            let lie = marks
                .into_iter()
                .zip(&answers)
                .filter(|(_, answer)| **answer != Enqueued::Full);
            self.remember_buried(lie.map(|(mark, _)| mark).collect())
                .await?;
            let count = |wanted| answers.iter().filter(|answer| **answer == wanted).count() as u64;
            buried.new += count(Enqueued::Inserted);
            if answers.contains(&Enqueued::Full) {
                (buried.full, buried.left) = (
                    Some(Full::Letters),
                    count(Enqueued::Full) + letters.len() as u64,
                );
                break;
            }
        }
        Ok(buried)
    }

    fn burial(&self, letter: Letter) -> Burial {
        let now = self.backstop.now();
        let payload = if letter.json.len() > PAYLOAD_BYTES_MAX {
            // The row stays where it is: its key is enough to find it.
            serde_json::json!({ "key": letter.key.json() }).to_string()
        } else {
            letter.json
        };
        let kind = Kind::new(self.table.name()).unwrap_or_default();
        let job = NewJob::new(
            row_id(&self.table, &letter.key),
            self.table.letters_queue(),
            kind,
            Payload::stored(payload.into_bytes()),
        );
        let error = ErrorReport {
            error_type: Some("Expired".to_owned()),
            ..ErrorReport::message(letter.error)
        };
        let failure = Failure::new(
            now,
            letter.failures.max(1),
            Cause::Failed,
            &self.runner,
            error,
        );
        Burial {
            job: NewJob {
                run_at: Some(now),
                ..job
            },
            attempts: letter.failures,
            lost_leases: 0,
            requeues: 0,
            inserted_at: letter.inserted.min(now).max(now.before(Span::days(3_660))),
            finished_at: now,
            reason: letter.reason,
            history: History::default().with(failure),
        }
    }
}

/// The place of an expired row, and its mark.
fn marked(opened: &Opened, row: &[Cell]) -> Option<(sql::Place, Mark)> {
    let place = place(row)?;
    let inserted = row
        .get(2)
        .and_then(|cell| opened.shape.inserted.read(cell).time());
    let mark = Mark::of(&place.key, inserted.unwrap_or_default());
    Some((place, mark))
}

impl Opened {
    /// Expired rows, the oldest first and those behind a place.
    async fn list_expired(
        &mut self,
        table: &Table,
        past: Option<&sql::Place>,
        at: Time,
        max: usize,
    ) -> Result<Vec<Vec<Cell>>, TableError> {
        let mut dense = Vec::new();
        for state in sql::Open::ALL {
            let asked = sql::failed_too_often_beyond(table, &self.shape, state, DENSE);
            if let Some(asked) = asked
                && !self.rows(&asked).await?.is_empty()
            {
                dense.push(state);
            }
        }
        let listed = sql::list_expired(table, &self.shape, &dense, past, at, max);
        self.rows(&listed).await
    }
}
