//! The loop that looks every few seconds and writes every minute. Safe on every server at once: who
//! comes second writes nothing.

use super::block::{HistoryResolution, floor, merge_rows};
use super::cells::{self, BlockEntries};
use super::snapshot::{HistorySnapshot, HistorySubject};
use super::tracked_names::TrackedNames;
use super::{History, SNAPSHOT_EVERY};
use crate::App;
use backstop::Backstop;
use backstop::core::port::StoreResult;
use backstop_core::{Span, Time};
use tokio_util::sync::CancellationToken;

/// A look that comes later than this after a full minute is none of that minute.
const LATE_MAX: Span = Span::secs(10);
/// How far back minutes are made ten minutes, should nobody have been there when they ended.
const ROLLED_BACK: Span = Span::hours(2);

/// Looks at the store of `app` until told to stop, and keeps what it sees.
pub async fn run_recorder(app: App, stop: CancellationToken) {
    let mut recorder = HistoryRecorder::new(app.backstop().clone(), app.history().clone());
    loop {
        let now = app.backstop().now();
        let next = floor(now, SNAPSHOT_EVERY).after(SNAPSHOT_EVERY);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(next.since(now).into()) => {}
        }
        if let Err(error) = recorder.take_snapshot().await {
            tracing::warn!(%error, "a look for the history failed; its place stays empty");
        }
    }
}

/// What looks and writes; [`run_recorder`] calls it by the clock.
pub struct HistoryRecorder {
    backstop: Backstop,
    history: History,
    names: Option<TrackedNames>,
    written_minute: Option<Time>,
    rolled_up: Option<Time>,
    tidied_hour: Option<i64>,
}

impl HistoryRecorder {
    /// On a store; what it sees is also shown to `history`.
    pub const fn new(backstop: Backstop, history: History) -> Self {
        Self {
            backstop,
            history,
            names: None,
            written_minute: None,
            rolled_up: None,
            tidied_hour: None,
        }
    }

    /// Looks once. In the first moments of a minute that is not written yet, writes it.
    pub async fn take_snapshot(&mut self) -> StoreResult<()> {
        let (store, now) = (self.backstop.store(), self.backstop.now());
        let (queues, streams) = (store.queues(now).await?, store.streams().await?);
        let minute = HistoryResolution::Minute.floor(now);
        let is_due = self.written_minute != Some(minute) && now.since(minute) < LATE_MAX;
        let names = match self.names.take() {
            Some(names) if !is_due => names,
            _ => {
                cells::change_tracked_names(&self.backstop, |names| names.admit(&queues, &streams))
                    .await?
            }
        };
        let snapshot = HistorySnapshot::new(now, &queues, &streams, &names);
        self.names = Some(names);
        self.history.note(snapshot.clone());
        if is_due {
            // Of runs of workers elsewhere, which nobody else tells.
            self.backstop.run_times().write().await?;
            self.write_minute(&snapshot, minute).await?;
            self.written_minute = Some(minute);
            self.roll_up(&snapshot, minute).await?;
            self.remove_old(minute).await?;
        }
        Ok(())
    }

    async fn write_minute(&self, snapshot: &HistorySnapshot, minute: Time) -> StoreResult<()> {
        let (block, slot) = (
            HistoryResolution::Minute.block_of(minute),
            HistoryResolution::Minute.slot_of(minute),
        );
        let entry = |(subject, row): (&HistorySubject, &Vec<u64>)| {
            (
                cells::cell_name(HistoryResolution::Minute, block, subject),
                vec![(slot, row.clone())],
            )
        };
        cells::write_entries(&self.backstop, &snapshot.rows.iter().map(entry).collect()).await
    }

    /// Makes ten minutes of the minutes that have none yet; every ten minutes, and when a server
    /// starts.
    async fn roll_up(&mut self, snapshot: &HistorySnapshot, minute: Time) -> StoreResult<()> {
        let newest = HistoryResolution::TenMinutes.floor(minute);
        if self.rolled_up == Some(newest) {
            return Ok(());
        }
        let mut entries = BlockEntries::new();
        for subject in snapshot.rows.keys() {
            self.roll_up_one(subject, newest, &mut entries).await?;
        }
        cells::write_entries(&self.backstop, &entries).await?;
        self.rolled_up = Some(newest);
        Ok(())
    }

    async fn roll_up_one(
        &self,
        subject: &HistorySubject,
        newest: Time,
        entries: &mut BlockEntries,
    ) -> StoreResult<()> {
        let step = HistoryResolution::TenMinutes.step();
        let from = newest.before(ROLLED_BACK);
        let rows = cells::read_rows(
            &self.backstop,
            HistoryResolution::Minute,
            subject,
            from,
            newest,
        )
        .await?;
        let days = [
            HistoryResolution::TenMinutes.block_of(from),
            HistoryResolution::TenMinutes.block_of(newest),
        ];
        let names = days.map(|day| cells::cell_name(HistoryResolution::TenMinutes, day, subject));
        let known = cells::read_blocks(&self.backstop, &names).await?;
        let mut until = from.after(step);
        while until <= newest {
            let (day, slot) = (
                HistoryResolution::TenMinutes.block_of(until),
                HistoryResolution::TenMinutes.slot_of(until),
            );
            let place = usize::from(day == days[1]);
            let within = rows
                .iter()
                .filter(|(at, _)| *at > until.before(step) && *at <= until);
            let row = merge_rows(within.map(|(_, row)| row), subject.counts());
            if let Some(row) = row.filter(|_| !known[place].has(slot)) {
                entries
                    .entry(names[place].clone())
                    .or_default()
                    .push((slot, row));
            }
            until = until.after(step);
        }
        Ok(())
    }

    /// Removes what is too old; every hour, and when a server starts.
    async fn remove_old(&mut self, minute: Time) -> StoreResult<()> {
        let hour = HistoryResolution::Minute.block_of(minute);
        if self.tidied_hour == Some(hour) {
            return Ok(());
        }
        let mut removed = 0;
        for resolution in [HistoryResolution::Minute, HistoryResolution::TenMinutes] {
            removed += cells::remove_old_cells(&self.backstop, resolution, minute).await?;
        }
        // As long as there is something to remove, it goes on with the next minute.
        self.tidied_hour = (removed == 0).then_some(hour);
        Ok(())
    }
}
