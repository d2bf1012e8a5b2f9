//! The cursors of job lists, as text.

use crate::record::{MEMBER_BYTES, TIMED};
use backstop_core::JobState;
use backstop_core::port::{ListJobsRequest, StoreError, StoreResult};
use std::fmt::{self, Write};

/// A position in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RedisListCursor {
    /// A member of an index.
    Member(Vec<u8>),
    /// A position in the ready index of a queue.
    Line {
        queue: String,
        place: u64,
        /// The member at that place: several members may share a place.
        member: Vec<u8>,
    },
}

impl RedisListCursor {
    /// The cursor of a query; `None` for its first page. Refuses a cursor of another list.
    pub(crate) fn of(query: &ListJobsRequest) -> StoreResult<Option<Self>> {
        let Some(cursor) = &query.cursor else {
            return Ok(None);
        };
        let place = Self::parse(cursor);
        let belongs = match (query.filter.state, &place) {
            (Some(JobState::Ready), Some(Self::Line { .. })) => true,
            (None | Some(JobState::Running), Some(Self::Member(member))) => {
                member.len() == MEMBER_BYTES
            }
            (Some(state), Some(Self::Member(member))) => {
                state != JobState::Ready && member.len() == TIMED
            }
            _ => false,
        };
        if belongs {
            return Ok(place);
        }
        Err(StoreError::misuse(
            "list jobs",
            "the cursor is not one this store made for this list",
        ))
    }

    /// The index member of this cursor, if it has one.
    pub(crate) fn member(&self) -> Option<&[u8]> {
        match self {
            Self::Member(member) => Some(member),
            Self::Line { .. } => None,
        }
    }

    fn parse(cursor: &str) -> Option<Self> {
        let mut parts = cursor.split('~');
        let (list, mut part) = (parts.next()?, || parts.next());
        let place = match list {
            "m" => Self::Member(from_hex(part()?)?),
            "l" => Self::Line {
                queue: part()?.to_owned(),
                place: part()?.parse().ok()?,
                member: from_hex(part()?).filter(|member| member.len() == MEMBER_BYTES)?,
            },
            _ => return None,
        };
        part().is_none().then_some(place)
    }
}

impl fmt::Display for RedisListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(member) => write!(f, "m~{}", to_hex(member)),
            Self::Line {
                queue,
                place,
                member,
            } => write!(f, "l~{queue}~{place}~{}", to_hex(member)),
        }
    }
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Decodes hexadecimal text into bytes.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::amend::Filter;

    fn check(cursor: &str, state: Option<JobState>, expected: Option<&RedisListCursor>) {
        let filter = Filter {
            state,
            ..Filter::default()
        };
        let query = ListJobsRequest {
            filter,
            cursor: Some(cursor.to_owned()),
            limit: 1,
            ..ListJobsRequest::default()
        };
        assert_eq!(
            RedisListCursor::of(&query).ok().flatten().as_ref(),
            expected,
            "{cursor} for {state:?}"
        );
    }

    #[test]
    fn a_cursor_reads_back_for_its_own_list_only() {
        let timed = RedisListCursor::Member((0..32).collect());
        check(&timed.to_string(), Some(JobState::Scheduled), Some(&timed));
        check(&timed.to_string(), Some(JobState::Ready), None);
        check(&timed.to_string(), None, None);
        let line = RedisListCursor::Line {
            queue: "a.b_c-d".to_owned(),
            place: 1_688_849_860_263_937,
            member: vec![255; 24],
        };
        check(&line.to_string(), Some(JobState::Ready), Some(&line));
        check(&line.to_string(), None, None);
        let arrival = RedisListCursor::Member(vec![255; 24]);
        check(&arrival.to_string(), None, Some(&arrival));
        check(&arrival.to_string(), Some(JobState::Done), None);
    }

    #[test]
    fn what_no_store_made_is_refused() {
        for cursor in [
            "", "x", "m~", "m~0", "m~zz", "m~00~1", "l~q", "l~q~-1", "l~q~1", "l~q~1~00", "🙂",
        ] {
            check(cursor, None, None);
        }
    }
}
