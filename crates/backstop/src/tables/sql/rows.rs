//! What can be said of a row beside its dates: how often it failed, and whether its key can be
//! noted down.
//!
//! A column of whole numbers is compared as it is, so that an index can answer. Of any other the
//! count is cut to a whole number; what is no number counts as no failure, in the query as in
//! [`crate::tables::count`].

use super::{Sql, quoted};
use crate::tables::catalogue::{Column, Kind};
use crate::tables::link::Param;
use backstop_core::limits::TABLE_KEY_BYTES_MAX;
use backstop_core::sweep::Dialect;

impl Sql {
    /// How often a row failed; nothing where it is not said.
    pub(super) fn failures(&mut self, column: &Column) -> &mut Self {
        let x = quoted(self.dialect, &column.name);
        match (self.dialect, column.kind) {
            (_, Kind::Whole) => self.say(&x),
            (Dialect::Sqlite, _) => self.say(&format!(
                "CASE typeof({x}) WHEN 'integer' THEN {x} WHEN 'real' THEN CAST({x} AS INTEGER) WHEN 'text' THEN \
                 CASE WHEN trim({x}) <> '' AND trim({x}) NOT GLOB '*[^0-9]*' AND length(trim({x})) <= 9 THEN CAST(trim({x}) AS INTEGER) END END"
            )),
            (Dialect::Postgres, Kind::Real) => self.say(&format!("trunc({x})")),
            (Dialect::Postgres, _) => {
                self.say(&format!("CASE WHEN {x}::text ~ '^ *[0-9]{{1,9}} *$' THEN {x}::text::bigint END"))
            }
            (Dialect::Mysql, Kind::Real) => self.say(&format!("TRUNCATE({x}, 0)")),
            (Dialect::Mysql, _) => self.say(&format!(
                "CASE WHEN {x} REGEXP '^ *[0-9]{{1,9}} *(?![[:space:]])$' THEN CAST({x} AS SIGNED) END"
            )),
        }
    }

    /// It is not said how often the row failed.
    pub(super) fn uncounted(&mut self, column: &Column) -> &mut Self {
        self.say("(").failures(column).say(" IS NULL");
        if self.is_loose(column) {
            self.say(" OR ").unnumbered(column);
        }
        self.say(")")
    }

    /// Text, or bytes, in a column of whole numbers: behind all numbers.
    pub(super) fn unnumbered(&mut self, column: &Column) -> &mut Self {
        self.name(column).say(" >= ''")
    }

    /// It did not fail.
    pub(super) fn unfailed(&mut self, column: &Column) -> &mut Self {
        self.failures(column).say(" <= 0")
    }

    pub(super) fn failed_times(&mut self, column: &Column, failures: u32) -> &mut Self {
        self.failures(column).say(" = ").count(failures.into())
    }

    pub(super) fn failed_at_least(&mut self, column: &Column, failures: u32) -> &mut Self {
        self.failures(column).say(" >= ").count(failures.into());
        if self.is_loose(column) {
            self.say(" AND ").name(column).say(" < ''");
        }
        self
    }

    /// It failed less often, or nobody knows how often.
    pub(super) fn failed_less_than(&mut self, column: &Column, failures: u32) -> &mut Self {
        self.say("(")
            .uncounted(column)
            .say(" OR ")
            .failures(column)
            .say(" < ");
        self.count(failures.into()).say(")")
    }

    /// It failed as often as it was seen to have.
    pub(super) fn failed_as_seen(&mut self, column: &Column, failures: Option<i128>) -> &mut Self {
        /// From here on numbers that are no whole ones may have lost digits on their way.
        const MANY: i128 = 1 << 31;
        match failures {
            None => self.uncounted(column),
            Some(many) if many >= MANY && column.kind != Kind::Whole => {
                self.failures(column).say(" >= ").count(MANY)
            }
            Some(failures) => self.failures(column).say(" = ").count(failures),
        }
    }

    /// It failed a part of a time more, which no whole number is found by.
    pub(super) fn failed_in_part(&mut self, column: &Column) -> &mut Self {
        if self.is_loose(column) {
            self.say("typeof(").name(column).say(") = 'real'")
        } else {
            self.say("1 = 0")
        }
    }

    /// Whether a column of whole numbers may hold anything else.
    fn is_loose(&self, column: &Column) -> bool {
        self.dialect == Dialect::Sqlite && column.kind == Kind::Whole
    }

    /// A number that a count is compared with: of the widest type, whatever the column's is.
    pub(super) fn count(&mut self, number: i128) -> &mut Self {
        self.cast(Param::Whole(number), "bigint")
    }

    /// Its key is one, and not too long to be noted down.
    pub(super) fn usable_key(&mut self, id: &Column) -> &mut Self {
        let x = quoted(self.dialect, &id.name);
        let max = TABLE_KEY_BYTES_MAX;
        match (self.dialect, id.kind) {
            (Dialect::Sqlite, _) => self.say(&format!(
                "(typeof({x}) = 'integer' OR (typeof({x}) IN ('text', 'blob') AND length(CAST({x} AS BLOB)) <= {max}))"
            )),
            (_, Kind::Whole) => self.say(&format!("{x} IS NOT NULL")),
            (Dialect::Postgres, Kind::Bytes) => self.say(&format!("octet_length({x}) <= {max}")),
            (Dialect::Postgres, _) => self.say(&format!("octet_length({x}::text) <= {max}")),
            (Dialect::Mysql, _) => self.say(&format!("LENGTH({x}) <= {max}")),
        }
    }
}
