//! Handlers at work: rows that were taken, what became of them, and how that is written.

use super::adopted_table::{AdoptedTable, OpenTable, ScanView, TableError};
use super::claim::RowClaims;
use super::count;
use super::expired::RowDeadLetter;
use super::handler::{RowHandler, TableRow};
use super::link::{SqlStatement, TableLinkError, TransactionMode};
use super::pass::{PassClock, PassProgress, PassReport};
use super::row::{RowKey, SqlValue, object};
use super::schema::{DateReading, TableSchema};
use super::sql::{self, OpenState, RowChange, RowOutcome};
use super::{OnExpired, Table};
use crate::engine::execute::{panic_ending, timeout_ending};
use backstop_core::limits::TABLE_CLAIM_MAX;
use backstop_core::table::{OpenRow, RowDecision};
use backstop_core::verdict::{EndReason, RunEnding};
use backstop_core::{JobId, Span, Time};
use bytes::Bytes;
use futures_util::FutureExt;
use std::collections::{HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Rows are taken so many at a time, however few handlers there are.
const CHUNK_MIN: usize = 16;
/// How long a run that was called off may take to end by itself.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
/// Waits before what became of rows is written once more on a new connection.
const WRITE_AGAIN: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(500),
    Duration::from_secs(3),
];

/// A row as it was read.
pub(super) struct TakenRow {
    key: RowKey,
    seen: OpenState,
    /// Its failures as they are written; `None` for no number.
    failures: Option<i128>,
    row: OpenRow,
    /// Whether its last failure is a date, as far as it has one.
    is_dated: bool,
    json: String,
}

/// What became of rows that were found due, once they were ours and read again.
#[derive(Default)]
pub(super) struct RereadRows {
    pub(super) taken: Vec<TakenRow>,
    /// How many are a success, or an error that waits: another runner was done with them before we
    /// asked.
    pub(super) done_by_others: usize,
}

pub(super) struct PassWork<'a> {
    pub(super) adopted: &'a AdoptedTable,
    handler: Arc<dyn RowHandler>,
    when: PassClock,
    pub(super) opened: &'a mut OpenTable,
    pub(super) claims: &'a RowClaims<'a>,
    lost: CancellationToken,
    pub(super) pass: &'a mut PassReport,
    progress: &'a mut (dyn FnMut(PassProgress) + Send),
    pub(super) ready: VecDeque<TakenRow>,
    running: JoinSet<(TakenRow, RunEnding)>,
    /// A place that was waited for.
    place: Option<OwnedSemaphorePermit>,
    /// Rows that were taken in this pass: none is taken twice.
    tried: HashSet<String>,
    /// Whether it is known that what becomes of rows can be written.
    is_writable: bool,
}

/// How far handlers are let work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SettleGoal {
    Hungry,
    Begun,
    Ended,
}

impl TakenRow {
    /// A row as the statement for taking rows gives it; `None` if it is no longer open, or says no
    /// time.
    fn of(shape: &TableSchema, cells: Vec<SqlValue>) -> Option<Self> {
        let mut cells = cells.into_iter();
        let key = RowKey::of(&cells.next()?)?;
        let seen = match cells.next()? {
            SqlValue::Text(word) if word == "n" => OpenState::New,
            SqlValue::Text(word) if word == "e" => OpenState::Error,
            _ => return None,
        };
        let (counted, last) = (cells.next()?, cells.next()?);
        let (failures, last_failure) =
            shape
                .failed
                .as_ref()
                .map_or((None, DateReading::Nothing), |failed| {
                    let failures = count::read(&counted, &failed.failures, shape.dialect);
                    (failures, failed.last_failure.read(&last))
                });
        let inserted = shape.inserted.read(&cells.next()?).time()?;
        let rest: Vec<SqlValue> = cells.collect();
        let json = match (&rest[..], shape.dialect) {
            ([SqlValue::Text(json)], backstop_core::sweep::SqlDialect::Postgres) => json.clone(),
            (cells, _) => object(
                shape
                    .catalogue
                    .columns
                    .iter()
                    .map(|column| column.name.as_str())
                    .zip(cells),
            ),
        };
        let count = failures.map_or(0, |failures| {
            u32::try_from(failures.max(0)).unwrap_or(u32::MAX)
        });
        let row = OpenRow {
            inserted,
            failures: count,
            last_failure: last_failure.time(),
        };
        Some(Self {
            key,
            seen,
            failures,
            row,
            is_dated: last_failure != DateReading::Unreadable || count == 0,
            json,
        })
    }

