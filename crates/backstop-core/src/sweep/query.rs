//! Prepares users' SQL queries for a database driver.
//!
//! `:cutoff` becomes a parameter in the notation of the database, wherever it stands in the query
//! itself, but not in a string, a quoted name or a comment. No value is ever put into the text, so
//! SQL injection is impossible. A query is one statement.

use std::fmt::Write;

/// The parameter's name in a query.
const CUTOFF: &str = ":cutoff";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SqlDialect {
    Sqlite,
    Postgres,
    Mysql,
}

/// A query with its parameters in place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundQuery {
    /// The text of the query, without the final semicolon.
    pub sql: String,
    /// How often the cutoff occurs in the query.
    pub cutoffs: usize,
}

/// A query that a sweep cannot use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuery {
    /// The query has no cutoff, so it would find rows however young.
    #[error(
        "the query does not say `:cutoff`; compare the row's time with it, such as created_at <= :cutoff"
    )]
    NoCutoff,
    /// The query has more than one statement.
    #[error("the query has a `;` with more behind it; write one statement")]
    Several,
    /// The query is not one that only reads.
    #[error("the query must be a SELECT: it would write, or gives no columns")]
    NotASelect,
}

/// The first words of statements that only read.
const READING: [&str; 4] = ["SELECT", "WITH", "VALUES", "TABLE"];

impl BoundQuery {
    /// Rewrites the query into the notation of the database.
    pub fn new(query: &str, dialect: SqlDialect) -> Result<Self, InvalidQuery> {
        let mut bound = Self {
            sql: String::with_capacity(query.len()),
            cutoffs: 0,
        };
        let (mut rest, mut has_ended) = (query, false);
        while let Some(piece) = SqlToken::first(rest, dialect) {
            let (text, behind) = rest.split_at(piece.len);
            match piece.kind {
                SqlTokenKind::Blank => bound.sql.push_str(text),
                SqlTokenKind::End => has_ended = true,
                _ if has_ended => return Err(InvalidQuery::Several),
                SqlTokenKind::Text => bound.sql.push_str(text),
                SqlTokenKind::Cutoff => bound.put_cutoff(dialect),
            }
            rest = behind;
        }
        if bound.cutoffs == 0 {
            Err(InvalidQuery::NoCutoff)
        } else {
            Ok(bound)
        }
    }

    /// Rejects a query that does not begin like a SELECT. The database itself detects other
    /// statements that would write.
    pub fn check_reads(query: &str, dialect: SqlDialect) -> Result<(), InvalidQuery> {
        let mut rest = query;
        while let Some(piece) = SqlToken::first(rest, dialect) {
            let (text, behind) = rest.split_at(piece.len);
            match piece.kind {
                SqlTokenKind::Text if text == "(" => rest = behind,
                SqlTokenKind::Blank => rest = behind,
                _ if READING.iter().any(|word| text.eq_ignore_ascii_case(word)) => return Ok(()),
                _ => break,
            }
        }
        Err(InvalidQuery::NotASelect)
    }

    fn put_cutoff(&mut self, dialect: SqlDialect) {
        self.cutoffs += 1;
        self.sql.push_str(match dialect {
            SqlDialect::Sqlite => "?1",
            SqlDialect::Postgres => "$1",
            SqlDialect::Mysql => "?",
        });
    }

    /// Wraps the query in another one that returns each row as one JSON text, at most `max` rows.
    /// This is for PostgreSQL, which knows best how to write its types as JSON.
    #[must_use]
    pub fn as_json_rows(&self, max: usize) -> String {
        let mut sql = String::with_capacity(self.sql.len() + 64);
        // The query stands on its own line, because it may end in a comment.
        let _ = write!(
            sql,
            "SELECT row_to_json(q)::text FROM (\n{}\n) AS q LIMIT {max}",
            self.sql
        );
        sql
    }
}

/// A token of a query: its kind, and its length in bytes.
struct SqlToken {
    kind: SqlTokenKind,
    len: usize,
}

enum SqlTokenKind {
    Blank,
    End,
    Cutoff,
    Text,
}

