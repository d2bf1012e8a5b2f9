//! Leases: heartbeats, expiry, and takeover after a worker vanished.

use crate::given::{DONE, LEASE, Scene, WORKER, at, history, job, names, queue, retry_at};
use backstop_core::limits::{BEAT_LEASES_MAX, CLAIM_JOBS_MAX, LEASE_REQUEST_MAX, SEIZE_MAX};
use backstop_core::port::{
    BeatRequest, Claim, ExpiredLeases, SeizeRequest, SeizeResult, SeizedRun, SettleOutcome, Store,
    StoreError,
};
use backstop_core::verdict::DoneRetention;
use backstop_core::{JobState, Lease, LeaseNumber, Outcome, Span, Time, WorkerName};
use futures_util::future::join_all;
use std::sync::Arc;

/// The first instant at which a lease taken at the start has expired.
fn expired() -> Time {
    at(0).after(LEASE).after(Span::micros(1))
}

/// A heartbeat reports the lost leases of a worker. A lease that the worker settled is not lost.
pub async fn beat_reports_lost(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["a", "b", "c", "d", "e", "f"].map(|name| job("q", name)))
        .await;
    let runs = scene.claim("q", 6).await;
    let leases: Vec<Lease> = runs.into_iter().map(|run| run.lease).collect();
    assert_eq!(scene.beat(&leases, at(60)).await, []);
    scene
        .settle(&leases[1], retry_at(scene.now.after(Span::secs(5))))
        .await;
    scene.settle(&leases[2], DONE).await;
    scene
        .settle(&leases[3], Outcome::Released { at: scene.now })
        .await;
    scene
        .settle(&leases[4], Outcome::Done(DoneRetention::Gone))
        .await;
    let invented = Lease {
        number: LeaseNumber::draw(u64::MAX),
        ..leases[0].clone()
    };
    let named: Vec<Lease> = leases.iter().chain([&invented]).cloned().collect();
    let mut lost = scene.beat(&named, at(61)).await;
    lost.sort();
    let mut expected = [leases[4].clone(), invented];
    expected.sort();
    assert_eq!(lost, expected, "what is gone remembers no settlement");
    assert_eq!(
        scene.job("a").await.held_by.map(|holder| holder.until),
        Some(at(61))
    );
    // It is handed out and settled a second time.
    let again = scene.claim_one("q").await.lease;
    assert_eq!(
        scene.beat(&leases[3..4], at(61)).await,
        [],
        "until another settlement is remembered"
    );
    scene.settle(&again, DONE).await;
    assert_eq!(scene.beat(&leases[3..4], at(61)).await, [leases[3].clone()]);
}

/// The lease of a settled job does not keep its claim alive.
pub async fn a_settled_lease_keeps_no_claim_alive(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert(["a", "b"].map(|name| job("q", name))).await;
    let runs = scene.claim("q", 2).await;
    scene.settle(&runs[0].lease, DONE).await;
    assert_eq!(scene.beat(&[runs[0].lease.clone()], at(90)).await, []);
    scene.now = expired();
    assert_eq!(seized_names(&scene.seize("rescuer").await), ["b"]);
}

/// A heartbeat without leases still shows that the worker is live.
pub async fn a_beat_of_no_leases_is_a_sign_of_life(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    assert_eq!(scene.beat_as("idle", &[], at(10)).await, []);
    let workers = scene
        .store
        .workers(Span::secs(1), scene.now)
        .await
        .expect("workers are listed");
    let seen: Vec<_> = workers
        .iter()
        .map(|worker| (worker.name.as_str(), worker.running))
        .collect();
    assert_eq!(seen, [("idle", 0)]);
}

/// A worker sends heartbeats for its running jobs; the other jobs of the same claim stay leased,
/// too.
pub async fn a_claim_stays_alive_as_a_whole_while_one_lease_is_beaten(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["a", "b", "c"].map(|name| job("q", name)))
        .await;
    let runs = scene.claim("q", 2).await;
    scene.claim("q", 1).await;
    assert_eq!(scene.beat(&[runs[1].lease.clone()], at(90)).await, []);
    assert_eq!(
        scene.job("a").await.held_by.map(|holder| holder.until),
        Some(at(90))
    );
    scene.now = expired();
    assert_eq!(seized_names(&scene.seize("rescuer").await), ["c"]);
    scene.now = at(90).after(Span::micros(1));
    assert_eq!(seized_names(&scene.seize("rescuer").await).len(), 3);
}

