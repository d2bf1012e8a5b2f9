//! Refuses to take jobs into a server that may throw them away.

use crate::link::{Link, field};
use crate::reply;
use backstop_core::port::{Answer, StoreError};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a good answer counts.
const CHECKED_FOR: Duration = Duration::from_mins(1);
const SAFE: &str = "noeviction";

/// Remembers when the policy was found to be safe.
#[derive(Default)]
pub(crate) struct Guard {
    /// When, and how many servers had been replaced by then: another server has a policy of its own.
    safe_since: Mutex<Option<(Instant, u64)>>,
}

impl Guard {
    /// Makes sure that no server evicts keys; asked anew each minute, and each time while one does.
    pub(crate) async fn check(&self, link: &Link, doing: &'static str) -> Answer<()> {
        if self.is_fresh(link) {
            return Ok(());
        }
        let replacements = link.replacements.load(Ordering::Acquire);
        for (node, policy) in policies(link, doing).await? {
            if policy != SAFE {
                return Err(evicts(doing, &node, &policy));
            }
        }
        *self.safe_since.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((Instant::now(), replacements));
        Ok(())
    }

    /// Whether it need not be asked now.
    pub(crate) fn is_fresh(&self, link: &Link) -> bool {
        let replacements = link.replacements.load(Ordering::Acquire);
        self.safe_since().is_some_and(|(since, of)| since.elapsed() < CHECKED_FOR && of == replacements)
    }

    fn safe_since(&self) -> Option<(Instant, u64)> {
        *self.safe_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn evicts(doing: &'static str, node: &str, policy: &str) -> StoreError {
    let cause = format!(
        "Redis ({node}) has maxmemory-policy `{policy}` and may delete jobs without a word; \
         set it to `{SAFE}`: CONFIG SET maxmemory-policy {SAFE}"
    );
    StoreError::misuse(doing, cause)
}

/// What each master does when its memory is full. INFO tells it also where CONFIG is forbidden.
async fn policies(link: &Link, doing: &'static str) -> Answer<Vec<(String, String)>> {
    let answers = link.ask_masters(doing, redis::cmd("INFO").arg("memory")).await?;
    let policy = |info| field(&reply::text(info)?, "maxmemory_policy").map(str::to_owned);
    Ok(answers
        .into_iter()
        .map(|(node, info)| (node, policy(info).unwrap_or_else(|| "unknown".to_owned())))
        .collect())
}
