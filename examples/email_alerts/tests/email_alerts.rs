//! The example as people meet it: a real PostgreSQL, real worker processes, really killed.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is how to say no")]

mod ledger;

use backstop::Span;
use email_alerts::config::Pace;
use email_alerts::play::{Plan, Victims, play};
use email_alerts::postgres::Postgres;
use email_alerts::world::Scale;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_email_alerts");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_are_killed_and_enqueues_lost_and_every_email_is_delivered_once() {
    let postgres = Postgres::start().await.unwrap();
    let scale = Scale {
        subscribers: 30,
        lists: 6,
        past: 48,
        content_changes: 8,
        messages: 4,
        sign_ups: 8,
    };
    let pace = Pace {
        hour: Span::secs(1),
        lease: Span::secs(3),
    };
    let plan = Plan {
        workers: 2,
        ..Plan::chaos(scale, pace, 7, 3)
    };
    let report = play(&plan, &postgres.url(), Path::new(PROGRAM))
        .await
        .unwrap();
    assert!(report.holds(), "{}", report.table());
    let story = &report.story;
    assert!(
        story.enqueues_lost > 0 && story.recovered.values().sum::<usize>() > 0,
        "{}",
        report.table()
    );
    // Seven dates and a Saturday, but for those at the edges of the week.
    assert!(story.made_up >= 5, "{}", report.table());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_sweeps_is_killed_too_and_what_was_lost_is_found_by_the_next() {
    let postgres = Postgres::start().await.unwrap();
    let scale = Scale {
        subscribers: 12,
        lists: 4,
        past: 24,
        content_changes: 6,
        messages: 3,
        sign_ups: 6,
    };
    let pace = Pace {
        hour: Span::secs(1),
        lease: Span::secs(3),
    };
    let plan = Plan {
        workers: 1,
        victims: Victims::Everybody,
        ..Plan::chaos(scale, pace, 7, 6)
    };
    let report = play(&plan, &postgres.url(), Path::new(PROGRAM))
        .await
        .unwrap();
    assert!(report.holds(), "{}", report.table());
    let story = &report.story;
    assert!(
        story.sweeper_kills > 1 && story.sweeper_kills < story.kills,
        "{}",
        report.table()
    );
    assert!(
        story.enqueues_lost > 0 && story.recovered.values().sum::<usize>() > 0,
        "{}",
        report.table()
    );
}

#[test]
fn the_configuration_is_printed_for_those_who_want_to_look_at_it() {
    let output = Command::new(PROGRAM).arg("config").output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let config = email_alerts::config::read(&text).unwrap();
    assert_eq!(
        (
            config.queues.len(),
            config.schedules.len(),
            config.sweeps.len()
        ),
        (5, 3, 7)
    );
    assert!(
        text.contains(r#"rate_limit = { count = 21600, per = "60s", over = "5m" }"#),
        "{text}"
    );
}

#[test]
fn wrong_use_is_told_apart_from_failure() {
    let exit = |args: &[&str]| {
        Command::new(PROGRAM)
            .args(args)
            .output()
            .unwrap()
            .status
            .code()
    };
    assert_eq!(exit(&["chaos", "--lost", "2"]), Some(2));
    assert_eq!(exit(&["run", "--workers", "0"]), Some(2));
    assert_eq!(
        exit(&["run", "--postgres", "postgres://nobody@127.0.0.1:1/none"]),
        Some(1)
    );
}
