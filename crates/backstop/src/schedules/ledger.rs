//! The pages of a schedule's ledger, and its standing, as cells.

use crate::client::Backstop;
use crate::shared_cells::{CellWalk, read, remove, update};
use backstop_core::limits::{CELLS_MAX, LEDGER_KEPT};
use backstop_core::port::StoreResult;
use backstop_core::schedule::{
    InstantOutcome, LedgerEntry, LedgerPage, Schedule, ScheduleState, SkipReason, UtcDay,
};
use backstop_core::{ScheduleName, Time};
use std::collections::{BTreeMap, BTreeSet};

/// Twice as many pages as a ledger is kept for: what a clock that is ahead enters does not push out
/// what was there before.
const PAGES_KEPT: usize = 66;

pub(super) const STATE_PREFIX: &str = "schedules/";

pub(super) fn state_cell(name: &ScheduleName) -> String {
    format!("{STATE_PREFIX}{name}")
}

fn page_cell(name: &ScheduleName, day: UtcDay) -> String {
    format!("ledger/{name}/{day}")
}

/// The standing of a schedule; `None` if nobody has heard of it.
pub(super) async fn load_state(
    backstop: &Backstop,
    name: &ScheduleName,
) -> StoreResult<Option<ScheduleState>> {
    let cell = backstop
        .store()
        .cells(vec![state_cell(name)])
        .await?
        .pop()
        .flatten();
    Ok(cell.as_ref().and_then(read))
}

/// The standing of a schedule as it would be if it were registered now; nothing is written.
pub(super) async fn load_state_at(
    backstop: &Backstop,
    schedule: &Schedule,
    now: Time,
) -> StoreResult<ScheduleState> {
    let known = load_state(backstop, &schedule.name).await?;
    let mut state = known.unwrap_or_else(|| ScheduleState::new(now));
    state.register(schedule, now);
    Ok(state)
}

/// Changes the standing of a schedule; answers what stands then, and what `change` said.
pub(super) async fn change_state<R>(
    backstop: &Backstop,
    name: &ScheduleName,
    change: impl FnMut(&mut ScheduleState) -> R,
) -> StoreResult<(ScheduleState, R)> {
    update(
        backstop,
        &state_cell(name),
        ScheduleState::new(backstop.now()),
        change,
    )
    .await
}

/// Changes a page; answers what stands then, and what `change` said.
pub(super) async fn change_page<R>(
    backstop: &Backstop,
    name: &ScheduleName,
    day: UtcDay,
    change: impl FnMut(&mut LedgerPage) -> R,
) -> StoreResult<(LedgerPage, R)> {
    update(
        backstop,
        &page_cell(name, day),
        LedgerPage::empty(day),
        change,
    )
    .await
}

/// Some days of a ledger.
pub(super) struct LedgerPages<'a> {
    backstop: &'a Backstop,
    name: &'a ScheduleName,
    by_day: BTreeMap<UtcDay, LedgerPage>,
}

impl<'a> LedgerPages<'a> {
    /// The pages of these days, both included.
    pub(super) async fn read(
        backstop: &'a Backstop,
        name: &'a ScheduleName,
        from: UtcDay,
        until: UtcDay,
    ) -> StoreResult<Self> {
        let names = UtcDay::through(from, until)
            .take(CELLS_MAX)
            .map(|day| page_cell(name, day))
            .collect();
        let cells = backstop.store().cells(names).await?;
        let pages = cells
            .iter()
            .flatten()
            .filter_map(read::<LedgerPage>)
            .map(|page| (page.day(), page));
        Ok(Self {
            backstop,
            name,
            by_day: pages.collect(),
        })
    }

    /// The instants that have an entry which counts.
    pub(super) fn known_instants(&self) -> BTreeSet<Time> {
        self.entries().map(|entry| entry.instant).collect()
    }

    /// What is entered for each.
    pub(super) fn entered_outcomes(&self) -> BTreeMap<Time, InstantOutcome> {
        self.entries()
            .map(|entry| (entry.instant, entry.outcome))
            .collect()
    }

    /// The instants that nobody misses: they have a run, another one stands for them, or they fell
    /// into a pause.
    pub(super) fn answered_instants(&self) -> BTreeSet<Time> {
        let is_answered = |what: InstantOutcome| {
            what.has_job()
                || matches!(
                    what,
                    InstantOutcome::Coalesced(_) | InstantOutcome::Skipped(SkipReason::Paused)
                )
        };
        self.entries()
            .filter(|entry| is_answered(entry.outcome))
            .map(|entry| entry.instant)
            .collect()
    }

    /// The instants that nothing is left to do about: all that have an entry, but for those that
    /// are in no queue yet.
    pub(super) fn settled_instants(&self) -> BTreeSet<Time> {
        self.entries()
            .filter(|entry| entry.outcome != InstantOutcome::Due)
            .map(|entry| entry.instant)
            .collect()
    }

    /// The instants that are to be fired, the oldest first.
    pub(super) fn due(&self) -> Vec<LedgerEntry> {
        let now = self.backstop.now();
        self.entries()
            .filter(|entry| entry.is_due(now))
            .copied()
            .collect()
    }