    pub(super) fn is_due(&self, table: &Table, view: &ScanView) -> bool {
        self.is_dated && table.rules.judge(self.row, view.last_pass, view.at) == RowDecision::Due
    }

    /// The row as its handler gets it.
    fn for_handler(
        &self,
        adopted: &AdoptedTable,
        number: i64,
        cancel: CancellationToken,
    ) -> TableRow {
        let table = &adopted.table;
        TableRow {
            table: Arc::clone(&table.name),
            key: self.key.json(),
            attempt: self.row.failures.saturating_add(1),
            inserted: self.row.inserted,
            id: row_id(table, &self.key),
            queue: table.dead_letter_queue(),
            number,
            json: Bytes::from(self.json.clone().into_bytes()),
            cancel,
        }
    }

    /// Its dead letter, after so many failures.
    fn letter(self, failures: u32, reason: EndReason, error: String) -> RowDeadLetter {
        RowDeadLetter {
            key: self.key,
            json: self.json,
            inserted: self.row.inserted,
            failures,
            reason,
            error,
        }
    }

    /// The dead letter of a row that was found expired; `None` if it is not, or no longer.
    pub(super) fn expired_letter(self, table: &Table, at: Time) -> Option<RowDeadLetter> {
        if table.rules.judge(self.row, None, at) != RowDecision::Expired {
            return None;
        }
        let (max_age, failures) = (table.rules.max_age(), self.row.failures);
        let (reason, why) = if self.row.inserted < at.before(max_age) {
            (
                EndReason::MaxAge,
                format!("it was inserted more than {max_age} ago, and is not tried any more"),
            )
        } else {
            (
                EndReason::AttemptsExhausted,
                format!("it failed {failures} times, and is not tried any more"),
            )
        };
        Some(self.letter(failures, reason, why))
    }

    pub(super) const fn key(&self) -> &RowKey {
        &self.key
    }
}

/// Rows as a statement gives them.
pub(super) fn parse_rows(shape: &TableSchema, rows: Vec<Vec<SqlValue>>) -> Vec<TakenRow> {
    rows.into_iter()
        .filter_map(|cells| TakenRow::of(shape, cells))
        .collect()
}

/// The id of a row's letter: the same for every copy.
pub(super) fn row_id(table: &Table, key: &RowKey) -> JobId {
    JobId::named(&format!("table {}/{}", table.name(), key.token()))
}

