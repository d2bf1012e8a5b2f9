use super::*;
use crate::failure::{FailureHistory, FailureRecord};
use crate::job::{JobId, Priority};
use crate::job_options::JobOptions;
use crate::lease::{Lease, LeaseNumber};
use crate::name::{Kind, QueueName};
use crate::payload::Payload;
use crate::time::Span;
use crate::verdict::{EndReason, LostLease};
use proptest::prelude::*;

const NOW: Time = Time::from_millis(1_000_000_000);

/// A job of a vanished worker. `losses` says how many hours ago it lost its leases.
fn seized(job: &str, worker: &str, losses: &[i64], begun: bool) -> SeizedRun {
    let (worker, job) = (WorkerName::new(worker), JobId::named(job));
    let lease = Lease {
        queue: QueueName::new("q").expect("a name"),
        job,
        number: LeaseNumber::draw(1),
    };
    let lost = |hours: &i64| {
        FailureRecord::of_lost_lease(
            NOW.before(Span::hours(*hours)),
            1,
            &WorkerName::new("former"),
            LeaseNumber::draw(2),
            job,
        )
    };
    let history = losses
        .iter()
        .fold(FailureHistory::default(), |history, hours| {
            history.with_failure(lost(hours))
        });
    let run = LeasedRun {
        lease: lease.clone(),
        kind: Kind::default(),
        payload: Payload::json(&b"{}"[..]).expect("JSON"),
        priority: Priority::Normal,
        attempts_before: 0,
        lost_leases: u32::try_from(losses.len()).expect("few"),
        inserted_at: NOW,
        run_at: NOW,
        options: JobOptions::default(),
        history,
    };
    SeizedRun {
        run,
        vanished: LostLease { worker, lease },
        begun,
    }
}

fn described(settlement: &Settlement) -> &'static str {
    match &settlement.outcome {
        Outcome::Lost { .. } => "charged",
        Outcome::Released { at } if *at == NOW => "given back",
        Outcome::Dead {
            reason: EndReason::CrashedWorker,
            ..
        } => "dead",
        other => unreachable!("{other:?}"),
    }
}

/// Checks jobs, given as (worker, hours since their lost leases, begun, expected outcome).
fn check(jobs: &[(&str, &[i64], bool, &str)]) {
    let batch: Vec<SeizedRun> = jobs
        .iter()
        .enumerate()
        .map(|(n, (worker, losses, begun, _))| seized(&n.to_string(), worker, losses, *begun))
        .collect();
    let judged = judge_vanished(&batch, &BTreeSet::new(), NOW);
    let seen: Vec<&str> = judged.iter().map(described).collect();
    assert_eq!(
        seen,
        jobs.iter()
            .map(|(.., expected)| *expected)
            .collect::<Vec<_>>(),
        "{jobs:?}"
    );
}

#[test]
fn where_nobody_is_suspected_all_are() {
    check(&[
        ("w", &[], false, "charged"),
        ("w", &[], false, "charged"),
        ("w", &[], true, "charged"),
    ]);
}

#[test]
fn of_a_worker_that_died_with_a_suspect_at_work_the_suspect_alone_is_charged() {
    check(&[
        ("w", &[], false, "given back"),
        ("w", &[1], true, "charged"),
        ("w", &[1], false, "given back"),
        ("w", &[], false, "given back"),
    ]);
}

#[test]
fn the_third_loss_of_a_suspect_is_its_death() {
    check(&[
        ("w", &[2, 1], true, "dead"),
        ("w", &[2, 1], false, "given back"),
    ]);
}

#[test]
fn a_suspect_that_only_waited_is_never_charged_and_clears_nobody_else() {
    check(&[
        ("w", &[1], false, "given back"),
        ("w", &[], false, "charged"),
    ]);
    check(&[("w", &[2, 1], false, "given back")]);
}

#[test]
fn a_loss_of_long_ago_makes_no_suspect() {
    check(&[("w", &[73], true, "charged"), ("w", &[], false, "charged")]);
    check(&[
        ("w", &[74, 73], true, "given back"),
        ("w", &[72], true, "charged"),
        ("w", &[73], false, "given back"),
    ]);
}

