//! Batches of pushes that may have to wait for another transaction: pushes with a unique key, to a
//! queue that has a bound, or to a queue that this process has not seen and that another
//! transaction may be creating. Calls for the same set of queues share statements. While these
//! wait, calls for other sets overtake them.

use super::known_queues::distinct;
use super::{BatchKind, BatchSender, EnqueueCall, WAITING_MAX};
use backstop_core::QueueName;
use backstop_core::limits::{ENQUEUE_BYTES_MAX, ENQUEUE_JOBS_MAX};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::yield_now;

/// At most this many statements are under way overall, for all queue sets, and no more than half of
/// the connections but at least one. The other half is for pushes that need not wait.
const SLOTS_MAX: usize = 4;
/// At most this many statements are under way for one set of queues.
const STATEMENTS_PER_SET_MAX: usize = 2;
/// The same for a set with a queue that this process has not seen: another transaction may be
/// creating it, and then each further statement would be blocked, too.
const PER_NEW_QUEUE_MAX: usize = 1;
/// How many times in a row the loop polls without finding a call before it sends.
const EMPTY_POLLS_MAX: usize = 8;

/// The queues of a call, sorted by name.
type QueueSet = Arc<[QueueName]>;

/// Sends calls, one queue set per statement, until the channel is closed. Calls that still wait
/// then are not sent. Nobody misses them: a caller that awaits its answer keeps the sender alive,
/// and so the channel open. Statements that are under way continue.
pub(super) async fn serve(
    sender: BatchSender,
    mut calls: mpsc::Receiver<EnqueueCall>,
    slots: usize,
) {
    let mut batcher = PerQueueBatcher::new(slots);
    // Unbounded, but it holds no more entries than there are slots.
    let (over, mut ended) = mpsc::unbounded_channel();
    loop {
        tokio::select! {
            call = calls.recv(), if batcher.waiting < WAITING_MAX => match call {
                Some(call) => batcher.add_call(call, &sender),
                None => return,
            },
            Some(queues) = ended.recv() => batcher.finish_statement(&queues),
        }
        let mut quiet = 0;
        while quiet < EMPTY_POLLS_MAX && batcher.waiting < WAITING_MAX {
            if let Ok(call) = calls.try_recv() {
                batcher.add_call(call, &sender);
                quiet = 0;
            } else {
                yield_now().await;
                quiet += 1;
            }
        }
        while let Some((queues, calls)) = batcher.next() {
            let (sender, guard) = (
                sender.clone(),
                StatementGuard {
                    queues,
                    over: over.clone(),
                },
            );
            tokio::spawn(async move {
                sender.send(calls, BatchKind::PerQueue, || ()).await;
                drop(guard);
            });
        }
    }
}

/// A statement under way. Dropping this ends it, however its task ends.
struct StatementGuard {
    queues: QueueSet,
    over: mpsc::UnboundedSender<QueueSet>,
}

impl Drop for StatementGuard {
    fn drop(&mut self) {
        // This fails only if the batcher is gone.
        let _ = self.over.send(Arc::clone(&self.queues));
    }
}

pub(super) struct PerQueueBatcher {
    by_queues: HashMap<QueueSet, QueueSetCalls>,
    /// Queue sets that have calls and may send a statement.
    turns: VecDeque<QueueSet>,
    waiting: usize,
    free: usize,
}

#[derive(Default)]
struct QueueSetCalls {
    calls: VecDeque<EnqueueCall>,
    under_way: usize,
    under_way_max: usize,
    has_turn: bool,
}

impl PerQueueBatcher {
    /// The number of slots: how many statements may be under way at once, given the number of
    /// connections.
    pub(super) fn slots(connections: usize) -> usize {
        (connections / 2).clamp(1, SLOTS_MAX)
    }

    fn new(slots: usize) -> Self {
        Self {
            by_queues: HashMap::new(),
            turns: VecDeque::new(),
            waiting: 0,
            free: slots,
        }
    }

    /// Adds a call to the batch of its queues.
    fn add_call(&mut self, call: EnqueueCall, sender: &BatchSender) {
        let are_seen = sender.known_queues.are_seen(&call.jobs);
        self.add(
            call,
            if are_seen {
                STATEMENTS_PER_SET_MAX
            } else {
                PER_NEW_QUEUE_MAX
            },
        );
    }

    fn add(&mut self, call: EnqueueCall, under_way_max: usize) {
        let mut queues: Vec<QueueName> = distinct(call.jobs.iter().map(|job| &job.queue))
            .cloned()
            .collect();
        queues.sort_unstable();
        queues.dedup();
        let queues = QueueSet::from(queues);
        let set = self.by_queues.entry(Arc::clone(&queues)).or_default();
        set.under_way_max = under_way_max;
        set.calls.push_back(call);
        self.waiting += 1;
        self.give_turn(&queues);
    }

    /// Takes the next calls to send, if there is a free slot.
    fn next(&mut self) -> Option<(QueueSet, Vec<EnqueueCall>)> {
        if self.free == 0 {
            return None;
        }
        let queues = self.turns.pop_front()?;
        let set = self.by_queues.get_mut(&queues)?;
        set.has_turn = false;
        set.under_way += 1;
        let calls = set.take();
        self.free -= 1;
        self.waiting -= calls.len();
        self.give_turn(&queues);
        Some((queues, calls))
    }

