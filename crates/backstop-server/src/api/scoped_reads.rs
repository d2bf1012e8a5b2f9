//! Answers for whoever is let into some queues only.

use super::Problem;
use crate::App;
use crate::access::{Caller, QueueScope};
use backstop::core::Job;
use backstop::core::amend::AmendRefusal;
use backstop::core::failure::FailureRecord;
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
pub(super) struct ScopedPage<T> {
    pub(super) content: T,
    pub(super) is_empty: bool,
    /// Where the next page starts.
    pub(super) next: Option<String>,
}

/// A page of a list that `look` reads: of one queue, or of all. Who sees only some is shown these
/// one after another.
pub(super) async fn read_page<T, F: Future<Output = Result<ScopedPage<T>, Problem>>>(
    scope: &QueueScope,
    queue: Option<QueueName>,
    cursor: Option<String>,
    look: impl Fn(Option<QueueName>, Option<String>) -> F,
) -> Result<ScopedPage<T>, Problem> {
    match (scope, queue) {
        (QueueScope::Queues(queues), None) => read_queue_by_queue(queues, cursor, look).await,
        (scope, Some(queue)) => {
            scope.check_queue(&queue)?;
            look(Some(queue), cursor).await
        }
        (QueueScope::AllQueues, None) => look(None, cursor).await,
    }
}

/// The cursor is that of one queue, with the name of the queue before it. No name has a colon.
async fn read_queue_by_queue<T, F: Future<Output = Result<ScopedPage<T>, Problem>>>(
    queues: &BTreeSet<QueueName>,
    cursor: Option<String>,
    look: impl Fn(Option<QueueName>, Option<String>) -> F,
) -> Result<ScopedPage<T>, Problem> {
    let (first, mut within) = match cursor.as_deref().map(|cursor| cursor.split_once(':')) {
        None => (None, None),
        Some(Some((queue, within))) => (
            Some(queue),
            Some(within.to_owned()).filter(|text| !text.is_empty()),
        ),
        Some(None) => {
            return Err(Problem::bad_request(
                "`cursor` is none that this list has given",
            ));
        }
    };
    let is_before = |queue: &&QueueName| first.is_some_and(|first| queue.as_str() != first);
    let began = Instant::now();
    let left: Vec<&QueueName> = queues.iter().skip_while(is_before).collect();
    for (at, queue) in left.iter().enumerate() {
        let following = left.get(at + 1);
        let mut page = look(Some((*queue).clone()), within.take()).await?;
        let goes_on = page.next.map(|next| format!("{queue}:{next}"));
        // Looking into the payloads of many queues takes as long as the sum of them: a page may be
        // empty, and go on.
        let has_time = began.elapsed() < LOOK_FOR;
        if goes_on.is_none() && page.is_empty && following.is_some() && has_time {
            continue;
        }
        page.next = goes_on.or_else(|| following.map(|following| format!("{following}:")));
        return Ok(page);
    }
    Err(Problem::bad_request(
        "`cursor` is none that this list has given",
    ))
}

/// The job that is meant by an id: that of the queue that is named, else one that the caller may
/// see. One that is not the caller's to see is as good as none.
pub(super) async fn resolve_job(
    app: &App,
    caller: &Caller,
    id: JobId,
    named: Option<&QueueName>,
) -> Result<Job, Problem> {
    let (backstop, scope) = (app.backstop(), caller.queue_scope());
    let found = match (named, scope) {
        (Some(queue), _) => {
            scope.check_queue(queue)?;
            backstop.job_in(queue, id).await?
        }
        (None, QueueScope::AllQueues) => only_match(backstop.namesakes(id).await?)?,
        (None, QueueScope::Queues(queues)) => {
            let looks = queues.iter().map(|queue| backstop.job_in(queue, id));
            only_match(try_join_all(looks).await?.into_iter().flatten().collect())?
        }
    };
    found.ok_or_else(|| scope.job_not_found(id))
}

/// The only job of an id; of several nobody knows which is meant.
fn only_match(mut found: Vec<Job>) -> Result<Option<Job>, Problem> {
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => Err(Problem::amend_refused(AmendRefusal::Ambiguous)),
    }
}

/// The same dead letters, as far as they are the caller's to change; others are refused. Ids are
/// those of the caller's queues from here on, one selection a queue: whatever becomes of a job
/// meanwhile, another queue's of the same id is not meant.
pub(super) async fn resolve_dead_selection(
    app: &App,
    caller: &Caller,
    selection: DeadSelection,
) -> Result<Vec<DeadSelection>, Problem> {
    let scope = caller.queue_scope();
    if *scope == QueueScope::AllQueues {
        return Ok(vec![selection]);
    }
    let across = || scope.check_all_queues("name a `queue` in the selection");
    match &selection {
        DeadSelection::All => across()?,
        DeadSelection::Oldest { queue, .. } | DeadSelection::Within { queue, .. } => {
            scope.check_queue(queue)?;
        }
        DeadSelection::Matching(filter) => {
            filter
                .queue
                .as_ref()
                .map_or_else(across, |queue| scope.check_queue(queue))?;
        }
        DeadSelection::Ids(ids) if ids.len() > IDS_MAX => {
            return Err(Problem::too_large(format_args!(
                "{} ids at once; of a token for some queues each is looked up, and at most {IDS_MAX} are. Send them in several",
                ids.len()
            )));
        }
        DeadSelection::Ids(ids) => {
            let looks = stream::iter(ids.clone()).map(|id| resolve_job(app, caller, id, None));
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
pub(super) fn hide_other_queues_in_letter(scope: &QueueScope, letter: &mut DeadLetter) {
    if let Some(context) = &mut letter.context {
        scope.hide_other_queues(context);
    }
    hide_other_queues(scope, &mut letter.original_job.errors);
}

/// Leaves out what failures tell of queues that are not the caller's to see.
pub(super) fn hide_other_queues(scope: &QueueScope, failures: &mut [FailureRecord]) {
    for context in failures
        .iter_mut()
        .filter_map(|failure| failure.context.as_mut())
    {
        scope.hide_other_queues(context);
    }
}
