//! Applies an operator's action to jobs: retry, cancel, delete or move.

use crate::link::{CommitMode, PostgresLink};
use crate::row;
use backstop_core::amend::{AmendAction, AmendRefusal, Filter};
use backstop_core::limits::SCAN_MAX;
use backstop_core::port::cursor::AmendScan;
use backstop_core::port::{AmendJobsRequest, AmendResult, StoreError, StoreResult};
use backstop_core::{Fingerprint, JobId, JobState, Kind, QueueName, Time};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

const DOING: &str = "amending jobs";
/// The code of a job that does not match the filter any more.
const UNFIT: i32 = 6;
/// The code of a job in another state than expected is this plus the state.
const ELSEWHERE: i32 = 10;

/// Applies an action to these jobs, and reports each one.
pub(crate) async fn amend_ids(
    link: &PostgresLink,
    ids: &[JobId],
    amendment: &AmendJobsRequest,
    max_queues: usize,
    now: Time,
) -> StoreResult<AmendResult> {
    let ids: Vec<Uuid> = ids.iter().copied().map(row::uuid).collect();
    let within = amendment.within().map(|queue| Filter {
        queue: Some(queue.clone()),
        ..Filter::default()
    });
    // A job outside of the named queue is reported as not found.
    let visible_refusal = |why: Option<AmendRefusal>| Some(why.unwrap_or(AmendRefusal::NotFound));
    let deed = Deed {
        action: &amendment.action,
        only: amendment.only,
        filter: within.as_ref(),
        max_queues,
    };
    amend(link, &ids, &deed, visible_refusal, now).await
}

/// Applies an action to the next jobs that match.
pub(crate) async fn amend_fitting(
    link: &PostgresLink,
    wanted: &AmendScan,
    max_queues: usize,
    now: Time,
) -> StoreResult<AmendResult> {
    let (ids, next) = pick(link, wanted).await?;
    let amended = if ids.is_empty() {
        AmendResult::default()
    } else {
        // A job that does not match any more is skipped without a report.
        let visible_refusal =
            |why: Option<AmendRefusal>| why.filter(|why| why.depends_on_other_jobs());
        let deed = Deed {
            action: &wanted.action,
            only: wanted.only,
            filter: Some(&wanted.filter),
            max_queues,
        };
        amend(link, &ids, &deed, visible_refusal, now).await?
    };
    Ok(AmendResult {
        next: next.map(AmendScan::cursor),
        ..amended
    })
}

/// The action, and the conditions that a job must meet.
struct Deed<'a> {
    action: &'a AmendAction,
    only: Option<JobState>,
    filter: Option<&'a Filter>,
    max_queues: usize,
}

/// Calls the function. `visible_refusal` decides which refusals the caller gets; a job that does
/// not match the filter has no reason.
async fn amend(
    link: &PostgresLink,
    ids: &[Uuid],
    deed: &Deed<'_>,
    visible_refusal: impl Fn(Option<AmendRefusal>) -> Option<AmendRefusal>,
    now: Time,
) -> StoreResult<AmendResult> {
    let Deed {
        action,
        only,
        filter,
        max_queues,
    } = *deed;
    let state = filter
        .and_then(|filter| filter.state)
        .map(|state| state as i16);
    let (code, to) = coded(action);
    let params = [
        (&ids as _, Type::UUID_ARRAY),
        (&code as _, Type::INT4),
        (&to as _, Type::TEXT),
        (&only.map(|state| state as i16) as _, Type::INT2),
        (&filter.is_some() as _, Type::BOOL),
        (&queue(filter) as _, Type::TEXT),
        (&kind(filter) as _, Type::TEXT),
        (&state as _, Type::INT2),
        (&fingerprint(filter) as _, Type::INT8),
        (&now.as_micros() as _, Type::INT8),
        (&row::number(max_queues) as _, Type::INT4),
    ];
    let rows = link
        .call(DOING, CommitMode::Durable, "amend", &params)
        .await?;
    let mut amended = AmendResult {
        applied: ids.len() - rows.len(),
        ..AmendResult::default()
    };
    for row in &rows {
        let (id, why) = refused(ids, row)?;
        amended
            .refused
            .extend(visible_refusal(why).map(|why| (id, why)));
    }
    Ok(amended)
}

/// The code of an action, and the queue that it names.
fn coded(action: &AmendAction) -> (i32, Option<&str>) {
    match action {
        AmendAction::Retry => (0, None),
        AmendAction::Cancel => (1, None),
        AmendAction::Delete => (2, None),
        AmendAction::Move(to) => (3, Some(to.as_str())),
    }
}

fn queue(filter: Option<&Filter>) -> Option<&str> {
    filter
        .and_then(|filter| filter.queue.as_ref())
        .map(QueueName::as_str)
}

fn kind(filter: Option<&Filter>) -> Option<&str> {
    filter
        .and_then(|filter| filter.kind.as_ref())
        .map(Kind::as_str)
}

fn fingerprint(filter: Option<&Filter>) -> Option<i64> {
    filter
        .and_then(|filter| filter.fingerprint)
        .map(Fingerprint::as_i64)
}

/// Decodes which job was refused and why; without a reason the job does not match the filter.
fn refused(ids: &[Uuid], row: &Row) -> StoreResult<(JobId, Option<AmendRefusal>)> {
    let (at, code): (i32, i32) = (row::get(row, 0)?, row::get(row, 1)?);
    let unknown = || StoreError::corrupt(DOING, format!("answer {code} for job {at}"));
    let id = usize::try_from(at - 1)
        .ok()
        .and_then(|at| ids.get(at))
        .copied()
        .ok_or_else(unknown)?;
    let refusal = match code {
        0 => AmendRefusal::NotFound,
        1 => AmendRefusal::Running,
        2 => AmendRefusal::Done,
        3 => AmendRefusal::Ready,
        4 => AmendRefusal::Ended,
        5 => AmendRefusal::UniqueKeyHeld(row::job_id(row::get(row, 2)?)),
        UNFIT => return Ok((row::job_id(id), None)),
        7 => AmendRefusal::Alive,
        8 => AmendRefusal::Full,
        ELSEWHERE.. => {
            AmendRefusal::OtherState(row::state(i16::try_from(code - ELSEWHERE).unwrap_or(-1)))
        }
        _ => return Err(unknown()),
    };
    Ok((row::job_id(id), Some(refusal)))
}

/// Picks the next jobs that match, and the cursor for the next call.
async fn pick(link: &PostgresLink, wanted: &AmendScan) -> StoreResult<(Vec<Uuid>, Option<i64>)> {
    let fitting = JobState::ALL
        .into_iter()
        .filter(|state| wanted.admits_state(*state));
    let states: i32 = fitting.map(|state| 1 << state as i32).sum();
    let filter = Some(&wanted.filter);
    let params = [
        (&wanted.after as _, Type::INT8),
        (&queue(filter) as _, Type::TEXT),
        (&kind(filter) as _, Type::TEXT),
        (&states as _, Type::INT4),
        (&fingerprint(filter) as _, Type::INT8),
        (&row::number(wanted.max) as _, Type::INT4),
        (&row::number(SCAN_MAX) as _, Type::INT4),
    ];
    let rows = link
        .call(DOING, CommitMode::Durable, "pick", &params)
        .await?;
    let (mut ids, mut next) = (Vec::new(), None);
    for row in &rows {
        match row::get(row, 0)? {
            Some(id) => ids.push(id),
            None => next = row::get(row, 1)?,
        }
    }
    Ok((ids, next))
}
