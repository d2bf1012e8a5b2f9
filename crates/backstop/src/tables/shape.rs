//! A table as it was found: which column is which, and how it says when.

use super::catalogue::{Catalogue, Column, Kind};
use super::row::Cell;
use super::{Table, TableError};
use backstop_core::Time;
use backstop_core::sweep::Dialect;
use backstop_core::table::date::{Form, TextForm, read_text};

/// A table that can be worked off.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) dialect: Dialect,
    pub(super) catalogue: Catalogue,
    pub(super) id: Column,
    pub(super) status: Column,
    pub(super) inserted: DateColumn,
    /// How often and when a row failed, where that counts.
    pub(super) failed: Option<FailureColumns>,
}

/// The two columns that a strategy by failures needs.
#[derive(Clone, Debug)]
pub(super) struct FailureColumns {
    pub(super) failures: Column,
    pub(super) last_failure: DateColumn,
    /// Whether its form was said or seen, and is no guess.
    pub(super) is_seen: bool,
}

/// Dates that a table has, to see how they are written.
pub(super) struct Seen {
    pub(super) inserted: Vec<Cell>,
    pub(super) last_failure: Vec<Cell>,
}

/// A column that says when.
#[derive(Clone, Debug)]
pub(super) struct DateColumn {
    pub(super) column: Column,
    pub(super) form: Form,
}

/// The columns of a table by what they are for, found or not.
pub(super) struct Roles<'a> {
    pub(super) id: Option<&'a Column>,
    pub(super) status: Option<&'a Column>,
    pub(super) inserted: Option<&'a Column>,
    pub(super) failures: Option<&'a Column>,
    pub(super) last_failure: Option<&'a Column>,
}

impl<'a> Roles<'a> {
    pub(super) fn of(table: &Table, catalogue: &'a Catalogue) -> Self {
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

impl Shape {
    /// The shape of a table whose rows have these dates.
    pub(super) fn new(table: &Table, catalogue: Catalogue, seen: &Seen) -> Result<Self, TableError> {
        let roles = Roles::of(table, &catalogue);
        let need = |role: &'static str, wanted: &str, column: Option<&Column>| {
            column.cloned().ok_or_else(|| TableError::NoColumn {
                table: table.name().to_owned(),
                role,
                column: wanted.to_owned(),
                there: catalogue.columns.iter().map(|column| column.name.clone()).collect(),
            })
        };
        let names = &table.columns;
        let id = need("id", &names.id, roles.id)?;
        let status = need("status", &names.status, roles.status)?;
        let inserted = need("inserted", &names.inserted, roles.inserted)?;
        let (form, _) = form(table, &inserted, &seen.inserted, None)?;
        let inserted = DateColumn { column: inserted, form };
        let failed = if table.rules.counts_failures() {
            let failures = need("failures", &names.failures, roles.failures)?;
            let last = need("last_failure", &names.last_failure, roles.last_failure)?;
            let (form, is_seen) = self::form(table, &last, &seen.last_failure, Some(inserted.form))?;
            Some(FailureColumns { failures, last_failure: DateColumn { column: last, form }, is_seen })
        } else {
            None
        };
        Ok(Self { dialect: table.source.dialect(), id, status, inserted, failed, catalogue })
    }

    /// The index by which due rows are found without looking at the others, if there is one.
    pub(super) fn has_failure_index(&self) -> bool {
        self.failed.as_ref().is_some_and(|failed| {
            let columns = [
                self.status.name.as_str(),
                failed.failures.name.as_str(),
                failed.last_failure.column.name.as_str(),
            ];
            self.catalogue.index(&columns, 2).is_some()
        })
    }
}

impl DateColumn {
    /// The time that a cell says; `None` if it says none.
    pub(super) fn read(&self, cell: &Cell) -> Option<Time> {
        match (cell, self.form) {
            (Cell::Whole(micros), Form::Native { .. }) => i64::try_from(*micros).ok().map(Time::from_micros),
            (Cell::Whole(number), form) => {
                i64::try_from(*number).ok().and_then(|number| form.read_number(number))
            }
            (Cell::Digits(digits), form) => digits.parse().ok().and_then(|number| form.read_number(number)),
            (Cell::Text(day), Form::Native { .. }) if day.len() == 10 => {
                read_text(&format!("{day} 00:00:00")).map(|(time, _)| time)
            }
            (Cell::Text(text), _) => read_text(text).map(|(time, _)| time),
            _ => None,
        }
    }
}

/// How a column says when: as was said, as its type says, as its values look, or as the rows' other date does; and whether that is
/// known, not guessed.
fn form(
    table: &Table,
    column: &Column,
    seen: &[Cell],
    other: Option<Form>,
) -> Result<(Form, bool), TableError> {
    if column.kind == Kind::Time {
        return Ok((Form::Native { digits: column.digits }, true));
    }
    if let Some(said) = table.dates {
        return Ok((Form::said(said), true));
    }
    let numbers = seen.iter().filter_map(|cell| match cell {
        Cell::Whole(number) => i64::try_from(*number).ok(),
        Cell::Digits(digits) => digits.parse().ok(),
        _ => None,
    });
    // Nothing, written as a number: it says nothing about the others.
    let numbers = Form::of_numbers(numbers.filter(|number| *number > 0));
    let texts = Form::of_texts(seen.iter().filter_map(|cell| match cell {
        Cell::Text(text) => Some(text.as_str()),
        _ => None,
    }));
    let is_number = |form: &Form| form.unit().is_some();
    let is_text = |form: &Form| matches!(form, Form::Text(_));
    let plain = Form::Text(TextForm::PLAIN);
    let (found, guess) = match column.kind {
        Kind::Whole => (numbers, other.filter(is_number).unwrap_or(Form::Seconds)),
        Kind::Text => (texts, other.filter(is_text).unwrap_or(plain)),
        Kind::Any => (texts.or(numbers), other.unwrap_or(plain)),
        Kind::Time | Kind::Bytes | Kind::Other => {
            return Err(TableError::NoDate {
                table: table.name().to_owned(),
                column: column.name.clone(),
                type_name: column.type_name.clone(),
            });
        }
    };
    Ok((found.unwrap_or(guess), found.is_some()))
}
