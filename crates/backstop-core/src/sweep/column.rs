//! A row of a query, and its values as JSON has them.

use serde_json::{Number, Value};
use std::sync::Arc;

/// A row: the names of its columns, and a value for each.
#[derive(Clone, PartialEq, Debug)]
pub struct QueryRow {
    columns: Arc<[String]>,
    values: Vec<Value>,
}

impl QueryRow {
    /// A row with these columns; values that are missing are null.
    pub fn new(columns: Arc<[String]>, mut values: Vec<Value>) -> Self {
        values.resize(columns.len(), Value::Null);
        Self { columns, values }
    }

    /// The value of a column, if there is one of this name: written like this, or else with other
    /// capitals.
    pub fn get(&self, column: &str) -> Option<&Value> {
        let named = |is: &dyn Fn(&String) -> bool| self.columns.iter().position(is);
        let at = named(&|name| name == column)
            .or_else(|| named(&|name| name.eq_ignore_ascii_case(column)));
        at.and_then(|at| self.values.get(at))
    }

    /// The names of its columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// What it is known by: its column `id`, or else its first.
    pub fn id(&self) -> Value {
        self.get("id")
            .or_else(|| self.values.first())
            .cloned()
            .unwrap_or_default()
    }

    /// All of it, as an object.
    pub fn object(&self) -> Value {
        self.columns
            .iter()
            .cloned()
            .zip(self.values.iter().cloned())
            .collect()
    }
}

/// A decimal number in digits: a JSON number if no reader of one could lose any of it, text
/// otherwise.
pub fn decimal(digits: &str) -> Value {
    if let Ok(whole) = digits.parse::<i64>() {
        return whole.into();
    }
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.into();
    }
    // The shortest digits of the double that a reader makes of it: where they are the same, nothing
    // was lost.
    let number = digits
        .parse::<f64>()
        .ok()
        .filter(|number| plain(&number.to_string()) == plain(digits));
    number
        .and_then(Number::from_f64)
        .map_or_else(|| digits.into(), Value::Number)
}

/// Digits without a plus, and without zeros that say nothing.
fn plain(digits: &str) -> String {
    let digits = digits.strip_prefix('+').unwrap_or(digits);
    let (sign, digits) = digits
        .strip_prefix('-')
        .map_or(("", digits), |digits| ("-", digits));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    format!(
        "{sign}{}.{}",
        whole.trim_start_matches('0'),
        part.trim_end_matches('0')
    )
}
