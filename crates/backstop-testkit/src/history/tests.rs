use super::*;
use crate::given::{DONE, Scene, dead, id, job, retry_at};
use backstop_core::amend::AmendAction;
use backstop_core::port::Store;
use backstop_core::{JobState, Span};
use backstop_memory::MemoryStore;
use proptest::prelude::*;
use std::sync::Arc;

fn lease(number: u64) -> LeaseNumber {
    LeaseNumber::draw(number)
}

fn enqueued(name: &str) -> Event {
    Event::Enqueued {
        job: id(name),
        heard: Heard::Ok,
    }
}

fn started(name: &str, number: u64) -> Event {
    Event::Started {
        job: id(name),
        attempt: 1,
        lease: lease(number),
        worker: WorkerName::new("w"),
    }
}

fn ended(name: &str, number: u64, ran: Ran) -> Event {
    Event::Ended {
        job: id(name),
        lease: lease(number),
        ran,
    }
}

fn settled(name: &str, number: u64, accepted: Accepted) -> Event {
    Event::Settled {
        job: id(name),
        lease: lease(number),
        accepted,
    }
}

/// A job that was handed in, run once and done.
fn good(name: &str) -> Vec<Event> {
    vec![
        enqueued(name),
        started(name, 1),
        ended(name, 1, Ran::Done),
        settled(name, 1, Accepted::Done),
    ]
}

/// What a store holds after `name` was done.
async fn done(name: &str) -> FinalState {
    let mut scene = scene();
    scene.insert_and_end(job("q", name), DONE).await;
    found(&scene).await
}

fn scene() -> Scene {
    Scene::new(Arc::new(MemoryStore::new()) as Arc<dyn Store>)
}

async fn found(scene: &Scene) -> FinalState {
    FinalState::read(&*scene.store, scene.now)
        .await
        .expect("memory shows itself")
}

fn violations(events: Vec<Event>, found: &FinalState) -> Vec<Violation> {
    check(&History::of(events), found)
}

fn granted(name: &str, number: u64) -> Event {
    Event::Granted {
        job: id(name),
        lease: lease(number),
    }
}

#[tokio::test]
async fn an_end_accepted_from_a_former_holder_is_found() {
    let found = done("a").await;
    let fenced = [
        vec![enqueued("a"), granted("a", 2), granted("a", 1)],
        good("a")[1..].to_vec(),
    ]
    .concat();
    assert_eq!(violations(fenced, &found), []);
    let unfenced = [
        vec![enqueued("a"), granted("a", 1), granted("a", 2)],
        good("a")[1..].to_vec(),
    ]
    .concat();
    assert_eq!(
        violations(unfenced, &found),
        [Violation::Unfenced(id("a"), lease(1), lease(2))]
    );
}

#[tokio::test]
async fn a_clean_history_has_no_violations() {
    assert_eq!(violations(good("a"), &done("a").await), []);
    assert_eq!(violations(Vec::new(), &FinalState::default()), []);
}

#[tokio::test]
async fn a_lost_job_is_found() {
    assert_eq!(
        violations(good("a"), &FinalState::default()),
        [Violation::Missing(id("a"))]
    );
    let unknown = vec![Event::Enqueued {
        job: id("a"),
        heard: Heard::Unknown,
    }];
    assert_eq!(violations(unknown, &FinalState::default()), []);
}

#[tokio::test]
async fn a_job_that_is_there_twice_is_found() {
    let mut found = done("a").await;
    found.jobs.push(found.jobs[0].clone());
    *found.queues[0].counts.of_mut(JobState::Done) += 1;
    assert_eq!(
        violations(good("a"), &found),
        [Violation::Doubled(id("a"), 2)]
    );
}

#[tokio::test]
async fn a_job_nobody_handed_in_is_found() {
    let events = good("a").split_off(1);
    assert_eq!(
        violations(events, &done("a").await),
        [Violation::Invented(id("a"))]
    );
}

#[tokio::test]
async fn a_job_without_an_end_is_found() {
    let scene = scene();
    scene.insert([job("q", "a")]).await;
    let expected = [Violation::Unended(id("a"), JobState::Ready)];
    assert_eq!(
        violations(vec![enqueued("a")], &found(&scene).await),
        expected
    );
}

