//! A table in memory, and a store on time that is moved by hand.

use backstop::core::amend::{AmendAction, Filter, Selection};
use backstop::core::port::{AmendJobsRequest, ListJobsRequest, ListOrder, OperatorStore, Store};
use backstop::core::unique::UniqueKey;
use backstop::core::{Job, JobState, Payload, Time};
use backstop::sweeps::{FindError, FindResult, Finder, Finding, Sweep, SweepReport};
use backstop::{Backstop, JobId, ManualClock, RandomSource, Run, RunError};
use backstop_memory::MemoryStore;
use backstop_testkit::flaky::Flaky;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) const START: Time = Time::from_millis(1_767_225_600_000);

/// Rows: when each was written, and whether it is processed.
#[derive(Clone, Default)]
pub(crate) struct Table {
    pub(crate) rows: Arc<Mutex<BTreeMap<u64, (Time, bool)>>>,
    pub(crate) searches: Arc<AtomicUsize>,
    /// Processed as soon as it has been found once.
    pub(crate) quick: Arc<Mutex<Option<u64>>>,
}

impl Table {
    pub(crate) fn write(&self, id: u64, at: Time) {
        self.rows.lock().expect("rows").insert(id, (at, false));
    }

    pub(crate) fn process(&self, id: u64) {
        if let Some(row) = self.rows.lock().expect("rows").get_mut(&id) {
            row.1 = true;
        }
    }
}

#[async_trait::async_trait]
impl Finder for Table {
    async fn find(&self, cutoff: Time, max: usize) -> Result<FindResult, FindError> {
        self.searches.fetch_add(1, Ordering::Relaxed);
        let found: Vec<u64> = {
            let rows = self.rows.lock().expect("rows");
            let old = rows
                .iter()
                .filter(|(_, (at, processed))| *at <= cutoff && !processed);
            old.map(|(id, _)| *id).take(max).collect()
        };
        if let Some(id) = self.quick.lock().expect("one").take() {
            self.process(id);
        }
        let finding = |id: u64| Finding {
            row: id.into(),
            key: UniqueKey::new(&format!("row:{id}")).expect("a key"),
            payload: Payload::json(id.to_string()).expect("JSON"),
        };
        Ok(found.into_iter().map(finding).collect())
    }

    fn is_own(&self, key: &UniqueKey) -> bool {
        key.as_str().starts_with("row:")
    }
}

pub(crate) struct World {
    pub(crate) backstop: Backstop,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<Flaky>,
    pub(crate) table: Table,
}

impl World {
    pub(crate) fn in_memory() -> Self {
        Self::on(Arc::new(MemoryStore::new()))
    }

    pub(crate) fn on(store: Arc<dyn Store>) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let store = Arc::new(Flaky::new(store, 1));
        let backstop = Backstop::on(
            Arc::<Flaky>::clone(&store),
            Arc::<ManualClock>::clone(&clock),
            RandomSource::seeded(3),
        );
        Self {
            backstop,
            clock,
            store,
            table: Table::default(),
        }
    }

    /// On a store that is reached under an address.
    pub(crate) async fn at(address: &str) -> Self {
        Self::on(Arc::clone(
            Backstop::open(address).await.expect("opened").store(),
        ))
    }

    /// Does something to all jobs in a state.
    pub(crate) async fn amend(&self, action: AmendAction, only: JobState) {
        let ids = self.jobs(only).await.iter().map(|job| job.id).collect();
        let selection = Selection::Ids(ids);
        let amendment = AmendJobsRequest {
            selection,
            action,
            only: Some(only),
            cursor: None,
            max: 100,
        };
        let amended = self
            .store
            .amend(amendment, self.backstop.now())
            .await
            .expect("amended");
        assert!(amended.applied > 0);
    }

    pub(crate) fn sweep(&self) -> Sweep {
        Sweep::new("lost", "q", self.table.clone())
            .expect("a sweep")
            .kind("process")
            .expect("a kind")
    }

    pub(crate) async fn run(&self) -> SweepReport {
        self.backstop
            .sweeper(&self.sweep())
            .run()
            .await
            .expect("it runs")
    }

    pub(crate) async fn push(&self, id: u64) {
        let draft = self
            .backstop
            .draft("q")
            .kind("process")
            .json(&id)
            .unique_key(&format!("row:{id}"));
        draft.push().await.expect("pushed");
    }

    pub(crate) async fn jobs(&self, state: JobState) -> Vec<Job> {
        jobs(&self.backstop, Some(state)).await
    }

    /// Runs what is ready to a good end.
    pub(crate) async fn work(&self) {
        let done = |_: Run| async { Ok::<(), RunError>(()) };
        self.backstop
            .worker()
            .handle_raw("q", done)
            .drain()
            .await
            .expect("drained");
    }
}

pub(crate) async fn jobs(backstop: &Backstop, state: Option<JobState>) -> Vec<Job> {
    let (mut jobs, mut cursor) = (Vec::new(), None);
    loop {
        let filter = Filter {
            state,
            ..Filter::default()
        };
        let query = ListJobsRequest {
            filter,
            cursor,
            limit: 1_000,
            order: ListOrder::Newest,
        };
        let page = backstop
            .store()
            .jobs(query, backstop.now())
            .await
            .expect("the store lists");
        jobs.extend(page.jobs);
        cursor = page.next;
        if cursor.is_none() {
            return jobs;
        }
    }
}

/// A person requeues a dead letter.
pub(crate) async fn requeue(world: &World, id: JobId) {
    let amendment = AmendJobsRequest {
        selection: Selection::Ids(vec![id]),
        action: AmendAction::Retry,
        only: Some(JobState::Dead),
        cursor: None,
        max: 1,
    };
    let amended = world
        .store
        .amend(amendment, world.backstop.now())
        .await
        .expect("amended");
    assert_eq!(amended.applied, 1);
}
