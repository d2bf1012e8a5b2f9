//! Rows that are never tried again: listed, and copied to the dead letters if somebody wants that.

use super::Table;
use super::adopted_table::place;
use super::adopted_table::{AdoptedTable, OpenTable, TableError};
use super::claim::{cursor, place as place_of};
use super::dead_lettered::{DeadLetteredMark, room_left};
use super::pass_work::row_id;
use super::row::{RowKey, SqlValue};
use super::sql;
use backstop_core::failure::{ErrorReport, FailureCause, FailureHistory, FailureRecord};
use backstop_core::limits::{BURY_MAX, PAYLOAD_BYTES_MAX, TABLE_CLAIM_MAX, TABLE_LISTED_MAX};
use backstop_core::port::{EnqueueOutcome, NewDeadLetter};
use backstop_core::table::{FullStorage, UnburiedRows};
use backstop_core::verdict::EndReason;
use backstop_core::{Kind, NewJob, Payload, Span, Time};
use serde_json::Value;
use std::collections::HashSet;

/// Expired rows that one pass copies; and that it looks at for those that were not copied before.
const BATCH: usize = 500;
const LISTED: usize = 10_000;
/// Rows that failed too often and are looked through faster in the order of insertion than sorted
/// into it.
const DENSE_ROWS: usize = 100_000;

/// A row that becomes a dead letter.
pub(super) struct RowDeadLetter {
    pub(super) key: RowKey,
    pub(super) json: String,
    pub(super) inserted: Time,
    pub(super) failures: u32,
    pub(super) reason: EndReason,
    pub(super) error: String,
}

/// What became of rows that were to become dead letters.
#[derive(Clone, Copy, Default)]
pub(super) struct BuryResult {
    /// Letters that were not there before.
    pub(super) new: u64,
    /// Where one found no room.
    pub(super) full: Option<FullStorage>,
    /// Those that are no letters.
    pub(super) left: u64,
}

impl AdoptedTable {
    /// Keys of open rows that are never tried again, the oldest first.
    pub async fn expired(&self, at: Time, max: usize) -> Result<Vec<Value>, TableError> {
        let (mut opened, _) = self.open_surveyed().await?;
        let rows = opened
            .list_expired(&self.table, None, at, max.min(TABLE_LISTED_MAX))
            .await?;
        Ok(rows
            .iter()
            .filter_map(|row| RowKey::of(row.first()?))
            .map(|key| key.json())
            .collect())
    }

    /// Goes on with the walk over expired rows, and copies those that were not copied before.
    /// Letters come first, then the note that they are there, then the next place: whoever is
    /// killed in between is followed by one who does the rest. A letter that lies there already
    /// stays as it is.
    pub(super) async fn bury_expired(
        &self,
        opened: &mut OpenTable,
        at: Time,
    ) -> Result<BuryResult, TableError> {
        let table_state = self.load_state().await?;
        let (seen, mut expired_scan) = (
            &table_state.walk,
            table_state.walk.next_scan(self.backstop.now()),
        );
        let past = expired_scan
            .cursor
            .as_ref()
            .and_then(|cursor| place_of(cursor, &opened.shape));
        let rows = opened
            .list_expired(&self.table, past.as_ref(), at, LISTED)
            .await?;
        let known = if rows.is_empty() {
            HashSet::new()
        } else {
            self.load_dead_lettered().await?
        };
        let (mut found, mut looked_at) = (Vec::new(), 0);
        for row in &rows {
            if found.len() == BATCH {
                break;
            }
            looked_at += 1;
            let Some((place, mark)) = read_mark(opened, row) else {
                continue;
            };
            expired_scan.cursor = Some(cursor(&place));
            if !known.contains(&mark) {
                found.push(place.key);
            }
        }
        expired_scan.is_through = looked_at == rows.len() && rows.len() < LISTED;
        let mut letters = Vec::with_capacity(found.len());
        for keys in found.chunks(TABLE_CLAIM_MAX) {
            let rows = opened.read_rows(&self.table, keys).await?;
            letters.extend(
                rows.into_iter()
                    .filter_map(|row| row.expired_letter(&self.table, at)),
            );
        }
        let mut buried = BuryResult::default();
        let (count, room) = (letters.len(), room_left(known.len()));
        if room > 0 {
            buried = self.bury(letters.into_iter().take(room).collect()).await?;
        }
        if count > room {
            (buried.full, buried.left) = (
                buried.full.or(Some(FullStorage::Marks)),
                buried.left + (count - room) as u64,
            );
            self.forget_gone(opened, known, at).await?;
        }
        // Not past one that found no room: it is tried again until there is some.
        if buried.full.is_none() {
            self.change_state(|table_state| {
                table_state.advance_expired_scan(seen, expired_scan.clone())
            })
            .await?;
        }
        Ok(buried)
    }

