use super::*;
use crate::consumer::Counts;
use crate::given::{KEY, MINUTE_MS, directory, result};
use crate::world::{Arrival, Truth};
use std::collections::BTreeSet;
use std::time::Duration;

/// Results of minutes 1 to 9 arrive 100 ms after their check, but 4 never, 6 too late, and 7 twice.
fn world() -> World {
    let at = |minute: i64, after_ms: i64| Arrival {
        at_ms: minute * MINUTE_MS + after_ms,
        bytes: result(minute, "success", "us"),
    };
    let mut trace: Vec<Arrival> = [1, 2, 3, 5, 7, 7, 8, 9]
        .map(|minute| at(minute, 100))
        .into();
    trace.push(at(6, 600_000));
    trace.sort_by_key(|arrival| arrival.at_ms);
    let slot = |minute| Slot {
        key: KEY,
        position: minute * MINUTE_MS,
    };
    let truth = Truth {
        in_time: 7,
        duplicates: 1,
        dropped: BTreeSet::from([slot(4)]),
        late: BTreeSet::from([slot(6)]),
        ..Truth::default()
    };
    World {
        directory: directory(),
        trace,
        truth,
    }
}

fn line(minute: i64, effect: Effect, after_ms: i64) -> KeptLine {
    let position = minute * MINUTE_MS;
    KeptLine {
        seq: minute,
        key: KEY,
        position,
        effect,
        at_ms: position + after_ms,
        line: String::new(),
    }
}

fn figures(lines: Vec<KeptLine>, hold: Option<Hold>) -> Figures {
    let world = world();
    let took = Duration::from_secs(1);
    let ran = Ran {
        counts: Counts::default(),
        broken: Vec::new(),
        hold,
        lines,
        behind_ms: 0,
        took,
    };
    measure(&world, &world.seen(), Mode::Immediate, &ran)
}

#[test]
fn a_miss_is_false_if_its_result_arrives_in_time() {
    let mut lines: Vec<KeptLine> = [1, 2, 5, 8, 9]
        .map(|minute| line(minute, Effect::Handled, 350))
        .into();
    lines.extend([3, 4, 6, 7].map(|minute| line(minute, Effect::Miss, 350)));
    let figures = figures(lines, None);
    assert_eq!(
        (
            figures.false_misses,
            figures.true_misses_found,
            figures.true_misses
        ),
        (2, 2, 2)
    );
    assert_eq!((figures.handled, figures.lost), (5, 2));
    assert_eq!((figures.delay_p50_ms, figures.delay_p99_ms), (250, 250));
}

#[test]
fn a_range_of_misses_counts_each_of_them() {
    let range = Effect::MissRange {
        to: 6 * MINUTE_MS,
        count: 3,
    };
    let figures = figures(vec![line(4, range, 0)], None);
    assert_eq!((figures.false_misses, figures.true_misses_found), (1, 2));
    assert_eq!(
        missed_slots(&line(
            4,
            Effect::MissRange {
                to: 4 * MINUTE_MS,
                count: 1
            },
            0
        ))
        .len(),
        1
    );
}

#[test]
fn percentiles_are_of_the_nearest_rank() {
    let hundred: Vec<i64> = (1..=100).collect();
    assert_eq!(
        (percentile(&hundred, 50), percentile(&hundred, 99)),
        (50, 99)
    );
    assert_eq!(
        (
            percentile(&[7], 50),
            percentile(&[7], 99),
            percentile(&[], 99)
        ),
        (7, 7, 0)
    );
}

#[test]
fn the_table_has_a_row_for_each_figure() {
    let hold = Hold {
        added: 1000,
        removed: 1000,
        timeouts: 12,
        overflows: 0,
        mean_held: 1.44,
    };
    let lines = vec![line(1, Effect::Handled, 12_400)];
    let text = table(&[figures(lines.clone(), None), figures(lines, Some(hold))]);
    let row = |title: &str| {
        let row = text.lines().find(|row| row.contains(title)).expect(title);
        row.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("false misses"), "false misses 0 0");
    assert_eq!(row("true misses found"), "true misses found 0 of 2 0 of 2");
    assert_eq!(row("timeouts"), "timeouts – 12 (1.2 %)");
    assert_eq!(row("overflows"), "overflows – 0 (0.0 %)");
    assert_eq!(row("mean held"), "mean held – 1.4");
    assert_eq!(row("delay p50"), "delay p50 12.3 s 12.3 s");
}

#[test]
fn large_numbers_are_written_in_groups() {
    let written = [0, 999, 1000, 1_234_567].map(grouped);
    assert_eq!(written, ["0", "999", "1,000", "1,234,567"]);
}
