//! A store of which a part does not answer, as that of a cluster: what a worker has elsewhere goes on. The engine on virtual time.

use backstop::testing::VirtualClock;
use backstop::{Backstop, QueueName, QueueSettings, Random, Run, Running, Services, Span};
use backstop_core::port::{Operator, QueueStatus};
use backstop_memory::MemoryStore;
use backstop_testkit::parted::Parted;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const LEASE: Span = Span::secs(10);
/// Longer than any lease.
const OUTAGE: Duration = Duration::from_mins(1);
const MOMENT: Duration = Duration::from_secs(1);

/// A worker of two queues, of which `gone` can be.
struct Place {
    store: Arc<MemoryStore>,
    parted: Arc<Parted>,
    backstop: Backstop,
    worker: Running,
    /// Runs of `kept` that began.
    kept_runs: Arc<AtomicUsize>,
}

impl Place {
    /// Jobs of `kept` take so long; those of `gone` half a second.
    fn start(kept_takes: Duration) -> Self {
        let store = Arc::new(MemoryStore::new());
        let parted = Arc::new(Parted::new(Arc::<MemoryStore>::clone(&store)));
        let backstop =
            Backstop::on(Arc::<Parted>::clone(&parted), Arc::new(VirtualClock::start()), Random::seeded(3));
        let settings = QueueSettings { concurrency: 2, lease: LEASE, ..QueueSettings::default() };
        let kept_runs = Arc::new(AtomicUsize::new(0));
        let began = Arc::clone(&kept_runs);
        let kept = move |_: Run| {
            began.fetch_add(1, Ordering::Relaxed);
            async move {
                tokio::time::sleep(kept_takes).await;
                Ok(())
            }
        };
        let gone = |_: Run| async {
            tokio::time::sleep(MOMENT / 2).await;
            Ok(())
        };
        let worker = backstop.worker().services(Services::CallersRuntime);
        let worker = worker.handle_raw("kept", kept).queue("kept", settings.clone());
        let worker = worker.handle_raw("gone", gone).queue("gone", settings).start().expect("it starts");
        Self { store, parted, backstop, worker, kept_runs }
    }

    async fn push(&self, queue: &str, count: usize) {
        for n in 0..count {
            self.backstop.draft(queue).json(&n).push().await.expect("pushed");
        }
    }

    fn lose_a_part(&self) {
        self.parted.set_gone([QueueName::new("gone").expect("a name")]);
    }

    async fn queue(&self, name: &str) -> QueueStatus {
        let queues = self.store.queues(self.backstop.now()).await.expect("read");
        queues.into_iter().find(|queue| queue.name.as_str() == name).expect("it is there")
    }

    /// The part comes back: what was in it is done, once.
    async fn come_back(self, count: u64) {
        self.parted.set_gone([]);
        tokio::time::sleep(OUTAGE).await;
        let gone = self.queue("gone").await;
        assert_eq!((gone.totals.done, gone.counts.live()), (count, 0), "it goes on");
        self.worker.stop();
        self.worker.stopped().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_does_not_answer_keeps_no_other_from_being_claimed_and_settled() {
    let place = Place::start(MOMENT / 10);
    place.push("gone", 4).await;
    // Two of them run, and end when nobody can be told.
    tokio::time::sleep(MOMENT / 4).await;
    place.lose_a_part();
    place.push("kept", 20).await;
    tokio::time::sleep(MOMENT * 5).await;
    assert_eq!(place.queue("kept").await.totals.done, 20, "well within a lease");
    // Idle, it has nothing left to ask for but what does not answer.
    place.push("kept", 1).await;
    tokio::time::sleep(MOMENT).await;
    assert_eq!(place.queue("kept").await.totals.done, 21);
    place.come_back(4).await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_does_not_answer_takes_no_lease_of_another_with_it() {
    let place = Place::start(OUTAGE);
    place.push("kept", 1).await;
    place.push("gone", 2).await;
    tokio::time::sleep(MOMENT / 4).await;
    place.lose_a_part();
    tokio::time::sleep(OUTAGE + MOMENT).await;
    assert_eq!(place.queue("kept").await.totals.done, 1, "it was beaten for all the while");
    assert_eq!(place.kept_runs.load(Ordering::Relaxed), 1, "and ran once");
    place.come_back(2).await;
}
