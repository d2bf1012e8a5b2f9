//! Whether a table can be worked off, what it lacks, and which index would help.

use super::adopted_table::{AdoptedTable, OpenTable, ScanView, TableError};
use super::catalogue::{
    CatalogueLookup, ColumnKind, RelationKind, TableCatalogue, TableColumn, TableIndex,
};
use super::count;
use super::link::{SqlStatement, TableLink, TableLinkError, TransactionMode, connect};
use super::schema::{ColumnRoles, TableSchema};
use super::sql::{change_nothing, count_expired, count_words, pick, pick_apart, quoted};
use super::{ColumnNames, StatusValues, StatusWords, Table, column_guess};
use backstop_core::Time;
use backstop_core::limits::{TABLE_KEY_BYTES_MAX, TABLE_WORDS_MAX};
use backstop_core::sweep::SqlDialect;
use backstop_core::table::TableSurvey;

/// Characters of a name that an index gets.
const NAME_MAX: usize = 40;
/// What the empty copy of a table is called, on which a plan with all indexes is asked for.
const COPY: &str = "backstop_copy";

/// What `table check` found in the user's table.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct TableCheckReport {
    /// The table as the database spells it, quoted.
    pub table: String,
    pub database: &'static str,
    /// The columns by what they are for.
    pub columns: Vec<CheckedColumn>,
    /// Statements that make it work, one for each thing that is missing.
    pub missing: Vec<String>,
    /// The indexes by which due rows are found without looking at all others.
    pub indexes: Vec<CheckedIndex>,
    /// How the database goes about finding what is due, as things are.
    pub plan: Vec<String>,
    /// How it would with all indexes: asked for on an empty copy of the table that is gone again.
    /// `None` if that could not be done; `notes` say why.
    pub plan_indexed: Option<Vec<String>>,
    /// Whether we may read it, or why not.
    pub may_read: Result<(), String>,
    /// Whether we may change it, or why not.
    pub may_write: Result<(), String>,
    /// What stands in the status column, if that could be counted.
    pub words: Option<StatusWords>,
    /// Open rows that no pass tries: those that are expired, and those whose dates cannot be read.
    pub never_tried: u64,
    /// The entry that names the columns of this table that are probably meant, where some are
    /// called otherwise.
    pub proposal: Option<String>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

/// A column that was looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckedColumn {
    pub role: &'static str,
    /// What it is called in the configuration.
    pub wanted: String,
    /// What it is called in the database, if it is there.
    pub found: Option<String>,
    pub type_name: Option<String>,
    /// How it says when, of a column of dates.
    pub dates: Option<String>,
    /// What is wrong with it.
    pub problem: Option<String>,
}

/// An index that would make a pass over the table fast.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckedIndex {
    pub columns: Vec<String>,
    pub why: &'static str,
    /// The one that is there.
    pub existing: Option<String>,
    /// The statement that makes it.
    pub ddl: String,
}

impl TableCheckReport {
    /// Whether the table can be worked off as it is.
    pub fn is_fine(&self) -> bool {
        let is_sound = self.columns.iter().all(|column| column.problem.is_none());
        is_sound && self.missing.is_empty() && self.may_read.is_ok() && self.may_write.is_ok()
    }

    /// Whether there are rows, and a pass would try none of them, now or later.
    pub fn has_nothing_to_try(&self) -> bool {
        self.words.as_ref().is_some_and(|words| {
            words.has_nothing_open() || (words.open > 0 && self.never_tried >= words.open)
        })
    }
}

impl AdoptedTable {
    /// Looks the table up in the catalogue of its database, and asks how its rows would be found.
    /// Changes no row.
    pub async fn check(&self) -> Result<TableCheckReport, TableError> {
        self.check_at(self.backstop.current_time().await).await
    }

