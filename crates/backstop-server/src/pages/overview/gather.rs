//! What the overview looks at: a fixed number of questions, each of which the store answers from
//! what it keeps.

use super::cached_query::{OverviewCache, SchedulesAndSweeps};
use crate::bulk::{self, BulkActions};
use crate::doctor::DoctorReport;
use crate::history::{QueueSeries, StreamAlarms, StreamSeries};
use crate::pages::PageView;
use crate::pages::queues::taking_jobs;
use backstop::breakers::BreakerInfo;
use backstop::dead::redrive::RedriveReport;
use backstop::overlaps::RunOverlap;
use backstop::rate_limits::RateStatus;
use backstop::tables::FailingPasses;
use backstop::workers::{LISTED, is_heard};
use backstop_core::port::{
    DeadLetterGroup, ExpiredLeases, KeyFilter, KeyStatus, QueueStatus, StoreResult, StreamStatus,
    WorkerStatus,
};
use backstop_core::stream::KeyState;
use backstop_core::{QueueName, Span, StreamName, Time};
use futures_util::future::join_all;
use std::collections::BTreeMap;

/// Streams and keys of each that are looked at for a halt, and for keys that nobody looks at.
const STREAMS_MAX: usize = 10;
const KEYS_MAX: usize = 1_000;
/// Overlaps that are looked at.
const OVERLAPS_MAX: usize = 20;
/// Tables that are looked at.
const TABLES_MAX: usize = 50;
pub(super) struct OverviewFacts {
    pub(super) now: Time,
    pub(super) queues: Vec<QueueStatus>,
    /// Those heard of within the hour.
    pub(super) workers: Vec<WorkerStatus>,
    pub(super) guards: Vec<BreakerInfo>,
    /// Rate limits that workers heed.
    pub(super) rates: Vec<(QueueName, RateStatus)>,
    /// Dead letters by what they died of.
    pub(super) groups: Vec<DeadLetterGroup>,
    /// Leases that somebody should have taken over by now.
    pub(super) overdue: ExpiredLeases,
    pub(super) streams: Vec<StreamStatus>,
    pub(super) alarms: StreamAlarms,
    /// Streams with keys that stand still.
    pub(super) halted: Vec<HaltedKeys>,
    /// Streams with keys that were to be looked at, and nobody did.
    pub(super) unserved: Vec<UnservedKeys>,
    /// What schedules missed, and how sweeps went.
    pub(super) schedules_and_sweeps: SchedulesAndSweeps,
    /// Bulk actions, ended ones too.
    pub(super) bulk: Vec<bulk::BulkReport>,
    /// The newest runs that were alive while another worker could have had their job.
    pub(super) overlaps: Vec<RunOverlap>,
    pub(super) opinion: DoctorReport,
    /// How each queue went in the last minutes, as far as this server saw it.
    pub(super) recent: BTreeMap<QueueName, QueueSeries>,
    /// The same of each stream.
    pub(super) recent_streams: BTreeMap<StreamName, StreamSeries>,
    /// Redrives that have not ended and that nobody runs.
    pub(super) stalled: Vec<RedriveReport>,
    pub(super) failing: Vec<(String, FailingPasses)>,
    /// Those of them that are heard, and take new jobs.
    pub(super) taking: Vec<WorkerStatus>,
}

/// Keys that stand still, and keys that nobody looks at.
#[derive(Clone, Default)]
pub(super) struct StuckKeys {
    halted: Vec<HaltedKeys>,
    unserved: Vec<UnservedKeys>,
}

impl StuckKeys {
    /// What of it is about streams that hold records now.
    pub(super) fn of(mut self, streams: &[StreamStatus]) -> Self {
        let holds = |name: &StreamName| {
            streams
                .iter()
                .any(|status| status.name == *name && status.holding > 0)
        };
        self.halted.retain(|halted| holds(&halted.stream));
        self.unserved.retain(|unserved| holds(&unserved.stream));
        self
    }
}

/// Keys of a stream that stand still.
#[derive(Clone)]
pub(super) struct HaltedKeys {
    pub(super) stream: StreamName,
    pub(super) count: u64,
    /// Whether there are keys that were not looked at.
    pub(super) is_partial: bool,
}

/// Keys of a stream that were to be looked at, and nobody did.
#[derive(Clone)]
pub(super) struct UnservedKeys {
    pub(super) stream: StreamName,
    pub(super) count: u64,
    /// For how long the first of them has been due.
    pub(super) longest: Span,
    /// Whether there are keys that were not looked at.
    pub(super) is_partial: bool,
}

