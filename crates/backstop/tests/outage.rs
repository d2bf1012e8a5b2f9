//! A service that is down for ten minutes under a hundred jobs a second: the real engine on virtual
//! time, beside what the simulation of the policy foretold.

use backstop::core::breaker::BreakerSettings;
use backstop::core::simulate::{Scenario, SimulationResult, simulate};
use backstop::core::{JobState, Payload, QueueBounds};
use backstop::testing::VirtualClock;
use backstop::{
    Backstop, Kind, NewJob, QueueName, QueueSettings, RandomSource, RetryPolicy, Run, RunError,
    ServicePlacement, Span,
};
use backstop_core::port::{OperatorStore, Retention};
use backstop_memory::MemoryStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

const RATE: u64 = 100;
/// Parts of a second in which they come in: evenly, as the simulation has it.
const SLICES: u64 = 20;
/// Seconds: from when the service is down, until when, and the end of it all.
type Plan = (u64, u64, u64);
const TEN_MINUTES: Plan = (60, 660, 1_200);
const ONE_MINUTE: Plan = (30, 90, 180);
const SERVICE_TIME: Duration = Duration::from_millis(50);
const CONCURRENCY: usize = 16;

/// What happened.
#[derive(Debug)]
struct Seen {
    jobs: u64,
    done: u64,
    dead: u64,
    calls: u64,
    calls_in_outage: u64,
    backlog_gone_at: Option<Duration>,
}

async fn real_run((from, until, run_for): Plan, breaker: Option<BreakerSettings>) -> Seen {
    let store = Arc::new(MemoryStore::new());
    let backstop = Backstop::on(
        Arc::<MemoryStore>::clone(&store),
        Arc::new(VirtualClock::start()),
        RandomSource::seeded(3),
    );
    let began = Instant::now();
    let (calls, in_outage) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (all, down) = (Arc::clone(&calls), Arc::clone(&in_outage));
    let handler = move |_: Run| {
        let at = began.elapsed();
        let is_down = (Duration::from_secs(from)..Duration::from_secs(until)).contains(&at);
        all.fetch_add(1, Ordering::Relaxed);
        down.fetch_add(u64::from(is_down), Ordering::Relaxed);
        async move {
            tokio::time::sleep(SERVICE_TIME).await;
            if is_down {
                Err(RunError::retry("down"))
            } else {
                Ok(())
            }
        }
    };
    // What is done is gone at once: the store in memory counts by looking at every job.
    let shelf = Retention {
        done_for: Span::ZERO,
        ..Retention::default()
    };
    let gate = backstop_core::gate::GateSettings {
        deaths: u32::MAX,
        ..Default::default()
    };
    let bounds = Some(QueueBounds {
        dead_max: u64::from(u32::MAX),
        ..QueueBounds::default()
    });
    let settings = QueueSettings {
        concurrency: CONCURRENCY,
        breaker,
        gate,
        retention: shelf,
        bounds,
        ..QueueSettings::default()
    };
    let settings = QueueSettings {
        retry: RetryPolicy::default(),
        ..settings
    };
    let worker = backstop.worker().services(ServicePlacement::CallersRuntime);
    let worker = worker
        .handle_raw("q", handler)
        .queue("q", settings)
        .start()
        .expect("it starts");
    let (queue, kind) = (
        QueueName::new("q").expect("a name"),
        Kind::new("call").expect("a kind"),
    );
    let mut gone_at = None;
    for slice in 0..run_for * SLICES {
        let job = |_| {
            NewJob::new(
                backstop.new_id(),
                queue.clone(),
                kind.clone(),
                Payload::default(),
            )
        };
        backstop
            .push_jobs((0..RATE / SLICES).map(job).collect())
            .await
            .expect("pushed");
        tokio::time::sleep_until(
            began + Duration::from_secs(1) * u32::try_from(slice + 1).expect("small") / 20,
        )
        .await;
        if slice % SLICES == 0 && slice / SLICES > until && gone_at.is_none() {
            let live = store.queues(backstop.now()).await.expect("read")[0]
                .counts
                .live();
            gone_at = (live < RATE).then(|| began.elapsed());
        }
    }
    tokio::time::sleep(Duration::from_mins(1)).await;
    let status = store.queues(backstop.now()).await.expect("read").remove(0);
    worker.stop();
    worker.stopped().await;
    Seen {
        jobs: RATE * run_for,
        done: status.totals.done,
        dead: status.counts.of(JobState::Dead),
        calls: calls.load(Ordering::Relaxed),
        calls_in_outage: in_outage.load(Ordering::Relaxed),
        backlog_gone_at: gone_at,
    }
}

