//! The shared state of a table: which runner works on which rows.
//!
//! Backstop can process the rows of a table of the application. A pass is one run over the rows
//! that are due; a runner is a process that makes a pass. A row is due at its next retry time or by
//! its age.
//!
//! The state is one small cell, changed by compare-and-set. A runner takes a row in two steps: it
//! records the row's key here, and then reads the row again. An earlier runner wrote its result to
//! the row before it removed the key, so the second read sees that result. A later runner finds the
//! key here and leaves the row alone. So no database lock is needed, and no transaction is open
//! while a handler runs.
//!
//! | event | state afterwards |
//! |---|---|
//! | a runner claims rows | it holds those that no other runner holds, until its lease ends |
//! | it renews its lease in time | it still holds them |
//! | it stops, or was killed and its lease has ended | its rows are orphans |
//! | the clock is set back | a lease that ends too late is cut to one lease length from now |
//! | it has written the result of a row | no runner holds the row |
//! | a pass fails | `failing` has the first failure and the last error, until a pass succeeds |
//!
//! The next runner takes orphans first. After the clock was set back, no other runner can tell
//! whether the holder of a lease is alive. So the lease is cut and not ended: a live runner renews
//! it in time.
//!
//! The state of a scan over rows that are tried by age is in [`super::scan`].

use super::scan::{RowCursor, ScanExtraRow, ScanRange, TableScan};
use crate::limits::{
    TABLE_CLAIMED_BYTES_MAX, TABLE_ERROR_CHARS_MAX, TABLE_EXPIRED_SCAN_EVERY, TABLE_LEASE,
    TABLE_SKEW_MAX, TABLE_SURVEY_EVERY,
};
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// The state that all runners of a table share.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TableState {
    /// The time of the last pass that finished.
    pub last_pass: Option<Time>,
    /// For rows that are due by their failures: whether the last pass left due rows behind. There
    /// may be very many then, so the next pass first looks only among the newest failed rows.
    pub is_cut: bool,
    /// For rows that are tried by age: ranges whose rows were last tried for another time than
    /// `last_pass`, in the order of the scan. The open scan removes each range that it has passed.
    pub stretches: Vec<ScanRange>,
    /// Rows tried by age that were last tried outside of the scan, as orphans or because they had
    /// been locked. When the scan reaches them, it does not try them again for the same tick.
    pub aside: Vec<ScanExtraRow>,
    /// The keys of rows tried by age that the application had locked when the scan reached them.
    /// The next pass tries them first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub locked: Vec<String>,
    /// The start of the period for which a worker last began a pass by itself. It keeps other
    /// workers from beginning another pass in that period.
    pub slot: Option<Time>,
    /// The scan by age that is not finished yet; the next pass continues it.
    pub round: Option<TableScan>,
    pub claims: Vec<RowClaim>,
    /// Rows whose runner is gone.
    pub orphans: Vec<String>,
    /// The scan that looks for expired rows which are no dead letters yet.
    pub walk: ExpiredRowScan,
    /// When a runner last looked for marks of dead letters whose rows are gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pruned: Option<Time>,
    /// Expired rows that the last pass could not copy to the dead letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unburied: Option<UnburiedRows>,
    /// The result of the last survey of all open rows.
    pub survey: Option<TableSurvey>,
    /// The passes that failed since the last successful one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<FailingPasses>,
}

/// A series of failed passes, one after the other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailingPasses {
    /// The time of the first failure.
    pub since: Time,
    /// The time of the last failure.
    pub at: Time,
    pub passes: u64,
    /// The error of the last failure.
    pub error: String,
}

/// Expired rows that should be dead letters and are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnburiedRows {
    /// The number of such rows, at least.
    pub rows: u64,
    /// The storage that has no room for them.
    pub full: FullStorage,
}

/// The storage that has no room for the dead letters of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FullStorage {
    Letters,
    /// The marks of copied rows. Without its mark, a row would be copied again after its dead
    /// letter is removed.
    Marks,
}

impl FullStorage {
    /// What the user can do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Letters => {
                "the dead-letter queue of this table is full; raise its `dead.max` or \
                 remove dead letters"
            }
            Self::Marks => {
                "the table of copied rows is full: the rows in it were copied to the dead letters \
                 but are still open and expired in your table; close or delete some of them"
            }
        }
    }
}

/// The scan over expired rows, the oldest first. It starts over now and then: a row may expire
/// behind the cursor, and a runner may be killed before it writes a dead letter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExpiredRowScan {
    pub began: Option<Time>,
    /// The last row that was examined.
    pub cursor: Option<RowCursor>,
    /// Whether there was no row after the cursor.
    pub is_through: bool,
}

