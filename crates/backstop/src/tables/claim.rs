//! The rows that a runner has in its hands, noted in the store.

use super::adopted::{Adopted, View};
use super::row::Key;
use super::shape::Shape;
use super::sql::Place;
use crate::shared::{read, update};
use backstop_core::Time;
use backstop_core::limits::TABLE_LEASE;
use backstop_core::port::Answer;
use backstop_core::table::{Cursor, Desk, Leg, Passed, Refused};
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often a runner says that it lives.
const RENEW_EVERY: Duration = Duration::from_secs(5);

/// What a runner holds, under a number of its own.
pub(super) struct Claims<'a> {
    adopted: &'a Adopted,
    number: i64,
    held: Mutex<Held>,
    /// Told once its rows may be somebody else's.
    lost: CancellationToken,
    /// One change at a time: what has ended is noted by one of them, and not by another that began
    /// before a row was taken again.
    changing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Held {
    /// Rows whose end is written, and not yet noted.
    ended: Vec<String>,
    /// Until when nobody else can have taken what we hold.
    certain: Option<Instant>,
    count: usize,
}

/// What became of the wish for rows.
pub(super) struct Given {
    /// Ours now.
    pub(super) keys: Vec<Key>,
    /// How many are somebody else's.
    pub(super) taken: usize,
    /// Not noted for lack of room: to be asked for again.
    pub(super) no_room: usize,
    /// Whether the round had moved on, so that nothing was given.
    pub(super) is_overtaken: bool,
    /// Whether somebody is gone who left rows.
    pub(super) has_orphans: bool,
}

impl Given {
    /// None of so many.
    const fn nothing(count: usize) -> Self {
        Self {
            keys: Vec::new(),
            taken: 0,
            no_room: count,
            is_overtaken: false,
            has_orphans: false,
        }
    }
}

impl Adopted {
    /// What the runners of the table know together.
    pub(crate) async fn desk(&self) -> Answer<Desk> {
        let cell = self
            .backstop
            .store()
            .cells(vec![self.table.cell()])
            .await?
            .pop()
            .flatten();
        Ok(cell.as_ref().and_then(read::<Desk>).unwrap_or_default())
    }

    /// The same, with leases that have ended. One from before the clock was set back is noted to
    /// end soon, for everybody.
    pub(crate) async fn desk_by_now(&self) -> Answer<Desk> {
        let (clock, mut desk) = (self.backstop.now(), self.desk().await?);
        if desk.has_lease_ahead(clock) {
            (desk, ()) = self.change_desk(|desk| desk.expire(clock)).await?;
        }
        desk.expire(clock);
        Ok(desk)
    }

    /// Changes it.
    pub(crate) async fn change_desk<R>(
        &self,
        change: impl FnMut(&mut Desk) -> R,
    ) -> Answer<(Desk, R)> {
        update(&self.backstop, &self.table.cell(), Desk::default(), change).await
    }

    /// As of when a pass at this time looks, and where: a pass by age goes on with the round that
    /// is open.
    pub(super) fn view_of(&self, desk: &mut Desk, at: Time, clock: Time, shape: &Shape) -> View {
        if self.table.rules.counts_failures() {
            return View::all(at);
        }
        let view = |leg: Leg| {
            let known = |cursor: Option<Cursor>| cursor.map(|cursor| place(&cursor, shape));
            let (behind, until) = (known(leg.cursor), known(leg.until));
            // Nobody can go on from a place that cannot be read.
            let is_known = behind != Some(None) && until != Some(None);
            let (behind, until) = (behind.flatten(), until.flatten());
            is_known.then_some(View {
                at: leg.at,
                last_pass: leg.since,
                behind,
                until,
            })
        };
        view(desk.leg(&self.table.rules, at, clock)).unwrap_or_else(|| {
            desk.begin_anew();
            let leg = desk.leg(&self.table.rules, at, clock);
            View {
                at: leg.at,
                last_pass: leg.since,
                behind: None,
                until: None,
            }
        })
    }

    /// All that a pass at this time would look at, one after the other.
    pub(super) fn views_of(&self, desk: &Desk, at: Time, clock: Time, shape: &Shape) -> Vec<View> {
        let (mut desk, mut views) = (desk.clone(), Vec::new());
        let mut is_left = desk.round.is_some();
        loop {
            let view = self.view_of(&mut desk, at, clock, shape);
            let passed = desk.pass(&view.leg());
            views.push(view);
            match passed {
                Passed::Leg => {}
                // An open round first, then the one of this time.
                Passed::Round if is_left => is_left = false,
                Passed::Round | Passed::Overtaken => return views,
            }
        }
    }
}

