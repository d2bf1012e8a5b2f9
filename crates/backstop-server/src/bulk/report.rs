//! What a run does, and how far it is.

use backstop::audit::Audit;
use backstop::dead::{DeadFilter, DeadSelection};
use backstop::search::{Search, SearchText};
use backstop_core::amend::{Action, Filter};
use backstop_core::port::{Answer, StoreError};
use backstop_core::redact::Redaction;
use backstop_core::{Fingerprint, JobId, Kind, QueueName, Span, State, Time, WorkerName};
use serde::{Deserialize, Serialize};

/// A run whose last sign of life is older than this has lost its server.
const SILENT_AFTER: Span = Span::secs(20);
/// Refusals that are told one by one.
const REFUSALS_MAX: usize = 20;

/// What to do to which jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Target {
    /// The audit's word for it.
    pub what: String,
    /// What is done.
    pub deed: Deed,
    /// The queue that jobs are moved to.
    pub to: Option<QueueName>,
    /// To which.
    pub which: Which,
}

/// What is done to each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// Run it now.
    Retry,
    /// Call it off.
    Cancel,
    /// Remove it.
    Delete,
    /// Give it to another queue.
    Move,
}

/// To which jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// Those that the store finds by itself; where nothing is said, all.
    Jobs {
        /// Of this queue.
        queue: Option<QueueName>,
        /// Of this kind.
        kind: Option<Kind>,
        /// In this state.
        state: Option<State>,
        /// Dead of this.
        fingerprint: Option<Fingerprint>,
    },
    /// Jobs that have to be looked at. Apart from the others: a server that does not know of texts
    /// would change all of them.
    Found {
        /// Of this queue.
        queue: Option<QueueName>,
        /// Of this kind.
        kind: Option<Kind>,
        /// In this state.
        state: Option<State>,
        /// With this in the payload, as lists show it.
        text: String,
    },
    /// Running jobs that one worker holds. Apart from the others for the same reason.
    Held {
        /// Of this queue.
        queue: Option<QueueName>,
        /// Of this kind.
        kind: Option<Kind>,
        /// Its worker.
        worker: String,
        /// With this in the payload, as lists show it.
        text: Option<String>,
    },
    /// Dead letters that have to be looked at.
    Letters(DeadFilter),
}

/// A run to be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// What to do to which jobs.
    pub target: Target,
    /// How many there were when somebody said yes, where that was known exactly.
    pub expected: Option<u64>,
    /// The list it was started from.
    pub back: String,
}

/// A run as it stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Names it.
    pub id: String,
    /// Who started it, or let it go on last.
    pub who: String,
    /// Why, if anybody said so. Secrets in it are hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it does.
    pub target: Target,
    /// How many jobs it was about when somebody said yes, where that was known exactly.
    pub expected: Option<u64>,
    /// The list it was started from.
    pub back: String,
    /// When it began.
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
    pub is_stop_asked: bool,
    /// Whether its server left it for another one in good order.
    #[serde(default)]
    pub(super) is_left: bool,
    /// Where its next step begins.
    pub(super) cursor: Option<String>,
    /// Drawn by whoever runs it.
    pub(super) runner: u64,
}

/// How a run stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It goes on.
    Running,
    /// Its server gives no sign of life: what was done is done, the rest was not.
    Silent,
    /// It did all there was.
    Done,
    /// Somebody stopped it.
    Stopped,
    /// It could not go on.
    Failed,
}

