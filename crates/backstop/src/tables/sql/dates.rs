//! Comparing the dates of a column with a time, in whatever form the column has them.
//!
//! A number or a native type is compared as it is. Text is compared by what it says, in
//! microseconds, and says nothing where [`backstop_core::table::date`] reads no date: then no
//! comparison holds. On SQLite there is a second, coarser comparison beside it, of the text as it
//! stands, that an index can answer.

use super::SqlBuilder;
use crate::tables::link::SqlParam;
use crate::tables::schema::DateColumn;
use backstop_core::sweep::SqlDialect;
use backstop_core::table::date::{DateForm, TextDateForm, TextZone, canonical};
use backstop_core::{Span, Time};

/// A day that there is, from the year 1 on.
const DAY: &str = "(?!0000)([0-9]{4}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)\
     |([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)";
/// What may stand behind it. Nothing follows, not even the end of a line.
const CLOCK: &str = "([ T]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?\
     (Z|[+-](0[0-9]|1[0-4])(:[0-5][0-9])?)?)?(?![[:space:]])";

#[derive(Clone, Copy, PartialEq, Eq)]
enum DateComparison {
    AtOrAfter,
    After,
    Before,
    AtOrBefore,
}

impl DateComparison {
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

impl SqlBuilder {
    pub(super) fn at_or_after(&mut self, column: &DateColumn, time: Time) -> &mut Self {
        self.compare(column, DateComparison::AtOrAfter, time)
    }

    pub(super) fn after(&mut self, column: &DateColumn, time: Time) -> &mut Self {
        self.compare(column, DateComparison::After, time)
    }

    pub(super) fn before(&mut self, column: &DateColumn, time: Time) -> &mut Self {
        self.compare(column, DateComparison::Before, time)
    }

    pub(super) fn at_or_before(&mut self, column: &DateColumn, time: Time) -> &mut Self {
        self.compare(column, DateComparison::AtOrBefore, time)
    }

    fn compare(&mut self, column: &DateColumn, is: DateComparison, time: Time) -> &mut Self {
        if let (DateForm::Text(form), SqlDialect::Sqlite) = (column.form, self.dialect) {
            self.compare_coarsely(column, form, is, time).push(" AND ");
        }
        if column.form.unit().is_none() {
            return self.comparable(column).push(is.sign()).bound(column, time);
        }
        self.name(&column.column)
            .push(is.sign())
            .number_bound(column, is, time);
        if self.dialect == SqlDialect::Sqlite {
            // Whatever is no number is after all numbers there.
            self.push(" AND ").readable(column);
        }
        self
    }

    /// Whether the column says when.
    pub(super) fn readable(&mut self, column: &DateColumn) -> &mut Self {
        if column.form.unit().is_some() && self.dialect == SqlDialect::Sqlite {
            return self
                .push("typeof(")
                .name(&column.column)
                .push(") = 'integer'");
        }
        self.comparable(column).push(" IS NOT NULL")
    }

    /// The column on one side of a comparison; nothing where it says nothing.
    pub(super) fn comparable(&mut self, column: &DateColumn) -> &mut Self {
        let name = super::quoted(self.dialect, &column.column.name);
        match (column.form, self.dialect) {
            (DateForm::Text(_), SqlDialect::Sqlite) => self.push(&sqlite_micros(&name)),
            (DateForm::Text(_), SqlDialect::Postgres) => self.push(&postgres_micros(&name)),
            (DateForm::Text(_), SqlDialect::Mysql) => self.push(&mysql_micros(&name)),
            (form, SqlDialect::Sqlite) if form.unit().is_some() => self.push(&format!(
                "CASE WHEN typeof({name}) = 'integer' THEN {name} END"
            )),
            _ => self.push(&name),
        }
    }

    /// The column as rows are ordered by it: as it stands, where that is the order of time.
    pub(super) fn ordinal(&mut self, column: &DateColumn) -> &mut Self {
        if column.is_mixed() {
            self.comparable(column)
        } else {
            self.name(&column.column)
        }
    }

    /// The same as it can be read, to come back to it.
    pub(super) fn read_ordinal(&mut self, column: &DateColumn) -> &mut Self {
        if column.is_mixed() {
            self.comparable(column)
        } else {
            self.raw(&column.column)
        }
    }

    /// A place in that order, as it was read.
    pub(super) fn place(&mut self, param: SqlParam, column: &DateColumn) -> &mut Self {
        if column.is_mixed() {
            self.cast(param, "bigint")
        } else {
            self.value(param, &column.column)
        }
    }

