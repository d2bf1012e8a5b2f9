//! Callers that push one job each, and what they have to do with each other.

use crate::place::{Place, open};
use backstop_core::amend::AmendAction;
use backstop_core::port::{
    EnqueueOutcome, JobStore, OperatorStore, Store, StoreError, StoreResult,
};
use backstop_core::{JobState, NewJob};
use backstop_redis::RedisStore;
use backstop_testkit::given::{DONE, Draft, START, Scene, at, filter, id, job, listed, names};
use backstop_testkit::servers::redis::{Append, Settings};
use backstop_testkit::servers::{self, Redis};
use futures_util::future::join_all;
use std::sync::Arc;

const CALLERS: usize = 400;

/// One call for each of these jobs, all at once.
async fn push_each(
    store: &RedisStore,
    jobs: impl IntoIterator<Item = Draft>,
) -> Vec<StoreResult<Vec<EnqueueOutcome>>> {
    join_all(
        jobs.into_iter()
            .map(|job| store.enqueue(vec![NewJob::from(job)], START)),
    )
    .await
}

fn many(queue: &str) -> Vec<Draft> {
    (0..CALLERS)
        .map(|n| job(queue, &format!("{queue} {n}")))
        .collect()
}

fn all_inserted(answers: &[StoreResult<Vec<EnqueueOutcome>>]) -> bool {
    answers
        .iter()
        .all(|answer| matches!(answer.as_deref(), Ok([EnqueueOutcome::Inserted])))
}

/// How many scripts a server has run.
fn scripts_run(server: &Redis) -> usize {
    let stats = server.cli(&["info", "commandstats"]);
    let calls = |line: &str| {
        line.strip_prefix("cmdstat_eval")?
            .split_once("calls=")?
            .1
            .split(',')
            .next()?
            .parse::<usize>()
            .ok()
    };
    stats.lines().filter_map(calls).sum()
}

#[tokio::test]
async fn callers_of_a_queue_share_scripts_and_each_gets_its_own_answer() {
    let server = Redis::start(Settings {
        append: Append::Off,
        ..Settings::default()
    });
    let place = Place::on(&server).await;
    place.scene().insert([job("q", "q 7")]).await;
    let before = scripts_run(&server);
    let answers = push_each(&place.store, many("q")).await;
    let scripts = scripts_run(&server) - before;
    assert!(scripts <= CALLERS / 20, "{scripts} scripts");
    let same: Vec<usize> = (0..CALLERS)
        .filter(|n| matches!(answers[*n].as_deref(), Ok([EnqueueOutcome::Same])))
        .collect();
    assert_eq!(same, [7]);
    assert_eq!(
        answers
            .iter()
            .filter(|answer| matches!(answer.as_deref(), Ok([EnqueueOutcome::Inserted])))
            .count(),
        CALLERS - 1
    );
}

#[tokio::test]
async fn one_job_pushed_by_many_at_once_goes_in_once() {
    let place = Place::on(servers::redis()).await;
    let answers = push_each(&place.store, (0..CALLERS).map(|_| job("q", "same"))).await;
    assert_eq!(
        answers
            .iter()
            .filter(|answer| matches!(answer.as_deref(), Ok([EnqueueOutcome::Inserted])))
            .count(),
        1
    );
    let answers = push_each(
        &place.store,
        (0..CALLERS).map(|n| job("q", &n.to_string()).unique("key")),
    )
    .await;
    assert_eq!(
        answers
            .iter()
            .filter(|answer| matches!(answer.as_deref(), Ok([EnqueueOutcome::Inserted])))
            .count(),
        1
    );
    assert_eq!(place.scene().claim("q", CALLERS).await.len(), 2);
}

#[tokio::test]
async fn each_of_a_group_is_judged_by_its_own_time() {
    let place = Place::on(servers::redis()).await;
    let [early, late] = [START, at(60)].map(|now| {
        let due = job("q", &format!("{now:?}")).at(at(30));
        place.store.enqueue(vec![NewJob::from(due)], now)
    });
    let (early, late) = futures_util::future::join(early, late).await;
    assert_eq!(
        (early, late),
        (
            Ok(vec![EnqueueOutcome::Inserted]),
            Ok(vec![EnqueueOutcome::Inserted])
        )
    );
    assert_eq!(
        place.scene().claim("q", 10).await.len(),
        1,
        "the other one is scheduled"
    );
}