impl<'a> PassWork<'a> {
    #[expect(
        clippy::too_many_arguments,
        reason = "all that a pass is made of, put together in one place"
    )]
    pub(super) fn new(
        adopted: &'a AdoptedTable,
        handler: Arc<dyn RowHandler>,
        when: PassClock,
        opened: &'a mut OpenTable,
        claims: &'a RowClaims<'a>,
        lost: CancellationToken,
        pass: &'a mut PassReport,
        progress: &'a mut (dyn FnMut(PassProgress) + Send),
    ) -> Self {
        let (ready, running, place, tried) =
            (VecDeque::new(), JoinSet::new(), None, HashSet::new());
        Self {
            adopted,
            handler,
            when,
            opened,
            claims,
            lost,
            pass,
            progress,
            ready,
            running,
            place,
            tried,
            is_writable: false,
        }
    }

    /// Whether no more rows are to be taken.
    pub(super) fn is_over(&self) -> bool {
        self.adopted.stop.is_cancelled() || self.lost.is_cancelled()
    }

    /// How many rows may still be taken in this pass.
    pub(super) fn room(&self) -> usize {
        self.adopted
            .table
            .max_records
            .saturating_sub(self.tried.len())
    }

    /// Whether a row was taken in this pass already.
    pub(super) fn has_tried(&self, key: &RowKey) -> bool {
        self.tried.contains(&key.token())
    }

    pub(super) fn tried_count(&self) -> usize {
        self.tried.len()
    }

    /// How many rows are taken at a time: enough for the handlers, and no more than may run twice
    /// when we are killed.
    pub(super) fn chunk(&self) -> usize {
        (2 * self.adopted.table.concurrency).clamp(CHUNK_MIN, TABLE_CLAIM_MAX)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.running.is_empty()
    }

    pub(super) fn report_progress(&mut self) {
        (self.progress)(self.pass.progress());
    }

    /// Reads rows that are ours now. Whoever had them before has written to them before giving them
    /// up, so what is read here counts; what is no longer due is given back.
    pub(super) async fn take(
        &mut self,
        keys: &[RowKey],
        view: &ScanView,
    ) -> Result<RereadRows, TableError> {
        if keys.is_empty() {
            return Ok(RereadRows::default());
        }
        if !self.is_writable {
            // Before a handler runs: whose end cannot be written would run again in every pass.
            self.opened
                .change(&sql::change_nothing(&self.opened.shape))
                .await?;
            self.is_writable = true;
        }
        let table = &self.adopted.table;
        let statement =
            sql::select_by_keys(table, &self.opened.shape, keys, self.opened.link.locking());
        let (mut rows, mut done_by_others) = self.opened.take(table, &statement).await?;
        let (mut taken, mut absent) = (Vec::with_capacity(rows.len()), Vec::new());
        for key in keys {
            let at = rows.iter().position(|row| row.key == *key);
            match at.map(|at| rows.swap_remove(at)) {
                Some(row) if row.is_due(table, view) => taken.push(row),
                row => {
                    done_by_others +=
                        usize::from(row.as_ref().is_some_and(|row| row.seen == OpenState::Error));
                    absent.extend(row.is_none().then(|| key.clone()));
                    self.claims.end(key);
                }
            }
        }
        self.tried.extend(taken.iter().map(|row| row.key.token()));
        self.note_locked(&absent, view).await?;
        Ok(RereadRows {
            taken,
            done_by_others,
        })
    }

    /// Of rows that could not be had, those that are due all the same are locked by their owner. By
    /// age their turn is over with that: they are noted for the next pass. By failures it finds
    /// them again by itself.
    async fn note_locked(&mut self, absent: &[RowKey], view: &ScanView) -> Result<(), TableError> {
        let table = &self.adopted.table;
        if absent.is_empty() || table.rules.counts_failures() {
            return Ok(());
        }
        let seen = self.opened.read_rows(table, absent).await?;
        let locked: Vec<RowKey> = seen
            .into_iter()
            .filter(|row| row.is_due(table, view))
            .map(|row| row.key)
            .collect();
        if !locked.is_empty() {
            self.claims.note_locked(&locked).await?;
        }
        Ok(())
    }

    /// Lets handlers work until they want more rows.
    pub(super) async fn settle_some(&mut self) -> Result<(), TableError> {
        self.settle(SettleGoal::Hungry).await
    }

    /// Lets handlers work until all rows have begun: one that hangs holds up none of the others.
    pub(super) async fn begin_all(&mut self) -> Result<(), TableError> {
        self.settle(SettleGoal::Begun).await
    }

    /// Lets handlers work until there are no more rows.
    pub(super) async fn settle_all(&mut self) -> Result<(), TableError> {
        self.settle(SettleGoal::Ended).await
    }

    /// After an error: begins nothing more, and lets what has begun end and be written. Only then
    /// its rows can be given back.
    pub(super) async fn finish(&mut self) {
        self.pass.released += self.ready.len();
        self.ready.clear();
        while let Err(error) = self.settle_all().await {
            tracing::warn!(%error, table = self.adopted.table.name(), "rows of a pass that failed");
        }
    }

    async fn settle(&mut self, until: SettleGoal) -> Result<(), TableError> {
        loop {
            self.start();
            if self.is_settled(until) {
                return Ok(());
            }
            let (lost, stop, places) = (&self.lost, &self.adopted.stop, &self.adopted.places);
            let (is_waiting, is_running) = (!self.ready.is_empty(), !self.running.is_empty());
            let ended = tokio::select! {
                biased;
                () = lost.cancelled() => return self.cancel_running().await,
                Some(ended) = self.running.join_next(), if is_running => ended,
                // All are taken: by rows of a pass before this one.
                Ok(place) = Arc::clone(places).acquire_owned(), if is_waiting => {
                    self.place = Some(place);
                    continue;
                }
                () = stop.cancelled(), if is_waiting => continue,
                else => return Ok(()),
            };
            let mut batch: Vec<(TakenRow, RunEnding)> = ended.into_iter().collect();
            while let Some(more) = self.running.try_join_next() {
                batch.extend(more);
            }
            self.write(batch).await?;
            self.report_progress();
        }
    }

    fn is_settled(&self, until: SettleGoal) -> bool {
        let (ready, running) = (self.ready.len(), self.running.len());
        match until {
            SettleGoal::Hungry => ready + running <= self.adopted.table.concurrency,
            SettleGoal::Begun => ready == 0,
            SettleGoal::Ended => ready + running == 0,
        }
    }

    /// Starts handlers. Nothing is started whose row may be somebody else's by now.
    fn start(&mut self) {
        if !self.ready.is_empty() && !self.claims.is_certain() {
            self.lost.cancel();
        }
        if self.is_over() {
            self.pass.released += self.ready.len();
            self.ready.clear();
        }
        while !self.ready.is_empty() {
            let free = || Arc::clone(&self.adopted.places).try_acquire_owned().ok();
            let Some(place) = self.place.take().or_else(free) else {
                return;
            };
            let Some(taken) = self.ready.pop_front() else {
                return;
            };
            let row =
                taken.for_handler(self.adopted, self.claims.number(), self.lost.child_token());
            let (handler, timeout) = (Arc::clone(&self.handler), self.adopted.table.timeout);
            self.running.spawn(async move {
                let ending = call(handler, row, timeout).await;
                drop(place);
                (taken, ending)
            });
        }
        self.place = None;
    }

    /// The lease is lost: others may have the rows. Handlers are called off, and what they say no
    /// longer counts.
    async fn cancel_running(&mut self) -> Result<(), TableError> {
        tracing::warn!(
            table = self.adopted.table.name(),
            rows = self.running.len(),
            "the lease of a pass was lost; its rows are left to others"
        );
        self.pass.released += self.running.len() + self.ready.len();
        self.ready.clear();
        let _ = tokio::time::timeout(CANCEL_GRACE, async {
            while self.running.join_next().await.is_some() {}
        })
        .await;
        // One that blocks its thread does not notice, and is waited for by nobody.
        self.running.abort_all();
        self.running.detach_all();
        Ok(())
    }

    /// What the clock says, in this pass.
    pub(super) fn clock(&self) -> Time {
        match self.when {
            PassClock::At(at) => at,
            PassClock::Now => self.adopted.backstop.now(),
        }
    }

    /// Whether there are rows that are due by their age now, and were not then.
    pub(super) fn has_ticked_since(&self, then: Time) -> bool {
        self.adopted.table.rules.has_ticked(then, self.clock())
    }

    async fn write(&mut self, batch: Vec<(TakenRow, RunEnding)>) -> Result<(), TableError> {
        let at = self.clock();
        let mut ends = Vec::with_capacity(batch.len());
        for (taken, ending) in batch {
            if let Some(became) = row_outcome(&taken, &ending, at) {
                ends.push((taken, became, failure_text(ending)));
            } else {
                self.pass.released += 1;
                self.claims.end(&taken.key);
            }
        }
        let table = &self.adopted.table;
        let statements: Vec<SqlStatement> = ends
            .iter()
            .map(|(taken, became, _)| {
                let TakenRow {
                    key,
                    seen,
                    failures,
                    ..
                } = taken;
                sql::change(
                    table,
                    &self.opened.shape,
                    &RowChange {
                        key,
                        seen: *seen,
                        failures: *failures,
                        to: *became,
                    },
                )
            })
            .collect();
        let written = self.opened.change_all(table, &statements).await;
        let mut letters = Vec::new();
        for ((taken, became, why), written) in ends.into_iter().zip(written) {
            self.claims.end(&taken.key);
            // What its owner changed meanwhile is the owner's, and what could not be written runs
            // again.
            let is_written = matches!(written, Ok(1..));
            self.count(&taken, became, &why, written);
            if let RowOutcome::Error { failures, .. } = became
                && is_written
                && table.on_expired == OnExpired::Dead
                && table
                    .rules
                    .max_failures()
                    .is_some_and(|max| failures >= max)
            {
                letters.push(taken.letter(failures, EndReason::AttemptsExhausted, why));
            }
        }
        // Whoever is killed before this leaves a row that the walk over expired rows finds; so does
        // one for whom there is no room.
        if !letters.is_empty() && self.adopted.has_room_for_marks().await? {
            self.pass.buried += self.adopted.bury(letters).await?.new;
        }
        Ok(())
    }

    fn count(
        &mut self,
        taken: &TakenRow,
        became: RowOutcome,
        why: &str,
        written: Result<u64, TableLinkError>,
    ) {
        match (written, became) {
            (Err(error), _) => {
                tracing::error!(%error, table = self.adopted.table.name(), key = %taken.key.json(), "what became of a row could not be written; it will run again");
                self.pass.unwritten += 1;
                self.pass.note_failure(
                    &taken.key,
                    format!("what became of it could not be written: {error}"),
                );
            }
            (Ok(0), _) => self.pass.overtaken += 1,
            (Ok(_), RowOutcome::Success) => self.pass.succeeded += 1,
            (Ok(_), RowOutcome::Error { .. }) => {
                self.pass.failed += 1;
                let shown = self.adopted.backstop.redaction().text(why);
                self.pass.note_failure(&taken.key, shown);
            }
        }
    }
}