    /// The same as if it were `at`: rows are expired or not as of then.
    pub async fn check_at(&self, at: Time) -> Result<TableCheckReport, TableError> {
        let table = &self.table;
        let mut link = connect(&table.source).await?;
        let found = link
            .catalogue(&table.relation)
            .await
            .map_err(|error| TableError::of(&table.source, &error))?;
        let catalogue = match found {
            CatalogueLookup::Table(catalogue) => catalogue,
            CatalogueLookup::Others(there) => {
                let place = table.source.address().to_string();
                return Err(TableError::NoTable {
                    place,
                    table: table.relation.to_string(),
                    existing: there,
                });
            }
        };
        // Not the survey that passes share: rows may have come or changed since it was made.
        let opened = self.open_with_new_survey(at).await;
        let survey = opened
            .as_ref()
            .map(|(_, survey)| *survey)
            .unwrap_or_default();
        let opened = opened.map(|(opened, _)| opened);
        let shape = opened.as_ref().ok().map(|opened| &opened.shape);
        let columns = columns(table, &catalogue, shape);
        let mut checked = TableCheckReport {
            table: catalogue.quoted.clone(),
            database: link.product(),
            missing: missing(table, &catalogue),
            indexes: Vec::new(),
            plan: Vec::new(),
            plan_indexed: None,
            may_read: Ok(()),
            may_write: Ok(()),
            words: None,
            never_tried: 0,
            proposal: proposal(&columns, &catalogue),
            notes: notes(shape, survey),
            columns,
        };
        self.check_words(&mut *link, &catalogue, &mut checked).await;
        match opened {
            Ok(mut opened) => {
                self.check_open_rows(&mut opened, survey, &mut checked)
                    .await;
                self.check_access_and_plan(&mut opened, at, &mut checked)
                    .await?;
            }
            Err(
                TableError::NoColumn { .. }
                | TableError::NoDate { .. }
                | TableError::NoKey { .. }
                | TableError::NoCount { .. },
            ) => {}
            Err(error) => checked.may_read = Err(error.to_string()),
        }
        Ok(checked)
    }

    /// Counts the words of the status column, once and by one statement, and says what is wrong
    /// where no row could be worked off.
    async fn check_words(
        &self,
        link: &mut dyn TableLink,
        catalogue: &TableCatalogue,
        checked: &mut TableCheckReport,
    ) {
        let (table, dialect) = (&self.table, self.table.source.dialect());
        let roles = ColumnRoles::of(table, catalogue);
        let Some(status) = roles.status else { return };
        let statement = count_words(
            dialect,
            &catalogue.quoted,
            status,
            roles.inserted,
            &table.states,
            TABLE_WORDS_MAX + 1,
        );
        let words = match link.rows(&statement).await {
            Ok(rows) => StatusWords::new(&rows, &table.states, dialect),
            Err(error) => {
                let error = TableError::of(&table.source, &error);
                checked.notes.push(format!(
                    "the words of {} were not counted: {error}",
                    status.name
                ));
                return;
            }
        };
        checked.notes.extend(words.describe(&table.states));
        let StatusValues {
            new,
            error,
            success,
        } = &*table.states;
        let bad_words = words
            .are_all_unknown()
            .then(|| format!("none of its words is {new}, {error} or {success}"));
        let bad_dates = (words.open > 0 && words.open == words.open_undated)
            .then(|| "no row that is to be worked off has a date".to_owned());
        for column in &mut checked.columns {
            let problem = match column.role {
                "status" => &bad_words,
                "inserted" if column.found.is_some() => &bad_dates,
                _ => continue,
            };
            column.problem = column.problem.take().or_else(|| problem.clone());
        }
        checked.words = Some(words);
    }

    /// Says what is wrong where rows are open and none of them is ever tried.
    async fn check_open_rows(
        &self,
        opened: &mut OpenTable,
        survey: TableSurvey,
        checked: &mut TableCheckReport,
    ) {
        let open = checked.words.as_ref().map_or(0, |words| words.open);
        let TableSurvey {
            undated, unkeyed, ..
        } = survey;
        if open == 0 {
            return;
        }
        if undated + unkeyed >= open {
            let (role, what) = match (undated > 0, unkeyed > 0) {
                (true, false) => ("inserted", "a date that can be read"),
                (true, true) => ("inserted", "both a date and a key that can be read"),
                (false, _) => ("id", "a key that can be noted down"),
            };
            let problem = format!("no row that is to be worked off has {what}");
            for column in checked.columns.iter_mut().filter(|c| c.role == role) {
                column.problem.get_or_insert_with(|| problem.clone());
            }
        }
        let most = usize::try_from(open).unwrap_or(usize::MAX);
        let counted = count_expired(&self.table, &opened.shape, survey.at, most);
        match opened.count(&counted).await {
            Ok(expired) => {
                checked.never_tried = expired + undated;
                checked.notes.extend((expired > 0).then(|| {
                    format!(
                        "{expired} open rows are older than `max_age` or failed too often: they are never tried"
                    )
                }));
            }
            Err(error) => checked
                .notes
                .push(format!("expired rows were not counted: {error}")),
        }
    }

