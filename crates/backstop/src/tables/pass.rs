//! One pass over a table: find what is due, take it, have it handled, write what became of it.
//!
//! | how a handler ends | what becomes of the row |
//! |---|---|
//! | done | success |
//! | failed for whatever reason, timed out, panicked, not wanted | error; where failures count, one more of them, and its time |
//! | snoozed or released | nothing; it is taken again by the next pass, or at the next tick of its age |
//! | in any way, and the row was changed by its owner meanwhile | nothing: the owner's change stands, and is counted |
//!
//! The time of a failure is when it was known, however long its pass has taken by then: the wait
//! after it is no shorter than it says, and ends with the first pass behind it.

use super::adopted_table::{AdoptedTable, OpenTable, ScanView, TableError};
use super::claim::RowClaims;
use super::expired::BuryResult;
use super::link::TableLinkError;
use super::pass_work::{PassWork, TakenRow};
use super::row::RowKey;
use super::{OnExpired, metrics, sql};
use backstop_core::limits::{TABLE_LEASE, TABLE_LISTED_MAX, TABLE_RECORDS_MAX};
use backstop_core::table::{ScanPartResult, TableState, TableSurvey};
use backstop_core::{Span, Time};
use serde_json::Value;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Expired rows that a pass counts; past it there are at least so many.
const EXPIRED_COUNTED_MAX: usize = 10_000;
/// How often it is looked whether others have left their rows.
const LOOK: Duration = Duration::from_millis(200);

/// How many rows a pass over a table ran, and how they ended.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct PassReport {
    /// As of when rows were looked at.
    pub at: Time,
    pub took: Span,
    /// Rows that were due, no more than a pass takes.
    pub due: usize,
    /// Those that are a success now.
    pub succeeded: usize,
    /// Those that are an error now.
    pub failed: usize,
    /// Those that were left as they were: snoozed, released, or not begun because the runner was
    /// told to stop.
    pub released: usize,
    /// Those that their owner changed meanwhile, or has locked: that stands.
    pub overtaken: usize,
    /// Those in another runner's hands, or done with by one meanwhile.
    pub taken: usize,
    /// Those that were handled, and that could not be written.
    pub unwritten: usize,
    /// Rows whose last failure was in the future: it is now.
    pub redated: u64,
    /// Open rows that are never tried again; of more than 10,000 so many.
    pub expired: u64,
    /// Those that were copied to the dead letters by this pass.
    pub buried: u64,
    /// Those that were to be and found no room there, as far as this pass looked.
    pub unburied: u64,
    /// Open rows that nobody can tell whether they are due, as of the last survey: a date or a
    /// count that cannot be read.
    pub undated: u64,
    /// Open rows whose key is none, or too long to be noted down, as of the last survey. They are
    /// never taken.
    pub unkeyed: u64,
    /// Whether there was more than a pass takes.
    pub is_cut: bool,
    pub failures: Vec<FailedRow>,
}

/// A row whose handler failed, and its error.
#[derive(Clone, PartialEq, Debug)]
pub struct FailedRow {
    pub key: Value,
    /// Why, without what must not be shown.
    pub error: String,
}

/// How far a pass is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PassProgress {
    /// Rows that it found due.
    pub total: usize,
    /// Those that are a success now.
    pub succeeded: usize,
    /// Those that are an error now.
    pub failed: usize,
    /// Those that became something else.
    pub others: usize,
}

impl PassProgress {
    /// All that it is done with.
    pub const fn done(&self) -> usize {
        self.succeeded + self.failed + self.others
    }
}

impl PassReport {
    pub(super) fn progress(&self) -> PassProgress {
        PassProgress {
            total: self.due,
            succeeded: self.succeeded,
            failed: self.failed,
            others: self.released + self.overtaken + self.taken + self.unwritten,
        }
    }

    pub(super) fn note_failure(&mut self, key: &RowKey, error: String) {
        if self.failures.len() < TABLE_LISTED_MAX {
            self.failures.push(FailedRow {
                key: key.json(),
                error,
            });
        }
    }
}

/// Which time counts in a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PassClock {
    /// This one, from beginning to end.
    At(Time),
    /// That of the store's clock, as it goes on.
    Now,
}

