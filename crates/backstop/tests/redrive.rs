//! Canary redrives on a store in memory and on virtual time, with a worker that runs what they
//! requeue.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is how to say no")]

use backstop::core::QueueBounds;
use backstop::core::port::{CellSwap, ListCellsRequest};
use backstop::dead::redrive::{RedriveError, RedrivePhase, RedrivePlan, RedriveReport};
use backstop::dead::{
    DeadFilter, DeadLetterLookup, DeadLetters, DeadSelection, ImportedDeadLetter,
};
use backstop::testing::VirtualClock;
use backstop::{
    Backstop, JobId, JobState, QueueName, QueueSettings, RandomSource, RetryPolicy, Run, RunError,
    RunningWorker, ServicePlacement, Time,
};
use backstop_memory::MemoryStore;
use backstop_testkit::counted::Counted;
use backstop_testkit::flaky::{Flaky, Odds};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Scene {
    store: Arc<MemoryStore>,
    clock: Arc<VirtualClock>,
    backstop: Backstop,
    /// When which job ran.
    runs: Arc<Mutex<Vec<(JobId, Time)>>>,
    count: usize,
}

/// Of all letters, five first.
fn all(rate: &str) -> RedrivePlan {
    RedrivePlan {
        canary: 5,
        max_failures: 0,
        then_rate: rate.parse().unwrap(),
        selection: DeadSelection::All,
    }
}

fn id(n: usize) -> JobId {
    JobId::named(&n.to_string())
}

/// So many dead letters in queue `q`, the oldest first. Their payloads say whether they will
/// succeed.
async fn scene(letters: &[bool]) -> Scene {
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(VirtualClock::start());
    let backstop = Backstop::on(
        Arc::<MemoryStore>::clone(&store),
        Arc::<VirtualClock>::clone(&clock),
        RandomSource::seeded(7),
    );
    for (n, good) in letters.iter().enumerate() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let line = format!(
            r#"{{"id":"{n}","queue":"q","error":"boom","original_job":{{"payload":{good}}}}}"#
        );
        let letter = ImportedDeadLetter::read(line.as_bytes(), backstop.now()).unwrap();
        backstop.dead().import(vec![letter]).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
    Scene {
        store,
        clock,
        backstop,
        runs: Arc::default(),
        count: letters.len(),
    }
}

impl Scene {
    fn dead(&self) -> DeadLetters {
        self.backstop.dead().by("ada")
    }

