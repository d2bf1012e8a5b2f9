//! Repairs what a server that took another's place did not keep: when, by whom, and again until it
//! is done.

use crate::context::StoreContext;
use crate::repair::{DOING, repair_all};
use crate::reply;
use backstop_core::port::StoreResult;
use redis::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How often somebody looks whether a cluster has other masters: its client finds its way to them
/// by itself, and does not say so.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Whoever is at it keeps others from doing the same for so long at a time, and says for as long
/// that it is done.
const CLAIM_SECS: u64 = 30;
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// The wait before a pass that failed is begun again: at first, and at most.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Between two looks at somebody else's pass.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Frees what only its owner may.
const FREE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// Notices when a master of a cluster is another than before, as long as the store is there.
pub(crate) async fn watch_servers(base: Arc<StoreContext>) {
    while base.link.is_cluster() {
        sleep(LOOK_EVERY).await;
        base.link.refresh_servers().await;
    }
}

/// Repairs whenever another server answers than before, as long as the store is there.
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

/// What became of a pass.
enum RepairPass {
    /// It is done, and so many places were wrong.
    Mended(usize),
    DoneByAnother,
    /// Another process is at it.
    UnderWay,
}

/// A whole pass, unless another process is at it or has just done it, with the same servers as we
/// see.
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
                // That was about other servers than those of now.
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
            // If it cannot be said now, others wait until it is over by itself.
            let _ = release_claim(base, &ours).await;
            Err(error)
        }
    }
}

/// Says again and again that we are at it; never comes back.
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
