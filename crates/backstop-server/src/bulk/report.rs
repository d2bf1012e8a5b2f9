//! What a run does, and how far it is.

use backstop::audit::AuditLog;
use backstop::dead::{DeadFilter, DeadSelection};
use backstop::search::{JobSearch, SearchText};
use backstop_core::amend::{AmendAction, Filter};
use backstop_core::port::{StoreError, StoreResult};
use backstop_core::redact::Redaction;
use backstop_core::{Fingerprint, JobId, JobState, Kind, QueueName, Span, Time, WorkerName};
use serde::{Deserialize, Serialize};

/// A run whose last sign of life is older than this has lost its server.
const SILENT_AFTER: Span = Span::secs(20);
/// Refusals that are told one by one.
const REFUSALS_MAX: usize = 20;

/// What to do to which jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BulkTarget {
    /// The audit's word for it.
    pub what: String,
    pub deed: BulkAction,
    /// The queue that jobs are moved to.
    pub to: Option<QueueName>,
    pub which: BulkSelection,
}

/// What is done to each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BulkAction {
    Retry,
    Cancel,
    Delete,
    /// Give it to another queue.
    Move,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BulkSelection {
    /// Those that the store finds by itself; where nothing is said, all.
    Jobs {
        queue: Option<QueueName>,
        kind: Option<Kind>,
        state: Option<JobState>,
        fingerprint: Option<Fingerprint>,
    },
    /// Jobs that have to be looked at. Apart from the others: a server that does not know of texts
    /// would change all of them.
    Found {
        queue: Option<QueueName>,
        kind: Option<Kind>,
        state: Option<JobState>,
        /// With this in the payload, as lists show it.
        text: String,
    },
    /// Running jobs that one worker holds. Apart from the others for the same reason.
    Held {
        queue: Option<QueueName>,
        kind: Option<Kind>,
        worker: String,
        /// With this in the payload, as lists show it.
        text: Option<String>,
    },
    /// Dead letters that have to be looked at.
    Letters(DeadFilter),
}

/// A run to be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BulkPlan {
    /// What to do to which jobs.
    pub target: BulkTarget,
    /// How many there were when somebody said yes, where that was known exactly.
    pub expected: Option<u64>,
    /// The list it was started from.
    pub back: String,
}

/// A run as it stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BulkReport {
    pub id: String,
    /// Who started it, or let it go on last.
    pub who: String,
    /// Why, if anybody said so. Secrets in it are hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub target: BulkTarget,
    /// How many jobs it was about when somebody said yes, where that was known exactly.
    pub expected: Option<u64>,
    /// The list it was started from.
    pub back: String,
    pub started_at: Time,
    /// When it ended, if it has.
    pub ended_at: Option<Time>,
    /// Its last sign of life.
    pub seen_at: Time,
    /// To how many jobs it was done.
    pub count: u64,
    /// How many were left alone.
    pub refused: u64,
    /// The first of them, and why.
    pub refusals: Vec<(JobId, String)>,
    /// Why it ended early, if it did.
    pub error: Option<String>,
    /// Whether somebody wants it to stop.
    #[serde(rename = "is_stop_asked")]
    pub is_stop_requested: bool,
    /// Whether its server left it for another one in good order.
    #[serde(default)]
    pub(super) is_left: bool,
    /// Where its next step begins.
    pub(super) cursor: Option<String>,
    /// Drawn by whoever runs it.
    pub(super) runner: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BulkStatus {
    Running,
    /// Its server gives no sign of life: what was done is done, the rest was not.
    Silent,
    /// It did all there was.
    Done,
    Stopped,
    /// It could not go on.
    Failed,
}

