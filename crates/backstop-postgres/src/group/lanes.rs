//! Pushes that may have to wait for somebody's transaction: with a unique key, to a queue that has
//! a bound, or to one that nobody here has seen and that somebody else may be about to make. Those
//! of one queue go together, and those of others pass them by.

use super::known::each;
use super::{Call, Place, WAITING_MAX, Way};
use backstop_core::QueueName;
use backstop_core::limits::{ENQUEUE_BYTES_MAX, ENQUEUE_JOBS_MAX};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::yield_now;

/// Statements of all lanes under way at once, if half of the connections are as many: the rest is
/// for those who need not wait.
const SLOTS_MAX: usize = 4;
/// Statements of one lane: a queue that is still to come into being would hold up each of them.
const OF_A_QUEUE_MAX: usize = 2;
const OF_A_NEW_QUEUE_MAX: usize = 1;
/// Looks for another call that find none before a statement is sent.
const QUIET_MAX: usize = 8;

/// The queues of a call, by name.
type Queues = Arc<[QueueName]>;

/// Sends calls, lane by lane, until nobody hands any in.
pub(super) async fn serve(way: Way, mut calls: mpsc::Receiver<Call>, slots: usize) {
    let mut lanes = Lanes::new(slots);
    // As many at most as there are slots.
    let (over, mut ended) = mpsc::unbounded_channel();
    loop {
        tokio::select! {
            call = calls.recv(), if lanes.waiting < WAITING_MAX => match call {
                Some(call) => lanes.join(call, &way),
                None => return,
            },
            Some(queues) = ended.recv() => lanes.leave(&queues),
        }
        let mut quiet = 0;
        while quiet < QUIET_MAX && lanes.waiting < WAITING_MAX {
            if let Ok(call) = calls.try_recv() {
                lanes.join(call, &way);
                quiet = 0;
            } else {
                yield_now().await;
                quiet += 1;
            }
        }
        while let Some((queues, calls)) = lanes.next() {
            let (way, turn) = (
                way.clone(),
                Turn {
                    queues,
                    over: over.clone(),
                },
            );
            tokio::spawn(async move {
                way.send(calls, Place::Lane, || ()).await;
                drop(turn);
            });
        }
    }
}

/// A statement under way; over however its task ends.
struct Turn {
    queues: Queues,
    over: mpsc::UnboundedSender<Queues>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Nobody listens any more only if the group is gone.
        let _ = self.over.send(Arc::clone(&self.queues));
    }
}

/// Calls by their queues.
pub(super) struct Lanes {
    by_queues: HashMap<Queues, Lane>,
    /// Lanes that have something to send and may.
    turns: VecDeque<Queues>,
    waiting: usize,
    free: usize,
}

#[derive(Default)]
struct Lane {
    calls: VecDeque<Call>,
    under_way: usize,
    under_way_max: usize,
    has_turn: bool,
}

impl Lanes {
    /// How many statements may be under way where there are so many connections.
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

    /// Takes a call into the lane of its queues.
    fn join(&mut self, call: Call, way: &Way) {
        let are_seen = way.known.are_seen(&call.jobs);
        self.add(
            call,
            if are_seen {
                OF_A_QUEUE_MAX
            } else {
                OF_A_NEW_QUEUE_MAX
            },
        );
    }

    fn add(&mut self, call: Call, under_way_max: usize) {
        let mut queues: Vec<QueueName> = each(call.jobs.iter().map(|job| &job.queue))
            .cloned()
            .collect();
        queues.sort_unstable();
        queues.dedup();
        let queues = Queues::from(queues);
        let lane = self.by_queues.entry(Arc::clone(&queues)).or_default();
        lane.under_way_max = under_way_max;
        lane.calls.push_back(call);
        self.waiting += 1;
        self.give_turn(&queues);
    }

    /// The next calls to send, if any may be.
    fn next(&mut self) -> Option<(Queues, Vec<Call>)> {
        if self.free == 0 {
            return None;
        }
        let queues = self.turns.pop_front()?;
        let lane = self.by_queues.get_mut(&queues)?;
        lane.has_turn = false;
        lane.under_way += 1;
        let calls = lane.take();
        self.free -= 1;
        self.waiting -= calls.len();
        self.give_turn(&queues);
        Some((queues, calls))
    }

    /// A statement of these queues is over.
    fn leave(&mut self, queues: &Queues) {
        self.free += 1;
        let Some(lane) = self.by_queues.get_mut(queues) else {
            return;
        };
        lane.under_way -= 1;
        if lane.under_way == 0 && lane.calls.is_empty() {
            self.by_queues.remove(queues);
        } else {
            self.give_turn(queues);
        }
    }

