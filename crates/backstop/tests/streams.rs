//! Ordered streams at work: the engine on a store in memory and on virtual time.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is how to say no")]

use backstop::core::amend::{AmendAction, Filter, Selection};
use backstop::core::port::{AmendJobsRequest, KeyFilter, ListJobsRequest, Store};
use backstop::core::{Job, JobState};
use backstop::streams::{
    DeadRecordPolicy, EventEffect, LatePolicy, Record, RecordOutcome, ResumeFrom, RunningStream,
    Stream, StreamCounter, StreamCounts, StreamEvent, StreamRules, StreamSettings,
    dead_letter_queue,
};
use backstop::testing::VirtualClock;
use backstop::{
    Backstop, Payload, RandomSource, RetryPolicy, RunError, ServicePlacement, Span, StreamKey,
};
use backstop_memory::MemoryStore;
use backstop_testkit::counted::Counted;
use backstop_testkit::flaky::{Flaky, Odds};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the handlers saw, and what they are to do.
#[derive(Clone, Default)]
struct Witness(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    lines: Vec<String>,
    /// How often an event is still to fail.
    fails: BTreeMap<(String, i64), u32>,
    takes: Duration,
    busy: Vec<String>,
}

impl Witness {
    fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().lines)
    }

    fn fail(&self, key: &str, position: i64, times: u32) {
        self.0
            .lock()
            .unwrap()
            .fails
            .insert((key.to_owned(), position), times);
    }

    async fn handle(self, event: StreamEvent) -> Result<(), RunError> {
        let key = event.key.to_string();
        let takes = {
            let mut seen = self.0.lock().unwrap();
            assert!(!seen.busy.contains(&key), "two events of {key} at once");
            seen.busy.push(key.clone());
            seen.takes
        };
        tokio::time::sleep(takes).await;
        let mut seen = self.0.lock().unwrap();
        seen.busy.retain(|busy| *busy != key);
        if let Some(left) = seen
            .fails
            .get_mut(&(key.clone(), event.position))
            .filter(|left| **left > 0)
        {
            *left -= 1;
            return Err(RunError::retry("the service is down"));
        }
        let to = if let EventEffect::MissRange { to, .. } = event.effect {
            format!("-{to}")
        } else {
            String::new()
        };
        seen.lines
            .push(format!("{key} {} {}{to}", event.effect, event.position));
        Ok(())
    }
}

struct World {
    backstop: Backstop,
    flaky: Arc<Flaky>,
    counted: Arc<Counted>,
    stream: Stream,
    witness: Witness,
}

fn world() -> World {
    let flaky = Arc::new(Flaky::with_odds(
        Arc::new(MemoryStore::new()),
        1,
        Odds::default(),
    ));
    flaky.set_faults(false);
    let counted = Arc::new(Counted::new(Arc::<Flaky>::clone(&flaky)));
    let store: Arc<dyn Store> = Arc::<Counted>::clone(&counted);
    let backstop = Backstop::on(
        store,
        Arc::new(VirtualClock::start()),
        RandomSource::seeded(7),
    );
    let stream = backstop.stream("uptime").unwrap();
    World {
        backstop,
        flaky,
        counted,
        stream,
        witness: Witness::default(),
    }
}

