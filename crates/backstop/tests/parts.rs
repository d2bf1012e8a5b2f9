//! A store of which a part does not answer, as that of a cluster: what a worker has elsewhere goes
//! on. The engine on virtual time.

use backstop::testing::VirtualClock;
use backstop::{
    Backstop, QueueName, QueueSettings, RandomSource, Run, RunningWorker, ServicePlacement, Span,
    WorkerProgress,
};
use backstop_core::port::{OperatorStore, QueueStatus};
use backstop_memory::MemoryStore;
use backstop_testkit::parted::{Gone, Parted};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const LEASE: Span = Span::secs(10);
/// Longer than any lease.
const OUTAGE: Duration = Duration::from_mins(1);
const MOMENT: Duration = Duration::from_secs(1);

/// How a test has it.
#[derive(Clone, Copy)]
struct Given {
    kept_takes: Duration,
    gone_takes: Duration,
    /// Longer leases of `gone` make its claims claims of their own.
    gone_lease: Span,
    workers: usize,
}

impl Default for Given {
    fn default() -> Self {
        Self {
            kept_takes: MOMENT / 10,
            gone_takes: MOMENT / 2,
            gone_lease: LEASE,
            workers: 1,
        }
    }
}

/// Workers of two queues, of which `gone` can be.
struct Place {
    store: Arc<MemoryStore>,
    parted: Arc<Parted>,
    /// Around all that can be gone.
    backstop: Backstop,
    workers: Vec<RunningWorker>,
    /// Runs that began.
    kept_runs: Arc<AtomicUsize>,
    gone_runs: Arc<AtomicUsize>,
}

impl Place {
    fn start(given: Given) -> Self {
        let store = Arc::new(MemoryStore::new());
        let parted = Arc::new(Parted::new(Arc::<MemoryStore>::clone(&store)));
        let clock = Arc::new(VirtualClock::start());
        let whole = Backstop::on(
            Arc::<MemoryStore>::clone(&store),
            Arc::clone(&clock) as _,
            RandomSource::seeded(4),
        );
        let backstop = Backstop::on(
            Arc::<Parted>::clone(&parted),
            clock,
            RandomSource::seeded(3),
        );
        let (kept_runs, gone_runs) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let settings = |lease| {
            let mut settings = QueueSettings {
                concurrency: 2,
                lease,
                ..QueueSettings::default()
            };
            // A job that is done is gone at once: nobody can tell a repeated end from a stale one.
            settings.retention.done_for = Span::ZERO;
            settings
        };
        let takes = |runs: &Arc<AtomicUsize>, time: Duration| {
            let runs = Arc::clone(runs);
            move |_: Run| {
                runs.fetch_add(1, Ordering::Relaxed);
                async move {
                    tokio::time::sleep(time).await;
                    Ok(())
                }
            }
        };
        let worker = |at: usize| {
            let worker = backstop
                .worker()
                .services(ServicePlacement::CallersRuntime)
                .name(&format!("worker {at}"));
            let worker = worker.handle_raw("kept", takes(&kept_runs, given.kept_takes));
            let worker = worker.handle_raw("gone", takes(&gone_runs, given.gone_takes));
            let worker = worker
                .queue("kept", settings(LEASE))
                .queue("gone", settings(given.gone_lease));
            worker.start().expect("it starts")
        };
        let workers = (0..given.workers).map(worker).collect();
        Self {
            store,
            parted,
            backstop: whole,
            workers,
            kept_runs,
            gone_runs,
        }
    }

    async fn push(&self, queue: &str, count: usize) {
        for n in 0..count {
            self.backstop
                .draft(queue)
                .json(&n)
                .push()
                .await
                .expect("pushed");
        }
    }

    fn lose_a_part(&self, how: Gone) {
        self.parted
            .set_gone([QueueName::new("gone").expect("a name")], how);
    }

    async fn queue(&self, name: &str) -> QueueStatus {
        let queues = self.store.queues(self.backstop.now()).await.expect("read");
        queues
            .into_iter()
            .find(|queue| queue.name.as_str() == name)
            .expect("it is there")
    }

    async fn done(&self, name: &str) -> u64 {
        self.queue(name).await.totals.done
    }

    fn runs(&self) -> (usize, usize) {
        (
            self.kept_runs.load(Ordering::Relaxed),
            self.gone_runs.load(Ordering::Relaxed),
        )
    }

    /// The part comes back: what was in it is done.
    async fn come_back(self, count: u64) -> Vec<WorkerProgress> {
        self.parted.set_whole();
        tokio::time::sleep(OUTAGE).await;
        let gone = self.queue("gone").await;
        assert_eq!(
            (gone.totals.done, gone.counts.live()),
            (count, 0),
            "it goes on"
        );
        let mut progress = Vec::new();
        for worker in self.workers {
            worker.stop();
            progress.push(worker.progress());
            worker.stopped().await;
        }
        progress
    }
}