    /// What was not copied is known to all, and told once.
    pub(super) async fn note_unburied(&self, buried: BuryResult) -> Result<(), TableError> {
        let before = self.load_state().await?.unburied;
        let unburied = buried.full.map(|full| UnburiedRows {
            rows: buried.left,
            full,
        });
        if unburied != before {
            self.change_state(|table_state| table_state.unburied = unburied)
                .await?;
        }
        if let Some(UnburiedRows { rows, full }) = unburied.filter(|_| unburied != before) {
            tracing::warn!(table = self.table.name(), queue = %self.table.dead_letter_queue(), rows, "expired rows are not copied to the dead letters: {}", full.advice());
        }
        Ok(())
    }

    /// Forgets rows that were copied and are gone, or open no more, or dated anew: now and then,
    /// for it looks at all that is expired.
    async fn forget_gone(
        &self,
        opened: &mut OpenTable,
        mut gone: HashSet<DeadLetteredMark>,
        at: Time,
    ) -> Result<(), TableError> {
        let now = self.backstop.now();
        if !self
            .change_state(|table_state| table_state.try_start_pruning(now))
            .await?
            .1
        {
            return Ok(());
        }
        let mut past = None;
        loop {
            let before = past.clone();
            let rows = opened
                .list_expired(&self.table, past.as_ref(), at.max(now), LISTED)
                .await?;
            for (place, mark) in rows.iter().filter_map(|row| read_mark(opened, row)) {
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
        let forgotten = self.forget_dead_lettered(&gone).await?;
        tracing::info!(
            table = self.table.name(),
            rows = forgotten,
            "forgot dead letters of rows that are gone"
        );
        Ok(())
    }

    /// Puts rows into the dead letters, up to the first that finds no room there, and remembers
    /// those that lie there.
    pub(super) async fn bury(&self, letters: Vec<RowDeadLetter>) -> Result<BuryResult, TableError> {
        let mut buried = BuryResult::default();
        let mut letters = letters.into_iter().peekable();
        while letters.peek().is_some() {
            let part: Vec<RowDeadLetter> = letters.by_ref().take(BURY_MAX).collect();
            let marks: Vec<DeadLetteredMark> = part
                .iter()
                .map(|letter| DeadLetteredMark::of(&letter.key, letter.inserted))
                .collect();
            let burials: Vec<NewDeadLetter> =
                part.into_iter().map(|letter| self.burial(letter)).collect();
            let answers = self
                .backstop
                .store()
                .bury(burials, self.backstop.now())
                .await?;
            let lie = marks
                .into_iter()
                .zip(&answers)
                .filter(|(_, answer)| **answer != EnqueueOutcome::Full);
            self.remember_dead_lettered(lie.map(|(mark, _)| mark).collect())
                .await?;
            let count = |wanted| answers.iter().filter(|answer| **answer == wanted).count() as u64;
            buried.new += count(EnqueueOutcome::Inserted);
            if answers.contains(&EnqueueOutcome::Full) {
                (buried.full, buried.left) = (
                    Some(FullStorage::Letters),
                    count(EnqueueOutcome::Full) + letters.len() as u64,
                );
                break;
            }
        }
        Ok(buried)
    }

    fn burial(&self, letter: RowDeadLetter) -> NewDeadLetter {
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
            self.table.dead_letter_queue(),
            kind,
            Payload::from_stored(payload.into_bytes()),
        );
        let error = ErrorReport {
            error_type: Some("Expired".to_owned()),
            ..ErrorReport::message(letter.error)
        };
        let failure = FailureRecord::new(
            now,
            letter.failures.max(1),
            FailureCause::Failed,
            &self.runner,
            error,
        );
        NewDeadLetter {
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
            history: FailureHistory::default().with_failure(failure),
        }
    }
}

/// The place of an expired row, and its mark.
fn read_mark(opened: &OpenTable, row: &[SqlValue]) -> Option<(sql::RowPlace, DeadLetteredMark)> {
    let place = place(row)?;
    let inserted = row
        .get(2)
        .and_then(|cell| opened.shape.inserted.read(cell).time());
    let mark = DeadLetteredMark::of(&place.key, inserted.unwrap_or_default());
    Some((place, mark))
}

impl OpenTable {
    /// Expired rows, the oldest first and those behind a place.
    async fn list_expired(
        &mut self,
        table: &Table,
        past: Option<&sql::RowPlace>,
        at: Time,
        max: usize,
    ) -> Result<Vec<Vec<SqlValue>>, TableError> {
        let mut dense = Vec::new();
        for state in sql::OpenState::ALL {
            let statement = sql::failed_too_often_beyond(table, &self.shape, state, DENSE_ROWS);
            if let Some(statement) = statement
                && !self.rows(&statement).await?.is_empty()
            {
                dense.push(state);
            }
        }
        let listed = sql::list_expired(table, &self.shape, &dense, past, at, max);
        self.rows(&listed).await
    }
}