fn settings(change: impl FnOnce(&mut StreamRules)) -> StreamSettings {
    let retry: RetryPolicy =
        serde_json::from_str(r#"{"kind":"steps","delays":["1s","5s"],"max_attempts":3}"#).unwrap();
    let mut settings = StreamSettings {
        rules: StreamRules {
            retry,
            ..StreamRules::default()
        },
        ..StreamSettings::default()
    };
    change(&mut settings.rules);
    settings
}

fn record(key: &str, position: i64) -> Record {
    let payload = Payload::json(format!("\"{key}/{position}\"")).unwrap();
    Record {
        key: self::key(key),
        position,
        step: 60,
        tenant: None,
        payload,
    }
}

fn key(text: &str) -> StreamKey {
    StreamKey::new(text).unwrap()
}

impl World {
    fn serve(&self, settings: StreamSettings) -> RunningStream {
        let witness = self.witness.clone();
        let handler = move |event| witness.clone().handle(event);
        self.stream
            .serve_with(settings, handler, ServicePlacement::CallersRuntime)
            .unwrap()
    }

    async fn counts(&self) -> StreamCounts {
        self.stream
            .status()
            .await
            .unwrap()
            .map(|status| status.counts)
            .unwrap_or_default()
    }

    async fn letters(&self) -> Vec<Job> {
        let filter = Filter {
            queue: Some(dead_letter_queue(self.stream.name())),
            ..Filter::default()
        };
        let query = ListJobsRequest {
            filter,
            limit: 100,
            ..ListJobsRequest::default()
        };
        self.backstop
            .store()
            .jobs(query, self.backstop.now())
            .await
            .unwrap()
            .jobs
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

async fn handle(stream: &RunningStream, positions: &[i64]) -> Vec<RecordOutcome> {
    stream
        .handle(
            positions
                .iter()
                .map(|position| record("a", *position))
                .collect(),
        )
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_batch_in_order_is_two_round_trips_whatever_its_size() {
    let world = world();
    let stream = world.serve(StreamSettings {
        poll: Span::hours(1),
        ..settings(|_| {})
    });
    pass(1).await;
    for position in [60, 120] {
        let batch: Vec<Record> = (0..1_000)
            .map(|n| record(&n.to_string(), position))
            .collect();
        world.counted.take_calls();
        let became = stream.handle(batch).await.unwrap();
        assert!(
            became
                .iter()
                .all(|became| *became == RecordOutcome::Handled)
        );
        let calls = world.counted.take_calls();
        assert_eq!(
            (calls.get("take"), calls.get("advance"), calls.get("offer")),
            (Some(&1), Some(&1), None)
        );
    }
    assert_eq!(world.counts().await[StreamCounter::Handled], 2_000);
    assert_eq!(world.counts().await[StreamCounter::Added], 0);
    stream.stop().await;
}

#[tokio::test(start_paused = true)]
async fn several_records_of_one_key_are_written_one_by_one_or_in_runs() {
    for (run, advances) in [(1, 5), (5, 1)] {
        let world = world();
        let stream = world.serve(StreamSettings {
            run,
            ..settings(|_| {})
        });
        world.counted.take_calls();
        handle(&stream, &[60, 120, 180, 240, 300]).await;
        assert_eq!(world.counted.take_calls()["advance"], advances, "run {run}");
        stream.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_early_waits_for_its_turn() {
    let world = world();
    let stream = world.serve(settings(|_| {}));
    assert_eq!(
        handle(&stream, &[60, 180, 180]).await,
        [
            RecordOutcome::Handled,
            RecordOutcome::Held,
            RecordOutcome::Held
        ]
    );
    assert_eq!(handle(&stream, &[240]).await, [RecordOutcome::Held]);
    assert_eq!(world.witness.lines(), ["a handled 60"]);
    assert_eq!(
        handle(&stream, &[120, 60]).await,
        [RecordOutcome::Handled, RecordOutcome::Duplicate]
    );
    assert_eq!(
        world.witness.lines(),
        ["a handled 120", "a handled 180", "a handled 240"]
    );
    let counts = world.counts().await;
    assert_eq!(
        (
            counts[StreamCounter::Added],
            counts[StreamCounter::Removed],
            counts[StreamCounter::Cleared]
        ),
        (3, 3, 1)
    );
    assert_eq!(
        (
            counts[StreamCounter::Duplicates],
            counts[StreamCounter::Misses]
        ),
        (2, 0)
    );
    stream.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_gap_that_stays_is_given_up_after_its_waits() {
    let world = world();
    let stream = world.serve(settings(|rules| rules.late = LatePolicy::Amend));
    handle(&stream, &[60, 240]).await;
    pass(179).await;
    assert_eq!(world.witness.lines(), ["a handled 60"]);
    pass(3).await;
    assert_eq!(
        world.witness.lines(),
        ["a miss 120", "a miss 180", "a handled 240"]
    );
    assert_eq!(handle(&stream, &[120]).await, [RecordOutcome::Amended]);
    assert_eq!(handle(&stream, &[120]).await, [RecordOutcome::Duplicate]);
    let counts = world.counts().await;
    assert_eq!(
        (
            counts[StreamCounter::Timeout],
            counts[StreamCounter::Rescheduling],
            counts[StreamCounter::Cleared]
        ),
        (1, 4, 0)
    );
    stream.stop().await;
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_being_taken_when_a_stream_stops_are_given_back() {
    let world = world();
    world.stream.offer(vec![record("a", 60)]).await.unwrap();
    world.counted.take_calls();
    world.flaky.set_odds(Odds {
        delay_before: 1.0,
        delay_max: Duration::from_secs(1),
        ..Odds::default()
    });
    world.flaky.set_faults(true);
    let stream = world.serve(settings(|_| {}));
    tokio::task::yield_now().await;
    assert_eq!(
        world.counted.take_calls().get("take"),
        Some(&1),
        "the store has not answered yet"
    );
    stream.stop().await;
    world.flaky.set_faults(false);
    let keys = world.stream.keys(None, KeyFilter::All, 10).await.unwrap();
    assert_eq!(keys[0].holder, None);
}

#[tokio::test(start_paused = true)]
async fn what_is_offered_elsewhere_is_handled_here() {
    let world = world();
    let stream = world.serve(settings(|_| {}));
    world
        .stream
        .offer(vec![record("a", 120), record("a", 60), record("b", 7)])
        .await
        .unwrap();
    pass(1).await;
    let mut lines = world.witness.lines();
    lines.sort();
    assert_eq!(lines, ["a handled 120", "a handled 60", "b handled 7"]);
    stream.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_record_blocks_its_key_only() {
    let world = world();
    let stream = world.serve(settings(|_| {}));
    world.witness.fail("a", 120, 2);
    assert_eq!(
        handle(&stream, &[60, 120, 180]).await,
        [
            RecordOutcome::Handled,
            RecordOutcome::Held,
            RecordOutcome::Held
        ]
    );
    assert_eq!(
        stream.handle(vec![record("b", 1)]).await.unwrap(),
        [RecordOutcome::Handled]
    );
    assert_eq!(world.witness.lines(), ["a handled 60", "b handled 1"]);
    pass(8).await;
    assert_eq!(world.witness.lines(), ["a handled 120", "a handled 180"]);
    assert_eq!(world.counts().await[StreamCounter::Failures], 2);
    stream.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_fails_for_good_is_a_dead_letter_that_can_be_requeued() {
    let world = world();
    let stream = world.serve(settings(|_| {}));
    world.witness.fail("a", 120, 3);
    handle(&stream, &[60, 120, 180]).await;
    pass(10).await;
    assert_eq!(world.witness.lines(), ["a handled 60", "a handled 180"]);
    let letters = world.letters().await;
    assert_eq!(
        letters
            .iter()
            .map(|job| (job.state, job.attempt))
            .collect::<Vec<_>>(),
        [(JobState::Dead, 3)]
    );
    assert_eq!(letters[0].history.last_error(), "the service is down");
    let queue = dead_letter_queue(world.stream.name());
    let worker = world
        .backstop
        .worker()
        .services(ServicePlacement::CallersRuntime)
        .handle_queue(queue.as_str(), stream.dead_letter_handler());
    let again = AmendJobsRequest {
        selection: Selection::Ids(vec![letters[0].id]),
        action: AmendAction::Retry,
        only: None,
        cursor: None,
        max: 1,
    };
    world
        .backstop
        .store()
        .amend(again, world.backstop.now())
        .await
        .unwrap();
    let running = worker.start().unwrap();
    pass(2).await;
    assert_eq!(world.witness.lines(), ["a handled 120"]);
    running.stop();
    running.stopped().await;
    stream.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_halted_key_waits_for_somebody_to_act() {
    for (resume, expected) in [
        (ResumeFrom::NextRecord, vec!["a handled 180"]),
        (
            ResumeFrom::SameRecord,
            vec!["a handled 120", "a handled 180"],
        ),
    ] {
        let world = world();
        let stream = world.serve(settings(|rules| rules.on_dead = DeadRecordPolicy::Halt));
        world.witness.fail("a", 120, 3);
        handle(&stream, &[60, 120, 180]).await;
        pass(3_600).await;
        assert_eq!(world.witness.lines(), ["a handled 60"]);
        assert!(world.stream.resume(&key("a"), resume).await.unwrap());
        assert!(!world.stream.resume(&key("nobody"), resume).await.unwrap());
        pass(2).await;
        assert_eq!(world.witness.lines(), expected);
        stream.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_key_halted_at_is_handled_once_requeued_or_resumed() {
    for resumes in [true, false] {
        let world = world();
        let stream = world.serve(settings(|rules| rules.on_dead = DeadRecordPolicy::Halt));
        let letters = world
            .backstop
            .worker()
            .services(ServicePlacement::CallersRuntime);
        let queue = dead_letter_queue(world.stream.name());
        let letters = letters
            .handle_queue(queue.as_str(), stream.dead_letter_handler())
            .start()
            .unwrap();
        world.witness.fail("a", 120, 3);
        handle(&stream, &[60, 120, 180]).await;
        pass(60).await;
        if resumes {
            assert!(
                world
                    .stream
                    .resume(&key("a"), ResumeFrom::SameRecord)
                    .await
                    .unwrap()
            );
        }
        let all = Selection::Matching(Filter {
            queue: Some(queue),
            state: Some(JobState::Dead),
            ..Filter::default()
        });
        let requeue = AmendJobsRequest {
            selection: all,
            action: AmendAction::Retry,
            only: None,
            cursor: None,
            max: 100,
        };
        let requeued = world
            .backstop
            .store()
            .amend(requeue, world.backstop.now())
            .await
            .unwrap();
        assert_eq!(
            requeued.applied,
            usize::from(!resumes),
            "what is tried again by its key is no dead letter any more"
        );
        pass(60).await;
        assert_eq!(
            world.witness.lines(),
            ["a handled 60", "a handled 120", "a handled 180"],
            "{resumes}"
        );
        letters.stop();
        stream.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_key_begins_anew_and_a_disabled_one_ignores() {
    let world = world();
    let stream = world.serve(settings(|_| {}));
    handle(&stream, &[60, 180]).await;
    assert_eq!(
        world
            .stream
            .forget(&key("a"))
            .await
            .unwrap()
            .map(|gone| gone.records),
        Some(1)
    );
    assert_eq!(world.stream.forget(&key("a")).await.unwrap(), None);
    assert_eq!(
        handle(&stream, &[30, 120]).await,
        [RecordOutcome::Handled, RecordOutcome::Held]
    );
    assert_eq!(world.stream.disable(&key("a")).await.unwrap().records, 1);
    assert_eq!(handle(&stream, &[90]).await, [RecordOutcome::Ignored]);
    assert!(world.stream.enable(&key("a")).await.unwrap());
    assert_eq!(handle(&stream, &[90]).await, [RecordOutcome::Handled]);
    pass(600).await;
    assert_eq!(
        world.witness.lines(),
        ["a handled 60", "a handled 30", "a handled 90"]
    );
    let counts = world.counts().await;
    assert_eq!(
        (
            counts.held(),
            counts[StreamCounter::Ignored],
            counts[StreamCounter::Cleared]
        ),
        (0, 1, 0)
    );
    stream.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_the_store_records_are_handled_at_once_and_the_watermark_is_written_later() {
    let world = world();
    let stream = world.serve(settings(|_| {}));
    handle(&stream, &[60]).await;
    world.flaky.set_down(true);
    assert_eq!(handle(&stream, &[240]).await, [RecordOutcome::Handled]);
    assert!(stream.is_offline());
    assert_eq!(
        handle(&stream, &[60, 120, 360]).await,
        [
            RecordOutcome::Duplicate,
            RecordOutcome::Handled,
            RecordOutcome::Handled
        ]
    );
    let without = [
        "a handled 60",
        "a handled 240",
        "a handled 120",
        "a miss 300",
        "a handled 360",
    ];
    assert_eq!(world.witness.lines(), without);
    world.flaky.set_down(false);
    pass(5).await;
    assert!(!stream.is_offline());
    assert_eq!(
        world.witness.lines(),
        ["a miss 180"],
        "made up for once it is known that nobody else had it"
    );
    let stored = world.stream.key(&key("a")).await.unwrap().unwrap();
    assert_eq!(stored.watermark, Some(360));
    let counts = world.counts().await;
    assert_eq!(
        (
            counts[StreamCounter::StoreFailures],
            counts[StreamCounter::Handled],
            counts[StreamCounter::Misses]
        ),
        (4, 4, 2)
    );
    assert_eq!(
        handle(&stream, &[300, 360, 420]).await,
        [
            RecordOutcome::Late,
            RecordOutcome::Duplicate,
            RecordOutcome::Handled
        ]
    );
    stream.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_others_handled_before_the_store_fell_silent_is_not_missed() {
    let world = world();
    let (one, other) = (world.serve(settings(|_| {})), world.serve(settings(|_| {})));
    handle(&one, &[60]).await;
    handle(&other, &[120, 180, 240]).await;
    world.flaky.set_down(true);
    assert_eq!(handle(&one, &[300]).await, [RecordOutcome::Handled]);
    world.flaky.set_down(false);
    pass(5).await;
    let expected: Vec<String> = (1..=5).map(|n| format!("a handled {}", n * 60)).collect();
    assert_eq!(world.witness.lines(), expected);
    assert_eq!(world.counts().await[StreamCounter::Misses], 0);
    one.stop().await;
    other.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_held_when_the_store_falls_silent_is_handled_when_it_is_back() {
    let world = world();
    let stream = world.serve(settings(|_| {}));
    handle(&stream, &[60, 180, 240]).await;
    world.flaky.set_down(true);
    assert_eq!(handle(&stream, &[300]).await, [RecordOutcome::Handled]);
    world.flaky.set_down(false);
    pass(5).await;
    let expected = [
        "a handled 60",
        "a handled 300",
        "a miss 120",
        "a handled 180",
        "a handled 240",
    ];
    assert_eq!(world.witness.lines(), expected);
    assert_eq!(world.counts().await.held(), 0);
    stream.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_in_hand_when_the_store_falls_silent_is_waited_for() {
    let world = world();
    world.witness.0.lock().unwrap().takes = Duration::from_secs(8);
    let stream = std::sync::Arc::new(world.serve(settings(|_| {})));
    handle(&stream, &[0]).await;
    let slow = tokio::spawn({
        let stream = std::sync::Arc::clone(&stream);
        async move { handle(&stream, &[60]).await }
    });
    pass(1).await;
    world.flaky.set_down(true);
    assert_eq!(handle(&stream, &[120]).await, [RecordOutcome::Handled]);
    assert_eq!(slow.await.unwrap(), [RecordOutcome::Handled]);
    assert_eq!(
        world.witness.lines(),
        ["a handled 0", "a handled 60", "a handled 120"]
    );
    world.flaky.set_down(false);
    pass(5).await;
    assert_eq!(world.counts().await[StreamCounter::Misses], 0);
}

#[tokio::test(start_paused = true)]
async fn what_fails_without_the_store_is_kept_by_whoever_brought_it_or_by_the_store_once_it_is_back()
 {
    let world = world();
    let stream =
        std::sync::Arc::new(world.serve(settings(|rules| rules.on_dead = DeadRecordPolicy::Halt)));
    handle(&stream, &[60]).await;
    world.witness.fail("a", 120, 1);
    world.flaky.set_down(true);
    let failing = tokio::spawn({
        let stream = std::sync::Arc::clone(&stream);
        async move { handle(&stream, &[120]).await }
    });
    pass(6).await;
    world.flaky.set_down(false);
    assert_ne!(failing.await.unwrap(), [RecordOutcome::Full]);
    pass(30).await;
    assert_eq!(world.witness.lines(), ["a handled 60", "a handled 120"]);
    let stored = world.stream.key(&key("a")).await.unwrap().unwrap();
    assert_eq!(stored.watermark, Some(120));
}

#[tokio::test(start_paused = true)]
async fn keys_whose_handlers_hang_do_not_keep_others_from_being_looked_at() {
    let world = world();
    let _stream = world.serve(StreamSettings {
        concurrency: 64,
        ..settings(|_| {})
    });
    world.witness.0.lock().unwrap().takes = Duration::from_hours(1);
    for n in 0..40 {
        world
            .stream
            .offer(vec![record(&format!("slow-{n:02}"), 60)])
            .await
            .unwrap();
        pass(1).await;
    }
    world.witness.0.lock().unwrap().takes = Duration::ZERO;
    world.stream.offer(vec![record("quick", 60)]).await.unwrap();
    pass(2).await;
    assert_eq!(world.witness.lines(), ["quick handled 60"]);
}

#[tokio::test(start_paused = true)]
async fn two_processes_share_a_stream_without_overlap() {
    let world = world();
    world.witness.0.lock().unwrap().takes = Duration::from_millis(50);
    let (one, other) = (world.serve(settings(|_| {})), world.serve(settings(|_| {})));
    handle(&one, &[0]).await;
    let batches = (0..20).map(|n| {
        let stream = if n % 2 == 0 { &one } else { &other };
        async move { handle(stream, &[(n + 1) * 60]).await }
    });
    futures_util::future::join_all(batches).await;
    pass(30).await;
    let expected: Vec<String> = (0..=20).map(|n| format!("a handled {}", n * 60)).collect();
    assert_eq!(world.witness.lines(), expected);
    one.stop().await;
    other.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_leaves_its_keys_to_others() {
    let world = world();
    world.witness.0.lock().unwrap().takes = Duration::from_hours(1);
    let dying = world.serve(settings(|_| {}));
    world.stream.offer(vec![record("a", 60)]).await.unwrap();
    pass(1).await;
    drop(dying);
    {
        let mut seen = world.witness.0.lock().unwrap();
        (seen.takes, seen.busy) = (Duration::ZERO, Vec::new());
    }
    let heir = world.serve(settings(|_| {}));
    pass(20).await;
    assert!(world.witness.lines().contains(&"a handled 60".to_owned()));
    heir.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_call_keeps_its_key() {
    let world = world();
    world.witness.0.lock().unwrap().takes = Duration::from_mins(1);
    let (one, other) = (world.serve(settings(|_| {})), world.serve(settings(|_| {})));
    let became = one.handle(vec![record("a", 60)]).await.unwrap();
    assert_eq!(became, [RecordOutcome::Handled]);
    assert_eq!(world.witness.lines(), ["a handled 60"], "nobody else began");
    one.stop().await;
    other.stop().await;
}

/// Notes when a call ends, also one that is called off.
struct Ends(Witness, &'static str);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0
            .0
            .lock()
            .unwrap()
            .lines
            .push(format!("{} ends", self.1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_cut_off_stops_before_another_begins() {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let odds = Odds {
        delay_before: 1.0,
        delay_max: Duration::from_mins(10),
        ..Odds::default()
    };
    let cut_off = Arc::new(Flaky::with_odds(Arc::clone(&memory), 1, odds));
    cut_off.set_faults(false);
    let (clock, witness) = (Arc::new(VirtualClock::start()), Witness::default());
    let serve = |store: Arc<dyn Store>, name: &'static str, takes: Duration| {
        let witness = witness.clone();
        let handler = move |_: StreamEvent| {
            let witness = witness.clone();
            async move {
                witness
                    .0
                    .lock()
                    .unwrap()
                    .lines
                    .push(format!("{name} begins"));
                let _ends = Ends(witness, name);
                tokio::time::sleep(takes).await;
                Ok::<(), RunError>(())
            }
        };
        let backstop = Backstop::on(
            store,
            Arc::<VirtualClock>::clone(&clock),
            RandomSource::seeded(takes.as_secs()),
        );
        let settings = StreamSettings {
            patience: Span::hours(9),
            ..StreamSettings::default()
        };
        backstop
            .stream("s")
            .unwrap()
            .serve_with(settings, handler, ServicePlacement::CallersRuntime)
            .unwrap()
    };
    let one = serve(
        Arc::<Flaky>::clone(&cut_off),
        "one",
        Duration::from_mins(10),
    );
    let other = serve(memory, "other", Duration::from_secs(1));
    let one = Arc::new(one);
    tokio::spawn({
        let one = Arc::clone(&one);
        async move { one.handle(vec![record("a", 60)]).await }
    });
    pass(1).await;
    cut_off.set_faults(true);
    other.handle(vec![record("a", 120)]).await.unwrap();
    pass(40).await;
    assert_eq!(
        witness.lines(),
        ["one begins", "one ends", "other begins", "other ends"]
    );
    other.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stopping_puts_the_rest_by() {
    let world = world();
    world.witness.0.lock().unwrap().takes = Duration::from_secs(2);
    let stream = Arc::new(world.serve(settings(|_| {})));
    let handling = tokio::spawn({
        let stream = Arc::clone(&stream);
        async move { handle(&stream, &[60, 120, 180]).await }
    });
    pass(1).await;
    let stopping = tokio::spawn(async move {
        let stream = loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if Arc::strong_count(&stream) == 1 {
                break Arc::into_inner(stream).unwrap();
            }
        };
        stream.stop().await;
    });
    assert_eq!(handling.await.unwrap(), [RecordOutcome::Handled; 3]);
    stopping.await.unwrap();
    assert_eq!(world.witness.lines().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_too_long_or_panics_has_failed() {
    let world = world();
    let handler = |event: StreamEvent| async move {
        match event.position {
            60 => tokio::time::sleep(Duration::from_hours(1)).await,
            120 if event.attempt == 1 => panic!("no"),
            _ => {}
        }
        Ok::<(), RunError>(())
    };
    let settings = StreamSettings {
        timeout: Some(Span::secs(1)),
        ..settings(|_| {})
    };
    let stream = world
        .stream
        .serve_with(settings, handler, ServicePlacement::CallersRuntime)
        .unwrap();
    handle(&stream, &[60, 120]).await;
    pass(30).await;
    let counts = world.counts().await;
    assert_eq!(
        (
            counts[StreamCounter::Dead],
            counts[StreamCounter::Failures],
            counts[StreamCounter::Handled]
        ),
        (1, 4, 1)
    );
    stream.stop().await;
}