/// Which rows a pass is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PassRows {
    Due,
    /// Only those that another runner had, who is gone.
    Orphans,
}

impl AdoptedTable {
    /// Runs one pass now. Where rows are in the hands of a runner that gives no sign of life, it
    /// waits for the end of their lease.
    pub async fn run(&self) -> Result<PassReport, TableError> {
        self.run_with_progress(&mut |_| {}).await
    }

    /// As [`AdoptedTable::run`]; tells how far it is.
    pub async fn run_with_progress(
        &self,
        progress: &mut (impl FnMut(PassProgress) + Send),
    ) -> Result<PassReport, TableError> {
        self.run_when(PassClock::Now, progress).await
    }

    /// As [`AdoptedTable::run_with_progress`], as if it were `at`, from its beginning to its end.
    pub async fn run_at(
        &self,
        at: Time,
        progress: &mut (impl FnMut(PassProgress) + Send),
    ) -> Result<PassReport, TableError> {
        self.run_when(PassClock::At(at), progress).await
    }

    async fn run_when(
        &self,
        when: PassClock,
        progress: &mut (dyn FnMut(PassProgress) + Send),
    ) -> Result<PassReport, TableError> {
        let pass = self
            .pass(when, PassRows::Due, &CancellationToken::new(), progress)
            .await?;
        self.wait_for_orphans(when, pass, progress).await
    }

    /// What a runner had that was killed is ours once its lease has ended. One that lives renews it
    /// meanwhile, and keeps its rows.
    async fn wait_for_orphans(
        &self,
        when: PassClock,
        pass: PassReport,
        progress: &mut (dyn FnMut(PassProgress) + Send),
    ) -> Result<PassReport, TableError> {
        let room = self
            .table
            .max_records
            .saturating_sub(pass.due - pass.taken.min(pass.due));
        if pass.taken == 0 || room == 0 || !self.has_orphans_in_time().await? {
            return Ok(pass);
        }
        let mut after = self.clone();
        after.table.max_records = room;
        let rest = after
            .pass(when, PassRows::Orphans, &CancellationToken::new(), progress)
            .await?;
        Ok(pass.with(rest))
    }

