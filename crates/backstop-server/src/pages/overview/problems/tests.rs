use super::super::gather::Halted;
use super::*;
use crate::doctor::Opinion;
use crate::history::{Point, QueueSeries, StreamSeries};
use backstop_core::port::{Counts, Totals, WorkerStatus};
use backstop_core::{Bounds, Time, WorkerName};

fn now() -> Time {
    Time::from_millis(1_767_225_600_000)
}

fn name(text: &str) -> QueueName {
    QueueName::new(text).unwrap()
}

/// A store in which nothing is wrong, since nothing is in it.
fn calm() -> Facts {
    Facts {
        now: now(),
        queues: Vec::new(),
        workers: Vec::new(),
        guards: Vec::new(),
        groups: Vec::new(),
        overdue: None,
        streams: Vec::new(),
        halted: Vec::new(),
        missed: BTreeMap::new(),
        opinion: Opinion::default(),
        recent: BTreeMap::new(),
        recent_streams: BTreeMap::new(),
        failing: Vec::new(),
        stalled: Vec::new(),
        taking: vec![worker(0, Span::ZERO)],
    }
}

/// A worker that has so many jobs, and was heard so long ago.
fn worker(running: u64, ago: Span) -> WorkerStatus {
    WorkerStatus {
        name: WorkerName::new("worker-7"),
        queues: vec![name("emails")],
        seen_at: now().before(ago),
        running,
    }
}

/// A queue that somebody serves, with so many ready jobs and dead letters.
fn queue(ready: u64, dead: u64) -> QueueStatus {
    let mut counts = Counts::default();
    *counts.of_mut(State::Ready) = ready;
    *counts.of_mut(State::Dead) = dead;
    QueueStatus {
        name: name("emails"),
        gate: Gate::Open,
        counts,
        totals: Totals::default(),
        next_ready: (ready > 0).then(now),
        bounds: Bounds { dead_max: 10, ..Bounds::default() },
    }
}

fn series(values: &[f64]) -> Series {
    let points = values.iter().map(|value| Point { at: now(), value: Some(*value) });
    Series { points: points.collect() }
}

/// Exactly this problem is found, and this number and these words are told.
fn check(facts: &Facts, kind: &str, number: &str, words: &str) {
    let found = problems(facts, "");
    let told: Vec<_> = found.iter().map(|problem| (problem.kind, problem.number.as_str())).collect();
    assert_eq!(told, [(kind, number)]);
    assert!(found[0].sentence.contains(words), "{}", found[0].sentence);
}

fn check_none(facts: &Facts) {
    assert_eq!(problems(facts, ""), []);
}

#[test]
fn a_queue_grows_if_much_more_is_ready_than_minutes_ago() {
    let recent = |values: &[f64]| {
        let ready = QueueSeries { ready: series(values), ..QueueSeries::default() };
        Facts { queues: vec![queue(300, 0)], recent: [(name("emails"), ready)].into(), ..calm() }
    };
    check(&recent(&[200.0, 250.0, 300.0]), "growing", "300 ready", "Queue emails grows");
    check_none(&recent(&[250.0, 400.0, 300.0]));
    check_none(&recent(&[10.0, 99.0]));
}

#[test]
fn a_served_queue_is_behind_once_its_oldest_job_is_late() {
    let waiting = |since| {
        let next_ready = Some(now().before(since));
        Facts { queues: vec![QueueStatus { next_ready, ..queue(2, 0) }], ..calm() }
    };
    check(&waiting(Span::minutes(6)), "behind", "6 min", "Queue emails is behind: 2 jobs are ready");
    check_none(&waiting(Span::minutes(5)));
}

#[test]
fn a_deaf_worker_is_told_by_its_name() {
    let deaf = Facts { workers: vec![worker(3, Span::minutes(1))], ..calm() };
    check(&deaf, "deaf worker", "3 jobs", "Worker worker-7 holds 3 jobs and has not been heard for 1 min");
    check_none(&Facts { workers: vec![worker(0, Span::minutes(1)), worker(3, Span::secs(5))], ..calm() });
}

#[test]
fn misses_of_a_stream_are_told_while_they_are_recent() {
    let recent = |values: &[f64]| {
        let misses = StreamSeries { misses: series(values), ..StreamSeries::default() };
        Facts { recent_streams: [("uptime".parse().unwrap(), misses)].into(), ..calm() }
    };
    check(&recent(&[0.0, 0.5, 0.0]), "misses", "0.5/s at most", "Stream uptime gave up waiting");
    check_none(&recent(&[0.0, 0.0]));
}

#[test]
fn halted_keys_are_counted_and_it_is_said_where_not_all_were() {
    let halted = |is_partial| {
        let halted = Halted { stream: "uptime".parse().unwrap(), count: 2, is_partial };
        Facts { halted: vec![halted], ..calm() }
    };
    check(&halted(false), "halted keys", "2 keys", "In stream uptime");
    check(&halted(true), "halted keys", "at least 2 keys", "In stream uptime");
}

#[test]
fn dead_letters_are_nearly_full_and_then_full() {
    let letters = |dead| Facts { queues: vec![queue(0, dead)], ..calm() };
    check_none(&letters(7));
    check(&letters(8), "dead letters nearly full", "80 %", "8 of at most 10");
    check(&letters(10), "dead letters full", "100 %", "then kinds that die stop");
}

#[test]
fn a_lease_that_nobody_took_over_is_told_with_its_age() {
    check(&Facts { overdue: Some(Span::minutes(2)), ..calm() }, "lease over", "2 min", "lost their worker");
}
