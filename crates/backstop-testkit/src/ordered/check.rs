//! What must hold of a log.

use super::log::{Line, Seen};
use super::trace::{Expected, Trace};
use std::collections::HashMap;

/// What a log showed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// Promises that were broken.
    pub violations: Vec<Violation>,
    /// Calls that came again because their process was killed, or lost its lease.
    pub repeats: usize,
    /// Those of them whose process lives: it lost the lease.
    pub unkilled: usize,
    /// Leases that were lost without a kill.
    pub lost: usize,
    /// Calls that were under way when their process was killed.
    pub cut: usize,
}

/// A promise that was broken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// Two calls of a key at once.
    #[error("{key}: {first} of process {one} was under way when process {other} began {second}")]
    Overlap {
        /// Whose.
        key: String,
        /// The call that was under way.
        first: i64,
        /// By whom.
        one: u32,
        /// The call that began.
        second: i64,
        /// By whom.
        other: u32,
    },
    /// A key's calls are not what they must be.
    #[error("{key}, call {at}: expected {expected:?}, and it was {seen:?}")]
    Order {
        /// Whose.
        key: String,
        /// The how manieth call, repeats that are excused not counted.
        at: usize,
        /// What it should have been; `None` behind the last one.
        expected: Option<(i64, Expected)>,
        /// What it was, and the process it was in.
        seen: Option<(i64, String, u32)>,
    },
}

/// A call of the handler.
struct Call {
    process: u32,
    position: i64,
    effect: String,
    began: usize,
    ended: Option<usize>,
    /// Whether its record was answered as handled before anybody could ask for it again.
    is_answered: bool,
    /// Whether its process has lost the key's lease since it began.
    is_lost: bool,
}

/// Calls by key, in the order in which they began.
type Calls = HashMap<String, Vec<Call>>;

impl Call {
    fn is_same(&self, other: &Self) -> bool {
        self.position == other.position && self.effect == other.effect
    }

    fn is(&self, (position, expected): (i64, Expected)) -> bool {
        let word = match expected {
            Expected::Handled => "handled",
            Expected::Missed => "miss",
        };
        self.position == position && self.effect == word
    }
}

/// Looks for broken promises.
pub fn check(trace: &Trace, lines: &[Line]) -> Checked {
    let (mut calls, kills) = gather(lines);
    let mut checked = Checked::default();
    for (key, expected) in trace.expected() {
        let calls = calls.remove(key.as_str()).unwrap_or_default();
        checked.lost += calls.iter().filter(|call| call.is_lost).count();
        checked.cut += calls.iter().filter(|call| call.ended.is_none()).count();
        checked.violations.extend(
            calls
                .windows(2)
                .filter_map(|pair| overlap(key.as_str(), pair, &kills)),
        );
        let excuse = |at: usize| excuse(&calls[at.checked_sub(1)?], &calls[at], &kills);
        let once: Vec<&Call> = (0..calls.len())
            .filter(|at| excuse(*at).is_none())
            .map(|at| &calls[at])
            .collect();
        checked.repeats += calls.len() - once.len();
        checked.unkilled += (0..calls.len())
            .filter(|at| excuse(*at) == Some(Excuse::Lost))
            .count();
        checked
            .violations
            .extend(out_of_order(key.as_str(), &expected, &once));
    }
    let strangers = calls
        .into_iter()
        .filter_map(|(key, calls)| out_of_order(&key, &[], &[calls.first()?]));
    checked.violations.extend(strangers);
    checked
}

/// The calls of each key, and the line at which each killed process was gone.
fn gather(lines: &[Line]) -> (Calls, HashMap<u32, usize>) {
    let (mut calls, mut kills) = (Calls::new(), HashMap::new());
    for (at, Line { process, seen }) in lines.iter().enumerate() {
        match seen {
            Seen::Began {
                key,
                position,
                effect,
            } => {
                let (position, effect) = (*position, effect.clone());
                let call = Call {
                    process: *process,
                    position,
                    effect,
                    began: at,
                    ended: None,
                    is_answered: false,
                    is_lost: false,
                };
                calls.entry(key.clone()).or_default().push(call);
            }
            Seen::Ended { key, position } => {
                if let Some(call) = last_call(&mut calls, *process, key, Some(*position)) {
                    call.ended = Some(at);
                }
            }
            Seen::Answered(records) => {
                for (key, position) in records {
                    if let Some(call) = last_call(&mut calls, *process, key, Some(*position)) {
                        call.is_answered = true;
                    }
                }
            }
            Seen::Lost { key } => {
                if let Some(call) = last_call(&mut calls, *process, key, None) {
                    call.is_lost = true;
                }
            }
            Seen::Killed => {
                kills.insert(*process, at);
            }
        }
    }
    (calls, kills)
}

/// The last call of a process for a key, at this position if one is given.
fn last_call<'a>(
    calls: &'a mut Calls,
    process: u32,
    key: &str,
    position: Option<i64>,
) -> Option<&'a mut Call> {
    let is_meant = |call: &&mut Call| {
        call.process == process && position.is_none_or(|position| call.position == position)
    };
    calls.get_mut(key)?.iter_mut().rev().find(is_meant)
}

fn overlap(key: &str, pair: &[Call], kills: &HashMap<u32, usize>) -> Option<Violation> {
    let [one, other] = pair else { return None };
    let end = one
        .ended
        .or_else(|| kills.get(&one.process).copied())
        .unwrap_or(usize::MAX);
    (end > other.began).then(|| Violation::Overlap {
        key: key.to_owned(),
        first: one.position,
        one: one.process,
        second: other.position,
        other: other.process,
    })
}

/// Why a call may come again before the store knew of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Excuse {
    Killed,
    Lost,
}

fn excuse(former: &Call, again: &Call, kills: &HashMap<u32, usize>) -> Option<Excuse> {
    if !former.is_same(again) || former.is_answered {
        return None;
    }
    let killed_between = kills
        .get(&former.process)
        .is_some_and(|killed| *killed < again.began);
    let lost = former.is_lost.then_some(Excuse::Lost);
    if killed_between {
        Some(Excuse::Killed)
    } else {
        lost
    }
}

/// The first call of a key that is not what it must be.
fn out_of_order(key: &str, expected: &[(i64, Expected)], seen: &[&Call]) -> Option<Violation> {
    let differs = |at: &usize| match (expected.get(*at), seen.get(*at)) {
        (Some(expected), Some(call)) => !call.is(*expected),
        _ => true,
    };
    let at = (0..expected.len().max(seen.len())).find(differs)?;
    let seen = seen
        .get(at)
        .map(|call| (call.position, call.effect.clone(), call.process));
    Some(Violation::Order {
        key: key.to_owned(),
        at,
        expected: expected.get(at).copied(),
        seen,
    })
}
