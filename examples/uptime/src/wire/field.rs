//! The fields of a result one by one, so that an error names the field it is about.

use crate::limits::{EXCERPT_CHARS_MAX, RESULT_BYTES_MAX, RESULT_DEPTH_MAX};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Why something is not a result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Broken {
    /// It is too large to be one.
    #[error("it has {0} bytes; a result has at most {RESULT_BYTES_MAX}")]
    TooLarge(usize),
    /// It is not text.
    #[error("it is not UTF-8 from byte {0} on")]
    NotText(usize),
    /// It is not one JSON object.
    #[error("it is not a JSON object with each field once: {0}")]
    NotAnObject(String),
    /// It is nested too deep.
    #[error("it is nested {0} deep; a result at most {RESULT_DEPTH_MAX}")]
    TooDeep(usize),
    /// It lacks a field.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// A field does not say what it must.
    #[error("`{field}` is {found}: {problem}")]
    Wrong {
        /// The field.
        field: &'static str,
        /// What it must be.
        problem: String,
        /// What it is, cut short.
        found: String,
    },
}

impl Broken {
    pub(super) fn wrong(field: &'static str, problem: &str, found: &str) -> Self {
        Self::Wrong {
            field,
            problem: problem.to_owned(),
            found: excerpt(found),
        }
    }
}

/// The fields that are known, each as the text it came in.
#[derive(Deserialize)]
pub(super) struct Fields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) guid: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) subscription_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) status: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) status_reason: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) trace_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) span_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) scheduled_check_time_ms: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) actual_check_time_ms: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) duration_ms: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) request_info: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) request_info_list: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) region: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) assertion_failure_data: Option<&'a RawValue>,
}

impl<'a> Fields<'a> {
    pub(super) fn read(text: &'a str) -> Result<Self, Broken> {
        // A struct may be written as an array in serde's eyes; not on this wire.
        if !text.trim_start().starts_with('{') {
            return Err(Broken::NotAnObject(format!(
                "it begins with {}",
                excerpt(text.trim_start())
            )));
        }
        let fields =
            serde_json::from_str(text).map_err(|error| Broken::NotAnObject(error.to_string()))?;
        match depth(text) {
            deep if deep > RESULT_DEPTH_MAX => Err(Broken::TooDeep(deep)),
            _ => Ok(fields),
        }
    }
}

/// A field that must be there, even if it is null.
pub(super) fn required<'a, T: Deserialize<'a>>(
    name: &'static str,
    raw: Option<&'a RawValue>,
) -> Result<T, Broken> {
    read(name, raw.ok_or(Broken::Missing(name))?)
}

/// A field that may be absent.
pub(super) fn optional<'a, T: Deserialize<'a>>(
    name: &'static str,
    raw: Option<&'a RawValue>,
) -> Result<Option<T>, Broken> {
    raw.map_or(Ok(None), |raw| read(name, raw))
}

fn read<'a, T: Deserialize<'a>>(name: &'static str, raw: &'a RawValue) -> Result<T, Broken> {
    serde_json::from_str(raw.get()).map_err(|error| {
        // The place within a field helps nobody who sees the whole line.
        let problem = error.to_string();
        let problem = problem.split(" at line ").next().unwrap_or(&problem);
        Broken::wrong(name, problem, raw.get())
    })
}

/// Null is a value here; only absence is nothing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// How deep JSON is nested, where it is known to be JSON. Fields that nobody reads count too.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut is_escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn excerpt(text: &str) -> String {
    let mut shown: String = text.chars().take(EXCERPT_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    if shown.is_empty() {
        "nothing".to_owned()
    } else {
        shown
    }
}
