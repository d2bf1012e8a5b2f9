//! How often a row failed, as its column says it: the same that the queries take it for.

use super::catalogue::{Column, Kind};
use super::row::Cell;
use backstop_core::sweep::Dialect;

/// Digits of a count that is text.
const DIGITS_MAX: usize = 9;

/// Whether a column can say how often.
pub(super) fn is_counted(column: &Column) -> bool {
    matches!(
        column.kind,
        Kind::Whole | Kind::Real | Kind::Text | Kind::Any
    )
}

/// The count in a cell, cut to a whole number; `None` if it says none.
pub(super) fn read(cell: &Cell, column: &Column, dialect: Dialect) -> Option<i128> {
    match cell {
        Cell::Whole(number) => Some(*number),
        Cell::Real(number) => Some(cut(*number)),
        Cell::Digits(digits) => digits.parse().ok().or_else(|| digits.parse().ok().map(cut)),
        Cell::Text(text) if column.kind == Kind::Real => text.parse().ok().map(cut),
        // Text among SQLite's whole numbers would be a number if it were one.
        Cell::Text(_) if column.kind == Kind::Whole && dialect == Dialect::Sqlite => None,
        Cell::Text(text) => {
            let digits = text.trim_matches(' ');
            let is_count =
                digits.len() <= DIGITS_MAX && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_count)
        }
        Cell::Null | Cell::Bytes(_) | Cell::Broken(_) | Cell::Json(_) => None,
    }
}

/// Without its part; what is no number comes behind all of them, as PostgreSQL has it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "it saturates, and nobody fails as often"
)]
fn cut(number: f64) -> i128 {
    if number.is_nan() {
        i128::MAX
    } else {
        number.trunc() as i128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Kind, cell: &Cell, expected: Option<i128>) {
        let column = Column {
            name: "f".to_owned(),
            type_name: String::new(),
            cast: String::new(),
            kind,
            digits: 0,
        };
        assert_eq!(read(cell, &column, Dialect::Sqlite), expected, "{cell:?}");
    }

    #[test]
    fn a_count_is_cut_to_a_whole_number_and_what_is_none_is_not_one() {
        let text = |text: &str| Cell::Text(text.to_owned());
        check(Kind::Any, &Cell::Real(2.9), Some(2));
        check(Kind::Real, &text("2.00"), Some(2));
        check(Kind::Real, &text("NaN"), Some(i128::MAX));
        check(Kind::Real, &Cell::Digits("3.99".to_owned()), Some(3));
        check(Kind::Text, &text(" 12 "), Some(12));
        for none in ["", "many", "1.5", "-1", "+1", "1234567890", "1\n"] {
            check(Kind::Text, &text(none), None);
        }
        check(Kind::Whole, &text("2"), None);
        check(Kind::Whole, &Cell::Null, None);
    }
}
