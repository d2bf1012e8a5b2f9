//! How many new queues one token may name in its pushes. The store has a bound for all queues
//! together; this one keeps a token from using it up for everybody. Each server process counts by
//! itself, from its start on; tokens of one name count together.

use super::Problem;
use crate::App;
use crate::access::Caller;
use backstop::core::limits::TOKEN_QUEUES_MAX;
use backstop::{NewJob, QueueName};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a list of all queues is good for. A token that has used up its share asks for one with
/// every new name.
const LIST_FRESH: Duration = Duration::from_secs(5);

/// The queues that tokens have named.
#[derive(Default)]
pub struct NewQueues {
    named: Mutex<HashMap<String, HashSet<QueueName>>>,
    listed: tokio::sync::Mutex<Option<(Instant, HashSet<QueueName>)>>,
}

impl NewQueues {
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
        let Err(mut fresh) = self.note(token, queues) else {
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
        match self.note(token, fresh) {
            Err(too_many) if !too_many.is_empty() => Err(Problem::too_many_queues(format_args!(
                "queue {} is new, and this token has already named {TOKEN_QUEUES_MAX} queues. Push to a queue that exists, \
                 or add the queue to the configuration; nothing was enqueued",
                too_many[0]
            ))),
            _ => Ok(()),
        }
    }

    /// Counts these queues to the share of a token; those that it has not named before, if there
    /// are too many.
    fn note<'q>(&self, token: &str, queues: Vec<&'q QueueName>) -> Result<(), Vec<&'q QueueName>> {
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
