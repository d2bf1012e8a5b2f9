//! A hundred thousand leases expire at once: how long until all their jobs are ready again, and
//! what it costs those who push meanwhile. Takes minutes, and measures time, so it is asked for by
//! name:
//!
//! ```text
//! cargo test --release -p backstop-testkit --test expiry -- --ignored --nocapture --test-threads 1
//! ```

#![expect(
    clippy::print_stdout,
    reason = "what was measured belongs to what a test says"
)]

use backstop::core::lease::{LeaseNumber, WorkerName};
use backstop::core::plan::QueueQuota;
use backstop::core::port::Claim;
use backstop::{Backstop, JobState, NewJob, QueueName, QueueSettings, Run, RunningWorker, Span};
use backstop_testkit::servers;
use futures_util::{StreamExt, stream};
use std::time::{Duration, Instant};

const LEASES: usize = 100_000;
/// Jobs that are pushed at once.
const BATCH: usize = 500;
/// Claims under way at once.
const CLAIMERS: usize = 16;
const KEEPERS: usize = 2;
/// Between two pushes of a caller.
const PUSH_EVERY: Duration = Duration::from_millis(10);
const BASELINE: Duration = Duration::from_secs(10);
/// How the leases came about: with how many jobs of one claim, and for how long, which is enough to
/// claim all and to take the baseline.
#[derive(Clone, Copy)]
struct Held {
    claim: usize,
    lasting: Span,
}
/// As large workers take them.
const LARGE: Held = Held {
    claim: 500,
    lasting: Span::secs(45),
};
/// Each by itself, as workers over HTTP take them.
const SINGLE: Held = Held {
    claim: 1,
    lasting: Span::secs(240),
};
/// All are ready again by then.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// A campaign of each store, by its name.
macro_rules! campaigns {
    ($($name:ident: $held:expr, $store:expr;)+) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = "takes minutes and measures time"]
        async fn $name() {
            measure(&$store, $held).await;
        }
    )+};
}

campaigns! {
    leases_that_expire_at_once_on_sqlite: LARGE, file().1;
    leases_that_expire_at_once_on_postgres: LARGE, servers::postgres().fresh_url();
    leases_that_expire_at_once_on_redis: LARGE, servers::redis().fresh_url();
    single_leases_that_expire_at_once_on_sqlite: SINGLE, file().1;
    single_leases_that_expire_at_once_on_postgres: SINGLE, servers::postgres().fresh_url();
    single_leases_that_expire_at_once_on_redis: SINGLE, servers::redis().fresh_url();
}

/// A file, and its folder, which is gone when that is dropped.
fn file() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("expiry.db").display());
    (folder, url)
}

async fn measure(store: &str, held: Held) {
    let backstop = Backstop::open(store).await.expect("the store opens");
    let keepers: Vec<RunningWorker> = (0..KEEPERS).map(|n| keeper(&backstop, n)).collect();
    push_all(&backstop).await;
    let until = backstop.now().after(held.lasting);
    claim_all(&backstop, held.claim, until).await;
    let before = push_for(&backstop, BASELINE).await;
    println!(
        "{store}: {LEASES} leases held, pushes take {}",
        described(&before)
    );
    assert!(
        backstop.now() < until,
        "leases began to expire before the baseline was taken"
    );
    let wait = until.since(backstop.now());
    tokio::time::sleep(wait.into()).await;
    let expired = Instant::now();
    let ready = async {
        while count(&backstop, JobState::Ready).await < LEASES as u64 {
            assert!(
                expired.elapsed() < READY_WITHIN * 3,
                "{} are ready",
                count(&backstop, JobState::Ready).await
            );
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        expired.elapsed()
    };
    let (took, meanwhile) = tokio::join!(ready, push_for(&backstop, READY_WITHIN));
    // Only what was pushed while recovery was at work counts.
    let meanwhile: Vec<(Duration, Duration)> =
        meanwhile.into_iter().filter(|(at, _)| *at < took).collect();
    println!(
        "{store}: all ready again after {took:?}; meanwhile pushes take {}",
        described(&meanwhile)
    );
    assert!(took < READY_WITHIN, "{took:?}");
    let (usual, then) = (share(&before, 99), share(&meanwhile, 99));
    assert!(
        then <= usual * 2,
        "99 of 100 pushes took {usual:?} at most before, and {then:?} meanwhile"
    );
    for keeper in keepers {
        keeper.stop();
        keeper.stopped().await;
    }
}

fn keeper(backstop: &Backstop, n: usize) -> RunningWorker {
    let worker = backstop.worker().name(&format!("keeper-{n}"));
    let worker = worker.handle_raw("elsewhere", |_: Run| async { Ok(()) });
    worker
        .queue("elsewhere", QueueSettings::default())
        .start()
        .expect("started")
}

/// With an id as the library makes them for whoever names none.
async fn job(backstop: &Backstop, queue: &str) -> NewJob {
    backstop.draft(queue).build().await.expect("a job")
}

async fn push_all(backstop: &Backstop) {
    for _ in 0..LEASES / BATCH {
        let mut jobs = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            jobs.push(job(backstop, "q").await);
        }
        backstop.push_jobs(jobs).await.expect("pushed");
    }
}

async fn claim_all(backstop: &Backstop, size: usize, until: backstop::Time) {
    let claims = (0..LEASES / size).map(|part| async move {
        let claim = Claim {
            number: LeaseNumber::draw(part as u64),
            worker: WorkerName::new(&format!("doomed-{}", part % 20)),
            until,
            wants: vec![QueueQuota {
                queue: QueueName::new("q").expect("a name"),
                max: size,
            }],
        };
        let granted = backstop
            .store()
            .claim(claim, backstop.now())
            .await
            .expect("claimed")
            .runs;
        assert_eq!(granted.len(), size);
    });
    stream::iter(claims)
        .buffer_unordered(CLAIMERS)
        .collect::<()>()
        .await;
}

/// Pushes for so long; answers when each push began, and how long it took.
async fn push_for(backstop: &Backstop, length: Duration) -> Vec<(Duration, Duration)> {
    let began = Instant::now();
    let caller = || async move {
        let mut took = Vec::new();
        while began.elapsed() < length {
            let at = began.elapsed();
            backstop
                .push_jobs(vec![job(backstop, "beside").await])
                .await
                .expect("pushed");
            took.push((at, began.elapsed().saturating_sub(at)));
            tokio::time::sleep(PUSH_EVERY).await;
        }
        took
    };
    let (one, two, three, four) = tokio::join!(caller(), caller(), caller(), caller());
    [one, two, three, four].concat()
}

fn described(pushes: &[(Duration, Duration)]) -> String {
    let at = |part| share(pushes, part);
    format!(
        "{:?} (p50), {:?} (p99), {:?} at most, of {}",
        at(50),
        at(99),
        at(100),
        pushes.len()
    )
}

/// So many of a hundred pushes took no longer than this.
fn share(pushes: &[(Duration, Duration)], part: usize) -> Duration {
    let mut took: Vec<Duration> = pushes.iter().map(|(_, took)| *took).collect();
    took.sort_unstable();
    took[(took.len() * part / 100).min(took.len() - 1)]
}

async fn count(backstop: &Backstop, state: JobState) -> u64 {
    let queues = backstop
        .store()
        .queues(backstop.now())
        .await
        .expect("listed");
    let of = |queue: &backstop::core::port::QueueStatus| queue.counts.of(state);
    queues
        .iter()
        .filter(|queue| queue.name.as_str() == "q")
        .map(of)
        .sum()
}