/// A delayed heartbeat does not shorten a lease that a later one extended.
pub async fn a_late_beat_never_shortens_a_claim(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    let lease = scene.claim_one("q").await.lease;
    assert_eq!(scene.beat(std::slice::from_ref(&lease), at(90)).await, []);
    assert_eq!(scene.beat(std::slice::from_ref(&lease), at(45)).await, []);
    assert_eq!(
        scene.job("a").await.held_by.map(|holder| holder.until),
        Some(at(90))
    );
    scene.now = at(60);
    assert_eq!(scene.seize("rescuer").await, []);
}

/// A claim made before the clock was set back does not outlast its worker by the error of the
/// clock.
pub async fn a_beat_after_the_clock_was_set_back_makes_a_claim_shorter(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert(["a", "b"].map(|name| job("q", name))).await;
    scene.now = at(3_600);
    let lease = scene.claim("q", 2).await.remove(0).lease;
    scene.now = at(0);
    assert_eq!(scene.beat(std::slice::from_ref(&lease), at(30)).await, []);
    assert_eq!(
        scene.job("b").await.held_by.map(|holder| holder.until),
        Some(at(30))
    );
    scene.now = at(31);
    assert_eq!(scene.seize("rescuer").await.len(), 2);
}

/// A claim that lasts longer than any request may ask for was made before the clock was set back,
/// and its worker is gone.
pub async fn a_claim_absurdly_far_ahead_has_expired(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert(["a", "b"].map(|name| job("q", name))).await;
    scene.now = at(0).after(LEASE_REQUEST_MAX);
    let mut claim = scene.claim_of(&[("q", 1)]);
    claim.until = scene.now;
    scene.now = at(0);
    scene.claim_as(&claim).await;
    assert_eq!(
        scene.seize("rescuer").await,
        [],
        "as long as can be asked for"
    );
    scene.now = at(0).before(Span::micros(1));
    assert_eq!(seized_names(&scene.seize("rescuer").await), ["a"]);
    scene.now = at(365 * 86_400);
    scene.claim("q", 1).await;
    scene.now = at(60);
    let seized = scene.seize("another").await;
    assert!(
        seized_names(&seized).contains(&"b".to_owned()),
        "{seized:?}"
    );
}

/// A worker that died before the clock was set back does not keep its jobs for that much longer.
/// Its claim lasts, from when a seizer looks, as long as it would have lasted from the last
/// heartbeat. A live worker keeps its claim, and a long lease stays long.
pub async fn a_dead_workers_claim_is_free_one_lease_after_the_clock_was_set_back(
    store: Arc<dyn Store>,
) {
    let mut scene = Scene::new(store);
    let names = ["dies", "dies too", "lives", "long"];
    scene.insert(names.map(|name| job("q", name))).await;
    scene.insert([job("other", "elsewhere")]).await;
    scene.now = at(7_200);
    for (worker, wants, term) in [
        ("dead", [("q", 2), ("other", 1)].as_slice(), LEASE),
        ("living", &[("q", 1)], LEASE),
        ("patient", &[("q", 1)], Span::hours(1)),
    ] {
        scene.beat_as(worker, &[], scene.now.after(LEASE)).await;
        let claim = scene.claim_of(wants);
        let claim = Claim {
            worker: WorkerName::new(worker),
            until: scene.now.after(term),
            ..claim
        };
        scene.claim_as(&claim).await;
    }
    let held =
        async |scene: &Scene, name: &str| scene.job(name).await.held_by.expect("it runs").until;
    scene.now = at(0);
    assert_eq!(scene.beat_as("living", &[], at(0).after(LEASE)).await, []);
    assert_eq!(
        scene.seize("rescuer").await,
        [],
        "each has what it asked for"
    );
    assert_eq!(held(&scene, "dies").await, at(0).after(LEASE));
    assert_eq!(held(&scene, "elsewhere").await, at(0).after(LEASE));
    assert_eq!(held(&scene, "long").await, at(3_600));
    assert_eq!(
        held(&scene, "lives").await,
        at(7_200).after(LEASE),
        "its next beat with a lease says until when"
    );
    scene.now = at(1);
    assert_eq!(scene.seize("rescuer").await, []);
    assert_eq!(
        held(&scene, "dies").await,
        at(0).after(LEASE),
        "once, and not with every look"
    );
    scene.now = expired();
    let mut seized = seized_names(&scene.seize("rescuer").await);
    seized.sort();
    assert_eq!(seized, ["dies", "dies too", "elsewhere"]);
    scene.now = at(3_601);
    assert!(seized_names(&scene.seize("another").await).contains(&"long".to_owned()));
}

