//! Findings made of rows as they come in: of each no more is kept than is asked for, and of all no
//! more than so many bytes. A query may give rows that are large, and a hundred thousand of them.

use super::{FindResult, FindScope, UnusableRow};
use backstop_core::limits::SWEEP_BYTES_MAX;
use backstop_core::payload::Payload;
use backstop_core::sweep::{Finding, PayloadTemplate, QueryRow, TextTemplate, UnknownColumn};
use backstop_core::unique::UniqueKey;
use serde_json::Value;

/// What jobs are made of.
#[derive(Clone, Debug)]
pub(super) struct FindingTemplate {
    pub(super) key: TextTemplate,
    pub(super) payload: PayloadTemplate,
}

impl FindingTemplate {
    fn finding(&self, row: &QueryRow) -> Result<Finding, String> {
        let key = self.key.fill(row).map_err(|error| error.to_string())?;
        let key = UniqueKey::new(&key).map_err(|error| error.to_string())?;
        let payload = self.payload.fill(row).map_err(|error| error.to_string())?;
        let payload = Payload::json(payload.to_string()).map_err(|error| error.to_string())?;
        Ok(Finding {
            row: row.id(),
            key,
            payload,
        })
    }
}

pub(super) struct FindingCollector {
    template: FindingTemplate,
    wanted: FindScope,
    max: usize,
    rows: usize,
    bytes: usize,
    found: FindResult,
}

impl FindingCollector {
    /// For at most `max` rows.
    pub(super) fn new(template: FindingTemplate, wanted: FindScope, max: usize) -> Self {
        Self {
            template,
            wanted,
            max,
            rows: 0,
            bytes: 0,
            found: FindResult::default(),
        }
    }

    /// Whether jobs can be made of rows with these columns.
    pub(super) fn check(&self, columns: &[String]) -> Result<(), UnknownColumn> {
        self.template.key.check(columns)?;
        self.template.payload.check(columns)
    }

    /// Takes a row in; whether another one may follow.
    pub(super) fn take(&mut self, row: &QueryRow) -> bool {
        self.rows += 1;
        match self.template.finding(row) {
            Ok(finding) => self.keep(finding),
            Err(why) => {
                let row = row.id();
                self.bytes += size(&row) + why.len();
                self.found.unusable.push(UnusableRow { row, why });
            }
        }
        self.found.is_cut = self.rows >= self.max || self.bytes >= SWEEP_BYTES_MAX;
        !self.found.is_cut
    }

    fn keep(&mut self, mut finding: Finding) {
        if !self.wanted.has(&finding.key) {
            return;
        }
        if self.wanted == FindScope::Keys {
            finding.payload = Payload::default();
        }
        self.bytes +=
            size(&finding.row) + finding.key.as_str().len() + finding.payload.as_bytes().len();
        self.found.findings.push(finding);
    }

    pub(super) fn found(self) -> FindResult {
        self.found
    }
}

/// About how many bytes a value takes.
fn size(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(_) | Value::Object(_) => value.to_string().len(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}
