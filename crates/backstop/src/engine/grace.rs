//! When leases that look expired are left alone for a while, so that living workers can beat first.
//!
//! | what happened | what follows |
//! |---|---|
//! | a worker starts, and nobody else has beaten for a lease: the store, or everything, was away | one lease of grace |
//! | a worker starts, and somebody has beaten lately: beats were possible, what expired has had its chance | none |
//! | the store answers again after longer than a beat | one lease of grace, and a beat at once |
//! | a part of the store, as of a cluster, answers again after longer than a beat | the same for its queues; while it is away nothing of them is taken over |
//! | the clock moved forward by more than time has passed | one lease of grace, and a beat at once |
//!
//! The printed bound holds all the same. It is about a worker that dies while another lives: a
//! grace that began before the death ends within a lease of it, and that long the dead worker's
//! lease may last anyway. What died with everything else is counted from the restart on. Why
//! somebody's beat counts: a process that dies within a lease of every start would otherwise give
//! grace for ever, and nothing of what it left would be taken over.

use super::Engine;
use super::beat::beat_period;
use backstop_core::{QueueName, Span, Time};
use std::collections::BTreeMap;
use tokio::time::Instant;

/// Whether expired leases are taken over, or left alone.
pub(super) struct RecoveryGrace {
    until: Option<Time>,
    clock_jumps: ClockJumpDetector,
    contact: StoreContact,
    unreachable: LocalUnreachableQueues,
}

impl RecoveryGrace {
    /// The grace of a worker that starts.
    pub(super) async fn at_start(engine: &Engine) -> Self {
        let (lease, now) = (engine.longest_lease(), engine.now());
        // What does not answer is noticed when it answers again.
        let workers = engine.store().workers(lease, now).await.unwrap_or_default();
        let others = workers.iter().any(|worker| worker.name != engine.name);
        let until = (!others).then(|| now.after(lease));
        Self {
            until,
            clock_jumps: ClockJumpDetector::default(),
            contact: StoreContact::default(),
            unreachable: LocalUnreachableQueues::default(),
        }
    }

    /// Whether expired leases may be taken over. No grace is longer than a lease: one that looks so
    /// is from before the clock was set back.
    pub(super) fn is_over(&self, engine: &Engine) -> bool {
        let (now, lease) = (engine.now(), engine.longest_lease());
        self.until
            .is_none_or(|until| until <= now || until.since(now) > lease)
    }

    /// Takes note of the time.
    pub(super) fn check_clock(&mut self, engine: &Engine) {
        if self.clock_jumps.jumped(engine.now()) {
            self.begin(engine);
        }
    }

    /// Takes note of whether the store answered, and which of its queues did not.
    pub(super) fn note_answer(&mut self, engine: &Engine, unanswered: Option<&[QueueName]>) {
        if self
            .contact
            .is_back(unanswered.is_some(), beat_period(engine))
        {
            tracing::warn!("the store answers again; leases that ran out meanwhile get one more");
            self.begin(engine);
        }
        let Some(unanswered) = unanswered else { return };
        let until = engine.now().after(engine.longest_lease());
        let back = self.unreachable.note_unanswered(
            unanswered,
            beat_period(engine),
            Instant::now(),
            until,
        );
        if let Some(queue) = back.first() {
            tracing::warn!(%queue, count = back.len(), "queues answer again; leases that ran out meanwhile get one more");
            engine.beat_requested.notify_one();
        }
    }

    /// Queues of which nothing is taken over yet.
    pub(super) fn spared_queues(&mut self, engine: &Engine) -> Vec<QueueName> {
        self.unreachable
            .spared_queues(engine.now(), engine.longest_lease())
    }

    fn begin(&mut self, engine: &Engine) {
        self.until = Some(engine.now().after(engine.longest_lease()));
        engine.beat_requested.notify_one();
    }
}

/// The queues of a store in parts that are away, or have come back.
#[derive(Default)]
struct LocalUnreachableQueues {
    /// When all queues but those that are away were last heard of.
    last: Option<Instant>,
    /// Since when a queue is away: never heard of, if that is unknown.
    away: BTreeMap<QueueName, Option<Instant>>,
    /// Until when a queue that is back has grace.
    back: BTreeMap<QueueName, Time>,
}

impl LocalUnreachableQueues {
    /// Takes note of which queues did not answer while others did, at `at`; tells those that are
    /// back after longer than `patience`, and have grace until then.
    fn note_unanswered(
        &mut self,
        unanswered: &[QueueName],
        patience: Span,
        at: Instant,
        until: Time,
    ) -> Vec<QueueName> {
        for queue in unanswered {
            self.away.entry(queue.clone()).or_insert(self.last);
        }
        self.last = Some(at);
        let (away, back) = std::mem::take(&mut self.away)
            .into_iter()
            .partition(|(queue, _)| unanswered.contains(queue));
        self.away = away;
        let is_long =
            |since: Option<Instant>| since.is_none_or(|since| at > since + patience.into());
        let back: BTreeMap<QueueName, Option<Instant>> = back;
        let back: Vec<QueueName> = back
            .into_iter()
            .filter(|(_, since)| is_long(*since))
            .map(|(queue, _)| queue)
            .collect();
        self.back
            .extend(back.iter().map(|queue| (queue.clone(), until)));
        back
    }

