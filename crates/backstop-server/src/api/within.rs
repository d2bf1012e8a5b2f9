//! Answers for whoever is let into some queues only.

use super::Problem;
use crate::App;
use crate::access::{Caller, Reach};
use backstop::core::Job;
use backstop::core::amend::Refusal;
use backstop::core::failure::Failure;
use backstop::dead::{DeadLetter, DeadSelection};
use backstop::{JobId, QueueName};
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Ids that are looked up at once to see whose they are.
const READS_MAX: usize = 16;
/// Ids that are looked up for one request.
const IDS_MAX: usize = 1_000;

/// For how long one queue after another is looked at for a page on which nothing stands yet.
const LOOK_FOR: Duration = Duration::from_millis(100);

/// One page of a list.
pub(super) struct Part<T> {
    pub(super) what: T,
    pub(super) is_empty: bool,
    /// Where the next page starts.
    pub(super) next: Option<String>,
}

/// A page of a list that `look` reads: of one queue, or of all. Who sees only some is shown these
/// one after another.
pub(super) async fn paged<T, F: Future<Output = Result<Part<T>, Problem>>>(
    reach: &Reach,
    queue: Option<QueueName>,
    cursor: Option<String>,
    look: impl Fn(Option<QueueName>, Option<String>) -> F,
) -> Result<Part<T>, Problem> {
    match (reach, queue) {
        (Reach::Queues(queues), None) => one_after_another(queues, cursor, look).await,
        (reach, Some(queue)) => {
            reach.check(&queue)?;
            look(Some(queue), cursor).await
        }
        (Reach::Everywhere, None) => look(None, cursor).await,
    }
}

/// The cursor is that of one queue, with the name of the queue before it. No name has a colon.
async fn one_after_another<T, F: Future<Output = Result<Part<T>, Problem>>>(
    queues: &BTreeSet<QueueName>,
    cursor: Option<String>,
    look: impl Fn(Option<QueueName>, Option<String>) -> F,
) -> Result<Part<T>, Problem> {
    let (first, mut within) = match cursor.as_deref().map(|cursor| cursor.split_once(':')) {
        None => (None, None),
        Some(Some((queue, within))) => (
            Some(queue),
            Some(within.to_owned()).filter(|text| !text.is_empty()),
        ),
        Some(None) => return Err(Problem::bad("`cursor` is none that this list has given")),
    };
    let is_before = |queue: &&QueueName| first.is_some_and(|first| queue.as_str() != first);
    let began = Instant::now();
    let left: Vec<&QueueName> = queues.iter().skip_while(is_before).collect();
    for (at, queue) in left.iter().enumerate() {
        let following = left.get(at + 1);
        let mut part = look(Some((*queue).clone()), within.take()).await?;
        let goes_on = part.next.map(|next| format!("{queue}:{next}"));
        // Looking into the payloads of many queues takes as long as the sum of them: a page may be
        // empty, and go on.
        let has_time = began.elapsed() < LOOK_FOR;
        if goes_on.is_none() && part.is_empty && following.is_some() && has_time {
            continue;
        }
        part.next = goes_on.or_else(|| following.map(|following| format!("{following}:")));
        return Ok(part);
    }
    Err(Problem::bad("`cursor` is none that this list has given"))
}

/// The job that is meant by an id: that of the queue that is named, else one that the caller may
/// see. One that is not the caller's to see is as good as none.
pub(super) async fn meant_job(
    app: &App,
    caller: &Caller,
    id: JobId,
    named: Option<&QueueName>,
) -> Result<Job, Problem> {
    let (backstop, reach) = (app.backstop(), caller.reach());
    let found = match (named, reach) {
        (Some(queue), _) => {
            reach.check(queue)?;
            backstop.job_in(queue, id).await?
        }
        (None, Reach::Everywhere) => one_of(backstop.namesakes(id).await?)?,
        (None, Reach::Queues(queues)) => {
            let looks = queues.iter().map(|queue| backstop.job_in(queue, id));
            one_of(try_join_all(looks).await?.into_iter().flatten().collect())?
        }
    };
    found.ok_or_else(|| reach.no_such_job(id))
}

/// The only job of an id; of several nobody knows which is meant.
fn one_of(mut found: Vec<Job>) -> Result<Option<Job>, Problem> {
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => Err(Problem::refused(Refusal::Ambiguous)),
    }
}

/// The same dead letters, as far as they are the caller's to change; others are refused. Ids are
/// those of the caller's queues from here on, one selection a queue: whatever becomes of a job
/// meanwhile, another queue's of the same id is not meant.
pub(super) async fn letters_within(
    app: &App,
    caller: &Caller,
    selection: DeadSelection,
) -> Result<Vec<DeadSelection>, Problem> {
    let reach = caller.reach();
    if *reach == Reach::Everywhere {
        return Ok(vec![selection]);
    }
    let across = || reach.check_across("name a `queue` in the selection");
    match &selection {
        DeadSelection::All => across()?,
        DeadSelection::Oldest { queue, .. } | DeadSelection::Within { queue, .. } => {
            reach.check(queue)?;
        }
        DeadSelection::Matching(filter) => {
            filter
                .queue
                .as_ref()
                .map_or_else(across, |queue| reach.check(queue))?;
        }
        DeadSelection::Ids(ids) if ids.len() > IDS_MAX => {
            return Err(Problem::too_large(format_args!(
                "{} ids at once; of a token for some queues each is looked up, and at most {IDS_MAX} are. Send them in several",
                ids.len()
            )));
        }
        DeadSelection::Ids(ids) => {
            let looks = stream::iter(ids.clone()).map(|id| meant_job(app, caller, id, None));
            let found: Vec<Job> = looks.buffered(READS_MAX).try_collect().await?;
            return Ok(by_queue(found));
        }
    }
    Ok(vec![selection])
}

/// These jobs, one selection a queue, in the order in which they were named.
fn by_queue(jobs: Vec<Job>) -> Vec<DeadSelection> {
    let mut parts = BTreeMap::<QueueName, Vec<JobId>>::new();
    for job in jobs {
        parts.entry(job.queue).or_default().push(job.id);
    }
    parts
        .into_iter()
        .map(|(queue, ids)| DeadSelection::Within { queue, ids })
        .collect()
}

/// Leaves out what a dead letter tells of queues that are not the caller's to see.
pub(super) fn narrow_letter(reach: &Reach, letter: &mut DeadLetter) {
    if let Some(context) = &mut letter.context {
        reach.narrow(context);
    }
    narrow(reach, &mut letter.original_job.errors);
}

/// Leaves out what failures tell of queues that are not the caller's to see.
pub(super) fn narrow(reach: &Reach, failures: &mut [Failure]) {
    for context in failures
        .iter_mut()
        .filter_map(|failure| failure.context.as_mut())
    {
        reach.narrow(context);
    }
}