/// The seizer learns whether a job was running, and not only waiting, when its worker vanished.
pub async fn a_run_noted_as_begun_is_known_to_the_seizer(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert(["a", "b"].map(|name| job("q", name))).await;
    let runs = scene.claim("q", 2).await;
    assert_eq!(scene.begin(&[runs[0].lease.clone()]).await, []);
    scene.now = expired();
    assert_eq!(begun_names(&scene.seize("second").await), ["a"]);
    scene.now = scene.now.after(LEASE).after(Span::micros(1));
    let by_third = scene.seize("third").await;
    assert_eq!(begun_names(&by_third), ["a"]);
    // A begin of the seizer does not change this: it is not the worker that vanished first.
    let leases: Vec<Lease> = by_third
        .into_iter()
        .map(|seized| seized.run.lease)
        .collect();
    assert_eq!(scene.begin(&leases).await, []);
    scene.now = scene.now.after(LEASE).after(Span::micros(1));
    let seized = scene.seize("fourth").await;
    assert_eq!(
        (seized.len(), begun_names(&seized)),
        (2, vec!["a".to_owned()])
    );
    // After a lost lease is settled, it is history: the next worker reports its own begin.
    for seized in &seized {
        scene
            .settle(&seized.run.lease, Outcome::Released { at: scene.now })
            .await;
    }
    assert_eq!(scene.claim("q", 2).await.len(), 2);
    scene.now = scene.now.after(LEASE).after(Span::micros(1));
    let seized = scene.seize("fifth").await;
    assert_eq!((seized.len(), begun_names(&seized)), (2, Vec::new()));
}

/// A worker that begins late learns which jobs it must not run.
pub async fn begin_tells_lost_leases(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["a", "b", "c"].map(|name| job("q", name)))
        .await;
    let runs = scene.claim("q", 3).await;
    let leases: Vec<Lease> = runs.into_iter().map(|run| run.lease).collect();
    assert_eq!(scene.begin(&[]).await, []);
    assert_eq!(scene.begin(&leases).await, []);
    scene.settle(&leases[1], DONE).await;
    let invented = Lease {
        number: LeaseNumber::draw(u64::MAX),
        ..leases[0].clone()
    };
    let elsewhere = Lease {
        queue: queue("nowhere"),
        ..leases[0].clone()
    };
    let named = [&leases[0], &leases[1], &invented, &elsewhere, &leases[2]].map(Clone::clone);
    let mut lost = scene.begin(&named).await;
    lost.sort();
    let mut expected = [leases[1].clone(), invented, elsewhere];
    expected.sort();
    assert_eq!(lost, expected);
    let too_many = vec![leases[0].clone(); CLAIM_JOBS_MAX + 1];
    let refused = scene.store.begin(too_many, scene.now).await;
    assert!(
        matches!(refused, Err(StoreError::Misuse { .. })),
        "{refused:?}"
    );
}

