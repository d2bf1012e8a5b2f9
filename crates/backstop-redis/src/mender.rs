//! Repairs what a server that took another's place did not keep: when, by whom, and again until it
//! is done.

use crate::base::Base;
use crate::repair::{DOING, repair_all};
use crate::reply;
use backstop_core::port::Answer;
use redis::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How often somebody looks whether a cluster has other masters: its client finds its way to them
/// by itself, and does not say so.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Whoever is at it keeps others from doing the same for so long at a time, and says for as long
/// that it is done.
const ALONE_FOR_SECS: u64 = 30;
const SAY_SO_EVERY: Duration = Duration::from_secs(10);
/// The wait before a pass that failed is begun again: at first, and at most.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Between two looks at somebody else's pass.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Frees what only its owner may.
const FREE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// Notices when a master of a cluster is another than before, as long as the store is there.
pub(crate) async fn look_around(base: Arc<Base>) {
    while base.link.is_cluster() {
        sleep(LOOK_EVERY).await;
        base.link.look_around().await;
    }
}

/// Repairs whenever another server answers than before, as long as the store is there.
pub(crate) async fn mend_when_replaced(base: Arc<Base>) {
    loop {
        base.link.replaced.notified().await;
        tracing::warn!(
            "another Redis answers than before, or it was restarted; checking what it kept"
        );
        let mut pause = PAUSE_FIRST;
        loop {
            match pass(&base).await {
                Ok(Pass::Mended(0)) => tracing::info!("everything is where it belongs"),
                Ok(Pass::Mended(mended)) => tracing::warn!(mended, "places were put right"),
                Ok(Pass::DoneByAnother) => tracing::info!("another process has checked it"),
                Ok(Pass::UnderWay) => {
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
enum Pass {
    /// It is done, and so many places were wrong.
    Mended(usize),
    DoneByAnother,
    /// Another process is at it.
    UnderWay,
}

/// A whole pass, unless another process is at it or has just done it, with the same servers as we
/// see.
async fn pass(base: &Base) -> Answer<Pass> {
    let done = format!("done {:016x}", base.link.servers_met());
    let ours = format!("{:016x}", rand::random::<u64>());
    let key = base.keys.repair();
    let mut lock = redis::cmd("SET");
    lock.arg(&key)
        .arg(&ours)
        .arg("NX")
        .arg("EX")
        .arg(ALONE_FOR_SECS);
    if base.link.ask(DOING, &lock).await? == Value::Nil {
        let theirs = reply::text(base.link.ask(DOING, redis::cmd("GET").arg(&key)).await?);
        return match theirs {
            Some(theirs) if theirs == done => Ok(Pass::DoneByAnother),
            Some(theirs) if theirs.starts_with("done ") => {
                // That was about other servers than those of now.
                free(base, &theirs).await?;
                Ok(Pass::UnderWay)
            }
            _ => Ok(Pass::UnderWay),
        };
    }
    let mended = tokio::select! {
        mended = repair_all(base) => mended,
        never = say_so(base, &ours) => never,
    };
    match mended {
        Ok(mended) => {
            let mut tell = redis::cmd("SET");
            tell.arg(&key).arg(&done).arg("EX").arg(ALONE_FOR_SECS);
            base.link.ask(DOING, &tell).await?;
            Ok(Pass::Mended(mended))
        }
        Err(error) => {
            // If it cannot be said now, others wait until it is over by itself.
            let _ = free(base, &ours).await;
            Err(error)
        }
    }
}

/// Says again and again that we are at it; never comes back.
async fn say_so(base: &Base, ours: &str) -> Answer<usize> {
    loop {
        sleep(SAY_SO_EVERY).await;
        let mut say = redis::cmd("SET");
        say.arg(base.keys.repair())
            .arg(ours)
            .arg("EX")
            .arg(ALONE_FOR_SECS);
        if let Err(error) = base.link.ask(DOING, &say).await {
            tracing::debug!(%error, "others do not know that a repair is under way");
        }
    }
}

async fn free(base: &Base, whose: &str) -> Answer<()> {
    let mut command = redis::cmd("EVAL");
    command.arg(FREE).arg(1).arg(base.keys.repair()).arg(whose);
    base.link.ask(DOING, &command).await.map(drop)
}