    /// Frees the slot of a statement that has ended.
    fn finish_statement(&mut self, queues: &QueueSet) {
        self.free += 1;
        let Some(set) = self.by_queues.get_mut(queues) else {
            return;
        };
        set.under_way -= 1;
        if set.under_way == 0 && set.calls.is_empty() {
            self.by_queues.remove(queues);
        } else {
            self.give_turn(queues);
        }
    }

    fn give_turn(&mut self, queues: &QueueSet) {
        let Some(set) = self.by_queues.get_mut(queues) else {
            return;
        };
        if !set.has_turn && !set.calls.is_empty() && set.under_way < set.under_way_max {
            set.has_turn = true;
            self.turns.push_back(Arc::clone(queues));
        }
    }
}

impl QueueSetCalls {
    /// Takes as many calls as fit into one statement, at least one.
    fn take(&mut self) -> Vec<EnqueueCall> {
        let (mut count, mut jobs, mut bytes) = (0, 0, 0);
        for call in &self.calls {
            (jobs, bytes) = (jobs + call.jobs.len(), bytes + call.bytes);
            if count > 0 && (jobs > ENQUEUE_JOBS_MAX || bytes > ENQUEUE_BYTES_MAX) {
                break;
            }
            count += 1;
        }
        self.calls.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::{NewJob, Time};
    use backstop_testkit::given::job;

    /// A call with one job for each of these queues. Its answer is not read.
    fn call(queues: &[&str]) -> EnqueueCall {
        let jobs: Vec<NewJob> = queues
            .iter()
            .map(|queue| job(queue, queue).into())
            .collect();
        EnqueueCall {
            jobs,
            bytes: 0,
            now: Time::from_micros(0),
            answer: tokio::sync::oneshot::channel().0,
        }
    }

    fn batcher(slots: usize, calls: &[&[&str]], under_way_max: usize) -> PerQueueBatcher {
        let mut batcher = PerQueueBatcher::new(slots);
        for queues in calls {
            batcher.add(call(queues), under_way_max);
        }
        batcher
    }

    /// The queues of the next statement and how many calls it has.
    fn next(batcher: &mut PerQueueBatcher) -> Option<(String, usize)> {
        let (queues, calls) = batcher.next()?;
        let names: Vec<&str> = queues.iter().map(QueueName::as_str).collect();
        Some((names.join("+"), calls.len()))
    }

    #[test]
    fn calls_of_one_queue_go_together_and_others_beside_them() {
        let mut batcher = batcher(
            4,
            &[&["a"], &["b"], &["a"], &["b", "a"], &["a", "b"]],
            STATEMENTS_PER_SET_MAX,
        );
        assert_eq!(next(&mut batcher), Some(("a".to_owned(), 2)));
        assert_eq!(next(&mut batcher), Some(("b".to_owned(), 1)));
        assert_eq!(
            next(&mut batcher),
            Some(("a+b".to_owned(), 2)),
            "in whatever order they are named"
        );
        assert_eq!((next(&mut batcher), batcher.waiting), (None, 0));
    }

    #[test]
    fn a_queue_that_is_still_to_come_holds_one_slot_and_others_pass() {
        let mut batcher = batcher(2, &[&["new"]], PER_NEW_QUEUE_MAX);
        let stuck = batcher.next().expect("it is sent").0;
        batcher.add(call(&["new"]), PER_NEW_QUEUE_MAX);
        assert_eq!(next(&mut batcher), None, "the second waits for the first");
        for _ in 0..3 {
            batcher.add(call(&["other"]), PER_NEW_QUEUE_MAX);
            let other = batcher.next().expect("it passes").0;
            assert_eq!(other[0].as_str(), "other");
            batcher.finish_statement(&other);
        }
        batcher.finish_statement(&stuck);
        assert_eq!(next(&mut batcher), Some(("new".to_owned(), 1)));
    }

    #[test]
    fn no_more_statements_than_slots_and_each_lane_has_its_turn() {
        let mut batcher = batcher(1, &[&["a"], &["b"]], STATEMENTS_PER_SET_MAX);
        let first = batcher.next().expect("there is a slot").0;
        batcher.add(call(&["a"]), STATEMENTS_PER_SET_MAX);
        assert_eq!(next(&mut batcher), None);
        batcher.finish_statement(&first);
        assert_eq!(next(&mut batcher), Some(("b".to_owned(), 1)));
        batcher.finish_statement(&QueueSet::from(
            call(&["b"])
                .jobs
                .into_iter()
                .map(|job| job.queue)
                .collect::<Vec<_>>(),
        ));
        assert_eq!(next(&mut batcher), Some(("a".to_owned(), 1)));
    }

    #[test]
    fn a_statement_takes_what_fits_and_at_least_one_call() {
        let large = |bytes| EnqueueCall {
            bytes,
            ..call(&["a"])
        };
        let mut batcher = PerQueueBatcher::new(4);
        for bytes in [ENQUEUE_BYTES_MAX - 1, 1, 1] {
            batcher.add(large(bytes), STATEMENTS_PER_SET_MAX);
        }
        assert_eq!(next(&mut batcher), Some(("a".to_owned(), 2)));
        assert_eq!(next(&mut batcher), Some(("a".to_owned(), 1)));
    }

    #[test]
    fn half_of_the_connections_are_for_those_who_need_not_wait() {
        assert_eq!(
            [1, 2, 4, 8, 100].map(PerQueueBatcher::slots),
            [1, 1, 2, 4, 4]
        );
    }
}
