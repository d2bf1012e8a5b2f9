//! Which queues a caller may touch: all of them, or those that its token names.
//!
//! | a route | to a token for some queues |
//! |---|---|
//! | names a queue, or a job | is answered if the queue is one of them; a job of another is as good as none |
//! | lists | shows what is theirs |
//! | goes across queues, or is about none | is refused; `rules.rs` says which those are not |

use crate::api::Problem;
use axum::http::StatusCode;
use backstop::core::amend::AmendRefusal;
use backstop::core::failure::DeathContext;
use backstop::{JobId, QueueName};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Which queues somebody may touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum QueueScope {
    /// All, and what goes across them.
    #[default]
    AllQueues,
    Queues(Arc<BTreeSet<QueueName>>),
}

impl QueueScope {
    /// As far as a token goes that names these; one that names none goes everywhere.
    pub fn of(queues: &[QueueName]) -> Self {
        if queues.is_empty() {
            Self::AllQueues
        } else {
            Self::Queues(Arc::new(queues.iter().cloned().collect()))
        }
    }

    /// Whether a queue is within it.
    pub fn includes(&self, queue: &QueueName) -> bool {
        match self {
            Self::AllQueues => true,
            Self::Queues(queues) => queues.contains(queue),
        }
    }

    /// The queues it is limited to; `None` where it is not.
    pub(crate) fn queues(&self) -> Option<&BTreeSet<QueueName>> {
        match self {
            Self::AllQueues => None,
            Self::Queues(queues) => Some(queues),
        }
    }

    /// The queues it is limited to, in words; `None` where it is not.
    pub(super) fn describe_queues(&self) -> Option<String> {
        self.queues().map(list_queue_names)
    }

    /// Refuses a queue that is not within it.
    pub(crate) fn check_queue(&self, queue: &QueueName) -> Result<(), Problem> {
        match self {
            Self::Queues(queues) if !queues.contains(queue) => {
                let why = format_args!("this is about queue {queue}; use a token for it");
                Err(refuse_other_queues(&list_queue_names(queues), why))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what goes across queues; `how` says what would not.
    pub(crate) fn check_all_queues(&self, how: &str) -> Result<(), Problem> {
        match self {
            Self::AllQueues => Ok(()),
            Self::Queues(queues) => Err(refuse_other_queues(
                &list_queue_names(queues),
                format_args!("this goes across queues; {how}"),
            )),
        }
    }

    /// What to say of a job that is not within it, be it in another queue or nowhere.
    pub(crate) fn job_not_found(&self, id: JobId) -> Problem {
        let Some(limits) = self.describe_queues() else {
            return Problem::amend_refused(AmendRefusal::NotFound);
        };
        Problem::not_found(format_args!(
            "there is no job {id} in {limits}, which this token is for; it may have been pruned"
        ))
    }

    /// What to say of a bulk action that is not within it, be it of other queues or none.
    pub(crate) fn bulk_run_not_found(&self, id: &str) -> Problem {
        let Some(limits) = self.describe_queues() else {
            return Problem::not_found(format_args!(
                "there is no bulk action {id}; the oldest are forgotten"
            ));
        };
        Problem::not_found(format_args!(
            "there is no bulk action {id} of {limits}, which this token is for; the oldest are forgotten"
        ))
    }

    /// Leaves out what a dead letter tells of other queues.
    pub(crate) fn hide_other_queues(&self, context: &mut DeathContext) {
        if let Self::Queues(queues) = self {
            let is_own = |name: &str| queues.iter().any(|queue| queue.as_str() == name);
            context.queue_depths.retain(|queue, _| is_own(queue));
            context
                .breakers
                .retain(|name, _| is_own(name.split('/').next().unwrap_or_default()));
        }
    }
}

fn refuse_other_queues(limits: &str, why: std::fmt::Arguments<'_>) -> Problem {
    let detail = format_args!("this token is for {limits} only, and {why}");
    Problem::new(
        StatusCode::FORBIDDEN,
        OTHER_QUEUES,
        OTHER_QUEUES_TITLE,
        detail,
    )
}

/// This kind of problem, for programs and for people.
pub(super) const OTHER_QUEUES: &str = "other-queues";
pub(super) const OTHER_QUEUES_TITLE: &str = "The token is for some queues only";

fn list_queue_names(queues: &BTreeSet<QueueName>) -> String {
    let names: Vec<&str> = queues.iter().map(QueueName::as_str).collect();
    format!(
        "{} {}",
        if names.len() == 1 { "queue" } else { "queues" },
        names.join(", ")
    )
}