#[tokio::test]
async fn what_is_refused_is_refused_to_its_own_caller_and_nothing_of_it_is_written() {
    let place = Place::on(servers::redis()).await;
    let mut scene = place.scene();
    scene.insert([job("q", "holder").unique("spoilt")]).await;
    // A hold without its states: no script can tell whether it still counts.
    let script = "return redis.call('HSET', KEYS[1], 'spoilt', string.sub(redis.call('HGET', KEYS[1], 'spoilt'), 1, 16))";
    place
        .server
        .cli(&["eval", script, "1", &place.key("q", "unique")]);
    let keyed = (0..CALLERS).map(|n| job("q", &n.to_string()).unique(&format!("key {n}")));
    let jobs = keyed.chain([job("q", "refused").unique("spoilt")]);
    let mut answers = push_each(&place.store, jobs).await;
    assert!(matches!(
        answers.pop(),
        Some(Err(StoreError::Corrupt { .. }))
    ));
    assert!(all_inserted(&answers));
    assert_eq!(place.store.job(id("refused"), START).await, Ok(None));
    assert_eq!(scene.claim("q", 1_000).await.len(), CALLERS + 1);
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_the_others_alone() {
    let place = Place::on(servers::redis()).await;
    let staying = push_each(&place.store, many("q"));
    let leaving = push_each(&place.store, many("left"));
    tokio::select! {
        biased;
        _ = leaving => unreachable!("it is not waited for"),
        () = tokio::task::yield_now() => {}
    }
    assert!(all_inserted(&staying.await));
    assert_eq!(place.scene().claim("q", 1_000).await.len(), CALLERS);
    assert!(
        all_inserted(&push_each(&place.store, [job("left", "the next one")]).await),
        "the lane still moves"
    );
}

#[tokio::test]
async fn a_call_reaches_into_several_queues_and_is_answered_in_its_order() {
    for url in [servers::redis().fresh_url(), servers::cluster().fresh_url()] {
        let store = open(&url);
        store.migrate().await.expect("the store migrates");
        let mut scene = Scene::new(Arc::clone(&store) as Arc<dyn Store>);
        scene.insert([job("b", "b 0")]).await;
        let queues = ["a", "b", "c", "d", "e"];
        let mixed: Vec<NewJob> = queues
            .map(|queue| job(queue, &format!("{queue} 0")).into())
            .to_vec();
        let singles = queues.map(|queue| push_each(&store, many(queue).into_iter().skip(1)));
        let (mixed, singles) =
            futures_util::future::join(store.enqueue(mixed, START), join_all(singles)).await;
        let expected = queues.map(|queue| {
            if queue == "b" {
                EnqueueOutcome::Same
            } else {
                EnqueueOutcome::Inserted
            }
        });
        assert_eq!(mixed, Ok(expected.to_vec()));
        assert!(singles.iter().all(|answers| all_inserted(answers)));
        for queue in queues {
            let runs = scene.claim(queue, 1_000).await;
            assert_eq!(runs.len(), CALLERS, "{queue}");
            scene
                .settle_all(runs.iter().map(|run| (&run.lease, DONE)))
                .await;
        }
    }
}

#[tokio::test]
async fn jobs_taken_out_of_a_run_are_passed_over_and_the_rest_stays_in_line() {
    let place = Place::on(servers::redis()).await;
    let mut scene = place.scene();
    let all: Vec<String> = (0..600).map(|n| format!("{n:03}")).collect();
    scene.insert(all.iter().map(|name| job("q", name))).await;
    let out: Vec<&str> = all
        .iter()
        .map(String::as_str)
        .filter(|name| !name.ends_with('7'))
        .collect();
    scene.amend_named(&out[..500], AmendAction::Cancel).await;
    let left: Vec<&str> = all
        .iter()
        .map(String::as_str)
        .filter(|name| !out[..500].contains(name))
        .collect();
    assert_eq!(
        scene.queue("q").await.counts.of(JobState::Ready),
        left.len() as u64
    );
    assert_eq!(
        listed(&scene.list(&filter(Some("q"), Some(JobState::Ready))).await),
        left
    );
    scene.amend_named(&[out[0]], AmendAction::Retry).await;
    let mut claimed = Vec::new();
    for max in [1, 40, 2, 100] {
        let runs = scene.claim("q", max).await;
        claimed.extend(names(&runs));
    }
    let mut expected: Vec<&str> = left.clone();
    expected.push(out[0]);
    assert_eq!(claimed, expected);
    assert_eq!(scene.queue("q").await.counts.of(JobState::Ready), 0);
}
