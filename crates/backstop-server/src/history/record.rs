//! The loop that looks every few seconds and writes every minute. Safe on every server at once: who
//! comes second writes nothing.

use super::block::{Grain, floor, rolled};
use super::kept::{self, Entries};
use super::look::{Look, Subject};
use super::roster::Roster;
use super::{History, LOOK_EVERY};
use crate::App;
use backstop::Backstop;
use backstop::core::port::Answer;
use backstop_core::{Span, Time};
use tokio_util::sync::CancellationToken;

/// A look that comes later than this after a full minute is none of that minute.
const LATE_MAX: Span = Span::secs(10);
/// How far back minutes are made ten minutes, should nobody have been there when they ended.
const ROLLED_BACK: Span = Span::hours(2);

/// Looks at the store of `app` until told to stop, and keeps what it sees.
pub async fn record(app: App, stop: CancellationToken) {
    let mut recorder = Recorder::new(app.backstop().clone(), app.history().clone());
    loop {
        let now = app.backstop().now();
        let next = floor(now, LOOK_EVERY).after(LOOK_EVERY);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(next.since(now).into()) => {}
        }
        if let Err(error) = recorder.look().await {
            tracing::warn!(%error, "a look for the history failed; its place stays empty");
        }
    }
}

/// What looks and writes; [`record`] calls it by the clock.
pub struct Recorder {
    backstop: Backstop,
    history: History,
    roster: Option<Roster>,
    written: Option<Time>,
    rolled: Option<Time>,
    tidied: Option<i64>,
}

impl Recorder {
    /// On a store; what it sees is also shown to `history`.
    pub const fn new(backstop: Backstop, history: History) -> Self {
        Self {
            backstop,
            history,
            roster: None,
            written: None,
            rolled: None,
            tidied: None,
        }
    }

    /// Looks once. In the first moments of a minute that is not written yet, writes it.
    pub async fn look(&mut self) -> Answer<()> {
        let (store, now) = (self.backstop.store(), self.backstop.now());
        let (queues, streams) = (store.queues(now).await?, store.streams().await?);
        let minute = Grain::Minute.floor(now);
        let is_due = self.written != Some(minute) && now.since(minute) < LATE_MAX;
        let roster = match self.roster.take() {
            Some(roster) if !is_due => roster,
            _ => {
                kept::change_roster(&self.backstop, |roster| roster.admit(&queues, &streams))
                    .await?
            }
        };
        let look = Look::new(now, &queues, &streams, &roster);
        self.roster = Some(roster);
        self.history.note(look.clone());
        if is_due {
            // Of runs of workers elsewhere, which nobody else tells.
            self.backstop.spreads().write().await?;
            self.write(&look, minute).await?;
            self.written = Some(minute);
            self.roll_up(&look, minute).await?;
            self.tidy(minute).await?;
        }
        Ok(())
    }

    async fn write(&self, look: &Look, minute: Time) -> Answer<()> {
        let (block, slot) = (
            Grain::Minute.block_of(minute),
            Grain::Minute.slot_of(minute),
        );
        let entry = |(subject, row): (&Subject, &Vec<u64>)| {
            (
                kept::cell_name(Grain::Minute, block, subject),
                vec![(slot, row.clone())],
            )
        };
        kept::enter(&self.backstop, &look.rows.iter().map(entry).collect()).await
    }

    /// Makes ten minutes of the minutes that have none yet; every ten minutes, and when a server
    /// starts.
    async fn roll_up(&mut self, look: &Look, minute: Time) -> Answer<()> {
        let newest = Grain::TenMinutes.floor(minute);
        if self.rolled == Some(newest) {
            return Ok(());
        }
        let mut entries = Entries::new();
        for subject in look.rows.keys() {
            self.roll_up_one(subject, newest, &mut entries).await?;
        }
        kept::enter(&self.backstop, &entries).await?;
        self.rolled = Some(newest);
        Ok(())
    }

    async fn roll_up_one(
        &self,
        subject: &Subject,
        newest: Time,
        entries: &mut Entries,
    ) -> Answer<()> {
        let step = Grain::TenMinutes.step();
        let from = newest.before(ROLLED_BACK);
        let rows = kept::read(&self.backstop, Grain::Minute, subject, from, newest).await?;
        let days = [
            Grain::TenMinutes.block_of(from),
            Grain::TenMinutes.block_of(newest),
        ];
        let names = days.map(|day| kept::cell_name(Grain::TenMinutes, day, subject));
        let known = kept::blocks(&self.backstop, &names).await?;
        let mut until = from.after(step);
        while until <= newest {
            let (day, slot) = (
                Grain::TenMinutes.block_of(until),
                Grain::TenMinutes.slot_of(until),
            );
            let place = usize::from(day == days[1]);
            let within = rows
                .iter()
                .filter(|(at, _)| *at > until.before(step) && *at <= until);
            let row = rolled(within.map(|(_, row)| row), subject.counts());
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
    async fn tidy(&mut self, minute: Time) -> Answer<()> {
        let hour = Grain::Minute.block_of(minute);
        if self.tidied == Some(hour) {
            return Ok(());
        }
        let mut removed = 0;
        for grain in [Grain::Minute, Grain::TenMinutes] {
            removed += kept::tidy(&self.backstop, grain, minute).await?;
        }
        // As long as there is something to remove, it goes on with the next minute.
        self.tidied = (removed == 0).then_some(hour);
        Ok(())
    }
}