impl Target {
    /// Jobs that fit; where nothing is said, all there are.
    pub fn jobs(search: &Search, action: &Action) -> Self {
        let (word, deed, to) = told(action);
        let Filter {
            queue,
            kind,
            state,
            fingerprint,
        } = search.filter.clone();
        let text = search.text.as_ref().map(|text| text.as_str().to_owned());
        let which = match (&search.worker, text) {
            (Some(worker), text) => Which::Held {
                queue,
                kind,
                worker: worker.to_string(),
                text,
            },
            (None, Some(text)) => Which::Found {
                queue,
                kind,
                state,
                text,
            },
            (None, None) => Which::Jobs {
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

    /// Dead letters.
    pub fn letters(selection: &DeadSelection, action: &Action) -> Self {
        let filter = match selection {
            DeadSelection::Matching(filter) => filter.clone(),
            _ => DeadFilter::default(),
        };
        let (word, deed, to) = told(action);
        let what = match &to {
            Some(queue) => format!("move to {queue}"),
            None if deed == Deed::Retry => "requeue".to_owned(),
            None => word.to_owned(),
        };
        Self {
            what,
            deed,
            to,
            which: Which::Letters(filter),
        }
    }

    /// As the store takes it.
    pub fn action(&self) -> Action {
        match (self.deed, &self.to) {
            (Deed::Move, Some(queue)) => Action::Move(queue.clone()),
            (Deed::Cancel, _) => Action::Cancel,
            (Deed::Delete, _) => Action::Delete,
            // A move to nowhere is a requeue: nothing is lost by it.
            (Deed::Retry | Deed::Move, _) => Action::Retry,
        }
    }

    /// The queue it keeps to, if it keeps to one.
    pub fn queue(&self) -> Option<&QueueName> {
        match &self.which {
            Which::Jobs { queue, .. } | Which::Found { queue, .. } | Which::Held { queue, .. } => {
                queue.as_ref()
            }
            Which::Letters(filter) => filter.queue.as_ref(),
        }
    }

    /// Whether nothing is said of which: then every one is meant.
    pub fn is_everything(&self) -> bool {
        match &self.which {
            Which::Jobs {
                queue,
                kind,
                state,
                fingerprint,
            } => queue.is_none() && kind.is_none() && state.is_none() && fingerprint.is_none(),
            Which::Found { .. } | Which::Held { .. } => false,
            Which::Letters(filter) => filter.is_empty(),
        }
    }

    /// The text that is looked for, if one is.
    pub fn text(&self) -> Option<&str> {
        match &self.which {
            Which::Jobs { .. } => None,
            Which::Found { text, .. } => Some(text),
            Which::Held { text, .. } => text.as_deref(),
            Which::Letters(filter) => filter.text.as_deref(),
        }
    }

    /// As the audit tells it, with secrets hidden.
    pub fn selection(&self, redaction: &Redaction) -> serde_json::Value {
        let mut said = match &self.which {
            Which::Letters(filter) => match serde_json::to_value(filter) {
                Ok(serde_json::Value::Object(said)) => said,
                _ => serde_json::Map::new(),
            },
            Which::Jobs {
                queue,
                kind,
                state,
                fingerprint,
            } => jobs_in_short(queue.as_ref(), kind.as_ref(), *state, *fingerprint),
            Which::Found {
                queue, kind, state, ..
            } => jobs_in_short(queue.as_ref(), kind.as_ref(), *state, None),
            Which::Held {
                queue,
                kind,
                worker,
                ..
            } => {
                let mut said = jobs_in_short(queue.as_ref(), kind.as_ref(), None, None);
                said.insert("worker".to_owned(), worker.as_str().into());
                said
            }
        };
        if let Some(text) = self.text() {
            said.insert("text".to_owned(), redaction.text(text).into());
        }
        if said.is_empty() {
            serde_json::json!({ "all": true })
        } else {
            serde_json::json!({ "matching": said })
        }
    }
}

impl Which {
    /// What is to be looked for, where these are jobs.
    pub(super) fn search(&self) -> Answer<Option<Search>> {
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
            } => Search {
                filter: Filter {
                    queue,
                    kind,
                    state,
                    fingerprint,
                },
                ..Search::default()
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
                Search {
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
                Search {
                    filter,
                    text,
                    worker: Some(WorkerName::new(&worker)),
                }
            }
        }))
    }
}

fn jobs_in_short(
    queue: Option<&QueueName>,
    kind: Option<&Kind>,
    state: Option<State>,
    fingerprint: Option<Fingerprint>,
) -> serde_json::Map<String, serde_json::Value> {
    let said = [
        ("queue", queue.map(ToString::to_string)),
        ("kind", kind.map(ToString::to_string)),
        ("state", state.map(|state| state.to_string())),
        (
            "fingerprint",
            fingerprint.map(|fingerprint| fingerprint.to_string()),
        ),
    ];
    said.into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.into())))
        .collect()
}

const fn word(deed: Deed) -> &'static str {
    match deed {
        Deed::Retry => "retry",
        Deed::Cancel => "cancel",
        Deed::Delete => "delete",
        Deed::Move => "move",
    }
}

fn told(action: &Action) -> (&'static str, Deed, Option<QueueName>) {
    let (deed, to) = match action {
        Action::Retry => (Deed::Retry, None),
        Action::Cancel => (Deed::Cancel, None),
        Action::Delete => (Deed::Delete, None),
        Action::Move(queue) => (Deed::Move, Some(queue.clone())),
    };
    (word(deed), deed, to)
}

impl Report {
    pub(super) fn new(id: String, log: &Audit, plan: Plan, now: Time) -> Self {
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
            is_stop_asked: false,
            is_left: false,
            cursor: None,
            runner: rand::random(),
        }
    }

    /// How it stands at `now`.
    pub fn standing(&self, now: Time) -> Standing {
        match self.ended_at {
            None if self.is_left || now.since(self.seen_at) > SILENT_AFTER => Standing::Silent,
            None => Standing::Running,
            Some(_) if self.error.is_some() => Standing::Failed,
            Some(_) if self.is_stop_asked => Standing::Stopped,
            Some(_) => Standing::Done,
        }
    }

    /// Takes note of what a step left alone.
    pub(super) fn refuse(&mut self, refused: impl IntoIterator<Item = (JobId, String)>) {
        for refusal in refused {
            self.refused += 1;
            if self.refusals.len() < REFUSALS_MAX {
                self.refusals.push(refusal);
            }
        }
    }
}
