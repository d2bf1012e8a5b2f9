//! Rows that are never tried again: listed, and copied to the dead letters if somebody wants that.

use super::adopted::place;
use super::adopted::{Adopted, Opened, TableError};
use super::buried::mark;
use super::claim::{cursor, place as place_of};
use super::row::Key;
use super::sql;
use super::work::row_id;
use backstop_core::failure::{Cause, ErrorReport, Failure, History};
use backstop_core::limits::{BURY_MAX, PAYLOAD_BYTES_MAX, TABLE_CLAIM_MAX, TABLE_TOLD_MAX};
use backstop_core::port::{Burial, Enqueued};
use backstop_core::verdict::Reason;
use backstop_core::{Kind, NewJob, Payload, Span, Time};
use serde_json::Value;
use std::collections::HashSet;

/// Expired rows that one pass looks at.
const BATCH: usize = 500;

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
    /// Whether one found no room.
    pub(super) is_full: bool,
}

impl Adopted {
    /// Keys of open rows that are never tried again, the oldest first.
    pub async fn expired(&self, at: Time, max: usize) -> Result<Vec<Value>, TableError> {
        let (mut opened, _) = self.open_surveyed().await?;
        let listed = sql::list_expired(&self.table, &opened.shape, None, at, max.min(TABLE_TOLD_MAX));
        let rows = opened.rows(&listed).await?;
        Ok(rows.iter().filter_map(|row| Key::of(row.first()?)).map(|key| key.json()).collect())
    }

    /// Goes on with the walk over expired rows, and copies those that were not copied before; answers how many. Letters come first, then the
    /// note that they are there, then the next place: whoever is killed in between is followed by one who does the rest. A letter
    /// that lies there already stays as it is.
    pub(super) async fn bury_expired(&self, opened: &mut Opened, at: Time) -> Result<u64, TableError> {
        let seen = self.desk().await?.walk;
        let mut walk = seen.onward(self.backstop.now());
        let past = walk.cursor.as_ref().and_then(|cursor| place_of(cursor, &opened.shape));
        let asked = sql::list_expired(&self.table, &opened.shape, past.as_ref(), at, BATCH);
        let rows = opened.rows(&asked).await?;
        let known = if rows.is_empty() { HashSet::new() } else { self.buried().await? };
        let mut found = Vec::new();
        for row in &rows {
            let Some(place) = place(row) else { continue };
            let inserted = row.get(2).and_then(|cell| opened.shape.inserted.read(cell).time());
            let mark = mark(&place.key, inserted.unwrap_or_default());
            walk.cursor = Some(cursor(&place));
            if !known.contains(&mark) {
                found.push(place.key);
            }
        }
        walk.is_through = rows.len() < BATCH;
        let mut letters = Vec::with_capacity(found.len());
        for keys in found.chunks(TABLE_CLAIM_MAX) {
            let rows = opened.look_at(&self.table, keys).await?;
            letters.extend(rows.into_iter().filter_map(|row| row.expired_letter(&self.table, at)));
        }
        let buried = self.bury(letters).await?;
        // Not past one that found no room: it is tried again until there is some.
        if !buried.is_full {
            self.change_desk(|desk| desk.walk_on(&seen, walk.clone())).await?;
        }
        Ok(buried.new)
    }

    /// Puts rows into the dead letters, up to the first that finds no room there, and remembers those that lie there.
    pub(super) async fn bury(&self, letters: Vec<Letter>) -> Result<Buried, TableError> {
        let mut buried = Buried::default();
        let mut letters = letters.into_iter().peekable();
        while letters.peek().is_some() {
            let part: Vec<Letter> = letters.by_ref().take(BURY_MAX).collect();
            let marks: Vec<String> = part.iter().map(|letter| mark(&letter.key, letter.inserted)).collect();
            let burials: Vec<Burial> = part.into_iter().map(|letter| self.burial(letter)).collect();
            let answers = self.backstop.store().bury(burials, self.backstop.now()).await?;
            let lie = marks.into_iter().zip(&answers).filter(|(_, answer)| **answer != Enqueued::Full);
            self.remember_buried(lie.map(|(mark, _)| mark).collect()).await?;
            buried.new += answers.iter().filter(|answer| **answer == Enqueued::Inserted).count() as u64;
            buried.is_full = answers.contains(&Enqueued::Full);
            if buried.is_full {
                tracing::warn!(table = self.table.name(), queue = %self.table.letters_queue(), "expired rows found no room in the dead letters; raise `dead.max` of the queue, or clear some");
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
        let error =
            ErrorReport { error_type: Some("Expired".to_owned()), ..ErrorReport::message(letter.error) };
        let failure = Failure::new(now, letter.failures.max(1), Cause::Failed, &self.runner, error);
        Burial {
            job: NewJob { run_at: Some(now), ..job },
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
