//! A database's plan in short: by which indexes it finds rows, how often it goes through all of
//! them, and how many it expects to look at. The whole of one has a line for each of many waits,
//! and says the same over and over.

use super::TableCheckReport;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A query plan in short: which indexes it uses and how much it scans.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PlanSummary {
    /// How often each index is looked into.
    pub indexes: BTreeMap<String, usize>,
    /// How often every row is looked at.
    pub scans: usize,
    /// About how many rows are looked at, if the database says so.
    pub rows: Option<u64>,
}

impl TableCheckReport {
    /// How the database finds what is due, in short.
    pub fn plan_summary(&self) -> PlanSummary {
        PlanSummary::of(self.database, &self.plan)
    }

    /// How it would with all indexes, in short; `None` if that could not be found out.
    pub fn plan_summary_indexed(&self) -> Option<PlanSummary> {
        self.plan_indexed
            .as_ref()
            .map(|plan| PlanSummary::of(self.database, plan))
    }
}

/// What one line of a plan says of the rows of the table.
enum PlanStep {
    Index(String),
    Scan,
}

impl PlanSummary {
    fn of(database: &str, plan: &[String]) -> Self {
        let made = made(plan);
        let read = |line: &String| match database {
            "SQLite" => of_sqlite(line, &made),
            "PostgreSQL" => of_postgres(line),
            _ => of_mysql(line),
        };
        let mut looks = Self::default();
        for (look, rows) in plan.iter().filter_map(read) {
            match look {
                PlanStep::Index(name) => *looks.indexes.entry(name).or_default() += 1,
                PlanStep::Scan => looks.scans += 1,
            }
            looks.rows = looks.rows.map_or(rows, |sum| {
                Some(sum.saturating_add(rows.unwrap_or_default()))
            });
        }
        looks
    }
}

/// What SQLite has put together itself on the way: going through that is no look at the table.
fn made(plan: &[String]) -> BTreeSet<&str> {
    let lines = plan.iter().map(|line| line.trim());
    lines
        .filter_map(|line| {
            line.strip_prefix("CO-ROUTINE ")
                .or_else(|| line.strip_prefix("MATERIALIZE "))
        })
        .collect()
}

/// `SEARCH t USING INDEX backlog_due (STATUS=? AND …)`, `SCAN t`. It does not say how many rows.
fn of_sqlite(line: &str, made: &BTreeSet<&str>) -> Option<(PlanStep, Option<u64>)> {
    let (verb, rest) = line.trim().split_once(' ')?;
    let of_table = !made.contains(rest)
        && !rest.contains("CONSTANT ROW")
        && !rest.ends_with("-ROW VALUES CLAUSE");
    // A name is whatever stands before the brackets, blanks and all.
    let index = rest
        .rsplit_once(" INDEX ")
        .map(|(_, name)| name.rsplit_once(" (").map_or(name, |(name, _)| name));
    match (verb, index) {
        ("SEARCH", Some(name)) => Some((PlanStep::Index(name.to_owned()), None)),
        ("SEARCH", None) => Some((PlanStep::Index("its key".to_owned()), None)),
        ("SCAN", _) if of_table => Some((PlanStep::Scan, None)),
        _ => None,
    }
}

/// `->  Index Scan using backlog_due on "BACKLOG" t  (cost=0.28..8.30 rows=1 width=16)`, `->  Seq
/// Scan on "BACKLOG" t  (…)`.
fn of_postgres(line: &str) -> Option<(PlanStep, Option<u64>)> {
    let line = line.trim().trim_start_matches("->").trim();
    let rows = line
        .split_once(" rows=")
        .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    // One that needs them stands between quotes, and has its own doubled.
    let name = |rest: &str| match rest.strip_prefix('"') {
        Some(quoted) => quoted
            .replace("\"\"", "\0")
            .split('"')
            .next()
            .unwrap_or_default()
            .replace('\0', "\""),
        None => rest.split(' ').next().unwrap_or_default().to_owned(),
    };
    let indexed = line
        .split_once("Index Scan using ")
        .or_else(|| line.split_once("Index Only Scan using "))
        .or_else(|| line.split_once("Index Scan Backward using "))
        .or_else(|| line.split_once("Bitmap Index Scan on "));
    match indexed {
        Some((_, rest)) => Some((PlanStep::Index(name(rest)), rows)),
        None => line
            .contains("Seq Scan on ")
            .then_some((PlanStep::Scan, rows)),
    }
}