/// A place that was noted; `None` if it cannot be read, or if rows are in another order by now: it
/// begins anew then.
pub(super) fn place(cursor: &Cursor, shape: &Shape) -> Option<Place> {
    let (inserted, key) = (
        Key::from_token(&cursor.inserted)?,
        Key::from_token(&cursor.key)?,
    );
    Some(Place { inserted, key }).filter(|place| shape.has_place(place))
}

pub(super) fn cursor(place: &Place) -> Cursor {
    Cursor {
        inserted: place.inserted.token(),
        key: place.key.token(),
    }
}

impl<'a> Claims<'a> {
    pub(super) fn new(adopted: &'a Adopted, lost: CancellationToken) -> Self {
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

    fn held(&self) -> MutexGuard<'_, Held> {
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
    async fn change<R>(&self, mut change: impl FnMut(&mut Desk, Time) -> R) -> Answer<R> {
        let _alone = self.changing.lock().await;
        let ended = self.held().ended.clone();
        let (_, said) = self
            .adopted
            .change_desk(|desk| {
                desk.end(self.number, &ended);
                change(desk, self.adopted.backstop.now())
            })
            .await?;
        // Not before: a change that fails, or that nobody waits for any more, has noted nothing.
        self.held().ended.drain(..ended.len());
        Ok(said)
    }

    /// Changes what all know if what we hold is still ours; `None` if it is not. The same number is
    /// never used again after that: our own rows would be given to us once more, while their
    /// handlers run.
    async fn change_held<R>(
        &self,
        mut change: impl FnMut(&mut Desk, Time) -> R,
    ) -> Answer<Option<R>> {
        let changed = self.change(|desk, clock| {
            let is_lapsed = self.held().count > 0 && !desk.is_live(self.number, clock);
            if is_lapsed || self.lost.is_cancelled() {
                return None;
            }
            desk.expire(clock);
            Some(change(desk, clock))
        });
        let said = changed.await?;
        if said.is_none() {
            self.held().certain = None;
            self.lost.cancel();
        }
        Ok(said)
    }

    /// Asks for rows. A pass by age moves its round on with them: from where its view begins to the
    /// last of them.
    pub(super) async fn ask(&self, places: &[Place], view: &View) -> Answer<Given> {
        let keys: Vec<String> = places.iter().map(|place| place.key.token()).collect();
        let by_age = !self.adopted.table.rules.counts_failures();
        let (leg, began) = (view.leg(), Instant::now());
        let asked = self
            .change_held(|desk, clock| {
                let has_orphans = !desk.orphans.is_empty();
                if by_age && !desk.is_on(&leg) {
                    return (None, has_orphans);
                }
                let runner = self.adopted.runner.as_str();
                let answers = desk.claim(
                    runner,
                    self.number,
                    (clock, clock.after(TABLE_LEASE)),
                    &keys,
                );
                let answered = answers
                    .iter()
                    .take_while(|answer| **answer != Err(Refused::NoRoom))
                    .count();
                if let (true, Some(last)) = (by_age, places[..answered].last()) {
                    desk.advance(&leg, cursor(last));
                }
                (Some(answers), has_orphans)
            })
            .await?;
        let Some((answers, has_orphans)) = asked else {
            return Ok(Given::nothing(places.len()));
        };
        let is_overtaken = answers.is_none();
        let mut given = Given {
            keys: Vec::new(),
            taken: 0,
            no_room: 0,
            is_overtaken,
            has_orphans,
        };
        for (place, answer) in places.iter().zip(answers.unwrap_or_default()) {
            match answer {
                Ok(()) => given.keys.push(place.key.clone()),
                Err(Refused::Taken(_)) => given.taken += 1,
                Err(Refused::NoRoom) => given.no_room += 1,
            }
        }
        self.got(given.keys.len(), began);
        Ok(given)
    }

    /// Takes over rows of runners that are gone.
    pub(super) async fn adopt(&self, max: usize) -> Answer<Vec<Key>> {
        let began = Instant::now();
        let adopt = |desk: &mut Desk, clock: Time| {
            let times = (clock, clock.after(TABLE_LEASE));
            desk.adopt(self.adopted.runner.as_str(), self.number, times, max)
        };
        let tokens = self.change_held(adopt).await?.unwrap_or_default();
        let keys: Vec<Key> = tokens
            .iter()
            .filter_map(|token| Key::from_token(token))
            .collect();
        self.got(keys.len(), began);
        Ok(keys)
    }

    /// Notes rows that are tried out of their turn.
    pub(super) async fn set_aside(&self, keys: Vec<String>, at: Time) -> Answer<()> {
        self.change(|desk, _| desk.set_aside(keys.clone(), at))
            .await
    }

    /// Notes rows for the next pass that their owner has locked, and that the round by age has
    /// moved on from.
    pub(super) async fn pass_over(&self, keys: &[Key]) -> Answer<()> {
        let tokens: Vec<String> = keys.iter().map(Key::token).collect();
        let left_out = self
            .change(|desk, _| desk.pass_over(tokens.clone()))
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

    fn got(&self, count: usize, began: Instant) {
        let mut held = self.held();
        held.count += count;
        if count > 0 {
            held.certain = Some(began + TABLE_LEASE.into());
        }
    }

    /// Notes that the end of a row is written; the store is told with the next change.
    pub(super) fn end(&self, key: &Key) {
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
        let renew = |desk: &mut Desk, clock: Time| {
            let holds = desk.claims.iter().any(|claim| claim.number == self.number);
            (
                holds,
                desk.renew(self.number, clock.after(TABLE_LEASE), clock),
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
        if let Err(error) = self.change(|desk, _| desk.leave(self.number)).await {
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

    fn place(number: i128) -> Place {
        Place {
            inserted: Key::Whole(0),
            key: Key::Whole(number),
        }
    }

    fn table() -> Table {
        Table::new("t", "sqlite:nowhere.db", "t").expect("a table")
    }

    #[tokio::test]
    async fn a_runner_whose_lease_has_ended_gets_none_of_its_rows_once_more() {
        let test = testing::start();
        let adopted = test.backstop.adopted(&table());
        let claims = Claims::new(&adopted, CancellationToken::new());
        assert_eq!(
            claims
                .ask(&[place(1)], &View::all(Time::default()))
                .await
                .expect("rows")
                .keys,
            [Key::Whole(1)]
        );
        test.clock.advance(TABLE_LEASE.plus(Span::secs(1)));
        let late = claims
            .ask(&[place(2), place(1)], &View::all(Time::default()))
            .await
            .expect("an answer");
        assert!(late.keys.is_empty() && late.no_room == 2 && !late.is_overtaken);
        assert!(claims.lost.is_cancelled() && !claims.is_certain());
        assert_eq!(claims.adopt(10).await.expect("an answer"), []);
        claims.leave().await;
        let next = Claims::new(&adopted, CancellationToken::new());
        assert_eq!(next.adopt(10).await.expect("rows"), [Key::Whole(1)]);
    }

    #[tokio::test]
    async fn what_a_killed_runner_had_before_the_clock_was_set_back_is_taken_over_as_soon_as_ever()
    {
        let test = testing::start();
        let adopted = test.backstop.adopted(&table());
        let ahead = test.backstop.now().after(Span::hours(1));
        let keys = [Key::Whole(1).token()];
        let claim =
            |desk: &mut Desk| desk.claim("gone", 7, (ahead, ahead.after(TABLE_LEASE)), &keys);
        adopted.change_desk(claim).await.expect("a desk");
        assert!(
            adopted
                .desk_by_now()
                .await
                .expect("a desk")
                .orphans
                .is_empty()
        );
        test.clock.advance(TABLE_LEASE.plus(Span::secs(1)));
        assert_eq!(adopted.desk_by_now().await.expect("a desk").orphans, keys);
        let next = Claims::new(&adopted, CancellationToken::new());
        assert_eq!(next.adopt(10).await.expect("rows"), [Key::Whole(1)]);
    }

    #[tokio::test]
    async fn a_runner_that_is_done_with_its_rows_has_no_lease_to_lose() {
        let test = testing::start();
        let adopted = test.backstop.adopted(&table());
        let claims = Claims::new(&adopted, CancellationToken::new());
        claims
            .ask(&[place(1)], &View::all(Time::default()))
            .await
            .expect("rows");
        claims.end(&Key::Whole(1));
        test.clock.advance(TABLE_LEASE.plus(Span::secs(1)));
        assert_eq!(
            claims
                .ask(&[place(2)], &View::all(Time::default()))
                .await
                .expect("rows")
                .keys,
            [Key::Whole(2)]
        );
        assert!(!claims.lost.is_cancelled());
    }

    #[tokio::test]
    async fn a_change_that_was_given_up_forgets_no_row_that_has_ended() {
        let test = testing::start();
        let adopted = test.backstop.adopted(&table());
        let claims = Claims::new(&adopted, CancellationToken::new());
        claims
            .ask(&[place(1), place(2)], &View::all(Time::default()))
            .await
            .expect("rows");
        claims.end(&Key::Whole(1));
        // As a pass gives a renewal up that is under way when it ends.
        let began = claims.changing.lock().await;
        assert!(futures_util::FutureExt::now_or_never(claims.renew()).is_none());
        drop(began);
        claims.leave().await;
        assert_eq!(
            adopted.desk().await.expect("a desk").orphans,
            [Key::Whole(2).token()]
        );
    }
}
