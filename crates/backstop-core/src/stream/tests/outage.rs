//! A key whose records are not all in memory: there are more than one load brings, or it was worked
//! on offline.

use super::super::call::KeyStep;
use super::recovery::{Kept, STEP, record};
use super::*;
use crate::retry::RandomDraw;
use crate::time::Time;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Works on a key as far as possible without waiting. Returns the handler calls, in slots.
fn worked(window: &mut KeyWindow, rules: &StreamRules, now: Time) -> Vec<String> {
    let mut called = Vec::new();
    while let Some(step) = window.next(rules, now) {
        if let KeyStep::Call(call) = step {
            let range = if let HandlerCall::MissRange { to, .. } = call {
                format!("-{}", to / STEP)
            } else {
                String::new()
            };
            called.push(format!(
                "{} {}{range}",
                call.as_str(),
                call.position() / STEP
            ));
            window.complete(call, now);
        }
    }
    called
}

/// Acts like a worker: loads the key, adds the records brought, works, and writes; repeats this
/// while there is more to do at once.
fn taken(
    kept: &mut Kept,
    in_hand: &[i64],
    meanwhile: Option<KeyWindow>,
    rules: &StreamRules,
    now: Time,
) -> Vec<String> {
    let (mut called, mut meanwhile) = (Vec::new(), meanwhile);
    let mut in_hand: Vec<Record> = in_hand.iter().map(|slot| record(*slot)).collect();
    for _ in 0..100 {
        let mut window = kept.load();
        if let Some(meanwhile) = meanwhile.take() {
            window.catch_up(meanwhile);
        }
        window.arrive(in_hand.drain(..), now);
        called.extend(worked(&mut window, rules, now));
        let wake = window.wake(rules, now);
        kept.advance(window.take_change());
        assert_eq!(
            kept.counts.held(),
            kept.records.len() as u64,
            "added less removed is held"
        );
        if wake != Some(now) {
            return called;
        }
    }
    panic!("it never came to rest: {called:?}");
}

fn handled(slots: impl IntoIterator<Item = i64>) -> Vec<String> {
    slots
        .into_iter()
        .map(|slot| format!("handled {slot}"))
        .collect()
}

#[test]
fn records_that_were_not_loaded_are_not_missing() {
    for max_held in [3, 1_000] {
        let rules = rules(|rules| rules.max_held = max_held);
        let mut kept = Kept {
            window: 4,
            ..Kept::default()
        };
        for slot in 0..10 {
            kept.offer(&record(slot), Time::default());
        }
        assert_eq!(
            taken(&mut kept, &[10], None, &rules, Time::default()),
            handled(0..=10),
            "{max_held}"
        );
        assert_eq!(kept.counts[StreamCounter::Misses], 0);
    }
}

#[test]
fn what_arrived_under_a_worker_that_died_counts_as_added() {
    let mut kept = Kept::default();
    for slot in [1, 3, 5] {
        kept.offer(&record(slot), Time::default());
    }
    let mut window = kept.load();
    let Some(KeyStep::Call(call)) = window.next(&usual(), Time::default()) else {
        panic!("the baseline")
    };
    window.complete(call, Time::default());
    kept.advance(window.take_change());
    // The worker dies here, with 3 and 5 stored and not yet examined.
    taken(&mut kept, &[], None, &usual(), Time::default());
    assert_eq!(
        (kept.counts.held(), kept.counts[StreamCounter::Added]),
        (2, 2)
    );
}

#[test]
fn a_correction_leaves_the_retries_of_another_record_alone() {
    let rules = rules(|rules| rules.late = LatePolicy::Amend);
    let mut window = KeyWindow::new(StreamKey::new("a").unwrap());
    window.arrive([record(0)], Time::default());
    worked(&mut window, &rules, Time::default());
    window.arrive((2..12).map(record), Time::default());
    worked(&mut window, &rules, Time::default());
    window.arrive([record(12)], Time::default());
    let Some(KeyStep::Call(call)) = window.next(&rules, Time::default()) else {
        panic!("12 has its turn")
    };
    let failure = HandlerFailure {
        requested_wait: None,
        error: "no",
        roll: RandomDraw::LOWEST,
    };
    window.fail(call, &rules, failure, Time::default());
    let failing = window.state().failing.clone();
    window.arrive([record(1)], Time::default());
    assert_eq!(worked(&mut window, &rules, Time::default()), ["amended 1"]);
    assert!(failing.is_some());
    assert_eq!(window.state().failing, failing);
}

