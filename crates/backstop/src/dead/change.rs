//! Changing dead letters: requeue, move, delete, clear.

use super::{DeadFilter, DeadLetters, of_queue};
use crate::audit::each_in_short;
use backstop_core::amend::{AmendAction, AmendRefusal, Filter, Selection};
use backstop_core::limits::{AMEND_MAX, PAGE_MAX, SCAN_MAX};
use backstop_core::port::{AmendJobsRequest, DamagedJob, ListOrder, StoreError, StoreResult};
use backstop_core::redact::Redaction;
use backstop_core::{JobId, JobState, QueueName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Letters read and changed in one go, where the store cannot tell by itself which ones are meant.
const STEP_MAX: usize = 200;
/// Ids that are told one by one, of many.
pub(super) const IDS_SHOWN: usize = 100;
/// Refusals that are listed of letters that nobody named one by one.
const REFUSED_LISTED_MAX: usize = 1_000;
/// What a store is said to have been asked for.
const CHANGING: &str = "changing dead letters";

/// Which dead letters to change. All of them must be said in so many words.
///
/// As JSON: `{"ids":[…]}`, `{"ids":[…],"queue":"emails"}`, `{"oldest":10,"queue":"emails"}`,
/// `{"matching":{…}}` or `{"all":true}`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "DeadSelectionInput", into = "DeadSelectionInput")]
pub enum DeadSelection {
    Ids(Vec<JobId>),
    /// These of a queue: on Redis other queues may have jobs of the same ids.
    Within {
        queue: QueueName,
        ids: Vec<JobId>,
    },
    /// Those of a queue that died first.
    Oldest {
        queue: QueueName,
        count: usize,
    },
    /// Those that fit. A filter that says nothing is misuse, and so is one with an empty text.
    Matching(DeadFilter),
    All,
}

/// How many dead letters a change reached, and which it was refused for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeadChangeResult {
    /// How many letters it was done to.
    pub count: u64,
    /// To which it was not, and why. Of letters that nobody named one by one it lists the first
    /// thousand.
    pub refused: Vec<(JobId, AmendRefusal)>,
    /// To how many more it was not.
    pub more_refused: u64,
    /// Those that cannot be read, where the selection may mean them. They stay, and can be deleted
    /// by id.
    pub damaged: Vec<DamagedJob>,
}

impl DeadChangeResult {
    /// To how many letters it was not done.
    pub const fn refused_count(&self) -> u64 {
        self.refused.len() as u64 + self.more_refused
    }

    /// Counts what it lists beyond the bound: a selection may mean millions of letters.
    fn shorten_refused(&mut self) {
        let more = self.refused.len().saturating_sub(REFUSED_LISTED_MAX);
        self.refused.truncate(REFUSED_LISTED_MAX);
        self.more_refused += more as u64;
    }
}

impl DeadLetters {
    /// Makes dead letters ready again in their queues, with all attempts anew. Their history stays.
    pub async fn requeue(&self, selection: &DeadSelection) -> StoreResult<DeadChangeResult> {
        self.change("requeue", selection, AmendAction::Retry).await
    }

    /// Makes dead letters ready in another queue, with all attempts anew. Their history stays.
    pub async fn move_to(
        &self,
        selection: &DeadSelection,
        queue: &QueueName,
    ) -> StoreResult<DeadChangeResult> {
        self.change(
            &format!("move to {queue}"),
            selection,
            AmendAction::Move(queue.clone()),
        )
        .await
    }

    /// Removes dead letters with their history; by id also one that cannot be read.
    pub async fn delete(&self, selection: &DeadSelection) -> StoreResult<DeadChangeResult> {
        self.change("delete", selection, AmendAction::Delete).await
    }

    /// Removes all dead letters of a queue.
    pub async fn clear(&self, queue: &QueueName) -> StoreResult<DeadChangeResult> {
        let all = DeadFilter {
            queue: Some(queue.clone()),
            ..DeadFilter::default()
        };
        self.change("clear", &DeadSelection::Matching(all), AmendAction::Delete)
            .await
    }

    /// Removes all dead letters of all queues.
    pub async fn clear_all(&self) -> StoreResult<DeadChangeResult> {
        self.change("clear", &DeadSelection::All, AmendAction::Delete)
            .await
    }