/// Nothing that this worker did was lost.
fn assert_none_lost(progress: &[WorkerProgress]) {
    assert_eq!(
        progress.iter().map(|progress| progress.lost).sum::<u64>(),
        0,
        "{progress:?}"
    );
}

async fn goes_on_elsewhere(how: Gone) {
    let place = Place::start(Given::default());
    place.push("gone", 4).await;
    // Two of them run, and end when nobody can be told.
    tokio::time::sleep(MOMENT / 4).await;
    place.lose_a_part(how);
    place.push("kept", 20).await;
    tokio::time::sleep(MOMENT * 9).await;
    assert_eq!(place.done("kept").await, 20, "well within a lease");
    // Idle, it has nothing left to ask for but what does not answer.
    place.push("kept", 1).await;
    tokio::time::sleep(MOMENT).await;
    assert_eq!(place.done("kept").await, 21);
    assert_none_lost(&place.come_back(4).await);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_does_not_answer_keeps_no_other_from_being_claimed_and_settled() {
    goes_on_elsewhere(Gone::Refusing).await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_says_nothing_keeps_no_other_from_being_claimed_and_settled() {
    goes_on_elsewhere(Gone::Silent).await;
}

async fn keeps_leases_elsewhere(how: Gone) {
    let place = Place::start(Given {
        kept_takes: OUTAGE,
        ..Given::default()
    });
    place.push("kept", 1).await;
    place.push("gone", 2).await;
    tokio::time::sleep(MOMENT / 4).await;
    place.lose_a_part(how);
    tokio::time::sleep(OUTAGE + MOMENT).await;
    assert_eq!(
        place.done("kept").await,
        1,
        "it was beaten for all the while"
    );
    assert_eq!(place.runs(), (1, 2), "and ran once");
    assert_none_lost(&place.come_back(2).await);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_does_not_answer_takes_no_lease_of_another_with_it() {
    keeps_leases_elsewhere(Gone::Refusing).await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_says_nothing_takes_no_lease_of_another_with_it() {
    keeps_leases_elsewhere(Gone::Silent).await;
}

#[tokio::test(start_paused = true)]
async fn what_ended_while_its_queue_was_away_counts_when_it_is_back() {
    let given = Given {
        gone_lease: LEASE.plus(Span::secs(1)),
        workers: 3,
        ..Given::default()
    };
    for how in [Gone::Refusing, Gone::Silent] {
        let place = Place::start(given);
        place.push("gone", 2).await;
        tokio::time::sleep(MOMENT / 4).await;
        assert_eq!(place.runs(), (0, 2));
        place.lose_a_part(how);
        tokio::time::sleep(OUTAGE).await;
        let runs = Arc::clone(&place.gone_runs);
        assert_none_lost(&place.come_back(2).await);
        assert_eq!(runs.load(Ordering::Relaxed), 2, "each ran once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_queue_is_away_for_a_lease_is_called_off_whatever_its_neighbours_hear() {
    let place = Place::start(Given {
        kept_takes: OUTAGE * 3,
        gone_takes: OUTAGE * 2,
        ..Given::default()
    });
    place.push("kept", 1).await;
    place.push("gone", 1).await;
    tokio::time::sleep(MOMENT / 4).await;
    place.lose_a_part(Gone::Refusing);
    tokio::time::sleep(Duration::from(LEASE) + MOMENT).await;
    assert_eq!(
        place.workers[0].progress().lost,
        1,
        "somebody else may have it"
    );
    place.parted.set_whole();
    tokio::time::sleep(MOMENT * 5).await;
    assert_eq!(
        place.runs(),
        (1, 2),
        "nobody had it: given back, it runs again at once"
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_queue_granted_before_it_was_away_is_worked_when_it_is_back() {
    // One that is away for a moment, and one for longer than a lease: a neighbour keeps the claim
    // alive all the while.
    for away in [MOMENT, OUTAGE] {
        let place = Place::start(Given {
            kept_takes: OUTAGE * 4,
            ..Given::default()
        });
        place.lose_a_part(Gone::Granting);
        place.push("gone", 2).await;
        place.push("kept", 1).await;
        tokio::time::sleep(away).await;
        assert_eq!(place.runs(), (1, 0));
        place.parted.set_whole();
        tokio::time::sleep(LEASE.into()).await;
        assert_eq!(place.runs(), (1, 2), "after {away:?}");
        assert_eq!(place.done("gone").await, 2);
    }
}