    async fn check_access_and_plan(
        &self,
        opened: &mut OpenTable,
        at: Time,
        checked: &mut TableCheckReport,
    ) -> Result<(), TableError> {
        checked.indexes = indexes(&opened.shape);
        checked.may_write = opened.may_write().await;
        // As of the first pass: every branch of the query is in it.
        let view = ScanView::all(at);
        let criteria = view.criteria(&self.table, &opened.shape);
        let Some(statement) = pick(
            &self.table,
            &opened.shape,
            &criteria,
            &view,
            self.table.max_records,
            None,
        ) else {
            return Ok(());
        };
        match opened.plan(&statement).await {
            Ok(plan) => checked.plan = plan,
            Err(error) => checked.may_read = Err(opened.table_error(&error).to_string()),
        }
        checked.plan_indexed = if checked.indexes.is_empty() {
            None
        } else if checked.indexes.iter().all(|index| index.existing.is_some()) {
            Some(checked.plan.clone())
        } else {
            match opened.plan_indexed(&self.table).await {
                Ok(plan) => plan,
                Err(error) => {
                    checked.notes.push(plan_failed_note(
                        opened.shape.dialect,
                        &opened.table_error(&error),
                    ));
                    None
                }
            }
        };
        Ok(())
    }
}

fn columns(
    table: &Table,
    catalogue: &TableCatalogue,
    shape: Option<&TableSchema>,
) -> Vec<CheckedColumn> {
    let (roles, names) = (ColumnRoles::of(table, catalogue), &table.columns);
    let ColumnNames {
        id,
        status,
        inserted,
        failures,
        last_failure,
    } = &**names;
    let mut wanted = vec![
        ("id", id, roles.id),
        ("status", status, roles.status),
        ("inserted", inserted, roles.inserted),
    ];
    if table.rules.counts_failures() {
        wanted.extend([
            ("failures", failures, roles.failures),
            ("last_failure", last_failure, roles.last_failure),
        ]);
    }
    let check =
        |(role, wanted, column): (&'static str, &String, Option<&TableColumn>)| CheckedColumn {
            role,
            wanted: wanted.clone(),
            found: column.map(|column| column.name.clone()),
            type_name: column.map(|column| column.type_name.clone()),
            dates: dates(role, shape),
            problem: column.map_or_else(
                || Some("it is not there".to_owned()),
                |column| problem(role, column, catalogue),
            ),
        };
    wanted.into_iter().map(check).collect()
}

/// The columns that are probably meant where none has the name that is configured.
fn proposal(columns: &[CheckedColumn], catalogue: &TableCatalogue) -> Option<String> {
    let mut taken: Vec<&str> = columns
        .iter()
        .filter_map(|column| column.found.as_deref())
        .collect();
    let mut proposed = Vec::new();
    for column in columns.iter().filter(|column| column.found.is_none()) {
        if let Some(likely) = column_guess::likely_column(column.role, catalogue, &taken) {
            taken.push(&likely.name);
            proposed.push((column.role, likely.name.as_str()));
        }
    }
    (!proposed.is_empty()).then(|| column_guess::entry(&proposed))
}

fn dates(role: &str, shape: Option<&TableSchema>) -> Option<String> {
    let shape = shape?;
    match role {
        "inserted" => Some(shape.inserted.form.word()),
        "last_failure" => shape
            .failed
            .as_ref()
            .map(|failed| failed.last_failure.form.word()),
        _ => None,
    }
}

