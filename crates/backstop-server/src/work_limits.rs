//! Turns: a few at once, a short queue behind them, and a refusal for whoever comes after that.

use backstop_core::limits::{
    CALLER_BODIES_MAX, CALLER_BODIES_WAITING_MAX, CALLER_READS_MAX, CALLER_READS_WAITING_MAX,
    CALLERS_MAX, LARGE_AT_ONCE_MAX, LARGE_BYTES_MIN, LARGE_WAITING_MAX,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long somebody waits for a turn: well within the time a request may take.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The right to be under way; dropping it lets the next one go on.
pub(crate) type WorkPermit = OwnedSemaphorePermit;

/// There are as many under way, and as many waiting, as there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Crowded {
    Caller,
    Server,
}

/// A few at once, the others in a queue.
#[derive(Debug)]
pub(crate) struct WorkLimiter {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    waiting_max: usize,
}

impl WorkLimiter {
    fn new(at_once: usize, waiting_max: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(at_once)),
            waiting: AtomicUsize::new(0),
            waiting_max,
        }
    }

    /// Waits for a turn, unless too many wait already.
    pub(crate) async fn acquire(&self) -> Result<WorkPermit, Crowded> {
        if let Ok(turn) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(turn);
        }
        let _waiting = WaitingSlot::join(&self.waiting, self.waiting_max)?;
        let turn = timeout(WAIT_MAX, Arc::clone(&self.places).acquire_owned()).await;
        turn.ok().and_then(Result::ok).ok_or(Crowded::Server)
    }
}

/// One place in a queue, free again when dropped.
struct WaitingSlot<'a>(&'a AtomicUsize);

impl<'a> WaitingSlot<'a> {
    fn join(count: &'a AtomicUsize, max: usize) -> Result<Self, Crowded> {
        let place = Self(count);
        if count.fetch_add(1, Ordering::Relaxed) < max {
            Ok(place)
        } else {
            Err(Crowded::Server)
        }
    }
}

impl Drop for WaitingSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A few at once of each caller, so that no caller takes the places of all.
#[derive(Debug)]
pub(crate) struct CallerLimiters {
    at_once: usize,
    waiting_max: usize,
    callers: Mutex<BTreeMap<Arc<str>, Arc<WorkLimiter>>>,
}

impl CallerLimiters {
    /// For reads that take the store or the server long.
    pub(crate) fn for_reads() -> Self {
        Self::new(CALLER_READS_MAX, CALLER_READS_WAITING_MAX)
    }

    /// For large bodies, from before they are received until they are parsed.
    pub(crate) fn for_bodies() -> Self {
        Self::new(CALLER_BODIES_MAX, CALLER_BODIES_WAITING_MAX)
    }

    /// So many of each caller at once, behind which so many may wait.
    pub(crate) fn new(at_once: usize, waiting_max: usize) -> Self {
        Self {
            at_once,
            waiting_max,
            callers: Mutex::default(),
        }
    }

    /// Waits for a turn of this caller.
    pub(crate) async fn acquire(&self, caller: &Arc<str>) -> Result<WorkPermit, Crowded> {
        let turn = self.limiter_of(caller).acquire().await;
        turn.map_err(|_| Crowded::Caller)
    }

    /// A turn of this caller, if one is free now.
    pub(crate) fn try_acquire(&self, caller: &Arc<str>) -> Option<WorkPermit> {
        Arc::clone(&self.limiter_of(caller).places)
            .try_acquire_owned()
            .ok()
    }

    fn limiter_of(&self, caller: &Arc<str>) -> Arc<WorkLimiter> {
        // One map, always whole.
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= CALLERS_MAX && !callers.contains_key(caller) {
            callers.retain(|_, turns| turns.places.available_permits() < self.at_once);
        }
        let new = || Arc::new(WorkLimiter::new(self.at_once, self.waiting_max));
        Arc::clone(callers.entry(Arc::clone(caller)).or_insert_with(new))
    }
}

