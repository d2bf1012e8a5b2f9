use super::*;
use std::collections::BTreeSet;

const TRACE: Trace = Trace {
    seed: 7,
    keys: 1,
    positions: 4,
    wave: 3,
    shares: 1,
};

/// A log in few words: `1+60` is position 60 begun by process 1, `1-60` its end, `1!` a kill, `1?`
/// a lost lease, `1=60` an answer.
fn lines(text: &str) -> Vec<Line> {
    let line = |word: &str| {
        let (process, rest) = word.split_at(1);
        let (sign, position) = rest.split_at(1);
        let (key, position) = ("key-0".to_owned(), position.parse().unwrap_or_default());
        let seen = match sign {
            "+" => Seen::Began {
                key,
                position,
                effect: "handled".to_owned(),
            },
            "-" => Seen::Ended { key, position },
            "=" => Seen::Answered(vec![(key, position)]),
            "?" => Seen::Lost { key },
            _ => Seen::Killed,
        };
        Line {
            process: process.parse().expect("a digit"),
            seen,
        }
    };
    text.split_whitespace().map(line).collect()
}

fn check_log(text: &str) -> Checked {
    check(&TRACE, &lines(text))
}

#[test]
fn calls_in_order_are_sound() {
    assert_eq!(
        check_log("1+0 1-0 2+60 2-60 1+120 1-120 2+180 2-180"),
        Checked::default()
    );
}

#[test]
fn what_a_killed_process_had_in_flight_may_come_again_once() {
    let rest = "2+60 2-60 2+120 2-120 2+180 2-180";
    let sound = check_log(&format!("1+0 1-0 1+60 1! {rest}"));
    assert_eq!(
        sound,
        Checked {
            repeats: 1,
            cut: 1,
            ..Checked::default()
        }
    );
    assert_eq!(
        check_log(&format!("1+0 1-0 1+60 1-60 1! {rest}")).violations,
        []
    );
    for broken in [
        "1+0 1-0 1+60 1-60 1=60 1! ",
        "1+0 1-0 1+60 1-60 ",
        "1+0 1-0 1+60 1! 2+0 2-0 ",
    ] {
        assert_eq!(
            check_log(&format!("{broken}{rest}")).violations.len(),
            1,
            "{broken}"
        );
    }
}

#[test]
fn what_was_called_off_with_its_lease_may_come_again_and_nothing_before_it() {
    let rest = "2+60 2-60 2+120 2-120 2+180 2-180";
    for known in ["1+0 1-0 1+60 1-60 1? ", "1+0 1-0 1+60 1? 1-60 "] {
        let sound = check_log(&format!("{known}{rest}"));
        assert_eq!(
            sound,
            Checked {
                repeats: 1,
                unkilled: 1,
                lost: 1,
                ..Checked::default()
            },
            "{known}"
        );
    }
    let late = check_log("1+0 1-0 1+60 1-60 2+60 1? 2-60 2+120 2-120 2+180 2-180");
    assert_eq!(late.violations, []);
    for broken in [
        "1+0 1-0 1? 1+60 1-60 ",
        "1+0 1-0 1+60 1-60 1=60 1? ",
        "1+0 1-0 1+60 1-60 3? ",
    ] {
        assert_eq!(
            check_log(&format!("{broken}{rest}")).violations.len(),
            1,
            "{broken}"
        );
    }
}

#[test]
fn a_call_that_begins_before_the_last_one_ends_is_found() {
    for broken in [
        "1+0 2+60 1-0 2-60 1+120 1-120 2+180 2-180",
        "1+0 2+0 1! 2-0 2+60 2-60 2+120 2-120 2+180 2-180",
    ] {
        let violations = check_log(broken).violations;
        assert!(
            matches!(violations[0], Violation::Overlap { .. }),
            "{violations:?}"
        );
    }
}

#[test]
fn what_is_left_out_or_behind_is_found() {
    for broken in [
        "1+0 1-0 1+60 1-60 1+120 1-120",
        "1+0 1-0 1+60 1-60 1+180 1-180 1+120 1-120",
        "",
    ] {
        assert!(
            matches!(check_log(broken).violations[..], [Violation::Order { .. }]),
            "{broken}"
        );
    }
}

#[test]
fn a_trace_brings_what_is_expected_and_nothing_else() {
    let trace = Trace {
        seed: 3,
        keys: 40,
        positions: 60,
        wave: 20,
        shares: 4,
    };
    let batches = || (0..trace.waves()).flat_map(|wave| (0..4).map(move |share| (wave, share)));
    let records: Vec<_> = batches()
        .flat_map(|(wave, share)| trace.batches(wave, share))
        .flatten()
        .collect();
    let brought: BTreeSet<_> = records
        .iter()
        .map(|record| (record.key.to_string(), record.position))
        .collect();
    let expected = trace.expected();
    let all = || {
        expected
            .iter()
            .flat_map(|(key, calls)| calls.iter().map(move |call| (key.to_string(), *call)))
    };
    let handled: BTreeSet<_> = all()
        .filter(|(_, (_, expected))| *expected == Expected::Handled)
        .map(|(key, (position, _))| (key, position))
        .collect();
    assert_eq!(brought, handled);
    assert_eq!(all().count(), 40 * 60);
    let (missed, twice) = (all().count() - handled.len(), records.len() - brought.len());
    assert!(
        (5..60).contains(&missed) && (15..120).contains(&twice),
        "{missed} missed, {twice} twice"
    );
}

#[test]
fn a_log_is_read_back_without_what_was_cut() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let log = EventLog::open(&path).expect("opened");
    let written = lines("1+60 1-60 1? 1!");
    for line in &written {
        log.append(line).expect("written");
    }
    std::fs::write(
        &path,
        std::fs::read_to_string(&path).expect("read") + "\n2 began key-0 12",
    )
    .expect("written");
    log.append(&written[0]).expect("written");
    let read = EventLog::read(&path).expect("read");
    assert_eq!((&read[..4], &read[4..]), (&written[..], &written[..1]));
}
