//! The rows that a runner has in its hands, noted in the store.

use super::adopted_table::{AdoptedTable, ScanView};
use super::row::RowKey;
use super::schema::TableSchema;
use super::sql::RowPlace;
use crate::shared_cells::{read, update};
use backstop_core::Time;
use backstop_core::limits::TABLE_LEASE;
use backstop_core::port::StoreResult;
use backstop_core::table::{RowCursor, RowRefusal, ScanPart, ScanPartResult, TableState};
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often a runner says that it lives.
const RENEW_EVERY: Duration = Duration::from_secs(5);

/// What a runner holds, under a number of its own.
pub(super) struct RowClaims<'a> {
    adopted: &'a AdoptedTable,
    number: i64,
    held: Mutex<HeldRows>,
    /// Told once its rows may be somebody else's.
    lost: CancellationToken,
    /// One change at a time: what has ended is noted by one of them, and not by another that began
    /// before a row was taken again.
    changing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct HeldRows {
    /// Rows whose end is written, and not yet noted.
    ended: Vec<String>,
    /// Until when nobody else can have taken what we hold.
    certain: Option<Instant>,
    count: usize,
}

/// What became of the wish for rows.
pub(super) struct RowClaimResult {
    pub(super) keys: Vec<RowKey>,
    /// How many are somebody else's.
    pub(super) taken: usize,
    /// Not noted for lack of room: to be asked for again.
    pub(super) no_room: usize,
    /// Whether the round had moved on, so that nothing was given.
    pub(super) is_conflicted: bool,
    /// Whether somebody is gone who left rows.
    pub(super) has_orphans: bool,
}

impl RowClaimResult {
    const fn nothing_claimed(count: usize) -> Self {
        Self {
            keys: Vec::new(),
            taken: 0,
            no_room: count,
            is_conflicted: false,
            has_orphans: false,
        }
    }
}

impl AdoptedTable {
    /// What the runners of the table know together.
    pub(crate) async fn load_state(&self) -> StoreResult<TableState> {
        let cell = self
            .backstop
            .store()
            .cells(vec![self.table.cell()])
            .await?
            .pop()
            .flatten();
        Ok(cell
            .as_ref()
            .and_then(read::<TableState>)
            .unwrap_or_default())
    }

    /// The same, with leases that have ended. One from before the clock was set back is noted to
    /// end soon, for everybody.
    pub(crate) async fn load_live_state(&self) -> StoreResult<TableState> {
        let (clock, mut table_state) = (self.backstop.now(), self.load_state().await?);
        if table_state.has_lease_ahead(clock) {
            (table_state, ()) = self
                .change_state(|table_state| table_state.orphan_expired_leases(clock))
                .await?;
        }
        table_state.orphan_expired_leases(clock);
        Ok(table_state)
    }

    pub(crate) async fn change_state<R>(
        &self,
        change: impl FnMut(&mut TableState) -> R,
    ) -> StoreResult<(TableState, R)> {
        update(
            &self.backstop,
            &self.table.cell(),
            TableState::default(),
            change,
        )
        .await
    }

    /// As of when a pass at this time looks, and where: a pass by age goes on with the round that
    /// is open.
    pub(super) fn view_of(
        &self,
        table_state: &mut TableState,
        at: Time,
        clock: Time,
        shape: &TableSchema,
    ) -> ScanView {
        if self.table.rules.counts_failures() {
            return ScanView::all(at);
        }
        let view = |part: ScanPart| {
            let known = |cursor: Option<RowCursor>| cursor.map(|cursor| place(&cursor, shape));
            let (behind, until) = (known(part.cursor), known(part.until));
            // Nobody can go on from a place that cannot be read.
            let is_known = behind != Some(None) && until != Some(None);
            let (behind, until) = (behind.flatten(), until.flatten());
            is_known.then_some(ScanView {
                at: part.at,
                last_pass: part.since,
                behind,
                until,
            })
        };
        view(table_state.next_part(&self.table.rules, at, clock)).unwrap_or_else(|| {
            table_state.forget_cursors();
            let part = table_state.next_part(&self.table.rules, at, clock);
            ScanView {
                at: part.at,
                last_pass: part.since,
                behind: None,
                until: None,
            }
        })
    }

