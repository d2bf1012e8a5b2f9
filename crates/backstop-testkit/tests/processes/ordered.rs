//! Four processes serve one stream and bring its records in disorder; they are killed one after
//! another, and each key's records are handled in order, once, and what never comes is missed once.
//!
//! The long form, 1,000 keys of 1,000 positions and 100 kills, takes its time; repeat one with its
//! seed:
//!
//! ```text
//! BACKSTOP_KILLS=full cargo test --release -p backstop-testkit --test processes ordered_on_sqlite -- --nocapture
//! BACKSTOP_SEED=7 BACKSTOP_KILLS=full cargo test …
//! ```

use crate::crew::Crew;
use backstop::Span;
use backstop_testkit::ordered::Trace;
use backstop_testkit::servers;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::time::Instant;

/// How much is tried.
struct Trial {
    keys: usize,
    positions: usize,
    wave: usize,
    kills: usize,
    /// Long enough for a busy machine to keep most.
    lease: Span,
    /// So many calls may come again because a process lost a lease without being killed.
    unkilled: usize,
}

/// Beside all other tests, with a lease of two seconds, some leases are lost: those are counted and
/// told.
const SHORT: Trial = Trial {
    keys: 100,
    positions: 51,
    wave: 25,
    kills: 8,
    lease: Span::secs(2),
    unkilled: usize::MAX,
};
/// On a machine of its own none is.
const FULL: Trial = Trial {
    keys: 1_000,
    positions: 1_001,
    wave: 50,
    kills: 100,
    lease: Span::secs(15),
    unkilled: 0,
};
const PROCESSES: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordered_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = || {
        folder
            .path()
            .join(format!("{:016x}.db", rand::random::<u64>()))
    };
    check(|| format!("sqlite:{}", file().display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordered_on_postgres() {
    check(|| servers::postgres().fresh_url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordered_on_redis() {
    check(|| servers::redis().fresh_url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordered_on_a_cluster() {
    check(|| servers::cluster().fresh_url()).await;
}

/// Chance decides whom a kill meets: a trial in which each came between two calls shows nothing of
/// kills, and there is another.
const TRIALS: usize = 3;

/// Checks one trial after the other, each on a store of its own, until kills have met work.
async fn check(fresh: impl Fn() -> String) {
    let mut trials = 0;
    while !is_met_at_work(&fresh()).await {
        trials += 1;
        assert!(trials < TRIALS, "the kills of {TRIALS} trials met no work");
    }
}

/// One trial, which must be sound; answers whether its kills met work.
async fn is_met_at_work(store: &str) -> bool {
    let is_full = std::env::var("BACKSTOP_KILLS").is_ok_and(|size| size == "full");
    let Trial {
        keys,
        positions,
        wave,
        kills,
        lease,
        unkilled,
    } = if is_full { FULL } else { SHORT };
    let seed = std::env::var("BACKSTOP_SEED")
        .map_or_else(|_| rand::random(), |seed| seed.parse().expect("a seed"));
    println!("BACKSTOP_SEED={seed}");
    let trace = Trace {
        seed,
        keys,
        positions,
        wave,
        shares: PROCESSES,
    };
    let (began, waves) = (Instant::now(), trace.waves());
    let mut crew = Crew::start(store, trace, lease, StdRng::seed_from_u64(seed)).await;
    for wave in 0..waves {
        // None while the first positions come: all others build on those.
        let by_now = if wave == 0 {
            0
        } else {
            kills * wave / (waves - 1)
        };
        crew.wave(wave, by_now - kills * wave.saturating_sub(1) / (waves - 1))
            .await;
        println!(
            "wave {wave} of {waves} after {:?}, {} kills",
            began.elapsed(),
            crew.killed()
        );
    }
    let is_met = crew.assert_sound(unkilled).await;
    println!("in {:?}", began.elapsed());
    assert_eq!(
        crew.killed(),
        kills,
        "the last kills came too late to meet work"
    );
    is_met
}
