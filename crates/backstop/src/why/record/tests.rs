use super::*;
use backstop_core::stream::{FailingCall, GapWait};
use backstop_core::{Payload, StreamKey};

const MINUTE: i64 = 60;

/// A key handled up to 60, which holds records at these positions.
fn key(held: &[i64], standing: &KeyState) -> StoredKey {
    let record = |position: &i64| StoredRecord {
        position: *position,
        step: MINUTE,
        tenant: None,
        at: Time::from_millis(0),
        arrival: 1,
        payload: Payload::default(),
    };
    StoredKey {
        key: StreamKey::new("site-7").unwrap(),
        watermark: Some(60),
        state: standing.to_bytes(),
        arrived: held.len() as u64,
        records: held.iter().map(record).collect(),
        count: held.len() as u64,
        highest: held.iter().max().copied(),
    }
}

fn waiting() -> KeyState {
    KeyState {
        wait: Some(GapWait {
            attempt: 2,
            due: 30_000_000,
        }),
        ..KeyState::default()
    }
}

fn check(held: &[i64], standing: &KeyState, position: i64, gate: &str, sentence: &str) {
    let why = explain_record(&key(held, standing), position).unwrap();
    assert_eq!(
        (why.gate(), why.to_string().as_str()),
        (gate, sentence),
        "{held:?}"
    );
}

#[test]
fn a_record_behind_a_gap_names_it_and_its_key() {
    let one = "it waits behind key site-7 at gap 120; wait 2 for what is missing ends at 1970-01-01T00:00:30Z";
    check(&[180], &waiting(), 180, "behind_gap", one);
    check(&[180, 300], &waiting(), 300, "behind_gap", one);
    let more = "it waits behind key site-7 at gap 180 and 1 position more; wait 2 for what is missing ends at 1970-01-01T00:00:30Z";
    check(&[120, 300], &waiting(), 300, "behind_gap", more);
    let unknown = "it waits behind key site-7 at gap 120; what is missing is waited for";
    check(&[180], &KeyState::default(), 180, "behind_gap", unknown);
    let fields = explain_record(&key(&[300], &waiting()), 300)
        .unwrap()
        .details();
    assert_eq!(
        serde_json::to_string(&fields).unwrap(),
        r#"{"attempt":2,"gap":120,"key":"site-7","missing":3,"until":"1970-01-01T00:00:30Z"}"#
    );
}

#[test]
fn a_record_whose_turn_has_come_is_next() {
    let plain = KeyState::default();
    check(
        &[120],
        &plain,
        120,
        "next",
        "it is next: whoever serves the stream takes it",
    );
    check(
        &[120, 180],
        &plain,
        180,
        "next",
        "only 1 record whose turn has come is before it: whoever serves the stream takes them",
    );
    let given_up = KeyState {
        drain_to: Some(300),
        ..waiting()
    };
    check(
        &[300],
        &given_up,
        300,
        "next",
        "it is next: whoever serves the stream takes it",
    );
}

#[test]
fn what_is_before_a_record_may_have_failed() {
    let failing = FailingCall {
        position: 120,
        failures: 2,
        due: 5_000_000,
        wait: None,
        since: 0,
        error: "no route".to_owned(),
    };
    let standing = KeyState {
        failing: Some(failing),
        ..KeyState::default()
    };
    let sentence =
        "the record at 120 failed 2 times, and is tried again at 1970-01-01T00:00:05Z: no route";
    check(&[120, 180], &standing, 180, "behind_failing", sentence);
    check(&[120, 180], &standing, 120, "behind_failing", sentence);
    let halted = KeyState {
        halted: Some(120),
        ..KeyState::default()
    };
    let sentence = "its key stands still at 120, which failed for good, until somebody resumes it";
    check(&[120, 180], &halted, 180, "halted", sentence);
}

#[test]
fn a_position_that_is_not_held_says_what_is_known() {
    let plain = KeyState::default();
    let passed = "its position was dealt with: the key is handled or declared missing up to 60";
    check(&[], &plain, 60, "passed", passed);
    check(&[180], &plain, 0, "passed", passed);
    check(
        &[180],
        &plain,
        120,
        "not_found",
        "no record of this position is held",
    );
    let disabled = KeyState::disabled();
    check(
        &[],
        &disabled,
        120,
        "disabled",
        "its key is disabled: its records are ignored until it is enabled",
    );
    let mut crowded = key(&[180], &plain);
    (crowded.count, crowded.highest) = (3, Some(900));
    assert_eq!(
        explain_record(&crowded, 600).unwrap().gate(),
        "behind_gap",
        "held behind what is shown"
    );
    assert_eq!(explain_record(&crowded, 960).unwrap().gate(), "not_found");
}

#[test]
fn the_first_record_of_a_key_is_next() {
    let fresh = StoredKey {
        watermark: None,
        ..key(&[6_000], &KeyState::default())
    };
    assert_eq!(
        explain_record(&fresh, 6_000).unwrap(),
        RecordExplanation::Next { before: 0 }
    );
}

#[test]
fn records_follow_what_is_before_them_closely_or_behind_a_gap_of_a_kind() {
    let all = |held: &[i64], standing: KeyState| -> Vec<String> {
        record_links(&key(held, &standing), &standing)
            .map(|(_, joint)| joint.to_string())
            .collect()
    };
    let plain = all(&[120, 150, 300, 301], KeyState::default());
    assert_eq!(plain, ["", "", "1 position is missing from 210 on", ""]);
    assert_eq!(all(&[179], KeyState::default()), ["off the grid"]);
    let given_up = all(
        &[240, 480],
        KeyState {
            drain_to: Some(240),
            ..KeyState::default()
        },
    );
    assert_eq!(
        given_up,
        [
            "2 positions are given up from 120 on",
            "3 positions are missing from 300 on"
        ]
    );
    // A step that no store should have: it is drawn as one, and divides nothing by zero.
    let mut damaged = key(&[63], &KeyState::default());
    damaged.records[0].step = 0;
    let standing = KeyState::default();
    let told: Vec<String> = record_links(&damaged, &standing)
        .map(|(_, joint)| joint.to_string())
        .collect();
    assert_eq!(told, ["2 positions are missing from 61 on"]);
}