#[tokio::test]
async fn a_second_end_is_found_and_a_repeated_one_is_not() {
    let found = done("a").await;
    let mut events = good("a");
    events.push(settled("a", 1, Accepted::Done));
    assert_eq!(violations(events.clone(), &found), []);
    let mut dead_as_well = events.clone();
    dead_as_well.push(settled("a", 2, Accepted::Dead));
    assert_eq!(
        violations(dead_as_well, &found),
        [Violation::EndedTwice(id("a"), 2, 1)]
    );
    events.extend([ended("a", 2, Ran::Done), settled("a", 2, Accepted::Done)]);
    assert_eq!(
        violations(events, &found),
        [Violation::EndedTwice(id("a"), 2, 1)]
    );
}

#[tokio::test]
async fn a_requeued_job_may_end_again() {
    let mut scene = scene();
    scene.insert_and_end(job("q", "a"), dead()).await;
    scene.amend_named(&["a"], AmendAction::Retry).await;
    let run = scene.claim_one("q").await;
    scene.settle(&run.lease, DONE).await;
    let first_life = [
        enqueued("a"),
        started("a", 1),
        ended("a", 1, Ran::Failed),
        settled("a", 1, Accepted::Dead),
    ];
    let second_life = [
        started("a", 2),
        ended("a", 2, Ran::Done),
        settled("a", 2, Accepted::Done),
    ];
    let events = first_life.into_iter().chain(second_life).collect();
    assert_eq!(violations(events, &found(&scene).await), []);
}

#[tokio::test]
async fn success_without_a_run_is_found() {
    let found = done("a").await;
    let all = good("a");
    let without_end: Vec<Event> = all
        .iter()
        .filter(|event| !matches!(event, Event::Ended { .. }))
        .cloned()
        .collect();
    assert_eq!(
        violations(without_end, &found),
        [Violation::DoneWithoutRun(id("a"), lease(1))]
    );
    let mut under_another_lease = all.clone();
    under_another_lease[2] = ended("a", 9, Ran::Done);
    assert_eq!(
        violations(under_another_lease, &found),
        [Violation::DoneWithoutRun(id("a"), lease(1))]
    );
    let mut too_late = all.clone();
    too_late.swap(2, 3);
    assert_eq!(
        violations(too_late, &found),
        [Violation::DoneWithoutRun(id("a"), lease(1))]
    );
    let mut failed = all;
    failed[2] = ended("a", 1, Ran::Failed);
    assert_eq!(
        violations(failed, &found),
        [Violation::DoneWithoutRun(id("a"), lease(1))]
    );
    assert_eq!(
        violations(vec![enqueued("a")], &found),
        [Violation::NeverRan(id("a"))]
    );
}

#[tokio::test]
async fn between_logs_there_is_no_order() {
    let mut history = History::of(vec![enqueued("a"), settled("a", 1, Accepted::Done)]);
    history.add_log(vec![started("a", 1), ended("a", 1, Ran::Done)]);
    assert_eq!(check(&history, &done("a").await), []);
}

#[tokio::test]
async fn a_start_without_a_reason_is_found() {
    let found = done("a").await;
    let mut again = good("a");
    again.insert(1, started("a", 2));
    let overrun = Violation::Overrun {
        job: id("a"),
        starts: 2,
        explained: 1,
    };
    assert_eq!(violations(again, &found), std::slice::from_ref(&overrun));
    let mut same_lease = good("a");
    same_lease.insert(1, started("a", 1));
    assert_eq!(
        violations(same_lease, &found),
        [Violation::LeaseReused(id("a"), lease(1), 2), overrun]
    );
}

