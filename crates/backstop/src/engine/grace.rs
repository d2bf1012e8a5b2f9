//! When leases that look expired are left alone for a while, so that living workers can beat first.
//!
//! | what happened | what follows |
//! |---|---|
//! | a worker starts, and nobody else has beaten for a lease: the store, or everything, was away | one lease of grace |
//! | a worker starts, and somebody has beaten lately: beats were possible, what expired has had its chance | none |
//! | the store answers again after longer than a beat | one lease of grace, and a beat at once |
//! | the clock moved forward by more than time has passed | one lease of grace, and a beat at once |
//!
//! The printed bound holds all the same. It is about a worker that dies while another lives: a grace that began before the death ends
//! within a lease of it, and that long the dead worker's lease may last anyway. What died with everything else is counted from
//! the restart on. Why somebody's beat counts: a process that dies within a lease of every start would otherwise give grace for
//! ever, and nothing of what it left would be taken over.

use super::Engine;
use super::beat::period;
use backstop_core::{Span, Time};
use tokio::time::Instant;

/// Whether expired leases are taken over, or left alone.
pub(super) struct Grace {
    until: Option<Time>,
    pace: Pace,
    contact: Contact,
}

impl Grace {
    /// The grace of a worker that starts.
    pub(super) async fn at_start(engine: &Engine) -> Self {
        let (lease, now) = (engine.longest_lease(), engine.now());
        // What does not answer is noticed when it answers again.
        let workers = engine.store().workers(lease, now).await.unwrap_or_default();
        let others = workers.iter().any(|worker| worker.name != engine.name);
        let until = (!others).then(|| now.after(lease));
        Self { until, pace: Pace::default(), contact: Contact::default() }
    }

    /// Whether expired leases may be taken over. No grace is longer than a lease: one that looks so is from before the clock was
    /// set back.
    pub(super) fn is_over(&self, engine: &Engine) -> bool {
        let (now, lease) = (engine.now(), engine.longest_lease());
        self.until.is_none_or(|until| until <= now || until.since(now) > lease)
    }

    /// Takes note of the time.
    pub(super) fn look(&mut self, engine: &Engine) {
        if self.pace.jumped(engine.now()) {
            self.begin(engine);
        }
    }

    /// Takes note of whether the store answered.
    pub(super) fn heard(&mut self, engine: &Engine, answered: bool) {
        if self.contact.is_back(answered, period(engine)) {
            tracing::warn!("the store answers again; leases that ran out meanwhile get one more");
            self.begin(engine);
        }
    }

    fn begin(&mut self, engine: &Engine) {
        self.until = Some(engine.now().after(engine.longest_lease()));
        engine.beat_now.notify_one();
    }
}

/// Compares the clock with this process's own: whoever moved it forward, every worker that goes by it must know.
#[derive(Default)]
struct Pace(Option<(Time, Instant)>);

impl Pace {
    /// What two readings may be apart without anybody having moved the clock.
    const NOISE: Span = Span::secs(1);

    /// Whether the clock moved forward, by more than time has passed.
    fn jumped(&mut self, now: Time) -> bool {
        let last = self.0.replace((now, Instant::now()));
        last.is_some_and(|(time, instant)| now.since(time) > Span::from(instant.elapsed()).plus(Self::NOISE))
    }
}

/// When the store last answered, and whether it has failed since.
struct Contact {
    last: Instant,
    has_failed: bool,
}

impl Default for Contact {
    fn default() -> Self {
        Self { last: Instant::now(), has_failed: false }
    }
}

impl Contact {
    /// Whether the store is back after longer than `patience`.
    fn is_back(&mut self, answered: bool, patience: Span) -> bool {
        self.has_failed |= !answered;
        if !answered {
            return false;
        }
        let was_away = std::mem::take(&mut self.has_failed) && self.last.elapsed() > patience.into();
        self.last = Instant::now();
        was_away
    }
}
