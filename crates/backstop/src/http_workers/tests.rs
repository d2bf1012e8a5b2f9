mod gates;
mod orders;
mod parts;
mod poison;

use super::*;
use crate::config::{ConfigFile, ConfigOverrides, resolve};
use crate::testing::{TestBackstop, start};
use crate::{ManualClock, RandomSource};
use backstop_core::JobState;
use backstop_core::amend::{AmendAction, Selection};
use backstop_core::failure::{ErrorReport, FailureCause};
use backstop_core::verdict::{FailureAdvice, RunEnding};
use backstop_memory::MemoryStore;
use backstop_testkit::counted::Counted;
use backstop_testkit::flaky::{Fault, Flaky, Odds};
use std::sync::Arc;

fn config(text: &str) -> Config {
    let written = ConfigFile {
        path: "backstop.toml",
        text,
    };
    resolve(
        Some(written),
        ConfigOverrides::default(),
        ConfigOverrides::default(),
    )
    .unwrap()
}

fn ask(max: usize) -> LeaseRequest {
    LeaseRequest {
        queues: vec![QueueName::new("q").unwrap()],
        max,
        worker: WorkerName::new("elsewhere"),
        lease: None,
        wait: Span::ZERO,
        about: WorkerDescription::default(),
    }
}

async fn pushed(names: &[&str]) -> TestBackstop {
    let test = start();
    for name in names {
        test.backstop.draft("q").id(name).push().await.unwrap();
    }
    test
}

/// A store that fails as it is told to.
fn flaky() -> (Backstop, Arc<Flaky>, Arc<ManualClock>) {
    let (store, clock) = (
        Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1)),
        start().clock,
    );
    (
        Backstop::on(store.clone(), clock.clone(), RandomSource::seeded(1)),
        store,
        clock,
    )
}

/// Faults of the next calls; `None` for a call that is answered.
fn fail(store: &Flaky, calls: &[Option<Fault>]) {
    // A hint is no call: to name one is to let a call pass.
    for fault in calls {
        store.next_call(fault.unwrap_or(Fault::LostHint));
    }
}

#[tokio::test]
async fn what_was_handed_out_before_something_failed_is_handed_out() {
    let (backstop, store, _) = flaky();
    for n in 0..4 {
        backstop.draft("q").id(&n.to_string()).push().await.unwrap();
    }
    let (config, attendance) = (config(""), SeenWorkers::default());
    let queues = ["q", "other"]
        .map(|name| QueueName::new(name).unwrap())
        .to_vec();
    // The order, the beat, the card (read and written), the claim and the gates; then the second
    // claim, twice.
    fail(
        &store,
        &[
            None,
            None,
            None,
            None,
            None,
            None,
            Some(Fault::Refused),
            Some(Fault::Refused),
        ],
    );
    let ask = LeaseRequest { queues, ..ask(4) };
    let handed = backstop
        .http_workers(&config, &attendance)
        .lease(&ask)
        .await
        .unwrap();
    assert_eq!(store.injected_into("claim", Fault::Refused), 2);
    assert_eq!(handed.len(), 2, "half of it, from the first round");
}

