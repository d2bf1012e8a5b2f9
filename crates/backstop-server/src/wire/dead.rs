//! Dead letters, and what was done to them. A dead letter itself is written as the library has it.

use super::job::{DamagedJobShape, RefusedJobShape};
use super::letter::{DeadGroupShape, DeadLetterShape, RedriveShape};
use backstop::dead::redrive::RedriveReport;
use backstop::dead::{DeadChangeResult, DeadGroup, DeadLetter, DeadPage};
use serde::Serialize;
use utoipa::ToSchema;

/// A page of dead letters.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = DeadLetters)]
pub struct DeadListShape<'a> {
    /// The letters, the newest death first.
    #[schema(value_type = Vec<DeadLetterShape>)]
    dead: &'a [DeadLetter],
    /// Those among them that cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    damaged: Vec<DamagedJobShape>,
    /// Where the next page starts; the list ends where there is none.
    next: Option<&'a str>,
}

impl<'a> DeadListShape<'a> {
    /// The shape of a page.
    pub fn new(page: &'a DeadPage) -> Self {
        let damaged = page.damaged.iter().map(DamagedJobShape::new).collect();
        Self {
            dead: &page.letters,
            damaged,
            next: page.next.as_deref(),
        }
    }
}

/// How many dead letters there are.
#[derive(ToSchema, Debug)]
#[schema(as = DeadStats)]
pub struct DeadStatsShape {
    /// Of every queue.
    pub queues: std::collections::BTreeMap<String, u64>,
    /// Of all.
    pub total: u64,
}

/// Dead letters by what they died of, the largest group first.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = DeadGroups)]
pub struct DeadGroupsShape<'a> {
    /// The groups.
    #[schema(value_type = Vec<DeadGroupShape>)]
    groups: &'a [DeadGroup],
}

impl<'a> DeadGroupsShape<'a> {
    pub const fn new(groups: &'a [DeadGroup]) -> Self {
        Self { groups }
    }
}

/// All redrives that are known, the newest first.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Redrives)]
pub struct RedrivesShape<'a> {
    /// Each with its `id`, `phase`, what was asked for, and how many letters were requeued, are
    /// done, died again and are open; `stalled` if it has not ended and nobody runs it.
    #[schema(value_type = Vec<RedriveShape>)]
    pub redrives: &'a [RedriveReport],
}

/// What a change of dead letters did.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = DeadChanged)]
pub struct DeadChangedShape {
    /// To how many letters it was done.
    count: u64,
    /// To which not, and why; where letters were not named one by one, the first thousand.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<RefusedJobShape>,
    /// To how many more not.
    #[serde(skip_serializing_if = "Option::is_none")]
    more_refused: Option<u64>,
    /// Those that cannot be read; they stay, and can be deleted by id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    damaged: Vec<DamagedJobShape>,
}

impl DeadChangedShape {
    /// The shape of a change.
    pub fn new(changed: &DeadChangeResult) -> Self {
        let refused = changed
            .refused
            .iter()
            .map(|(id, refusal)| RefusedJobShape::new(*id, *refusal))
            .collect();
        let damaged = changed.damaged.iter().map(DamagedJobShape::new).collect();
        Self {
            count: changed.count,
            refused,
            more_refused: Some(changed.more_refused).filter(|more| *more > 0),
            damaged,
        }
    }
}
