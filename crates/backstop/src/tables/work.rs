//! Handlers at work: rows that were taken, what became of them, and how that is written.

use super::adopted::{Adopted, Opened, TableError, View};
use super::claim::Claims;
use super::expired::Letter;
use super::handler::{Row, RowHandler};
use super::link::{For, LinkError, Statement};
use super::pass::{Pass, PassProgress, When};
use super::row::{Cell, Key, object};
use super::shape::Shape;
use super::sql::{self, Became, Change, Open};
use super::{OnExpired, Table};
use crate::engine::execute::{panicked, timed_out};
use backstop_core::limits::TABLE_CLAIM_MAX;
use backstop_core::table::{Fate, OpenRow};
use backstop_core::verdict::{Ending, Reason};
use backstop_core::{JobId, Span, Time};
use bytes::Bytes;
use futures_util::FutureExt;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Rows are taken so many at a time, however few handlers there are.
const CHUNK_MIN: usize = 16;
/// How long a run that was called off may take to end by itself.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
/// Waits before what became of rows is written once more on a new connection.
const WRITE_AGAIN: [Duration; 3] = [Duration::ZERO, Duration::from_millis(500), Duration::from_secs(3)];

/// A row in our hands.
pub(super) struct Taken {
    key: Key,
    seen: Open,
    /// Its failures as they are written; `None` for no number.
    failures: Option<i128>,
    row: OpenRow,
    json: String,
}

/// A pass at work.
pub(super) struct Work<'a> {
    pub(super) adopted: &'a Adopted,
    handler: Arc<dyn RowHandler>,
    when: When,
    pub(super) opened: &'a mut Opened,
    pub(super) claims: &'a Claims<'a>,
    lost: CancellationToken,
    pub(super) pass: &'a mut Pass,
    progress: &'a mut (dyn FnMut(PassProgress) + Send),
    pub(super) ready: VecDeque<Taken>,
    running: JoinSet<(Taken, Ending)>,
    /// Rows that were taken in this pass.
    begun: usize,
}

impl Taken {
    /// A row as the statement for taking rows gives it; `None` if it is no longer open, or says no time.
    fn of(shape: &Shape, cells: Vec<Cell>) -> Option<Self> {
        let mut cells = cells.into_iter();
        let key = Key::of(&cells.next()?)?;
        let seen = match cells.next()? {
            Cell::Text(word) if word == "n" => Open::New,
            Cell::Text(word) if word == "e" => Open::Error,
            _ => return None,
        };
        let failures = match cells.next()? {
            Cell::Whole(number) => Some(number),
            Cell::Digits(digits) => digits.parse().ok(),
            Cell::Text(digits) => digits.trim().parse().ok(),
            _ => None,
        };
        let last_failure = cells.next()?;
        let last_failure = shape.failed.as_ref().and_then(|failed| failed.last_failure.read(&last_failure));
        let inserted = shape.inserted.read(&cells.next()?)?;
        let rest: Vec<Cell> = cells.collect();
        let json = match (&rest[..], shape.dialect) {
            ([Cell::Text(json)], backstop_core::sweep::Dialect::Postgres) => json.clone(),
            (cells, _) => {
                object(shape.catalogue.columns.iter().map(|column| column.name.as_str()).zip(cells))
            }
        };
        let count = failures.map_or(0, |failures| u32::try_from(failures.max(0)).unwrap_or(u32::MAX));
        Some(Self { key, seen, failures, row: OpenRow { inserted, failures: count, last_failure }, json })
    }

    /// The row as its handler gets it.
    fn for_handler(&self, adopted: &Adopted, number: i64, cancel: CancellationToken) -> Row {
        let table = &adopted.table;
        Row {
            table: Arc::clone(&table.name),
            key: self.key.json(),
            attempt: self.row.failures.saturating_add(1),
            inserted: self.row.inserted,
            id: row_id(table, &self.key),
            queue: table.letters_queue(),
            number,
            json: Bytes::from(self.json.clone().into_bytes()),
            cancel,
        }
    }

