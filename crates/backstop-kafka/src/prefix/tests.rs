use super::{AcceptedPrefix, BatchNumber};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Plays `g10` (hands out a batch of one record that ends before 10), `t1` (batch 1 is accepted)
/// and `c1` (a commit through batch 1 is acknowledged). Then it compares the offset that may be
/// committed, and the number of uncommitted records.
#[track_caller]
fn check(script: &str, offset: Option<i64>, records: usize) {
    let mut prefix = AcceptedPrefix::default();
    for step in script.split_whitespace() {
        let (verb, number) = step.split_at(1);
        match verb {
            "g" => drop(prefix.push(number.parse().unwrap(), 1)),
            "t" => prefix.mark_accepted(BatchNumber(number.parse().unwrap())),
            "c" => prefix.drop_committed(BatchNumber(number.parse().unwrap())),
            _ => panic!("no such step: {step}"),
        }
    }
    assert_eq!(
        (prefix.mark().map(|mark| mark.offset), prefix.records()),
        (offset, records),
        "{script}"
    );
}

#[test]
fn nothing_given_out_is_nothing_to_commit() {
    check("", None, 0);
    check("t0", None, 0);
    check("g10", None, 1);
}

#[test]
fn a_prefix_ends_before_the_first_batch_that_is_missing() {
    check("g10 g20 g30 t1 t2", None, 3);
    check("g10 g20 g30 t0 t2", Some(10), 3);
    check("g10 g20 g30 t2 t1 t0", Some(30), 3);
}

#[test]
fn a_batch_counts_until_its_commit_is_acknowledged() {
    check("g10 g20 t0 c0", None, 1);
    check("g10 g20 t0 t1 c0", Some(20), 1);
    check("g10 g20 t0 t1 c1", None, 0);
    check("g10 g20 t0 t1 c0 c0", Some(20), 1);
}

#[test]
fn an_acknowledgement_never_covers_what_was_not_taken_in() {
    check("g10 g20 t0 c1", None, 1);
    check("g10 c0", None, 1);
}

#[test]
fn batches_are_told_apart_after_others_were_forgotten() {
    check("g10 t0 c0 g20 g30 t2", None, 2);
    check("g10 t0 c0 g20 g30 t2 t1", Some(30), 2);
    check("g10 t0 c0 g20 t0", None, 1);
}

#[test]
fn taking_in_twice_is_once() {
    check("g10 g20 t0 t0", Some(10), 2);
}

#[test]
fn the_order_is_that_of_giving_out_when_offsets_begin_anew() {
    check("g100 g5 t0", Some(100), 2);
    check("g100 g5 t0 t1", Some(5), 2);
    check("g100 g5 g6 t0 t1 c1 t2", Some(6), 1);
}

#[test]
fn records_out_are_those_the_sink_has_not_taken_in() {
    let mut prefix = AcceptedPrefix::default();
    prefix.push(10, 3);
    let second = prefix.push(20, 5);
    prefix.mark_accepted(second);
    assert_eq!((prefix.records(), prefix.records_in_flight()), (8, 3));
}

#[derive(Clone, Debug)]
enum Step {
    Give(usize),
    TakeIn(usize),
    Commit,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1..9_usize).prop_map(Step::Give),
        4 => (0..40_usize).prop_map(Step::TakeIn),
        2 => Just(Step::Commit),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    /// The prefix agrees with a list of all batches that is searched every time.
    #[test]
    fn a_prefix_is_what_a_long_list_says(steps in steps()) {
        let (mut prefix, mut given, mut taken, mut committed) = (AcceptedPrefix::default(), Vec::new(), BTreeSet::new(), 0);
        for step in steps {
            match step {
                Step::Give(records) => {
                    let end = given.last().map_or(0, |(end, _)| *end) + i64::try_from(records).unwrap();
                    let number = prefix.push(end, records);
                    prop_assert_eq!(number.0, given.len() as u64);
                    given.push((end, records));
                }
                Step::TakeIn(number) if number < given.len() => {
                    taken.insert(number);
                    prefix.mark_accepted(BatchNumber(number as u64));
                }
                Step::TakeIn(_) => {}
                Step::Commit => {
                    if let Some(mark) = prefix.mark() {
                        prefix.drop_committed(mark.through);
                        committed = mark.through.0 as usize + 1;
                    }
                }
            }
            let whole = (0..given.len()).take_while(|number| taken.contains(number)).count();
            let expected = (whole > committed).then(|| given[whole - 1].0);
            prop_assert_eq!(prefix.mark().map(|mark| mark.offset), expected);
            let whole: usize = given[committed..whole.max(committed)].iter().map(|(_, records)| records).sum();
            prop_assert_eq!(prefix.records_accepted(), whole);
            let open: usize = given[committed..].iter().map(|(_, records)| records).sum();
            prop_assert_eq!(prefix.records(), open);
        }
    }
}