impl SqlToken {
    /// The first token of a text; `None` at the end of the text.
    fn first(text: &str, dialect: SqlDialect) -> Option<Self> {
        let first = text.chars().next()?;
        if let Some(len) = comment(text, dialect) {
            return Some(Self {
                kind: SqlTokenKind::Blank,
                len,
            });
        }
        if let Some(len) = quoted(text, dialect) {
            return Some(Self {
                kind: SqlTokenKind::Text,
                len,
            });
        }
        let (kind, len) = match first {
            ';' => (SqlTokenKind::End, 1),
            ':' if text.starts_with("::") => (SqlTokenKind::Text, 2),
            ':' if is_cutoff(text) => (SqlTokenKind::Cutoff, CUTOFF.len()),
            first if first.is_whitespace() => (SqlTokenKind::Blank, first.len_utf8()),
            // Take a whole word, so that a quote right after a letter does not begin a token.
            first if is_word(first) => (SqlTokenKind::Text, word(text, dialect)),
            first => (SqlTokenKind::Text, first.len_utf8()),
        };
        Some(Self { kind, len })
    }
}

fn is_cutoff(text: &str) -> bool {
    text.strip_prefix(CUTOFF)
        .is_some_and(|behind| !behind.starts_with(is_word))
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_' || char == '$'
}

/// The length of a word, with a string that belongs to it: PostgreSQL's `E'it\'s'`.
fn word(text: &str, dialect: SqlDialect) -> usize {
    let len = text.find(|char| !is_word(char)).unwrap_or(text.len());
    let escapes = dialect == SqlDialect::Postgres && text[..len].eq_ignore_ascii_case("e");
    if escapes && text[len..].starts_with('\'') {
        len + string(&text[len..], '\'', true)
    } else {
        len
    }
}

fn comment(text: &str, dialect: SqlDialect) -> Option<usize> {
    let line = || text.find('\n').unwrap_or(text.len());
    if let Some(behind) = text.strip_prefix("--") {
        // In MySQL `5--1` is a difference, and only `--` with a blank behind it begins a comment.
        let is_one =
            dialect != SqlDialect::Mysql || behind.chars().next().is_none_or(char::is_whitespace);
        return is_one.then(line);
    }
    if dialect == SqlDialect::Mysql && text.starts_with('#') {
        return Some(line());
    }
    text.starts_with("/*")
        .then(|| block_comment(text, dialect == SqlDialect::Postgres))
}

/// The length of a block comment; PostgreSQL's comments may nest.
fn block_comment(text: &str, nests: bool) -> usize {
    let (mut depth, mut at) = (1_usize, 2);
    while at < text.len() && depth > 0 {
        let rest = &text.as_bytes()[at..];
        match (rest.starts_with(b"*/"), nests && rest.starts_with(b"/*")) {
            (true, _) => (depth, at) = (depth - 1, at + 2),
            (_, true) => (depth, at) = (depth + 1, at + 2),
            _ => at += 1,
        }
    }
    at.min(text.len())
}

/// The length of a string or a quoted name, with its quotes.
fn quoted(text: &str, dialect: SqlDialect) -> Option<usize> {
    let first = text.chars().next()?;
    let is_mysql = dialect == SqlDialect::Mysql;
    match first {
        '\'' => Some(string(text, '\'', is_mysql)),
        '"' => Some(string(text, '"', is_mysql)),
        '`' if dialect != SqlDialect::Postgres => Some(string(text, '`', false)),
        '[' if dialect == SqlDialect::Sqlite => {
            Some(text.find(']').map_or(text.len(), |at| at + 1))
        }
        '$' if dialect == SqlDialect::Postgres => dollars(text),
        _ => None,
    }
}

/// The length up to the next quote that is neither doubled nor, with `escapes`, behind a backslash.
fn string(text: &str, quote: char, escapes: bool) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, char)) = chars.next() {
        if escapes && char == '\\' {
            chars.next();
        } else if char == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return at + quote.len_utf8();
        }
    }
    text.len()
}

fn dollars(text: &str) -> Option<usize> {
    let tag = text[1..].find('$').map(|at| &text[..at + 2])?;
    let name = &tag[1..tag.len() - 1];
    let is_tag = name
        .chars()
        .all(|char| char.is_alphanumeric() || char == '_')
        && !name.starts_with(|char: char| char.is_ascii_digit());
    is_tag.then(|| {
        text[tag.len()..]
            .find(tag)
            .map_or(text.len(), |at| at + 2 * tag.len())
    })
}
