//! What the overview looks at: a fixed number of questions, each of which the store answers from what it keeps.

use crate::doctor::Opinion;
use crate::history::{QueueSeries, StreamSeries};
use crate::pages::View;
use crate::pages::queues::taking_jobs;
use backstop::breakers::GuardStatus;
use backstop::dead::redrive::RedriveReport;
use backstop::tables::Failing;
use backstop::workers::{LISTED, is_heard};
use backstop_core::limits::GROUPS_MAX;
use backstop_core::port::{
    Answer, Group, GroupQuery, KeyStatus, QueueStatus, StreamStatus, WhichKeys, WorkerStatus,
};
use backstop_core::stream::Standing;
use backstop_core::{QueueName, ScheduleName, Span, StreamName, Time};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Streams and keys of each that are looked at for a halt.
const STREAMS_MAX: usize = 10;
const KEYS_MAX: usize = 1_000;
/// Schedules that are looked at.
const SCHEDULES_MAX: usize = 100;
/// Tables that are looked at.
const TABLES_MAX: usize = 50;
/// How long what schedules missed is taken for true.
const MISSED_FOR: Span = Span::secs(10);

/// The schedules that missed instants, and how many: asked less often than pages are.
#[derive(Clone, Default)]
pub(super) struct Missed(Arc<Mutex<Option<Seen>>>);

/// When they were asked for, and what was said.
type Seen = (Time, BTreeMap<ScheduleName, usize>);

/// Everything the overview knows.
pub(super) struct Facts {
    pub(super) now: Time,
    pub(super) queues: Vec<QueueStatus>,
    /// Those heard of within the hour.
    pub(super) workers: Vec<WorkerStatus>,
    pub(super) guards: Vec<GuardStatus>,
    /// As many as the store tells: the largest come first, and those of now may be small.
    pub(super) groups: Vec<Group>,
    /// For how long the lease that ended first has not been taken over.
    pub(super) overdue: Option<Span>,
    pub(super) streams: Vec<StreamStatus>,
    /// Streams with keys that stand still.
    pub(super) halted: Vec<Halted>,
    pub(super) missed: BTreeMap<ScheduleName, usize>,
    /// What the doctor says.
    pub(super) opinion: Opinion,
    /// How each queue went in the last minutes, as far as this server saw it.
    pub(super) recent: BTreeMap<QueueName, QueueSeries>,
    /// The same of each stream.
    pub(super) recent_streams: BTreeMap<StreamName, StreamSeries>,
    /// Redrives that have not ended and that nobody runs.
    pub(super) stalled: Vec<RedriveReport>,
    /// Tables whose passes fail.
    pub(super) failing: Vec<(String, Failing)>,
    /// Those of them that are heard, and take new jobs.
    pub(super) taking: Vec<WorkerStatus>,
}

/// Keys of a stream that stand still.
pub(super) struct Halted {
    pub(super) stream: StreamName,
    /// How many were seen.
    pub(super) count: u64,
    /// Whether there are keys that were not looked at.
    pub(super) is_partial: bool,
}

impl Facts {
    pub(super) async fn gather(view: &View, missed: &Missed) -> Answer<Self> {
        let (store, backstop, now) = (view.store(), view.app().backstop(), view.now());
        let queues = store.queues(now).await?;
        let streams = store.streams().await?;
        let config = view.app().config();
        let workers = backstop.workers(LISTED).await?;
        let recent = queues
            .iter()
            .map(|queue| (queue.name.clone(), view.app().history().recent_queue(&queue.name, now)));
        let recent_streams = streams
            .iter()
            .map(|stream| (stream.name.clone(), view.app().history().recent_stream(&stream.name, now)));
        Ok(Self {
            taking: taking_jobs(&workers, now),
            workers: workers.into_iter().map(|worker| worker.status).collect(),
            guards: backstop.breakers().list().await?,
            groups: store.groups(GroupQuery { queue: None, limit: GROUPS_MAX }, now).await?,
            overdue: backstop.oldest_expired(|queue| config.lease_of(queue)).await?,
            halted: halted(view, &streams).await?,
            missed: missed.look(view, now).await?,
            opinion: view.app().doctor().opinion(view.app()),
            stalled: stalled(view).await?,
            failing: failing(view).await?,
            recent: recent.collect(),
            recent_streams: recent_streams.collect(),
            queues,
            streams,
            now,
        })
    }

    /// Workers that are heard, and the jobs in their hands.
    pub(super) fn live_workers(&self) -> (u64, u64) {
        let live = self.workers.iter().filter(|worker| is_heard(worker, self.now));
        live.fold((0, 0), |(count, running), worker| (count + 1, running + worker.running))
    }

    /// Whether somebody serves a queue.
    pub(super) fn is_served(&self, queue: &QueueName) -> bool {
        self.taking.iter().any(|worker| worker.queues.contains(queue))
    }
}

async fn stalled(view: &View) -> Answer<Vec<RedriveReport>> {
    let redrives = view.app().backstop().dead().redrives().await?;
    Ok(redrives.into_iter().filter(|redrive| redrive.stalled).collect())
}

/// The tables of the configuration whose passes fail.
async fn failing(view: &View) -> Answer<Vec<(String, Failing)>> {
    let (config, backstop) = (view.app().config(), view.app().backstop());
    let tables = config.tables.values().take(TABLES_MAX).map(|entry| async {
        let failing = backstop.adopted(&entry.table).failing().await?;
        Ok(failing.map(|failing| (entry.table.name().to_owned(), failing)))
    });
    let failing: Answer<Vec<_>> = join_all(tables).await.into_iter().collect();
    Ok(failing?.into_iter().flatten().collect())
}

/// Keys that stand still, of the first keys that hold something.
async fn halted(view: &View, streams: &[StreamStatus]) -> Answer<Vec<Halted>> {
    let mut halted = Vec::new();
    for status in streams.iter().filter(|status| status.holding > 0).take(STREAMS_MAX) {
        let Ok(stream) = view.app().backstop().stream(status.name.as_str()) else { continue };
        let keys = stream.keys(None, WhichKeys::Holding, KEYS_MAX).await?;
        let is_halted =
            |key: &&KeyStatus| Standing::from_bytes(&key.standing).is_ok_and(|known| known.halted.is_some());
        let count = keys.iter().filter(is_halted).count() as u64;
        if count > 0 {
            let is_partial = status.holding > keys.len() as u64;
            halted.push(Halted { stream: status.name.clone(), count, is_partial });
        }
    }
    Ok(halted)
}

impl Missed {
    /// Those of the configuration.
    async fn look(&self, view: &View, now: Time) -> Answer<BTreeMap<ScheduleName, usize>> {
        if let Some((at, missed)) = &*self.kept()
            && now.since(*at) < MISSED_FOR
        {
            return Ok(missed.clone());
        }
        let config = view.app().config();
        let schedules: Vec<_> = config.schedules.values().take(SCHEDULES_MAX).cloned().collect();
        let mut missed = BTreeMap::new();
        for (_, name) in view.app().backstop().schedules().unfired(&schedules).await? {
            *missed.entry(name).or_insert(0) += 1;
        }
        *self.kept() = Some((now, missed.clone()));
        Ok(missed)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Option<Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
