//! Lists in requests, read no further than their bound.

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// How the error begins that a list with too many entries is read with: it is answered with 413.
pub const TOO_MANY: &str = "too many entries: ";

/// A list of at most `MAX` entries. Reading stops at the first one beyond.
#[derive(Debug)]
pub struct LimitedList<T, const MAX: usize>(pub Vec<T>);

impl<T, const MAX: usize> Default for LimitedList<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for LimitedList<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(LimitedListVisitor(PhantomData))
    }
}

struct LimitedListVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for LimitedListVisitor<T, MAX> {
    type Value = LimitedList<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while list.len() < MAX {
            match entries.next_element()? {
                Some(entry) => list.push(entry),
                None => return Ok(LimitedList(list)),
            }
        }
        match entries.next_element::<IgnoredAny>()? {
            None => Ok(LimitedList(list)),
            Some(_) => Err(A::Error::custom(format_args!(
                "{TOO_MANY}at most {MAX} go into one request. Send them in several"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_up_to_its_bound_and_no_further() {
        let list: LimitedList<u8, 3> = serde_json::from_str("[1,2,3]").unwrap();
        assert_eq!(list.0, [1, 2, 3]);
        let list: LimitedList<u8, 3> = serde_json::from_str("[]").unwrap();
        assert!(list.0.is_empty());
        // What comes behind the entry that is too many is not even looked at.
        let error = serde_json::from_str::<LimitedList<u8, 3>>("[1,2,3,4,!!!")
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(TOO_MANY) && error.contains("at most 3"),
            "{error}"
        );
        let error = serde_json::from_str::<LimitedList<u8, 3>>("{}")
            .unwrap_err()
            .to_string();
        assert!(error.contains("expected a list"), "{error}");
    }
}
