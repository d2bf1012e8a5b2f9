//! How the results of one subscription fare: prompt, held back by a slow worker, heaped up by a
//! stall, lost, or late.

use super::{Dice, GIVE_UP_MS, HELD_MAX, Plan, STARTS_AT_MS};
use crate::directory::Interval;

/// All first checks are made within this time, and no stall begins before: a first result sets the
/// baseline.
const FIRST_WITHIN_MS: i64 = 240_000;
/// A checker and the way from it take at least this, and up to that.
const PROMPT_MS: (i64, i64) = (50, 2_000);
/// How long a consumer takes to work off what heaped up, in any order.
const CATCH_UP_MS: i64 = 60_000;
/// The longest that a result in time is awaited by those behind it: well below what a stream waits.
pub(super) const FILL_MAX_MS: i64 = 120_000;
/// How many of those behind it wait for it at most: well below what a stream holds.
const BEHIND_MAX: usize = HELD_MAX - 3;
/// A stream gives a result up at some point; a late one comes this much later at least.
const LATE_MARGIN_MS: i64 = 60_000;

/// The results of one subscription, in the order of their positions.
pub(super) struct Course {
    pub(super) passages: Vec<Passage>,
}

/// One result on its way.
pub(super) struct Passage {
    pub(super) position: i64,
    pub(super) fate: Fate,
}

/// What becomes of a result on its way; times are of its arrival.
#[derive(Clone, Copy)]
pub(super) enum Fate {
    InTime(i64),
    Late(i64),
    Dropped,
}

impl Course {
    pub(super) fn run(plan: &Plan, stalls: &Stalls, interval: Interval, dice: &mut Dice) -> Self {
        let first = STARTS_AT_MS + dice.below(interval.millis().min(FIRST_WITHIN_MS) / 1000) * 1000;
        let positions: Vec<i64> = (first..plan.ends_at_ms())
            .step_by(interval.secs() as usize * 1000)
            .collect();
        let prompt: Vec<i64> = positions
            .iter()
            .map(|position| position + PROMPT_MS.0 + dice.below(PROMPT_MS.1 - PROMPT_MS.0))
            .collect();
        let mut passages: Vec<Passage> = positions
            .iter()
            .zip(&prompt)
            .map(|(position, at_ms)| Passage {
                position: *position,
                fate: Fate::InTime(stalls.pass(*at_ms, dice)),
            })
            .collect();
        let calm = lose(plan, stalls, &mut passages, &prompt, dice);
        hold_back(plan, stalls, &mut passages, &prompt, &calm, dice);
        Self { passages }
    }
}

/// Lets some results be lost or late, never the first or the last, and says around which nothing
/// else may happen.
fn lose(
    plan: &Plan,
    stalls: &Stalls,
    passages: &mut [Passage],
    prompt: &[i64],
    dice: &mut Dice,
) -> Vec<(i64, i64)> {
    let given_up = |nth: usize| prompt[nth + 1] + GIVE_UP_MS;
    let eligible: Vec<usize> = (1..passages.len().saturating_sub(1))
        .filter(|nth| !stalls.touch(prompt[nth + 1] - PROMPT_MS.1, given_up(*nth)))
        .collect();
    // The shares are of all results, and only these can be lost.
    let count = |many: usize| f64::from(u32::try_from(many).unwrap_or(u32::MAX));
    let weight = count(passages.len()) / count(eligible.len()).max(1.0);
    let mut calm: Vec<(i64, i64)> = Vec::new();
    for nth in eligible {
        let (is_dropped, is_late) = (
            dice.chance(plan.dropped * weight),
            dice.chance(plan.late * weight),
        );
        let late_ms = given_up(nth) + LATE_MARGIN_MS + dice.below(2 * LATE_MARGIN_MS);
        let is_alone = calm
            .last()
            .is_none_or(|(_, to)| *to < passages[nth].position);
        if is_alone && (is_dropped || is_late) {
            passages[nth].fate = if is_dropped {
                Fate::Dropped
            } else {
                Fate::Late(stalls.pass(late_ms, dice))
            };
            let before_ms = i64::from(plan.slow_max_s) * 1000 + CATCH_UP_MS + 2 * PROMPT_MS.1;
            calm.push((
                passages[nth].position - before_ms,
                given_up(nth) + LATE_MARGIN_MS / 2,
            ));
        }
    }
    calm
}

/// Lets slow workers hold back some results. From the last one to the first: whether a result comes
/// too late for those behind it depends on them alone, and then it is prompt instead.
fn hold_back(
    plan: &Plan,
    stalls: &Stalls,
    passages: &mut [Passage],
    prompt: &[i64],
    calm: &[(i64, i64)],
    dice: &mut Dice,
) {
    let mut behind: Vec<i64> = Vec::new();
    for nth in (0..passages.len()).rev() {
        let position = passages[nth].position;
        if let Fate::InTime(at_ms) = passages[nth].fate {
            let is_calm = calm
                .iter()
                .any(|(from, to)| (*from..=*to).contains(&position));
            let is_slow = nth > 0 && !is_calm && dice.chance(plan.slow);
            let slow_ms = stalls.pass(
                prompt[nth] + dice.below(i64::from(plan.slow_max_s) * 1000),
                dice,
            );
            let at_ms = if is_slow && is_bearable(slow_ms, &behind) {
                slow_ms
            } else {
                at_ms
            };
            passages[nth].fate = Fate::InTime(at_ms);
            behind.push(at_ms);
        }
    }
}

fn is_bearable(at_ms: i64, behind: &[i64]) -> bool {
    let overtaking = behind.iter().filter(|other| **other < at_ms);
    let first = overtaking.clone().min().copied().unwrap_or(at_ms);
    overtaking.count() <= BEHIND_MAX && at_ms - first <= FILL_MAX_MS
}

/// When the consumer stands still.
pub(super) struct Stalls(Vec<(i64, i64)>);

impl Stalls {
    pub(super) fn of(plan: &Plan) -> Self {
        let (every_ms, long_ms) = (
            i64::from(plan.stall_every_min) * 60_000,
            i64::from(plan.stall_s) * 1000,
        );
        if long_ms == 0 {
            return Self(Vec::new());
        }
        let first = STARTS_AT_MS + FIRST_WITHIN_MS + PROMPT_MS.1 + 60_000;
        let starts = (0..).map(|nth| first + nth * every_ms);
        Self(
            starts
                .take_while(|from| *from < plan.ends_at_ms())
                .map(|from| (from, from + long_ms))
                .collect(),
        )
    }

    /// When something arrives that would have arrived then: in a stall it waits, and is dealt with
    /// in any order.
    pub(super) fn pass(&self, at_ms: i64, dice: &mut Dice) -> i64 {
        let heaped = dice.below(CATCH_UP_MS);
        let stall = self
            .0
            .iter()
            .find(|(from, to)| (*from..*to).contains(&at_ms));
        stall.map_or(at_ms, |(_, to)| to + heaped)
    }

    /// Whether a stall or its working off falls into a time.
    fn touch(&self, from_ms: i64, to_ms: i64) -> bool {
        self.0
            .iter()
            .any(|(from, to)| *from <= to_ms && from_ms <= to + CATCH_UP_MS)
    }
}