impl ExpiredRowScan {
    /// Where the scan continues: at its cursor, or at the beginning if the last full scan is long
    /// ago. A clock that was set back delays nothing.
    #[must_use]
    pub fn next_scan(&self, clock: Time) -> Self {
        let is_recent = self
            .began
            .is_some_and(|began| began <= clock && clock.since(began) < TABLE_EXPIRED_SCAN_EVERY);
        if is_recent || (self.began.is_some() && !self.is_through) {
            self.clone()
        } else {
            Self {
                began: Some(clock),
                ..Self::default()
            }
        }
    }
}

/// The result of a survey of all open rows. It counts rows that the query for due rows cannot see.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TableSurvey {
    pub at: Time,
    /// Whether dates stored as text are in more than one form, so that they do not sort as their
    /// times do.
    pub is_mixed: bool,
    /// Rows whose dates or failures cannot be read.
    pub undated: u64,
    /// Rows whose key is missing, or too long to be recorded.
    pub unkeyed: u64,
}

impl TableSurvey {
    /// Whether the survey is recent enough to be used.
    pub fn is_fresh(&self, clock: Time) -> bool {
        self.at <= clock && clock.since(self.at) < TABLE_SURVEY_EVERY
    }
}

/// The rows that one runner holds under one lease.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RowClaim {
    pub runner: String,
    /// The number of the lease, drawn at random for every pass.
    pub number: i64,
    pub until: Time,
    pub rows: Vec<HeldTableRow>,
}

/// A row that a runner holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "(String, i64)", into = "(String, i64)")]
pub struct HeldTableRow {
    pub key: String,
    /// When the runner took the row, to the millisecond.
    pub since: Time,
}

impl From<(String, i64)> for HeldTableRow {
    fn from((key, since_ms): (String, i64)) -> Self {
        Self {
            key,
            since: Time::from_millis(since_ms),
        }
    }
}

impl From<HeldTableRow> for (String, i64) {
    fn from(held: HeldTableRow) -> Self {
        (held.key, held.since.as_millis())
    }
}

/// Why a runner does not get a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowRefusal {
    /// A runner holds the row under a lease that ends at this time: another runner, or this one if
    /// it asked for the row before.
    Taken(Time),
    /// There is no room to record the row, because runners hold very many rows.
    NoRoom,
}

impl TableState {
    /// Turns the rows of expired leases into orphans. A lease from before the clock was set back is
    /// cut to one lease length from now: a live runner renews it in that time, and the rows of a
    /// dead one wait no longer than usual.
    pub fn orphan_expired_leases(&mut self, clock: Time) {
        for claim in self
            .claims
            .iter_mut()
            .filter(|claim| claim.ends_too_late(clock))
        {
            claim.until = clock.after(TABLE_LEASE);
        }
        self.orphan(|claim| claim.until < clock);
    }

    /// Whether a lease was given before the clock was set back.
    pub fn has_lease_ahead(&self, clock: Time) -> bool {
        self.claims.iter().any(|claim| claim.ends_too_late(clock))
    }

    /// Makes the rows of a runner that stops available to the next one.
    pub fn release_lease(&mut self, number: i64) {
        self.orphan(|claim| claim.number == number);
    }

    fn orphan(&mut self, is_over: impl Fn(&RowClaim) -> bool) {
        let (over, live) = std::mem::take(&mut self.claims)
            .into_iter()
            .partition(is_over);
        self.claims = live;
        let rows = Vec::into_iter(over).flat_map(|claim: RowClaim| claim.rows);
        self.orphans.extend(rows.map(|held| held.key));
    }

    /// Takes the pass of this period. Returns whether no worker had taken it yet. A period far
    /// ahead was taken before the clock was set back.
    pub fn try_take_period(&mut self, every: Span, clock: Time) -> bool {
        let slot = super::last_tick(every, clock);
        let is_free = self
            .slot
            .is_none_or(|taken| taken < slot || taken > slot.after(every));
        if is_free {
            self.slot = Some(slot);
        }
        is_free
    }

    pub fn record_failed_pass(&mut self, error: &str, clock: Time) {
        let before = self.failing.take();
        self.failing = Some(FailingPasses {
            since: before.as_ref().map_or(clock, |failing| failing.since),
            at: clock,
            passes: before.map_or(0, |failing| failing.passes).saturating_add(1),
            error: error.chars().take(TABLE_ERROR_CHARS_MAX).collect(),
        });
    }

    /// Whether a runner holds this row.
    pub fn is_held(&self, key: &str) -> bool {
        self.claims.iter().any(|claim| claim.holds(key))
    }

