//! Cursors of job lists and amendments, for stores that number their jobs.

use super::error::{StoreError, StoreResult};
use super::operator::{AmendJobsRequest, AmendSelection, ListJobsRequest};
use crate::amend::{AmendAction, Filter, check_permitted};
use crate::job::{JobId, JobState};
use crate::limits::AMEND_MAX;
use std::fmt;

/// The position of a job in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobCursor {
    /// In a list that is ordered by time.
    Timed {
        at: i64,
        /// The arrival number, which orders jobs of the same time.
        no: i64,
    },
    Line {
        queue: String,
        level: i64,
        seq: i64,
    },
    /// In a list that is ordered by arrival.
    Arrival {
        no: i64,
    },
}

impl JobCursor {
    /// The cursor of a request; `None` for its first page. Refuses a cursor of another list.
    pub fn of(query: &ListJobsRequest) -> StoreResult<Option<Self>> {
        let Some(cursor) = &query.cursor else {
            return Ok(None);
        };
        let place = Self::parse(cursor);
        let belongs = matches!(
            (query.filter.state, &place),
            (Some(JobState::Ready), Some(Self::Line { .. }))
                | (None | Some(JobState::Running), Some(Self::Arrival { .. }))
                | (
                    Some(
                        JobState::Scheduled
                            | JobState::Retrying
                            | JobState::Done
                            | JobState::Dead
                            | JobState::Cancelled
                    ),
                    Some(Self::Timed { .. })
                )
        );
        if belongs {
            return Ok(place);
        }
        Err(StoreError::misuse(
            "list jobs",
            "the cursor is not one this store made for this list",
        ))
    }

    fn parse(cursor: &str) -> Option<Self> {
        let mut parts = cursor.split('~');
        let (list, mut part) = (parts.next()?, || parts.next());
        let place = match list {
            "t" => Self::Timed {
                at: part()?.parse().ok()?,
                no: part()?.parse().ok()?,
            },
            "l" => Self::Line {
                queue: part()?.to_owned(),
                level: part()?.parse().ok()?,
                seq: part()?.parse().ok()?,
            },
            "a" => Self::Arrival {
                no: part()?.parse().ok()?,
            },
            _ => return None,
        };
        part().is_none().then_some(place)
    }
}

impl fmt::Display for JobCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timed { at, no } => write!(f, "t~{at}~{no}"),
            Self::Line { queue, level, seq } => write!(f, "l~{queue}~{level}~{seq}"),
            Self::Arrival { no } => write!(f, "a~{no}"),
        }
    }
}

/// Which jobs an amendment is for, with its cursor parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AmendTarget {
    /// These jobs; the result says which of them were refused.
    Ids(Vec<JobId>),
    Matching(AmendScan),
}

/// The jobs that one call of an amendment scans for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AmendScan {
    pub filter: Filter,
    /// Only jobs that this action could apply to.
    pub action: AmendAction,
    /// Only jobs in this state, if the request names one.
    pub only: Option<JobState>,
    /// Only jobs behind this arrival number.
    pub after: i64,
    pub max: usize,
}

impl AmendTarget {
    /// Checks a request and parses its cursor. Refuses one that exceeds the limits, one by an empty
    /// filter, and a cursor that this store did not make.
    pub fn of(amendment: &AmendJobsRequest) -> StoreResult<Self> {
        let filter = match amendment.check_selection()? {
            AmendSelection::Ids(ids) => return Ok(Self::Ids(ids.to_vec())),
            AmendSelection::Matching(filter) => filter,
        };
        let after = amendment.cursor.as_ref().map_or(Ok(i64::MIN), |cursor| {
            let no = cursor
                .strip_prefix(AMEND_CURSOR_PREFIX)
                .and_then(|no| no.parse().ok());
            no.ok_or_else(|| StoreError::misuse("amend", "the cursor is not one this store made"))
        })?;
        let max = amendment.max.clamp(1, AMEND_MAX);
        Ok(Self::Matching(AmendScan {
            filter,
            action: amendment.action.clone(),
            only: amendment.only,
            after,
            max,
        }))
    }
}

impl AmendScan {
    /// Whether a job in this state can match.
    pub fn admits_state(&self, admits_state: JobState) -> bool {
        self.filter
            .state
            .is_none_or(|wanted| wanted == admits_state)
            && self.only.is_none_or(|wanted| wanted == admits_state)
            && check_permitted(&self.action, admits_state).is_ok()
    }

    /// The cursor of a call that ended at this arrival number.
    pub fn cursor(no: i64) -> String {
        format!("{AMEND_CURSOR_PREFIX}{no}")
    }
}

/// Marks the cursors of amendments. Lists are walked in the other direction, so their cursors
/// differ.
const AMEND_CURSOR_PREFIX: &str = "amended~";

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cursor: &str, state: Option<JobState>, expected: Option<&JobCursor>) {
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
            JobCursor::of(&query).ok().flatten().as_ref(),
            expected,
            "{cursor} for {state:?}"
        );
    }

    #[test]
    fn a_cursor_reads_back_for_its_own_list_only() {
        let timed = JobCursor::Timed { at: -5, no: 7 };
        check(&timed.to_string(), Some(JobState::Scheduled), Some(&timed));
        check(&timed.to_string(), Some(JobState::Ready), None);
        let line = JobCursor::Line {
            queue: "a.b_c-d".to_owned(),
            level: 2,
            seq: 9,
        };
        check(&line.to_string(), Some(JobState::Ready), Some(&line));
        check(&line.to_string(), None, None);
        let arrival = JobCursor::Arrival { no: 3 };
        check(&arrival.to_string(), None, Some(&arrival));
        check(&arrival.to_string(), Some(JobState::Done), None);
    }

    #[test]
    fn what_no_store_made_is_refused() {
        for cursor in ["", "x", "t~1", "t~1~2~3", "a~x", "l~q~1"] {
            check(cursor, None, None);
        }
    }
}