fn problem(role: &str, column: &TableColumn, catalogue: &TableCatalogue) -> Option<String> {
    match (role, column.kind) {
        ("id", _) if catalogue.relation == RelationKind::Table && !catalogue.is_unique(&column.name) => Some(
            "no primary key or unique index is on it alone: a pass stops where two rows share it".to_owned(),
        ),
        ("failures", _) if !count::is_counted(column) => Some("it is no column of numbers".to_owned()),
        ("last_failure", ColumnKind::Time) if keeps_the_day(column) => {
            Some("it keeps the day only: a wait would count from its first moment".to_owned())
        }
        ("inserted" | "last_failure", ColumnKind::Real | ColumnKind::Bytes | ColumnKind::Other) => {
            Some("it says no time; use a timestamp, text, or a number since 1970".to_owned())
        }
        _ => None,
    }
}

/// Whether a column of times has no time of day.
fn keeps_the_day(column: &TableColumn) -> bool {
    column.kind == ColumnKind::Time && column.type_name.eq_ignore_ascii_case("date")
}

fn notes(shape: Option<&TableSchema>, survey: TableSurvey) -> Vec<String> {
    use backstop_core::table::date::{DateForm, TextDateForm};
    let mut notes = Vec::new();
    let Some(shape) = shape else { return notes };
    let TableSurvey {
        undated, unkeyed, ..
    } = survey;
    if undated > 0 {
        notes.push(format!(
            "{undated} open rows have a date or a count that cannot be read: they are never tried"
        ));
    }
    if unkeyed > 0 {
        notes.push(format!(
            "{unkeyed} open rows have no key, or one of more than {TABLE_KEY_BYTES_MAX} bytes: they are never tried"
        ));
    }
    if matches!(
        shape.inserted.form,
        DateForm::Text(TextDateForm {
            is_uniform: false,
            ..
        })
    ) {
        notes.push(format!(
            "column {} has dates in more than one form, or in zones other than UTC: they are understood, and found more slowly",
            shape.inserted.column.name
        ));
    }
    notes.extend(relation_note(shape));
    notes.extend(zone_note(shape));
    if let Some(failed) = shape
        .failed
        .as_ref()
        .filter(|failed| failed.failures.kind != ColumnKind::Whole)
    {
        notes.push(format!(
            "column {} is of type {}, and not of whole numbers: failures are understood, and found more slowly",
            failed.failures.name, failed.failures.type_name
        ));
    }
    notes
}

/// Why nobody knows how rows would be found with all indexes.
fn plan_failed_note(dialect: SqlDialect, error: &TableError) -> String {
    let right = match dialect {
        SqlDialect::Sqlite => "",
        SqlDialect::Postgres => ", for which its user needs the right TEMPORARY on the database",
        SqlDialect::Mysql => {
            ", for which its user needs the right CREATE TEMPORARY TABLES on the database"
        }
    };
    format!(
        "the plan with these indexes is asked for on an empty temporary copy of the table{right}: {error}"
    )
}

/// What no index of its own can say of a view, or of a table in parts.
fn relation_note(shape: &TableSchema) -> Option<String> {
    let id = &shape.id.name;
    match shape.catalogue.relation {
        RelationKind::Table => None,
        RelationKind::Parts if shape.catalogue.is_unique(id) => None,
        RelationKind::Parts => Some(format!(
            "nothing keeps two rows from sharing {id}: a pass stops where they do"
        )),
        RelationKind::View => Some(format!(
            "it is a view: nothing keeps two rows from sharing {id}, and a pass stops where they do; indexes that help are those of the tables behind it"
        )),
    }
}

/// Columns of times that do not say of which zone.
fn zone_note(shape: &TableSchema) -> Option<String> {
    let last_failure = shape
        .failed
        .as_ref()
        .map(|failed| &failed.last_failure.column);
    let is_zoneless = |column: &&TableColumn| {
        let name = column.type_name.to_ascii_lowercase();
        column.kind == ColumnKind::Time
            && (name.starts_with("datetime") || name.ends_with("without time zone"))
    };
    let columns = std::iter::once(&shape.inserted.column)
        .chain(last_failure)
        .filter(is_zoneless);
    let names: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{} say no time zone, and are read and written as UTC: rows of whoever writes local time look older or newer than they are",
            names.join(" and ")
        )
    })
}