    /// Whether this runner holds rows under a lease that has not ended.
    pub fn has_live_lease(&self, number: i64, clock: Time) -> bool {
        self.claims
            .iter()
            .any(|claim| claim.number == number && claim.until >= clock)
    }

    /// The number of rows that runners hold.
    pub fn held_row_count(&self) -> usize {
        self.claims.iter().map(|claim| claim.rows.len()).sum()
    }

    /// The earliest end of a lease, if there is any.
    pub fn earliest_lease_end(&self) -> Option<Time> {
        self.claims.iter().map(|claim| claim.until).min()
    }

    /// Gives a runner the rows that nobody holds. The results are in the order of `keys`. `runner`
    /// and `number` identify the lease; `clock` and `until` are its beginning and its end.
    pub fn claim(
        &mut self,
        runner: &str,
        number: i64,
        (clock, until): (Time, Time),
        keys: &[String],
    ) -> Vec<Result<(), RowRefusal>> {
        let (mut bytes, mut is_full) = (self.bytes(), false);
        let mut own = Vec::new();
        let mut answers = Vec::with_capacity(keys.len());
        for key in keys {
            let holder = self.claims.iter().find(|claim| claim.holds(key));
            let answer = match holder {
                Some(claim) => Err(RowRefusal::Taken(claim.until)),
                None if own.contains(key) => Err(RowRefusal::Taken(until)),
                None if self.orphans.contains(key) => {
                    own.push(key.clone());
                    Ok(())
                }
                // Keep the order: rows behind one without room get none either, even if they would
                // fit.
                None if is_full || bytes + stored_size(key) > TABLE_CLAIMED_BYTES_MAX => {
                    is_full = true;
                    Err(RowRefusal::NoRoom)
                }
                None => {
                    bytes += stored_size(key);
                    own.push(key.clone());
                    Ok(())
                }
            };
            answers.push(answer);
        }
        self.orphans.retain(|orphan| !own.contains(orphan));
        self.locked.retain(|locked| !own.contains(locked));
        self.assign(runner, number, (clock, until), own);
        answers
    }

    /// Gives a runner at most `max` orphans.
    pub fn adopt(
        &mut self,
        runner: &str,
        number: i64,
        (clock, until): (Time, Time),
        max: usize,
    ) -> Vec<String> {
        let count = self.orphans.len().min(max);
        let adopted: Vec<String> = self.orphans.drain(..count).collect();
        self.assign(runner, number, (clock, until), adopted.clone());
        adopted
    }

    fn assign(
        &mut self,
        runner: &str,
        number: i64,
        (clock, until): (Time, Time),
        keys: Vec<String>,
    ) {
        if keys.is_empty() {
            return;
        }
        let rows = keys
            .into_iter()
            .map(|key| HeldTableRow { key, since: clock });
        match self.claims.iter_mut().find(|claim| claim.number == number) {
            Some(claim) => {
                claim.rows.extend(rows);
                claim.until = until;
            }
            None => {
                self.claims.push(RowClaim {
                    runner: runner.to_owned(),
                    number,
                    until,
                    rows: rows.collect(),
                });
            }
        }
    }

    /// Removes rows from a runner that has written their results.
    pub fn remove_finished_rows(&mut self, number: i64, keys: &[String]) {
        for claim in self
            .claims
            .iter_mut()
            .filter(|claim| claim.number == number)
        {
            claim.rows.retain(|held| !keys.contains(&held.key));
        }
        self.claims.retain(|claim| !claim.rows.is_empty());
    }

    /// Extends the lease of a runner. Returns false if the lease has ended; its rows may then
    /// belong to another runner.
    pub fn renew(&mut self, number: i64, until: Time, clock: Time) -> bool {
        let own = self
            .claims
            .iter_mut()
            .find(|claim| claim.number == number && claim.until >= clock);
        own.is_some_and(|claim| {
            claim.until = crate::lease::extend_lease(claim.until, until, clock);
            true
        })
    }

    fn bytes(&self) -> usize {
        let claimed = self
            .claims
            .iter()
            .flat_map(|claim| &claim.rows)
            .map(|held| &held.key);
        claimed
            .chain(&self.orphans)
            .chain(&self.locked)
            .map(|key| stored_size(key))
            .sum()
    }

    /// Takes the turn to prune marks. Returns whether no runner did so lately.
    pub fn try_start_pruning(&mut self, clock: Time) -> bool {
        let is_free = self
            .pruned
            .is_none_or(|pruned| pruned > clock || clock.since(pruned) >= TABLE_EXPIRED_SCAN_EVERY);
        if is_free {
            self.pruned = Some(clock);
        }
        is_free
    }

