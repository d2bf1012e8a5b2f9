//! Comparing the dates of a column with a time, in whatever form the column has them.
//!
//! A number or a native type is compared as it is. Text is compared by what it says: as microseconds on SQLite, as text of one form on the
//! others. On SQLite there is a second, coarser comparison beside it, of the text as it stands, that an index can answer.

use super::Sql;
use crate::tables::link::Param;
use crate::tables::shape::DateColumn;
use backstop_core::sweep::Dialect;
use backstop_core::table::date::{Form, TextForm, canonical};
use backstop_core::{Span, Time};

/// Whether dates are text that does not sort as times do.
const fn is_mixed(column: &DateColumn) -> bool {
    matches!(column.form, Form::Text(TextForm { is_uniform: false, .. }))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Is {
    AtOrAfter,
    After,
    Before,
    AtOrBefore,
}

impl Is {
    const fn sign(self) -> &'static str {
        match self {
            Self::AtOrAfter => " >= ",
            Self::After => " > ",
            Self::Before => " < ",
            Self::AtOrBefore => " <= ",
        }
    }

    const fn is_lower_bound(self) -> bool {
        matches!(self, Self::AtOrAfter | Self::After)
    }
}

impl Sql {
    pub(super) fn at_or_after(&mut self, column: &DateColumn, time: Time) -> &mut Self {
        self.compare(column, Is::AtOrAfter, time)
    }

    pub(super) fn after(&mut self, column: &DateColumn, time: Time) -> &mut Self {
        self.compare(column, Is::After, time)
    }

    pub(super) fn before(&mut self, column: &DateColumn, time: Time) -> &mut Self {
        self.compare(column, Is::Before, time)
    }

    pub(super) fn at_or_before(&mut self, column: &DateColumn, time: Time) -> &mut Self {
        self.compare(column, Is::AtOrBefore, time)
    }

    fn compare(&mut self, column: &DateColumn, is: Is, time: Time) -> &mut Self {
        if let (Form::Text(form), Dialect::Sqlite) = (column.form, self.dialect) {
            self.coarsely(column, form, is, time).say(" AND ");
        }
        if column.form.unit().is_some() {
            return self.name(&column.column).say(is.sign()).number_bound(column, is, time);
        }
        self.comparable(column).say(is.sign()).bound(column, time)
    }

    /// The column on one side of a comparison.
    pub(super) fn comparable(&mut self, column: &DateColumn) -> &mut Self {
        let Form::Text(_) = column.form else { return self.name(&column.column) };
        let name = super::quoted(self.dialect, &column.column.name);
        match self.dialect {
            // The second without its part and with its zone, and the part: no date function has more than three digits of it.
            Dialect::Sqlite => self.say(&format!(
                "(unixepoch(substr({name}, 1, 19) || ltrim(substr({name}, 20), '.0123456789')) * 1000000 \
                 + CAST(round(CAST('0' || substr({name}, 20, 7) AS REAL) * 1000000) AS INTEGER))"
            )),
            Dialect::Postgres => self.say(&format!(
                "((replace(left({name}, 19), 'T', ' ') || '.' \
                 || rpad(coalesce(substring({name} from '^.{{19}}\\.([0-9]{{1,6}})'), ''), 6, '0')) COLLATE \"C\")"
            )),
            Dialect::Mysql => self.say(&format!(
                "CONCAT(REPLACE(LEFT({name}, 19), 'T', ' '), '.', \
                 RPAD(IF(SUBSTRING({name}, 20, 1) = '.', REGEXP_SUBSTR(SUBSTRING({name}, 21, 6), '^[0-9]+'), ''), 6, '0'))"
            )),
        }
    }

    /// The column as rows are ordered by it: as it stands, where that is the order of time.
    pub(super) fn ordinal(&mut self, column: &DateColumn) -> &mut Self {
        if is_mixed(column) { self.comparable(column) } else { self.name(&column.column) }
    }

    /// The same as it can be read, to come back to it.
    pub(super) fn read_ordinal(&mut self, column: &DateColumn) -> &mut Self {
        if is_mixed(column) { self.comparable(column) } else { self.raw(&column.column) }
    }

    /// A place in that order, as it was read.
    pub(super) fn place(&mut self, param: Param, column: &DateColumn) -> &mut Self {
        if is_mixed(column) { self.cast(param, "text") } else { self.value(param, &column.column) }
    }

    /// The time on the other side.
    pub(super) fn bound(&mut self, column: &DateColumn, time: Time) -> &mut Self {
        match (column.form, self.dialect) {
            (Form::Text(_), Dialect::Sqlite) => self.cast(Param::Whole(time.as_micros().into()), "bigint"),
            (Form::Text(_), _) => self.cast(Param::Text(canonical(time)), "text"),
            (Form::Native { .. }, _) => self.value_of_date(Param::Text(canonical(time)), column),
            // A group of rows with the same wait: not after this.
            _ => self.number_bound(column, Is::AtOrBefore, time),
        }
    }

    fn number_bound(&mut self, column: &DateColumn, is: Is, time: Time) -> &mut Self {
        let form = column.form;
        let number = match is {
            Is::AtOrAfter | Is::Before => form.ceil(time),
            Is::After | Is::AtOrBefore => form.floor(time),
        };
        self.value(Param::Whole(number.into()), &column.column)
    }

    /// A date as a parameter of the column's own type.
    pub(super) fn value_of_date(&mut self, param: Param, column: &DateColumn) -> &mut Self {
        match (self.dialect, column.form, param) {
            // In UTC, whatever zone the session is in.
            (Dialect::Postgres, Form::Native { .. }, Param::Text(text)) => {
                self.value(Param::Text(format!("{text}+00")), &column.column)
            }
            (Dialect::Mysql, Form::Native { .. }, param) => {
                self.say("CAST(").value(param, &column.column).say(" AS DATETIME(6))")
            }
            (_, _, param) => self.value(param, &column.column),
        }
    }

    /// A column of dates as it can be read.
    pub(super) fn read_date(&mut self, column: &DateColumn) -> &mut Self {
        if self.dialect == Dialect::Postgres && matches!(column.form, Form::Native { .. }) {
            let name = super::quoted(self.dialect, &column.column.name);
            return self.say(&format!(
                "CASE WHEN isfinite({name}) THEN (extract(epoch FROM {name}) * 1000000)::bigint END"
            ));
        }
        self.key(&column.column)
    }

    /// No row that the exact comparison takes is left out by this one: to the second where all texts look alike, to the day otherwise.
    fn coarsely(&mut self, column: &DateColumn, form: TextForm, is: Is, time: Time) -> &mut Self {
        let text = match (form.is_uniform, is.is_lower_bound()) {
            (true, true) => form.second(time),
            // Behind everything that can follow a second.
            (true, false) => format!("{}~", form.second(time)),
            // A zone moves a date by less than a day.
            (false, true) => TextForm::day(time.before(Span::days(1))),
            (false, false) => TextForm::day(time.after(Span::days(2))),
        };
        let sign = if is.is_lower_bound() { " >= " } else { " <= " };
        self.name(&column.column).say(sign).value(Param::Text(text), &column.column)
    }
}
