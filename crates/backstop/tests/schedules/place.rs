//! A store and a clock that several processes share, and the schedules they have.

use backstop::core::Job;
use backstop::core::amend::Filter;
use backstop::core::port::{ListJobsRequest, Store};
use backstop::schedules::{Cron, LedgerEntry, MissedPolicy, MissedSettings, Zone};
use backstop::{
    Backstop, Clock, ManualClock, QueueName, RandomSource, Schedule, ScheduleName, Span, Time,
};
use backstop_memory::MemoryStore;
use std::sync::Arc;

pub(crate) fn time(text: &str) -> Time {
    text.parse().unwrap()
}

pub(crate) fn schedule(name: &str, cron: &str) -> Schedule {
    Schedule {
        timezone: Zone::new("Europe/London").unwrap(),
        missed: MissedSettings {
            policy: MissedPolicy::All,
            ..MissedSettings::default()
        },
        ..Schedule::new(
            ScheduleName::new(name).unwrap(),
            Cron::new(cron).unwrap(),
            QueueName::new("digests").unwrap(),
        )
    }
}

pub(crate) fn daily() -> Schedule {
    let payload = serde_json::json!({ "range": "daily" })
        .as_object()
        .unwrap()
        .clone();
    Schedule {
        payload,
        ..schedule("daily", "30 8 * * *")
    }
}

pub(crate) fn weekly() -> Schedule {
    let payload = serde_json::json!({ "range": "weekly" })
        .as_object()
        .unwrap()
        .clone();
    Schedule {
        payload,
        ..schedule("weekly", "30 8 * * 6")
    }
}

/// A store and a clock that several processes share.
pub(crate) struct Place {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<ManualClock>,
}

impl Place {
    pub(crate) fn in_memory(now: &str) -> Self {
        Self::on(Arc::new(MemoryStore::new()), now)
    }

    pub(crate) fn on(store: Arc<dyn Store>, now: &str) -> Self {
        Self {
            store,
            clock: Arc::new(ManualClock::at(time(now))),
        }
    }

    /// On a store that is reached under an address.
    pub(crate) async fn at(address: &str, now: &str) -> Self {
        Self::on(
            Arc::clone(Backstop::open(address).await.unwrap().store()),
            now,
        )
    }

    /// A process of its own.
    pub(crate) fn process(&self, seed: u64) -> Backstop {
        self.process_on(Arc::clone(&self.store), seed)
    }

    pub(crate) fn process_on(&self, store: Arc<dyn Store>, seed: u64) -> Backstop {
        Backstop::on(
            store,
            Arc::<ManualClock>::clone(&self.clock),
            RandomSource::seeded(seed),
        )
    }

    pub(crate) fn set(&self, now: &str) {
        let now = time(now);
        assert!(now >= self.clock.now());
        self.clock.advance(now.since(self.clock.now()));
    }

    /// Somebody sets the clock forward, and back again after so long; `meanwhile` is what happens.
    pub(crate) async fn ahead(&self, ahead: Span, lasting: Span, meanwhile: impl AsyncFn()) {
        self.clock.advance(ahead);
        meanwhile().await;
        self.clock.advance(lasting);
        meanwhile().await;
        self.clock.set(self.clock.now().before(ahead));
    }

    /// Looks at the schedules with so many processes at once.
    pub(crate) async fn race(&self, processes: u64, schedules: &[Schedule]) {
        let looks = (0..processes).map(|seed| {
            let (process, schedules) = (self.process(seed), schedules.to_vec());
            tokio::spawn(async move { process.schedules().look(&schedules).await.unwrap() })
        });
        for look in looks.collect::<Vec<_>>() {
            look.await.unwrap();
        }
    }

    pub(crate) async fn jobs(&self) -> Vec<Job> {
        let query = ListJobsRequest {
            filter: Filter::default(),
            limit: 1_000,
            ..ListJobsRequest::default()
        };
        self.store.jobs(query, self.clock.now()).await.unwrap().jobs
    }

    /// Range and date of every job, in order.
    pub(crate) async fn digests(&self) -> Vec<String> {
        let told = |job: &Job| {
            let payload: serde_json::Value =
                serde_json::from_slice(job.payload.as_bytes()).unwrap();
            format!(
                "{} {}",
                payload["range"].as_str().unwrap(),
                payload["date"].as_str().unwrap()
            )
        };
        let mut digests: Vec<String> = self.jobs().await.iter().map(told).collect();
        digests.sort();
        digests
    }

    /// The ledger in words, the oldest first.
    pub(crate) async fn ledger(&self, schedule: &Schedule) -> Vec<String> {
        let runs = self
            .process(99)
            .schedules()
            .runs(&schedule.name, 1_000)
            .await
            .unwrap();
        let told = |entry: &LedgerEntry| {
            let why = entry
                .outcome
                .reason()
                .map(|why| format!(" ({why})"))
                .unwrap_or_default();
            format!(
                "{} {}{why}",
                &entry.instant.to_string()[5..16],
                entry.outcome
            )
        };
        runs.iter().rev().map(told).collect()
    }
}