    fn worker(&self) -> RunningWorker {
        let (runs, backstop) = (Arc::clone(&self.runs), self.backstop.clone());
        let handler = move |run: Run| {
            runs.lock().unwrap().push((run.id(), backstop.now()));
            async move {
                if run.payload() == b"true" {
                    Ok(())
                } else {
                    Err(RunError::retry("boom again"))
                }
            }
        };
        let once = RetryPolicy::from_json(br#"{"kind":"constant","every":"1s","max_attempts":1}"#)
            .unwrap();
        let settings = QueueSettings {
            retry: once,
            ..QueueSettings::default()
        };
        let worker = self
            .backstop
            .worker()
            .name("w")
            .services(ServicePlacement::CallersRuntime);
        worker
            .handle_raw("q", handler)
            .queue("q", settings)
            .start()
            .unwrap()
    }

    async fn start(&self, max_failures: u32, rate: &str) -> String {
        self.dead()
            .redrive(RedrivePlan {
                max_failures,
                ..all(rate)
            })
            .await
            .unwrap()
    }

    async fn run(&self, id: &str) -> Result<RedriveReport, RedriveError> {
        self.dead()
            .run_redrive(id, |_| ControlFlow::Continue(()))
            .await
    }

    /// How often each letter was requeued.
    async fn requeues(&self) -> Vec<u32> {
        let mut requeues = Vec::new();
        for n in 0..self.count {
            requeues.push(self.backstop.job(id(n)).await.unwrap().unwrap().requeues);
        }
        requeues
    }

    /// Bounds how many jobs the queue `q` holds.
    async fn bound(&self, max_size: Option<u64>) {
        let (queue, bounds) = (
            QueueName::new("q").unwrap(),
            QueueBounds {
                max_size,
                ..QueueBounds::default()
            },
        );
        let store = self.backstop.store();
        store
            .set_bounds(queue, bounds, self.backstop.now())
            .await
            .unwrap();
    }

    async fn dead_now(&self) -> u64 {
        self.dead().stats().await.unwrap().total
    }
}

#[tokio::test(start_paused = true)]
async fn a_redrive_into_a_full_queue_waits_for_room_and_leaves_no_letter_behind() {
    for selection in [
        DeadSelection::All,
        DeadSelection::Ids((0..20).map(id).collect()),
    ] {
        let scene = scene(&[true; 20]).await;
        scene.bound(Some(2)).await;
        let plan = RedrivePlan {
            selection,
            ..all("100/s")
        };
        let redrive = scene.dead().redrive(plan).await.unwrap();
        let slow = |_: Run| async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            Ok(())
        };
        let worker = scene.backstop.worker().name("slow").handle_raw("q", slow);
        let worker = worker
            .services(ServicePlacement::CallersRuntime)
            .start()
            .unwrap();
        let report = scene.run(&redrive).await.unwrap();
        assert_eq!(
            (report.phase, report.requeued, report.refused),
            (RedrivePhase::Done, 20, 0),
            "{report:?}"
        );
        worker.stop();
        worker.stopped().await;
        assert_eq!(scene.dead_now().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn letters_of_other_queues_go_past_those_of_a_full_one() {
    for selection in [
        DeadSelection::All,
        DeadSelection::Ids((0..23).map(id).collect()),
    ] {
        let scene = scene(&[true; 20]).await;
        for n in 20..23 {
            let line = format!(
                r#"{{"id":"{n}","queue":"other","error":"boom","original_job":{{"payload":true}}}}"#
            );
            let letter = ImportedDeadLetter::read(line.as_bytes(), scene.backstop.now()).unwrap();
            scene.dead().import(vec![letter]).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        scene.bound(Some(1)).await;
        let good = scene.backstop.draft("q").payload("true");
        good.push().await.unwrap();
        let plan = RedrivePlan {
            selection,
            ..all("100/s")
        };
        let redrive = scene.dead().redrive(plan).await.unwrap();
        let other = scene.backstop.worker().name("other");
        let other = other.handle_raw("other", |_: Run| async { Ok(()) });
        let other = other
            .services(ServicePlacement::CallersRuntime)
            .start()
            .unwrap();
        let make_room = async {
            while scene.dead_now().await > 20 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let by_hand = DeadSelection::Ids(vec![id(7)]);
            scene.dead().delete(&by_hand).await.unwrap();
            scene.bound(None).await;
            scene.worker()
        };
        let both = async { tokio::join!(scene.run(&redrive), make_room) };
        let within = Duration::from_mins(10);
        let (report, worker) = tokio::time::timeout(within, both).await.unwrap();
        let report = report.unwrap();
        assert_eq!(
            (report.phase, report.requeued, report.refused),
            (RedrivePhase::Done, 22, 1),
            "{report:?}"
        );
        for worker in [other, worker] {
            worker.stop();
            worker.stopped().await;
        }
        assert_eq!(scene.dead_now().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_redrive_says_which_queues_nobody_serves() {
    let scene = scene(&[true; 3]).await;
    let id = scene.start(0, "100/s").await;
    let is_waiting = |report: &RedriveReport| {
        if report.open > 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let report = scene.dead().run_redrive(&id, is_waiting).await.unwrap();
    let unserved = async |report: &RedriveReport| scene.dead().unserved(report).await.unwrap();
    assert_eq!(unserved(&report).await, [QueueName::new("q").unwrap()]);
    let worker = scene.worker();
    let report = scene.run(&id).await.unwrap();
    assert_eq!(unserved(&report).await, [], "{report:?}");
    worker.stop();
    worker.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_good_canary_lets_all_others_follow() {
    let scene = scene(&[true; 100]).await;
    let worker = scene.worker();
    let id = scene.start(0, "100/s").await;
    let report = scene.run(&id).await.unwrap();
    assert_eq!(
        (report.phase, report.requeued, report.died_again),
        (RedrivePhase::Done, 100, 0),
        "{report:?}"
    );
    assert_eq!(report.done + report.open, 100);
    assert_eq!(
        (scene.requeues().await, scene.dead_now().await),
        (vec![1; 100], 0)
    );
    assert_eq!(scene.dead().redrives().await.unwrap(), [report]);
    let again = scene.run(&id).await;
    assert!(
        matches!(
            again,
            Err(RedriveError::Ended {
                phase: RedrivePhase::Done,
                ..
            })
        ),
        "{again:?}"
    );
    let audit = scene.dead().audit(1).await.unwrap();
    assert_eq!(
        (audit[0].what.clone(), audit[0].count),
        (format!("redrive {id}"), Some(100))
    );
    worker.stop();
}

#[tokio::test(start_paused = true)]
async fn a_bad_canary_stops_it_and_the_others_stay_dead() {
    let scene = scene(&[false; 20]).await;
    let worker = scene.worker();
    let id = scene.start(1, "100/s").await;
    let report = scene.run(&id).await.unwrap();
    assert_eq!(
        (report.phase, report.requeued),
        (RedrivePhase::Failed, 5),
        "{report:?}"
    );
    assert!(report.died_again >= 2 && report.why.unwrap().contains("at most 1 may"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(scene.dead_now().await, 20);
    let requeues = scene.requeues().await;
    assert_eq!(
        (&requeues[..5], &requeues[5..]),
        (&[1; 5][..], &[0; 15][..]),
        "the oldest went first"
    );
    let DeadLetterLookup::Letter(letter) = scene.dead().show(self::id(0)).await.unwrap() else {
        panic!("not dead")
    };
    let errors: Vec<&str> = letter
        .original_job
        .errors
        .iter()
        .map(|failure| failure.error.message.as_str())
        .collect();
    assert_eq!(
        (letter.requeues, errors),
        (1, vec!["boom", "boom again"]),
        "the history stays"
    );
    worker.stop();
}

#[tokio::test(start_paused = true)]
async fn deaths_behind_a_good_canary_stop_it_too() {
    let letters: Vec<bool> = (0..400).map(|n| n < 20).collect();
    let scene = scene(&letters).await;
    let worker = scene.worker();
    let id = scene.start(1, "20/s").await;
    let report = scene.run(&id).await.unwrap();
    assert_eq!(report.phase, RedrivePhase::Failed, "{report:?}");
    assert!(report.requeued < 60 && report.why.unwrap().contains("a larger share than 1 of 5"));
    assert!(
        scene
            .requeues()
            .await
            .into_iter()
            .all(|requeues| requeues <= 1),
        "nothing goes round and round"
    );
    worker.stop();
}

#[tokio::test(start_paused = true)]
async fn the_rate_is_kept() {
    let scene = scene(&[true; 105]).await;
    let worker = scene.worker();
    let id = scene.start(0, "20/s").await;
    scene.run(&id).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let runs: Vec<Time> = scene
        .runs
        .lock()
        .unwrap()
        .iter()
        .skip(5)
        .map(|(_, at)| *at)
        .collect();
    assert_eq!(runs.len(), 100);
    let took = runs[99].since(runs[0]).as_secs_f64();
    assert!((3.5..7.0).contains(&took), "100 at 20 a second took {took}");
    for window in runs.windows(45) {
        assert!(
            window[44].since(window[0]).as_secs_f64() >= 1.0,
            "45 within a second"
        );
    }
    worker.stop();
}

#[tokio::test(start_paused = true)]
async fn killed_in_the_middle_it_goes_on_and_requeues_each_once() {
    for after_ms in [0, 1, 300, 700, 1_200, 2_000, 2_500] {
        let scene = scene(&[true; 60]).await;
        let worker = scene.worker();
        let id = scene.start(0, "20/s").await;
        let killed = tokio::time::timeout(Duration::from_millis(after_ms), scene.run(&id)).await;
        assert!(killed.is_err(), "it was still running after {after_ms} ms");
        if after_ms > 0 {
            let refused = scene.run(&id).await;
            assert!(
                matches!(refused, Err(RedriveError::Busy { .. })),
                "{after_ms}: {refused:?}"
            );
        }
        tokio::time::sleep(Duration::from_secs(16)).await;
        let report = scene.run(&id).await.unwrap();
        assert_eq!(
            (report.phase, report.requeued),
            (RedrivePhase::Done, 60),
            "{after_ms}"
        );
        assert_eq!(scene.requeues().await, vec![1; 60], "{after_ms}");
        worker.stop();
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_nobody_watches_is_left_to_servers_once_its_runner_is_gone_and_no_other_is() {
    let scene = scene(&[true; 60]).await;
    let left = async || -> Vec<String> {
        scene
            .dead()
            .abandoned_redrives()
            .await
            .unwrap()
            .into_iter()
            .map(|report| report.id)
            .collect()
    };
    let watched = scene.start(0, "20/s").await;
    let id = scene.dead().redrive_unattended(all("20/s")).await.unwrap();
    assert_eq!(
        left().await,
        Vec::<String>::new(),
        "whoever wrote it down is about to run it"
    );
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(left().await, [id.as_str()], "but did not");
    let killed = tokio::time::timeout(Duration::from_secs(1), scene.run(&id)).await;
    assert!(
        killed.is_err() && left().await.is_empty(),
        "its runner was alive a moment ago"
    );
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(left().await, [id.as_str()]);
    let worker = scene.worker();
    assert_eq!(scene.run(&id).await.unwrap().phase, RedrivePhase::Done);
    assert_eq!(left().await, Vec::<String>::new());
    scene.dead().leave_redrive(&watched).await.unwrap();
    assert_eq!(
        left().await,
        [watched],
        "one that somebody watched can be left to them, too"
    );
    worker.stop();
}

#[tokio::test(start_paused = true)]
async fn broken_off_it_can_be_resumed_at_once() {
    let scene = scene(&[true; 60]).await;
    let worker = scene.worker();
    let id = scene.start(0, "20/s").await;
    let mut steps = 0;
    let leave = |_: &RedriveReport| {
        steps += 1;
        if steps < 8 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };
    let report = scene.dead().run_redrive(&id, leave).await.unwrap();
    assert!(
        !report.phase.is_ended() && report.requeued > 5 && report.requeued < 60,
        "{report:?}"
    );
    assert_eq!(scene.run(&id).await.unwrap().requeued, 60);
    assert_eq!(scene.requeues().await, vec![1; 60]);
    worker.stop();
}

#[tokio::test(start_paused = true)]
async fn it_stops_when_it_is_told_to() {
    let scene = scene(&[true; 200]).await;
    let worker = scene.worker();
    let id = scene.start(0, "20/s").await;
    let (dead, name) = (scene.dead(), id.clone());
    let run =
        tokio::spawn(async move { dead.run_redrive(&name, |_| ControlFlow::Continue(())).await });
    tokio::time::sleep(Duration::from_secs(3)).await;
    let told = scene.dead().stop_redrive(&id).await.unwrap();
    assert!(!told.phase.is_ended(), "its runner ends it");
    let report = run.await.unwrap().unwrap();
    assert_eq!(report.phase, RedrivePhase::Stopped);
    assert!(report.requeued > 20 && report.requeued < 120, "{report:?}");
    assert_eq!(scene.dead_now().await, 200 - report.requeued);
    worker.stop();
}

#[tokio::test(start_paused = true)]
async fn without_a_runner_it_is_stopped_at_once() {
    let scene = scene(&[true; 3]).await;
    let id = scene.start(0, "20/s").await;
    assert_eq!(
        scene.dead().stop_redrive(&id).await.unwrap().phase,
        RedrivePhase::Stopped
    );
    assert!(matches!(
        scene.dead().stop_redrive(&id).await,
        Err(RedriveError::Ended { .. })
    ));
    assert!(matches!(
        scene.run(&id).await,
        Err(RedriveError::Ended { .. })
    ));
    assert!(matches!(
        scene.run("nobody").await,
        Err(RedriveError::NotFound(_))
    ));
    assert_eq!(scene.dead_now().await, 3);
}

#[tokio::test(start_paused = true)]
async fn only_what_was_dead_and_fits_is_redriven() {
    let scene = scene(&[true, false, true, true]).await;
    let worker = scene.worker();
    let filter = DeadFilter {
        text: Some("true".to_owned()),
        ..DeadFilter::default()
    };
    let then_rate = "10/s".parse().unwrap();
    let plan = RedrivePlan {
        canary: 2,
        max_failures: 0,
        then_rate,
        selection: DeadSelection::Matching(filter),
    };
    let id = scene.dead().redrive(plan).await.unwrap();
    let report = scene.run(&id).await.unwrap();
    assert_eq!((report.phase, report.requeued), (RedrivePhase::Done, 3));
    assert_eq!(scene.requeues().await, [1, 0, 1, 1]);
    worker.stop();
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_never_ends_is_waited_for() {
    let scene = scene(&[true; 9]).await;
    let id = scene.start(0, "20/s").await;
    let waiting = tokio::time::timeout(Duration::from_hours(1), scene.run(&id)).await;
    assert!(waiting.is_err());
    let listed = scene.dead().redrives().await.unwrap().remove(0);
    assert_eq!(
        (listed.phase, listed.requeued, listed.open),
        (RedrivePhase::Watching, 5, 5)
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stutters_makes_it_slower_and_nothing_twice() {
    for seed in 0..10 {
        let scene = scene(&[true; 60]).await;
        let worker = scene.worker();
        let id = scene.start(0, "50/s").await;
        let odds = Odds {
            refused: 0.1,
            lost_reply: 0.1,
            ..Odds::default()
        };
        let flaky = Flaky::new(Arc::<MemoryStore>::clone(&scene.store), seed);
        flaky.set_odds(odds);
        let clock = Arc::<VirtualClock>::clone(&scene.clock);
        let backstop = Backstop::on(Arc::new(flaky), clock, RandomSource::seeded(seed));
        let report = loop {
            match backstop
                .dead()
                .run_redrive(&id, |_| ControlFlow::Continue(()))
                .await
            {
                Ok(report) => break report,
                Err(RedriveError::Ended { .. }) => {
                    break scene.dead().redrives().await.unwrap().remove(0);
                }
                Err(error) => {
                    assert!(!matches!(error, RedriveError::TakenOver(_)), "{error}");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        };
        assert_eq!(
            (report.phase, report.requeued),
            (RedrivePhase::Done, 60),
            "seed {seed}"
        );
        assert_eq!(scene.requeues().await, vec![1; 60], "seed {seed}");
        assert_eq!(
            scene
                .backstop
                .job(self::id(0))
                .await
                .unwrap()
                .unwrap()
                .state,
            JobState::Done
        );
        worker.stop();
    }
}

#[tokio::test(start_paused = true)]
async fn picked_letters_are_redriven_once_and_no_others() {
    let scene = scene(&[true; 20]).await;
    let worker = scene.worker();
    let ids: Vec<JobId> = [17, 3, 3, 11, 99].map(id).to_vec();
    let plan = RedrivePlan {
        selection: DeadSelection::Ids(ids),
        ..all("100/s")
    };
    let report = scene
        .run(&scene.dead().redrive(plan).await.unwrap())
        .await
        .unwrap();
    assert_eq!(
        (report.phase, report.picked, report.requeued, report.refused),
        (RedrivePhase::Done, Some(4), 3, 1)
    );
    let ran: Vec<JobId> = scene
        .runs
        .lock()
        .unwrap()
        .iter()
        .map(|(id, _)| *id)
        .collect();
    assert_eq!(ran.len(), 3);
    let requeues = scene.requeues().await;
    let requeued: Vec<usize> = (0..20).filter(|n| requeues[*n] == 1).collect();
    assert_eq!(requeued, [3, 11, 17]);
    worker.stop();
}

#[tokio::test(start_paused = true)]
async fn the_oldest_are_picked_when_it_is_written_down() {
    let scene = scene(&[true; 1_200]).await;
    let worker = scene.worker();
    let oldest = DeadSelection::Oldest {
        queue: "q".parse().unwrap(),
        count: 1_100,
    };
    let id = scene
        .dead()
        .redrive(RedrivePlan {
            selection: oldest,
            ..all("1000/s")
        })
        .await
        .unwrap();
    // What somebody else requeues meanwhile moves nobody up.
    scene
        .dead()
        .requeue(&DeadSelection::Ids((0..10).map(self::id).collect()))
        .await
        .unwrap();
    let killed = tokio::time::timeout(Duration::from_millis(700), scene.run(&id)).await;
    assert!(killed.is_err(), "it was still running");
    tokio::time::sleep(Duration::from_secs(16)).await;
    let report = scene.run(&id).await.unwrap();
    assert_eq!(
        (report.phase, report.picked, report.requeued),
        (RedrivePhase::Done, Some(1_100), 1_090),
        "{report:?}"
    );
    assert_eq!(report.refused, 10);
    let mut expected = vec![1; 1_100];
    expected.resize(1_200, 0);
    assert_eq!(scene.requeues().await, expected);
    let query = ListCellsRequest {
        prefix: "picked/".to_owned(),
        after: None,
        limit: 10,
    };
    assert!(
        scene
            .backstop
            .store()
            .list_cells(query)
            .await
            .unwrap()
            .is_empty(),
        "nothing is left behind"
    );
    worker.stop();
}

#[tokio::test(start_paused = true)]
async fn ids_that_the_named_queue_does_not_know_are_refused_and_the_others_asked_for_at_once() {
    let mut scene = scene(&[true; 500]).await;
    let counted = Arc::new(Counted::new(Arc::<MemoryStore>::clone(&scene.store)));
    let (store, clock) = (
        Arc::<Counted>::clone(&counted),
        Arc::<VirtualClock>::clone(&scene.clock),
    );
    scene.backstop = Backstop::on(store, clock, RandomSource::seeded(8));
    let ids: Vec<JobId> = (0..510).map(id).collect();
    let within = DeadSelection::Within {
        queue: "q".parse().unwrap(),
        ids: ids.clone(),
    };
    let elsewhere = DeadSelection::Within {
        queue: "r".parse().unwrap(),
        ids,
    };
    let worker = scene.worker();
    let none = scene
        .dead()
        .redrive(RedrivePlan {
            selection: elsewhere,
            canary: 500,
            ..all("1000/s")
        })
        .await
        .unwrap();
    let report = scene.run(&none).await.unwrap();
    let told = (report.phase, report.picked, report.requeued, report.refused);
    assert_eq!(told, (RedrivePhase::Done, Some(510), 0, 510), "{report:?}");
    assert_eq!(scene.dead_now().await, 500, "those of another queue stay");
    let id = scene
        .dead()
        .redrive(RedrivePlan {
            selection: within,
            canary: 500,
            ..all("1000/s")
        })
        .await
        .unwrap();
    let report = scene.run(&id).await.unwrap();
    let told = (report.phase, report.picked, report.requeued, report.refused);
    assert_eq!(told, (RedrivePhase::Done, Some(510), 500, 10), "{report:?}");
    assert_eq!(
        counted.take_calls().get("job"),
        None,
        "none was asked for by itself"
    );
    worker.stop();
}

/// The names of the cells that a redrive keeps beside its report.
async fn kept(scene: &Scene) -> Vec<String> {
    let mut names = Vec::new();
    for prefix in ["picked/", "redriven/"] {
        let query = ListCellsRequest {
            prefix: prefix.to_owned(),
            after: None,
            limit: 100,
        };
        let cells = scene.backstop.store().list_cells(query).await.unwrap();
        names.extend(cells.into_iter().map(|cell| cell.name));
    }
    names
}

#[tokio::test(start_paused = true)]
async fn what_the_killed_left_behind_is_cleared_up_once_it_is_old() {
    let scene = scene(&[true; 20]).await;
    let picked = |n: usize| DeadSelection::Ids(vec![id(n)]);
    // Two that stand, and the cells of one that was never written down.
    let alive = scene
        .dead()
        .redrive(RedrivePlan {
            selection: picked(1),
            ..all("1/s")
        })
        .await
        .unwrap();
    let orphan = scene
        .dead()
        .redrive(RedrivePlan {
            selection: picked(2),
            ..all("1/s")
        })
        .await
        .unwrap();
    let name = format!("redrive/{orphan}");
    let seen = scene
        .backstop
        .store()
        .cells(vec![name.clone()])
        .await
        .unwrap()
        .remove(0)
        .unwrap()
        .version;
    let gone = CellSwap {
        name,
        seen: Some(seen),
        version: 1,
        value: None,
    };
    scene.backstop.store().swap(vec![gone]).await.unwrap();
    let of = |id: &str| format!("picked/{id}/000000");
    tokio::time::sleep(Duration::from_mins(59)).await;
    let young = scene
        .dead()
        .redrive(RedrivePlan {
            selection: picked(3),
            ..all("1/s")
        })
        .await
        .unwrap();
    assert_eq!(
        kept(&scene).await,
        [of(&alive), of(&orphan), of(&young)],
        "it may be on its way"
    );
    tokio::time::sleep(Duration::from_mins(2)).await;
    scene.start(0, "1/s").await;
    assert_eq!(
        kept(&scene).await,
        [of(&alive), of(&young)],
        "what goes on keeps its own"
    );
    // And of one that has ended: its runner was killed before it had cleared up.
    let ended = scene.dead().stop_redrive(&alive).await.unwrap();
    assert_eq!(ended.phase, RedrivePhase::Stopped);
    let back = CellSwap {
        name: of(&alive),
        seen: None,
        version: 2,
        value: Some(b"[]".to_vec()),
    };
    let parts = CellSwap {
        name: format!("redriven/{alive}/000000"),
        ..back.clone()
    };
    scene
        .backstop
        .store()
        .swap(vec![back, parts])
        .await
        .unwrap();
    assert_eq!(kept(&scene).await.len(), 3);
    scene.start(0, "1/s").await;
    assert_eq!(kept(&scene).await, [of(&young)]);
}

#[tokio::test(start_paused = true)]
async fn of_many_ids_a_report_tells_the_first_and_how_many() {
    let scene = scene(&[true; 3]).await;
    let ids: Vec<JobId> = (0..2_000).map(id).collect();
    let id = scene
        .dead()
        .redrive(RedrivePlan {
            selection: DeadSelection::Ids(ids),
            ..all("1/s")
        })
        .await
        .unwrap();
    let report = scene.dead().redrives().await.unwrap().remove(0);
    let DeadSelection::Ids(told) = &report.plan.selection else {
        panic!("{report:?}")
    };
    assert_eq!((told.len(), report.picked), (100, Some(2_000)));
    let _ = tokio::time::timeout(Duration::from_secs(1), scene.run(&id)).await;
    let audit = scene.dead().audit(1).await.unwrap().remove(0);
    assert_eq!(audit.selection["more"], 1_900, "{audit:?}");
}

#[tokio::test(start_paused = true)]
async fn one_that_somebody_runs_is_not_left_to_servers_and_each_wish_is_noted_once() {
    let scene = scene(&[true; 9]).await;
    let id = scene.start(0, "20/s").await;
    assert!(matches!(
        scene.dead().leave_redrive(&id).await,
        Err(RedriveError::Busy { .. })
    ));
    let (dead, name) = (scene.dead(), id.clone());
    let run =
        tokio::spawn(async move { dead.run_redrive(&name, |_| ControlFlow::Continue(())).await });
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(matches!(
        scene.dead().leave_redrive(&id).await,
        Err(RedriveError::Busy { .. })
    ));
    let stalled = async || scene.dead().redrives().await.unwrap()[0].stalled;
    assert!(!stalled().await);
    run.abort();
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert!(stalled().await && scene.dead().abandoned_redrives().await.unwrap().is_empty());
    scene.dead().leave_redrive(&id).await.unwrap();
    assert_eq!(scene.dead().abandoned_redrives().await.unwrap().len(), 1);
    scene.dead().stop_redrive(&id).await.unwrap();
    assert!(!stalled().await, "it has ended");
    assert!(matches!(
        scene.dead().leave_redrive(&id).await,
        Err(RedriveError::Ended { .. })
    ));
    let audit = scene.dead().audit(100).await.unwrap();
    let done = |what: &str| {
        audit
            .iter()
            .filter(|entry| entry.what == what && entry.count == Some(1) && entry.who == "ada")
            .count()
    };
    assert_eq!(
        (done("redrive leave"), done("redrive stop")),
        (1, 1),
        "{audit:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_redrive_keeps_its_reason_for_whoever_goes_on_with_it() {
    let scene = scene(&[true]).await;
    let dead = scene.dead().because(
        "the address is fixed"
            .parse::<backstop::audit::AuditReason>()
            .unwrap(),
    );
    let id = dead.redrive(all("10/s")).await.unwrap();
    scene
        .dead()
        .run_redrive(&id, |_| ControlFlow::Break(()))
        .await
        .unwrap();
    let report = scene.dead().redrives().await.unwrap().pop().unwrap();
    assert_eq!(report.reason.as_deref(), Some("the address is fixed"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let again = scene
        .dead()
        .because("once more".parse::<backstop::audit::AuditReason>().unwrap());
    again
        .run_redrive(&id, |_| ControlFlow::Break(()))
        .await
        .unwrap();
    let told = scene.dead().audit(2).await.unwrap();
    let reasons: Vec<Option<&str>> = told.iter().map(|entry| entry.reason.as_deref()).collect();
    assert_eq!(reasons, [Some("once more"), Some("the address is fixed")]);
}

#[tokio::test(start_paused = true)]
async fn how_many_it_is_about_is_kept_from_when_it_was_written_down() {
    let scene = scene(&[true, true, true]).await;
    let of_queue = DeadFilter {
        queue: Some("q".parse().unwrap()),
        ..DeadFilter::default()
    };
    let by_text = DeadFilter {
        text: Some("true".to_owned()),
        ..of_queue.clone()
    };
    for (selection, expected) in [
        (DeadSelection::All, Some(3)),
        (DeadSelection::Matching(of_queue), Some(3)),
        (DeadSelection::Matching(by_text), None),
        (DeadSelection::Ids(vec![id(0), id(1)]), Some(2)),
    ] {
        let id = scene
            .dead()
            .redrive(RedrivePlan {
                selection,
                ..all("1/s")
            })
            .await
            .unwrap();
        let reports = scene.dead().redrives().await.unwrap();
        let report = reports.into_iter().find(|report| report.id == id).unwrap();
        assert_eq!(report.expected, expected, "{:?}", report.plan.selection);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_many_redrives_pushes_out_its_own() {
    let scene = scene(&[true]).await;
    let end_one = async |who: &str| {
        let dead = scene.backstop.dead().by(who);
        let id = dead.redrive(all("1/s")).await.unwrap();
        dead.stop_redrive(&id).await.unwrap();
    };
    end_one("bob").await;
    for _ in 0..105 {
        end_one("ada").await;
    }
    let reports = scene.dead().redrives().await.unwrap();
    let of_bob = reports.iter().filter(|report| report.by == "bob").count();
    assert_eq!((reports.len(), of_bob), (101, 1));
}

#[tokio::test(start_paused = true)]
async fn a_redrive_of_nothing_leaves_no_entry_in_the_audit() {
    let scene = scene(&[]).await;
    let id = scene.start(0, "10/s").await;
    let report = scene.run(&id).await.unwrap();
    assert_eq!((report.phase, report.requeued), (RedrivePhase::Done, 0));
    assert_eq!(scene.dead().audit(9).await.unwrap(), []);
}
