//! Reads jobs for operators.

use crate::context::{StoreContext, readable};
use crate::moves::{LocateResult, locate};
use crate::record::{self, RedisJobRecord, state_of};
use crate::reply;
use crate::script::{FETCH, LOOK, Script};
use crate::state_index::JobLocation;
use backstop_core::amend::Filter;
use backstop_core::job::Claimant;
use backstop_core::port::{DamagedJob, StoreError, StoreResult};
use backstop_core::{Fingerprint, Job, JobId, JobState, Kind, QueueName, Time, WorkerName};
use redis::Value;
use std::collections::BTreeMap;

/// The most jobs of one script call that reads whole jobs with their payloads.
const WHOLE_AT_ONCE: usize = 100;
/// The most jobs of one script call that reads only the fields of a filter.
const LOOKS_AT_ONCE: usize = 1_000;

/// Reads one job, whichever queue it is in.
pub(crate) async fn job(base: &StoreContext, id: JobId) -> StoreResult<Option<Job>> {
    let doing = "reading a job";
    let queues = base.queues(doing).await?;
    let spots: Vec<JobLocation> = (0..queues.len())
        .map(|queue| JobLocation { queue, id })
        .collect();
    let views = read_jobs_at(base, doing, &queues, &spots).await?;
    views
        .into_iter()
        .next()
        .map(|view| whole(doing, view))
        .transpose()
}

/// Reads all jobs with an id, by queue. A job that is moving between two queues counts once.
pub(crate) async fn jobs_with_id(base: &StoreContext, id: JobId) -> StoreResult<Vec<Job>> {
    let doing = "reading jobs of an id";
    let queues = base.queues(doing).await?;
    let spots: Vec<JobLocation> = match locate(base, doing, &queues, &[id]).await?.first() {
        None | Some(LocateResult::Nowhere) => Vec::new(),
        Some(LocateResult::In(queue) | LocateResult::Leaving(queue)) => {
            vec![JobLocation { queue: *queue, id }]
        }
        Some(LocateResult::Several) => (0..queues.len())
            .map(|queue| JobLocation { queue, id })
            .collect(),
    };
    let views = read_jobs_at(base, doing, &queues, &spots).await?;
    views.into_iter().map(|view| whole(doing, view)).collect()
}

/// Reads jobs of a queue, in the order of `ids`.
pub(crate) async fn find(
    base: &StoreContext,
    queue: QueueName,
    ids: &[JobId],
) -> StoreResult<Vec<Option<Job>>> {
    let doing = "finding jobs";
    let spots: Vec<JobLocation> = ids
        .iter()
        .map(|id| JobLocation { queue: 0, id: *id })
        .collect();
    let mut found = BTreeMap::new();
    for view in read_jobs_at(base, doing, &[queue], &spots).await? {
        let job = whole(doing, view)?;
        found.insert(job.id, job);
    }
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}

fn whole(doing: &'static str, view: ReadJob) -> StoreResult<Job> {
    match view {
        ReadJob::Whole(job) => Ok(*job),
        ReadJob::Damaged(DamagedJob { id, why, .. }) => {
            let id = id.map_or_else(|| "without an id".to_owned(), |id| id.to_string());
            Err(StoreError::corrupt(
                doing,
                format!("{why} of job {id}; delete it by its id"),
            ))
        }
    }
}

/// A job that was read, readable or damaged.
pub(crate) enum ReadJob {
    Whole(Box<Job>),
    Damaged(DamagedJob),
}

/// Reads the jobs at these locations, in their order; missing jobs are left out.
pub(crate) async fn read_jobs_at(
    base: &StoreContext,
    doing: &'static str,
    queues: &[QueueName],
    spots: &[JobLocation],
) -> StoreResult<Vec<ReadJob>> {
    let answers = each_at(base, doing, &FETCH, WHOLE_AT_ONCE, queues, spots).await?;
    let mut views = Vec::with_capacity(spots.len());
    for (spot, answer) in spots.iter().zip(answers) {
        let parts = readable(doing, reply::list(answer))?;
        if !parts.is_empty() {
            views.push(view(&queues[spot.queue], spot.id, parts));
        }
    }
    Ok(views)
}