/// Runs a handler: its time limit, its panics.
async fn call(handler: Arc<dyn RowHandler>, row: TableRow, timeout: Option<Span>) -> RunEnding {
    let run = async {
        match AssertUnwindSafe(handler.handle(row)).catch_unwind().await {
            Ok(Ok(())) => RunEnding::Done,
            Ok(Err(fail)) => fail.into_ending(),
            Err(panic) => panic_ending("handler", panic.as_ref()),
        }
    };
    match timeout {
        None => run.await,
        Some(limit) => tokio::time::timeout(limit.into(), run)
            .await
            .unwrap_or_else(|_| timeout_ending(limit)),
    }
}

/// What becomes of a row; `None` if it stays as it is.
fn row_outcome(taken: &TakenRow, ending: &RunEnding, at: Time) -> Option<RowOutcome> {
    match ending {
        RunEnding::Done => Some(RowOutcome::Success),
        RunEnding::Failed { .. } | RunEnding::Cancelled(_) => Some(RowOutcome::Error {
            at,
            failures: taken.row.failures.saturating_add(1),
        }),
        RunEnding::Snoozed(_) | RunEnding::Released(_) => None,
    }
}

fn failure_text(ending: RunEnding) -> String {
    match ending {
        RunEnding::Failed { error, .. } => error.message,
        RunEnding::Cancelled(why) => why,
        RunEnding::Done | RunEnding::Snoozed(_) | RunEnding::Released(_) => String::new(),
    }
}

