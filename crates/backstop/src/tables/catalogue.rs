//! What a database says about a table: its columns, their types, its indexes.

/// What a catalogue has under a name.
pub(super) enum CatalogueLookup {
    Table(TableCatalogue),
    /// None of that name, but these.
    Others(Vec<String>),
}

/// A table as its database knows it.
#[derive(Clone, Debug)]
pub(super) struct TableCatalogue {
    /// Its name, quoted, with its schema where it has one: ready for a statement.
    pub(super) quoted: String,
    pub(super) name: String,
    pub(super) relation: RelationKind,
    pub(super) columns: Vec<TableColumn>,
    pub(super) indexes: Vec<TableIndex>,
}

/// What rows are kept in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RelationKind {
    Table,
    /// A table in parts. Its database keeps a column unique only together with the one that says
    /// which part.
    Parts,
    /// It shows rows of other tables, and has no indexes of its own.
    View,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TableColumn {
    pub(super) name: String,
    /// Its type as people write it.
    pub(super) type_name: String,
    /// The type that a parameter is cast to, where a database asks for that.
    pub(super) cast: String,
    pub(super) kind: ColumnKind,
    /// Digits of a second, of a column of times.
    pub(super) digits: u8,
}

/// What a column can hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ColumnKind {
    Whole,
    /// Numbers that have a part.
    Real,
    Text,
    Time,
    Bytes,
    /// Whatever somebody puts there: SQLite's columns without a clear type.
    Any,
    Other,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TableIndex {
    pub(super) name: String,
    /// Its columns in their order; empty text for an expression.
    pub(super) columns: Vec<String>,
    /// Whether it holds only some of the rows.
    pub(super) is_partial: bool,
    pub(super) is_unique: bool,
}

impl TableCatalogue {
    /// The column that somebody means: of this name, or else the only one with other capitals.
    pub(super) fn column(&self, wanted: &str) -> Option<&TableColumn> {
        let at = match_name(
            wanted,
            self.columns.iter().map(|column| column.name.as_str()),
        )?;
        self.columns.get(at)
    }

    /// An index over all rows that begins with these columns, in any order of the first `free` of
    /// them.
    pub(super) fn index(&self, columns: &[&str], free: usize) -> Option<&TableIndex> {
        self.indexes.iter().find(|index| {
            let begins = index.columns.get(..columns.len());
            !index.is_partial
                && begins.is_some_and(|begins| {
                    let (any, fixed) = columns.split_at(free.min(columns.len()));
                    any.iter()
                        .all(|column| begins[..any.len()].iter().any(|has| has == column))
                        && fixed
                            .iter()
                            .zip(&begins[any.len()..])
                            .all(|(column, has)| has == column)
                })
        })
    }

    /// Whether a column alone tells every row from all others.
    pub(super) fn is_unique(&self, column: &str) -> bool {
        self.indexes
            .iter()
            .any(|index| index.is_unique && !index.is_partial && index.columns == [column])
    }
}

/// Which of these names somebody means: the one that is the same, or else the only one with other
/// capitals.
pub(super) fn match_name<'a>(
    wanted: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Option<usize> {
    if let Some(at) = names.clone().position(|name| name == wanted) {
        return Some(at);
    }
    let mut alike = names
        .enumerate()
        .filter(|(_, name)| name.eq_ignore_ascii_case(wanted));
    let (at, _) = alike.next()?;
    alike.next().is_none().then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_or_the_only_one_with_other_capitals() {
        let find = |wanted, names: &[&str]| match_name(wanted, names.iter().copied());
        assert_eq!(find("ID", &["id", "ID"]), Some(1));
        assert_eq!(find("ID", &["name", "id"]), Some(1));
        assert_eq!(find("Id", &["id", "ID"]), None, "nobody knows which");
        assert_eq!(find("ID\"; DROP TABLE x; --", &["id"]), None);
    }

    #[test]
    fn an_index_helps_if_it_begins_with_the_columns() {
        let index = |columns: &[&str], is_partial| TableIndex {
            name: "i".to_owned(),
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
            is_partial,
            is_unique: false,
        };
        let has = |columns: &[&str], is_partial| {
            let indexes = vec![index(columns, is_partial)];
            let catalogue = TableCatalogue {
                quoted: String::new(),
                name: String::new(),
                relation: RelationKind::Table,
                columns: Vec::new(),
                indexes,
            };
            catalogue
                .index(&["status", "failures", "last"], 2)
                .is_some()
        };
        assert!(has(&["status", "failures", "last", "more"], false));
        assert!(has(&["failures", "status", "last"], false));
        assert!(!has(&["status", "last", "failures"], false));
        assert!(!has(&["status", "failures"], false));
        assert!(!has(&["status", "failures", "last"], true));
    }
}
