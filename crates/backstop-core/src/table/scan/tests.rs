use super::*;
use crate::retry::RetryPolicy;
use crate::table::{OpenRow, RowDecision};
use crate::time::Span;
use proptest::prelude::*;

/// 2026-03-01T12:00:00Z.
const NOON: Time = Time::from_millis(1_772_366_400_000);

fn minutes(minutes: i64) -> Time {
    Time::from_micros(NOON.as_micros() + minutes * 60_000_000)
}

fn rules() -> TableRules {
    let bands = r#"{"kind":"progressive","bands":[{"until":"1h","every":"5m"},{"until":"2d","every":"15m"},{"until":"9d","every":"1h"}]}"#;
    TableRules::new(
        &RetryPolicy::from_json(bands.as_bytes()).expect("a policy"),
        None,
    )
    .expect("rules")
}

fn cursor(row: usize) -> RowCursor {
    RowCursor {
        inserted: String::new(),
        key: row.to_string(),
    }
}

fn row_of(cursor: &RowCursor) -> usize {
    cursor.key.parse().expect("a row")
}

/// Rows that always fail, newest first, and the passes over them.
struct Play {
    rules: TableRules,
    desk: TableState,
    rows: Vec<Time>,
    /// When each row was tried, in turn or out of turn.
    tries: Vec<Vec<Time>>,
    /// The time of the tick for which each row was last tried in turn.
    looked: Vec<Time>,
    /// Rows that their owner has locked.
    locked: Vec<usize>,
}

impl Play {
    /// A play with some rows of every band.
    fn new(rows: usize) -> Self {
        let age = |row: usize| Span::minutes(10).times(1 << row.min(10));
        let rows: Vec<Time> = (0..rows).map(|row| NOON.before(age(row))).collect();
        let (tries, looked) = (vec![Vec::new(); rows.len()], vec![NOON; rows.len()]);
        Self {
            rules: rules(),
            desk: TableState::default(),
            tries,
            looked,
            locked: Vec::new(),
            rows,
        }
    }

    fn fate(&self, row: usize, since: Option<Time>, at: Time) -> RowDecision {
        let row = OpenRow {
            inserted: self.rows[row],
            failures: 0,
            last_failure: None,
        };
        self.rules.judge(row, since, at)
    }

    /// Runs one pass, and returns the rows that it tried.
    fn pass(&mut self, at: Time, limit: usize) -> Vec<usize> {
        let mut tried = self.orphans(at);
        let mut is_left = self.desk.round.is_some();
        loop {
            let mut leg = self.desk.next_part(&self.rules, at, at);
            let first = leg.cursor.as_ref().map_or(0, |cursor| row_of(cursor) + 1);
            let end = leg
                .until
                .as_ref()
                .map_or(self.rows.len(), |until| row_of(until) + 1);
            for row in first..end {
                let aside = self.desk.extra_try_at(&row.to_string(), at);
                let is_over = aside
                    .is_none_or(|aside| self.fate(row, Some(aside), leg.at) == RowDecision::Due);
                if is_over && self.fate(row, leg.since, leg.at) == RowDecision::Due {
                    if tried.len() == limit {
                        return tried;
                    }
                    assert!(self.desk.advance(&leg, cursor(row)));
                    leg.cursor = Some(cursor(row));
                    if self.locked.contains(&row) {
                        self.desk.note_locked(vec![row.to_string()]);
                        continue;
                    }
                    tried.push(row);
                    self.tries[row].push(at);
                    self.looked[row] = leg.at;
                }
            }
            match self.desk.finish_part(&leg) {
                ScanPartResult::MoreParts => {}
                ScanPartResult::Finished if is_left => is_left = false,
                ScanPartResult::Finished => return tried,
                ScanPartResult::Conflicted => panic!("nobody else is here"),
            }
        }
    }

    /// Tries the orphans and the formerly locked rows first.
    fn orphans(&mut self, at: Time) -> Vec<usize> {
        self.desk.recall_locked();
        let mut tried = Vec::new();
        for key in std::mem::take(&mut self.desk.orphans) {
            let row = key.parse().expect("a row");
            if self.locked.contains(&row) {
                self.desk.note_locked(vec![key]);
            } else {
                self.adopt(row, at);
                tried.push(row);
            }
        }
        tried
    }

    /// A runner was killed while it held the row, so the row is tried out of turn.
    fn adopt(&mut self, row: usize, at: Time) {
        self.tries[row].push(at);
        self.desk.note_extra_rows(vec![row.to_string()], at);
    }
}

