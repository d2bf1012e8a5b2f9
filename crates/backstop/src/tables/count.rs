//! How often a row failed, as its column says it: the same that the queries take it for.

use super::catalogue::{ColumnKind, TableColumn};
use super::row::SqlValue;
use backstop_core::sweep::SqlDialect;

/// Digits of a count that is text.
const DIGITS_MAX: usize = 9;

/// Whether a column can say how often.
pub(super) fn is_counted(column: &TableColumn) -> bool {
    matches!(
        column.kind,
        ColumnKind::Whole | ColumnKind::Real | ColumnKind::Text | ColumnKind::Any
    )
}

/// The count in a cell, cut to a whole number; `None` if it says none.
pub(super) fn read(cell: &SqlValue, column: &TableColumn, dialect: SqlDialect) -> Option<i128> {
    match cell {
        SqlValue::Whole(number) => Some(*number),
        SqlValue::Real(number) => Some(cut(*number)),
        SqlValue::Digits(digits) => digits.parse().ok().or_else(|| digits.parse().ok().map(cut)),
        SqlValue::Text(text) if column.kind == ColumnKind::Real => text.parse().ok().map(cut),
        // Text among SQLite's whole numbers would be a number if it were one.
        SqlValue::Text(_) if column.kind == ColumnKind::Whole && dialect == SqlDialect::Sqlite => {
            None
        }
        SqlValue::Text(text) => {
            let digits = text.trim_matches(' ');
            let is_count =
                digits.len() <= DIGITS_MAX && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_count)
        }
        SqlValue::Null | SqlValue::Bytes(_) | SqlValue::Broken(_) | SqlValue::Json(_) => None,
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

    fn check(kind: ColumnKind, cell: &SqlValue, expected: Option<i128>) {
        let column = TableColumn {
            name: "f".to_owned(),
            type_name: String::new(),
            cast: String::new(),
            kind,
            digits: 0,
        };
        assert_eq!(
            read(cell, &column, SqlDialect::Sqlite),
            expected,
            "{cell:?}"
        );
    }

    #[test]
    fn a_count_is_cut_to_a_whole_number_and_what_is_none_is_not_one() {
        let text = |text: &str| SqlValue::Text(text.to_owned());
        check(ColumnKind::Any, &SqlValue::Real(2.9), Some(2));
        check(ColumnKind::Real, &text("2.00"), Some(2));
        check(ColumnKind::Real, &text("NaN"), Some(i128::MAX));
        check(
            ColumnKind::Real,
            &SqlValue::Digits("3.99".to_owned()),
            Some(3),
        );
        check(ColumnKind::Text, &text(" 12 "), Some(12));
        for none in ["", "many", "1.5", "-1", "+1", "1234567890", "1\n"] {
            check(ColumnKind::Text, &text(none), None);
        }
        check(ColumnKind::Whole, &text("2"), None);
        check(ColumnKind::Whole, &SqlValue::Null, None);
    }
}