#[tokio::test]
async fn what_was_claimed_and_cannot_be_judged_goes_back() {
    let (backstop, store, _) = flaky();
    backstop.draft("q").id("a").push().await.unwrap();
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = backstop.http_workers(&config, &attendance);
    fail(
        &store,
        &[None, None, None, None, None, Some(Fault::Refused)],
    );
    remote.lease(&ask(1)).await.unwrap_err();
    assert_eq!(store.injected_into("cells", Fault::Refused), 1);
    let job = backstop.job(JobId::named("a")).await.unwrap().unwrap();
    assert_eq!((job.state, job.lost_leases), (JobState::Ready, 0));
    assert_eq!(remote.lease(&ask(1)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn leave_for_what_cannot_be_judged_is_given_back() {
    let (backstop, store, _) = flaky();
    backstop.draft("q").id("a").push().await.unwrap();
    let (config, attendance) = (
        config("[queues.q]\nrate_limit = { count = 1, per = \"1h\", over = \"5m\" }\n"),
        SeenWorkers::default(),
    );
    let remote = backstop.http_workers(&config, &attendance);
    // The order, the beat, the card and the leave (both read and written), the claim; then the
    // gates.
    fail(
        &store,
        &[
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            Some(Fault::Refused),
        ],
    );
    remote.lease(&ask(1)).await.unwrap_err();
    assert_eq!(store.injected_into("cells", Fault::Refused), 1);
    assert_eq!(remote.lease(&ask(1)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn leave_and_probes_for_what_a_gate_keeps_back_are_given_back() {
    for (guard, wait) in [
        (
            "rate_limit = { count = 4, per = \"1h\", over = \"5m\" }",
            Span::ZERO,
        ),
        (
            "breaker = { failure_threshold = 1, recovery_timeout = \"30s\", half_open_max_calls = 2 }",
            Span::secs(30),
        ),
    ] {
        let test = pushed(&["poison", "broken", "a", "b"]).await;
        let text =
            format!("[queues.q]\ndead = {{ gate = {{ deaths = 1, within = \"1m\" }} }}\n{guard}\n");
        let (config, attendance) = (config(&text), SeenWorkers::default());
        let remote = test.backstop.http_workers(&config, &attendance);
        let handed = remote.lease(&ask(2)).await.unwrap();
        let failed = SettleRequest {
            ending: RunEnding::failed(ErrorReport::message("broken")),
            ..done(&handed[1])
        };
        remote.settle(vec![dead(&handed[0]), failed]).await.unwrap();
        test.clock.advance(wait);
        assert!(
            remote.lease(&ask(2)).await.unwrap().is_empty(),
            "the gate of their kind is shut"
        );
        for name in ["c", "d"] {
            test.backstop
                .draft("q")
                .kind("other")
                .id(name)
                .push()
                .await
                .unwrap();
        }
        assert_eq!(remote.lease(&ask(2)).await.unwrap().len(), 2, "{guard}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_back_was_never_handed_out() {
    let (backstop, store, _) = flaky();
    backstop.draft("q").id("a").push().await.unwrap();
    let text = "[queues.q]\nrate_limit = { count = 1, per = \"60s\", over = \"5m\" }\n";
    let (config, attendance) = (config(text), SeenWorkers::default());
    let remote = backstop.http_workers(&config, &attendance);
    let handed = remote.lease(&ask(1)).await.unwrap();
    let ended = SettleRequest {
        job: handed[0].run.lease.job,
        token: Some(handed[0].token.clone()),
        ending: RunEnding::Done,
    };
    fail(&store, &[Some(Fault::Refused), Some(Fault::LostReply)]);
    remote.release_undelivered(handed).await;
    assert_eq!(
        remote.settle(vec![ended]).await.unwrap(),
        [SettleResult::Stale],
        "it is nobody's"
    );
    let again = remote.lease(&ask(1)).await.unwrap();
    assert_eq!(
        (
            again.len(),
            again[0].run.lost_leases,
            again[0].run.attempt()
        ),
        (1, 0, 1)
    );
}

#[tokio::test]
async fn a_gate_that_let_its_probes_through_is_asked_once_more_and_not_for_every_job() {
    let (backstop, store, clock) = flaky();
    let text = "[queues.q]\ndead = { gate = { deaths = 1, within = \"1m\" } }\n";
    let (config, attendance) = (config(text), SeenWorkers::default());
    let remote = backstop.http_workers(&config, &attendance);
    for n in 0..20 {
        backstop.draft("q").id(&n.to_string()).push().await.unwrap();
    }
    let handed = remote.lease(&ask(1)).await.unwrap().remove(0);
    remote.settle(vec![dead(&handed)]).await.unwrap();
    assert!(
        remote.lease(&ask(20)).await.unwrap().is_empty(),
        "its gate is shut"
    );
    clock.advance(Span::minutes(1));
    // Every call is counted.
    store.set_odds(Odds {
        delay_after: 1.0,
        ..Odds::default()
    });
    let probes = remote.lease(&ask(20)).await.unwrap().len() as u64;
    assert!((1..10).contains(&probes), "{probes}");
    let (order, card, look, refusal) = (1, 1, 1, 1);
    assert_eq!(
        store.injected_into("cells", Fault::DelayAfter),
        order + card + look + probes + refusal
    );
}

#[test]
fn a_worker_is_noted_once_in_a_while_and_not_more_of_them_than_fit() {
    let (attendance, worker) = (SeenWorkers::default(), WorkerName::new("w"));
    let at = |secs| Time::from_millis(1_000_000).after(Span::secs(secs));
    let noted = |worker: &WorkerName, now| {
        let is_due = attendance.is_due(worker, now);
        if is_due {
            attendance.note(worker, &[], now);
        }
        is_due
    };
    assert!(noted(&worker, at(0)));
    assert!(!noted(&worker, at(4)));
    assert!(noted(&worker, at(5)));
    assert!(noted(&worker, at(1)), "after the clock was set back");
    for n in 0..NOTED_MAX + 10 {
        assert!(
            noted(&WorkerName::new(&n.to_string()), at(6)),
            "none is kept from being seen"
        );
    }
    assert!(attendance.lock_workers().len() <= NOTED_MAX);
    assert!(noted(&WorkerName::new("new"), at(60)));
    assert!(
        !noted(&WorkerName::new("new"), at(61)),
        "those that left made room"
    );
}

#[tokio::test]
async fn a_worker_whose_note_failed_is_noted_with_its_next_request() {
    let (backstop, store, _) = flaky();
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = backstop.http_workers(&config, &attendance);
    fail(&store, &[None, Some(Fault::Refused)]);
    remote.lease(&ask(1)).await.unwrap_err();
    assert_eq!(store.injected_into("beat", Fault::Refused), 1);
    remote.lease(&ask(1)).await.unwrap();
    assert_eq!(
        backstop
            .store()
            .workers(Span::hours(1), backstop.now())
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn a_queue_named_twice_is_asked_once() {
    let test = pushed(&["a", "b"]).await;
    let text = "[queues.q]\nrate_limit = { count = 4, per = \"60s\", over = \"5m\" }\n";
    let (config, attendance) = (config(text), SeenWorkers::default());
    let remote = test.backstop.http_workers(&config, &attendance);
    let twice = LeaseRequest {
        queues: vec![QueueName::new("q").unwrap(); 2],
        ..ask(4)
    };
    assert_eq!(remote.lease(&twice).await.unwrap().len(), 2);
    for name in ["c", "d"] {
        test.backstop.draft("q").id(name).push().await.unwrap();
    }
    assert_eq!(
        remote.lease(&twice).await.unwrap().len(),
        2,
        "leave that was not used was given back"
    );
}

#[tokio::test]
async fn the_shortest_lease_of_the_queues_holds_unless_one_is_asked_for() {
    let test = pushed(&["a", "b"]).await;
    let (config, attendance) = (
        config("[queues.q]\nlease = \"40s\"\n"),
        SeenWorkers::default(),
    );
    let remote = test.backstop.http_workers(&config, &attendance);
    let until = async |name: &str| {
        let job = test
            .backstop
            .job(JobId::named(name))
            .await
            .unwrap()
            .unwrap();
        job.held_by.unwrap().until.since(test.backstop.now())
    };
    remote.lease(&ask(1)).await.unwrap();
    assert_eq!(until("a").await, Span::secs(40));
    remote
        .lease(&LeaseRequest {
            lease: Some(Span::days(9)),
            ..ask(1)
        })
        .await
        .unwrap();
    assert_eq!(until("b").await, LEASE_MAX);
}

#[tokio::test]
async fn any_process_on_the_store_ends_what_another_handed_out() {
    let test = pushed(&["a"]).await;
    let (config, here, there) = (config(""), SeenWorkers::default(), SeenWorkers::default());
    let handed = test
        .backstop
        .http_workers(&config, &here)
        .lease(&ask(1))
        .await
        .unwrap()
        .remove(0);
    let ticket: LeaseToken = handed.token.to_string().parse().unwrap();
    let ended = SettleRequest {
        job: handed.run.lease.job,
        token: Some(ticket),
        ending: RunEnding::Done,
    };
    assert_eq!(
        test.backstop
            .http_workers(&config, &there)
            .settle(vec![ended])
            .await
            .unwrap(),
        [SettleResult::Applied]
    );
    assert_eq!(
        test.backstop
            .job(JobId::named("a"))
            .await
            .unwrap()
            .unwrap()
            .state,
        JobState::Done
    );
}

#[tokio::test]
async fn a_run_that_ends_at_another_server_counts_for_its_queue_and_not_for_its_kind_however_it_ended()
 {
    let (store, clock) = (Arc::new(MemoryStore::new()), start().clock);
    let here = Backstop::on(store.clone(), clock.clone(), RandomSource::seeded(1));
    let there = Backstop::on(store, clock, RandomSource::seeded(2));
    for name in ["a", "b", "c", "d"] {
        here.draft("q").id(name).push().await.unwrap();
    }
    let (config, attendance) = (config(""), SeenWorkers::default());
    let handed = here
        .http_workers(&config, &attendance)
        .lease(&ask(4))
        .await
        .unwrap();
    let failed = |handed: &LeasedJob| SettleRequest {
        ending: RunEnding::failed(ErrorReport::message("boom")),
        ..done(handed)
    };
    for (server, pair) in [&here, &there].into_iter().zip(handed.chunks(2)) {
        let ended = vec![done(&pair[0]), failed(&pair[1])];
        let said = server
            .http_workers(&config, &attendance)
            .settle(ended)
            .await
            .unwrap();
        assert_eq!(said, [SettleResult::Applied; 2]);
        server.run_times().write().await.unwrap();
    }
    let (now, grain) = (here.now(), crate::run_times::RunTimeResolution::Minute);
    let from = now.before(Span::hours(1));
    let kinds = here.run_times().kinds(grain, from, now).await.unwrap();
    let told: Vec<(u64, u64)> = kinds
        .iter()
        .map(|(.., spread)| (spread.runs(), spread.failed))
        .collect();
    assert_eq!(
        told,
        [(2, 1)],
        "half of what was handed out here and ended here has failed"
    );
    let queue = crate::run_times::RunTimeSubject::Queue(QueueName::new("q").unwrap());
    let rows = here.run_times().of(&queue, grain, from, now).await.unwrap();
    assert_eq!(rows.iter().map(|(_, spread)| spread.runs()).sum::<u64>(), 4);
}

#[tokio::test]
async fn a_beat_calls_no_settled_job_lost() {
    let test = pushed(&["done", "failed", "cancelled", "runs"]).await;
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = test.backstop.http_workers(&config, &attendance);
    let handed = remote.lease(&ask(4)).await.unwrap();
    let failed = SettleRequest {
        ending: RunEnding::failed(ErrorReport::message("no")),
        ..done(&handed[1])
    };
    assert_eq!(
        remote.settle(vec![done(&handed[0]), failed]).await.unwrap(),
        [SettleResult::Applied; 2]
    );
    let cancelled = handed[2].run.lease.job;
    let selection = Selection::Ids(vec![cancelled]);
    test.backstop
        .changes("ada")
        .amend(&selection, &AmendAction::Cancel)
        .await
        .unwrap();
    let held = handed
        .iter()
        .map(|one| (one.run.lease.job, Some(one.token.clone())))
        .collect();
    let worker = WorkerName::new("elsewhere");
    let beaten = remote
        .beat(&worker, &WorkerDescription::default(), held, None)
        .await
        .unwrap();
    assert_eq!(beaten.lost, [cancelled]);
}

#[tokio::test]
async fn what_is_done_in_a_queue_that_keeps_nothing_is_gone() {
    let test = pushed(&["a"]).await;
    let (config, attendance) = (
        config("[queues.q]\nkeep_done = \"0s\"\n"),
        SeenWorkers::default(),
    );
    let remote = test.backstop.http_workers(&config, &attendance);
    let handed = remote.lease(&ask(1)).await.unwrap().remove(0);
    let ended = SettleRequest {
        job: handed.run.lease.job,
        token: Some(handed.token),
        ending: RunEnding::Done,
    };
    assert_eq!(
        remote.settle(vec![ended]).await.unwrap(),
        [SettleResult::Applied]
    );
    assert_eq!(test.backstop.job(JobId::named("a")).await.unwrap(), None);
}

#[tokio::test]
async fn a_failure_names_the_worker_that_had_the_job() {
    let test = pushed(&["a"]).await;
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = test.backstop.http_workers(&config, &attendance);
    let handed = remote.lease(&ask(1)).await.unwrap().remove(0);
    let ending = RunEnding::failed(ErrorReport::message("no route"));
    let ended = SettleRequest {
        job: handed.run.lease.job,
        token: Some(handed.token),
        ending,
    };
    remote.settle(vec![ended]).await.unwrap();
    let failures = test
        .backstop
        .job(JobId::named("a"))
        .await
        .unwrap()
        .unwrap()
        .history
        .failures();
    assert_eq!(
        (failures[0].worker.as_str(), failures[0].attempt),
        ("elsewhere", 1)
    );
    assert!(failures[0].retry_in.is_some());
}

#[tokio::test]
async fn who_asks_again_and_again_makes_the_store_look_for_due_jobs_no_more_often() {
    let test = start();
    let store = Arc::new(Counted::new(Arc::new(MemoryStore::new())));
    let backstop = Backstop::on(store.clone(), test.clock.clone(), RandomSource::seeded(1));
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = backstop.http_workers(&config, &attendance);
    backstop
        .draft("q")
        .id("later")
        .after(Span::millis(30))
        .push()
        .await
        .unwrap();
    store.take_calls();
    for _ in 0..100 {
        assert!(remote.lease(&ask(1)).await.unwrap().is_empty());
    }
    let calls = store.take_calls();
    assert_eq!(
        (calls["promote"], calls["beat"], calls["claim"]),
        (1, 1, 100),
        "{calls:?}"
    );
    // Once for what the worker is asked for, once for its card.
    assert_eq!((calls["cells"], calls["swap"]), (2, 1), "{calls:?}");
    test.clock.advance(Span::millis(30));
    assert_eq!(
        remote.lease(&ask(1)).await.unwrap().len(),
        1,
        "what is due is still handed out at once"
    );
    // A clock that was set back does not stop it.
    let earlier = backstop.now().before(Span::hours(1));
    assert_eq!(
        attendance.promoted_within(Duration::from_millis(20), earlier),
        None
    );
}

#[tokio::test]
async fn the_work_of_one_request_is_bounded_however_many_queues_it_names() {
    let test = start();
    let store = Arc::new(Counted::new(Arc::new(MemoryStore::new())));
    let backstop = Backstop::on(store.clone(), test.clock.clone(), RandomSource::seeded(1));
    let (config, attendance) = (config(""), SeenWorkers::default());
    let queues: Vec<QueueName> = (0..256)
        .map(|n| QueueName::new(&format!("q{n}")).unwrap())
        .collect();
    let ask = LeaseRequest {
        queues,
        ..ask(1_000)
    };
    assert!(
        backstop
            .http_workers(&config, &attendance)
            .lease(&ask)
            .await
            .unwrap()
            .is_empty()
    );
    let calls = store.take_calls();
    assert!(calls.values().sum::<usize>() <= 8, "{calls:?}");
}

/// Takes over what has expired, as a keeper does.
async fn recovered(test: &TestBackstop) {
    use backstop_core::blame::judge_vanished;
    use backstop_core::port::SeizeRequest;
    let now = test.backstop.now();
    let number = test.backstop.random().lease_number();
    let seize = SeizeRequest {
        number,
        worker: WorkerName::new("keeper"),
        until: now.after(Span::secs(15)),
        max: 100,
        spared: Vec::new(),
    };
    let seized = test.backstop.store().seize(seize, now).await.unwrap().runs;
    test.backstop
        .store()
        .settle(judge_vanished(&seized, &BTreeSet::new(), now), now)
        .await
        .unwrap();
}

/// Suspects: jobs whose worker vanished.
async fn suspects(names: &[&str]) -> TestBackstop {
    let test = pushed(names).await;
    let (config, attendance) = (config(""), SeenWorkers::default());
    let died = LeaseRequest {
        worker: WorkerName::new("died"),
        ..ask(names.len())
    };
    assert_eq!(
        test.backstop
            .http_workers(&config, &attendance)
            .lease(&died)
            .await
            .unwrap()
            .len(),
        names.len()
    );
    test.clock.advance(Span::secs(16));
    recovered(&test).await;
    test
}

fn dead(handed: &LeasedJob) -> SettleRequest {
    let ending = RunEnding::Failed {
        cause: FailureCause::Failed,
        error: ErrorReport::message("poison"),
        advice: FailureAdvice::Dead,
        progressed: false,
    };
    SettleRequest {
        job: handed.run.lease.job,
        token: Some(handed.token.clone()),
        ending,
    }
}

fn done(handed: &LeasedJob) -> SettleRequest {
    SettleRequest {
        job: handed.run.lease.job,
        token: Some(handed.token.clone()),
        ending: RunEnding::Done,
    }
}

#[tokio::test]
async fn a_worker_with_many_requests_has_one_suspect_at_a_time() {
    let test = suspects(&["a", "b", "c"]).await;
    test.backstop
        .draft("q")
        .id("innocent")
        .push()
        .await
        .unwrap();
    let (config, here, there) = (config(""), SeenWorkers::default(), SeenWorkers::default());
    let remote = test.backstop.http_workers(&config, &here);
    let first = remote.lease(&ask(1)).await.unwrap().remove(0);
    // Whichever process is asked.
    let second = test
        .backstop
        .http_workers(&config, &there)
        .lease(&ask(4))
        .await
        .unwrap();
    let names: Vec<JobId> = second.iter().map(|handed| handed.run.lease.job).collect();
    assert_eq!(
        names,
        [JobId::named("innocent")],
        "what is no suspect runs beside it"
    );
    test.clock.advance(Span::secs(1));
    let another = LeaseRequest {
        worker: WorkerName::new("another"),
        ..ask(4)
    };
    assert_eq!(
        remote.lease(&another).await.unwrap().len(),
        1,
        "another worker has one of its own"
    );
    assert!(remote.lease(&ask(4)).await.unwrap().is_empty());
    assert_eq!(
        remote.settle(vec![done(&first)]).await.unwrap(),
        [SettleResult::Applied]
    );
    test.clock.advance(Span::secs(1));
    assert_eq!(
        remote.lease(&ask(4)).await.unwrap().len(),
        1,
        "it has ended"
    );
    let charged = test
        .backstop
        .job(first.run.lease.job)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(charged.lost_leases, 1);
}

#[tokio::test]
async fn of_a_worker_that_dies_again_and_again_one_suspect_is_charged() {
    let names: Vec<String> = (0..8).map(|n| n.to_string()).collect();
    let test = suspects(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let (config, attendance) = (config(""), SeenWorkers::default());
    for _ in 0..4 {
        // Eight slots that ask for themselves; then it dies.
        for _ in 0..8 {
            test.backstop
                .http_workers(&config, &attendance)
                .lease(&ask(1))
                .await
                .unwrap();
        }
        test.clock.advance(Span::secs(16));
        recovered(&test).await;
    }
    let mut charged = 0;
    for name in &names {
        let job = test
            .backstop
            .job(JobId::named(name))
            .await
            .unwrap()
            .unwrap();
        charged += job.lost_leases - 1;
    }
    assert_eq!(charged, 4, "each of its deaths has one name");
}

#[tokio::test]
async fn of_two_requests_at_once_one_gets_a_suspect() {
    let test = suspects(&["a", "b"]).await;
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = test.backstop.http_workers(&config, &attendance);
    let ask = ask(1);
    let (one, two) = tokio::join!(remote.lease(&ask), remote.lease(&ask));
    assert_eq!(one.unwrap().len() + two.unwrap().len(), 1);
}

#[tokio::test]
async fn a_late_end_of_a_run_that_was_taken_over_is_an_overlap_once() {
    let test = pushed(&["a"]).await;
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = test.backstop.http_workers(&config, &attendance);
    let began_at = test.backstop.now();
    let late = remote.lease(&ask(1)).await.unwrap().remove(0);
    test.clock.advance(Span::secs(16));
    recovered(&test).await;
    let noticed_at = test.backstop.now();
    let rerun = remote
        .lease(&LeaseRequest {
            worker: WorkerName::new("another"),
            ..ask(1)
        })
        .await
        .unwrap()
        .remove(0);
    test.clock.advance(Span::secs(1));
    assert_eq!(
        remote.settle(vec![done(&rerun)]).await.unwrap(),
        [SettleResult::Applied]
    );
    for _ in 0..3 {
        assert_eq!(
            remote.settle(vec![done(&late)]).await.unwrap(),
            [SettleResult::Stale]
        );
        test.clock.advance(Span::secs(1));
    }
    let overlaps = test.backstop.overlaps(10).await.unwrap();
    assert_eq!(overlaps.len(), 1, "{overlaps:?}");
    let overlap = &overlaps[0];
    assert_eq!(
        (overlap.worker.as_str(), overlap.job),
        ("elsewhere", JobId::named("a"))
    );
    assert_eq!(
        (overlap.began_at, overlap.noticed_at),
        (began_at, noticed_at)
    );
    assert_eq!(overlap.ended_at, noticed_at.after(Span::secs(1)));
}

#[tokio::test]
async fn a_late_end_of_a_run_that_was_taken_over_without_a_charge_is_an_overlap_while_the_job_runs()
{
    // Beside a suspect that had begun: given back, not charged.
    let test = suspects(&["suspect"]).await;
    test.backstop
        .draft("q")
        .id("innocent")
        .push()
        .await
        .unwrap();
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = test.backstop.http_workers(&config, &attendance);
    let late = remote.lease(&ask(2)).await.unwrap();
    let late = late
        .iter()
        .find(|one| one.run.lease.job == JobId::named("innocent"))
        .unwrap();
    test.clock.advance(Span::secs(16));
    recovered(&test).await;
    let another = LeaseRequest {
        worker: WorkerName::new("another"),
        ..ask(2)
    };
    assert_eq!(remote.lease(&another).await.unwrap().len(), 2);
    assert_eq!(
        remote.settle(vec![done(late)]).await.unwrap(),
        [SettleResult::Stale]
    );
    let overlaps = test.backstop.overlaps(10).await.unwrap();
    assert_eq!(
        overlaps
            .iter()
            .map(|overlap| overlap.job)
            .collect::<Vec<_>>(),
        [JobId::named("innocent")]
    );
}

#[tokio::test]
async fn an_end_that_is_told_again_in_other_words_is_no_overlap() {
    let test = pushed(&["a"]).await;
    let (config, attendance) = (config(""), SeenWorkers::default());
    let remote = test.backstop.http_workers(&config, &attendance);
    let handed = remote.lease(&ask(1)).await.unwrap().remove(0);
    let failed = SettleRequest {
        ending: RunEnding::failed(ErrorReport::message("no")),
        ..done(&handed)
    };
    assert_eq!(
        remote.settle(vec![failed]).await.unwrap(),
        [SettleResult::Applied]
    );
    assert_eq!(
        remote.settle(vec![done(&handed)]).await.unwrap(),
        [SettleResult::Stale]
    );
    test.clock.advance(Span::minutes(5));
    assert_eq!(
        remote.lease(&ask(1)).await.unwrap().len(),
        1,
        "it runs again, as another attempt"
    );
    assert_eq!(
        remote.settle(vec![done(&handed)]).await.unwrap(),
        [SettleResult::Stale]
    );
    assert_eq!(test.backstop.overlaps(10).await.unwrap(), []);
}
