//! Whoever is woken by Prometheus finds what woke him on the overview.

use super::SchedulesAndSweeps as Seldom;
use super::*;
use crate::alerts::RULES;
use backstop::breakers::BreakerInfo;
use backstop_core::breaker::{BreakerAdmission, BreakerPhase, BreakerSettings, BreakerStatus};
use backstop_core::port::DeadLetterGroup;
use std::collections::BTreeSet;

/// Where an alert is seen on the overview.
enum Place {
    /// As a problem of this kind, where this is so.
    Problem(&'static str, fn() -> OverviewFacts),
    /// Elsewhere, and why.
    Elsewhere(&'static str),
}

const ALERTS: [(&str, Place); 23] = [
    (
        "BackstopStoreDown",
        Place::Elsewhere("no page can be made: each says that the store does not answer"),
    ),
    (
        "BackstopNotScraped",
        Place::Elsewhere("it is about Prometheus"),
    ),
    (
        "BackstopPromiseBroken",
        Place::Problem("doctor", || opinion(FindingSeverity::Bad)),
    ),
    (
        "BackstopDoctorFails",
        Place::Problem("doctor", failing_doctor),
    ),
    ("BackstopDoctorOld", Place::Problem("doctor", old_doctor)),
    (
        "BackstopQueueNotServed",
        Place::Problem("stuck", || waiting("orders", Span::minutes(5))),
    ),
    (
        "BackstopQueueStuck",
        Place::Problem("behind", || waiting("emails", Span::minutes(15))),
    ),
    ("BackstopDeadLettersGrowing", Place::Problem("dying", dying)),
    (
        "BackstopDeadLettersDeep",
        Place::Problem("dead letters nearly full", || OverviewFacts {
            queues: vec![queue(0, 9)],
            ..calm()
        }),
    ),
    (
        "BackstopExpiredLeases",
        Place::Problem("lease over", || OverviewFacts {
            overdue: left_behind(Span::secs(80)),
            ..calm()
        }),
    ),
    (
        "BackstopRecoverySlow",
        Place::Elsewhere(
            "only the process that took the jobs over knows; while they wait, their queue is behind",
        ),
    ),
    (
        "BackstopScheduleUnfired",
        Place::Problem("missed schedule", || schedules().0),
    ),
    (
        "BackstopScheduleMissed",
        Place::Problem("runs given up", || schedules().1),
    ),
    (
        "BackstopSweepFound",
        Place::Problem("lost work found", || {
            sweeps(PastRun {
                enqueued: 1,
                ..swept()
            })
        }),
    ),
    (
        "BackstopSweepFailed",
        Place::Problem("sweep fails", || {
            sweeps(PastRun {
                error: Some("boom".to_owned()),
                ..swept()
            })
        }),
    ),
    (
        "BackstopSweepUnseen",
        Place::Problem("sweep unseen", || {
            sweeps(PastRun {
                unseen: true,
                ..swept()
            })
        }),
    ),
    (
        "BackstopTableFailing",
        Place::Problem("table fails", failing_table),
    ),
    (
        "BackstopReconcileUnmatched",
        Place::Problem("unmatched", || {
            sweeps(PastRun {
                jobs_without_rows: Some(1),
                ..swept()
            })
        }),
    ),
    (
        "BackstopBreakerOpen",
        Place::Problem("breaker open", || shut("emails")),
    ),
    (
        "BackstopGateShut",
        Place::Problem("gate shut", || shut("emails/welcome")),
    ),
    (
        "BackstopStreamTimeouts",
        Place::Problem("stream timeouts", || ringing(StreamAlarm::TimeoutRate)),
    ),
    (
        "BackstopStreamOverflows",
        Place::Problem("stream overflows", || ringing(StreamAlarm::OverflowRate)),
    ),
    (
        "BackstopStreamHeldGrowing",
        Place::Problem("stream holds more", || ringing(StreamAlarm::HeldGrowing)),
    ),
];

fn opinion(grade: FindingSeverity) -> OverviewFacts {
    let finding = StoreFinding {
        severity: grade,
        what: "the disk is not waited for".to_owned(),
        advice: None,
    };
    let findings = std::sync::Arc::new(vec![finding]);
    let found = crate::doctor::DoctorFindings {
        at: now(),
        findings,
    };
    OverviewFacts {
        opinion: DoctorReport {
            found: Some(found),
            ..DoctorReport::default()
        },
        ..calm()
    }
}

fn failing_doctor() -> OverviewFacts {
    OverviewFacts {
        opinion: DoctorReport {
            failed: Some("no answer".to_owned()),
            ..DoctorReport::default()
        },
        ..calm()
    }
}

fn old_doctor() -> OverviewFacts {
    let found = crate::doctor::DoctorFindings {
        at: now().before(Span::hours(2)),
        findings: std::sync::Arc::default(),
    };
    OverviewFacts {
        opinion: DoctorReport {
            found: Some(found),
            ..DoctorReport::default()
        },
        ..calm()
    }
}

fn waiting(queue_name: &str, waited: Span) -> OverviewFacts {
    let status = QueueStatus {
        name: name(queue_name),
        next_ready: Some(now().before(waited)),
        ..queue(2, 0)
    };
    OverviewFacts {
        queues: vec![status],
        ..calm()
    }
}

fn dying() -> OverviewFacts {
    let group = DeadLetterGroup {
        queue: name("emails"),
        fingerprint: backstop_core::Fingerprint::from_i64(1),
        count: 11,
        first_at: now().before(Span::minutes(9)),
        last_at: now(),
        sample: backstop_core::JobId::from_bytes([0; 16]),
    };
    OverviewFacts {
        groups: vec![group],
        ..calm()
    }
}

fn schedules() -> (OverviewFacts, OverviewFacts) {
    let one = || [("nightly".parse().unwrap(), 1)].into();
    (
        OverviewFacts {
            schedules_and_sweeps: Seldom {
                unfired: one(),
                ..Seldom::default()
            },
            ..calm()
        },
        OverviewFacts {
            schedules_and_sweeps: Seldom {
                given_up: one(),
                ..Seldom::default()
            },
            ..calm()
        },
    )
}

fn failing_table() -> OverviewFacts {
    let failing = FailingPasses {
        since: now(),
        at: now(),
        passes: 3,
        error: "no such table".to_owned(),
    };
    OverviewFacts {
        failing: vec![("invoices".to_owned(), failing)],
        ..calm()
    }
}

fn shut(guard: &str) -> OverviewFacts {
    guard_facts(guard, BreakerPhase::Open)
}

fn guard_facts(guard: &str, state: BreakerPhase) -> OverviewFacts {
    let status = BreakerStatus {
        state,
        failure_count: 5,
        success_count: 0,
        total_calls: 5,
        rejected_calls: 0,
        last_failure_time: Some(now()),
        opened_at: Some(now()),
        next_probe_at: None,
        events: Vec::new(),
    };
    let guard = BreakerInfo {
        name: guard.parse().unwrap(),
        shut: None,
        deaths: None,
        settings: BreakerSettings::default(),
        status,
        admission: BreakerAdmission::Unlimited { epoch: 0 },
    };
    OverviewFacts {
        guards: vec![guard],
        ..calm()
    }
}

#[test]
fn every_alert_of_the_rules_is_in_the_table_and_makes_its_problem() {
    let of_rules: BTreeSet<&str> = RULES
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    let of_table: BTreeSet<&str> = ALERTS.iter().map(|(alert, _)| *alert).collect();
    assert_eq!(of_rules, of_table);
    for (alert, seen) in ALERTS {
        match seen {
            Place::Problem(kind, facts) => {
                let found = problems(&facts(), "");
                let kinds: Vec<&str> = found.iter().map(|problem| problem.kind).collect();
                assert_eq!(kinds, [kind], "{alert}");
            }
            Place::Elsewhere(why) => assert!(!why.is_empty(), "{alert}"),
        }
    }
}

#[test]
fn a_half_open_breaker_is_a_problem_only_while_jobs_wait_behind_it() {
    let idle = guard_facts("emails", BreakerPhase::HalfOpen);
    check_none(&idle);
    let busy = OverviewFacts {
        queues: vec![queue(1, 0)],
        ..guard_facts("emails", BreakerPhase::HalfOpen)
    };
    check(
        &busy,
        "breaker open",
        "1 live job",
        "The service behind queue emails is left alone",
    );
}

#[test]
fn a_queue_at_its_bound_is_no_worse_than_a_warning() {
    let bounds = QueueBounds {
        max_size: Some(2),
        ..QueueBounds::default()
    };
    let full = OverviewFacts {
        queues: vec![QueueStatus {
            bounds,
            ..queue(2, 0)
        }],
        ..calm()
    };
    check(
        &full,
        "full",
        "100 %",
        "Queue emails holds 2 of at most 2 live jobs",
    );
    assert_eq!(problems(&full, "")[0].weight, ProblemSeverity::Warn);
}