    /// All that a pass at this time would look at, one after the other.
    pub(super) fn views_of(
        &self,
        table_state: &TableState,
        at: Time,
        clock: Time,
        shape: &TableSchema,
    ) -> Vec<ScanView> {
        let (mut table_state, mut views) = (table_state.clone(), Vec::new());
        let mut is_left = table_state.round.is_some();
        loop {
            let view = self.view_of(&mut table_state, at, clock, shape);
            let passed = table_state.finish_part(&view.scan_part());
            views.push(view);
            match passed {
                ScanPartResult::MoreParts => {}
                // An open round first, then the one of this time.
                ScanPartResult::Finished if is_left => is_left = false,
                ScanPartResult::Finished | ScanPartResult::Conflicted => return views,
            }
        }
    }
}

/// A place that was noted; `None` if it cannot be read, or if rows are in another order by now: it
/// begins anew then.
pub(super) fn place(cursor: &RowCursor, shape: &TableSchema) -> Option<RowPlace> {
    let (inserted, key) = (
        RowKey::from_token(&cursor.inserted)?,
        RowKey::from_token(&cursor.key)?,
    );
    Some(RowPlace { inserted, key }).filter(|place| shape.has_place(place))
}

pub(super) fn cursor(place: &RowPlace) -> RowCursor {
    RowCursor {
        inserted: place.inserted.token(),
        key: place.key.token(),
    }
}

impl<'a> RowClaims<'a> {
    pub(super) fn new(adopted: &'a AdoptedTable, lost: CancellationToken) -> Self {
        let number = adopted.backstop.random().lease_number().as_i64();
        Self {
            adopted,
            number,
            held: Mutex::default(),
            lost,
            changing: tokio::sync::Mutex::default(),
        }
    }

    pub(super) const fn number(&self) -> i64 {
        self.number
    }

    fn held(&self) -> MutexGuard<'_, HeldRows> {
        // Small values, each whole by itself.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody else can have taken what we hold.
    pub(super) fn is_certain(&self) -> bool {
        self.held()
            .certain
            .is_some_and(|until| Instant::now() < until)
    }

    /// Changes what all know, and notes on that occasion what has ended here.
    async fn change<R>(
        &self,
        mut change: impl FnMut(&mut TableState, Time) -> R,
    ) -> StoreResult<R> {
        let _alone = self.changing.lock().await;
        let ended = self.held().ended.clone();
        let (_, result) = self
            .adopted
            .change_state(|table_state| {
                table_state.remove_finished_rows(self.number, &ended);
                change(table_state, self.adopted.backstop.now())
            })
            .await?;
        // Not before: a change that fails, or that nobody waits for any more, has noted nothing.
        self.held().ended.drain(..ended.len());
        Ok(result)
    }

    /// Changes what all know if what we hold is still ours; `None` if it is not. The same number is
    /// never used again after that: our own rows would be given to us once more, while their
    /// handlers run.
    async fn change_held<R>(
        &self,
        mut change: impl FnMut(&mut TableState, Time) -> R,
    ) -> StoreResult<Option<R>> {
        let changed = self.change(|table_state, clock| {
            let is_lapsed =
                self.held().count > 0 && !table_state.has_live_lease(self.number, clock);
            if is_lapsed || self.lost.is_cancelled() {
                return None;
            }
            table_state.orphan_expired_leases(clock);
            Some(change(table_state, clock))
        });
        let result = changed.await?;
        if result.is_none() {
            self.held().certain = None;
            self.lost.cancel();
        }
        Ok(result)
    }