    /// The time on the other side.
    pub(super) fn bound(&mut self, column: &DateColumn, time: Time) -> &mut Self {
        match column.form {
            DateForm::Text(_) => self.cast(SqlParam::Whole(time.as_micros().into()), "bigint"),
            DateForm::Native { .. } => self.value_of_date(SqlParam::Text(canonical(time)), column),
            // A group of rows with the same wait: not after this.
            _ => self.number_bound(column, DateComparison::AtOrBefore, time),
        }
    }

    fn number_bound(&mut self, column: &DateColumn, is: DateComparison, time: Time) -> &mut Self {
        let form = column.form;
        let number = match is {
            DateComparison::AtOrAfter | DateComparison::Before => form.ceil(time),
            DateComparison::After | DateComparison::AtOrBefore => form.floor(time),
        };
        self.value(SqlParam::Whole(number.into()), &column.column)
    }

    /// A date as a parameter of the column's own type.
    pub(super) fn value_of_date(&mut self, param: SqlParam, column: &DateColumn) -> &mut Self {
        match (self.dialect, column.form, param) {
            // In UTC, whatever zone the session is in.
            (SqlDialect::Postgres, DateForm::Native { .. }, SqlParam::Text(text)) => {
                self.value(SqlParam::Text(format!("{text}+00")), &column.column)
            }
            (SqlDialect::Mysql, DateForm::Native { .. }, param) => self
                .push("CAST(")
                .value(param, &column.column)
                .push(" AS DATETIME(6))"),
            (_, _, param) => self.value(param, &column.column),
        }
    }

    /// A column of dates as it can be read.
    pub(super) fn read_date(&mut self, column: &DateColumn) -> &mut Self {
        if self.dialect == SqlDialect::Postgres && matches!(column.form, DateForm::Native { .. }) {
            let name = super::quoted(self.dialect, &column.column.name);
            return self.push(&epoch_micros(&name));
        }
        self.key(&column.column)
    }

    /// The first date of a group, as it can be read.
    pub(super) fn read_first(&mut self, column: &DateColumn) -> &mut Self {
        let name = super::quoted(self.dialect, &column.column.name);
        match (column.form, self.dialect) {
            (DateForm::Text(_), _) => self.push("min(").comparable(column).push(")"),
            (DateForm::Native { .. }, SqlDialect::Postgres) => {
                self.push(&epoch_micros(&format!("min({name})")))
            }
            _ => self.push(&format!("min({name})")),
        }
    }

    /// Whether a text that says when is in the form of the column, so that it sorts with the
    /// others.
    pub(super) fn in_form(&mut self, column: &DateColumn, form: TextDateForm) -> &mut Self {
        let name = super::quoted(self.dialect, &column.column.name);
        let separator = form.separator;
        // Not `=`: MySQL takes nothing for a space then.
        self.push(&format!("substr({name}, 11, 1) LIKE '{separator}' AND "));
        let part = if form.digits == 0 {
            0
        } else {
            usize::from(form.digits) + 1
        };
        match form.zone {
            TextZone::Missing if self.dialect == SqlDialect::Mysql => {
                self.push(&format!("substr({name}, 20) NOT REGEXP '[^.0-9]'"))
            }
            TextZone::Missing => {
                self.push(&format!("ltrim(substr({name}, 20), '.0123456789') = ''"))
            }
            TextZone::Letter => self.push(&format!("substr({name}, {}) = 'Z'", 20 + part)),
            TextZone::Offset => self.push(&format!("substr({name}, {}) = '+00:00'", 20 + part)),
        }
    }

    /// No row that the exact comparison takes is left out by this one.
    fn compare_coarsely(
        &mut self,
        column: &DateColumn,
        form: TextDateForm,
        is: DateComparison,
        time: Time,
    ) -> &mut Self {
        let sign = if is.is_lower_bound() { " >= " } else { " <= " };
        self.name(&column.column)
            .push(sign)
            .value(SqlParam::Text(coarse(form, is, time)), &column.column)
    }

    /// Behind a time on the other side, what a coarser comparison is made with, where there is one.
    pub(super) fn coarse_bound(&mut self, column: &DateColumn, time: Time) -> &mut Self {
        match (column.form, self.dialect) {
            (DateForm::Text(form), SqlDialect::Sqlite) => self.push(", ").value(
                SqlParam::Text(coarse(form, DateComparison::AtOrBefore, time)),
                &column.column,
            ),
            _ => self,
        }
    }