    fn entries(&self) -> impl Iterator<Item = &LedgerEntry> {
        let now = self.backstop.now();
        self.by_day
            .values()
            .flat_map(LedgerPage::entries)
            .filter(move |entry| !entry.is_void(now))
    }

    /// Enters what was decided where nobody was faster; answers those that count. Days go in their
    /// order: should this be cut off, what is left over is the newest, and whoever comes next
    /// decides about that alone.
    pub(super) async fn enter(&mut self, entries: &[LedgerEntry]) -> StoreResult<Vec<LedgerEntry>> {
        // By the clock at that very moment: a process that was held up must not take what others
        // entered meanwhile for a mistake.
        let backstop = self.backstop;
        self.write(entries, |page, entry| page.enter(entry, backstop.now()))
            .await
    }

    /// Enters what became of due instants; answers those that count.
    pub(super) async fn conclude(
        &mut self,
        entries: &[LedgerEntry],
    ) -> StoreResult<Vec<LedgerEntry>> {
        self.write(entries, LedgerPage::conclude).await
    }

    async fn write(
        &mut self,
        entries: &[LedgerEntry],
        write: impl Fn(&mut LedgerPage, LedgerEntry) -> bool,
    ) -> StoreResult<Vec<LedgerEntry>> {
        let mut days: BTreeMap<UtcDay, Vec<LedgerEntry>> = BTreeMap::new();
        for entry in entries {
            days.entry(UtcDay::of(entry.instant))
                .or_default()
                .push(*entry);
        }
        let mut counted = Vec::new();
        for (day, entries) in days {
            let enter = |page: &mut LedgerPage| {
                entries
                    .iter()
                    .copied()
                    .filter(|entry| write(page, *entry))
                    .collect::<Vec<LedgerEntry>>()
            };
            let (page, written) = change_page(self.backstop, self.name, day, enter).await?;
            self.by_day.insert(day, page);
            counted.extend(written);
        }
        Ok(counted)
    }
}

/// The newest entries, at most `limit`, those of runs by hand among them.
pub(super) async fn newest_entries(
    backstop: &Backstop,
    name: &ScheduleName,
    limit: usize,
) -> StoreResult<Vec<LedgerEntry>> {
    /// Days read at once: a schedule that runs every minute fills a cell a day.
    const STEP: usize = 4;
    // A day more than today: whoever wrote may have a clock that is ahead.
    let now = backstop.now();
    let newest = UtcDay::of(now.after(backstop_core::Span::days(1)));
    let days: Vec<UtcDay> = UtcDay::through(UtcDay::of(now.before(LEDGER_KEPT)), newest).collect();
    let mut entries = Vec::new();
    for part in days.rchunks(STEP) {
        let names = part.iter().rev().map(|day| page_cell(name, *day)).collect();
        let cells = backstop.store().cells(names).await?;
        let pages = cells.iter().flatten().filter_map(read::<LedgerPage>);
        entries.extend(
            pages
                .flat_map(|page| page.newest_first())
                .filter(|entry| !entry.is_void(now)),
        );
        if entries.len() >= limit {
            break;
        }
    }
    entries.truncate(limit);
    Ok(entries)
}

/// How many instants were given up since then, by when that was entered. Instants may be as old as
/// the ledger: whoever comes back after a long absence enters all of it at once, as one stretch up
/// to now. So days before `sure` are read until one is found that has entries, and none of them
/// since then.
pub(super) async fn count_given_up(
    backstop: &Backstop,
    name: &ScheduleName,
    since: Time,
    sure: Time,
) -> StoreResult<usize> {
    const STEP: usize = 4;
    let now = backstop.now();
    let days: Vec<UtcDay> =
        UtcDay::through(UtcDay::of(now.before(LEDGER_KEPT)), UtcDay::of(now)).collect();
    let mut count = 0;
    for part in days.rchunks(STEP) {
        let names = part.iter().map(|day| page_cell(name, *day)).collect();
        let cells = backstop.store().cells(names).await?;
        let pages: Vec<LedgerPage> = cells.iter().flatten().filter_map(read).collect();
        let (mut are_there, mut are_new) = (false, false);
        for entry in pages
            .iter()
            .flat_map(LedgerPage::entries)
            .filter(|entry| !entry.is_void(now))
        {
            let is_new = entry.at >= since;
            (are_there, are_new) = (true, are_new || is_new);
            count += usize::from(is_new && entry.outcome.is_given_up());
        }
        if are_there && !are_new && part.last().is_some_and(|newest| *newest < UtcDay::of(sure)) {
            break;
        }
    }
    Ok(count)
}

/// Removes pages older than a ledger is kept, but never the newest [`PAGES_KEPT`]: to a clock that
/// is a year ahead all of them are old, and once it is right again they say what must not be fired
/// a second time.
pub(super) async fn forget_old(
    backstop: &Backstop,
    name: &ScheduleName,
    now: Time,
) -> StoreResult<()> {
    let first_kept = page_cell(name, UtcDay::of(now.before(LEDGER_KEPT)));
    // By name is by day: the first page has the oldest.
    let mut walk = CellWalk::new(backstop, format!("ledger/{name}/"));
    let mut old = walk.next().await?.unwrap_or_default();
    old.truncate(old.len().saturating_sub(PAGES_KEPT));
    old.retain(|cell| cell.name < first_kept);
    remove(backstop, &old).await
}
