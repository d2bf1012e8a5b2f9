mod alerts;

use super::super::cached_query::SchedulesAndSweeps;
use super::super::gather::{HaltedKeys, UnservedKeys};
use super::*;
use crate::bulk;
use crate::doctor::DoctorReport;
use crate::history::{QueueSeries, SeriesPoint, StreamAlarms, StreamSeries};
use backstop::rate_limits::RateStatus;
use backstop::sweeps::PastRun;
use backstop_core::port::{ExpiredLeases, QueueTotals, StateCounts, StreamStatus, WorkerStatus};
use backstop_core::stream::StreamAlarm;
use backstop_core::{QueueBounds, Time, WorkerName};

fn now() -> Time {
    Time::from_millis(1_767_225_600_000)
}

fn name(text: &str) -> QueueName {
    QueueName::new(text).unwrap()
}

/// A store in which nothing is wrong, since nothing is in it.
fn calm() -> OverviewFacts {
    OverviewFacts {
        now: now(),
        queues: Vec::new(),
        workers: Vec::new(),
        guards: Vec::new(),
        rates: Vec::new(),
        groups: Vec::new(),
        overdue: ExpiredLeases::default(),
        streams: Vec::new(),
        alarms: StreamAlarms::default(),
        halted: Vec::new(),
        unserved: Vec::new(),
        schedules_and_sweeps: SchedulesAndSweeps::default(),
        bulk: Vec::new(),
        overlaps: Vec::new(),
        opinion: DoctorReport::default(),
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
    let mut counts = StateCounts::default();
    *counts.of_mut(JobState::Ready) = ready;
    *counts.of_mut(JobState::Dead) = dead;
    QueueStatus {
        name: name("emails"),
        state: QueueState::Active,
        counts,
        totals: QueueTotals::default(),
        next_ready: (ready > 0).then(now),
        bounds: QueueBounds {
            dead_max: 10,
            ..QueueBounds::default()
        },
    }
}

fn series(values: &[f64]) -> TimeSeries {
    let points = values.iter().map(|value| SeriesPoint {
        at: now(),
        value: Some(*value),
    });
    TimeSeries {
        points: points.collect(),
    }
}

/// Exactly this problem is found, and this number and these words are told.
fn check(facts: &OverviewFacts, kind: &str, number: &str, words: &str) {
    let found = problems(facts, "");
    let pairs: Vec<_> = found
        .iter()
        .map(|problem| (problem.kind, problem.number.as_str()))
        .collect();
    assert_eq!(pairs, [(kind, number)]);
    assert!(found[0].sentence.contains(words), "{}", found[0].sentence);
}

fn check_none(facts: &OverviewFacts) {
    assert_eq!(problems(facts, ""), []);
}

#[test]
fn a_queue_grows_if_much_more_is_ready_than_minutes_ago() {
    let recent = |values: &[f64]| {
        let ready = QueueSeries {
            ready: series(values),
            ..QueueSeries::default()
        };
        OverviewFacts {
            queues: vec![queue(300, 0)],
            recent: [(name("emails"), ready)].into(),
            ..calm()
        }
    };
    check(
        &recent(&[200.0, 250.0, 300.0]),
        "growing",
        "300 ready",
        "Queue emails grows",
    );
    check_none(&recent(&[250.0, 400.0, 300.0]));
    check_none(&recent(&[10.0, 99.0]));
}

#[test]
fn a_served_queue_is_behind_once_its_oldest_job_is_late() {
    let waiting = |since| {
        let next_ready = Some(now().before(since));
        OverviewFacts {
            queues: vec![QueueStatus {
                next_ready,
                ..queue(2, 0)
            }],
            ..calm()
        }
    };
    check(
        &waiting(Span::minutes(6)),
        "behind",
        "6 min",
        "Queue emails is behind: 2 jobs are ready",
    );
    check_none(&waiting(Span::minutes(5)));
}

#[test]
fn a_deaf_worker_is_told_by_its_name() {
    let deaf = OverviewFacts {
        workers: vec![worker(3, Span::minutes(1))],
        ..calm()
    };
    check(
        &deaf,
        "deaf worker",
        "3 jobs",
        "Worker worker-7 holds 3 jobs and has not been heard for 1 min",
    );
    check_none(&OverviewFacts {
        workers: vec![worker(0, Span::minutes(1)), worker(3, Span::secs(5))],
        ..calm()
    });
}

#[test]
fn misses_of_a_stream_are_told_while_they_are_recent() {
    let recent = |values: &[f64]| {
        let misses = StreamSeries {
            misses: series(values),
            ..StreamSeries::default()
        };
        OverviewFacts {
            recent_streams: [("uptime".parse().unwrap(), misses)].into(),
            ..calm()
        }
    };
    check(
        &recent(&[0.0, 0.5, 0.0]),
        "misses",
        "0.5/s at most",
        "Stream uptime gave up waiting",
    );
    check_none(&recent(&[0.0, 0.0]));
}

#[test]
fn halted_keys_are_counted_and_it_is_said_where_not_all_were() {
    let halted = |is_partial| {
        let halted = HaltedKeys {
            stream: "uptime".parse().unwrap(),
            count: 2,
            is_partial,
        };
        OverviewFacts {
            halted: vec![halted],
            ..calm()
        }
    };
    check(&halted(false), "halted keys", "2 keys", "In stream uptime");
    check(
        &halted(true),
        "halted keys",
        "at least 2 keys",
        "In stream uptime",
    );
}

#[test]
fn dead_letters_are_nearly_full_and_then_full() {
    let letters = |dead| OverviewFacts {
        queues: vec![queue(0, dead)],
        ..calm()
    };
    check_none(&letters(7));
    check(
        &letters(8),
        "dead letters nearly full",
        "80 %",
        "8 of at most 10",
    );
    check(
        &letters(10),
        "dead letters full",
        "100 %",
        "then kinds that die stop",
    );
}

/// Three leases, of which the first ended so long ago.
fn left_behind(ago: Span) -> ExpiredLeases {
    ExpiredLeases {
        count: 3,
        first: Some(now().before(ago)),
    }
}

#[test]
fn a_lease_that_nobody_took_over_is_told_with_its_age() {
    check(
        &OverviewFacts {
            overdue: left_behind(Span::minutes(2)),
            ..calm()
        },
        "lease over",
        "2 min",
        "lost their worker, under 3 leases",
    );
}

/// A run of a sweep in which everything was as it should be.
fn swept() -> PastRun {
    let run = serde_json::json!({
        "at": now(), "took": "40ms", "runner": "w", "found": 0, "alive": 0, "dead": 0, "enqueued": 0, "buried": 0, "unusable": 0,
    });
    serde_json::from_value(run).unwrap()
}

fn sweeps(run: PastRun) -> OverviewFacts {
    OverviewFacts {
        schedules_and_sweeps: SchedulesAndSweeps {
            sweeps: vec![("orders".to_owned(), run)],
            ..SchedulesAndSweeps::default()
        },
        ..calm()
    }
}

#[test]
fn what_the_last_run_of_a_sweep_says_is_told() {
    check_none(&sweeps(swept()));
    let failed = PastRun {
        error: Some("no such table: orders.".to_owned()),
        ..swept()
    };
    check(
        &sweeps(failed),
        "sweep fails",
        "",
        "finds no lost work meanwhile: no such table: orders.",
    );
    check(
        &sweeps(PastRun {
            enqueued: 3,
            ..swept()
        }),
        "lost work found",
        "3 rows",
        "Sweep orders",
    );
    check(
        &sweeps(PastRun {
            unseen: true,
            ..swept()
        }),
        "sweep unseen",
        "",
        "more rows than a run can look at",
    );
    let unmatched = PastRun {
        rows_without_jobs: Some(2),
        jobs_without_rows: Some(1),
        ..swept()
    };
    check(&sweeps(unmatched), "unmatched", "3", "do not match");
}

/// A stream with so many records held.
fn stream(records: u64) -> StreamStatus {
    let counts = backstop_core::stream::StreamCounts::default();
    StreamStatus {
        name: "uptime".parse().unwrap(),
        keys: 1,
        holding: 1,
        records,
        oldest: None,
        counts,
    }
}

fn ringing(alarm: StreamAlarm) -> OverviewFacts {
    let alarms = StreamAlarms::default().with("uptime".parse().unwrap(), vec![alarm]);
    OverviewFacts {
        streams: vec![stream(7)],
        alarms,
        ..calm()
    }
}

#[test]
fn alarms_of_streams_are_problems() {
    check(
        &ringing(StreamAlarm::TimeoutRate),
        "stream timeouts",
        "in ten minutes",
        "time out",
    );
    check(
        &ringing(StreamAlarm::OverflowRate),
        "stream overflows",
        "in ten minutes",
        "overflow their key",
    );
    check(
        &ringing(StreamAlarm::HeldGrowing),
        "stream holds more",
        "7 records held",
        "held every minute",
    );
}

#[test]
fn a_stream_whose_keys_nobody_looks_at_is_stuck() {
    let due = |longest| {
        let stream = "uptime".parse().unwrap();
        OverviewFacts {
            unserved: vec![UnservedKeys {
                stream,
                count: 2,
                longest,
                is_partial: false,
            }],
            ..calm()
        }
    };
    check(
        &due(Span::minutes(3)),
        "stream stuck",
        "3 min",
        "Nobody looks at 2 keys of stream uptime that are due",
    );
    check_none(&due(Span::secs(20)));
}

/// A bulk action that began long ago.
fn action(changes: &serde_json::Value) -> bulk::BulkReport {
    let mut report = serde_json::json!({
        "id": "b1", "who": "ada", "expected": null, "back": "/jobs", "started_at": now().before(Span::hours(3)),
        "target": { "what": "job retry", "deed": "retry", "to": null, "which": { "letters": {} } },
        "ended_at": null, "seen_at": now(), "count": 12, "refused": 0, "refusals": [], "error": null,
        "is_stop_asked": false, "cursor": null, "runner": 1,
    });
    for (name, value) in changes.as_object().unwrap() {
        report[name] = value.clone();
    }
    serde_json::from_value(report).unwrap()
}

#[test]
fn a_bulk_action_is_told_while_nobody_runs_it_and_for_an_hour_after_it_failed() {
    let facts_with = |changes| OverviewFacts {
        bulk: vec![action(&changes)],
        ..calm()
    };
    check_none(&facts_with(serde_json::json!({})));
    let silent = serde_json::json!({ "seen_at": now().before(Span::minutes(1)) });
    check(
        &facts_with(silent),
        "bulk action silent",
        "12 jobs done",
        "the action job retry that ada started",
    );
    let failed =
        |ago| serde_json::json!({ "ended_at": now().before(ago), "error": "the store is gone" });
    check(
        &facts_with(failed(Span::minutes(59))),
        "bulk action failed",
        "12 jobs done",
        "could not go on: the store is gone.",
    );
    check_none(&facts_with(failed(Span::minutes(61))));
}

#[test]
fn an_overlap_is_told_for_an_hour() {
    let overlap = |ago| {
        let (id, ended) = (backstop_core::JobId::from_bytes([0; 16]), now().before(ago));
        let overlap = serde_json::json!({
            "job": id, "queue": "emails", "kind": "k", "worker": "w", "lease": "1",
            "began_at": ended, "noticed_at": ended, "ended_at": ended,
        });
        OverviewFacts {
            overlaps: vec![serde_json::from_value(overlap).unwrap()],
            ..calm()
        }
    };
    check(
        &overlap(Span::minutes(5)),
        "overlap",
        "1 run",
        "went on after its lease was lost",
    );
    check_none(&overlap(Span::hours(2)));
}

#[test]
fn an_opinion_of_the_doctor_that_is_old_is_told() {
    let looked = |ago| {
        let found = crate::doctor::DoctorFindings {
            at: now().before(ago),
            findings: std::sync::Arc::default(),
        };
        OverviewFacts {
            opinion: DoctorReport {
                found: Some(found),
                ..DoctorReport::default()
            },
            ..calm()
        }
    };
    check_none(&looked(Span::minutes(59)));
    check(
        &looked(Span::minutes(61)),
        "doctor",
        "",
        "last examined 1 h 1 min ago",
    );
}

#[test]
fn jobs_that_a_rate_limit_keeps_back_are_a_problem_while_it_does() {
    let limited_until = |ago: Span, scheduled: u64, room_at: Time| {
        let mut queue = queue(0, 0);
        *queue.counts.of_mut(JobState::Scheduled) = scheduled;
        let limit = serde_json::from_str(r#"{"count":5,"per":"1s","over":"5m"}"#).unwrap();
        let rate = RateStatus {
            limit,
            room_at,
            refused_at: Some(now().before(ago)),
        };
        OverviewFacts {
            queues: vec![queue],
            rates: vec![(name("emails"), rate)],
            ..calm()
        }
    };
    let limited = |ago, scheduled| limited_until(ago, scheduled, now());
    let words = "Queue emails is over its rate limit of 5 per 1s";
    let check_limited = |facts: &OverviewFacts| check(facts, "rate limit", "11 wait", words);
    check_limited(&limited(Span::secs(5), 11));
    check_none(&limited(Span::secs(5), 0));
    check_limited(&limited(Span::minutes(2), 11));
    check_none(&limited(Span::minutes(6), 11));
    let room_at = now().after(Span::secs(1));
    check_limited(&limited_until(Span::minutes(6), 11, room_at));
}