/// A worker that lost its job cannot report a begin for the next run.
pub async fn begin_of_a_job_under_a_stale_lease_changes_nothing(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    let old = scene.claim_one("q").await.lease;
    scene
        .settle(&old, Outcome::Released { at: scene.now })
        .await;
    assert_eq!(
        scene.begin(std::slice::from_ref(&old)).await,
        std::slice::from_ref(&old)
    );
    scene.claim_one("q").await;
    assert_eq!(
        scene.begin(std::slice::from_ref(&old)).await,
        std::slice::from_ref(&old)
    );
    scene.now = expired();
    let seized = scene.seize("rescuer").await;
    assert_eq!(
        (seized_names(&seized), begun_names(&seized)),
        (vec!["a".to_owned()], Vec::new())
    );
    assert_eq!(
        scene.begin(std::slice::from_ref(&old)).await,
        std::slice::from_ref(&old)
    );
    scene.now = scene.now.after(LEASE).after(Span::micros(1));
    assert_eq!(begun_names(&scene.seize("another").await), [""; 0]);
}

/// A slow worker keeps its job if it sends a heartbeat before anyone seizes the job.
pub async fn a_beat_revives_an_expired_claim_nobody_seized(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    let lease = scene.claim_one("q").await.lease;
    scene.now = at(60);
    assert_eq!(scene.beat(std::slice::from_ref(&lease), at(90)).await, []);
    assert_eq!(scene.seize("rescuer").await, []);
    assert_eq!(scene.settle(&lease, DONE).await, SettleOutcome::Applied);
}

/// An expired lease stays valid until it is seized, so the run may still end.
pub async fn an_expired_lease_nobody_seized_still_settles(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    let lease = scene.claim_one("q").await.lease;
    scene.now = at(3_600);
    assert_eq!(scene.settle(&lease, DONE).await, SettleOutcome::Applied);
    assert_eq!(scene.seize("rescuer").await, []);
}

/// After a seizure the former worker's results are stale, and it is told so.
pub async fn seize_fences_the_old_worker(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    let old = scene.claim_one("q").await;
    scene.now = expired();
    let seized = scene.seize("rescuer").await;
    assert_eq!(seized_names(&seized), ["a"]);
    let SeizedRun { run, vanished, .. } = &seized[0];
    assert_eq!(
        (vanished.worker.as_str(), &vanished.lease),
        (WORKER, &old.lease)
    );
    assert_ne!(run.lease.number, old.lease.number);
    assert_eq!(
        (run.attempts_before, run.lost_leases, &run.payload),
        (0, 0, &old.payload)
    );
    assert_eq!(
        scene.beat(std::slice::from_ref(&old.lease), at(90)).await,
        std::slice::from_ref(&old.lease)
    );
    assert_eq!(scene.settle(&old.lease, DONE).await, SettleOutcome::Stale);
    let held_by = scene.job("a").await.held_by.expect("the seizer holds it");
    assert_eq!(
        (held_by.worker.as_str(), held_by.until),
        ("rescuer", scene.now.after(LEASE))
    );
    let judged = Outcome::Lost {
        at: scene.now,
        history: history("vanished"),
    };
    assert_eq!(
        scene.settle(&run.lease, judged).await,
        SettleOutcome::Applied
    );
    assert_eq!(scene.settle(&old.lease, DONE).await, SettleOutcome::Stale);
    assert_eq!(scene.state("a").await, Some(JobState::Ready));
}

/// Expired jobs of a spared queue stay with their worker, and are seized once it is no longer
/// spared.
pub async fn seize_takes_nothing_of_a_queue_that_is_spared(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("spared", "a"), job("other", "b")]).await;
    let claim = scene.claim_of(&[("spared", 1), ("other", 1)]);
    let runs = scene.claim_as(&claim).await;
    scene.now = expired();
    let seize = SeizeRequest {
        spared: vec![queue("spared")],
        ..scene.seize_of("rescuer")
    };
    let taken = seized_names(&scene.seize_as(&seize).await);
    assert!(!taken.contains(&"a".to_owned()), "{taken:?}");
    let of_spared = runs
        .iter()
        .find(|run| run.lease.queue.as_str() == "spared")
        .expect("it was claimed");
    assert_eq!(
        scene
            .beat(std::slice::from_ref(&of_spared.lease), at(90))
            .await,
        []
    );
    scene.now = at(91);
    let later = seized_names(&scene.seize("another").await);
    assert!(later.contains(&"a".to_owned()), "{later:?}");
}

