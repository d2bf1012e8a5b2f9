//! Where a page ended, as text.

use backstop_core::State;
use backstop_core::port::{Answer, PageQuery, StoreError};
use std::fmt;

/// A place in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In a list by time.
    Timed { at: i64, no: i64 },
    /// In the ready lines.
    Line { queue: String, level: i64, seq: i64 },
    /// In a list by arrival.
    Arrival { no: i64 },
}

impl Place {
    /// Where a query goes on; `None` for its first page. A cursor of another list is refused.
    pub(crate) fn of(query: &PageQuery) -> Answer<Option<Self>> {
        let Some(cursor) = &query.cursor else { return Ok(None) };
        let place = Self::parse(cursor);
        let belongs = matches!(
            (query.filter.state, &place),
            (Some(State::Ready), Some(Self::Line { .. }))
                | (None | Some(State::Running), Some(Self::Arrival { .. }))
                | (
                    Some(State::Scheduled | State::Retrying | State::Done | State::Dead | State::Cancelled),
                    Some(Self::Timed { .. })
                )
        );
        if belongs {
            return Ok(place);
        }
        Err(StoreError::misuse("list jobs", "the cursor is not one this store made for this list"))
    }

    fn parse(cursor: &str) -> Option<Self> {
        let mut parts = cursor.split('~');
        let (list, mut part) = (parts.next()?, || parts.next());
        let place = match list {
            "t" => Self::Timed { at: part()?.parse().ok()?, no: part()?.parse().ok()? },
            "l" => Self::Line {
                queue: part()?.to_owned(),
                level: part()?.parse().ok()?,
                seq: part()?.parse().ok()?,
            },
            "a" => Self::Arrival { no: part()?.parse().ok()? },
            _ => return None,
        };
        part().is_none().then_some(place)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timed { at, no } => write!(f, "t~{at}~{no}"),
            Self::Line { queue, level, seq } => write!(f, "l~{queue}~{level}~{seq}"),
            Self::Arrival { no } => write!(f, "a~{no}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::amend::Filter;

    fn check(cursor: &str, state: Option<State>, expected: Option<&Place>) {
        let filter = Filter { state, ..Filter::default() };
        let query = PageQuery { filter, cursor: Some(cursor.to_owned()), limit: 1 };
        assert_eq!(Place::of(&query).ok().flatten().as_ref(), expected, "{cursor} for {state:?}");
    }

    #[test]
    fn a_cursor_reads_back_for_its_own_list_only() {
        let timed = Place::Timed { at: -5, no: 7 };
        check(&timed.to_string(), Some(State::Scheduled), Some(&timed));
        check(&timed.to_string(), Some(State::Ready), None);
        let line = Place::Line { queue: "a.b_c-d".to_owned(), level: 2, seq: 9 };
        check(&line.to_string(), Some(State::Ready), Some(&line));
        check(&line.to_string(), None, None);
        let arrival = Place::Arrival { no: 3 };
        check(&arrival.to_string(), None, Some(&arrival));
        check(&arrival.to_string(), Some(State::Done), None);
    }

    #[test]
    fn what_no_store_made_is_refused() {
        for cursor in ["", "x", "t~1", "t~1~2~3", "a~x", "l~q~1"] {
            check(cursor, None, None);
        }
    }
}
