//! A table as it was found: which column is which, and how it says when.

use super::catalogue::{ColumnKind, TableCatalogue, TableColumn};
use super::count;
use super::row::{RowKey, SqlValue};
use super::sql::RowPlace;
use super::{Table, TableError};
use backstop_core::Time;
use backstop_core::sweep::SqlDialect;
use backstop_core::table::date::{DateForm, TextDateForm, read_text};

/// A table that can be worked off.
#[derive(Clone, Debug)]
pub(super) struct TableSchema {
    pub(super) dialect: SqlDialect,
    pub(super) catalogue: TableCatalogue,
    pub(super) id: TableColumn,
    pub(super) status: TableColumn,
    pub(super) inserted: DateColumn,
    /// How often and when a row failed, where that counts.
    pub(super) failed: Option<FailureColumns>,
}

/// The two columns that a strategy by failures needs.
#[derive(Clone, Debug)]
pub(super) struct FailureColumns {
    pub(super) failures: TableColumn,
    pub(super) last_failure: DateColumn,
    /// Whether its form was said or seen, and is no guess.
    pub(super) is_seen: bool,
}

/// Dates that a table has, to see how they are written.
pub(super) struct DateSamples {
    pub(super) inserted: Vec<SqlValue>,
    pub(super) last_failure: Vec<SqlValue>,
}

/// A column that says when.
#[derive(Clone, Debug)]
pub(super) struct DateColumn {
    pub(super) column: TableColumn,
    pub(super) form: DateForm,
}

/// The columns of a table by what they are for, found or not.
pub(super) struct ColumnRoles<'a> {
    pub(super) id: Option<&'a TableColumn>,
    pub(super) status: Option<&'a TableColumn>,
    pub(super) inserted: Option<&'a TableColumn>,
    pub(super) failures: Option<&'a TableColumn>,
    pub(super) last_failure: Option<&'a TableColumn>,
}

impl<'a> ColumnRoles<'a> {
    pub(super) fn of(table: &Table, catalogue: &'a TableCatalogue) -> Self {
        let columns = &table.columns;
        Self {
            id: catalogue.column(&columns.id),
            status: catalogue.column(&columns.status),
            inserted: catalogue.column(&columns.inserted),
            failures: catalogue.column(&columns.failures),
            last_failure: catalogue.column(&columns.last_failure),
        }
    }
}

impl TableSchema {
    /// The shape of a table whose rows have these dates.
    pub(super) fn new(
        table: &Table,
        catalogue: TableCatalogue,
        seen: &DateSamples,
    ) -> Result<Self, TableError> {
        let roles = ColumnRoles::of(table, &catalogue);
        let need = |role: &'static str, wanted: &str, column: Option<&TableColumn>| {
            column.cloned().ok_or_else(|| TableError::NoColumn {
                table: table.name().to_owned(),
                role,
                column: wanted.to_owned(),
                existing: catalogue
                    .columns
                    .iter()
                    .map(|column| column.name.clone())
                    .collect(),
            })
        };
        let names = &table.columns;
        let id = need("id", &names.id, roles.id)?;
        if is_rounded(&id) {
            return Err(TableError::NoKey {
                table: table.name().to_owned(),
                column: id.name,
                type_name: id.type_name,
            });
        }
        let status = need("status", &names.status, roles.status)?;
        let inserted = need("inserted", &names.inserted, roles.inserted)?;
        let (form, _) = form(table, &inserted, &seen.inserted, None)?;
        let inserted = DateColumn {
            column: inserted,
            form,
        };
        let failed = if table.rules.counts_failures() {
            let failures = need("failures", &names.failures, roles.failures)?;
            if !count::is_counted(&failures) {
                return Err(TableError::NoCount {
                    table: table.name().to_owned(),
                    column: failures.name,
                    type_name: failures.type_name,
                });
            }
            let last = need("last_failure", &names.last_failure, roles.last_failure)?;
            let (form, is_seen) =
                self::form(table, &last, &seen.last_failure, Some(inserted.form))?;
            Some(FailureColumns {
                failures,
                last_failure: DateColumn { column: last, form },
                is_seen,
            })
        } else {
            None
        };
        Ok(Self {
            dialect: table.source.dialect(),
            id,
            status,
            inserted,
            failed,
            catalogue,
        })
    }

    /// Its dates are in more than one form, wherever they are text.
    pub(super) fn set_mixed(&mut self) {
        self.inserted.set_mixed();
        if let Some(failed) = &mut self.failed {
            failed.last_failure.set_mixed();
        }
    }

    /// Whether a place was noted down in the order that rows are in.
    pub(super) fn has_place(&self, place: &RowPlace) -> bool {
        let is_key = self.id.kind != ColumnKind::Whole || matches!(place.key, RowKey::Whole(_));
        is_key && self.inserted.has_place(&place.inserted)
    }

    /// Whether an index leads to open rows, newest first.
    pub(super) fn has_order_index(&self) -> bool {
        let columns = [
            self.status.name.as_str(),
            self.inserted.column.name.as_str(),
        ];
        self.catalogue.index(&columns, 1).is_some()
    }

    /// The index by which due rows are found without looking at the others, if there is one. It
    /// leads nowhere where failures are no whole numbers.
    pub(super) fn has_failure_index(&self) -> bool {
        let counted = self
            .failed
            .as_ref()
            .filter(|failed| failed.failures.kind == ColumnKind::Whole);
        counted.is_some_and(|failed| {
            let columns = [
                self.status.name.as_str(),
                failed.failures.name.as_str(),
                failed.last_failure.column.name.as_str(),
            ];
            self.catalogue.index(&columns, 2).is_some()
        })
    }
}

/// What a column of dates says in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DateReading {
    At(Time),
    Nothing,
    /// Something that is no date.
    Unreadable,
}

