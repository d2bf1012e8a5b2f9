//! Decodes replies of scripts and commands. A reply of an unexpected shape becomes `None`.

use redis::Value;

pub(crate) fn list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(values) | Value::Set(values) => Some(values),
        _ => None,
    }
}

pub(crate) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.into_bytes()),
        _ => None,
    }
}

pub(crate) fn text(value: Value) -> Option<String> {
    String::from_utf8(bytes(value)?).ok()
}

/// An integer, also one written in digits.
pub(crate) fn whole(value: Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(number),
        other => text(other)?.parse().ok(),
    }
}

pub(crate) fn count(value: Value) -> Option<usize> {
    usize::try_from(whole(value)?).ok()
}

pub(crate) fn all_bytes(value: Value) -> Option<Vec<Vec<u8>>> {
    list(value)?.into_iter().map(bytes).collect()
}

/// A flat list of pairs of bytes, as Redis returns a hash.
pub(crate) fn pairs(value: Value) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    if let Value::Map(entries) = value {
        return entries
            .into_iter()
            .map(|(key, value)| Some((bytes(key)?, bytes(value)?)))
            .collect();
    }
    let mut values = list(value)?.into_iter();
    let mut pairs = Vec::with_capacity(values.len() / 2);
    while let (Some(first), Some(second)) = (values.next(), values.next()) {
        pairs.push((bytes(first)?, bytes(second)?));
    }
    Some(pairs)
}

/// The next cursor of a scan, and what it found.
pub(crate) fn scanned(value: Value) -> Option<(String, Vec<Vec<u8>>)> {
    let mut parts = list(value)?.into_iter();
    Some((text(parts.next()?)?, all_bytes(parts.next()?)?))
}
