//! Rows that are never tried again: listed, and copied to the dead letters if somebody wants that.

use super::adopted::{Adopted, Opened, TableError};
use super::row::Key;
use super::sql;
use super::work::{Taken, row_id, taken};
use backstop_core::failure::{Cause, ErrorReport, Failure, History};
use backstop_core::limits::{BURY_MAX, PAYLOAD_BYTES_MAX, TABLE_TOLD_MAX};
use backstop_core::port::{Burial, Enqueued};
use backstop_core::table::Cursor;
use backstop_core::verdict::Reason;
use backstop_core::{Kind, NewJob, Payload, Span, Time};
use serde_json::Value;

/// Rows that one pass copies at most.
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
    /// Rows before the first that found no room: their letters are there.
    pub(super) lying: usize,
}

/// A place among rows that grew too old: many may have come in at the same time.
pub(super) struct AgedPlace {
    pub(super) inserted: Time,
    pub(super) key: Key,
}

impl AgedPlace {
    fn at(row: &Taken) -> Self {
        Self { inserted: row.inserted(), key: row.key().clone() }
    }

    /// A place that was noted; `None` if it cannot be read, and it begins anew: a letter that is there already stays as it is.
    fn of(cursor: &Cursor) -> Option<Self> {
        Some(Self { inserted: cursor.inserted.parse().ok()?, key: Key::from_token(&cursor.key)? })
    }

    fn cursor(&self) -> Cursor {
        Cursor { inserted: self.inserted.to_string(), key: self.key.token() }
    }
}

impl Adopted {
    /// Keys of open rows that are never tried again, the oldest first.
    pub async fn expired(&self, at: Time, max: usize) -> Result<Vec<Value>, TableError> {
        let mut opened = self.open().await?;
        let listed = sql::list_expired(&self.table, &opened.shape, at, max.min(TABLE_TOLD_MAX));
        let rows = opened.rows(&listed).await?;
        Ok(rows.iter().filter_map(|row| Key::of(row.first()?)).map(|key| key.json()).collect())
    }

    /// Copies rows that grew too old, those that were not copied before; answers how many.
    pub(super) async fn bury_aged(&self, opened: &mut Opened, at: Time) -> Result<u64, TableError> {
        let behind = self.desk().await?.aged.as_ref().and_then(AgedPlace::of);
        let asked = sql::take_aged(&self.table, &opened.shape, behind.as_ref(), at, BATCH);
        let rows = opened.rows(&asked).await?;
        let rows = taken(&opened.shape, rows);
        let places: Vec<Cursor> = rows.iter().map(|row| AgedPlace::at(row).cursor()).collect();
        let why = format!(
            "it was inserted more than {} ago, and is not tried any more",
            self.table.rules.max_age()
        );
        let letters = rows.into_iter().map(|row| row.letter(Reason::MaxAge, why.clone())).collect();
        let buried = self.bury(letters).await?;
        // Not past one that found no room: it is tried again until there is some.
        if let Some(last) = places.into_iter().take(buried.lying).next_back() {
            self.change_desk(|desk| desk.aged = Some(last.clone())).await?;
        }
        Ok(buried.new)
    }

    /// Puts rows into the dead letters, up to the first that finds no room there.
    pub(super) async fn bury(&self, letters: Vec<Letter>) -> Result<Buried, TableError> {
        let mut buried = Buried::default();
        let mut letters = letters.into_iter().peekable();
        while letters.peek().is_some() {
            let part: Vec<Burial> =
                letters.by_ref().take(BURY_MAX).map(|letter| self.burial(letter)).collect();
            let answers = self.backstop.store().bury(part, self.backstop.now()).await?;
            buried.new += answers.iter().filter(|answer| **answer == Enqueued::Inserted).count() as u64;
            buried.lying += answers.iter().take_while(|answer| **answer != Enqueued::Full).count();
            if answers.contains(&Enqueued::Full) {
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