impl OpenTable {
    /// Rows as they are now, also those that somebody is just about to change; and how many of them
    /// are a success.
    async fn take(
        &mut self,
        table: &Table,
        statement: &SqlStatement,
    ) -> Result<(Vec<TakenRow>, usize), TableError> {
        let rows = async {
            self.link.begin(TransactionMode::Writing).await?;
            self.link.rows(statement).await
        };
        let rows = rows.await;
        self.link.roll_back().await;
        let rows = rows.map_err(|error| self.table_error(&error))?;
        // Also those that are no longer open: they would be changed with the others.
        let keys: Vec<RowKey> = rows
            .iter()
            .filter_map(|row| RowKey::of(row.first()?))
            .collect();
        self.check_distinct_keys(table, keys.iter())?;
        let is_success =
            |row: &&Vec<SqlValue>| matches!(row.get(1), Some(SqlValue::Text(word)) if word == "s");
        let succeeded = rows.iter().filter(is_success).count();
        Ok((parse_rows(&self.shape, rows), succeeded))
    }

    pub(super) async fn count(&mut self, statement: &SqlStatement) -> Result<u64, TableError> {
        let rows = self.rows(statement).await?;
        match rows.first().and_then(|row| row.first()) {
            Some(SqlValue::Whole(count)) => Ok(u64::try_from(*count).unwrap_or_default()),
            _ => Ok(0),
        }
    }

