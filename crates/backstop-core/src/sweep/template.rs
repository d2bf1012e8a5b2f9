//! Templates: texts and payloads with columns of a row in braces.
//!
//! | template | result |
//! |---|---|
//! | `order:{id}` | the value of the column as text, between the rest |
//! | `{id}` alone, in a payload | the value of the column with its own type |
//! | `{{` and `}}` | a brace |
//! | a column that the query does not have | an error that lists the columns of the query |
//! | a column that is NULL, in a key | the row has no key, and is reported |

use super::column::QueryRow;
use serde_json::{Map, Value};
use std::iter::Peekable;
use std::str::Chars;

/// A text with columns in braces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextTemplate(Vec<TemplatePart>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum TemplatePart {
    Text(String),
    Column(String),
}

/// A text that is not a valid template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    /// A brace is not closed.
    #[error("`{0}` has a {{ without its }}; write {{{{ for a brace")]
    Open(String),
    /// A closing brace has no opening one.
    #[error("`{0}` has a }} without its {{; write }}}} for a brace")]
    Close(String),
    /// There is no column between the braces.
    #[error(
        "`{0}` has braces without a column between them; write the column's name, or {{{{}}}} for braces"
    )]
    Empty(String),
}

/// A column that the query does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no column `{column}` in the query; it has {}", quote_columns(.columns))]
pub struct UnknownColumn {
    /// The column that the template names.
    pub column: String,
    pub columns: Vec<String>,
}

/// A row that cannot fill the template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRow {
    #[error(transparent)]
    Unknown(#[from] UnknownColumn),
    /// A column of the key is NULL.
    #[error("column `{0}` is NULL, and the unique key is made of it")]
    Null(String),
}

fn quote_columns(columns: &[String]) -> String {
    let quoted: Vec<String> = columns.iter().map(|column| format!("`{column}`")).collect();
    quoted.join(", ")
}

impl TextTemplate {
    /// Parses a text into a template.
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        let (mut parts, mut plain) = (Vec::new(), String::new());
        let mut chars = text.chars().peekable();
        while let Some(char) = chars.next() {
            match char {
                '{' | '}' if chars.next_if_eq(&char).is_some() => plain.push(char),
                '}' => return Err(InvalidTemplate::Close(text.to_owned())),
                '{' => {
                    if !plain.is_empty() {
                        parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
                    }
                    parts.push(TemplatePart::Column(column(&mut chars, text)?));
                }
                char => plain.push(char),
            }
        }
        if !plain.is_empty() {
            parts.push(TemplatePart::Text(plain));
        }
        Ok(Self(parts))
    }

    /// Fills in the values of a row.
    pub fn fill(&self, row: &QueryRow) -> Result<String, InvalidRow> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                TemplatePart::Text(plain) => text.push_str(plain),
                TemplatePart::Column(column) => match value(row, column)? {
                    Value::Null => return Err(InvalidRow::Null(column.clone())),
                    value => text.push_str(&in_text(value)),
                },
            }
        }
        Ok(text)
    }

    /// Whether this text can be a result of the template, for any row.
    pub fn fits(&self, text: &str) -> bool {
        let is_last = |at: usize| at + 1 == self.0.len();
        let mut rest = Some(text);
        let mut after_column = false;
        for (at, part) in self.0.iter().enumerate() {
            let Some(left) = rest else { return false };
            match part {
                TemplatePart::Column(_) => after_column = true,
                TemplatePart::Text(plain) if after_column && is_last(at) => {
                    rest = left.strip_suffix(plain.as_str()).map(|_| "");
                    after_column = false;
                }
                TemplatePart::Text(plain) if after_column => {
                    rest = left.split_once(plain.as_str()).map(|(_, behind)| behind);
                    after_column = false;
                }
                TemplatePart::Text(plain) => rest = left.strip_prefix(plain.as_str()),
            }
        }
        rest.is_some_and(|left| after_column || left.is_empty())
    }

    /// Whether the result is the same for every row.
    pub fn is_constant(&self) -> bool {
        !self
            .0
            .iter()
            .any(|part| matches!(part, TemplatePart::Column(_)))
    }

    /// Rejects columns that a query does not have.
    pub fn check(&self, columns: &[String]) -> Result<(), UnknownColumn> {
        let row = QueryRow::new(columns.into(), Vec::new());
        let mut named = self.0.iter().filter_map(|part| match part {
            TemplatePart::Column(column) => Some(column),
            TemplatePart::Text(_) => None,
        });
        named.try_for_each(|column| value(&row, column).map(drop))
    }

    /// The value of the column with its own type, if the template is only that column; text
    /// otherwise.
    fn value(&self, row: &QueryRow) -> Result<Value, UnknownColumn> {
        if let [TemplatePart::Column(column)] = self.0.as_slice() {
            return value(row, column).cloned();
        }
        let texts = self.0.iter().map(|part| match part {
            TemplatePart::Text(plain) => Ok(plain.clone()),
            TemplatePart::Column(column) => value(row, column).map(in_text),
        });
        texts.collect::<Result<String, _>>().map(Value::String)
    }
}

