//! A store that hands out jobs and does not answer for their ends: what waits is bounded, and beats
//! get through. The engine on virtual time.

use backstop::testing::VirtualClock;
use backstop::{Backstop, QueueSettings, RandomSource, Run, ServicePlacement, Span};
use backstop_core::port::OperatorStore;
use backstop_memory::MemoryStore;
use backstop_testkit::flaky::Flaky;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const QUEUES: usize = 5;
const JOBS: usize = 20_000;
/// Ends that may wait: taken up or not, and those of calls under way.
const WAITING_MAX: usize = 2 * 4_096 + 6 * 1_000;
const OUTAGE: Duration = Duration::from_mins(2);

#[tokio::test(start_paused = true)]
async fn ends_that_nobody_answers_for_are_bounded_in_number_and_in_calls_and_cost_no_lease() {
    let store = Arc::new(MemoryStore::new());
    let flaky = Arc::new(Flaky::new(Arc::<MemoryStore>::clone(&store), 1));
    let backstop = Backstop::on(
        Arc::<Flaky>::clone(&flaky),
        Arc::new(VirtualClock::start()),
        RandomSource::seeded(3),
    );
    flaky.leave_unanswered("settle", Duration::from_secs(4));
    let runs = Arc::new(AtomicUsize::new(0));
    let mut worker = backstop.worker().services(ServicePlacement::CallersRuntime);
    for n in 0..QUEUES {
        let queue = format!("q{n}");
        for job in 0..JOBS / QUEUES {
            backstop
                .draft(&queue)
                .json(&job)
                .push()
                .await
                .expect("pushed");
        }
        let began = Arc::clone(&runs);
        let handler = move |_: Run| {
            began.fetch_add(1, Ordering::Relaxed);
            async { Ok(()) }
        };
        // A run that has ended is not called off, however long its end waits: also where runs have
        // a time limit.
        let timeout = Some(Span::secs(10));
        let settings = QueueSettings {
            concurrency: 50,
            lease: Span::secs(15),
            timeout,
            ..QueueSettings::default()
        };
        worker = worker.handle_raw(&queue, handler).queue(&queue, settings);
    }
    let worker = worker.start().expect("it starts");
    tokio::time::sleep(OUTAGE).await;
    let began = runs.load(Ordering::Relaxed);
    assert!(
        began <= WAITING_MAX + QUEUES * 50,
        "{began} runs, none of them settled"
    );
    assert!(
        flaky.under_way_max("settle") <= 6,
        "{} calls at once",
        flaky.under_way_max("settle")
    );
    assert_eq!(worker.progress().lost, 0, "beats get through all the while");
    flaky.answer("settle");
    tokio::time::sleep(OUTAGE).await;
    let queues = store.queues(backstop.now()).await.expect("read");
    assert_eq!(
        queues.iter().map(|queue| queue.totals.done).sum::<u64>(),
        JOBS as u64
    );
    assert_eq!(
        (runs.load(Ordering::Relaxed), worker.progress().lost),
        (JOBS, 0),
        "each ran once"
    );
    worker.stop();
    worker.stopped().await;
}
