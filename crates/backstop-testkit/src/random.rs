//! The same random operations on several stores, side by side.
//!
//! The first store is the one the others are compared with: every answer of every call, and now and
//! then everything they show. Domains are small, so that jobs, keys, leases and workers meet all
//! the time. A failure is its seed.

mod player;
mod seeds;

use crate::model::{Operation, Reply, Visible};
use backstop_core::port::{
    AdvanceOutcome, EnqueueOutcome, OfferOutcome, SettleOutcome, Store, StoreError, SwapOutcome,
};
use player::Player;
pub use seeds::Seeds;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A run of random operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sequence {
    /// Decides everything.
    pub seed: u64,
    /// How many operations.
    pub steps: usize,
    /// Whether calls are made twice, as if their first answer had been lost.
    pub replies: Replies,
}

/// Whether answers arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replies {
    /// All of them, and all are compared.
    Heard,
    /// Some get lost, and their calls are repeated on every store but the first: what the stores
    /// show must be the same as if nothing had happened.
    SometimesLost,
}

/// Where two stores went different ways.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error(
    "{store} differs from {reference} at step {step} of seed {seed} \
     (repeat with BACKSTOP_SEED={seed} BACKSTOP_SEQUENCES=1)\n  {what}\n  the last operations:\n{trace}"
)]
pub struct Divergence {
    /// The store the others are compared with.
    pub reference: String,
    /// The store that differs.
    pub store: String,
    /// The seed of the sequence.
    pub seed: u64,
    /// The operation after which it was seen.
    pub step: usize,
    /// What differs: first as the reference has it, then as the store has it.
    pub what: String,
    /// What led there.
    pub trace: String,
}

/// How often which answer came. A comparison in which nothing was ever seized says nothing about
/// seizing.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    /// Every answer that must come now and then.
    pub const ANSWERS: [&'static str; 27] = [
        "enqueue inserted",
        "enqueue same",
        "enqueue duplicate",
        "claim some",
        "claim none",
        "settle applied",
        "settle stale",
        "begin noted",
        "begin lost",
        "beat lost",
        "beat kept",
        "promote moved",
        "seize some",
        "seize begun",
        "amend applied",
        "amend refused",
        "gate set",
        "prune removed",
        "misuse",
        "offer held",
        "offer duplicate",
        "take some",
        "take none",
        "keep kept",
        "keep lost",
        "advance applied",
        "advance stale",
    ];

    /// The answers that never came.
    pub fn missing(&self) -> Vec<&'static str> {
        Self::ANSWERS
            .into_iter()
            .filter(|answer| !self.0.contains_key(answer))
            .collect()
    }

    /// Adds what came elsewhere.
    pub fn add(&mut self, other: &Self) {
        for (answer, count) in &other.0 {
            *self.0.entry(answer).or_default() += count;
        }
    }

    fn see(&mut self, reply: &Reply) {
        let seen: Vec<&'static str> = match reply {
            Reply::Enqueued(answers) => answers.iter().map(enqueue_answer).collect(),
            Reply::Claimed(runs) => vec![if runs.is_empty() {
                "claim none"
            } else {
                "claim some"
            }],
            Reply::Settled(answers) => answers.iter().copied().map(settle_answer).collect(),
            Reply::Lost(lost) => vec![if lost.is_empty() {
                "beat kept"
            } else {
                "beat lost"
            }],
            Reply::NotBegun(lost) => vec![if lost.is_empty() {
                "begin noted"
            } else {
                "begin lost"
            }],
            Reply::Promoted(0, _) | Reply::Pruned([0, 0, 0]) => vec![],
            Reply::Promoted(..) => vec!["promote moved"],
            Reply::Seized(seized) => {
                let begun = seized.iter().any(|seized| seized.begun);
                [
                    (!seized.is_empty()).then_some("seize some"),
                    begun.then_some("seize begun"),
                ]
                .into_iter()
                .flatten()
                .collect()
            }
            Reply::Amended(applied, refused) => [
                (*applied > 0).then_some("amend applied"),
                (!refused.is_empty()).then_some("amend refused"),
            ]
            .into_iter()
            .flatten()
            .collect(),
            Reply::GateSet => vec!["gate set"],
            Reply::BoundsSet => vec!["bounds set"],
            Reply::Buried(answers) => answers.iter().map(bury_answer).collect(),
            Reply::Swapped(answers) => answers.iter().map(swap_answer).collect(),
            Reply::Pruned(_) => vec!["prune removed"],
            Reply::Offered(answers) => answers.iter().copied().map(offer_answer).collect(),
            Reply::Taken(taken) => vec![if taken.keys.is_empty() {
                "take none"
            } else {
                "take some"
            }],
            Reply::KeysLost(lost) => vec![if lost.is_empty() {
                "keep kept"
            } else {
                "keep lost"
            }],
            Reply::Advanced(answers) => answers.iter().copied().map(advance_answer).collect(),
            Reply::Misuse => vec!["misuse"],
        };
        for answer in seen {
            *self.0.entry(answer).or_default() += 1;
        }
    }
}

fn enqueue_answer(answer: &EnqueueOutcome) -> &'static str {
    match answer {
        EnqueueOutcome::Inserted => "enqueue inserted",
        EnqueueOutcome::Same => "enqueue same",
        EnqueueOutcome::Duplicate(_) => "enqueue duplicate",
        EnqueueOutcome::Full => "enqueue full",
        EnqueueOutcome::Conflict => "enqueue conflict",
    }
}