/// A claim expires after its end, not at its end.
pub async fn seize_takes_only_what_has_expired(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    scene.claim_one("q").await;
    scene.now = at(0).after(LEASE);
    assert_eq!(scene.seize("rescuer").await, []);
    scene.now = expired();
    assert_eq!(scene.seize("rescuer").await.len(), 1);
}

/// The store itself says whether more has expired; a short batch does not mean that nothing is
/// left.
pub async fn seize_tells_whether_more_has_expired(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["a", "b", "c"].map(|name| job("q", name)))
        .await;
    for _ in 0..3 {
        scene.claim("q", 1).await;
    }
    let none = scene.seize_of("rescuer");
    assert_eq!(scene.seize_some(&none).await, SeizeResult::default());
    scene.now = expired();
    for (taken, more) in [(2, true), (1, false), (0, false)] {
        let seize = SeizeRequest {
            max: 2,
            ..scene.seize_of("rescuer")
        };
        let seizure = scene.seize_some(&seize).await;
        assert_eq!((seizure.runs.len(), seizure.more), (taken, more));
    }
}

/// A monitor learns how many expired leases wait for a takeover, and since when.
pub async fn expired_leases_are_counted_until_they_are_taken_over(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["a", "b", "c", "d"].map(|name| job("q", name)))
        .await;
    for until in [at(20), at(10), at(30)] {
        let mut claim = scene.claim_of(&[("q", 1)]);
        claim.until = until;
        scene.claim_as(&claim).await;
    }
    for (before, count, first) in [(10, 0, None), (11, 1, Some(at(10))), (30, 2, Some(at(10)))] {
        let expired = scene.store.expired_leases(at(before)).await;
        assert_eq!(
            expired,
            Ok(ExpiredLeases { count, first }),
            "before {before}"
        );
    }
    scene.now = at(25);
    assert_eq!(scene.seize("rescuer").await.len(), 2);
    assert_eq!(
        scene.store.expired_leases(at(25)).await,
        Ok(ExpiredLeases::default())
    );
}

/// Leases whose jobs have ended do not block the expired leases after them, even if they end at the
/// same time. A store that removes every lease with its last job passes this case whatever its
/// seizure does. Leases that a crash left behind are planted by the tests of the stores that can
/// have them.
pub async fn an_expired_lease_behind_10_000_emptied_ones_is_seized_by_the_next_call(
    store: Arc<dyn Store>,
) {
    const QUEUES: usize = 200;
    const CLAIMS: usize = 50;
    let mut scene = Scene::new(store);
    let queues: Vec<String> = (0..QUEUES).map(|n| format!("q-{n}")).collect();
    for n in 0..CLAIMS * 2 {
        scene
            .insert(
                queues
                    .iter()
                    .map(|queue| job(queue, &format!("{queue}-{n}"))),
            )
            .await;
    }
    for _ in 0..CLAIMS {
        // Two jobs of each queue: a store may keep one lease for both.
        let claim = scene.claim_of(
            &queues
                .iter()
                .map(|queue| (queue.as_str(), 2))
                .collect::<Vec<_>>(),
        );
        let runs = scene.claim_as(&claim).await;
        assert_eq!(runs.len(), QUEUES * 2);
        let mut halves = [Vec::new(), Vec::new()];
        for (at, run) in runs.iter().enumerate() {
            halves[at % 2].push((&run.lease, DONE));
        }
        let answers = join_all(halves.map(|half| scene.settle_all(half))).await;
        assert!(
            answers
                .iter()
                .flatten()
                .all(|answer| *answer == SettleOutcome::Applied),
            "{answers:?}"
        );
    }
    scene.now = at(1);
    scene.insert([job("q", "left")]).await;
    scene.claim_one("q").await;
    scene.now = expired().after(Span::secs(1));
    let seize = SeizeRequest {
        max: 1,
        ..scene.seize_of("rescuer")
    };
    let seizure = scene.seize_some(&seize).await;
    assert_eq!(
        (seized_names(&seizure.runs), seizure.more),
        (vec!["left".to_owned()], false)
    );
}