    /// Retries, moves or deletes what several selections mean, as one change with one entry in the
    /// audit. `changed` tells what was done, also where the store fails in the middle.
    pub async fn change_each(
        &self,
        parts: &[DeadSelection],
        action: &AmendAction,
        changed: &mut DeadChangeResult,
    ) -> StoreResult<()> {
        let what = match action {
            AmendAction::Retry => "requeue".to_owned(),
            AmendAction::Move(queue) => format!("move to {queue}"),
            AmendAction::Delete => "delete".to_owned(),
            AmendAction::Cancel => {
                return Err(StoreError::misuse(
                    CHANGING,
                    "what is dead cannot be called off",
                ));
            }
        };
        self.change_parts(&what, parts, action, changed).await
    }

    async fn change(
        &self,
        what: &str,
        selection: &DeadSelection,
        action: AmendAction,
    ) -> StoreResult<DeadChangeResult> {
        let mut changed = DeadChangeResult::default();
        self.change_parts(what, std::slice::from_ref(selection), &action, &mut changed)
            .await?;
        Ok(changed)
    }

    async fn change_parts(
        &self,
        what: &str,
        parts: &[DeadSelection],
        action: &AmendAction,
        changed: &mut DeadChangeResult,
    ) -> StoreResult<()> {
        if parts.is_empty() {
            return Err(empty());
        }
        parts.iter().try_for_each(DeadSelection::check)?;
        let selection = each_in_short(parts, |part: &DeadSelection| {
            part.audit_json(&self.redaction)
        });
        let entry = self.log.open_entry(what, selection).await?;
        let done = self.apply_each(parts, action, changed).await;
        self.log.close_entry(entry, changed.count, &done).await;
        done
    }

    async fn apply_each(
        &self,
        parts: &[DeadSelection],
        action: &AmendAction,
        changed: &mut DeadChangeResult,
    ) -> StoreResult<()> {
        for selection in parts {
            self.apply(selection, action, changed).await?;
        }
        Ok(())
    }

    async fn apply(
        &self,
        selection: &DeadSelection,
        action: &AmendAction,
        changed: &mut DeadChangeResult,
    ) -> StoreResult<()> {
        let now = self.backstop.current_time().await;
        match selection {
            DeadSelection::Ids(ids) => self.apply_to(&deduplicate(ids), action, changed).await,
            DeadSelection::Within { queue, ids } => {
                self.apply_within(queue, &deduplicate(ids), action, changed)
                    .await
            }
            DeadSelection::All => self.apply_where(of_queue(None), action, changed).await,
            DeadSelection::Matching(filter) if filter.is_covered_by_store() => {
                self.apply_where(filter.store_filter(), action, changed)
                    .await
            }
            DeadSelection::Matching(filter) => {
                self.apply_found(&filter.as_of(now), usize::MAX, action, changed)
                    .await
            }
            DeadSelection::Oldest { queue, count } => {
                let filter = DeadFilter {
                    queue: Some(queue.clone()),
                    ..DeadFilter::default()
                };
                self.apply_found(&filter.as_of(now), *count, action, changed)
                    .await
            }
        }
    }

    /// Changes these, as far as they are dead.
    pub(super) async fn apply_to(
        &self,
        ids: &[JobId],
        action: &AmendAction,
        changed: &mut DeadChangeResult,
    ) -> StoreResult<()> {
        for part in ids.chunks(AMEND_MAX) {
            self.apply_once(Selection::Ids(part.to_vec()), action, changed)
                .await?;
        }
        Ok(())
    }

    /// Changes these of a queue, as far as they are dead.
    pub(super) async fn apply_within(
        &self,
        queue: &QueueName,
        ids: &[JobId],
        action: &AmendAction,
        changed: &mut DeadChangeResult,
    ) -> StoreResult<()> {
        for part in ids.chunks(AMEND_MAX) {
            self.apply_once(
                Selection::Within(queue.clone(), part.to_vec()),
                action,
                changed,
            )
            .await?;
        }
        Ok(())
    }

    async fn apply_once(
        &self,
        selection: Selection,
        action: &AmendAction,
        changed: &mut DeadChangeResult,
    ) -> StoreResult<()> {
        let amended = self
            .backstop
            .store()
            .amend(
                amend_request(selection, action),
                self.backstop.current_time().await,
            )
            .await?;
        changed.count += amended.applied as u64;
        changed.refused.extend(amended.refused);
        Ok(())
    }