#[test]
fn a_clock_that_is_set_back_makes_no_retry_later() {
    let mut window = KeyWindow::new(StreamKey::new("a").unwrap());
    let now = Time::default().after(Span::hours(10));
    window.arrive([record(0)], now);
    let Some(KeyStep::Call(call)) = window.next(&usual(), now) else {
        panic!("the baseline")
    };
    window.fail(
        call,
        &usual(),
        HandlerFailure {
            requested_wait: None,
            error: "no",
            roll: RandomDraw::LOWEST,
        },
        now,
    );
    let before = Time::default().after(Span::hours(1));
    assert_eq!(window.next(&usual(), before), None);
    assert_eq!(
        window.wake(&usual(), before),
        Some(before.after(Span::secs(1)))
    );
}

/// A process that has not worked on this key for a while.
fn stale(kept: &Kept) -> KeyWindow {
    let key = StreamKey::new("a").unwrap();
    KeyWindow::offline_without_lease(key, kept.load().remember())
}

fn at_once() -> StreamRules {
    usual().without_waiting()
}

#[test]
fn a_key_that_others_moved_on_has_no_false_misses() {
    let (mut kept, now) = (Kept::default(), Time::default());
    taken(&mut kept, &[0], None, &usual(), now);
    let mut here = stale(&kept);
    taken(
        &mut kept,
        &(1..=10).collect::<Vec<_>>(),
        None,
        &usual(),
        now,
    );
    here.arrive([record(11)], now);
    assert_eq!(worked(&mut here, &at_once(), now), ["handled 11"]);
    assert_eq!(
        taken(&mut kept, &[12], Some(here), &usual(), now),
        ["handled 12"]
    );
}

#[test]
fn what_is_held_in_the_store_is_handled_when_it_is_back_and_the_rest_is_missed() {
    let (mut kept, now) = (Kept::default(), Time::default());
    taken(&mut kept, &[0, 2, 3], None, &usual(), now);
    let mut here = stale(&kept);
    here.arrive([record(4), record(6)], now);
    assert_eq!(
        worked(&mut here, &at_once(), now),
        ["handled 4", "miss 5", "handled 6"]
    );
    assert_eq!(
        taken(&mut kept, &[7], Some(here), &usual(), now),
        ["miss 1", "handled 2", "handled 3", "handled 7"]
    );
    assert_eq!((kept.watermark, kept.records.len()), (Some(7 * STEP), 0));
}

#[test]
fn a_key_that_is_new_to_this_process_is_not_new() {
    let (mut kept, now) = (Kept::default(), Time::default());
    taken(&mut kept, &[0, 2], None, &usual(), now);
    let mut here =
        KeyWindow::offline_without_lease(StreamKey::new("a").unwrap(), RememberedKey::default());
    here.arrive([record(4)], now);
    assert_eq!(worked(&mut here, &at_once(), now), ["handled 4"]);
    here.arrive([record(3)], now);
    assert_eq!(
        worked(&mut here, &at_once(), now),
        ["handled 3"],
        "nobody has looked at it yet"
    );
    here.arrive([record(3), record(4)], now);
    assert_eq!(worked(&mut here, &at_once(), now), [""; 0], "twice is once");
    assert_eq!(
        taken(&mut kept, &[], Some(here), &usual(), now),
        ["miss 1", "handled 2"]
    );
    assert_eq!(kept.watermark, Some(4 * STEP));
}