/// The fields of a job that a filter uses.
pub(crate) struct FilterFields {
    pub(crate) state: JobState,
    kind: Kind,
    fingerprint: Option<Fingerprint>,
}

impl FilterFields {
    pub(crate) fn fits(&self, filter: &Filter, queue: &QueueName) -> bool {
        filter.fits(queue, &self.kind, self.state, self.fingerprint)
    }
}

/// Reads the filter fields of the jobs at these locations; `None` for a missing or damaged job.
pub(crate) async fn read_filter_fields(
    base: &StoreContext,
    doing: &'static str,
    queues: &[QueueName],
    spots: &[JobLocation],
) -> StoreResult<Vec<Option<FilterFields>>> {
    let answers = each_at(base, doing, &LOOK, LOOKS_AT_ONCE, queues, spots).await?;
    Ok(answers.into_iter().map(filter_fields).collect())
}

/// The script's replies for these locations, in their order.
async fn each_at(
    base: &StoreContext,
    doing: &'static str,
    script: &'static Script,
    at_once: usize,
    queues: &[QueueName],
    spots: &[JobLocation],
) -> StoreResult<Vec<Value>> {
    let mut by_queue: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, spot) in spots.iter().enumerate() {
        by_queue.entry(spot.queue).or_default().push(at);
    }
    let slices: Vec<(usize, &[usize])> = by_queue
        .iter()
        .flat_map(|(queue, ats)| ats.chunks(at_once).map(move |slice| (*queue, slice)))
        .collect();
    let calls = slices.iter().map(|(queue, slice)| {
        let mut call = base.script(script, &queues[*queue]);
        for at in *slice {
            call.push(spots[*at].id.as_bytes());
        }
        call
    });
    let answers = base.run_each(doing, calls.collect()).await?;
    let mut each = vec![Value::Nil; spots.len()];
    for ((_, slice), answer) in slices.iter().zip(answers) {
        for (at, answer) in slice.iter().zip(readable(doing, reply::list(answer))?) {
            each[*at] = answer;
        }
    }
    Ok(each)
}

fn view(queue: &QueueName, id: JobId, parts: Vec<Value>) -> ReadJob {
    read_job(queue, id, parts).map_or_else(
        || {
            let why = "the record or the payload cannot be read".to_owned();
            ReadJob::Damaged(DamagedJob {
                id: Some(id),
                queue: Some(queue.clone()),
                why,
            })
        },
        |job| ReadJob::Whole(Box::new(job)),
    )
}

fn read_job(queue: &QueueName, id: JobId, parts: Vec<Value>) -> Option<Job> {
    let mut parts = parts.into_iter();
    let record = RedisJobRecord::parse(&reply::bytes(parts.next()?)?)?;
    let apart = parts.next().and_then(reply::bytes);
    let history = parts.next().and_then(reply::bytes);
    let worker = parts.next().and_then(reply::text);
    let until = parts.next().and_then(reply::whole);
    let since = parts.next().and_then(reply::whole).map(Time::from_micros);
    let held_by = worker
        .zip(since)
        .zip(until)
        .map(|((worker, since), until)| Claimant {
            worker: WorkerName::new(&worker),
            since,
            until: Time::from_micros(until),
        });
    record.view(queue, id, apart, history, held_by)
}

fn filter_fields(answer: Value) -> Option<FilterFields> {
    let bytes = reply::bytes(answer)?;
    let (state, behind) = bytes.split_first()?;
    let (fingerprint, kind) = match behind.split_first()? {
        (b'F', behind) => behind
            .split_at_checked(8)
            .map(|(bytes, kind)| (record::fingerprint_of(bytes), kind))?,
        (_, kind) => (None, kind),
    };
    Some(FilterFields {
        state: state_of(*state)?,
        kind: Kind::new(std::str::from_utf8(kind).ok()?).ok()?,
        fingerprint,
    })
}
