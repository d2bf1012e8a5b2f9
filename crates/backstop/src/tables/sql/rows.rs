//! What can be said of a row beside its dates: how often it failed, and whether its key can be
//! noted down.
//!
//! A column of whole numbers is compared as it is, so that an index can answer. Of any other the
//! count is cut to a whole number; what is no number counts as no failure, in the query as in
//! [`crate::tables::count`].

use super::{SqlBuilder, quoted};
use crate::tables::catalogue::{ColumnKind, TableColumn};
use crate::tables::link::SqlParam;
use backstop_core::limits::TABLE_KEY_BYTES_MAX;
use backstop_core::sweep::SqlDialect;

impl SqlBuilder {
    /// How often a row failed; nothing where it is not said.
    pub(super) fn failures(&mut self, column: &TableColumn) -> &mut Self {
        let x = quoted(self.dialect, &column.name);
        match (self.dialect, column.kind) {
            (_, ColumnKind::Whole) => self.push(&x),
            (SqlDialect::Sqlite, _) => self.push(&format!(
                "CASE typeof({x}) WHEN 'integer' THEN {x} WHEN 'real' THEN CAST({x} AS INTEGER) WHEN 'text' THEN \
                 CASE WHEN trim({x}) <> '' AND trim({x}) NOT GLOB '*[^0-9]*' AND length(trim({x})) <= 9 THEN CAST(trim({x}) AS INTEGER) END END"
            )),
            (SqlDialect::Postgres, ColumnKind::Real) => self.push(&format!("trunc({x})")),
            (SqlDialect::Postgres, _) => {
                self.push(&format!("CASE WHEN {x}::text ~ '^ *[0-9]{{1,9}} *$' THEN {x}::text::bigint END"))
            }
            (SqlDialect::Mysql, ColumnKind::Real) => self.push(&format!("TRUNCATE({x}, 0)")),
            (SqlDialect::Mysql, _) => self.push(&format!(
                "CASE WHEN {x} REGEXP '^ *[0-9]{{1,9}} *(?![[:space:]])$' THEN CAST({x} AS SIGNED) END"
            )),
        }
    }

    /// It is not said how often the row failed.
    pub(super) fn uncounted(&mut self, column: &TableColumn) -> &mut Self {
        self.push("(").failures(column).push(" IS NULL");
        if self.is_loose(column) {
            self.push(" OR ").unnumbered(column);
        }
        self.push(")")
    }

    /// Text, or bytes, in a column of whole numbers: behind all numbers.
    pub(super) fn unnumbered(&mut self, column: &TableColumn) -> &mut Self {
        self.name(column).push(" >= ''")
    }

    pub(super) fn unfailed(&mut self, column: &TableColumn) -> &mut Self {
        self.failures(column).push(" <= 0")
    }

    pub(super) fn failed_times(&mut self, column: &TableColumn, failures: u32) -> &mut Self {
        self.failures(column).push(" = ").count(failures.into())
    }

    pub(super) fn failed_at_least(&mut self, column: &TableColumn, failures: u32) -> &mut Self {
        self.failures(column).push(" >= ").count(failures.into());
        if self.is_loose(column) {
            self.push(" AND ").name(column).push(" < ''");
        }
        self
    }

    /// It failed less often, or nobody knows how often.
    pub(super) fn failed_less_than(&mut self, column: &TableColumn, failures: u32) -> &mut Self {
        self.push("(")
            .uncounted(column)
            .push(" OR ")
            .failures(column)
            .push(" < ");
        self.count(failures.into()).push(")")
    }

    /// It failed as often as it was seen to have.
    pub(super) fn failed_as_seen(
        &mut self,
        column: &TableColumn,
        failures: Option<i128>,
    ) -> &mut Self {
        /// From here on numbers that are no whole ones may have lost digits on their way.
        const MANY: i128 = 1 << 31;
        match failures {
            None => self.uncounted(column),
            Some(many) if many >= MANY && column.kind != ColumnKind::Whole => {
                self.failures(column).push(" >= ").count(MANY)
            }
            Some(failures) => self.failures(column).push(" = ").count(failures),
        }
    }

    /// It failed a part of a time more, which no whole number is found by.
    pub(super) fn failed_in_part(&mut self, column: &TableColumn) -> &mut Self {
        if self.is_loose(column) {
            self.push("typeof(").name(column).push(") = 'real'")
        } else {
            self.push("1 = 0")
        }
    }

    /// Whether a column of whole numbers may hold anything else.
    fn is_loose(&self, column: &TableColumn) -> bool {
        self.dialect == SqlDialect::Sqlite && column.kind == ColumnKind::Whole
    }

    /// A number that a count is compared with: of the widest type, whatever the column's is.
    pub(super) fn count(&mut self, number: i128) -> &mut Self {
        self.cast(SqlParam::Whole(number), "bigint")
    }

    /// Its key is one, and not too long to be noted down.
    pub(super) fn usable_key(&mut self, id: &TableColumn) -> &mut Self {
        let x = quoted(self.dialect, &id.name);
        let max = TABLE_KEY_BYTES_MAX;
        match (self.dialect, id.kind) {
            (SqlDialect::Sqlite, _) => self.push(&format!(
                "(typeof({x}) = 'integer' OR (typeof({x}) IN ('text', 'blob') AND length(CAST({x} AS BLOB)) <= {max}))"
            )),
            (_, ColumnKind::Whole) => self.push(&format!("{x} IS NOT NULL")),
            (SqlDialect::Postgres, ColumnKind::Bytes) => self.push(&format!("octet_length({x}) <= {max}")),
            (SqlDialect::Postgres, _) => self.push(&format!("octet_length({x}::text) <= {max}")),
            (SqlDialect::Mysql, _) => self.push(&format!("LENGTH({x}) <= {max}")),
        }
    }
}