/// What makes the table complete. A key that is missing is for its owner to choose.
fn missing(table: &Table, catalogue: &TableCatalogue) -> Vec<String> {
    let (roles, dialect) = (ColumnRoles::of(table, catalogue), table.source.dialect());
    let add = |name: &str, kind: &str| {
        format!(
            "ALTER TABLE {} ADD COLUMN {} {kind};",
            catalogue.quoted,
            quoted(dialect, name)
        )
    };
    let like_inserted = roles.inserted.filter(|column| !keeps_the_day(column));
    let date = like_inserted.map_or_else(
        || time_type(dialect).to_owned(),
        |column| column.type_name.clone(),
    );
    let mut missing = Vec::new();
    if roles.status.is_none() {
        let word = literal(dialect, &table.states.new);
        missing.push(add(
            &table.columns.status,
            &format!("VARCHAR(32) NOT NULL DEFAULT {word}"),
        ));
    }
    if roles.inserted.is_none() {
        missing.push(add(&table.columns.inserted, &date));
    }
    if table.rules.counts_failures() {
        if roles.failures.is_none() {
            missing.push(add(&table.columns.failures, "INTEGER NOT NULL DEFAULT 0"));
        }
        if roles.last_failure.is_none() {
            let kind = if dialect == SqlDialect::Mysql {
                format!("{date} NULL")
            } else {
                date
            };
            missing.push(add(&table.columns.last_failure, &kind));
        }
    }
    missing
}

/// Text as it stands in a statement that somebody else runs.
fn literal(dialect: SqlDialect, text: &str) -> String {
    let doubled = text.replace('\'', "''");
    let escaped = if dialect == SqlDialect::Mysql {
        doubled.replace('\\', "\\\\")
    } else {
        doubled
    };
    format!("'{escaped}'")
}

const fn time_type(dialect: SqlDialect) -> &'static str {
    match dialect {
        SqlDialect::Sqlite => "TEXT",
        SqlDialect::Postgres => "timestamptz",
        SqlDialect::Mysql => "DATETIME(6)",
    }
}

/// An index that is wanted.
struct WantedIndex<'a> {
    name: &'static str,
    why: &'static str,
    columns: Vec<&'a TableColumn>,
    /// How many of its first columns an index must have to do as well, and how many of these in
    /// any order.
    needed: (usize, usize),
}

impl WantedIndex<'_> {
    fn names(&self) -> Vec<&str> {
        self.columns
            .iter()
            .map(|column| column.name.as_str())
            .collect()
    }

    /// The index that does as well, if there is one.
    fn existing<'a>(&self, shape: &'a TableSchema) -> Option<&'a TableIndex> {
        let (first, free) = self.needed;
        shape.catalogue.index(&self.names()[..first], free)
    }
}

fn wanted_indexes(shape: &TableSchema) -> Vec<WantedIndex<'_>> {
    if shape.catalogue.relation == RelationKind::View {
        return Vec::new();
    }
    let (status, inserted) = (&shape.status, &shape.inserted.column);
    let in_order = WantedIndex {
        name: "inserted",
        why: "open rows, newest first",
        columns: vec![status, inserted],
        needed: (2, 1),
    };
    let counted = shape
        .failed
        .as_ref()
        .filter(|failed| failed.failures.kind == ColumnKind::Whole);
    let by_failures = counted.map(|failed| WantedIndex {
        name: "due",
        why: "rows that failed, by when they are due",
        columns: vec![
            status,
            &failed.failures,
            &failed.last_failure.column,
            inserted,
        ],
        needed: (3, 2),
    });
    std::iter::once(in_order).chain(by_failures).collect()
}

fn indexes(shape: &TableSchema) -> Vec<CheckedIndex> {
    let index = |wanted: WantedIndex<'_>| CheckedIndex {
        columns: wanted.names().into_iter().map(ToOwned::to_owned).collect(),
        why: wanted.why,
        existing: wanted.existing(shape).map(|index| index.name.clone()),
        ddl: index_ddl(shape, &wanted, &shape.catalogue.quoted),
    };
    wanted_indexes(shape).into_iter().map(index).collect()
}