#[test]
fn every_worker_is_judged_by_itself() {
    check(&[
        ("one", &[1], true, "charged"),
        ("two", &[], false, "charged"),
        ("one", &[], false, "given back"),
        ("two", &[1], false, "given back"),
    ]);
}

#[test]
fn where_several_suspects_had_begun_each_may_have_done_it() {
    check(&[
        ("w", &[1], true, "charged"),
        ("w", &[1, 2], true, "dead"),
        ("w", &[], false, "given back"),
    ]);
}

#[test]
fn what_an_earlier_batch_showed_of_a_worker_holds_for_the_rest_of_its_jobs() {
    let first = [seized("killer", "w", &[1], true)];
    let known: BTreeSet<WorkerName> = workers_lost_with_suspect_running(&first, NOW)
        .cloned()
        .collect();
    let rest = [
        seized("beside", "w", &[], false),
        seized("elsewhere", "x", &[], false),
    ];
    let judged = judge_vanished(&rest, &known, NOW);
    assert_eq!(
        judged.iter().map(described).collect::<Vec<_>>(),
        ["given back", "charged"]
    );
}

#[test]
fn the_dead_names_the_workers_it_took_along() {
    let judged = judge_vanished(
        &[seized("killer", "third", &[2, 1], true)],
        &BTreeSet::new(),
        NOW,
    );
    let Outcome::Dead { history, .. } = &judged[0].outcome else {
        unreachable!("{judged:?}")
    };
    assert_eq!(
        history.lost_workers(NOW, LOST_WITHIN),
        ["former", "former", "third"]
    );
}

/// A queue that one process after another works off. Each process dies when it runs the poison job.
/// `losses` counts lost leases by job, the poison job first; `done` lists finished jobs.
struct World {
    line: Vec<usize>,
    losses: Vec<u32>,
    done: Vec<usize>,
}

const POISON: usize = 0;

impl World {
    /// One process claims from the front of the queue, as a worker does: it runs one suspect, and
    /// other jobs beside it.
    fn work(&mut self, concurrency: usize, prefetch: usize) {
        let held: Vec<usize> = self
            .line
            .iter()
            .take(concurrency + prefetch)
            .copied()
            .collect();
        let suspect = held.iter().find(|job| self.losses[**job] > 0).copied();
        let others = held.iter().filter(|job| self.losses[**job] == 0).copied();
        let runs: Vec<usize> = suspect
            .into_iter()
            .chain(others)
            .take(concurrency)
            .collect();
        if runs.contains(&POISON) {
            self.crash(&held, suspect);
        } else {
            self.line.retain(|job| !runs.contains(job));
            self.done.extend(runs);
        }
    }

    fn crash(&mut self, held: &[usize], suspect: Option<usize>) {
        let seize = |job: &usize| {
            let losses = vec![1; self.losses[*job] as usize];
            seized(&job.to_string(), "w", &losses, suspect == Some(*job))
        };
        let batch: Vec<SeizedRun> = held.iter().map(seize).collect();
        for (job, settlement) in held
            .iter()
            .zip(judge_vanished(&batch, &BTreeSet::new(), NOW))
        {
            let verdict = described(&settlement);
            self.losses[*job] += u32::from(verdict != "given back");
            if verdict == "dead" {
                self.line.retain(|waiting| waiting != job);
            }
        }
    }
}

proptest! {
    #[test]
    fn among_many_the_poison_alone_dies_and_nobody_else_is_charged_twice(
        innocents in 0..40_usize, place in 0..40_usize, concurrency in 1..6_usize, prefetch in 0..6_usize,
    ) {
        let mut line: Vec<usize> = (1..=innocents).collect();
        line.insert(place.min(innocents), POISON);
        let mut world = World { line, losses: vec![0; innocents + 1], done: Vec::new() };
        for _ in 0..200 {
            world.work(concurrency, prefetch);
        }
        prop_assert_eq!(world.line.len(), 0);
        prop_assert_eq!(world.done.len(), innocents);
        prop_assert_eq!(world.losses[POISON], 3);
        prop_assert!(world.losses[1..].iter().all(|losses| *losses <= 1), "{:?}", world.losses);
    }
}