/// A job that one seizer took goes to no other; a repeated call with its lease number gets it
/// again.
pub async fn seize_twice_yields_once(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert(["a", "b"].map(|name| job("q", name))).await;
    scene.claim("q", 2).await;
    scene.now = expired();
    let seize = scene.seize_of("rescuer");
    let mut first = scene.seize_as(&seize).await;
    assert_eq!(scene.seize("another").await, []);
    let mut again = scene.seize_as(&seize).await;
    first.sort_by_key(|seized| seized.run.lease.job);
    again.sort_by_key(|seized| seized.run.lease.job);
    assert_eq!(again, first);
    assert_eq!(first.len(), 2);
}

/// Many concurrent seizers take every job once.
pub async fn seize_never_hands_one_job_to_two(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let all: Vec<String> = (0..200).map(|n| format!("job-{n:03}")).collect();
    scene.insert(all.iter().map(|name| job("q", name))).await;
    while !scene.claim("q", 10).await.is_empty() {}
    scene.now = expired();
    let rescuers = (0..16).map(|rescuer| {
        let mut scene = scene.apart(rescuer);
        tokio::spawn(async move {
            let mut taken = Vec::new();
            loop {
                let mut seize = scene.seize_of("rescuer");
                seize.max = 7;
                let seized = scene.seize_as(&seize).await;
                if seized.is_empty() {
                    return taken;
                }
                taken.extend(seized_names(&seized));
            }
        })
    });
    let mut taken: Vec<String> = join_all(rescuers)
        .await
        .into_iter()
        .flat_map(|task| task.expect("no rescuer panics"))
        .collect();
    taken.sort_unstable();
    assert_eq!(taken, all);
}

/// A seizer does not run the job: if it dies too, the first worker is still to blame.
pub async fn a_seizer_that_dies_keeps_the_first_vanished_workers_name(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    let first = scene.claim_one("q").await.lease;
    scene.now = expired();
    let by_second = scene.seize("second").await;
    scene.now = scene.now.after(LEASE).after(Span::micros(1));
    let by_third = scene.seize("third").await;
    assert_eq!(seized_names(&by_third), ["a"]);
    assert_eq!(
        (
            by_third[0].vanished.worker.as_str(),
            &by_third[0].vanished.lease
        ),
        (WORKER, &first)
    );
    assert_eq!(
        scene.settle(&by_second[0].run.lease, DONE).await,
        SettleOutcome::Stale
    );
    assert_eq!(
        scene.settle(&by_third[0].run.lease, DONE).await,
        SettleOutcome::Applied
    );
}

/// After a lost lease is settled, it is history: the next loss names the next worker.
pub async fn the_next_loss_names_the_next_worker(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    scene.claim_one("q").await;
    scene.now = expired();
    let seized = scene.seize("rescuer").await;
    let judged = Outcome::Lost {
        at: scene.now,
        history: history("vanished"),
    };
    scene.settle(&seized[0].run.lease, judged).await;
    let mut claim = scene.claim_of(&[("q", 1)]);
    claim.worker = WorkerName::new("unlucky");
    let second = scene.claim_as(&claim).await;
    assert_eq!((second[0].lost_leases, second[0].attempt()), (1, 1));
    scene.now = scene.now.after(LEASE).after(Span::micros(1));
    let again = scene.seize("rescuer").await;
    assert_eq!(again[0].vanished.worker.as_str(), "unlucky");
    assert_eq!(again[0].vanished.lease, second[0].lease);
}

/// A seizure takes at most `max` jobs, those that expired first.
pub async fn seize_takes_at_most_max_oldest_claim_first(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["a", "b", "c", "d"].map(|name| job("q", name)))
        .await;
    for until in [at(20), at(10), at(30), at(15)] {
        let mut claim = scene.claim_of(&[("q", 1)]);
        claim.until = until;
        scene.claim_as(&claim).await;
    }
    scene.now = at(60);
    let mut seize = scene.seize_of("rescuer");
    seize.max = 2;
    let mut taken = seized_names(&scene.seize_as(&seize).await);
    taken.sort_unstable();
    assert_eq!(taken, ["b", "d"]);
    let mut taken = seized_names(&scene.seize("rescuer").await);
    taken.sort_unstable();
    assert_eq!(taken, ["a", "c"]);
}

