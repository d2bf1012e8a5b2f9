//! Repairs the store after a server was replaced by one that lost writes. Decides when to repair
//! and which process does it, and retries until the repair is done.

use crate::context::StoreContext;
use crate::repair::{DOING, repair_all};
use crate::reply;
use backstop_core::port::StoreResult;
use redis::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How often a cluster is checked for new masters. The cluster client follows a failover by itself
/// and does not report it.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A repairing process locks out other processes for this long at a time. When it is done, it
/// publishes that for as long.
const CLAIM_SECS: u64 = 30;
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// The backoff before a failed pass starts again: first and maximum.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The wait between two looks at another process's pass.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Deletes the lock only if its owner still holds it.
const FREE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// Notices when a master of a cluster was replaced; runs as long as the store exists.
pub(crate) async fn watch_servers(base: Arc<StoreContext>) {
    while base.link.is_cluster() {
        sleep(LOOK_EVERY).await;
        base.link.refresh_servers().await;
    }
}

/// Repairs whenever a server was replaced; runs as long as the store exists.
pub(crate) async fn repair_when_replaced(base: Arc<StoreContext>) {
    loop {
        base.link.replaced.notified().await;
        tracing::warn!(
            "another Redis answers than before, or it was restarted; checking what it kept"
        );
        let mut pause = PAUSE_FIRST;
        loop {
            match run_repair_pass(&base).await {
                Ok(RepairPass::Mended(0)) => tracing::info!("everything is where it belongs"),
                Ok(RepairPass::Mended(mended)) => tracing::warn!(mended, "places were put right"),
                Ok(RepairPass::DoneByAnother) => tracing::info!("another process has checked it"),
                Ok(RepairPass::UnderWay) => {
                    sleep(LOOK_AGAIN).await;
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, "the check was not completed; trying again in {pause:?}");
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                    continue;
                }
            }
            break;
        }
    }
}

/// The outcome of a repair pass.
enum RepairPass {
    /// The pass is done, and this many entries were wrong.
    Mended(usize),
    DoneByAnother,
    /// Another process is repairing the store.
    UnderWay,
}

/// Runs a full pass, unless another process is repairing, or has just repaired, the same servers.
async fn run_repair_pass(base: &StoreContext) -> StoreResult<RepairPass> {
    let done = format!("done {:016x}", base.link.servers_met());
    let ours = format!("{:016x}", rand::random::<u64>());
    let key = base.keys.repair();
    let mut lock = redis::cmd("SET");
    lock.arg(&key)
        .arg(&ours)
        .arg("NX")
        .arg("EX")
        .arg(CLAIM_SECS);
    if base.link.ask(DOING, &lock).await? == Value::Nil {
        let theirs = reply::text(base.link.ask(DOING, redis::cmd("GET").arg(&key)).await?);
        return match theirs {
            Some(theirs) if theirs == done => Ok(RepairPass::DoneByAnother),
            Some(theirs) if theirs.starts_with("done ") => {
                // That repair was for other servers than the present ones.
                release_claim(base, &theirs).await?;
                Ok(RepairPass::UnderWay)
            }
            _ => Ok(RepairPass::UnderWay),
        };
    }
    let mended = tokio::select! {
        mended = repair_all(base) => mended,
        never = renew_claim(base, &ours) => never,
    };
    match mended {
        Ok(mended) => {
            let mut tell = redis::cmd("SET");
            tell.arg(&key).arg(&done).arg("EX").arg(CLAIM_SECS);
            base.link.ask(DOING, &tell).await?;
            Ok(RepairPass::Mended(mended))
        }
        Err(error) => {
            // If the lock cannot be released now, the other processes wait until it expires.
            let _ = release_claim(base, &ours).await;
            Err(error)
        }
    }
}

/// Renews the lock again and again; never returns.
async fn renew_claim(base: &StoreContext, ours: &str) -> StoreResult<usize> {
    loop {
        sleep(RENEW_EVERY).await;
        let mut say = redis::cmd("SET");
        say.arg(base.keys.repair())
            .arg(ours)
            .arg("EX")
            .arg(CLAIM_SECS);
        if let Err(error) = base.link.ask(DOING, &say).await {
            tracing::debug!(%error, "others do not know that a repair is under way");
        }
    }
}

async fn release_claim(base: &StoreContext, whose: &str) -> StoreResult<()> {
    let mut command = redis::cmd("EVAL");
    command.arg(FREE).arg(1).arg(base.keys.repair()).arg(whose);
    base.link.ask(DOING, &command).await.map(drop)
}