#[test]
fn what_a_tick_leaves_is_tried_for_that_tick_and_again_at_the_next() {
    let mut play = Play::new(3);
    play.rows = vec![NOON; 3];
    assert_eq!(play.pass(minutes(0), 2), [0, 1]);
    assert_eq!(play.pass(minutes(1), 2), [2], "what is left of the tick");
    assert_eq!(play.pass(minutes(2), 2), [0; 0], "that was this tick");
    assert_eq!(play.pass(minutes(5), 9), [0, 1, 2], "and this is the next");
}

#[test]
fn what_a_tick_leaves_until_the_next_is_tried_once_for_both_and_first() {
    let mut play = Play::new(5);
    play.rows = vec![NOON; 5];
    assert_eq!(play.pass(minutes(0), 2), [0, 1]);
    assert_eq!(play.pass(minutes(5), 2), [2, 3]);
    assert_eq!(
        play.pass(minutes(10), 2),
        [4, 0],
        "the last that was left, and then from the beginning"
    );
    assert_eq!(
        play.pass(minutes(11), 9),
        [1, 2, 3],
        "those that were not tried at minute 10 yet"
    );
    assert_eq!(play.pass(minutes(12), 9), [0; 0]);
    assert_eq!(play.desk.last_pass, Some(minutes(12)));
    assert_eq!(play.desk.stretches, [], "all were tried for the same tick");
}

#[test]
fn a_row_tried_out_of_its_turn_was_tried_for_every_tick_until_then() {
    let mut play = Play::new(4);
    play.rows = vec![NOON; 4];
    assert_eq!(play.pass(minutes(0), 2), [0, 1]);
    play.adopt(3, minutes(5));
    assert_eq!(play.pass(minutes(5), 1), [2]);
    assert_eq!(play.pass(minutes(6), 9), [0, 1]);
    assert_eq!(play.pass(minutes(10), 9), [0, 1, 2, 3]);
    assert_eq!(play.desk.aside, [], "what is over is forgotten");
}

#[test]
fn a_row_that_was_locked_in_its_turn_is_tried_by_the_next_pass_that_gets_it_and_once_for_its_tick()
{
    let mut play = Play::new(3);
    play.rows = vec![NOON; 3];
    play.locked = vec![1];
    assert_eq!(play.pass(minutes(0), 9), [0, 2], "the others go on");
    assert_eq!(play.pass(minutes(1), 9), [0; 0], "it still is");
    play.locked.clear();
    assert_eq!(play.pass(minutes(2), 9), [1]);
    assert_eq!(
        play.pass(minutes(3), 9),
        [0; 0],
        "that was its try for this tick"
    );
    play.locked = vec![0];
    assert_eq!(play.pass(minutes(5), 9), [1, 2]);
    play.locked.clear();
    assert_eq!(play.pass(minutes(10), 9), [0, 1, 2], "once for both ticks");
    assert_eq!(play.pass(minutes(11), 9), [0; 0]);
    assert_eq!(play.desk.locked, [""; 0]);
}

#[test]
fn of_very_many_locked_rows_those_that_find_no_room_are_counted() {
    let mut desk = TableState::default();
    let keys: Vec<String> = (0..1_000).map(|key| key.to_string()).collect();
    let left_out = desk.note_locked(keys.clone());
    assert_eq!(desk.locked.len() + left_out, keys.len());
    assert!(left_out > 0 && desk.locked.len() > 100, "{left_out}");
    assert_eq!(
        desk.note_locked(keys[..50].to_vec()),
        0,
        "they are noted already"
    );
}

#[test]
fn a_clock_that_is_set_back_fires_nothing_at_once() {
    let mut play = Play::new(3);
    play.rows = vec![NOON; 3];
    play.pass(minutes(60), 9);
    play.pass(minutes(65), 1);
    assert_eq!(play.pass(minutes(11), 9), [0; 0]);
    assert_eq!(play.pass(minutes(14), 9), [0; 0]);
    assert_eq!(
        play.pass(minutes(15), 9),
        [0, 1, 2],
        "and waits for no more than the next tick"
    );
}