    /// Changes those that the store finds by itself. It ends where the one queue that all of them
    /// go to is full: the others would be read for nothing.
    async fn apply_where(
        &self,
        filter: Filter,
        action: &AmendAction,
        changed: &mut DeadChangeResult,
    ) -> StoreResult<()> {
        let has_one_target = matches!(action, AmendAction::Move(_)) || filter.queue.is_some();
        let mut amendment = amend_request(Selection::Matching(filter.clone()), action);
        loop {
            let amended = self
                .backstop
                .store()
                .amend(amendment.clone(), self.backstop.current_time().await)
                .await?;
            changed.count += amended.applied as u64;
            let is_full = has_one_target && is_any_full(&amended.refused);
            changed.refused.extend(amended.refused);
            changed.shorten_refused();
            amendment.cursor = amended.next;
            if amendment.cursor.is_none() || is_full {
                break;
            }
        }
        changed.damaged.extend(self.damaged(filter).await?);
        Ok(())
    }

    /// Changes the oldest that fit, at most `count`, in steps. It ends as [`Self::apply_where`]
    /// does.
    async fn apply_found(
        &self,
        filter: &DeadFilter,
        count: usize,
        action: &AmendAction,
        changed: &mut DeadChangeResult,
    ) -> StoreResult<()> {
        let has_one_target = matches!(action, AmendAction::Move(_)) || filter.queue.is_some();
        let (mut left, mut cursor) = (count, None);
        while left > 0 {
            let mut found = self
                .find(filter, cursor, left.min(STEP_MAX), ListOrder::Oldest)
                .await?;
            left -= found.jobs.len();
            let mut is_full = false;
            // Jobs that move meet in one line, in the order they were found. Others stay where they
            // are: queue by queue is fewer calls.
            if !matches!(action, AmendAction::Move(_)) {
                found.jobs.sort_by(|one, other| one.queue.cmp(&other.queue));
            }
            for jobs in found.jobs.chunk_by(|one, next| one.queue == next.queue) {
                let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
                let before = changed.refused.len();
                self.apply_within(&jobs[0].queue, &ids, action, changed)
                    .await?;
                is_full |= has_one_target && is_any_full(&changed.refused[before..]);
                changed.shorten_refused();
            }
            changed.damaged.extend(found.damaged);
            cursor = found.next;
            if cursor.is_none() || is_full {
                break;
            }
        }
        Ok(())
    }

    /// What is left after a change and cannot be read. Little else is left, so this is a short
    /// list.
    async fn damaged(&self, filter: Filter) -> StoreResult<Vec<DamagedJob>> {
        let filter = DeadFilter {
            queue: filter.queue,
            kind: filter.kind,
            fingerprint: filter.fingerprint,
            ..DeadFilter::default()
        };
        let (mut damaged, mut cursor, mut looked) = (Vec::new(), None, 0);
        while looked < SCAN_MAX {
            let found = self
                .find(&filter, cursor, STEP_MAX, ListOrder::Oldest)
                .await?;
            damaged.extend(found.damaged);
            looked += STEP_MAX;
            cursor = found.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(damaged)
    }
}

fn is_any_full(refused: &[(JobId, AmendRefusal)]) -> bool {
    refused.iter().any(|(_, why)| *why == AmendRefusal::Full)
}

/// An id that was named twice is meant once.
pub(super) fn deduplicate(ids: &[JobId]) -> Vec<JobId> {
    let mut named = BTreeSet::new();
    ids.iter().copied().filter(|id| named.insert(*id)).collect()
}

fn amend_request(selection: Selection, action: &AmendAction) -> AmendJobsRequest {
    AmendJobsRequest {
        selection,
        action: action.clone(),
        only: Some(JobState::Dead),
        cursor: None,
        max: AMEND_MAX.min(PAGE_MAX),
    }
}

impl DeadSelection {
    /// Refuses one that does not say what it means.
    pub(super) fn check(&self) -> StoreResult<()> {
        match self {
            Self::Ids(ids) | Self::Within { ids, .. } if ids.is_empty() => Err(empty()),
            Self::Matching(filter) if filter.is_empty() => Err(empty()),
            Self::Matching(filter) => filter.blank_field().map_or(Ok(()), |name| Err(blank(name))),
            Self::Oldest { count: 0, .. } => Err(empty()),
            _ => Ok(()),
        }
    }

    /// As reports tell it: secrets in what is looked for are hidden.
    #[must_use]
    pub(super) fn redacted(self, redaction: &Redaction) -> Self {
        match self {
            Self::Matching(filter) => Self::Matching(filter.redacted(redaction)),
            other => other,
        }
    }

