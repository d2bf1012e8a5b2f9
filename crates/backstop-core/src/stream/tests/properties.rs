//! Properties of streams that hold for all arrivals.

use super::super::replay::{Replay, ReplayEvent, ReplayLine};
use super::*;
use crate::payload::Payload;
use crate::time::Time;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const STEP: i64 = 60;

/// One arrival: after how many seconds, of which key, at which slot, and how often its handler
/// fails.
type Arrival = (u16, u8, i64, u32);

fn record(key: u8, slot: i64) -> Record {
    let key = StreamKey::new(&key.to_string()).unwrap();
    Record {
        key,
        position: slot * STEP,
        step: STEP,
        tenant: None,
        payload: Payload::default(),
    }
}

fn played(rules: StreamRules, arrivals: &[Arrival]) -> (Vec<ReplayEffect>, ReplaySummary) {
    let (mut replay, mut effects, mut now) = (Replay::new(rules), Vec::new(), 0_i64);
    for (after, key, slot, fail) in arrivals {
        now += i64::from(*after);
        let event = ReplayEvent::Record {
            record: record(*key, *slot),
            fail: *fail,
        };
        let line = ReplayLine {
            at: Time::from_millis(now * 1_000),
            event,
        };
        effects.extend(replay.play(line).unwrap());
    }
    let (rest, summary) = replay.finish();
    effects.extend(rest);
    (effects, summary)
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let fail = prop_oneof![8 => Just(0_u32), 1 => 1_u32..3, 1 => Just(9_u32)];
    prop::collection::vec((0_u16..40, 0_u8..3, 0_i64..25, fail), 0..60)
}

fn any_rules() -> impl Strategy<Value = StreamRules> {
    let drains = prop_oneof![Just(DrainMode::Immediate), Just(DrainMode::Scheduled)];
    let lates = prop_oneof![Just(LatePolicy::Drop), Just(LatePolicy::Amend)];
    (drains, lates, 1_u32..12, 0_u32..5, 20_i64..4_000).prop_map(
        |(drain, late, max_held, max_misses, hold_for)| {
            let change = |rules: &mut StreamRules| {
                (rules.drain, rules.late) = (drain, late);
                (rules.max_held, rules.max_misses, rules.hold_for) =
                    (max_held, max_misses, Span::secs(hold_for));
            };
            rules(change)
        },
    )
}

/// The effects of each key, in order of time.
fn by_key(effects: &[ReplayEffect]) -> BTreeMap<StreamKey, Vec<&ReplayEffect>> {
    let mut by_key: BTreeMap<StreamKey, Vec<&ReplayEffect>> = BTreeMap::new();
    for effect in effects {
        by_key.entry(effect.key.clone()).or_default().push(effect);
    }
    by_key
}

fn positions(effect: &ReplayEffect) -> Vec<i64> {
    let first = effect.position.unwrap();
    (first..=effect.to.unwrap_or(first))
        .step_by(STEP as usize)
        .collect()
}

proptest! {
    #[test]
    fn positions_rise_and_each_is_handled_missed_or_dead_exactly_once(rules in any_rules(), arrivals in arrivals()) {
        let (effects, summary) = played(rules, &arrivals);
        for (key, effects) in by_key(&effects) {
            let mut ends: Vec<i64> = Vec::new();
            for effect in effects.iter().filter(|e| ["handled", "miss", "miss_range", "dead"].contains(&e.effect)) {
                // A correction that fails for good is a dead letter of a position that has already
                // ended.
                let is_correction = effect.effect == "dead" && ends.last() >= effect.position.as_ref();
                ends.extend(positions(effect).into_iter().filter(|_| !is_correction));
            }
            prop_assert!(ends.is_sorted_by(|one, next| one < next), "{key}: {ends:?}");
            if let (Some(first), Some(last)) = (ends.first(), ends.last()) {
                let all: Vec<i64> = (*first..=*last).step_by(STEP as usize).collect();
                prop_assert_eq!(&ends, &all, "{}", key);
                prop_assert_eq!(summary.watermarks[&key], *last);
            }
        }
        prop_assert_eq!(summary.held, 0, "nothing waits for ever");
        prop_assert_eq!(summary.added, summary.removed);
        let misses: usize = effects.iter().filter(|e| e.effect.starts_with("miss")).map(|e| positions(e).len()).sum();
        prop_assert_eq!(summary.misses, misses as u64);
        prop_assert!(summary.cleared + summary.timeout + summary.circuit_breaker >= summary.task_scheduled, "{summary:?}");
    }

    #[test]
    fn nothing_is_handled_before_it_came_and_every_record_is_accounted_for(rules in any_rules(), arrivals in arrivals()) {
        let (effects, _) = played(rules, &arrivals);
        let mut now = 0_i64;
        let mut came: BTreeMap<(StreamKey, i64), i64> = BTreeMap::new();
        for (after, key, slot, _) in &arrivals {
            now += i64::from(*after);
            came.entry((record(*key, *slot).key, slot * STEP)).or_insert(now * 1_000);
        }
        let mut ended = 0;
        for effect in &effects {
            if ["handled", "amended", "dead"].contains(&effect.effect) {
                let at = came.get(&(effect.key.clone(), effect.position.unwrap()));
                prop_assert!(at.is_some_and(|at| *at <= effect.at_ms), "{effect:?}");
            }
            ended += usize::from(["handled", "amended", "dead", "duplicate", "late"].contains(&effect.effect));
        }
        prop_assert_eq!(ended, arrivals.len(), "every arrival ends in exactly one way");
    }

    #[test]
    fn arrivals_within_the_wait_make_no_misses(
        delays in prop::collection::vec(0_i64..170, 1..40),
        twice in prop::collection::btree_set(0_usize..40, 0..5),
        drain in prop_oneof![Just(DrainMode::Immediate), Just(DrainMode::Scheduled)],
    ) {
        // Slot n is due at n minutes and arrives up to 170 s later; at most three are under way at
        // once.
        let mut arriving: Vec<(i64, i64)> = (0_i64..)
            .zip(&delays)
            .map(|(slot, delay)| (slot * STEP + if slot == 0 { 0 } else { *delay }, slot))
            .collect();
        let again: Vec<_> = twice.iter().filter_map(|slot| arriving.get(*slot).map(|(at, slot)| (at + 1, *slot))).collect();
        arriving.extend(again);
        arriving.sort_unstable();
        let mut before = 0;
        let arrivals: Vec<Arrival> = arriving
            .iter()
            .map(|(at, slot)| {
                let after = u16::try_from(at - before).unwrap();
                before = *at;
                (after, 0, *slot, 0)
            })
            .collect();
        let (effects, summary) = played(rules(|rules| rules.drain = drain), &arrivals);
        prop_assert_eq!(summary.misses, 0, "{:?}", effects);
        prop_assert_eq!(summary.handled, delays.len() as u64);
        let seen: BTreeSet<usize> = twice.into_iter().filter(|slot| *slot < delays.len()).collect();
        prop_assert_eq!(summary.duplicates, seen.len() as u64);
    }
}
