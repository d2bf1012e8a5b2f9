//! The words that stand in the status column, and whether they are those of the configuration.

use super::StatusValues;
use super::row::SqlValue;
use backstop_core::limits::TABLE_WORDS_MAX;
use backstop_core::sweep::SqlDialect;
use std::cmp::Reverse;

/// A word of the status column.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StatusWord {
    /// The word; `None` of rows that have none.
    pub word: Option<String>,
    /// How many rows have it.
    pub rows: u64,
    /// How many of those have no date of insertion.
    pub undated: u64,
}

/// What stands in the status column: the words of the configuration and the most frequent others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct StatusWords {
    /// At most so many as are told.
    pub words: Vec<StatusWord>,
    pub is_cut: bool,
    /// Rows that are new or in error: those that are worked off.
    pub open: u64,
    /// Of these, rows without a date of insertion.
    pub open_undated: u64,
    pub succeeded: u64,
}

/// Which state of a table a word is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RowState {
    New,
    Error,
    Success,
    Other,
}

impl RowState {
    /// As the queries compare: only MySQL takes capitals for small letters.
    pub(super) fn of(word: &str, states: &StatusValues, dialect: SqlDialect) -> Self {
        let folds = dialect == SqlDialect::Mysql;
        let is = |state: &String| state == word || (folds && state.eq_ignore_ascii_case(word));
        match () {
            () if is(&states.new) => Self::New,
            () if is(&states.error) => Self::Error,
            () if is(&states.success) => Self::Success,
            () => Self::Other,
        }
    }
}

/// The word, the rows and the undated rows of each line that counts words.
pub(super) fn parse_counts(rows: &[Vec<SqlValue>]) -> impl Iterator<Item = StatusWord> {
    let number = |cell: Option<&SqlValue>| match cell {
        Some(SqlValue::Whole(number)) => u64::try_from(*number).unwrap_or_default(),
        _ => 0,
    };
    rows.iter().map(move |row| StatusWord {
        word: match row.first() {
            Some(SqlValue::Text(word)) => Some(word.trim_end().to_owned()),
            Some(SqlValue::Whole(word)) => Some(word.to_string()),
            Some(SqlValue::Null) | None => None,
            Some(_) => Some(String::new()),
        },
        rows: number(row.get(1)),
        undated: number(row.get(2)),
    })
}

impl StatusWords {
    /// Of rows that begin with the words of the configuration: where there are more words than are
    /// listed, all open rows are counted nevertheless.
    pub(super) fn new(rows: &[Vec<SqlValue>], states: &StatusValues, dialect: SqlDialect) -> Self {
        let mut found = Self {
            is_cut: rows.len() > TABLE_WORDS_MAX,
            ..Self::default()
        };
        for word in parse_counts(rows).take(TABLE_WORDS_MAX) {
            match RowState::of(word.word.as_deref().unwrap_or_default(), states, dialect) {
                RowState::New | RowState::Error => {
                    found.open += word.rows;
                    found.open_undated += word.undated;
                }
                RowState::Success => found.succeeded += word.rows,
                RowState::Other => {}
            }
            found.words.push(word);
        }
        found.words.sort_by_key(|word| Reverse(word.rows));
        found
    }

    /// Whether there are rows, and no word of them is one of the configuration.
    pub fn are_all_unknown(&self) -> bool {
        !self.words.is_empty() && self.open + self.succeeded == 0
    }

    /// Whether there are rows, and none of them is one to work off.
    pub fn has_nothing_open(&self) -> bool {
        !self.words.is_empty() && self.open == 0
    }

    /// The words in a sentence; `None` if there are no rows.
    pub(super) fn describe(&self, states: &StatusValues) -> Option<String> {
        let (first, others) = self.words.split_first()?;
        let word = |word: &StatusWord| word.word.clone().unwrap_or_else(|| "NULL".to_owned());
        let rows = if first.rows == 1 {
            "row has"
        } else {
            "rows have"
        };
        let others: Vec<String> = others
            .iter()
            .map(|other| format!(", {} {}", other.rows, word(other)))
            .collect();
        let others = others.concat();
        let cut = if self.is_cut {
            ", and there are more words"
        } else {
            ""
        };
        let counts = format!(
            "{} {rows} the status {}{others}{cut}",
            first.rows,
            word(first)
        );
        let StatusValues {
            new,
            error,
            success,
        } = states;
        let verdict = if self.are_all_unknown() {
            format!(": none is {new}, {error} or {success}; see `states`")
        } else if self.has_nothing_open() {
            format!(": none is {new} or {error}")
        } else {
            String::new()
        };
        let undated: u64 = self.words.iter().map(|word| word.undated).sum();
        let undated = if undated > 0 {
            format!("; {undated} have no date")
        } else {
            String::new()
        };
        Some(format!("{counts}{verdict}{undated}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(word: &str, rows: i128, undated: i128) -> Vec<SqlValue> {
        vec![
            SqlValue::Text(word.to_owned()),
            SqlValue::Whole(rows),
            SqlValue::Whole(undated),
        ]
    }

    fn describe_rows(rows: &[Vec<SqlValue>], dialect: SqlDialect) -> (StatusWords, String) {
        let states = StatusValues::default();
        let words = StatusWords::new(rows, &states, dialect);
        let text = words.describe(&states).unwrap_or_default();
        (words, text)
    }

    #[test]
    fn words_that_nobody_named_are_listed_with_their_rows() {
        let (words, text) = describe_rows(
            &[line("open", 800, 800), line("paid", 200, 200)],
            SqlDialect::Sqlite,
        );
        assert!(words.are_all_unknown());
        let expected = "800 rows have the status open, 200 paid: none is NEW, ERROR or SUCCESS; see `states`; \
                        1000 have no date";
        assert_eq!(text, expected);
    }

    #[test]
    fn capitals_count_as_the_database_compares_them() {
        let lines = [line("new", 3, 1)];
        assert!(
            describe_rows(&lines, SqlDialect::Postgres)
                .0
                .are_all_unknown()
        );
        let (words, text) = describe_rows(&lines, SqlDialect::Mysql);
        assert_eq!((words.open, words.open_undated), (3, 1));
        assert_eq!(text, "3 rows have the status new; 1 have no date");
    }

    #[test]
    fn a_table_without_rows_is_not_refused() {
        assert!(!describe_rows(&[], SqlDialect::Sqlite).0.are_all_unknown());
    }

    #[test]
    fn more_words_than_are_listed_hide_no_open_rows() {
        let others = (0..=TABLE_WORDS_MAX).map(|n| line(&format!("w{n}"), 5, 0));
        let (words, text) = describe_rows(&others.clone().collect::<Vec<_>>(), SqlDialect::Sqlite);
        assert!(
            words.are_all_unknown() && words.words.len() == TABLE_WORDS_MAX,
            "{words:?}"
        );
        assert!(
            text.contains("and there are more words: none is NEW, ERROR or SUCCESS"),
            "{text}"
        );
        let rows: Vec<_> = [line("ERROR", 1, 1)].into_iter().chain(others).collect();
        let (words, text) = describe_rows(&rows, SqlDialect::Sqlite);
        assert_eq!((words.open, words.open_undated), (1, 1));
        assert!(
            !words.has_nothing_open() && !text.contains("none is"),
            "{text}"
        );
        assert!(text.starts_with("5 rows have the status w0"), "{text}");
    }
}
