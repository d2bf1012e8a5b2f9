//! What is done with an event whose turn has come: judge it, write its line, remember both, once.
//!
//! That results come in order and none twice is the stream's doing; that a repeat after a crash
//! changes nothing is ours.

#[cfg(test)]
mod tests;

use crate::directory::{Detector, Directory};
use crate::event::{Effect, Event};
use crate::memory::{Memory, MemoryError, Transaction};
use crate::output::{self, Owner};
use crate::standing::{Notice, Standing, Thresholds, judge};
use crate::wire::{Broken, CheckResult, Received};

/// What was done with an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Processed {
    /// It was taken into account; perhaps there is something to tell.
    Applied(Option<Notice>),
    /// It had been before.
    Repeated,
    /// Nobody wants to know any more: its subscription or detector is gone, disabled or without the
    /// feature.
    Unwanted,
}

/// Why an event could not be taken into account.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The memory did not answer; the event may be tried again.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Its result cannot be read; no later try can.
    #[error("the result of a {0} event is broken: {1}")]
    Broken(&'static str, Broken),
    /// It has no result although one belongs to it.
    #[error("a {0} event without its result")]
    Empty(&'static str),
}

/// All of one event in a transaction of its own.
pub fn process(
    memory: &mut dyn Memory,
    event: &Event,
    directory: &Directory,
    thresholds: &Thresholds,
    at_ms: i64,
) -> Result<Processed, ProcessError> {
    let mut transaction = memory.begin()?;
    let processed = process_in(&mut *transaction, event, directory, thresholds, at_ms)?;
    transaction.commit()?;
    Ok(processed)
}

/// All of one event as a part of a transaction.
pub fn process_in(
    transaction: &mut dyn Transaction,
    event: &Event,
    directory: &Directory,
    thresholds: &Thresholds,
    at_ms: i64,
) -> Result<Processed, ProcessError> {
    let Some((owner, detector)) = wanted(event, directory) else {
        return Ok(Processed::Unwanted);
    };
    if transaction.is_noted(event)? {
        return Ok(Processed::Repeated);
    }
    let standing = transaction
        .standing(owner.detector)?
        .unwrap_or(Standing::first(detector.begins));
    let decision = decide(event, owner, standing, thresholds, at_ms)?;
    transaction.note(event, &decision.line, at_ms)?;
    if decision.standing != standing {
        transaction.set_standing(owner.detector, decision.standing)?;
    }
    if let Some(notice) = decision.notice {
        transaction.tell(owner.detector, notice)?;
    }
    Ok(Processed::Applied(decision.notice))
}

/// What an event amounts to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The line that goes on.
    pub line: String,
    /// How the detector stands afterwards.
    pub standing: Standing,
    /// What there is to tell.
    pub notice: Option<Notice>,
}

/// Only a result in its turn passes the detector. A miss says nothing about the site, and an
/// amendment comes too late for a judgement that goes by order.
pub fn decide(
    event: &Event,
    owner: Owner,
    standing: Standing,
    thresholds: &Thresholds,
    at_ms: i64,
) -> Result<Decision, ProcessError> {
    match event.effect {
        Effect::Handled => {
            let received = payload(event)?;
            let (standing, notice) =
                judge(standing, received.result.status, event.position, thresholds);
            let line = output::of_result(event, &received, owner, Some(standing));
            Ok(Decision {
                line,
                standing,
                notice,
            })
        }
        Effect::Miss | Effect::MissRange { .. } => {
            let line = output::of_miss(event, following(event)?.as_ref(), owner, at_ms);
            Ok(Decision {
                line,
                standing,
                notice: None,
            })
        }
        Effect::Amended => {
            let line = output::of_result(event, &payload(event)?, owner, None);
            Ok(Decision {
                line,
                standing,
                notice: None,
            })
        }
    }
}

/// Things may have changed while a result was held: what validation saw is looked at again.
fn wanted<'a>(event: &Event, directory: &'a Directory) -> Option<(Owner, &'a Detector)> {
    let id = directory.subscriptions.get(&event.key)?.detector?;
    let detector = directory
        .detectors
        .get(&id)
        .filter(|detector| detector.enabled)?;
    let organization = directory.organizations.get(&detector.organization)?;
    let owner = Owner {
        organization: detector.organization,
        detector: id,
    };
    organization.has_uptime.then_some((owner, detector))
}

fn payload(event: &Event) -> Result<Received, ProcessError> {
    let effect = event.effect.as_str();
    let bytes = event.payload.clone().ok_or(ProcessError::Empty(effect))?;
    Received::read(bytes).map_err(|broken| ProcessError::Broken(effect, broken))
}

fn following(event: &Event) -> Result<Option<CheckResult>, ProcessError> {
    let read = |bytes: &bytes::Bytes| CheckResult::read(bytes);
    let broken = |broken| ProcessError::Broken(event.effect.as_str(), broken);
    event
        .following
        .as_ref()
        .map(read)
        .transpose()
        .map_err(broken)
}