    /// Asks for rows. A pass by age moves its round on with them: from where its view begins to the
    /// last of them.
    pub(super) async fn claim(
        &self,
        places: &[RowPlace],
        view: &ScanView,
    ) -> StoreResult<RowClaimResult> {
        let keys: Vec<String> = places.iter().map(|place| place.key.token()).collect();
        let by_age = !self.adopted.table.rules.counts_failures();
        let (part, began) = (view.scan_part(), Instant::now());
        let claimed = self
            .change_held(|table_state, clock| {
                let has_orphans = !table_state.orphans.is_empty();
                if by_age && !table_state.is_at_part(&part) {
                    return (None, has_orphans);
                }
                let runner = self.adopted.runner.as_str();
                let answers = table_state.claim(
                    runner,
                    self.number,
                    (clock, clock.after(TABLE_LEASE)),
                    &keys,
                );
                let answered = answers
                    .iter()
                    .take_while(|answer| **answer != Err(RowRefusal::NoRoom))
                    .count();
                if let (true, Some(last)) = (by_age, places[..answered].last()) {
                    table_state.advance(&part, cursor(last));
                }
                (Some(answers), has_orphans)
            })
            .await?;
        let Some((answers, has_orphans)) = claimed else {
            return Ok(RowClaimResult::nothing_claimed(places.len()));
        };
        let is_conflicted = answers.is_none();
        let mut result = RowClaimResult {
            keys: Vec::new(),
            taken: 0,
            no_room: 0,
            is_conflicted,
            has_orphans,
        };
        for (place, answer) in places.iter().zip(answers.unwrap_or_default()) {
            match answer {
                Ok(()) => result.keys.push(place.key.clone()),
                Err(RowRefusal::Taken(_)) => result.taken += 1,
                Err(RowRefusal::NoRoom) => result.no_room += 1,
            }
        }
        self.note_claimed(result.keys.len(), began);
        Ok(result)
    }

    /// Takes over rows of runners that are gone.
    pub(super) async fn adopt(&self, max: usize) -> StoreResult<Vec<RowKey>> {
        let began = Instant::now();
        let adopt = |table_state: &mut TableState, clock: Time| {
            let times = (clock, clock.after(TABLE_LEASE));
            table_state.adopt(self.adopted.runner.as_str(), self.number, times, max)
        };
        let tokens = self.change_held(adopt).await?.unwrap_or_default();
        let keys: Vec<RowKey> = tokens
            .iter()
            .filter_map(|token| RowKey::from_token(token))
            .collect();
        self.note_claimed(keys.len(), began);
        Ok(keys)
    }

    /// Notes rows that are tried out of their turn.
    pub(super) async fn note_extra_rows(&self, keys: Vec<String>, at: Time) -> StoreResult<()> {
        self.change(|table_state, _| table_state.note_extra_rows(keys.clone(), at))
            .await
    }

    /// Notes rows for the next pass that their owner has locked, and that the round by age has
    /// moved on from.
    pub(super) async fn note_locked(&self, keys: &[RowKey]) -> StoreResult<()> {
        let tokens: Vec<String> = keys.iter().map(RowKey::token).collect();
        let left_out = self
            .change(|table_state, _| table_state.note_locked(tokens.clone()))
            .await?;
        if left_out > 0 {
            tracing::warn!(
                table = self.adopted.table.name(),
                rows = left_out,
                "so many rows are locked by their owner that these wait for the next tick of their age"
            );
        }
        Ok(())
    }

    fn note_claimed(&self, count: usize, began: Instant) {
        let mut held = self.held();
        held.count += count;
        if count > 0 {
            held.certain = Some(began + TABLE_LEASE.into());
        }
    }

    /// Notes that the end of a row is written; the store is told with the next change.
    pub(super) fn end(&self, key: &RowKey) {
        let mut held = self.held();
        held.ended.push(key.token());
        held.count = held.count.saturating_sub(1);
    }

