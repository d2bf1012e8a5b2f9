//! Picks the jobs for one call of an amendment: the next ones that match, in order of arrival.
//!
//! Arrival is the only order that an amendment does not change: a job changes its state index but
//! keeps its arrival. The indexes of single states are in other orders, so they are read whole, and
//! only if they are short. If they are long, the scan goes over all jobs. In both cases the cursor
//! is an arrival, so the next call may choose the other way.

use super::DOING;
use crate::context::StoreContext;
use crate::job_view::read_filter_fields;
use crate::keys::QueueKey;
use crate::list::{from_hex, queues, to_hex};
use crate::record::MEMBER_BYTES;
use crate::state_index::{IndexMember, IndexRange, JobLocation, ScanDirection, StateIndexes};
use backstop_core::amend::Filter;
use backstop_core::limits::{AMEND_MAX, SCAN_MAX};
use backstop_core::port::{AmendJobsRequest, StoreError, StoreResult};
use backstop_core::{JobState, QueueName};

/// Marks the cursor of an amendment; the cursor of a list goes in the other direction.
const CURSOR: &str = "amended~";
/// How many jobs one step looks at.
const LOOK_AT_ONCE: usize = 5_000;

/// The jobs that one call of an amendment looks for.
pub(super) struct PickRequest<'a> {
    pub(super) filter: Filter,
    pub(super) amendment: &'a AmendJobsRequest,
    after: Option<Vec<u8>>,
    max: usize,
}

/// The jobs that one call of an amendment found.
pub(super) struct PickedJobs {
    pub(super) queues: Vec<QueueName>,
    /// The jobs, in order of arrival.
    pub(super) spots: Vec<JobLocation>,
    /// The cursor of the next call, as text.
    pub(super) next: Option<String>,
}

impl<'a> PickRequest<'a> {
    /// Reads the request of an amendment; refuses a cursor that is not from an amendment.
    pub(super) fn of(amendment: &'a AmendJobsRequest, filter: Filter) -> StoreResult<Self> {
        let read = |cursor: &String| {
            let member = cursor.strip_prefix(CURSOR).and_then(from_hex);
            let member = member.filter(|member| member.len() == MEMBER_BYTES);
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

    /// Picks the next jobs that match and to which the action may apply.
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
        // Only dead jobs have a fingerprint.
        (self.filter.fingerprint.is_none() || state == JobState::Dead)
            && self.filter.state.is_none_or(|wanted| wanted == state)
            && self.amendment.permits(state).is_ok()
    }
}

/// The state of one scan through the jobs.
struct PickScan<'a> {
    wanted: &'a PickRequest<'a>,
    lines: StateIndexes<'a>,
    looked: usize,
    /// The last job that the scan looked at.
    last: Option<Vec<u8>>,
    spots: Vec<JobLocation>,
    next: Option<Vec<u8>>,
}

/// Whether the scan has found enough.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PickProgress {
    Continue,
    Full,
}

impl PickScan<'_> {
    /// Looks at these jobs, skipping those before the cursor.
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

    /// Looks at all jobs after the cursor.
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
