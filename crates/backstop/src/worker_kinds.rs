//! Which kinds a worker has handlers for, as others see it: one cell a worker, `kinds/WORKER`.
//!
//! A worker that has a handler for every kind of its queues says nothing, and neither do workers
//! that lease over HTTP: nothing said means any kind. A job of a kind that nobody knows would
//! otherwise go from hand to hand with nobody to say why.

use crate::client::Backstop;
use crate::shared_cells::{read, remove, update};
use backstop_core::port::{Cell, ListCellsRequest, StoreResult, WorkerStatus};
use backstop_core::{Kind, QueueName, Span, Time, WorkerName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What the names of the cells begin with.
pub(crate) const KINDS: &str = "kinds/";
/// Kinds a worker tells of; one with more handlers than that says nothing.
const KINDS_ANNOUNCED_MAX: usize = 200;
/// Workers whose kinds are looked through where some are offered to choose from.
const WORKERS_READ_MAX: usize = 100;
/// What is said by a worker that has been silent for longer is forgotten.
pub(crate) const KEPT: Span = Span::days(1);

/// What one worker has said.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct WorkerKinds {
    /// All kinds it knows, for each queue of which it does not know every kind.
    queues: BTreeMap<QueueName, BTreeSet<Kind>>,
    at: Option<Time>,
}

impl WorkerKinds {
    /// By the handlers of a worker; `None` stands for all kinds of a queue.
    pub(crate) fn from_handlers<'a>(
        handlers: impl Iterator<Item = (&'a QueueName, Option<&'a Kind>)>,
    ) -> Self {
        let mut queues: BTreeMap<QueueName, Option<BTreeSet<Kind>>> = BTreeMap::new();
        for (queue, kind) in handlers {
            let known = queues
                .entry(queue.clone())
                .or_insert_with(|| Some(BTreeSet::new()));
            match (known.as_mut(), kind) {
                (Some(kinds), Some(kind)) => drop(kinds.insert(kind.clone())),
                _ => *known = None,
            }
        }
        let mut queues: BTreeMap<_, _> = queues
            .into_iter()
            .filter_map(|(queue, kinds)| Some((queue, kinds?)))
            .collect();
        if queues.values().map(BTreeSet::len).sum::<usize>() > KINDS_ANNOUNCED_MAX {
            queues.clear();
        }
        Self { queues, at: None }
    }

    /// All kinds it knows, for each queue of which it does not know every kind.
    pub(crate) fn into_queues(self) -> BTreeMap<QueueName, BTreeSet<Kind>> {
        self.queues
    }

    fn lacks_handler(&self, queue: &QueueName, kind: &Kind) -> bool {
        self.queues
            .get(queue)
            .is_some_and(|kinds| !kinds.contains(kind))
    }

    /// Whether it may be forgotten: it is old, and its worker is not among the living.
    pub(crate) fn is_over(cell: &Cell, living: &BTreeSet<String>, now: Time) -> bool {
        let is_old =
            read::<Self>(cell).is_none_or(|known| known.at.is_none_or(|at| at.after(KEPT) < now));
        let worker = cell.name.strip_prefix(KINDS).unwrap_or_default();
        is_old && !living.contains(worker)
    }
}

/// Says what a worker knows.
pub(crate) async fn announce(
    backstop: &Backstop,
    worker: &WorkerName,
    known: &WorkerKinds,
) -> StoreResult<()> {
    if known.queues.is_empty() {
        return withdraw(backstop, worker).await;
    }
    let announced = WorkerKinds {
        at: Some(backstop.now()),
        ..known.clone()
    };
    update(backstop, &cell(worker), WorkerKinds::default(), |current| {
        current.clone_from(&announced);
    })
    .await?;
    Ok(())
}

/// Takes back what a worker said.
pub(crate) async fn withdraw(backstop: &Backstop, worker: &WorkerName) -> StoreResult<()> {
    let current = backstop.store().cells(vec![cell(worker)]).await?;
    remove(backstop, &current.into_iter().flatten().collect::<Vec<_>>()).await
}

