//! Whoever is woken by Prometheus finds what woke him on the overview.

use super::Seen as Seldom;
use super::*;
use crate::alerts::RULES;
use backstop::breakers::GuardStatus;
use backstop_core::breaker::{Admission, BreakerSettings, BreakerStatus, Phase};
use backstop_core::port::Group;
use std::collections::BTreeSet;

/// Where an alert is seen on the overview.
enum Place {
    /// As a problem of this kind, where this is so.
    Problem(&'static str, fn() -> Facts),
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
        Place::Problem("doctor", || opinion(Grade::Bad)),
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
        Place::Problem("dead letters nearly full", || Facts {
            queues: vec![queue(0, 9)],
            ..calm()
        }),
    ),
    (
        "BackstopExpiredLeases",
        Place::Problem("lease over", || Facts {
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
        Place::Problem("stream timeouts", || ringing(Alarm::TimeoutRate)),
    ),
    (
        "BackstopStreamOverflows",
        Place::Problem("stream overflows", || ringing(Alarm::OverflowRate)),
    ),
    (
        "BackstopStreamHeldGrowing",
        Place::Problem("stream holds more", || ringing(Alarm::HeldGrowing)),
    ),
];

fn opinion(grade: Grade) -> Facts {
    let finding = Finding {
        grade,
        what: "the disk is not waited for".to_owned(),
        advice: None,
    };
    let findings = std::sync::Arc::new(vec![finding]);
    let found = crate::doctor::Found {
        at: now(),
        findings,
    };
    Facts {
        opinion: Opinion {
            found: Some(found),
            ..Opinion::default()
        },
        ..calm()
    }
}

fn failing_doctor() -> Facts {
    Facts {
        opinion: Opinion {
            failed: Some("no answer".to_owned()),
            ..Opinion::default()
        },
        ..calm()
    }
}

fn old_doctor() -> Facts {
    let found = crate::doctor::Found {
        at: now().before(Span::hours(2)),
        findings: std::sync::Arc::default(),
    };
    Facts {
        opinion: Opinion {
            found: Some(found),
            ..Opinion::default()
        },
        ..calm()
    }
}

fn waiting(queue_name: &str, waited: Span) -> Facts {
    let status = QueueStatus {
        name: name(queue_name),
        next_ready: Some(now().before(waited)),
        ..queue(2, 0)
    };
    Facts {
        queues: vec![status],
        ..calm()
    }
}

fn dying() -> Facts {
    let group = Group {
        queue: name("emails"),
        fingerprint: backstop_core::Fingerprint::from_i64(1),
        count: 11,
        first_at: now().before(Span::minutes(9)),
        last_at: now(),
        sample: backstop_core::JobId::from_bytes([0; 16]),
    };
    Facts {
        groups: vec![group],
        ..calm()
    }
}

fn schedules() -> (Facts, Facts) {
    let one = || [("nightly".parse().unwrap(), 1)].into();
    (
        Facts {
            seldom: Seldom {
                unfired: one(),
                ..Seldom::default()
            },
            ..calm()
        },
        Facts {
            seldom: Seldom {
                given_up: one(),
                ..Seldom::default()
            },
            ..calm()
        },
    )
}

fn failing_table() -> Facts {
    let failing = Failing {
        since: now(),
        at: now(),
        passes: 3,
        error: "no such table".to_owned(),
    };
    Facts {
        failing: vec![("invoices".to_owned(), failing)],
        ..calm()
    }
}

fn shut(guard: &str) -> Facts {
    standing(guard, Phase::Open)
}

fn standing(guard: &str, state: Phase) -> Facts {
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
    let guard = GuardStatus {
        name: guard.parse().unwrap(),
        shut: None,
        deaths: None,
        settings: BreakerSettings::default(),
        status,
        admission: Admission::Freely { epoch: 0 },
    };
    Facts {
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
    let idle = standing("emails", Phase::HalfOpen);
    check_none(&idle);
    let busy = Facts {
        queues: vec![queue(1, 0)],
        ..standing("emails", Phase::HalfOpen)
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
    let bounds = Bounds {
        max_size: Some(2),
        ..Bounds::default()
    };
    let full = Facts {
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
    assert_eq!(problems(&full, "")[0].weight, Weight::Warn);
}
