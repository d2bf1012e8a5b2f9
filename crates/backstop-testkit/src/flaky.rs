//! A store whose calls fail, get lost or take their time.
//!
//! Faults come by a seed and in the order of the calls, so that a run on one thread can be
//! repeated; under tokio's paused time delays cost nothing. What was injected is counted: a test
//! whose fault never came proves nothing.

use crate::forward::{
    forward_backlog, forward_cells, forward_operator, forward_store, forward_streams,
};
use async_trait::async_trait;
use backstop_core::port::{HintSubscription, Store, StoreError, StoreResult};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What can be done to a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// It fails before the store sees it.
    Refused,
    /// The store does it, and nobody hears the answer.
    LostReply,
    /// It waits before the store sees it.
    DelayBefore,
    /// Its answer waits.
    DelayAfter,
    /// It fails because the store is switched off.
    Down,
    /// A hint does not arrive.
    LostHint,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Refused,
        Self::LostReply,
        Self::DelayBefore,
        Self::DelayAfter,
        Self::Down,
        Self::LostHint,
    ];
}

/// How often which fault comes: probabilities from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Odds {
    /// Of [`Fault::Refused`].
    pub refused: f64,
    /// Of [`Fault::LostReply`].
    pub lost_reply: f64,
    /// Of [`Fault::DelayBefore`].
    pub delay_before: f64,
    /// Of [`Fault::DelayAfter`].
    pub delay_after: f64,
    /// Of [`Fault::LostHint`].
    pub lost_hint: f64,
    /// The longest delay.
    pub delay_max: Duration,
}

impl Odds {
    /// Every fault with the same probability.
    pub const fn even(probability: f64, delay_max: Duration) -> Self {
        Self {
            refused: probability,
            lost_reply: probability,
            delay_before: probability,
            delay_after: probability,
            lost_hint: probability,
            delay_max,
        }
    }
}

/// The store: another one, with faults.
pub struct Flaky {
    inner: Arc<dyn Store>,
    ways: Arc<Mutex<Ways>>,
}

/// What decides over the next call, and what became of those before.
struct Ways {
    dice: StdRng,
    odds: Odds,
    /// Off means that `odds` are not looked at; the dice roll on, so that what follows stays the
    /// same.
    on: bool,
    down: bool,
    next: VecDeque<Fault>,
    forbidden: BTreeSet<&'static str>,
    hanging: BTreeSet<&'static str>,
    /// Methods that nobody answers for: after how long that is known.
    unanswered: BTreeMap<&'static str, Duration>,
    /// Calls under way, and the most there were.
    under_way: BTreeMap<&'static str, (usize, usize)>,
    injected: BTreeMap<(&'static str, Fault), u64>,
}

/// What becomes of one call, drawn before it begins.
#[derive(Clone, Copy, Default)]
struct Fate {
    refused: Option<Fault>,
    delay_before: Option<Duration>,
    lost_reply: bool,
    delay_after: Option<Duration>,
}

impl Flaky {
    /// The store without faults, until it gets some.
    pub fn new(inner: Arc<dyn Store>, seed: u64) -> Self {
        let ways = Ways {
            dice: StdRng::seed_from_u64(seed),
            odds: Odds::default(),
            on: true,
            down: false,
            next: VecDeque::new(),
            forbidden: BTreeSet::new(),
            hanging: BTreeSet::new(),
            unanswered: BTreeMap::new(),
            under_way: BTreeMap::new(),
            injected: BTreeMap::new(),
        };
        Self {
            inner,
            ways: Arc::new(Mutex::new(ways)),
        }
    }

    /// The store with faults by chance from the first call on.
    pub fn with_odds(inner: Arc<dyn Store>, seed: u64, odds: Odds) -> Self {
        let flaky = Self::new(inner, seed);
        flaky.set_odds(odds);
        flaky
    }

    /// From now on faults come this often.
    pub fn set_odds(&self, odds: Odds) {
        self.ways().odds = odds;
    }

    /// Faults by chance come, or do not.
    pub fn set_faults(&self, on: bool) {
        self.ways().on = on;
    }

    /// The store answers, or nothing does.
    pub fn set_down(&self, down: bool) {
        self.ways().down = down;
    }

    /// The next call that has no fault named for it yet gets this one, and none by chance.
    pub fn next_call(&self, fault: Fault) {
        self.ways().next.push_back(fault);
    }

    /// From now on this method is refused for good, as by a server that gives no right to it; every
    /// other fault of it gives way.
    pub fn forbid(&self, method: &'static str) {
        self.ways().forbidden.insert(method);
    }

    /// From now on this method is not answered at all, as by a server that is there and does
    /// nothing.
    pub fn hang(&self, method: &'static str) {
        self.ways().hanging.insert(method);
    }

    /// From now on this method is answered again, whether it was forbidden or hung.
    pub fn allow(&self, method: &'static str) {
        let mut ways = self.ways();
        ways.forbidden.remove(method);
        ways.hanging.remove(method);
    }

    /// From now on nobody answers for this method, and the store does not see it; callers know
    /// after so long.
    pub fn leave_unanswered(&self, method: &'static str, after: Duration) {
        self.ways().unanswered.insert(method, after);
    }

    /// From now on this method is answered for again.
    pub fn answer(&self, method: &'static str) {
        self.ways().unanswered.remove(method);
    }

    /// The most calls of this method that were under way at once.
    pub fn under_way_max(&self, method: &'static str) -> usize {
        self.ways().under_way.get(method).map_or(0, |(_, max)| *max)
    }

    /// How often this fault was injected.
    pub fn injected(&self, fault: Fault) -> u64 {
        let ways = self.ways();
        ways.injected
            .iter()
            .filter(|((_, of), _)| *of == fault)
            .map(|(_, count)| count)
            .sum()
    }