#[test]
fn a_key_in_hand_goes_on_with_what_it_holds() {
    let (mut kept, now) = (Kept::default(), Time::default());
    taken(&mut kept, &[0, 2, 3], None, &usual(), now);
    let mut hand = kept.load();
    hand.arrive([record(5)], now);
    assert_eq!(worked(&mut hand, &usual(), now), [""; 0]);
    let unsaved = hand.take_change();
    let mut adrift = hand.offline_with_unsaved(&unsaved);
    assert_eq!(
        worked(&mut adrift, &at_once(), now),
        ["miss 1", "handled 2", "handled 3", "miss 4", "handled 5"]
    );
    assert_eq!(
        taken(&mut kept, &[6], Some(adrift), &usual(), now),
        ["handled 6"]
    );
    assert_eq!(
        (
            kept.counts[StreamCounter::Handled],
            kept.counts[StreamCounter::Misses],
            kept.records.len()
        ),
        (5, 2, 0)
    );
}

#[test]
fn halted_and_disabled_keys_stay_so_without_the_store() {
    let mut kept = Kept::default();
    taken(&mut kept, &[0], None, &usual(), Time::default());
    let mut window = kept.load();
    window.forget(true);
    let mut here = KeyWindow::offline_without_lease(window.key().clone(), window.remember());
    here.arrive([record(1)], Time::default());
    assert_eq!(
        here.next(&at_once(), Time::default()),
        Some(KeyStep::Event(KeyEvent::Ignored { position: STEP }))
    );
}

proptest! {
    /// Two processes share one store that comes and goes. Each record is handled by the process
    /// that gets it, online or offline.
    #[test]
    fn every_record_is_handled_once_whoever_gets_it_and_whatever_the_store_does(
        arrivals in prop::collection::vec((1_i64..14, 0_usize..2, 0_u8..4), 1..40),
    ) {
        let rules = rules(|rules| rules.max_held = 1_000);
        let (mut kept, now) = (Kept::default(), Time::default());
        // A key that is new during an outage has no baseline that all processes know.
        taken(&mut kept, &[0], None, &rules, now);
        let mut lanes: [Option<KeyWindow>; 2] = [None, None];
        let mut known = [RememberedKey::default(), RememberedKey::default()];
        let (mut called, mut brought, mut is_down) = (Vec::new(), BTreeSet::new(), false);
        for (slot, process, chance) in arrivals {
            is_down = if is_down { chance != 0 } else { chance == 1 };
            // Each record goes to one process only: while the store is down, two processes cannot
            // know of each other.
            if !brought.insert(slot) {
                continue;
            }
            if is_down {
                let key = StreamKey::new("a").unwrap();
                let lane = lanes[process].get_or_insert_with(|| KeyWindow::offline_without_lease(key, known[process].clone()));
                lane.arrive([record(slot)], now);
                called.extend(worked(lane, &at_once(), now));
            } else {
                for lane in &mut lanes {
                    called.extend(taken(&mut kept, &[], lane.take(), &rules, now));
                }
                called.extend(taken(&mut kept, &[slot], None, &rules, now));
                known[process] = kept.load().remember();
            }
        }
        for lane in &mut lanes {
            called.extend(taken(&mut kept, &[], lane.take(), &rules, now));
        }
        let give_up = now.after(Span::hours(2));
        called.extend(taken(&mut kept, &[], None, &rules, give_up));
        prop_assert!(kept.records.is_empty());
        let told = |what: &str| -> Vec<i64> {
            let slots = called.iter().filter_map(|call| call.strip_prefix(what)?.trim().parse().ok());
            slots.collect()
        };
        let handled = told("handled");
        let once: BTreeSet<i64> = handled.iter().copied().collect();
        prop_assert_eq!(once.len(), handled.len(), "none twice: {:?}", called);
        let missed: BTreeSet<i64> = told("miss").into_iter().collect();
        prop_assert!(brought.iter().all(|slot| once.contains(slot) || missed.contains(slot)), "{:?} {:?}", called, brought);
    }
}