/// Those of `workers` who said that they have no handler for a kind.
pub(crate) async fn workers_without_handler(
    backstop: &Backstop,
    workers: &[&WorkerStatus],
    queue: &QueueName,
    kind: &Kind,
) -> StoreResult<Vec<WorkerName>> {
    let mut without_handler = Vec::new();
    for part in workers.chunks(backstop_core::limits::CELLS_MAX) {
        let cells = backstop
            .store()
            .cells(part.iter().map(|worker| cell(&worker.name)).collect())
            .await?;
        for (worker, cell) in part.iter().zip(cells) {
            let known = cell.as_ref().and_then(read::<WorkerKinds>);
            if known.is_some_and(|known| known.lacks_handler(queue, kind)) {
                without_handler.push(worker.name.clone());
            }
        }
    }
    Ok(without_handler)
}

impl Backstop {
    /// Kinds that workers have said they have handlers for, at most `max`: what can be offered to
    /// choose from, and not all there are.
    pub async fn known_kinds(&self, max: usize) -> StoreResult<BTreeSet<Kind>> {
        let query = ListCellsRequest {
            prefix: KINDS.to_owned(),
            after: None,
            limit: WORKERS_READ_MAX,
        };
        let cells = self.store().list_cells(query).await?;
        let queues = cells
            .iter()
            .filter_map(read::<WorkerKinds>)
            .flat_map(|known| known.queues.into_values());
        Ok(queues.flatten().take(max).collect())
    }
}

pub(crate) fn cell(worker: &WorkerName) -> String {
    format!("{KINDS}{worker}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    fn kind(name: &str) -> Kind {
        Kind::new(name).unwrap()
    }

    #[test]
    fn only_who_has_named_other_kinds_of_the_queue_is_a_stranger() {
        let (mail, all, send, draw) = (queue("mail"), queue("all"), kind("send"), kind("draw"));
        let handlers = [(&mail, Some(&send)), (&all, Some(&send)), (&all, None)];
        let known = WorkerKinds::from_handlers(handlers.into_iter());
        assert!(!known.lacks_handler(&mail, &send));
        assert!(known.lacks_handler(&mail, &draw));
        assert!(
            !known.lacks_handler(&all, &draw),
            "it has a handler for all kinds of that queue"
        );
        assert!(
            !known.lacks_handler(&queue("other"), &draw),
            "it does not serve that queue"
        );
    }

    #[test]
    fn a_worker_with_too_many_kinds_to_tell_says_nothing() {
        let (mail, kinds) = (
            queue("mail"),
            (0..=KINDS_ANNOUNCED_MAX)
                .map(|n| kind(&n.to_string()))
                .collect::<Vec<_>>(),
        );
        let known = WorkerKinds::from_handlers(kinds.iter().map(|kind| (&mail, Some(kind))));
        assert!(!known.lacks_handler(&mail, &kind("unheard of")));
    }

    #[test]
    fn what_a_worker_said_is_kept_while_it_lives_and_for_a_day() {
        let now = Time::from_millis(1_000_000_000);
        let check = |said_before: Span, is_living: bool, expected| {
            let known = WorkerKinds {
                at: Some(now.before(said_before)),
                ..WorkerKinds::default()
            };
            let value = serde_json::to_vec(&known).unwrap();
            let cell = Cell {
                name: "kinds/w".to_owned(),
                version: 1,
                value,
            };
            let living = BTreeSet::from_iter(is_living.then(|| "w".to_owned()));
            assert_eq!(
                WorkerKinds::is_over(&cell, &living, now),
                expected,
                "{said_before} {is_living}"
            );
        };
        check(Span::hours(1), false, false);
        check(Span::hours(25), true, false);
        check(Span::hours(25), false, true);
    }
}