    /// Says now and then that the runner lives, and tells `lost` once its rows may be somebody
    /// else's.
    pub(super) async fn keep(&self) -> Infallible {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            if self.held().count > 0 && !self.renew().await {
                self.lost.cancel();
            }
        }
    }

    /// Whether its rows are still its own; while the store is silent they are until their lease
    /// ends.
    async fn renew(&self) -> bool {
        let began = Instant::now();
        let renew = |table_state: &mut TableState, clock: Time| {
            let holds = table_state
                .claims
                .iter()
                .any(|claim| claim.number == self.number);
            (
                holds,
                table_state.renew(self.number, clock.after(TABLE_LEASE), clock),
            )
        };
        match self.change(renew).await {
            Ok((_, true)) => {
                self.held().certain = Some(began + TABLE_LEASE.into());
                true
            }
            // All of them had ended meanwhile.
            Ok((false, false)) if self.held().count == 0 => true,
            Ok((_, false)) => {
                self.held().certain = None;
                false
            }
            Err(error) => {
                tracing::warn!(%error, table = self.adopted.table.name(), "the lease of a pass was not renewed");
                self.is_certain()
            }
        }
    }

    /// Gives everything back: what was not ended is for whoever comes next.
    pub(super) async fn leave(&self) {
        if let Err(error) = self
            .change(|table_state, _| table_state.release_lease(self.number))
            .await
        {
            tracing::warn!(%error, table = self.adopted.table.name(), "the rows of a pass were not given back; their lease ends in {TABLE_LEASE}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::Table;
    use crate::testing;
    use backstop_core::Span;

    fn place(number: i128) -> RowPlace {
        RowPlace {
            inserted: RowKey::Whole(0),
            key: RowKey::Whole(number),
        }
    }

    fn table() -> Table {
        Table::new("t", "sqlite:nowhere.db", "t").expect("a table")
    }

    #[tokio::test]
    async fn a_runner_whose_lease_has_ended_gets_none_of_its_rows_once_more() {
        let test = testing::start();
        let adopted = test.backstop.adopted_table(&table());
        let claims = RowClaims::new(&adopted, CancellationToken::new());
        assert_eq!(
            claims
                .claim(&[place(1)], &ScanView::all(Time::default()))
                .await
                .expect("rows")
                .keys,
            [RowKey::Whole(1)]
        );
        test.clock.advance(TABLE_LEASE.plus(Span::secs(1)));
        let late = claims
            .claim(&[place(2), place(1)], &ScanView::all(Time::default()))
            .await
            .expect("an answer");
        assert!(late.keys.is_empty() && late.no_room == 2 && !late.is_conflicted);
        assert!(claims.lost.is_cancelled() && !claims.is_certain());
        assert_eq!(claims.adopt(10).await.expect("an answer"), []);
        claims.leave().await;
        let next = RowClaims::new(&adopted, CancellationToken::new());
        assert_eq!(next.adopt(10).await.expect("rows"), [RowKey::Whole(1)]);
    }

    #[tokio::test]
    async fn what_a_killed_runner_had_before_the_clock_was_set_back_is_taken_over_as_soon_as_ever()
    {
        let test = testing::start();
        let adopted = test.backstop.adopted_table(&table());
        let ahead = test.backstop.now().after(Span::hours(1));
        let keys = [RowKey::Whole(1).token()];
        let claim = |table_state: &mut TableState| {
            table_state.claim("gone", 7, (ahead, ahead.after(TABLE_LEASE)), &keys)
        };
        adopted.change_state(claim).await.expect("a desk");
        assert!(
            adopted
                .load_live_state()
                .await
                .expect("a desk")
                .orphans
                .is_empty()
        );
        test.clock.advance(TABLE_LEASE.plus(Span::secs(1)));
        assert_eq!(
            adopted.load_live_state().await.expect("a desk").orphans,
            keys
        );
        let next = RowClaims::new(&adopted, CancellationToken::new());
        assert_eq!(next.adopt(10).await.expect("rows"), [RowKey::Whole(1)]);
    }

    #[tokio::test]
    async fn a_runner_that_is_done_with_its_rows_has_no_lease_to_lose() {
        let test = testing::start();
        let adopted = test.backstop.adopted_table(&table());
        let claims = RowClaims::new(&adopted, CancellationToken::new());
        claims
            .claim(&[place(1)], &ScanView::all(Time::default()))
            .await
            .expect("rows");
        claims.end(&RowKey::Whole(1));
        test.clock.advance(TABLE_LEASE.plus(Span::secs(1)));
        assert_eq!(
            claims
                .claim(&[place(2)], &ScanView::all(Time::default()))
                .await
                .expect("rows")
                .keys,
            [RowKey::Whole(2)]
        );
        assert!(!claims.lost.is_cancelled());
    }

    #[tokio::test]
    async fn a_change_that_was_given_up_forgets_no_row_that_has_ended() {
        let test = testing::start();
        let adopted = test.backstop.adopted_table(&table());
        let claims = RowClaims::new(&adopted, CancellationToken::new());
        claims
            .claim(&[place(1), place(2)], &ScanView::all(Time::default()))
            .await
            .expect("rows");
        claims.end(&RowKey::Whole(1));
        // As a pass gives a renewal up that is under way when it ends.
        let began = claims.changing.lock().await;
        assert!(futures_util::FutureExt::now_or_never(claims.renew()).is_none());
        drop(began);
        claims.leave().await;
        assert_eq!(
            adopted.load_state().await.expect("a desk").orphans,
            [RowKey::Whole(2).token()]
        );
    }
}
