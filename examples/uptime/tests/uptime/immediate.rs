//! Immediate backfill with several worker processes.

use crate::foretold::{self, Check};
use crate::played::{checks, falsely_missed, run};
use crate::program;
use std::collections::{BTreeMap, BTreeSet};
use uptime::event::Effect;
use uptime::generate::{Plan, generate};
use uptime::mode::Mode;
use uptime::report::measure;
use uptime::run::{Dealing, Options, play};
use uptime::world::World;

fn world(seed: u64) -> World {
    let plan = Plan {
        seed,
        subscriptions: 60,
        minutes: 24,
        dropped: 0.01,
        late: 0.005,
        ..Plan::default()
    };
    generate(&plan).unwrap()
}

fn options(workers: usize, dealing: Dealing) -> Options {
    Options {
        program: program(),
        mode: Mode::Immediate,
        store: None,
        workers,
        speed: 2_000.0,
        dealing,
    }
}

#[test]
fn false_misses_are_those_that_the_order_of_arrival_foretells() {
    let world = world(11);
    for workers in [1, 4] {
        let folder = tempfile::tempdir().unwrap();
        let ran = run(&world, &options(workers, Dealing::Faithful), folder.path());
        let foretold = foretold::false_misses(folder.path());
        assert!(foretold.len() > 100, "{}", foretold.len());
        assert_eq!(falsely_missed(&world, &ran), foretold, "{workers} workers");
        let figures = measure(&world, &world.seen(), Mode::Immediate, &ran);
        assert_eq!(
            (figures.false_misses, figures.lost),
            (foretold.len() as u64, foretold.len() as u64)
        );
        assert_eq!(figures.true_misses_found, world.truth.missing());
        assert_eq!(
            (ran.counts.received, ran.counts.broken),
            (world.trace.len() as u64, world.truth.broken)
        );
    }
}

#[test]
fn however_processes_race_what_they_skip_is_missed_and_nothing_else() {
    let world = world(12);
    let folder = tempfile::tempdir().unwrap();
    let ran = run(&world, &options(4, Dealing::Racing), folder.path());
    let steps: BTreeMap<String, i64> = world
        .directory
        .subscriptions
        .iter()
        .map(|(key, subscription)| (key.to_string(), subscription.interval.millis()))
        .collect();
    let (mut skipped, mut reached) = (BTreeSet::new(), BTreeMap::new());
    for (key, position) in checks(&ran, Effect::Handled) {
        let before: i64 = reached
            .insert(key.clone(), position)
            .unwrap_or(position - steps[&key]);
        assert!(
            before < position,
            "{key} went back from {before} to {position}"
        );
        let between =
            (before + steps[&key]..position).step_by(usize::try_from(steps[&key]).unwrap());
        skipped.extend(between.map(|missed| (key.clone(), missed)));
    }
    let missed: BTreeSet<Check> = checks(&ran, Effect::Miss).into_iter().collect();
    assert_eq!(missed, skipped);
    assert!(falsely_missed(&world, &ran).len() > 100);
}

#[test]
fn a_run_whose_workers_cannot_work_says_so() {
    let world = world(13);
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        program: "nowhere/to/be/found".into(),
        ..options(2, Dealing::Racing)
    };
    let error =
        play(&world, &world.seen(), &options, folder.path(), &|_| ()).expect_err("no such program");
    assert_eq!(error.to_string(), "nowhere/to/be/found cannot be started");
    // This one ends at once without a word.
    let options = Options {
        program: "true".into(),
        ..options
    };
    let error = play(&world, &world.seen(), &options, folder.path(), &|_| ())
        .expect_err("it does not work");
    assert!(error.to_string().starts_with("worker "), "{error}");
}