/// Large bodies and answers: parsed and written off the serving threads, a few at once.
#[derive(Debug)]
pub(crate) struct LargeWork {
    bodies: WorkLimiter,
    answers: WorkLimiter,
    /// Leases have turns of their own: they never wait behind lists.
    leases: WorkLimiter,
}

impl Default for LargeWork {
    fn default() -> Self {
        let turns = || WorkLimiter::new(LARGE_AT_ONCE_MAX, LARGE_WAITING_MAX);
        Self {
            bodies: turns(),
            answers: turns(),
            leases: turns(),
        }
    }
}

impl LargeWork {
    /// Parses a body of so many bytes.
    pub(crate) async fn body<T: Send + 'static>(
        &self,
        bytes: usize,
        parse: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Crowded> {
        run_limited(&self.bodies, bytes, parse).await
    }

    /// Writes an answer of about so many bytes.
    pub(crate) async fn answer<T: Send + 'static>(
        &self,
        bytes: usize,
        write: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Crowded> {
        run_limited(&self.answers, bytes, write).await
    }

    /// Writes a lease of about so many bytes.
    pub(crate) async fn lease<T: Send + 'static>(
        &self,
        bytes: usize,
        write: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Crowded> {
        run_limited(&self.leases, bytes, write).await
    }
}

async fn run_limited<T: Send + 'static>(
    turns: &WorkLimiter,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Crowded> {
    if bytes < LARGE_BYTES_MIN {
        return Ok(work());
    }
    let turn = turns.acquire().await?;
    let working = tokio::task::spawn_blocking(move || {
        // Held to the end, also where the caller leaves before.
        let _turn = turn;
        work()
    });
    match working.await {
        Ok(done) => Ok(done),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only a runtime that goes down cancels it.
            Err(_) => Err(Crowded::Server),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_few_go_at_once_a_few_wait_and_the_next_is_refused() {
        let turns = WorkLimiter::new(2, 1);
        let (first, _second) = (
            turns.acquire().await.unwrap(),
            turns.acquire().await.unwrap(),
        );
        assert_eq!(
            turns.acquire().await.err(),
            Some(Crowded::Server),
            "nobody waits for ever"
        );
        let (third, refused) = tokio::join!(turns.acquire(), async {
            let refused = turns.acquire().await.err();
            drop(first);
            refused
        });
        assert_eq!((third.is_ok(), refused), (true, Some(Crowded::Server)));
    }

    #[tokio::test(start_paused = true)]
    async fn callers_do_not_wait_for_each_other_and_are_forgotten() {
        let reads = CallerLimiters::for_reads();
        let mut held = Vec::new();
        for _ in 0..CALLER_READS_MAX {
            held.push(reads.acquire(&"token a".into()).await.unwrap());
        }
        assert_eq!(
            reads.acquire(&"token a".into()).await.err(),
            Some(Crowded::Caller)
        );
        for n in 0..2 * CALLERS_MAX {
            assert!(reads.acquire(&format!("token {n}").into()).await.is_ok());
        }
        assert!(reads.callers.lock().unwrap().len() <= CALLERS_MAX);
        assert_eq!(
            reads.acquire(&"token a".into()).await.err(),
            Some(Crowded::Caller),
            "its turns are still held"
        );
    }

    #[tokio::test]
    async fn what_is_large_runs_elsewhere_and_what_is_small_at_once() {
        let (large, here) = (LargeWork::default(), std::thread::current().id());
        let thread = || std::thread::current().id();
        assert_eq!(large.body(LARGE_BYTES_MIN - 1, thread).await, Ok(here));
        for elsewhere in [
            large.body(LARGE_BYTES_MIN, thread).await,
            large.answer(LARGE_BYTES_MIN, thread).await,
            large.lease(LARGE_BYTES_MIN, thread).await,
        ] {
            assert_ne!(elsewhere.unwrap(), here);
        }
    }
}