    /// Its dead letter.
    pub(super) fn letter(self, reason: Reason, error: String) -> Letter {
        Letter {
            key: self.key,
            json: self.json,
            inserted: self.row.inserted,
            failures: self.row.failures,
            reason,
            error,
        }
    }

    /// Its key.
    pub(super) const fn key(&self) -> &Key {
        &self.key
    }

    /// When it came in.
    pub(super) const fn inserted(&self) -> Time {
        self.row.inserted
    }
}

/// Rows as a statement gives them.
pub(super) fn taken(shape: &Shape, rows: Vec<Vec<Cell>>) -> Vec<Taken> {
    rows.into_iter().filter_map(|cells| Taken::of(shape, cells)).collect()
}

/// The id of a row's letter: the same for every copy.
pub(super) fn row_id(table: &Table, key: &Key) -> JobId {
    JobId::named(&format!("table {}/{}", table.name(), key.token()))
}

impl<'a> Work<'a> {
    #[expect(clippy::too_many_arguments, reason = "all that a pass is made of, put together in one place")]
    pub(super) fn new(
        adopted: &'a Adopted,
        handler: Arc<dyn RowHandler>,
        when: When,
        opened: &'a mut Opened,
        claims: &'a Claims<'a>,
        lost: CancellationToken,
        pass: &'a mut Pass,
        progress: &'a mut (dyn FnMut(PassProgress) + Send),
    ) -> Self {
        let (ready, running) = (VecDeque::new(), JoinSet::new());
        Self { adopted, handler, when, opened, claims, lost, pass, progress, ready, running, begun: 0 }
    }

    /// Whether no more rows are to be taken.
    pub(super) fn is_over(&self) -> bool {
        self.adopted.stop.is_cancelled() || self.lost.is_cancelled()
    }

    /// How many rows may still be taken in this pass.
    pub(super) const fn room(&self) -> usize {
        self.adopted.table.max_records.saturating_sub(self.begun)
    }

    /// How many rows are taken at a time: enough for the handlers, and no more than may run twice when we are killed.
    pub(super) fn chunk(&self) -> usize {
        (2 * self.adopted.table.concurrency).clamp(CHUNK_MIN, TABLE_CLAIM_MAX)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.running.is_empty()
    }

    pub(super) fn tell(&mut self) {
        (self.progress)(self.pass.progress());
    }

