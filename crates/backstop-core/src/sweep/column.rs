//! A row of a query, and its values as JSON has them.

use serde_json::{Number, Value};
use std::sync::Arc;

/// Digits that every reader of JSON numbers keeps.
const DIGITS_MAX: usize = 15;

/// A row: the names of its columns, and a value for each.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    columns: Arc<[String]>,
    values: Vec<Value>,
}

impl Row {
    /// A row with these columns; values that are missing are null.
    pub fn new(columns: Arc<[String]>, mut values: Vec<Value>) -> Self {
        values.resize(columns.len(), Value::Null);
        Self { columns, values }
    }

    /// The value of a column, if there is one of this name: written like this, or else with other capitals.
    pub fn get(&self, column: &str) -> Option<&Value> {
        let named = |is: &dyn Fn(&String) -> bool| self.columns.iter().position(is);
        let at = named(&|name| name == column).or_else(|| named(&|name| name.eq_ignore_ascii_case(column)));
        at.and_then(|at| self.values.get(at))
    }

    /// The names of its columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// What it is known by: its column `id`, or else its first.
    pub fn id(&self) -> Value {
        self.get("id").or_else(|| self.values.first()).cloned().unwrap_or_default()
    }

    /// All of it, as an object.
    pub fn object(&self) -> Value {
        self.columns.iter().cloned().zip(self.values.iter().cloned()).collect()
    }
}

/// A decimal number in digits: a JSON number if no reader of one could lose any of it, text otherwise.
pub fn decimal(digits: &str) -> Value {
    if let Ok(whole) = digits.parse::<i64>() {
        return whole.into();
    }
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.into();
    }
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || b"+-.".contains(&byte));
    let significant = digits.trim_start_matches(['+', '-', '0', '.']).bytes().filter(u8::is_ascii_digit).count();
    let number = digits.parse::<f64>().ok().filter(|_| is_plain && significant <= DIGITS_MAX);
    number.and_then(Number::from_f64).map_or_else(|| digits.into(), Value::Number)
}
