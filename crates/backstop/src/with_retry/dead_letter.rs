//! What becomes of the data of an operation that is given up: the store, else the spill directory,
//! else the log.

use super::{GivenUpData, IdSource};
use crate::client::Backstop;
use crate::spill::encode;
use backstop_core::failure::DeathContext;
use backstop_core::port::{EnqueueOutcome, NewDeadLetter};
use backstop_core::{QueueName, WorkerName};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the store may take to tell how deep a queue is: nice to know, and no reason to wait.
const DEPTH_DEADLINE: Duration = Duration::from_secs(1);

pub(super) fn worker() -> WorkerName {
    WorkerName::new(&format!("{}/{}/with_retry", host(), std::process::id()))
}

/// Finds a place for a dead letter, whether or not the caller goes on waiting for the answer.
pub(crate) async fn keep(
    backstop: &Backstop,
    burial: NewDeadLetter,
    id_source: IdSource,
) -> GivenUpData {
    let record = burial.clone();
    let backstop = backstop.clone();
    let kept = tokio::spawn(async move {
        let burial = with_context(&backstop, burial).await;
        match bury(&backstop, &burial, id_source).await {
            Ok(went) => went,
            Err(why) => spill(&backstop, &burial, &why).await,
        }
    });
    kept.await.unwrap_or_else(|error| {
        log_lost(&record, "the task that kept it ended", &error.to_string())
    })
}

/// To the store; else the reason why it is not there.
async fn bury(
    backstop: &Backstop,
    burial: &NewDeadLetter,
    id_source: IdSource,
) -> Result<GivenUpData, String> {
    let id = burial.job.id;
    let answers = backstop
        .store()
        .bury(vec![burial.clone()], backstop.current_time().await)
        .await;
    match answers.map_err(|error| error.to_string())?.first() {
        Some(EnqueueOutcome::Inserted) => Ok(GivenUpData::Buried(id)),
        // Nobody else has an id made here: an answer was lost on the way.
        Some(EnqueueOutcome::Same) if id_source == IdSource::Generated => {
            Ok(GivenUpData::Buried(id))
        }
        Some(EnqueueOutcome::Same) => Ok(GivenUpData::Known(id)),
        Some(EnqueueOutcome::Conflict) => Err("a job of another queue has its id".to_owned()),
        Some(EnqueueOutcome::Full) => Err("the queue's dead letters are at their bound".to_owned()),
        Some(EnqueueOutcome::Duplicate(_)) | None => {
            Err("the store gave no answer for it".to_owned())
        }
    }
}

async fn spill(backstop: &Backstop, burial: &NewDeadLetter, why: &str) -> GivenUpData {
    match backstop.spill().put(burial).await {
        Ok(path) => {
            let (job, queue) = (burial.job.id, &burial.job.queue);
            tracing::warn!(%job, %queue, path = %path.display(), why, "a dead letter is spilled to the disk until the store takes it");
            GivenUpData::Spilled(path)
        }
        Err(error) => log_lost(burial, why, &error.to_string()),
    }
}

/// The last resort. The record is whole, secrets included: redacted, it would be lost. As a line of
/// a file whose name ends in `.ndjson` in the spill directory it is taken in.
fn log_lost(burial: &NewDeadLetter, store: &str, disk: &str) -> GivenUpData {
    let (job, queue, lost_record) = (burial.job.id, &burial.job.queue, encode(burial));
    tracing::error!(
        data_loss = true,
        %job,
        %queue,
        store,
        disk,
        lost_record,
        "CRITICAL DATA LOSS: neither the store nor the disk took a dead letter; put `lost_record` as a line into a file of the spill directory that ends in .ndjson"
    );
    GivenUpData::Lost
}

async fn with_context(backstop: &Backstop, burial: NewDeadLetter) -> NewDeadLetter {
    let context = DeathContext {
        queue_depths: depth(backstop, &burial.job.queue).await,
        breakers: BTreeMap::new(),
        worker: Some(worker().to_string()),
        host: Some(host()),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        lost_workers: Vec::new(),
    };
    NewDeadLetter {
        history: burial.history.with_context(context),
        ..burial
    }
}

/// The live jobs of the queue; nothing if the store does not say.
async fn depth(backstop: &Backstop, queue: &QueueName) -> BTreeMap<String, u64> {
    let now = backstop.current_time().await;
    let queues = tokio::time::timeout(DEPTH_DEADLINE, backstop.store().queues(now)).await;
    let found = queues
        .ok()
        .and_then(Result::ok)
        .unwrap_or_default()
        .into_iter()
        .filter(|status| status.name == *queue);
    found
        .map(|status| (status.name.to_string(), status.counts.live()))
        .collect()
}

fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