const fn bury_answer(answer: &EnqueueOutcome) -> &'static str {
    match answer {
        EnqueueOutcome::Inserted => "bury inserted",
        EnqueueOutcome::Same => "bury same",
        EnqueueOutcome::Duplicate(_) | EnqueueOutcome::Full | EnqueueOutcome::Conflict => {
            "bury refused"
        }
    }
}

const fn swap_answer(answer: &SwapOutcome) -> &'static str {
    match answer {
        SwapOutcome::Applied => "swap applied",
        SwapOutcome::Conflict(_) => "swap conflict",
    }
}

const fn offer_answer(answer: OfferOutcome) -> &'static str {
    match answer {
        OfferOutcome::Held => "offer held",
        OfferOutcome::Duplicate => "offer duplicate",
        OfferOutcome::Full => "offer full",
    }
}

const fn advance_answer(answer: AdvanceOutcome) -> &'static str {
    match answer {
        AdvanceOutcome::Applied => "advance applied",
        AdvanceOutcome::Stale => "advance stale",
    }
}

fn settle_answer(answer: SettleOutcome) -> &'static str {
    match answer {
        SettleOutcome::Applied => "settle applied",
        SettleOutcome::Stale => "settle stale",
        SettleOutcome::Full => "settle full",
        SettleOutcome::Unanswered => "settle unanswered",
    }
}

impl fmt::Debug for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Steps between two looks at everything.
const LOOK_EVERY: usize = 10;
/// Operations a divergence tells.
const TRACE_MAX: usize = 12;

/// Runs a sequence on all of `stores`, which are named, fresh and empty, and compares each with the
/// first.
pub async fn compare(
    stores: &[(&str, Arc<dyn Store>)],
    sequence: Sequence,
) -> Result<Coverage, Divergence> {
    let mut run = Run {
        stores,
        sequence,
        player: Player::new(sequence),
        trace: Vec::new(),
        step: 0,
    };
    let mut coverage = Coverage::default();
    for step in 1..=sequence.steps {
        run.step = step;
        let operation = run.player.next();
        let reply = run.step(&operation).await?;
        coverage.see(&reply);
        run.player.learn(&operation, &reply);
        if step % LOOK_EVERY == 0 {
            run.look(1_000).await?;
        }
    }
    // Short pages at the end: that is when there is most to page through.
    run.look(3).await?;
    run.look_at_each_job().await?;
    Ok(coverage)
}

struct Run<'a> {
    stores: &'a [(&'a str, Arc<dyn Store>)],
    sequence: Sequence,
    player: Player,
    trace: Vec<String>,
    step: usize,
}

impl Run<'_> {
    async fn step(&mut self, operation: &Operation) -> Result<Reply, Divergence> {
        let now = self.player.now;
        self.trace
            .push(format!("    {}. at {now}: {operation:?}", self.step));
        let is_repeated = self.sequence.replies == Replies::SometimesLost && self.player.flip(0.4);
        let mut expected = None;
        for (index, (_, store)) in self.stores.iter().enumerate() {
            let mut answer = operation.run(&**store, now).await;
            if index > 0 && is_repeated {
                answer = operation.run(&**store, now).await;
            }
            let reply = answer.map_err(|error| self.failed(index, &error))?;
            match &expected {
                None => expected = Some(reply),
                Some(_) if is_repeated && !answers_the_same(operation) => {}
                Some(expected) if *expected == reply => {}
                Some(expected) => {
                    let what =
                        format!("{operation:?} was answered with\n    {expected:?}\n    {reply:?}");
                    return Err(self.divergence(index, what));
                }
            }
        }
        Ok(expected.expect("there is a store to compare with"))
    }

    async fn look(&self, limit: usize) -> Result<(), Divergence> {
        let mut expected = None;
        for (index, (_, store)) in self.stores.iter().enumerate() {
            let visible = Visible::read(&**store, limit, self.player.now).await;
            let visible = visible.map_err(|error| self.failed(index, &error))?;
            let Some(expected) = &expected else {
                expected = Some(visible);
                continue;
            };
            if let Some(difference) = expected.difference(&visible) {
                return Err(self.divergence(index, difference));
            }
        }
        Ok(())
    }

    async fn look_at_each_job(&self) -> Result<(), Divergence> {
        for id in self.player.pushed_ids() {
            let mut expected = None;
            for (index, (_, store)) in self.stores.iter().enumerate() {
                let job = store.job(id, self.player.now).await;
                let job = job.map_err(|error| self.failed(index, &error))?;
                if *expected.get_or_insert_with(|| job.clone()) != job {
                    return Err(
                        self.divergence(index, format!("job {id}\n    {expected:?}\n    {job:?}"))
                    );
                }
            }
        }
        Ok(())
    }

    fn failed(&self, index: usize, error: &StoreError) -> Divergence {
        self.divergence(index, format!("it failed: {error}"))
    }

    fn divergence(&self, index: usize, what: String) -> Divergence {
        let from = self.trace.len().saturating_sub(TRACE_MAX);
        Divergence {
            reference: self.stores[0].0.to_owned(),
            store: self.stores[index].0.to_owned(),
            seed: self.sequence.seed,
            step: self.step,
            what,
            trace: self.trace[from..].join("\n"),
        }
    }
}

/// Whether a repeated call is answered as the first one was: the others count what they did, and
/// the second time there is nothing left to do.
fn answers_the_same(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Claim(_)
            | Operation::Begin(_)
            | Operation::Seize(_)
            | Operation::Beat(_)
            | Operation::SetGate(..)
            | Operation::SetBounds(..)
            | Operation::Take(_)
            | Operation::Keep(..)
            | Operation::Advance(_)
    )
}

#[cfg(test)]
mod tests;