/// The columns of EXPLAIN with bars between them: ten in MariaDB, twelve in MySQL.
fn of_mysql(line: &str) -> Option<(PlanStep, Option<u64>)> {
    let cells: Vec<&str> = line.split(" | ").collect();
    let (table, access, key, rows) = match cells.len() {
        10 => (cells[2], cells[3], cells[5], cells[8]),
        12 => (cells[2], cells[4], cells[6], cells[9]),
        _ => return None,
    };
    // What it has put together itself stands between brackets.
    if table.starts_with('<') || table == "NULL" {
        return None;
    }
    let look = match (access, key) {
        ("ALL" | "index", _) => PlanStep::Scan,
        (_, "NULL") => return None,
        (_, key) => PlanStep::Index(key.to_owned()),
    };
    Some((look, rows.parse().ok()))
}

impl fmt::Display for PlanSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = |count: usize| {
            if count == 1 {
                "once".to_owned()
            } else {
                format!("{count} times")
            }
        };
        let by_index = self
            .indexes
            .iter()
            .map(|(name, count)| format!("by {name}, {}", times(*count)));
        let scans =
            (self.scans > 0).then(|| format!("by a look at every row, {}", times(self.scans)));
        let looks: Vec<String> = by_index.chain(scans).collect();
        f.write_str(if looks.is_empty() {
            "it does not say"
        } else {
            ""
        })?;
        f.write_str(&looks.join("; "))?;
        match self.rows {
            Some(rows) => write!(
                f,
                "; about {rows} {} in all",
                if rows == 1 { "row" } else { "rows" }
            ),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(database: &str, plan: &[&str], expected: &str) {
        let plan: Vec<String> = plan.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(PlanSummary::of(database, &plan).to_string(), expected);
    }

    #[test]
    fn a_plan_is_summarized_by_its_indexes_and_its_looks_at_all_rows() {
        check(
            "SQLite",
            &[
                "CO-ROUTINE (subquery-1)",
                "COMPOUND QUERY",
                "LEFT-MOST SUBQUERY",
                "SEARCH t USING INDEX backlog_inserted (STATUS=? AND DATE_INSERTED>?)",
                "UNION ALL",
                "SEARCH t USING COVERING INDEX backlog_due (STATUS=? AND FAILURES=?)",
                "UNION ALL",
                "SEARCH t USING COVERING INDEX backlog_due (STATUS=? AND FAILURES=?)",
                "SCAN (subquery-1)",
                "USE TEMP B-TREE FOR ORDER BY",
            ],
            "by backlog_due, 2 times; by backlog_inserted, once",
        );
        check(
            "SQLite",
            &[
                "CO-ROUTINE b0",
                "SCAN BACKLOG",
                "MATERIALIZE u",
                "SCAN b0",
                "SCAN u",
                "SCAN 5 CONSTANT ROWS",
                "SCAN 63-ROW VALUES CLAUSE",
            ],
            "by a look at every row, once",
        );
        check(
            "PostgreSQL",
            &[
                "Limit  (cost=1.00..2.00 rows=100 width=16)",
                "  ->  Index Scan using backlog_due on \"BACKLOG\" t  (cost=0.28..8.30 rows=3 width=16)",
                "        ->  Bitmap Index Scan on backlog_inserted  (cost=0.28..8.30 rows=4 width=16)",
                "  ->  Seq Scan on \"BACKLOG\" t_1  (cost=0.00..25.88 rows=1000 width=16)",
            ],
            "by backlog_due, once; by backlog_inserted, once; by a look at every row, once; about 1007 rows in all",
        );
        check(
            "MariaDB",
            &[
                "1 | PRIMARY | <derived2> | ALL | NULL | NULL | NULL | NULL | 4 | Using filesort",
                "2 | DERIVED | t | range | backlog_due | backlog_due | 70 | NULL | 7 | Using where",
                "3 | UNION | t | ALL | backlog_due | NULL | NULL | NULL | 90 | Using where",
            ],
            "by backlog_due, once; by a look at every row, once; about 97 rows in all",
        );
        check("PostgreSQL", &[], "it does not say");
    }

    #[test]
    fn an_index_may_have_any_name() {
        let line = r#"SEARCH my "odd" table USING COVERING INDEX my "odd" table; --_due (st'ate=? AND f%s=?)"#;
        check("SQLite", &[line], r#"by my "odd" table; --_due, once"#);
        let line = r#"->  Index Scan using "my ""odd"" table; --_due" on "my ""odd"" table; --" t  (cost=0.28..8.30 rows=3 width=16)"#;
        check(
            "PostgreSQL",
            &[line],
            r#"by my "odd" table; --_due, once; about 3 rows in all"#,
        );
    }
}