    /// Reads rows that are ours now. Whoever had them before has written to them before giving them up, so what is read here counts; what is
    /// no longer due is given back.
    pub(super) async fn take(&mut self, keys: &[Key], view: &View) -> Result<Vec<Taken>, TableError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let statement = sql::take(&self.adopted.table, &self.opened.shape, keys, self.opened.link.locking());
        let mut rows = self.opened.take(&statement).await?;
        let mut taken = Vec::with_capacity(rows.len());
        for key in keys {
            let at = rows.iter().position(|row| row.key == *key);
            let row = at.map(|at| rows.swap_remove(at));
            let fate = |row: &Taken| self.adopted.table.rules.judge(row.row, view.last_pass, view.at);
            match row.filter(|row| fate(row) == Fate::Due) {
                Some(row) => taken.push(row),
                None => self.claims.end(key),
            }
        }
        self.begun += taken.len();
        Ok(taken)
    }

    /// Lets handlers work until they want more rows.
    pub(super) async fn settle_some(&mut self) -> Result<(), TableError> {
        self.settle(self.adopted.table.concurrency).await
    }

    /// Lets handlers work until there are no more rows.
    pub(super) async fn settle_all(&mut self) -> Result<(), TableError> {
        self.settle(0).await
    }

    /// After an error: begins nothing more, and lets what has begun end and be written. Only then its rows can be given back.
    pub(super) async fn wind_up(&mut self) {
        self.pass.released += self.ready.len();
        self.ready.clear();
        while let Err(error) = self.settle_all().await {
            tracing::warn!(%error, table = self.adopted.table.name(), "rows of a pass that failed");
        }
    }

    async fn settle(&mut self, left: usize) -> Result<(), TableError> {
        loop {
            self.start();
            if self.running.is_empty() || self.ready.len() + self.running.len() <= left {
                return Ok(());
            }
            let ended = tokio::select! {
                biased;
                () = self.lost.cancelled() => return self.call_off().await,
                ended = self.running.join_next() => ended,
            };
            let mut batch: Vec<(Taken, Ending)> = ended.into_iter().flatten().collect();
            while let Some(more) = self.running.try_join_next() {
                batch.extend(more);
            }
            self.write(batch).await?;
            self.tell();
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
        while self.running.len() < self.adopted.table.concurrency {
            let Some(taken) = self.ready.pop_front() else { return };
            let row = taken.for_handler(self.adopted, self.claims.number(), self.lost.child_token());
            let (handler, timeout) = (Arc::clone(&self.handler), self.adopted.table.timeout);
            self.running.spawn(async move { (taken, call(handler, row, timeout).await) });
        }
    }

    /// The lease is lost: others may have the rows. Handlers are called off, and what they say no longer counts.
    async fn call_off(&mut self) -> Result<(), TableError> {
        tracing::warn!(
            table = self.adopted.table.name(),
            rows = self.running.len(),
            "the lease of a pass was lost; its rows are left to others"
        );
        self.pass.released += self.running.len() + self.ready.len();
        self.ready.clear();
        let _ =
            tokio::time::timeout(CANCEL_GRACE, async { while self.running.join_next().await.is_some() {} })
                .await;
        self.running.shutdown().await;
        Ok(())
    }

    /// The time of a failure that is seen now.
    fn failed_at(&self) -> Time {
        match self.when {
            When::At(at) => at,
            When::Now | When::Tick => {
                let since = self.adopted.backstop.now().since(self.pass.at);
                let periods = since.as_micros() / self.adopted.table.every.as_micros().max(1);
                self.pass.at.after(self.adopted.table.every.times(periods))
            }
        }
    }

    async fn write(&mut self, batch: Vec<(Taken, Ending)>) -> Result<(), TableError> {
        let at = self.failed_at();
        let mut ends = Vec::with_capacity(batch.len());
        for (taken, ending) in batch {
            if let Some(became) = became(&taken, &ending, at) {
                ends.push((taken, became, why(ending)));
            } else {
                self.pass.released += 1;
                self.claims.end(&taken.key);
            }
        }
        let table = &self.adopted.table;
        let statements: Vec<Statement> = ends
            .iter()
            .map(|(taken, became, _)| {
                let Taken { key, seen, failures, .. } = taken;
                sql::change(
                    table,
                    &self.opened.shape,
                    &Change { key, seen: *seen, failures: *failures, to: *became },
                )
            })
            .collect();
        let written = self.opened.change_all(table, &statements).await;
        let mut letters = Vec::new();
        for ((taken, became, why), written) in ends.into_iter().zip(written) {
            self.claims.end(&taken.key);
            // What its owner changed meanwhile is the owner's, and what could not be written runs again.
            let is_written = matches!(written, Ok(1..));
            self.count(&taken, became, &why, written);
            if let Became::Error { failures, .. } = became
                && is_written
                && table.on_expired == OnExpired::Dead
                && table.rules.max_failures().is_some_and(|max| failures >= max)
            {
                letters.push(taken.letter(Reason::AttemptsExhausted, why));
            }
        }
        self.pass.buried += self.adopted.bury(letters).await?.new;
        Ok(())
    }

    fn count(&mut self, taken: &Taken, became: Became, why: &str, written: Result<u64, LinkError>) {
        match (written, became) {
            (Err(error), _) => {
                tracing::error!(%error, table = self.adopted.table.name(), key = %taken.key.json(), "what became of a row could not be written; it will run again");
                self.pass.unwritten += 1;
                self.pass
                    .note_failure(&taken.key, format!("what became of it could not be written: {error}"));
            }
            (Ok(0), _) => self.pass.overtaken += 1,
            (Ok(_), Became::Success) => self.pass.succeeded += 1,
            (Ok(_), Became::Error { .. }) => {
                self.pass.failed += 1;
                self.pass.note_failure(&taken.key, why.to_owned());
            }
        }
    }
}

