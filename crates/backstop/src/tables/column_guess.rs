//! Which column somebody means whose table calls it otherwise: by its name and its type, and never
//! more than a proposal.

use super::catalogue::{ColumnKind, TableCatalogue, TableColumn};

/// What the names of columns for a role have in them, the likeliest first, and what others have in
/// theirs.
struct ColumnHints {
    like: &'static [&'static str],
    unlike: &'static [&'static str],
}

fn hints(role: &str) -> ColumnHints {
    match role {
        "id" => ColumnHints {
            like: &["id", "uuid", "key", "number", "no"],
            unlike: &[],
        },
        "status" => ColumnHints {
            like: &["status", "state", "stage", "phase"],
            unlike: &["date", "at", "time"],
        },
        "inserted" => ColumnHints {
            like: &[
                "inserted", "created", "enqueued", "queued", "added", "received", "entered",
                "date", "time", "at",
            ],
            unlike: &[
                "fail", "error", "updat", "modif", "delet", "last", "next", "done", "finish", "end",
            ],
        },
        "failures" => ColumnHints {
            like: &[
                "failures", "failed", "fail", "attempt", "retries", "retry", "tries", "error",
            ],
            unlike: &["last", "date", "at", "time", "max", "text", "message"],
        },
        _ => ColumnHints {
            like: &[
                "last_failure",
                "failed_at",
                "fail",
                "error",
                "attempt",
                "tried",
                "retr",
            ],
            unlike: &["count", "text", "message", "next", "reason"],
        },
    }
}

/// Whether a column can hold what the role is about.
const fn fits(role: &str, kind: ColumnKind) -> bool {
    match role.as_bytes() {
        b"id" => !matches!(kind, ColumnKind::Real | ColumnKind::Time),
        b"status" => !matches!(
            kind,
            ColumnKind::Real | ColumnKind::Time | ColumnKind::Bytes
        ),
        b"failures" => matches!(kind, ColumnKind::Whole | ColumnKind::Any),
        _ => matches!(
            kind,
            ColumnKind::Time | ColumnKind::Text | ColumnKind::Whole | ColumnKind::Any
        ),
    }
}

/// Short hints are words of a name, longer ones may be part of one: `at` is not in `state`.
fn has(name: &str, hint: &str) -> bool {
    let is_word = || {
        name.split(|c: char| !c.is_ascii_alphanumeric())
            .any(|word| word == hint)
    };
    if hint.len() > 4 {
        name.contains(hint)
    } else {
        is_word() || (hint.len() == 4 && name.contains(hint))
    }
}

/// The column that is most likely meant for a role, of those that no other role has.
pub(super) fn likely_column<'a>(
    role: &str,
    catalogue: &'a TableCatalogue,
    taken: &[&str],
) -> Option<&'a TableColumn> {
    let hints = hints(role);
    let is_free =
        |column: &&TableColumn| fits(role, column.kind) && !taken.contains(&column.name.as_str());
    let free: Vec<(&TableColumn, String)> = catalogue
        .columns
        .iter()
        .filter(is_free)
        .map(|column| (column, column.name.to_ascii_lowercase()))
        .filter(|(_, name)| !hints.unlike.iter().any(|hint| has(name, hint)))
        .collect();
    let hinted = hints
        .like
        .iter()
        .find_map(|hint| free.iter().find(|(_, name)| has(name, hint)));
    let lone = || match role {
        "id" => free
            .iter()
            .find(|(column, _)| catalogue.is_unique(&column.name)),
        "inserted" => free
            .iter()
            .find(|(column, _)| column.kind == ColumnKind::Time),
        _ => None,
    };
    hinted.or_else(lone).map(|(column, _)| *column)
}

/// The entry that names them, as it stands in the configuration.
pub(super) fn entry(columns: &[(&str, &str)]) -> String {
    let one = |(role, name): &(&str, &str)| format!("{role} = {}", serde_json::Value::from(*name));
    format!(
        "columns = {{ {} }}",
        columns.iter().map(one).collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::{RelationKind, TableIndex};
    use super::*;

    fn catalogue(columns: &[(&str, ColumnKind)]) -> TableCatalogue {
        let column = |(name, kind): &(&str, ColumnKind)| TableColumn {
            name: (*name).to_owned(),
            type_name: String::new(),
            cast: String::new(),
            kind: *kind,
            digits: 0,
        };
        TableCatalogue {
            quoted: String::new(),
            name: String::new(),
            relation: RelationKind::Table,
            columns: columns.iter().map(column).collect(),
            indexes: vec![TableIndex {
                name: "p".to_owned(),
                columns: vec!["nr".to_owned()],
                is_partial: false,
                is_unique: true,
            }],
        }
    }

    #[test]
    fn a_column_is_proposed_by_its_name_and_type() {
        use ColumnKind::{Text, Time, Whole};
        let orders = catalogue(&[
            ("nr", Whole),
            ("order_state", Text),
            ("estate_date", Text),
            ("updated_at", Time),
            ("created_at", Time),
            ("attempts", Whole),
            ("last_error_at", Time),
            ("last_error_text", Text),
        ]);
        let propose = |role, taken: &[&str]| {
            likely_column(role, &orders, taken).map(|column| column.name.as_str())
        };
        assert_eq!(propose("id", &[]), Some("nr"), "it is the only unique one");
        assert_eq!(propose("status", &[]), Some("order_state"));
        assert_eq!(propose("inserted", &[]), Some("created_at"));
        assert_eq!(propose("inserted", &["created_at"]), Some("estate_date"));
        assert_eq!(propose("failures", &[]), Some("attempts"));
        assert_eq!(propose("last_failure", &[]), Some("last_error_at"));
        assert_eq!(propose("failures", &["attempts"]), None);
    }

    #[test]
    fn the_entry_can_be_pasted() {
        let entry = entry(&[("inserted", "created_at"), ("status", "a \"b\"")]);
        assert_eq!(
            entry,
            r#"columns = { inserted = "created_at", status = "a \"b\"" }"#
        );
    }
}