impl BulkTarget {
    /// Jobs that fit; where nothing is said, all there are.
    pub fn jobs(search: &JobSearch, action: &AmendAction) -> Self {
        let (word, deed, to) = describe_action(action);
        let Filter {
            queue,
            kind,
            state,
            fingerprint,
        } = search.filter.clone();
        let text = search.text.as_ref().map(|text| text.as_str().to_owned());
        let which = match (&search.worker, text) {
            (Some(worker), text) => BulkSelection::Held {
                queue,
                kind,
                worker: worker.to_string(),
                text,
            },
            (None, Some(text)) => BulkSelection::Found {
                queue,
                kind,
                state,
                text,
            },
            (None, None) => BulkSelection::Jobs {
                queue,
                kind,
                state,
                fingerprint,
            },
        };
        Self {
            what: format!("job {word}"),
            deed,
            to,
            which,
        }
    }

    pub fn letters(selection: &DeadSelection, action: &AmendAction) -> Self {
        let filter = match selection {
            DeadSelection::Matching(filter) => filter.clone(),
            _ => DeadFilter::default(),
        };
        let (word, deed, to) = describe_action(action);
        let what = match &to {
            Some(queue) => format!("move to {queue}"),
            None if deed == BulkAction::Retry => "requeue".to_owned(),
            None => word.to_owned(),
        };
        Self {
            what,
            deed,
            to,
            which: BulkSelection::Letters(filter),
        }
    }

    /// As the store takes it.
    pub fn action(&self) -> AmendAction {
        match (self.deed, &self.to) {
            (BulkAction::Move, Some(queue)) => AmendAction::Move(queue.clone()),
            (BulkAction::Cancel, _) => AmendAction::Cancel,
            (BulkAction::Delete, _) => AmendAction::Delete,
            // A move to nowhere is a requeue: nothing is lost by it.
            (BulkAction::Retry | BulkAction::Move, _) => AmendAction::Retry,
        }
    }

    /// The queue it keeps to, if it keeps to one.
    pub fn queue(&self) -> Option<&QueueName> {
        match &self.which {
            BulkSelection::Jobs { queue, .. }
            | BulkSelection::Found { queue, .. }
            | BulkSelection::Held { queue, .. } => queue.as_ref(),
            BulkSelection::Letters(filter) => filter.queue.as_ref(),
        }
    }

    /// Whether nothing is said of which: then every one is meant.
    pub fn is_everything(&self) -> bool {
        match &self.which {
            BulkSelection::Jobs {
                queue,
                kind,
                state,
                fingerprint,
            } => queue.is_none() && kind.is_none() && state.is_none() && fingerprint.is_none(),
            BulkSelection::Found { .. } | BulkSelection::Held { .. } => false,
            BulkSelection::Letters(filter) => filter.is_empty(),
        }
    }

    /// The text that is looked for, if one is.
    pub fn text(&self) -> Option<&str> {
        match &self.which {
            BulkSelection::Jobs { .. } => None,
            BulkSelection::Found { text, .. } => Some(text),
            BulkSelection::Held { text, .. } => text.as_deref(),
            BulkSelection::Letters(filter) => filter.text.as_deref(),
        }
    }

    /// As the audit tells it, with secrets hidden.
    pub fn audit_selection(&self, redaction: &Redaction) -> serde_json::Value {
        let mut fields = match &self.which {
            BulkSelection::Letters(filter) => match serde_json::to_value(filter) {
                Ok(serde_json::Value::Object(fields)) => fields,
                _ => serde_json::Map::new(),
            },
            BulkSelection::Jobs {
                queue,
                kind,
                state,
                fingerprint,
            } => describe_job_filter(queue.as_ref(), kind.as_ref(), *state, *fingerprint),
            BulkSelection::Found {
                queue, kind, state, ..
            } => describe_job_filter(queue.as_ref(), kind.as_ref(), *state, None),
            BulkSelection::Held {
                queue,
                kind,
                worker,
                ..
            } => {
                let mut fields = describe_job_filter(queue.as_ref(), kind.as_ref(), None, None);
                fields.insert("worker".to_owned(), worker.as_str().into());
                fields
            }
        };
        if let Some(text) = self.text() {
            fields.insert("text".to_owned(), redaction.text(text).into());
        }
        if fields.is_empty() {
            serde_json::json!({ "all": true })
        } else {
            serde_json::json!({ "matching": fields })
        }
    }
}