    /// One change, in a transaction of its own.
    pub(super) async fn change(&mut self, statement: &SqlStatement) -> Result<u64, TableError> {
        let changed = self.change_together(std::slice::from_ref(statement)).await;
        changed
            .map(|counts| counts.iter().sum())
            .map_err(|error| self.table_error(&error))
    }

    /// Changes, all in one transaction; where that fails each by itself, so that one row's trouble
    /// is its own.
    async fn change_all(
        &mut self,
        table: &Table,
        statements: &[SqlStatement],
    ) -> Vec<Result<u64, TableLinkError>> {
        if statements.is_empty() {
            return Vec::new();
        }
        if let Ok(counts) = self.change_together(statements).await {
            return counts.into_iter().map(Ok).collect();
        }
        let mut written = Vec::with_capacity(statements.len());
        for statement in statements {
            written.push(self.change_alone(table, statement).await);
        }
        written
    }

    /// Changes in one transaction: all of them, or none.
    pub(super) async fn change_together(
        &mut self,
        statements: &[SqlStatement],
    ) -> Result<Vec<u64>, TableLinkError> {
        let work = async {
            self.link.begin(TransactionMode::Writing).await?;
            let mut counts = Vec::with_capacity(statements.len());
            for statement in statements {
                counts.push(self.link.change(statement).await?);
            }
            self.link.commit().await?;
            Ok(counts)
        };
        let done = work.await;
        if done.is_err() {
            self.link.roll_back().await;
        }
        done
    }

    /// The work is done: whether that can be written is tried more than once, on a new connection
    /// if need be.
    async fn change_alone(
        &mut self,
        table: &Table,
        statement: &SqlStatement,
    ) -> Result<u64, TableLinkError> {
        let mut last = TableLinkError::TooSlow;
        for wait in WRITE_AGAIN {
            tokio::time::sleep(wait).await;
            match self.change_together(std::slice::from_ref(statement)).await {
                Ok(counts) => return Ok(counts.into_iter().sum()),
                Err(error) => last = error,
            }
            if let Ok(again) = Self::new(table).await {
                self.link = again.link;
            }
        }
        Err(last)
    }
}
