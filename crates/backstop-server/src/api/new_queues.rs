//! How many new queues and streams one token may name in its pushes. The store has a bound for all
//! queues together, and [`STREAMS_MAX`] is one for streams; the share keeps a token from using them
//! up for everybody. Each server process counts by itself, from its start on; tokens of one name
//! count together.

use super::Problem;
use crate::App;
use crate::access::Caller;
use backstop::core::limits::{STREAMS_MAX, TOKEN_QUEUES_MAX};
use backstop::streams::dead_letter_queue;
use backstop::{NewJob, QueueName, StreamName};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a list of all queues is good for. A token that has used up its share asks for one with
/// every new name.
const LIST_FRESH: Duration = Duration::from_secs(5);

/// The queues and streams that tokens have named; a stream counts as the queue of its dead letters.
#[derive(Default)]
pub struct NewQueueLimit {
    named: Mutex<HashMap<String, HashSet<QueueName>>>,
    listed: tokio::sync::Mutex<Option<(Instant, HashSet<QueueName>)>>,
    /// The streams of the store when it was last asked, and those let in since.
    streams: tokio::sync::Mutex<Option<(Instant, HashSet<StreamName>)>>,
}

impl NewQueueLimit {
    fn named(&self) -> MutexGuard<'_, HashMap<String, HashSet<QueueName>>> {
        // Sets are whole between any two of their changes.
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses jobs of a token that has named too many queues. Configured queues and, once its
    /// share is used up, queues that exist are free.
    pub(super) async fn check(
        &self,
        app: &App,
        caller: &Caller,
        jobs: &[NewJob],
    ) -> Result<(), Problem> {
        // Only a token has a name of this form: whoever needs none is on this machine.
        let Some(token) = caller.name().strip_prefix("token ") else {
            return Ok(());
        };
        let queues: HashSet<&QueueName> = jobs.iter().map(|job| &job.queue).collect();
        let config = app.config();
        let is_free = |queue: &QueueName| config.queues.contains_key(queue);
        let queues: Vec<&QueueName> = queues.into_iter().filter(|queue| !is_free(queue)).collect();
        let Err(mut fresh) = self.count_new(token, queues) else {
            return Ok(());
        };
        let mut listed = self.listed.lock().await;
        if listed
            .as_ref()
            .is_none_or(|(at, _)| at.elapsed() > LIST_FRESH)
        {
            let all = app.backstop().store().queues(app.backstop().now()).await?;
            *listed = Some((
                Instant::now(),
                all.into_iter().map(|queue| queue.name).collect(),
            ));
        }
        if let Some((_, exists)) = listed.as_ref() {
            fresh.retain(|queue| !exists.contains(*queue));
        }
        drop(listed);
        match self.count_new(token, fresh) {
            Err(too_many) if !too_many.is_empty() => Err(Problem::too_many_queues(format_args!(
                "queue {} is new, and this token has already named {TOKEN_QUEUES_MAX} queues. Push to a queue that exists, \
                 or add the queue to the configuration; nothing was enqueued",
                too_many[0]
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses records for a new stream if the store has as many as it may have, or the token has
    /// named too many. Configured streams and those that exist are free. Several servers that let
    /// new streams in at the same moment can exceed the bound by a few.
    pub(super) async fn check_stream(
        &self,
        app: &App,
        caller: &Caller,
        stream: &StreamName,
    ) -> Result<(), Problem> {
        if app.config().streams.contains_key(stream) {
            return Ok(());
        }
        let mut listed = self.streams.lock().await;
        let is_known = |listed: &Option<(Instant, HashSet<StreamName>)>| {
            listed
                .as_ref()
                .is_some_and(|(_, known)| known.contains(stream))
        };
        if is_known(&listed) {
            return Ok(());
        }
        if listed
            .as_ref()
            .is_none_or(|(at, _)| at.elapsed() > LIST_FRESH)
        {
            let all = app.backstop().store().streams().await?;
            let names = all.into_iter().map(|stream| stream.name).collect();
            *listed = Some((Instant::now(), names));
        }
        if is_known(&listed) {
            return Ok(());
        }
        let (_, known) = listed.get_or_insert_with(|| (Instant::now(), HashSet::new()));
        if known.len() >= STREAMS_MAX {
            return Err(Problem::too_many_streams(format_args!(
                "stream {stream} is new, and the store already has {STREAMS_MAX} streams. \
                 Push to a stream that exists, or add the stream to the configuration; \
                 no record was taken in"
            )));
        }
        let letters = dead_letter_queue(stream);
        if let Some(token) = caller.name().strip_prefix("token ")
            && self.count_new(token, vec![&letters]).is_err()
        {
            return Err(Problem::too_many_streams(format_args!(
                "stream {stream} is new, and this token has already named {TOKEN_QUEUES_MAX} \
                 queues and streams. Push to a stream that exists, or add the stream to the \
                 configuration; no record was taken in"
            )));
        }
        known.insert(stream.clone());
        Ok(())
    }

    /// Counts these queues to the share of a token; those that it has not named before, if there
    /// are too many.
    fn count_new<'q>(
        &self,
        token: &str,
        queues: Vec<&'q QueueName>,
    ) -> Result<(), Vec<&'q QueueName>> {
        let mut named = self.named();
        let known = named.entry(token.to_owned()).or_default();
        let fresh: Vec<&QueueName> = queues
            .into_iter()
            .filter(|queue| !known.contains(*queue))
            .collect();
        if known.len() + fresh.len() > TOKEN_QUEUES_MAX {
            return Err(fresh);
        }
        known.extend(fresh.into_iter().cloned());
        Ok(())
    }
}
