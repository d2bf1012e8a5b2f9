//! Refuses to enqueue jobs on a server that may evict them.

use crate::link::{RedisLink, field};
use crate::reply;
use backstop_core::port::{StoreError, StoreResult};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a positive answer is valid: if all masters answered, and if only some did.
const CHECKED_FOR: Duration = Duration::from_mins(1);
const CHECKED_IN_PART_FOR: Duration = Duration::from_secs(5);
const SAFE: &str = "noeviction";

/// Caches that the eviction policy was safe.
#[derive(Default)]
pub(crate) struct EvictionCheck {
    safe: Mutex<Option<SafePolicy>>,
}

/// A safe eviction policy, and how long it is trusted.
#[derive(Clone, Copy)]
struct SafePolicy {
    until: Instant,
    /// How many servers had been replaced by then: a replacement has its own policy.
    replacements: u64,
}

impl EvictionCheck {
    /// Fails if a server evicts keys. A safe answer is cached for a minute, an unsafe one is not
    /// cached.
    pub(crate) async fn check(&self, link: &RedisLink, doing: &'static str) -> StoreResult<()> {
        self.check_at(link, doing, Instant::now()).await
    }

    /// Whether the cached answer is still valid.
    pub(crate) fn is_fresh(&self, link: &RedisLink) -> bool {
        self.is_fresh_at(link, Instant::now())
    }

    /// A master that does not answer cannot take jobs, so its policy may be checked later.
    async fn check_at(
        &self,
        link: &RedisLink,
        doing: &'static str,
        now: Instant,
    ) -> StoreResult<()> {
        if self.is_fresh_at(link, now) {
            return Ok(());
        }
        let replacements = link.replacements.load(Ordering::Acquire);
        let policies = policies(link, doing).await?;
        for (node, policy) in &policies {
            if let Some(policy) = policy.as_ref().filter(|policy| *policy != SAFE) {
                return Err(evicts(doing, node, policy));
            }
        }
        let is_whole = policies.iter().all(|(_, policy)| policy.is_some());
        let until = now
            + if is_whole {
                CHECKED_FOR
            } else {
                CHECKED_IN_PART_FOR
            };
        *self.safe.lock().unwrap_or_else(PoisonError::into_inner) = Some(SafePolicy {
            until,
            replacements,
        });
        Ok(())
    }

    fn is_fresh_at(&self, link: &RedisLink, now: Instant) -> bool {
        let safe = *self.safe.lock().unwrap_or_else(PoisonError::into_inner);
        let replacements = link.replacements.load(Ordering::Acquire);
        safe.is_some_and(|safe| now < safe.until && safe.replacements == replacements)
    }
}

fn evicts(doing: &'static str, node: &str, policy: &str) -> StoreError {
    let cause = format!(
        "Redis ({node}) has maxmemory-policy `{policy}` and may delete jobs without a word; \
         set it to `{SAFE}`: CONFIG SET maxmemory-policy {SAFE}"
    );
    StoreError::misuse(doing, cause)
}

/// The eviction policy of each master that answers. INFO contains it even where CONFIG is
/// forbidden.
async fn policies(
    link: &RedisLink,
    doing: &'static str,
) -> StoreResult<Vec<(String, Option<String>)>> {
    let answers = link
        .ask_reachable_masters(doing, redis::cmd("INFO").arg("memory"))
        .await?;
    let policy = |info| {
        let policy =
            reply::text(info).and_then(|info| field(&info, "maxmemory_policy").map(str::to_owned));
        policy.unwrap_or_else(|| "unknown".to_owned())
    };
    Ok(answers
        .into_iter()
        .map(|(node, info)| (node, info.map(policy)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::open;
    use backstop_testkit::servers::redis::{Append, Redis, Settings};

    #[tokio::test]
    async fn a_policy_that_changes_while_jobs_come_in_is_seen_after_a_minute() {
        let server = Redis::start(Settings {
            append: Append::Off,
            ..Settings::default()
        });
        let link = RedisLink::new(open(&server.fresh_url()).expect("an address").dial);
        let (guard, began) = (EvictionCheck::default(), Instant::now());
        let after = |secs| guard.check_at(&link, "testing", began + Duration::from_secs(secs));
        let set = |policy: &str| drop(server.cli(&["config", "set", "maxmemory-policy", policy]));
        after(0).await.expect("it is safe");
        set("allkeys-lru");
        after(59).await.expect("it was asked within the minute");
        let refused = after(60).await;
        assert!(
            matches!(&refused, Err(StoreError::Misuse { cause, .. }) if cause.contains("allkeys-lru")),
            "{refused:?}"
        );
        after(61)
            .await
            .expect_err("it is asked each time while it is not safe");
        set("noeviction");
        after(62).await.expect("it is safe again");
    }
}