impl BulkSelection {
    /// What is to be looked for, where these are jobs.
    pub(super) fn search(&self) -> StoreResult<Option<JobSearch>> {
        let parsed = |text: &str| {
            text.parse::<SearchText>()
                .map_err(|error| StoreError::misuse("looking for jobs", error))
        };
        Ok(Some(match self.clone() {
            Self::Letters(_) => return Ok(None),
            Self::Jobs {
                queue,
                kind,
                state,
                fingerprint,
            } => JobSearch {
                filter: Filter {
                    queue,
                    kind,
                    state,
                    fingerprint,
                },
                ..JobSearch::default()
            },
            Self::Found {
                queue,
                kind,
                state,
                text,
            } => {
                let filter = Filter {
                    queue,
                    kind,
                    state,
                    fingerprint: None,
                };
                JobSearch {
                    filter,
                    text: Some(parsed(&text)?),
                    worker: None,
                }
            }
            Self::Held {
                queue,
                kind,
                worker,
                text,
            } => {
                let filter = Filter {
                    queue,
                    kind,
                    ..Filter::default()
                };
                let text = text.as_deref().map(parsed).transpose()?;
                JobSearch {
                    filter,
                    text,
                    worker: Some(WorkerName::new(&worker)),
                }
            }
        }))
    }
}

fn describe_job_filter(
    queue: Option<&QueueName>,
    kind: Option<&Kind>,
    state: Option<JobState>,
    fingerprint: Option<Fingerprint>,
) -> serde_json::Map<String, serde_json::Value> {
    let fields = [
        ("queue", queue.map(ToString::to_string)),
        ("kind", kind.map(ToString::to_string)),
        ("state", state.map(|state| state.to_string())),
        (
            "fingerprint",
            fingerprint.map(|fingerprint| fingerprint.to_string()),
        ),
    ];
    fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.into())))
        .collect()
}

const fn action_word(deed: BulkAction) -> &'static str {
    match deed {
        BulkAction::Retry => "retry",
        BulkAction::Cancel => "cancel",
        BulkAction::Delete => "delete",
        BulkAction::Move => "move",
    }
}

fn describe_action(action: &AmendAction) -> (&'static str, BulkAction, Option<QueueName>) {
    let (deed, to) = match action {
        AmendAction::Retry => (BulkAction::Retry, None),
        AmendAction::Cancel => (BulkAction::Cancel, None),
        AmendAction::Delete => (BulkAction::Delete, None),
        AmendAction::Move(queue) => (BulkAction::Move, Some(queue.clone())),
    };
    (action_word(deed), deed, to)
}

impl BulkReport {
    pub(super) fn new(id: String, log: &AuditLog, plan: BulkPlan, now: Time) -> Self {
        Self {
            id,
            who: log.who().to_owned(),
            reason: log.reason().map(str::to_owned),
            target: plan.target,
            expected: plan.expected,
            back: plan.back,
            started_at: now,
            ended_at: None,
            seen_at: now,
            count: 0,
            refused: 0,
            refusals: Vec::new(),
            error: None,
            is_stop_requested: false,
            is_left: false,
            cursor: None,
            runner: rand::random(),
        }
    }

    /// How it stands at `now`.
    pub fn status(&self, now: Time) -> BulkStatus {
        match self.ended_at {
            None if self.is_left || now.since(self.seen_at) > SILENT_AFTER => BulkStatus::Silent,
            None => BulkStatus::Running,
            Some(_) if self.error.is_some() => BulkStatus::Failed,
            Some(_) if self.is_stop_requested => BulkStatus::Stopped,
            Some(_) => BulkStatus::Done,
        }
    }

    /// Takes note of what a step left alone.
    pub(super) fn record_refusals(&mut self, refused: impl IntoIterator<Item = (JobId, String)>) {
        for refusal in refused {
            self.refused += 1;
            if self.refusals.len() < REFUSALS_MAX {
                self.refusals.push(refusal);
            }
        }
    }
}