    /// Moves the scan over expired rows on, unless another runner did so meanwhile.
    pub fn advance_expired_scan(&mut self, seen: &ExpiredRowScan, to: ExpiredRowScan) -> bool {
        let is_there = self.walk == *seen;
        if is_there {
            self.walk = to;
        }
        is_there
    }
}

impl RowClaim {
    /// Whether the lease ends later than any lease given now could, on any machine.
    fn ends_too_late(&self, clock: Time) -> bool {
        self.until > clock.after(TABLE_LEASE).after(TABLE_SKEW_MAX)
    }

    fn holds(&self, key: &str) -> bool {
        self.rows.iter().any(|held| held.key == key)
    }
}

/// The bytes that a key takes in the cell: escapes, quotes, commas and brackets, and the time since
/// when it is held.
pub(super) fn stored_size(key: &str) -> usize {
    const OVERHEAD: usize = 24;
    key.len()
        + key
            .chars()
            .filter(|char| matches!(char, '"' | '\\') || char.is_control())
            .count()
            * 5
        + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(secs: i64) -> Time {
        Time::from_millis(1_772_366_400_000 + 1_000 * secs)
    }

    fn keys(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_row_is_given_to_one_runner_only() {
        let mut state = TableState::default();
        let given = state.claim("a", 1, (at(0), at(15)), &keys(&["x", "y"]));
        assert_eq!(given, [Ok(()), Ok(())]);
        let second = state.claim("b", 2, (at(0), at(16)), &keys(&["y", "z"]));
        assert_eq!(second, [Err(RowRefusal::Taken(at(15))), Ok(())]);
        state.remove_finished_rows(1, &keys(&["y"]));
        assert_eq!(
            state.claim("b", 2, (at(0), at(17)), &keys(&["y"])),
            [Ok(())]
        );
        assert_eq!(state.earliest_lease_end(), Some(at(15)));
    }

    #[test]
    fn what_a_killed_runner_had_is_taken_by_the_next() {
        let mut state = TableState::default();
        state.claim("a", 1, (at(0), at(15)), &keys(&["x", "y"]));
        state.orphan_expired_leases(at(15));
        assert!(
            state.orphans.is_empty(),
            "a lease still holds at the moment of its end"
        );
        state.orphan_expired_leases(at(16));
        assert!(
            !state.renew(1, at(30), at(16)),
            "a runner whose lease has ended cannot renew it"
        );
        assert_eq!(state.adopt("b", 2, (at(0), at(31)), 1), keys(&["x"]));
        assert_eq!(
            state.claim("b", 2, (at(0), at(31)), &keys(&["y"])),
            [Ok(())],
            "a claim by key also gets an orphan"
        );
        assert!(state.orphans.is_empty());
    }

    #[test]
    fn a_lease_given_before_the_clock_was_set_back_ends_too() {
        // An hour, and more than a day.
        for back in [3_600, 100_000] {
            let mut state = TableState::default();
            state.claim("dead", 1, (at(back), at(back + 15)), &keys(&["x"]));
            state.claim("alive", 2, (at(back), at(back + 15)), &keys(&["y"]));
            assert!(state.has_lease_ahead(at(0)));
            state.orphan_expired_leases(at(0));
            assert!(
                state.orphans.is_empty() && !state.has_lease_ahead(at(0)),
                "both leases are cut, because either runner may be alive"
            );
            assert!(state.renew(2, at(20), at(5)));
            state.orphan_expired_leases(at(16));
            assert_eq!(state.orphans, keys(&["x"]));
            assert!(state.has_live_lease(2, at(16)) && state.is_held("y"));
        }
    }

    #[test]
    fn a_runner_whose_clock_is_a_little_ahead_keeps_its_lease() {
        let mut state = TableState::default();
        state.claim("ahead", 1, (at(290), at(305)), &keys(&["x"]));
        state.orphan_expired_leases(at(0));
        assert_eq!(state.earliest_lease_end(), Some(at(305)));
    }

    #[test]
    fn a_runner_that_renews_first_after_the_clock_was_set_back_keeps_its_rows() {
        let mut state = TableState::default();
        state.claim("alive", 1, (at(3_600), at(3_615)), &keys(&["x"]));
        assert!(state.renew(1, at(15), at(0)));
        assert_eq!(state.earliest_lease_end(), Some(at(15)));
    }

    #[test]
    fn one_turn_is_taken_in_a_period() {
        let mut state = TableState::default();
        let every = Span::minutes(1);
        assert!(state.try_take_period(every, at(0)));
        assert!(!state.try_take_period(every, at(59)));
        assert!(state.try_take_period(every, at(60)));
        assert!(
            !state.try_take_period(every, at(59)),
            "a worker whose clock is a little behind must not take a period again"
        );
        assert!(
            state.try_take_period(every, at(-3_600)),
            "after the clock was set back, passes must go on at once"
        );
    }

    #[test]
    fn a_walk_over_expired_rows_begins_anew_after_a_while_and_is_moved_on_by_one_runner_only() {
        let cursor = |name: &str| {
            Some(RowCursor {
                inserted: "2026".to_owned(),
                key: name.to_owned(),
            })
        };
        let mut state = TableState::default();
        let begun = state.walk.next_scan(at(0));
        assert_eq!((begun.began, &begun.cursor), (Some(at(0)), &None));
        assert!(state.advance_expired_scan(
            &ExpiredRowScan::default(),
            ExpiredRowScan {
                cursor: cursor("x"),
                ..begun.clone()
            }
        ));
        assert!(
            !state.advance_expired_scan(
                &ExpiredRowScan::default(),
                ExpiredRowScan {
                    cursor: cursor("a"),
                    ..begun.clone()
                }
            ),
            "another runner has moved the scan on"
        );
        let later = at(0).after(TABLE_EXPIRED_SCAN_EVERY);
        assert_eq!(
            state.walk.next_scan(later).cursor,
            cursor("x"),
            "an unfinished scan continues, however old it is"
        );
        let there = state.walk.clone();
        assert!(state.advance_expired_scan(
            &there,
            ExpiredRowScan {
                is_through: true,
                ..there.clone()
            }
        ));
        assert_eq!(
            state.walk.next_scan(at(60)).cursor,
            cursor("x"),
            "a recent finished scan stays at its end, where rows expire next"
        );
        assert_eq!(state.walk.next_scan(later).cursor, None);
        assert_eq!(
            state.walk.next_scan(at(-9)).cursor,
            None,
            "after the clock was set back, the scan must start over at once"
        );
    }

    #[test]
    fn a_row_in_hand_says_since_when() {
        let mut state = TableState::default();
        state.claim("a", 1, (at(0), at(15)), &keys(&["x"]));
        state.claim("a", 1, (at(5), at(20)), &keys(&["y"]));
        let kept: TableState = serde_json::from_slice(&serde_json::to_vec(&state).expect("JSON"))
            .expect("a table state");
        let since: Vec<Time> = kept.claims[0].rows.iter().map(|held| held.since).collect();
        assert_eq!(since, [at(0), at(5)]);
    }

    #[test]
    fn no_more_rows_are_given_than_can_be_noted_down() {
        let mut state = TableState::default();
        let many: Vec<String> = (0..5_000).map(|n| format!("{n:036}")).collect();
        let given = state.claim("a", 1, (at(0), at(15)), &many);
        let count = given.iter().filter(|answer| answer.is_ok()).count();
        assert!((500..1_500).contains(&count), "{count}");
        assert_eq!(given.last(), Some(&Err(RowRefusal::NoRoom)));
        let bytes = serde_json::to_vec(&state).expect("JSON").len();
        assert!(bytes < crate::limits::CELL_BYTES_MAX, "{bytes}");
        state.orphan_expired_leases(at(60));
        let adopted = state.claim("b", 2, (at(0), at(75)), &many[..count]);
        assert!(
            adopted.iter().all(Result::is_ok),
            "orphans are recorded already, so they need no more room"
        );
    }

    proptest! {
        #[test]
        fn no_row_ever_has_two_live_owners(steps in proptest::collection::vec((0..4_i64, 0..6_usize, 0..5_u8, 0..20_i64), 1..200)) {
            let (mut state, mut clock) = (TableState::default(), 0);
            for (number, key, step, passes) in steps {
                clock += passes;
                let (key, until) = (keys(&[["a", "b", "c", "d", "e", "f"][key]]), at(clock).after(TABLE_LEASE));
                state.orphan_expired_leases(at(clock));
                match step {
                    0 | 1 => drop(state.claim("r", number, (at(0), until), &key)),
                    2 => state.remove_finished_rows(number, &key),
                    3 => drop(state.adopt("r", number, (at(0), until), 2)),
                    _ => drop(state.renew(number, until, at(clock))),
                }
                let mut all: Vec<&String> = state.claims.iter().flat_map(|claim| &claim.rows).map(|held| &held.key).chain(&state.orphans).collect();
                let before = all.len();
                all.sort();
                all.dedup();
                prop_assert_eq!(all.len(), before, "{:?}", state);
            }
        }
    }
}