    /// Waits while others hold rows and give no sign of life; whether one of them left any.
    async fn has_orphans_in_time(&self) -> Result<bool, TableError> {
        let seen = self.load_live_state().await?.claims;
        let deadline = Instant::now() + Duration::from(TABLE_LEASE) + LOOK;
        loop {
            let table_state = self.load_live_state().await?;
            let is_silent = table_state.claims.iter().any(|claim| {
                seen.iter()
                    .any(|before| (before.number, before.until) == (claim.number, claim.until))
            });
            if !is_silent || self.stop.is_cancelled() || Instant::now() >= deadline {
                return Ok(!table_state.orphans.is_empty());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// One pass, counted and told to the metrics. `begun` is told once all its rows have begun, and
    /// it only waits for their ends.
    pub(crate) async fn pass(
        &self,
        when: PassClock,
        which: PassRows,
        begun: &CancellationToken,
        progress: &mut (dyn FnMut(PassProgress) + Send),
    ) -> Result<PassReport, TableError> {
        let began = self.backstop.current_time().await;
        let outcome = self.perform(when, which, begun, progress).await;
        let took = self.backstop.now().since(began);
        let outcome = outcome.map(|pass| PassReport { took, ..pass });
        metrics::pass(&self.table, &outcome, took);
        self.note_outcome(which, outcome.as_ref().err()).await;
        outcome
    }

    /// Notes where everybody can see it that passes fail, and when they do no more. A look at rows
    /// that were left proves nothing of those that are due.
    async fn note_outcome(&self, which: PassRows, error: Option<&TableError>) {
        let noted = match error {
            // It could not be noted there either.
            Some(TableError::Store(_)) => return,
            Some(error) => {
                let (error, clock) = (error.to_string(), self.backstop.now());
                self.change_state(|table_state| table_state.record_failed_pass(&error, clock))
                    .await
                    .map(drop)
            }
            None if which == PassRows::Orphans => return,
            None => match self.failing().await {
                Ok(Some(_)) => self
                    .change_state(|table_state| table_state.failing = None)
                    .await
                    .map(drop),
                looked => looked.map(drop),
            },
        };
        if let Err(error) = noted {
            tracing::warn!(%error, table = self.table.name(), "what became of a pass could not be noted");
        }
    }

    async fn perform(
        &self,
        when: PassClock,
        which: PassRows,
        begun: &CancellationToken,
        progress: &mut (dyn FnMut(PassProgress) + Send),
    ) -> Result<PassReport, TableError> {
        let Some(handler) = self.table.handler.clone() else {
            return Err(TableError::NoHandler(self.table.name().to_owned()));
        };
        let at = match when {
            PassClock::At(at) => at,
            PassClock::Now => self.backstop.now(),
        };
        let (mut opened, survey) = self.open_surveyed().await?;
        self.note_survey(survey).await?;
        let TableSurvey {
            undated, unkeyed, ..
        } = survey;
        let redated = opened.redate(self, at).await?;
        let mut pass = PassReport {
            at,
            redated,
            undated,
            unkeyed,
            ..PassReport::default()
        };
        let lost = CancellationToken::new();
        let claims = RowClaims::new(self, lost.clone());
        let mut work = PassWork::new(
            self,
            handler,
            when,
            &mut opened,
            &claims,
            lost,
            &mut pass,
            progress,
        );
        let worked = tokio::select! {
            biased;
            worked = work.run(at, which, begun) => worked,
            never = claims.keep() => match never {},
        };
        claims.leave().await;
        worked?;
        if which == PassRows::Due {
            self.look_at_expired(&mut opened, at, &mut pass).await?;
        }
        Ok(pass)
    }

    async fn look_at_expired(
        &self,
        opened: &mut OpenTable,
        at: Time,
        pass: &mut PassReport,
    ) -> Result<(), TableError> {
        let counted = sql::count_expired(&self.table, &opened.shape, at, EXPIRED_COUNTED_MAX);
        pass.expired = opened.count(&counted).await?;
        let is_copied = self.table.on_expired == OnExpired::Dead && pass.expired > 0;
        let buried = if is_copied {
            self.bury_expired(opened, at).await?
        } else {
            BuryResult::default()
        };
        (pass.buried, pass.unburied) = (pass.buried + buried.new, buried.left);
        self.note_unburied(buried).await
    }

    /// What a survey found is known to all, and told once.
    async fn note_survey(&self, survey: TableSurvey) -> Result<(), TableError> {
        let note =
            |table_state: &mut TableState| table_state.survey.replace(survey) != Some(survey);
        let (_, is_new) = self.change_state(note).await?;
        if is_new && survey.undated + survey.unkeyed > 0 {
            let TableSurvey {
                undated, unkeyed, ..
            } = survey;
            tracing::warn!(
                table = self.table.name(),
                undated,
                unkeyed,
                "open rows are never tried: their dates, failures or keys cannot be read; try: backstop table status"
            );
        }
        Ok(())
    }
}

impl OpenTable {
    /// A failure in the future counts as one of this pass: written down, so that the wait after it
    /// ends. Where it is only a guess how the column says when, nothing is known to be in the
    /// future.
    async fn redate(&mut self, adopted: &AdoptedTable, at: Time) -> Result<u64, TableError> {
        let Some(failed) = self.shape.failed.clone().filter(|failed| failed.is_seen) else {
            return Ok(0);
        };
        let query = sql::failed_after(&adopted.table, &self.shape, &failed, at);
        let redate = sql::redate(&adopted.table, &self.shape, &failed, at);
        if self.rows(&query).await?.is_empty() {
            return Ok(0);
        }
        match self.change_together(std::slice::from_ref(&redate)).await {
            Ok(counts) => Ok(counts.iter().sum()),
            Err(TableLinkError::Locked(cause)) => {
                // They wait as they are; no other row waits for that.
                tracing::warn!(table = adopted.table.name(), %cause, "failures in the future were not set to now: a row is locked");
                Ok(0)
            }
            Err(error) => Err(self.table_error(&error)),
        }
    }
}

impl PassReport {
    fn with(mut self, rest: Self) -> Self {
        self.took = self.took.plus(rest.took);
        self.succeeded += rest.succeeded;
        self.failed += rest.failed;
        self.released += rest.released;
        self.overtaken += rest.overtaken;
        self.unwritten += rest.unwritten;
        self.buried += rest.buried;
        self.taken = self.taken.saturating_sub(rest.due);
        self.failures.extend(rest.failures);
        self.failures.truncate(TABLE_LISTED_MAX);
        self
    }
}

/// What a pass has still to ask for.
pub(super) struct RowCandidates {
    pub(super) places: VecDeque<sql::RowPlace>,
    /// Whether there is nothing behind them.
    pub(super) is_last: bool,
}

impl PassWork<'_> {
    /// Works off what is due, and what others left. However that ends, nothing is at work any more
    /// afterwards.
    async fn run(
        &mut self,
        at: Time,
        which: PassRows,
        begun: &CancellationToken,
    ) -> Result<(), TableError> {
        let mut worked = self.run_all(at, which).await;
        begun.cancel();
        if worked.is_ok() {
            worked = self.settle_all().await;
        }
        if worked.is_err() {
            self.finish().await;
        }
        worked
    }

    async fn run_all(&mut self, at: Time, which: PassRows) -> Result<(), TableError> {
        if which == PassRows::Orphans {
            return self.run_orphans(at).await;
        }
        if !self.adopted.load_state().await?.locked.is_empty() {
            self.adopted.change_state(TableState::recall_locked).await?;
        }
        self.run_orphans(at).await?;
        if self.adopted.table.rules.counts_failures() {
            self.run_due(ScanView::all(at)).await?;
            let is_cut = self.pass.is_cut;
            self.adopted
                .change_state(|table_state| {
                    (table_state.last_pass, table_state.is_cut) = (Some(at), is_cut);
                })
                .await?;
            return Ok(());
        }
        // What an earlier pass left of its round comes first; then the round of this time.
        for _ in 0..=1 {
            let (view, is_left) = self.view().await?;
            if !self.run_due(view).await? || !is_left {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What is next to be looked at, by age, and whether somebody has begun with it already.
    async fn view(&mut self) -> Result<(ScanView, bool), TableError> {
        let (adopted, shape, clock) = (self.adopted, &self.opened.shape, self.clock());
        let look = |table_state: &mut TableState| {
            let is_left = table_state.round.is_some();
            (adopted.view_of(table_state, clock, clock, shape), is_left)
        };
        Ok(adopted.change_state(look).await?.1)
    }

    async fn run_orphans(&mut self, at: Time) -> Result<(), TableError> {
        let table_state = self.adopted.load_live_state().await?;
        // Without any there is nothing to change.
        let mut has_orphans = !table_state.orphans.is_empty();
        while has_orphans && self.room() > 0 && !self.is_over() {
            has_orphans = self.take_orphans(at).await?;
            self.settle_some().await?;
        }
        self.begin_all().await
    }

    /// Takes over rows of runners that are gone; whether there were any.
    async fn take_orphans(&mut self, at: Time) -> Result<bool, TableError> {
        let keys = self.claims.adopt(self.chunk().min(self.room())).await?;
        // They were due when they were taken first; by age nobody could tell any more.
        let view = ScanView::all(at);
        let taken = self.take(&keys, &view).await?.taken;
        self.note_extra_rows(&taken).await?;
        self.pass.due += taken.len();
        self.ready.extend(taken);
        Ok(!keys.is_empty())
    }

    /// Whether it came to the end of what is due.
    async fn run_due(&mut self, mut view: ScanView) -> Result<bool, TableError> {
        loop {
            let mut candidates = self.find(&view).await?;
            let is_on = self.take_candidates(&mut candidates, &mut view).await?;
            if is_on {
                let is_through =
                    candidates.is_last && candidates.places.is_empty() && !self.is_over();
                if !is_through || self.adopted.table.rules.counts_failures() {
                    return Ok(is_through);
                }
                let part = view.scan_part();
                if self
                    .adopted
                    .change_state(|table_state| table_state.finish_part(&part))
                    .await?
                    .1
                    == ScanPartResult::Finished
                {
                    return Ok(true);
                }
            }
            // The next leg, or the one that another runner or a newer tick has made of it.
            view = self.view().await?.0;
        }
    }

    /// By age, what is taken out of its turn is tried for all ticks until now.
    async fn note_extra_rows(&mut self, taken: &[TakenRow]) -> Result<(), TableError> {
        if !taken.is_empty() && !self.adopted.table.rules.counts_failures() {
            let keys = taken.iter().map(|row| row.key().token()).collect();
            self.claims.note_extra_rows(keys, self.clock()).await?;
        }
        Ok(())
    }

    /// What is due, in nobody's hands and not tried in this pass, no more than there is room for.
    async fn find(&mut self, view: &ScanView) -> Result<RowCandidates, TableError> {
        let (room, table_state) = (self.room(), self.adopted.load_state().await?);
        let max = (room
            + table_state.held_row_count()
            + table_state.aside.len()
            + self.tried_count()
            + 1)
        .min(4 * TABLE_RECORDS_MAX);
        let picked = self
            .opened
            .pick(&self.adopted.table, view, max, table_state.is_cut)
            .await?;
        self.pass.unkeyed = self.pass.unkeyed.max(picked.unkeyed as u64);
        let (found, mut places) = (picked.places.len(), picked.places);
        let table = &self.adopted.table;
        if table.rules.counts_failures() {
            places.retain(|place| !self.has_tried(&place.key));
        } else {
            // What comes again here comes for another tick, or has been out of its turn.
            let clock = self.clock();
            let aside = self
                .opened
                .still_extra(table, &table_state, &places, (view.at, clock))
                .await?;
            places.retain(|place| !aside.contains(&place.key.token()));
        }
        let (held, mut free): (VecDeque<_>, VecDeque<_>) = places
            .into_iter()
            .partition(|place| table_state.is_held(&place.key.token()));
        self.pass.taken += held.len();
        let is_last = found < max && free.len() <= room;
        free.truncate(room);
        self.pass.is_cut |= !is_last;
        self.pass.due += free.len() + held.len();
        self.report_progress();
        Ok(RowCandidates {
            places: free,
            is_last,
        })
    }

    /// Takes candidates and has them handled; by age the view moves on with them. `false` if
    /// another runner has moved the round on, or a newer tick has fired.
    async fn take_candidates(
        &mut self,
        candidates: &mut RowCandidates,
        view: &mut ScanView,
    ) -> Result<bool, TableError> {
        while !candidates.places.is_empty() && !self.is_over() {
            if self.has_ticked_since(view.at) {
                return self.stop_part(candidates).await;
            }
            let count = self.chunk().min(candidates.places.len());
            let chunk: Vec<sql::RowPlace> = candidates.places.iter().take(count).cloned().collect();
            let claimed = self.claims.claim(&chunk, view).await?;
            if claimed.is_conflicted {
                return self.stop_part(candidates).await;
            }
            let answered = count - claimed.no_room;
            if let (Some(last), false) = (
                chunk[..answered].last(),
                self.adopted.table.rules.counts_failures(),
            ) {
                view.behind = Some(last.clone());
            }
            candidates.places.drain(..answered);
            self.pass.taken += claimed.taken;
            let read = self.take(&claimed.keys, view).await?;
            self.pass.taken += read.done_by_others;
            self.pass.overtaken += claimed
                .keys
                .len()
                .saturating_sub(read.taken.len() + read.done_by_others);
            self.ready.extend(read.taken);
            if claimed.has_orphans && self.room() > 0 {
                // At once: a pass may take longer than whoever waits for them should.
                self.take_orphans(view.at).await?;
                self.make_room(candidates);
            }
            if answered == 0 && self.is_idle() {
                // Others hold as many rows as can be noted down.
                break;
            }
            self.settle_some().await?;
        }
        self.begin_all().await?;
        Ok(true)
    }

    /// Orphans have taken the place of the last candidates: those are for the next pass.
    fn make_room(&mut self, candidates: &mut RowCandidates) {
        let left_out = candidates.places.len().saturating_sub(self.room());
        if left_out > 0 {
            candidates.places.truncate(self.room());
            candidates.is_last = false;
            self.pass.due = self.pass.due.saturating_sub(left_out);
            self.pass.is_cut = true;
        }
    }

    /// Takes no more of these candidates: what is next is to be looked for anew.
    async fn stop_part(&mut self, candidates: &RowCandidates) -> Result<bool, TableError> {
        self.pass.due = self.pass.due.saturating_sub(candidates.places.len());
        self.begin_all().await?;
        Ok(false)
    }
}
