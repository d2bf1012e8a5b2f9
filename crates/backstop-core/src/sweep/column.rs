//! The rows of a query, with their values as JSON.

use serde_json::{Number, Value};
use std::sync::Arc;

/// A row: the names of its columns, and a value for each.
#[derive(Clone, PartialEq, Debug)]
pub struct QueryRow {
    columns: Arc<[String]>,
    values: Vec<Value>,
}

impl QueryRow {
    /// A row with these columns; missing values are null.
    pub fn new(columns: Arc<[String]>, mut values: Vec<Value>) -> Self {
        values.resize(columns.len(), Value::Null);
        Self { columns, values }
    }

    /// The value of a column. The exact name wins over one that differs in case.
    pub fn get(&self, column: &str) -> Option<&Value> {
        let named = |is: &dyn Fn(&String) -> bool| self.columns.iter().position(is);
        let at = named(&|name| name == column)
            .or_else(|| named(&|name| name.eq_ignore_ascii_case(column)));
        at.and_then(|at| self.values.get(at))
    }

    /// The names of the row's columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The value that identifies the row: its column `id`, or else its first column.
    pub fn id(&self) -> Value {
        self.get("id")
            .or_else(|| self.values.first())
            .cloned()
            .unwrap_or_default()
    }

    /// The whole row, as a JSON object.
    pub fn object(&self) -> Value {
        self.columns
            .iter()
            .cloned()
            .zip(self.values.iter().cloned())
            .collect()
    }
}

/// A decimal number: a JSON number if every reader can parse it without loss, text otherwise.
pub fn decimal(digits: &str) -> Value {
    if let Ok(whole) = digits.parse::<i64>() {
        return whole.into();
    }
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.into();
    }
    // Compare with the shortest digits of the double that a reader would make of it: if they are
    // equal, nothing is lost.
    let number = digits
        .parse::<f64>()
        .ok()
        .filter(|number| plain(&number.to_string()) == plain(digits));
    number
        .and_then(Number::from_f64)
        .map_or_else(|| digits.into(), Value::Number)
}

/// The digits without a plus sign, and without leading and trailing zeros.
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