impl OverviewFacts {
    pub(super) async fn gather(view: &PageView, cache: &OverviewCache) -> StoreResult<Self> {
        let (store, backstop, now) = (view.store(), view.app().backstop(), view.now());
        let queues = store.queues(now).await?;
        let streams = store.streams().await?;
        let mut workers = backstop.workers(LISTED).await?;
        workers.retain(|worker| !worker.serves_nothing(now));
        let recent = queues.iter().map(|queue| {
            (
                queue.name.clone(),
                view.app().history().recent_queue(&queue.name, now),
            )
        });
        let recent_streams = streams.iter().map(|stream| {
            (
                stream.name.clone(),
                view.app().history().recent_stream(&stream.name, now),
            )
        });
        let StuckKeys { halted, unserved } = cache.stuck_keys(view, &streams, now).await?;
        Ok(Self {
            taking: taking_jobs(&workers, now),
            workers: workers.into_iter().map(|worker| worker.status).collect(),
            guards: backstop.breakers().list().await?,
            rates: backstop.rates().await?,
            groups: cache.groups(view, &queues, now).await?,
            overdue: backstop.overdue_leases().await?,
            alarms: StreamAlarms::read(backstop, &streams).await?,
            schedules_and_sweeps: cache.schedules_and_sweeps(view, now).await?,
            bulk: BulkActions::new(view.app(), view.who()).reports().await?,
            overlaps: backstop.overlaps(OVERLAPS_MAX).await?,
            halted,
            unserved,
            opinion: view.app().doctor().report(view.app()),
            stalled: read_stalled_redrives(view).await?,
            failing: read_failing_tables(view).await?,
            recent: recent.collect(),
            recent_streams: recent_streams.collect(),
            queues,
            streams,
            now,
        })
    }

    /// Workers that are heard, and the jobs in their hands.
    pub(super) fn live_workers(&self) -> (u64, u64) {
        let live = self
            .workers
            .iter()
            .filter(|worker| is_heard(worker, self.now));
        live.fold((0, 0), |(count, running), worker| {
            (count + 1, running + worker.running)
        })
    }

    /// Whether somebody serves a queue.
    pub(super) fn is_served(&self, queue: &QueueName) -> bool {
        self.taking
            .iter()
            .any(|worker| worker.queues.contains(queue))
    }
}

async fn read_stalled_redrives(view: &PageView) -> StoreResult<Vec<RedriveReport>> {
    let redrives = view.app().backstop().dead().redrives().await?;
    Ok(redrives
        .into_iter()
        .filter(|redrive| redrive.stalled)
        .collect())
}

/// The tables of the configuration whose passes fail.
async fn read_failing_tables(view: &PageView) -> StoreResult<Vec<(String, FailingPasses)>> {
    let (config, backstop) = (view.app().config(), view.app().backstop());
    let tables = config.tables.values().take(TABLES_MAX).map(|entry| async {
        let failing = backstop.adopted_table(&entry.table).failing().await?;
        Ok(failing.map(|failing| (entry.table.name().to_owned(), failing)))
    });
    let failing: StoreResult<Vec<_>> = join_all(tables).await.into_iter().collect();
    Ok(failing?.into_iter().flatten().collect())
}

/// Keys that stand still and keys that nobody looks at, of the first keys that hold something.
pub(super) async fn read_stuck_keys(
    view: &PageView,
    streams: &[StreamStatus],
    now: Time,
) -> StoreResult<StuckKeys> {
    let StuckKeys {
        mut halted,
        mut unserved,
    } = StuckKeys::default();
    for status in streams
        .iter()
        .filter(|status| status.holding > 0)
        .take(STREAMS_MAX)
    {
        let Ok(stream) = view.app().backstop().stream(status.name.as_str()) else {
            continue;
        };
        let keys = stream.keys(None, KeyFilter::Holding, KEYS_MAX).await?;
        let is_partial = status.holding > keys.len() as u64;
        let is_halted = |key: &&KeyStatus| {
            KeyState::from_bytes(&key.state).is_ok_and(|known| known.halted.is_some())
        };
        let count = keys.iter().filter(is_halted).count() as u64;
        if count > 0 {
            halted.push(HaltedKeys {
                stream: status.name.clone(),
                count,
                is_partial,
            });
        }
        // A key in somebody's hands is due when the lease is over.
        let overdue = keys
            .iter()
            .filter_map(|key| key.due.map(|due| now.since(due)));
        let overdue: Vec<Span> = overdue.filter(|since| *since > Span::ZERO).collect();
        if let Some(longest) = overdue.iter().copied().max() {
            let (stream, count) = (status.name.clone(), overdue.len() as u64);
            unserved.push(UnservedKeys {
                stream,
                count,
                longest,
                is_partial,
            });
        }
    }
    Ok(StuckKeys { halted, unserved })
}
