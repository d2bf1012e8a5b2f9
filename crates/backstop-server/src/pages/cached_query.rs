//! Looks into databases of users: never two at once at the same thing, never longer than a page can
//! wait, and what was seen last is kept, so that a page always has something to show.
//!
//! A look goes on when nobody waits for it any more: a database that answers after a minute is then
//! known to the next page.

use backstop_core::{Span, Time};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How long a page waits for a look.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest a look may take; it is given up then.
const LOOK_MAX: Duration = Duration::from_mins(2);
/// A look that is no older is shown again, instead of asking anew.
const FRESH: Span = Span::secs(5);
/// A look that is no older needs no word about its age.
pub(super) const JUST_NOW: Span = Span::secs(10);
/// Things whose last look is kept.
const KEPT_MAX: usize = 200;

/// What was seen, or why nothing was.
pub(super) type CachedResult<T> = Arc<Result<T, String>>;

/// What is known of a thing.
pub(super) struct CachedQuery<T> {
    /// The last look, and when it was.
    pub(super) seen: Option<(Time, CachedResult<T>)>,
    /// Whether a newer one is under way.
    pub(super) is_looking: bool,
}

/// The last look at each of several things. Cheap to clone.
pub(super) struct QueryCache<T>(Arc<Mutex<BTreeMap<String, QueryCacheEntry<T>>>>);

struct QueryCacheEntry<T> {
    seen: Option<(Time, CachedResult<T>)>,
    looking: Option<watch::Receiver<()>>,
}

impl<T> Clone for QueryCache<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for QueryCache<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Send + Sync + 'static> QueryCache<T> {
    /// Looks at the thing called `name`, unless somebody does or just did; answers what is known
    /// when it is done, or when a page cannot wait any longer.
    pub(super) async fn query(
        &self,
        name: &str,
        now: Time,
        look: impl Future<Output = Result<T, String>> + Send + 'static,
    ) -> CachedQuery<T> {
        if let Some(mut looking) = self.begin(name, now, look) {
            // An end of the sender is an end of the look.
            let _ = tokio::time::timeout(PATIENCE, looking.changed()).await;
        }
        self.cached(name)
    }

    /// What is known, without a look.
    pub(super) fn cached(&self, name: &str) -> CachedQuery<T> {
        let things = self.things();
        let thing = things.get(name);
        CachedQuery {
            seen: thing.and_then(|thing| thing.seen.clone()),
            is_looking: thing.is_some_and(|thing| thing.looking.is_some()),
        }
    }

    /// The look under way, be it this one; `None` if the last one is fresh.
    fn begin(
        &self,
        name: &str,
        now: Time,
        look: impl Future<Output = Result<T, String>> + Send + 'static,
    ) -> Option<watch::Receiver<()>> {
        let mut things = self.things();
        if things.len() >= KEPT_MAX && !things.contains_key(name) {
            things.retain(|_, thing| thing.looking.is_some());
        }
        let thing = things.entry(name.to_owned()).or_insert(QueryCacheEntry {
            seen: None,
            looking: None,
        });
        if let Some(looking) = &thing.looking {
            return Some(looking.clone());
        }
        if thing
            .seen
            .as_ref()
            .is_some_and(|(at, _)| now.since(*at) < FRESH)
        {
            return None;
        }
        let (ended, looking) = watch::channel(());
        thing.looking = Some(looking.clone());
        let (looks, name) = (self.clone(), name.to_owned());
        tokio::spawn(async move {
            let seen = tokio::time::timeout(LOOK_MAX, look).await;
            let seen = seen
                .unwrap_or_else(|_| Err(format!("no answer within {LOOK_MAX:?}; it was given up")));
            looks.end(&name, now, seen);
            drop(ended);
        });
        Some(looking)
    }

    fn end(&self, name: &str, at: Time, seen: Result<T, String>) {
        if let Some(thing) = self.things().get_mut(name) {
            *thing = QueryCacheEntry {
                seen: Some((at, Arc::new(seen))),
                looking: None,
            };
        }
    }

    fn things(&self) -> MutexGuard<'_, BTreeMap<String, QueryCacheEntry<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn seen(known: &CachedQuery<u32>) -> Option<Result<u32, String>> {
        known.seen.as_ref().map(|(_, seen)| (**seen).clone())
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_takes_long_is_not_waited_for_and_is_known_afterwards() {
        let looks: QueryCache<u32> = QueryCache::default();
        let slow = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Ok(7)
        };
        let known = looks.query("t", Time::from_millis(0), slow).await;
        assert!(known.is_looking && known.seen.is_none());
        tokio::time::sleep(Duration::from_secs(30)).await;
        let known = looks.cached("t");
        assert_eq!((seen(&known), known.is_looking), (Some(Ok(7)), false));
    }

    #[tokio::test(start_paused = true)]
    async fn many_pages_at_once_make_one_look_and_one_that_is_fresh_is_shown_again() {
        let (looks, count) = (QueryCache::<u32>::default(), Arc::new(AtomicU32::new(0)));
        let look = || {
            let count = Arc::clone(&count);
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(count.fetch_add(1, Ordering::Relaxed) + 1)
            }
        };
        let at = |secs: i64| Time::from_millis(secs * 1_000);
        let (one, two) = tokio::join!(
            looks.query("t", at(0), look()),
            looks.query("t", at(0), look())
        );
        assert_eq!((seen(&one), seen(&two)), (Some(Ok(1)), Some(Ok(1))));
        assert_eq!(seen(&looks.query("t", at(4), look()).await), Some(Ok(1)));
        assert_eq!(seen(&looks.query("t", at(6), look()).await), Some(Ok(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_that_never_answers_is_given_up() {
        let looks: QueryCache<u32> = QueryCache::default();
        let known = looks
            .query("t", Time::from_millis(0), std::future::pending())
            .await;
        assert!(known.is_looking);
        tokio::time::sleep(LOOK_MAX).await;
        tokio::task::yield_now().await;
        let known = looks.cached("t");
        assert!(
            matches!(seen(&known), Some(Err(why)) if why.contains("given up")) && !known.is_looking
        );
    }
}