#[tokio::test]
async fn failures_losses_and_releases_explain_a_start() {
    let mut scene = scene();
    scene.insert([job("q", "a")]).await;
    let first = scene.claim_one("q").await;
    scene.settle(&first.lease, retry_at(scene.now)).await;
    scene.claim_one("q").await;
    scene.pass(Span::minutes(5));
    let seized = scene.seize("rescuer").await;
    let lost = Outcome::Lost {
        at: scene.now,
        history: crate::given::history("lost"),
    };
    scene.settle(&seized[0].run.lease, lost).await;
    let third = scene.claim_one("q").await;
    scene
        .settle(&third.lease, Outcome::Released { at: scene.now })
        .await;
    let fourth = scene.claim_one("q").await;
    scene.settle(&fourth.lease, DONE).await;
    // The first run failed and nobody lived to write it down; the second worker vanished; the third
    // let go.
    let events = vec![
        enqueued("a"),
        started("a", 1),
        started("a", 2),
        started("a", 3),
        ended("a", 3, Ran::Released),
        started("a", 4),
        ended("a", 4, Ran::Done),
        settled("a", 4, Accepted::Done),
    ];
    let found = found(&scene).await;
    assert_eq!(violations(events.clone(), &found), []);
    let mut one_more = events;
    one_more.insert(4, started("a", 5));
    let overrun = Violation::Overrun {
        job: id("a"),
        starts: 5,
        explained: 4,
    };
    assert_eq!(violations(one_more, &found), [overrun]);
}

#[tokio::test]
async fn a_wrong_counter_is_found() {
    let mut found = done("a").await;
    *found.queues[0].counts.of_mut(JobState::Ready) = 1;
    let miscounted = |state, counted, rows| Violation::Miscounted {
        queue: crate::given::queue("q"),
        state,
        counted,
        rows,
    };
    assert_eq!(
        violations(good("a"), &found),
        [miscounted(JobState::Ready, 1, 0)]
    );
    found.queues.clear();
    assert_eq!(
        violations(good("a"), &found),
        [miscounted(JobState::Done, 0, 1)]
    );
}

#[tokio::test]
async fn a_job_still_held_is_found() {
    let mut scene = scene();
    scene.insert([job("q", "a")]).await;
    scene.claim_one("q").await;
    let expected = [
        Violation::Unended(id("a"), JobState::Running),
        Violation::StillHeld(id("a")),
    ];
    assert_eq!(
        violations(vec![enqueued("a"), started("a", 1)], &found(&scene).await),
        expected
    );
}

proptest! {
    #[test]
    fn an_event_reads_back_from_its_line(attempt: u32, number: u64, worker: String) {
        let worker = WorkerName::new(&worker);
        let event = Event::Started { job: id("a"), attempt, lease: lease(number), worker };
        let line = event.to_string();
        prop_assert!(!line.contains('\n'));
        prop_assert_eq!(line.parse(), Ok(event));
    }

    #[test]
    fn no_text_breaks_the_reader(line: String) {
        let _ = line.parse::<Event>();
    }
}

#[test]
fn every_event_reads_back_from_its_line() {
    let ran = [Ran::Done, Ran::Failed, Ran::Released, Ran::Cancelled];
    let accepted = [
        Accepted::Done,
        Accepted::Retry,
        Accepted::Dead,
        Accepted::Cancelled,
        Accepted::Released,
        Accepted::Lost,
    ];
    let heard = [Heard::Ok, Heard::Unknown].map(|heard| Event::Enqueued {
        job: id("a"),
        heard,
    });
    let events = heard
        .into_iter()
        .chain(ran.map(|ran| ended("a", 1, ran)))
        .chain(accepted.map(|accepted| settled("a", 1, accepted)));
    for event in events {
        assert_eq!(event.to_string().parse(), Ok(event));
    }
    for bad in [
        "",
        "enqueued",
        "enqueued x ok",
        "ended  1 done",
        "started a 1 2 %zz",
    ] {
        assert!(bad.parse::<Event>().is_err(), "{bad}");
    }
}

#[test]
fn a_log_takes_many_writers_and_a_torn_last_line() {
    let dir = tempfile::tempdir().expect("there is room for a test");
    let path = dir.path().join("history");
    let (one, another) = (
        HistoryLog::open(&path).unwrap(),
        HistoryLog::open(&path).unwrap(),
    );
    for (index, event) in good("a").iter().enumerate() {
        let log = if index % 2 == 0 { &one } else { &another };
        log.append(event).unwrap();
    }
    std::io::Write::write_all(
        &mut std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap(),
        b"ended 12",
    )
    .unwrap();
    assert_eq!(HistoryLog::read(&path).unwrap(), good("a"));
    // A line that is torn and not the last one is damage, and damage is not read past.
    one.append(&enqueued("b")).unwrap();
    assert!(matches!(
        HistoryLog::read(&path),
        Err(Unreadable::Line { line: 5, .. })
    ));
}
