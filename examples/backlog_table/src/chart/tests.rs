use super::*;
use crate::{FRESH, Strategy, Try};

fn played(minutes: &[i64]) -> Played {
    let tries = minutes
        .iter()
        .map(|minutes| Try {
            id: FRESH.id,
            after: Span::minutes(*minutes),
        })
        .collect();
    Played {
        strategy: Strategy::Fibonacci,
        tries,
        passes: 0,
        expired: 0,
    }
}

#[test]
fn every_try_is_in_a_column_and_ten_times_as_long_is_ten_columns_on() {
    let columns = [0, 1, 10, 100, 518_400].map(|minutes| column(Span::minutes(minutes)));
    assert_eq!(columns, [0, 0, 10, 20, COLUMNS - 1]);
    assert_eq!(
        counted(&[Span::ZERO, Span::minutes(1), Span::minutes(12)])
            .iter()
            .sum::<usize>(),
        3
    );
}

#[test]
fn a_column_grows_with_its_tries() {
    assert_eq!(
        [0, 1, 2, 3, 4, 300].map(height),
        [' ', '▁', '▂', '▂', '▃', '█']
    );
}

#[test]
fn marks_stand_where_they_belong() {
    for (mark, at) in MARKS {
        let chars: Vec<char> = axis().chars().collect();
        let there: String = chars[column(at)..].iter().take(mark.len()).collect();
        assert_eq!(there, mark);
    }
}

#[test]
fn tries_are_counted_by_the_age_of_the_row() {
    let text = draw(&played(&[0, 1, 1_440, 1_441, 10_081]), &[FRESH]);
    let last = text.lines().last().unwrap_or_default();
    let cells: Vec<&str> = last.split_whitespace().collect();
    assert_eq!(
        cells,
        ["5", "new", "3", "1", "1", "0", "0", "0", "5"],
        "{text}"
    );
}