    /// For the audit: of many ids the first ones, and how many more there are; secrets in what is
    /// looked for are hidden.
    fn audit_json(&self, redaction: &Redaction) -> serde_json::Value {
        match self {
            Self::Matching(filter) => serde_json::json!({ "matching": filter.redacted(redaction) }),
            Self::Ids(ids) if ids.len() > IDS_SHOWN => {
                serde_json::json!({ "ids": ids[..IDS_SHOWN], "more": ids.len() - IDS_SHOWN })
            }
            Self::Within { queue, ids } if ids.len() > IDS_SHOWN => {
                serde_json::json!({ "queue": queue, "ids": ids[..IDS_SHOWN], "more": ids.len() - IDS_SHOWN })
            }
            other => serde_json::to_value(other).unwrap_or_default(),
        }
    }
}

fn empty() -> StoreError {
    StoreError::misuse(CHANGING, "nothing is selected; say which, or say all")
}

fn blank(name: &str) -> StoreError {
    StoreError::misuse(
        CHANGING,
        format_args!("`{name}` is empty; say what to look for, or leave it out"),
    )
}

/// A selection as people and programs write it.
#[derive(Serialize, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct DeadSelectionInput {
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<Vec<JobId>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    matching: Option<DeadFilter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<QueueName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    all: Option<bool>,
}

impl From<DeadSelection> for DeadSelectionInput {
    fn from(selection: DeadSelection) -> Self {
        let none = Self::default();
        match selection {
            DeadSelection::Ids(ids) => Self {
                ids: Some(ids),
                ..none
            },
            DeadSelection::Within { queue, ids } => Self {
                ids: Some(ids),
                queue: Some(queue),
                ..none
            },
            DeadSelection::Oldest { queue, count } => Self {
                oldest: Some(count),
                queue: Some(queue),
                ..none
            },
            DeadSelection::Matching(filter) => Self {
                matching: Some(filter),
                ..none
            },
            DeadSelection::All => Self {
                all: Some(true),
                ..none
            },
        }
    }
}

impl TryFrom<DeadSelectionInput> for DeadSelection {
    type Error = String;

    fn try_from(input: DeadSelectionInput) -> Result<Self, String> {
        let selection = match (
            input.ids,
            input.matching,
            input.oldest,
            input.queue,
            input.all,
        ) {
            (Some(ids), None, None, None, None) => Self::Ids(ids),
            (Some(ids), None, None, Some(queue), None) => Self::Within { queue, ids },
            (None, Some(filter), None, None, None) => Self::Matching(filter),
            (None, None, Some(count), Some(queue), None) => Self::Oldest { queue, count },
            (None, None, None, None, Some(true)) => Self::All,
            _ => {
                return Err(
                    "a selection is one of {\"ids\":[…]}, {\"ids\":[…],\"queue\":q}, {\"matching\":{…}}, \
                            {\"oldest\":n,\"queue\":q} and {\"all\":true}"
                        .to_owned(),
                );
            }
        };
        selection.check().map_err(|error| error.to_string())?;
        Ok(selection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<DeadSelection>) {
        let read = serde_json::from_str::<DeadSelection>(text).ok();
        assert_eq!(read, expected, "{text}");
        if let Some(selection) = expected {
            assert_eq!(serde_json::to_string(&selection).unwrap(), text);
        }
    }

    #[test]
    fn a_selection_is_one_thing_and_all_must_be_explicit() {
        let queue = QueueName::new("q").unwrap();
        let matching = DeadFilter {
            queue: Some(queue.clone()),
            text: Some("x".to_owned()),
            ..DeadFilter::default()
        };
        check(r#"{"all":true}"#, Some(DeadSelection::All));
        check(
            r#"{"oldest":3,"queue":"q"}"#,
            Some(DeadSelection::Oldest { queue, count: 3 }),
        );
        check(
            r#"{"matching":{"queue":"q","text":"x"}}"#,
            Some(DeadSelection::Matching(matching)),
        );
        let id = JobId::named("a");
        check(
            &format!(r#"{{"ids":["{id}"]}}"#),
            Some(DeadSelection::Ids(vec![id])),
        );
        let within = DeadSelection::Within {
            queue: QueueName::new("q").unwrap(),
            ids: vec![id],
        };
        check(&format!(r#"{{"ids":["{id}"],"queue":"q"}}"#), Some(within));
        for wrong in [
            "{}",
            r#"{"ids":[]}"#,
            r#"{"matching":{}}"#,
            r#"{"matching":{"colour":"red"}}"#,
            r#"{"matching":{"text":""}}"#,
            r#"{"matching":{"queue":"q","text":" "}}"#,
            r#"{"matching":{"queue":"q","error_type":""}}"#,
            r#"{"oldest":3}"#,
            r#"{"oldest":0,"queue":"q"}"#,
            r#"{"all":false}"#,
            r#"{"all":true,"ids":["a"]}"#,
        ] {
            check(wrong, None);
        }
    }
}