    fn give_turn(&mut self, queues: &Queues) {
        let Some(lane) = self.by_queues.get_mut(queues) else {
            return;
        };
        if !lane.has_turn && !lane.calls.is_empty() && lane.under_way < lane.under_way_max {
            lane.has_turn = true;
            self.turns.push_back(Arc::clone(queues));
        }
    }
}

impl Lane {
    /// As many calls as fit into one statement, at least one.
    fn take(&mut self) -> Vec<Call> {
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

    /// A call with one job for each of these queues. Nobody waits for its answer.
    fn call(queues: &[&str]) -> Call {
        let jobs: Vec<NewJob> = queues
            .iter()
            .map(|queue| job(queue, queue).into())
            .collect();
        Call {
            jobs,
            bytes: 0,
            now: Time::from_micros(0),
            answer: tokio::sync::oneshot::channel().0,
        }
    }

    fn lanes(slots: usize, calls: &[&[&str]], under_way_max: usize) -> Lanes {
        let mut lanes = Lanes::new(slots);
        for queues in calls {
            lanes.add(call(queues), under_way_max);
        }
        lanes
    }

    /// The queues of the next statement and how many calls it has.
    fn next(lanes: &mut Lanes) -> Option<(String, usize)> {
        let (queues, calls) = lanes.next()?;
        let names: Vec<&str> = queues.iter().map(QueueName::as_str).collect();
        Some((names.join("+"), calls.len()))
    }

    #[test]
    fn calls_of_one_queue_go_together_and_others_beside_them() {
        let mut lanes = lanes(
            4,
            &[&["a"], &["b"], &["a"], &["b", "a"], &["a", "b"]],
            OF_A_QUEUE_MAX,
        );
        assert_eq!(next(&mut lanes), Some(("a".to_owned(), 2)));
        assert_eq!(next(&mut lanes), Some(("b".to_owned(), 1)));
        assert_eq!(
            next(&mut lanes),
            Some(("a+b".to_owned(), 2)),
            "in whatever order they are named"
        );
        assert_eq!((next(&mut lanes), lanes.waiting), (None, 0));
    }

    #[test]
    fn a_queue_that_is_still_to_come_holds_one_slot_and_others_pass() {
        let mut lanes = lanes(2, &[&["new"]], OF_A_NEW_QUEUE_MAX);
        let stuck = lanes.next().expect("it is sent").0;
        lanes.add(call(&["new"]), OF_A_NEW_QUEUE_MAX);
        assert_eq!(next(&mut lanes), None, "the second waits for the first");
        for _ in 0..3 {
            lanes.add(call(&["other"]), OF_A_NEW_QUEUE_MAX);
            let other = lanes.next().expect("it passes").0;
            assert_eq!(other[0].as_str(), "other");
            lanes.leave(&other);
        }
        lanes.leave(&stuck);
        assert_eq!(next(&mut lanes), Some(("new".to_owned(), 1)));
    }

    #[test]
    fn no_more_statements_than_slots_and_each_lane_has_its_turn() {
        let mut lanes = lanes(1, &[&["a"], &["b"]], OF_A_QUEUE_MAX);
        let first = lanes.next().expect("there is a slot").0;
        lanes.add(call(&["a"]), OF_A_QUEUE_MAX);
        assert_eq!(next(&mut lanes), None);
        lanes.leave(&first);
        assert_eq!(next(&mut lanes), Some(("b".to_owned(), 1)));
        lanes.leave(&Queues::from(
            call(&["b"])
                .jobs
                .into_iter()
                .map(|job| job.queue)
                .collect::<Vec<_>>(),
        ));
        assert_eq!(next(&mut lanes), Some(("a".to_owned(), 1)));
    }

    #[test]
    fn a_statement_takes_what_fits_and_at_least_one_call() {
        let large = |bytes| Call {
            bytes,
            ..call(&["a"])
        };
        let mut lanes = Lanes::new(4);
        for bytes in [ENQUEUE_BYTES_MAX - 1, 1, 1] {
            lanes.add(large(bytes), OF_A_QUEUE_MAX);
        }
        assert_eq!(next(&mut lanes), Some(("a".to_owned(), 2)));
        assert_eq!(next(&mut lanes), Some(("a".to_owned(), 1)));
    }

    #[test]
    fn half_of_the_connections_are_for_those_who_need_not_wait() {
        assert_eq!([1, 2, 4, 8, 100].map(Lanes::slots), [1, 1, 2, 4, 4]);
    }
}
