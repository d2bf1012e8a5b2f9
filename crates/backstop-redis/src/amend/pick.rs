//! Which jobs one call of an amendment is to touch: the next that fit, in order of arrival.
//!
//! Arrival is the one order that an amendment leaves alone: a job that it moves changes lines and
//! keeps its number. Lines of single states do not have that order, so that they are read whole,
//! and only where they are short; where they are long, all jobs are walked. Either way the place
//! reached is an arrival, and the next call is free to choose again.

use super::DOING;
use crate::context::StoreContext;
use crate::job_view::read_filter_fields;
use crate::keys::QueueKey;
use crate::list::{from_hex, queues, to_hex};
use crate::record::MEMBER;
use crate::state_index::{IndexMember, IndexRange, JobLocation, ScanDirection, StateIndexes};
use backstop_core::amend::Filter;
use backstop_core::limits::{AMEND_MAX, SCAN_MAX};
use backstop_core::port::{AmendJobsRequest, StoreError, StoreResult};
use backstop_core::{JobState, QueueName};

/// Tells a place of an amendment from a place in a list, which is walked the other way.
const CURSOR: &str = "amended~";
/// Jobs looked at in one go.
const LOOK_AT_ONCE: usize = 5_000;

/// What one call of an amendment looks for.
pub(super) struct PickRequest<'a> {
    pub(super) filter: Filter,
    pub(super) amendment: &'a AmendJobsRequest,
    after: Option<Vec<u8>>,
    max: usize,
}

/// What one call of an amendment found.
pub(super) struct PickedJobs {
    pub(super) queues: Vec<QueueName>,
    /// The jobs, in order of arrival.
    pub(super) spots: Vec<JobLocation>,
    /// Where to go on, as text.
    pub(super) next: Option<String>,
}

impl<'a> PickRequest<'a> {
    /// What an amendment wants of the jobs that fit; a cursor of somebody else is refused.
    pub(super) fn of(amendment: &'a AmendJobsRequest, filter: Filter) -> StoreResult<Self> {
        let read = |cursor: &String| {
            let member = cursor.strip_prefix(CURSOR).and_then(from_hex);
            let member = member.filter(|member| member.len() == MEMBER);
            member
                .ok_or_else(|| StoreError::misuse("amend", "the cursor is not one this store made"))
        };
        let after = amendment.cursor.as_ref().map(read).transpose()?;
        Ok(Self {
            filter,
            amendment,
            after,
            max: amendment.max.clamp(1, AMEND_MAX),
        })
    }

    /// The next jobs that fit and that the action could apply to.
    pub(super) async fn pick(&self, base: &StoreContext) -> StoreResult<PickedJobs> {
        let queues = queues(base, DOING, &self.filter).await?;
        let lines = StateIndexes {
            base,
            doing: DOING,
            queues: &queues,
        };
        let mut search = PickScan {
            wanted: self,
            lines,
            looked: 0,
            last: None,
            spots: Vec::new(),
            next: None,
        };
        let states: Vec<JobState> = JobState::ALL
            .into_iter()
            .filter(|state| self.reaches(*state))
            .collect();
        match lines.whole(&states, SCAN_MAX).await? {
            Some(found) => search.scan_found(found).await?,
            None => search.scan_on().await?,
        }
        let next = search
            .next
            .map(|member| format!("{CURSOR}{}", to_hex(&member)));
        let spots = search.spots;
        Ok(PickedJobs {
            queues,
            spots,
            next,
        })
    }

    fn reaches(&self, state: JobState) -> bool {
        // No other job has a fingerprint.
        (self.filter.fingerprint.is_none() || state == JobState::Dead)
            && self.filter.state.is_none_or(|wanted| wanted == state)
            && self.amendment.permits(state).is_ok()
    }
}

/// A call on its way through the jobs.
struct PickScan<'a> {
    wanted: &'a PickRequest<'a>,
    lines: StateIndexes<'a>,
    looked: usize,
    /// The job looked at last.
    last: Option<Vec<u8>>,
    spots: Vec<JobLocation>,
    next: Option<Vec<u8>>,
}

/// Whether a call has enough.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PickProgress {
    Continue,
    Full,
}

impl PickScan<'_> {
    /// Looks at these jobs, as far as they are behind the place reached.
    async fn scan_found(&mut self, mut found: Vec<IndexMember>) -> StoreResult<()> {
        if let Some(after) = &self.wanted.after {
            found.retain(|found| found.member > *after);
        }
        found.sort_unstable_by(|a, b| a.member.cmp(&b.member));
        for slice in found.chunks(LOOK_AT_ONCE) {
            if self.look(slice).await? == PickProgress::Full {
                break;
            }
        }
        Ok(())
    }

    /// Looks at all jobs behind the place reached.
    async fn scan_on(&mut self) -> StoreResult<()> {
        self.last.clone_from(&self.wanted.after);
        loop {
            let (line, after) = (IndexRange::of(QueueKey::Order), self.last.as_deref());
            let found = self
                .lines
                .next(line, ScanDirection::Forward, after, LOOK_AT_ONCE)
                .await?;
            if found.is_empty() || self.look(&found).await? == PickProgress::Full {
                return Ok(());
            }
        }
    }

    async fn look(&mut self, found: &[IndexMember]) -> StoreResult<PickProgress> {
        let spots: Vec<JobLocation> = found.iter().map(|found| found.location).collect();
        let seen = read_filter_fields(self.lines.base, DOING, self.lines.queues, &spots).await?;
        for (found, seen) in found.iter().zip(seen) {
            let fits = seen.is_some_and(|seen| {
                let queue = &self.lines.queues[found.location.queue];
                self.wanted.reaches(seen.state) && seen.fits(&self.wanted.filter, queue)
            });
            if self.looked == SCAN_MAX || (fits && self.spots.len() == self.wanted.max) {
                self.next.clone_from(&self.last);
                return Ok(PickProgress::Full);
            }
            self.looked += 1;
            self.last = Some(found.member.clone());
            self.spots.extend(fits.then_some(found.location));
        }
        Ok(PickProgress::Continue)
    }
}