    /// Queues that are away or have grace. No grace is longer than a lease.
    fn spared_queues(&mut self, now: Time, lease: Span) -> Vec<QueueName> {
        self.back
            .retain(|_, until| *until > now && until.since(now) <= lease);
        self.away.keys().chain(self.back.keys()).cloned().collect()
    }
}

/// Compares the clock with this process's own: whoever moved it forward, every worker that goes by
/// it must know.
#[derive(Default)]
struct ClockJumpDetector(Option<(Time, Instant)>);

impl ClockJumpDetector {
    /// What two readings may be apart without anybody having moved the clock.
    const NOISE: Span = Span::secs(1);

    /// Whether the clock moved forward, by more than time has passed.
    fn jumped(&mut self, now: Time) -> bool {
        let last = self.0.replace((now, Instant::now()));
        last.is_some_and(|(time, instant)| {
            now.since(time) > Span::from(instant.elapsed()).plus(Self::NOISE)
        })
    }
}

/// When the store last answered, and whether it has failed since.
struct StoreContact {
    last: Instant,
    has_failed: bool,
}

impl Default for StoreContact {
    fn default() -> Self {
        Self {
            last: Instant::now(),
            has_failed: false,
        }
    }
}

impl StoreContact {
    /// Whether the store is back after longer than `patience`.
    fn is_back(&mut self, answered: bool, patience: Span) -> bool {
        self.has_failed |= !answered;
        if !answered {
            return false;
        }
        let was_away =
            std::mem::take(&mut self.has_failed) && self.last.elapsed() > patience.into();
        self.last = Instant::now();
        was_away
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Span = Span::secs(15);
    const PATIENCE: Span = Span::secs(5);

    /// At which seconds which queues did not answer, and which are spared then.
    fn check(heard: &[(u64, &[&str], &[&str])]) {
        let (began, start) = (Instant::now(), Time::from_millis(1_000_000));
        let names = |names: &[&str]| -> Vec<QueueName> {
            names
                .iter()
                .map(|name| QueueName::new(name).expect("a name"))
                .collect()
        };
        let mut unreachable = LocalUnreachableQueues::default();
        for (second, unanswered, spared_queues) in heard {
            let now = start.after(Span::secs((*second).cast_signed()));
            let at = began + std::time::Duration::from_secs(*second);
            unreachable.note_unanswered(&names(unanswered), PATIENCE, at, now.after(LEASE));
            assert_eq!(
                unreachable.spared_queues(now, LEASE),
                names(spared_queues),
                "at {second} s of {heard:?}"
            );
        }
    }

    #[test]
    fn a_queue_that_was_away_for_longer_than_a_beat_has_a_lease_of_grace() {
        let all: &[&str] = &[];
        check(&[
            (0, all, all),
            (1, &["a"], &["a"]),
            (20, &["a"], &["a"]),
            (21, all, &["a"]),
            (35, all, &["a"]),
            (36, all, all),
        ]);
        // Away for a moment only: beats got through in time.
        check(&[(0, all, all), (1, &["a"], &["a"]), (4, all, all)]);
        // Others are not spared with it, and one that comes back later has its own.
        check(&[
            (0, all, all),
            (1, &["a", "b"], &["a", "b"]),
            (20, &["b"], &["b", "a"]),
            (34, all, &["a", "b"]),
            (35, all, &["b"]),
            (49, all, all),
        ]);
    }

    #[test]
    fn a_worker_that_starts_while_a_queue_is_away_takes_it_to_have_been_for_long() {
        check(&[
            (0, &["a"], &["a"]),
            (1, &[], &["a"]),
            (15, &[], &["a"]),
            (16, &[], &[]),
        ]);
    }

    #[test]
    fn grace_from_before_the_clock_was_set_back_is_over() {
        let queue = QueueName::new("a").expect("a name");
        let (mut unreachable, now) = (
            LocalUnreachableQueues::default(),
            Time::from_millis(1_000_000),
        );
        unreachable.note_unanswered(std::slice::from_ref(&queue), PATIENCE, Instant::now(), now);
        unreachable.note_unanswered(&[], PATIENCE, Instant::now(), now.after(LEASE));
        assert_eq!(unreachable.spared_queues(now, LEASE), [queue]);
        assert_eq!(
            unreachable.spared_queues(now.before(Span::secs(3_600)), LEASE),
            []
        );
    }
}