/// Claims of one job each are seized call by call, oldest first, until none is left.
pub async fn many_small_claims_are_seized_in_the_order_they_expired(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let all: Vec<String> = (0..60).map(|n| format!("job-{n:03}")).collect();
    scene.insert(all.iter().map(|name| job("q", name))).await;
    for n in 0..60 {
        let mut claim = scene.claim_of(&[("q", 1)]);
        claim.until = at(40).before(Span::micros(n));
        scene.claim_as(&claim).await;
    }
    scene.now = at(60);
    let mut taken = Vec::new();
    for calls in 1.. {
        let mut seize = scene.seize_of("rescuer");
        seize.max = 7;
        let mut seized = seized_names(&scene.seize_as(&seize).await);
        seized.sort_unstable_by(|one, other| other.cmp(one));
        if seized.is_empty() {
            break;
        }
        taken.extend(seized);
        assert!(calls <= 60, "{taken:?}");
    }
    assert!(taken.iter().eq(all.iter().rev()), "{taken:?}");
}

/// However many leases have expired, one call seizes no more than its limit.
pub async fn seize_stays_bounded(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert((0..=SEIZE_MAX).map(|n| job("q", &n.to_string())))
        .await;
    scene.claim("q", SEIZE_MAX + 1).await;
    scene.now = expired();
    let mut seize = scene.seize_of("rescuer");
    seize.max = usize::MAX;
    assert_eq!(scene.seize_as(&seize).await.len(), SEIZE_MAX);
    assert_eq!(scene.seize("rescuer").await.len(), 1);
}

/// A claim may be seized in part; its worker can still renew and settle the rest.
pub async fn what_is_left_of_a_claim_seized_in_part_stays_with_its_worker(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert(["a", "b"].map(|name| job("q", name))).await;
    let runs = scene.claim("q", 2).await;
    scene.now = expired();
    let mut seize = scene.seize_of("rescuer");
    seize.max = 1;
    let taken = names(
        scene
            .seize_as(&seize)
            .await
            .iter()
            .map(|seized| &seized.run),
    );
    let (lost, kept): (Vec<_>, Vec<_>) = runs
        .iter()
        .partition(|run| taken.contains(&names([*run]).remove(0)));
    assert_eq!((lost.len(), kept.len()), (1, 1));
    let leases = [lost[0].lease.clone(), kept[0].lease.clone()];
    assert_eq!(scene.beat(&leases, at(90)).await, leases[..1]);
    assert_eq!(scene.seize("another").await, []);
    assert_eq!(
        scene.settle(&kept[0].lease, DONE).await,
        SettleOutcome::Applied
    );
    assert_eq!(
        scene.settle(&lost[0].lease, DONE).await,
        SettleOutcome::Stale
    );
}

/// Heartbeats and seizures above the limits are misuse.
pub async fn oversized_beats_and_leases_of_nothing_are_misuse(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    let lease = scene.claim_one("q").await.lease;
    let beat = |leases, until| BeatRequest {
        worker: WorkerName::new(WORKER),
        queues: Vec::new(),
        leases,
        until,
    };
    let too_many = beat(vec![lease.clone(); BEAT_LEASES_MAX + 1], at(60));
    let too_short = beat(vec![lease], scene.now);
    for beat in [too_many, too_short] {
        let refused = scene.store.beat(beat, scene.now).await;
        assert!(
            matches!(refused, Err(StoreError::Misuse { .. })),
            "{refused:?}"
        );
    }
    scene.now = expired();
    let mut seize = scene.seize_of("rescuer");
    seize.until = scene.now;
    let refused = scene.store.seize(seize, scene.now).await;
    assert!(
        matches!(refused, Err(StoreError::Misuse { .. })),
        "{refused:?}"
    );
    assert_eq!(scene.seize("rescuer").await.len(), 1);
}

fn begun_names(seized: &[SeizedRun]) -> Vec<String> {
    names(
        seized
            .iter()
            .filter(|seized| seized.begun)
            .map(|seized| &seized.run),
    )
}

fn seized_names(seized: &[SeizedRun]) -> Vec<String> {
    names(seized.iter().map(|seized| &seized.run))
}