#[test]
fn of_two_runners_one_moves_a_round_on() {
    let (rules, mut desk) = (rules(), TableState::default());
    let first = desk.next_part(&rules, minutes(0), minutes(0));
    let second = desk.next_part(&rules, minutes(1), minutes(1));
    assert_eq!(first, second, "later passes go on with it");
    assert!(desk.advance(&first, cursor(3)));
    assert!(
        !desk.advance(&second, cursor(2))
            && desk.finish_part(&second) == ScanPartResult::Conflicted,
        "too slow"
    );
    let third = desk.next_part(&rules, minutes(1), minutes(1));
    let newer = desk.next_part(&rules, minutes(5), minutes(5));
    assert_eq!((newer.at, &newer.cursor), (minutes(5), &third.cursor));
    assert_eq!(
        desk.finish_part(&third),
        ScanPartResult::Conflicted,
        "a tick has fired that it did not look for"
    );
    assert_eq!(
        desk.next_part(&rules, minutes(1), minutes(5)),
        newer,
        "who is behind goes with those ahead"
    );
    assert_eq!(desk.finish_part(&newer), ScanPartResult::Finished);
    let again = desk.next_part(&rules, minutes(5), minutes(5));
    assert_eq!(
        (again.since, &again.until),
        (Some(minutes(0)), &third.cursor),
        "those before it are next"
    );
    assert_eq!(desk.finish_part(&again), ScanPartResult::MoreParts);
    assert_eq!(
        desk.finish_part(&again),
        ScanPartResult::Conflicted,
        "a leg is passed once"
    );
}

#[test]
fn a_round_that_was_left_by_an_older_version_goes_on() {
    let left = r#"{"last_pass":"2026-03-01T11:55:00Z","round":{"since":"2026-03-01T11:55:00Z","at":"2026-03-01T12:00:00Z","cursor":{"inserted":"i","key":"k"}}}"#;
    let mut desk: TableState = serde_json::from_str(left).expect("a desk");
    let leg = desk.next_part(&rules(), minutes(1), minutes(1));
    assert_eq!(
        (leg.since, leg.at, leg.until),
        (Some(minutes(-5)), minutes(0), None)
    );
    assert_eq!(leg.cursor.map(|cursor| cursor.key), Some("k".to_owned()));
}

#[test]
fn more_than_can_be_remembered_is_remembered_coarsely_and_never_too_early() {
    let mut play = Play::new(400);
    play.rows = vec![NOON; 400];
    for tick in 0..=399 {
        let tried = play.pass(minutes(5 * tick), 1);
        assert_eq!(tried, [usize::try_from(tick).expect("a row")]);
    }
    // No band ticks any more, so a row tried for the last tick is not tried again.
    play.pass(minutes(1_996), 400);
    let last = minutes(1_995);
    for (row, tries) in play.tries.iter().enumerate() {
        let since_last = tries.iter().filter(|at| **at >= last).count();
        assert!(since_last <= 1, "row {row}: {tries:?}");
    }
    let remembered = serde_json::to_vec(&play.desk).expect("JSON").len();
    assert!(remembered < 3 * TABLE_SCAN_BYTES_MAX, "{remembered}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_row_is_tried_twice_for_one_tick_and_none_is_left_out(
        steps in proptest::collection::vec((0..9_i64, 1..14_usize, 0..30_usize), 1..40),
    ) {
        let mut play = Play::new(12);
        let mut minute = 0;
        for (passes, limit, adopted) in steps {
            minute += passes;
            let at = minutes(minute);
            let before: Vec<Option<Time>> = play.tries.iter().map(|tries| tries.last().copied()).collect();
            if let Some(Some(last)) = before.get(adopted).filter(|last| **last != Some(at)) {
                // A row of a killed runner is tried again, whether it is due or not.
                prop_assert!(*last < at);
                play.adopt(adopted, at);
            }
            let before: Vec<Option<Time>> = play.tries.iter().map(|tries| tries.last().copied()).collect();
            let tried = play.pass(at, limit);
            for (row, last) in before.into_iter().enumerate() {
                let is_tried = tried.contains(&row);
                // The rest of a tick is tried for that tick, as long as there is no newer one.
                let looked = if is_tried { play.looked[row] } else { at };
                prop_assert!(looked == at || !play.rules.has_ticked(looked, at));
                let is_due = play.fate(row, last, looked) == RowDecision::Due;
                prop_assert!(is_due || !is_tried, "row {row} at {minute}: tried, last at {last:?}");
                prop_assert!(!is_due || is_tried || tried.len() == limit, "row {row} at {minute}: left out");
            }
        }
    }
}
