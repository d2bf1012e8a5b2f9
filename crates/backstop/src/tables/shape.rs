//! A table as it was found: which column is which, and how it says when.

use super::catalogue::{Catalogue, Column, Kind};
use super::count;
use super::row::{Cell, Key};
use super::sql::Place;
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
    pub(super) fn new(
        table: &Table,
        catalogue: Catalogue,
        seen: &Seen,
    ) -> Result<Self, TableError> {
        let roles = Roles::of(table, &catalogue);
        let need = |role: &'static str, wanted: &str, column: Option<&Column>| {
            column.cloned().ok_or_else(|| TableError::NoColumn {
                table: table.name().to_owned(),
                role,
                column: wanted.to_owned(),
                there: catalogue
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
    pub(super) fn mixed(&mut self) {
        self.inserted.mixed();
        if let Some(failed) = &mut self.failed {
            failed.last_failure.mixed();
        }
    }

    /// Whether a place was noted down in the order that rows are in.
    pub(super) fn has_place(&self, place: &Place) -> bool {
        let is_key = self.id.kind != Kind::Whole || matches!(place.key, Key::Whole(_));
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
            .filter(|failed| failed.failures.kind == Kind::Whole);
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
pub(super) enum Read {
    /// That it was then.
    At(Time),
    /// Nothing.
    Nothing,
    /// Something that is no date.
    Unreadable,
}

impl Read {
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
            Form::Text(TextForm {
                is_uniform: false,
                ..
            })
        )
    }

    /// The same, with text that does not sort if there is any.
    fn mixed(&mut self) {
        if let Form::Text(form) = &mut self.form {
            form.is_uniform = false;
        }
    }

    /// What a cell says: the same that the queries take it for.
    pub(super) fn read(&self, cell: &Cell) -> Read {
        let read = match (cell, self.form) {
            (Cell::Null, _) => return Read::Nothing,
            (Cell::Whole(micros), Form::Native { .. }) => {
                i64::try_from(*micros).ok().map(Time::from_micros)
            }
            (Cell::Whole(number), form) => i64::try_from(*number)
                .ok()
                .and_then(|number| form.read_number(number)),
            (Cell::Text(text), Form::Native { .. }) => Some(read_native(text)),
            (Cell::Text(text), Form::Text(_)) => read_text(text).map(|(time, _)| time),
            _ => None,
        };
        read.map_or(Read::Unreadable, Read::At)
    }

    /// The time of a place in the order of rows, if it says one.
    pub(super) fn time_at(&self, inserted: &Key) -> Option<Time> {
        let number = |number: i64| {
            if self.is_mixed() {
                Some(Time::from_micros(number))
            } else {
                self.form.read_number(number)
            }
        };
        match inserted {
            Key::Whole(whole) => number(i64::try_from(*whole).ok()?),
            Key::Text(text) if self.form.unit().is_some() => number(text.parse().ok()?),
            Key::Text(text) => read_text(text).map(|(time, _)| time),
            Key::Bytes(_) => None,
        }
    }

    /// Whether a place in the order of rows was noted down while they were in the order of this.
    pub(super) fn has_place(&self, inserted: &Key) -> bool {
        let is_number = self.is_mixed() || self.form.unit().is_some();
        match inserted {
            Key::Whole(_) => is_number,
            // PostgreSQL's columns are read as text, and compared as what they are.
            Key::Text(text) if is_number => !self.is_mixed() && text.parse::<f64>().is_ok(),
            Key::Text(_) => true,
            Key::Bytes(_) => false,
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
fn is_rounded(column: &Column) -> bool {
    let name = column.type_name.to_ascii_lowercase();
    column.kind == Kind::Real
        && ["float", "double", "real"]
            .iter()
            .any(|type_name| name.starts_with(type_name))
}

/// How a column says when: as was said, as its type says, as its values look, or as the rows' other
/// date does; and whether that is known, not guessed.
fn form(
    table: &Table,
    column: &Column,
    seen: &[Cell],
    other: Option<Form>,
) -> Result<(Form, bool), TableError> {
    if column.kind == Kind::Time {
        return Ok((
            Form::Native {
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
    if let Some(said) = table.dates.map(Form::said) {
        let fits = match column.kind {
            Kind::Whole => said.unit().is_some(),
            Kind::Text => said.unit().is_none(),
            kind => kind == Kind::Any,
        };
        return if fits { Ok((said, true)) } else { Err(wrong()) };
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
        Kind::Time | Kind::Real | Kind::Bytes | Kind::Other => return Err(wrong()),
    };
    Ok((found.unwrap_or(guess), found.is_some()))
}