impl DateReading {
    pub(super) const fn time(self) -> Option<Time> {
        match self {
            Self::At(time) => Some(time),
            Self::Nothing | Self::Unreadable => None,
        }
    }
}

impl DateColumn {
    /// Whether its dates are text that does not sort as times do.
    pub(super) const fn is_mixed(&self) -> bool {
        matches!(
            self.form,
            DateForm::Text(TextDateForm {
                is_uniform: false,
                ..
            })
        )
    }

    /// The same, with text that does not sort if there is any.
    fn set_mixed(&mut self) {
        if let DateForm::Text(form) = &mut self.form {
            form.is_uniform = false;
        }
    }

    /// What a cell says: the same that the queries take it for.
    pub(super) fn read(&self, cell: &SqlValue) -> DateReading {
        let read = match (cell, self.form) {
            (SqlValue::Null, _) => return DateReading::Nothing,
            (SqlValue::Whole(micros), DateForm::Native { .. }) => {
                i64::try_from(*micros).ok().map(Time::from_micros)
            }
            (SqlValue::Whole(number), form) => i64::try_from(*number)
                .ok()
                .and_then(|number| form.read_number(number)),
            (SqlValue::Text(text), DateForm::Native { .. }) => Some(read_native(text)),
            (SqlValue::Text(text), DateForm::Text(_)) => read_text(text).map(|(time, _)| time),
            _ => None,
        };
        read.map_or(DateReading::Unreadable, DateReading::At)
    }

    /// The time of a place in the order of rows, if it says one.
    pub(super) fn time_at(&self, inserted: &RowKey) -> Option<Time> {
        let number = |number: i64| {
            if self.is_mixed() {
                Some(Time::from_micros(number))
            } else {
                self.form.read_number(number)
            }
        };
        match inserted {
            RowKey::Whole(whole) => number(i64::try_from(*whole).ok()?),
            RowKey::Text(text) if self.form.unit().is_some() => number(text.parse().ok()?),
            RowKey::Text(text) => read_text(text).map(|(time, _)| time),
            RowKey::Bytes(_) => None,
        }
    }

    /// Whether a place in the order of rows was noted down while they were in the order of this.
    pub(super) fn has_place(&self, inserted: &RowKey) -> bool {
        let is_number = self.is_mixed() || self.form.unit().is_some();
        match inserted {
            RowKey::Whole(_) => is_number,
            // PostgreSQL's columns are read as text, and compared as what they are.
            RowKey::Text(text) if is_number => !self.is_mixed() && text.parse::<f64>().is_ok(),
            RowKey::Text(_) => true,
            RowKey::Bytes(_) => false,
        }
    }
}

/// A date as MySQL writes it: also one without a month or a day, which it has before the first of
/// them, and one of nothing, which it has before all others.
fn read_native(text: &str) -> Time {
    const BEFORE_ALL: Time = Time::from_micros(-62_200_000_000_000_000);
    let read = read_text(text).or_else(|| read_text(&text.replace("-00", "-01")));
    read.map_or(BEFORE_ALL, |(time, _)| time)
}

/// Whether a column rounds what is written to it: two rows could have one key, and a key might not
/// be found again.
fn is_rounded(column: &TableColumn) -> bool {
    let name = column.type_name.to_ascii_lowercase();
    column.kind == ColumnKind::Real
        && ["float", "double", "real"]
            .iter()
            .any(|type_name| name.starts_with(type_name))
}

/// How a column says when: as was said, as its type says, as its values look, or as the rows' other
/// date does; and whether that is known, not guessed.
fn form(
    table: &Table,
    column: &TableColumn,
    seen: &[SqlValue],
    other: Option<DateForm>,
) -> Result<(DateForm, bool), TableError> {
    if column.kind == ColumnKind::Time {
        return Ok((
            DateForm::Native {
                digits: column.digits,
            },
            true,
        ));
    }
    let wrong = || TableError::NoDate {
        table: table.name().to_owned(),
        column: column.name.clone(),
        type_name: column.type_name.clone(),
    };
    if let Some(declared) = table.dates.map(DateForm::declared_format) {
        let fits = match column.kind {
            ColumnKind::Whole => declared.unit().is_some(),
            ColumnKind::Text => declared.unit().is_none(),
            kind => kind == ColumnKind::Any,
        };
        return if fits {
            Ok((declared, true))
        } else {
            Err(wrong())
        };
    }
    let numbers = seen.iter().filter_map(|cell| match cell {
        SqlValue::Whole(number) => i64::try_from(*number).ok(),
        SqlValue::Digits(digits) => digits.parse().ok(),
        _ => None,
    });
    // Nothing, written as a number: it says nothing about the others.
    let numbers = DateForm::of_numbers(numbers.filter(|number| *number > 0));
    let texts = DateForm::of_texts(seen.iter().filter_map(|cell| match cell {
        SqlValue::Text(text) => Some(text.as_str()),
        _ => None,
    }));
    let is_number = |form: &DateForm| form.unit().is_some();
    let is_text = |form: &DateForm| matches!(form, DateForm::Text(_));
    let plain = DateForm::Text(TextDateForm::PLAIN);
    let (found, guess) = match column.kind {
        ColumnKind::Whole => (
            numbers,
            other.filter(is_number).unwrap_or(DateForm::Seconds),
        ),
        ColumnKind::Text => (texts, other.filter(is_text).unwrap_or(plain)),
        ColumnKind::Any => (texts.or(numbers), other.unwrap_or(plain)),
        ColumnKind::Time | ColumnKind::Real | ColumnKind::Bytes | ColumnKind::Other => {
            return Err(wrong());
        }
    };
    Ok((found.unwrap_or(guess), found.is_some()))
}