/// Reads the name of a column, up to the next closing brace.
fn column(chars: &mut Peekable<Chars<'_>>, text: &str) -> Result<String, InvalidTemplate> {
    let mut name = String::new();
    loop {
        match chars.next() {
            Some('}') if name.trim().is_empty() => {
                return Err(InvalidTemplate::Empty(text.to_owned()));
            }
            Some('}') => return Ok(name.trim().to_owned()),
            Some('{') | None => return Err(InvalidTemplate::Open(text.to_owned())),
            Some(char) => name.push(char),
        }
    }
}

fn value<'r>(row: &'r QueryRow, column: &str) -> Result<&'r Value, UnknownColumn> {
    let unknown = || UnknownColumn {
        column: column.to_owned(),
        columns: row.columns().to_vec(),
    };
    row.get(column).ok_or_else(unknown)
}

/// The text of a value between other text.
fn in_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A template of a payload: JSON whose texts are templates.
#[derive(Clone, PartialEq, Debug)]
pub enum PayloadTemplate {
    /// The row itself, as a JSON object of its columns.
    Row,
    /// A value that is the same for every row.
    Fixed(Value),
    Text(TextTemplate),
    List(Vec<PayloadTemplate>),
    Object(Vec<(String, PayloadTemplate)>),
}

impl PayloadTemplate {
    /// Parses a JSON value into a template.
    pub fn parse(json: &Value) -> Result<Self, InvalidTemplate> {
        Ok(match json {
            Value::String(text) => Self::Text(TextTemplate::parse(text)?),
            Value::Array(values) => {
                Self::List(values.iter().map(Self::parse).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                let fields = fields
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), Self::parse(value)?)));
                Self::Object(fields.collect::<Result<_, InvalidTemplate>>()?)
            }
            other => Self::Fixed(other.clone()),
        })
    }

    /// Fills in the values of a row.
    pub fn fill(&self, row: &QueryRow) -> Result<Value, UnknownColumn> {
        Ok(match self {
            Self::Row => row.object(),
            Self::Fixed(value) => value.clone(),
            Self::Text(template) => template.value(row)?,
            Self::List(shapes) => shapes
                .iter()
                .map(|shape| shape.fill(row))
                .collect::<Result<_, _>>()?,
            Self::Object(fields) => {
                let filled = fields
                    .iter()
                    .map(|(name, shape)| Ok((name.clone(), shape.fill(row)?)));
                Value::Object(filled.collect::<Result<Map<_, _>, UnknownColumn>>()?)
            }
        })
    }

    /// Rejects columns that a query does not have.
    pub fn check(&self, columns: &[String]) -> Result<(), UnknownColumn> {
        self.fill(&QueryRow::new(columns.into(), Vec::new()))
            .map(drop)
    }
}
