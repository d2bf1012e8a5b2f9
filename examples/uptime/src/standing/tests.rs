use super::*;

/// Plays results (`s`uccess, `f`ailure, `m`issed window) from position 1 on, and tells what people
/// are told: `+` activated, `(` opened, `)` closed, `.` nothing.
fn check(begins: Beginning, results: &str, told: &str) {
    let mut standing = Standing::first(begins);
    let mut seen = String::new();
    for (position, letter) in (1..).zip(results.chars()) {
        let status = match letter {
            's' => Status::Success,
            'f' => Status::Failure,
            _ => Status::MissedWindow,
        };
        let (next, notice) = judge(standing, status, position, &Thresholds::default());
        standing = next;
        seen.push(match notice {
            None => '.',
            Some(Notice::Activated) => '+',
            Some(Notice::Opened { .. }) => '(',
            Some(Notice::Closed { .. }) => ')',
        });
    }
    assert_eq!(seen, told, "{begins:?}: {results}");
}

#[test]
fn two_failures_in_a_row_open_an_incident() {
    check(Beginning::Active, "sfsfsf", "......");
    check(Beginning::Active, "sffff", "..(..");
    check(Beginning::Active, "ff", ".(");
}

#[test]
fn two_successes_in_a_row_close_it() {
    check(Beginning::Active, "ffsfsfss", ".(.....)");
    check(Beginning::Active, "ffssffss", ".(.).(.)");
}

#[test]
fn three_good_results_in_a_row_end_onboarding() {
    check(Beginning::Onboarding, "sss", "..+");
    check(Beginning::Onboarding, "ssfssfsssff", "........+.(");
}

#[test]
fn no_incident_opens_while_onboarding() {
    check(Beginning::Onboarding, "ffffff", "......");
}

#[test]
fn a_check_that_was_not_made_changes_nothing() {
    check(Beginning::Active, "fmfsms", "..(..)");
    check(Beginning::Onboarding, "smsms", "....+");
}

#[test]
fn an_incident_knows_what_opened_and_what_closed_it() {
    let thresholds = Thresholds::default();
    let (down, opened) = judge(
        Standing::Up { failures: 1 },
        Status::Failure,
        120,
        &thresholds,
    );
    assert_eq!(
        (opened, down.is_down()),
        (Some(Notice::Opened { at_ms: 120 }), true)
    );
    let (down, _) = judge(down, Status::Success, 180, &thresholds);
    let (up, closed) = judge(down, Status::Success, 240, &thresholds);
    assert_eq!(
        closed,
        Some(Notice::Closed {
            opened_ms: 120,
            at_ms: 240
        })
    );
    assert!(!up.is_down());
}