    /// Not after a time that stands in another row, and beside it as text.
    pub(super) fn at_or_before_joined(
        &mut self,
        column: &DateColumn,
        [time, text]: [&str; 2],
    ) -> &mut Self {
        match (column.form, self.dialect) {
            (DateForm::Text(_), SqlDialect::Sqlite) => {
                self.name(&column.column)
                    .push(" <= ")
                    .push(text)
                    .push(" AND ");
                self.comparable(column).push(" <= ").push(time)
            }
            (_, SqlDialect::Sqlite) => self
                .name(&column.column)
                .push(" <= ")
                .push(time)
                .push(" AND ")
                .readable(column),
            _ => self.comparable(column).push(" <= ").push(time),
        }
    }
}

/// A text that dates are compared with: to the second where all look alike, to the day otherwise.
fn coarse(form: TextDateForm, is: DateComparison, time: Time) -> String {
    match (form.is_uniform, is.is_lower_bound()) {
        (true, true) => form.second(time),
        // Behind everything that can follow a second.
        (true, false) => format!("{}~", form.second(time)),
        // A zone moves a date by less than a day.
        (false, true) => TextDateForm::day(time.before(Span::days(1))),
        (false, false) => TextDateForm::day(time.after(Span::days(2))),
    }
}

/// Microseconds of a time of PostgreSQL's; what has no end is as far away as can be said.
fn epoch_micros(time: &str) -> String {
    format!("least(greatest(extract(epoch FROM {time}) * 1000000, -9e18), 9e18)::bigint")
}

/// SQLite has no regular expressions: shape by shape, and a day is one that there is if it comes
/// back as it was.
fn sqlite_micros(x: &str) -> String {
    let rest = format!("substr({x}, 20)");
    let zone = format!("ltrim({rest}, '.0123456789')");
    let part = format!("substr({rest}, 1, length({rest}) - length({zone}))");
    let is_zone = format!(
        "({zone} IN ('', 'Z') OR (({zone} GLOB '[-+][01][0-9]' OR {zone} GLOB '[-+][01][0-9]:[0-5][0-9]') AND substr({zone}, 2, 2) < '15'))"
    );
    let is_part = format!(
        "({part} = '' OR ({part} GLOB '.[0-9]*' AND length({part}) <= 10 AND instr(substr({part}, 2), '.') = 0))"
    );
    let is_clock = format!(
        "substr({x}, 11, 9) GLOB '[ T][0-2][0-9]:[0-5][0-9]:[0-5][0-9]' AND substr({x}, 12, 2) < '24' \
         AND (length({x}) = 19 OR ({is_zone} AND {is_part}))"
    );
    format!(
        "CASE WHEN typeof({x}) = 'text' AND {x} GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND {x} > '0001' \
         AND date(substr({x}, 1, 10)) = substr({x}, 1, 10) AND (length({x}) = 10 OR ({is_clock})) \
         THEN unixepoch(substr({x}, 1, 19)) * 1000000 + CAST(substr(substr({part}, 2) || '000000', 1, 6) AS INTEGER) \
         - (CASE substr({zone}, 1, 1) WHEN '-' THEN -60000000 ELSE 60000000 END) \
         * (CAST(substr({zone}, 2, 2) AS INTEGER) * 60 + CAST(substr({zone}, 5, 2) AS INTEGER)) END"
    )
}

/// Digits behind the sixth are cut off, and not rounded.
fn postgres_micros(x: &str) -> String {
    let time = format!("regexp_replace({x}::text, '([.][0-9]{{6}})[0-9]+', '\\1')::timestamptz");
    format!(
        "CASE WHEN {x}::text ~ '^{DAY}{CLOCK}$' THEN {} END",
        epoch_micros(&time)
    )
}

fn mysql_micros(x: &str) -> String {
    let clock = format!("IF(CHAR_LENGTH({x}) = 10, '00:00:00', SUBSTRING({x}, 12, 8))");
    let part = format!(
        "IF(SUBSTRING({x}, 20, 1) = '.', REGEXP_SUBSTR(SUBSTRING({x}, 21, 6), '^[0-9]+'), '')"
    );
    let zone = format!("COALESCE(REGEXP_SUBSTR(SUBSTRING({x}, 20), '[+-][0-9:]+$'), '')");
    format!(
        "CASE WHEN {x} REGEXP '(?-i)^{DAY}{CLOCK}$' THEN \
         TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', CAST(CONCAT(LEFT({x}, 10), ' ', {clock}) AS DATETIME)) \
         + CAST(RPAD({part}, 6, '0') AS SIGNED) - IF(LEFT({zone}, 1) = '-', -60000000, 60000000) \
         * (CAST(CONCAT('0', SUBSTRING({zone}, 2, 2)) AS SIGNED) * 60 + CAST(CONCAT('0', SUBSTRING({zone}, 5, 2)) AS SIGNED)) END"
    )
}