fn foretold((from, until, run_for): Plan, breaker: Option<BreakerSettings>) -> SimulationResult {
    let secs = |secs: u64| Span::secs(i64::try_from(secs).expect("small"));
    let scenario = Scenario {
        arrivals_per_second: 100.0,
        run_for: secs(run_for),
        outage: (secs(from), secs(until)),
        service_time: SERVICE_TIME.into(),
        concurrency: u32::try_from(CONCURRENCY).expect("small"),
        policy: RetryPolicy::default(),
        breaker,
        seed: 1,
        bucket: Span::secs(1),
    };
    simulate(&scenario).expect("a scenario")
}

#[expect(clippy::cast_precision_loss, reason = "counts of a test are small")]
fn within_a_tenth(what: &str, foretold: u64, seen: u64) {
    let apart = foretold.abs_diff(seen) as f64;
    // A handful more or less is the noise of small numbers.
    assert!(
        apart <= 0.1 * foretold as f64 + 3.0,
        "{what}: {foretold} foretold, {seen} seen"
    );
}

#[tokio::test(start_paused = true)]
async fn with_a_breaker_an_outage_costs_a_few_probes_and_hardly_a_job() {
    let breaker = Some(BreakerSettings::default());
    let (seen, foretold) = (
        real_run(TEN_MINUTES, breaker).await,
        foretold(TEN_MINUTES, breaker),
    );
    eprintln!(
        "seen {seen:?}\nforetold {:?} calls, {} in the outage, {} dead, backlog gone at {:?}",
        foretold.calls, foretold.calls_during_outage, foretold.dead, foretold.backlog_gone_at
    );
    assert_eq!(
        seen.done + seen.dead,
        seen.jobs,
        "nothing is lost: {seen:?}"
    );
    assert!(
        seen.dead * 100 < seen.jobs,
        "fewer than one in a hundred die: {seen:?}"
    );
    let probes_max = 600 / 30 * 3 + CONCURRENCY as u64 + 5;
    assert!(
        seen.calls_in_outage <= probes_max,
        "at most {probes_max} calls while it is down: {seen:?}"
    );
    within_a_tenth("calls", foretold.calls, seen.calls);
    within_a_tenth(
        "calls in the outage",
        foretold.calls_during_outage,
        seen.calls_in_outage,
    );
    within_a_tenth("dead", foretold.dead, seen.dead);
    let gone = foretold.backlog_gone_at.expect("it goes").as_secs_f64();
    let seen_gone = seen.backlog_gone_at.expect("it goes").as_secs_f64();
    assert!(
        (gone - seen_gone).abs() <= 0.1 * gone,
        "the backlog is gone at {gone} s foretold, {seen_gone} s seen"
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_breaker_the_same_outage_costs_every_job_of_it() {
    let (seen, foretold) = (real_run(ONE_MINUTE, None).await, foretold(ONE_MINUTE, None));
    assert_eq!(
        seen.done + seen.dead,
        seen.jobs,
        "nothing is lost: {seen:?}"
    );
    within_a_tenth("calls", foretold.calls, seen.calls);
    within_a_tenth(
        "calls in the outage",
        foretold.calls_during_outage,
        seen.calls_in_outage,
    );
    within_a_tenth("dead", foretold.dead, seen.dead);
    assert!(
        seen.dead * 10 > seen.jobs * 3,
        "a third of the jobs came in the outage and died: {seen:?}"
    );
}