    /// How often this fault was injected into this method.
    pub fn injected_into(&self, method: &'static str, fault: Fault) -> u64 {
        self.ways()
            .injected
            .get(&(method, fault))
            .copied()
            .unwrap_or_default()
    }

    fn ways(&self) -> MutexGuard<'_, Ways> {
        // A test that panicked elsewhere has failed already; its faults need not fail as well.
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pass<T, F>(&self, method: &'static str, call: impl Fn() -> F + Send) -> StoreResult<T>
    where
        T: Send,
        F: Future<Output = StoreResult<T>> + Send,
    {
        if self.ways().forbidden.contains(method) {
            return Err(StoreError::misuse(method, "injected: permission denied"));
        }
        if self.ways().hanging.contains(method) {
            std::future::pending::<()>().await;
        }
        let _under_way = UnderWay::enter(&self.ways, method);
        let unanswered = self.ways().unanswered.get(method).copied();
        if let Some(after) = unanswered {
            tokio::time::sleep(after).await;
            return Err(StoreError::unavailable(method, "injected: nobody answers"));
        }
        let fate = self.ways().fate(method);
        if let Some(delay) = fate.delay_before {
            tokio::time::sleep(delay).await;
        }
        if let Some(fault) = fate.refused {
            return Err(StoreError::unavailable(
                method,
                format!("injected: {fault:?}"),
            ));
        }
        let answer = call().await;
        if let Some(delay) = fate.delay_after {
            tokio::time::sleep(delay).await;
        }
        if fate.lost_reply {
            return Err(StoreError::unavailable(
                method,
                "injected: the reply was lost",
            ));
        }
        answer
    }

    fn hints(&self) -> Box<dyn HintSubscription> {
        Box::new(FlakyHints {
            inner: self.inner.watch(),
            ways: Arc::clone(&self.ways),
        })
    }
}

/// A call, while it is under way.
struct UnderWay {
    ways: Arc<Mutex<Ways>>,
    method: &'static str,
}

impl UnderWay {
    fn enter(ways: &Arc<Mutex<Ways>>, method: &'static str) -> Self {
        let mut locked = ways.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, max) = locked.under_way.entry(method).or_default();
        *now += 1;
        *max = (*max).max(*now);
        Self {
            ways: Arc::clone(ways),
            method,
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut locked = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((now, _)) = locked.under_way.get_mut(self.method) {
            *now -= 1;
        }
    }
}

impl Ways {
    fn fate(&mut self, method: &'static str) -> Fate {
        let drawn = self.draw();
        let named = if self.down {
            Some(Fault::Down)
        } else {
            self.next.pop_front()
        };
        let fate = match named {
            Some(fault) => Fate::of(fault, self.odds.delay_max),
            None if self.on => drawn,
            None => Fate::default(),
        };
        for fault in fate.faults() {
            *self.injected.entry((method, fault)).or_default() += 1;
        }
        fate
    }

    /// As many rolls for every call, whatever the odds: changing them must not change the rest of a
    /// run.
    fn draw(&mut self) -> Fate {
        let rolls: [f64; 6] = self.dice.random();
        let delay = |part: f64| self.odds.delay_max.mul_f64(part);
        Fate {
            refused: (rolls[0] < self.odds.refused).then_some(Fault::Refused),
            lost_reply: rolls[1] < self.odds.lost_reply,
            delay_before: (rolls[2] < self.odds.delay_before).then(|| delay(rolls[3])),
            delay_after: (rolls[4] < self.odds.delay_after).then(|| delay(rolls[5])),
        }
    }

    fn loses_hint(&mut self) -> bool {
        let roll: f64 = self.dice.random();
        let lost = self.down || (self.on && roll < self.odds.lost_hint);
        if lost {
            *self.injected.entry(("watch", Fault::LostHint)).or_default() += 1;
        }
        lost
    }
}

impl Fate {
    fn of(fault: Fault, delay: Duration) -> Self {
        match fault {
            Fault::Refused | Fault::Down => Self {
                refused: Some(fault),
                ..Self::default()
            },
            Fault::LostReply => Self {
                lost_reply: true,
                ..Self::default()
            },
            Fault::DelayBefore => Self {
                delay_before: Some(delay),
                ..Self::default()
            },
            Fault::DelayAfter => Self {
                delay_after: Some(delay),
                ..Self::default()
            },
            Fault::LostHint => Self::default(),
        }
    }

    fn faults(&self) -> impl Iterator<Item = Fault> + use<> {
        // A call the store never saw has no reply to lose or to hold up.
        let seen = self.refused.is_none();
        [
            self.refused,
            self.delay_before.map(|_| Fault::DelayBefore),
            (seen && self.lost_reply).then_some(Fault::LostReply),
            self.delay_after.filter(|_| seen).map(|_| Fault::DelayAfter),
        ]
        .into_iter()
        .flatten()
    }
}

impl std::fmt::Debug for Flaky {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ways = self.ways();
        f.debug_struct("Flaky")
            .field("odds", &ways.odds)
            .field("on", &ways.on)
            .field("down", &ways.down)
            .field("injected", &ways.injected)
            .finish_non_exhaustive()
    }
}

forward_backlog!(Flaky);
forward_cells!(Flaky);
forward_streams!(Flaky);
forward_operator!(Flaky);
forward_store!(Flaky);

struct FlakyHints {
    inner: Box<dyn HintSubscription>,
    ways: Arc<Mutex<Ways>>,
}

#[async_trait]
impl HintSubscription for FlakyHints {
    async fn next(&mut self) {
        loop {
            self.inner.next().await;
            if !self
                .ways
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .loses_hint()
            {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