/// Runs a handler: its time limit, its panics.
async fn call(handler: Arc<dyn RowHandler>, row: Row, timeout: Option<Span>) -> Ending {
    let run = async {
        match AssertUnwindSafe(handler.handle(row)).catch_unwind().await {
            Ok(Ok(())) => Ending::Done,
            Ok(Err(fail)) => fail.into_ending(),
            Err(panic) => panicked("handler", panic.as_ref()),
        }
    };
    match timeout {
        None => run.await,
        Some(limit) => tokio::time::timeout(limit.into(), run).await.unwrap_or_else(|_| timed_out(limit)),
    }
}

/// What becomes of a row; `None` if it stays as it is.
fn became(taken: &Taken, ending: &Ending, at: Time) -> Option<Became> {
    match ending {
        Ending::Done => Some(Became::Success),
        Ending::Failed { .. } | Ending::Cancelled(_) => {
            Some(Became::Error { at, failures: taken.row.failures.saturating_add(1) })
        }
        Ending::Snoozed(_) | Ending::Released(_) => None,
    }
}

fn why(ending: Ending) -> String {
    match ending {
        Ending::Failed { error, .. } => error.message,
        Ending::Cancelled(why) => why,
        Ending::Done | Ending::Snoozed(_) | Ending::Released(_) => String::new(),
    }
}

impl Opened {
    /// Rows as they are now, also those that somebody is just about to change.
    async fn take(&mut self, statement: &Statement) -> Result<Vec<Taken>, TableError> {
        let rows = async {
            self.link.begin(For::Writing).await?;
            self.link.rows(statement).await
        };
        let rows = rows.await;
        self.link.roll_back().await;
        let rows = rows.map_err(|error| self.told(&error))?;
        Ok(taken(&self.shape, rows))
    }

    /// How many there are.
    pub(super) async fn count(&mut self, statement: &Statement) -> Result<u64, TableError> {
        let rows = self.rows(statement).await?;
        match rows.first().and_then(|row| row.first()) {
            Some(Cell::Whole(count)) => Ok(u64::try_from(*count).unwrap_or_default()),
            _ => Ok(0),
        }
    }

    /// One change, in a transaction of its own.
    pub(super) async fn change(&mut self, statement: &Statement) -> Result<u64, TableError> {
        let changed = self.together(std::slice::from_ref(statement)).await;
        changed.map(|counts| counts.iter().sum()).map_err(|error| self.told(&error))
    }

    /// Changes, all in one transaction; where that fails each by itself, so that one row's trouble is its own.
    async fn change_all(&mut self, table: &Table, statements: &[Statement]) -> Vec<Result<u64, LinkError>> {
        if statements.is_empty() {
            return Vec::new();
        }
        if let Ok(counts) = self.together(statements).await {
            return counts.into_iter().map(Ok).collect();
        }
        let mut written = Vec::with_capacity(statements.len());
        for statement in statements {
            written.push(self.alone(table, statement).await);
        }
        written
    }

    async fn together(&mut self, statements: &[Statement]) -> Result<Vec<u64>, LinkError> {
        let work = async {
            self.link.begin(For::Writing).await?;
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

    /// The work is done: whether that can be written is tried more than once, on a new connection if need be.
    async fn alone(&mut self, table: &Table, statement: &Statement) -> Result<u64, LinkError> {
        let mut last = LinkError::TooSlow;
        for wait in WRITE_AGAIN {
            tokio::time::sleep(wait).await;
            match self.together(std::slice::from_ref(statement)).await {
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