fn index_ddl(shape: &TableSchema, wanted: &WantedIndex<'_>, table: &str) -> String {
    let dialect = shape.dialect;
    let base: String = shape
        .catalogue
        .name
        .to_lowercase()
        .chars()
        .take(NAME_MAX)
        .collect();
    let column = |column: &&TableColumn| {
        // MySQL takes only the beginning of a long text.
        let is_long =
            dialect == SqlDialect::Mysql && column.type_name.to_ascii_lowercase().contains("text");
        format!(
            "{}{}",
            quoted(dialect, &column.name),
            if is_long { "(64)" } else { "" }
        )
    };
    let columns: Vec<String> = wanted.columns.iter().map(column).collect();
    // Beside whoever writes; PostgreSQL does that for no table in parts.
    let is_concurrent = dialect == SqlDialect::Postgres
        && table != COPY
        && shape.catalogue.relation == RelationKind::Table;
    let concurrently = if is_concurrent { "CONCURRENTLY " } else { "" };
    let name = quoted(dialect, &format!("{base}_{}", wanted.name));
    format!(
        "CREATE INDEX {concurrently}{name} ON {table} ({});",
        columns.join(", ")
    )
}

impl OpenTable {
    /// Asks for a change of no row.
    async fn may_write(&mut self) -> Result<(), String> {
        let statement = change_nothing(&self.shape);
        self.change(&statement)
            .await
            .map(|_| ())
            .map_err(|error| error.to_string())
    }

    async fn plan(&mut self, statement: &SqlStatement) -> Result<Vec<String>, TableLinkError> {
        self.link.begin(TransactionMode::Reading).await?;
        let plan = self.link.plan(statement).await;
        self.link.roll_back().await;
        plan
    }

    /// The plan on an empty copy of the table that has all indexes. The copy is gone afterwards.
    async fn plan_indexed(&mut self, table: &Table) -> Result<Option<Vec<String>>, TableLinkError> {
        self.link.begin(TransactionMode::Writing).await?;
        let plan = self.plan_on_copy(table).await;
        if self.shape.dialect == SqlDialect::Mysql {
            // Elsewhere it goes with the transaction. It would go with the connection, which
            // somebody in between may keep.
            let _ = self
                .link
                .run(&format!("DROP TEMPORARY TABLE IF EXISTS {COPY}"))
                .await;
        }
        self.link.roll_back().await;
        plan
    }

    async fn plan_on_copy(&mut self, table: &Table) -> Result<Option<Vec<String>>, TableLinkError> {
        let mut copy = self.shape.clone();
        COPY.clone_into(&mut copy.catalogue.quoted);
        let original = &self.shape.catalogue.quoted;
        let make = match copy.dialect {
            SqlDialect::Sqlite => {
                format!("CREATE TEMP TABLE {COPY} AS SELECT * FROM {original} LIMIT 0")
            }
            SqlDialect::Postgres => format!("CREATE TEMP TABLE {COPY} (LIKE {original})"),
            SqlDialect::Mysql => format!("CREATE TEMPORARY TABLE {COPY} LIKE {original}"),
        };
        self.link.run(&make).await?;
        for wanted in wanted_indexes(&self.shape) {
            // MySQL's copy has the indexes that are there already.
            if copy.dialect != SqlDialect::Mysql || wanted.existing(&self.shape).is_none() {
                self.link.run(&index_ddl(&copy, &wanted, COPY)).await?;
            }
        }
        if copy.dialect == SqlDialect::Postgres {
            // An empty table is read from its beginning, whatever indexes it has.
            self.link.run("SET LOCAL enable_seqscan = off").await?;
        }
        let index = |columns| TableIndex {
            name: String::new(),
            columns,
            is_partial: false,
            is_unique: false,
        };
        copy.catalogue.indexes = indexes(&self.shape)
            .into_iter()
            .map(|found| index(found.columns))
            .collect();
        let view = ScanView::all(Time::default().after(table.rules.max_age()));
        let (criteria, max) = (view.criteria(table, &copy), table.max_records);
        let statements: Vec<SqlStatement> = if copy.dialect == SqlDialect::Mysql {
            // A statement of MySQL's reads a temporary table once and not again.
            pick_apart(table, &copy, &criteria, &view, max)
        } else {
            pick(table, &copy, &criteria, &view, max, None)
                .into_iter()
                .collect()
        };
        let mut plan = Vec::new();
        for statement in &statements {
            plan.extend(self.link.plan(statement).await?);
        }
        Ok((!statements.is_empty()).then_some(plan))
    }
}
