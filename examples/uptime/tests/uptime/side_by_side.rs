//! Immediate backfill and the stream on the same trace, each with several worker processes.

use crate::foretold;
use crate::played::{checks, falsely_missed, in_time, missing, run};
use crate::program;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use uptime::event::Effect;
use uptime::generate::{Plan, generate};
use uptime::mode::Mode;
use uptime::report::measure;
use uptime::run::{Dealing, Options, Ran, SLACK_MS};
use uptime::world::World;

const WORKERS: usize = 3;
/// How often a run that was too much for the machine is tried again, at half the speed each time.
const SLOWER_MAX: usize = 4;

fn world() -> World {
    let plan = Plan {
        seed: 21,
        subscriptions: 60,
        minutes: 8,
        slow: 0.3,
        stall_s: 0,
        dropped: 0.02,
        late: 0.01,
        duplicates: 0.05,
        ..Plan::default()
    };
    generate(&plan).unwrap()
}

/// A stream can only wait for what is brought to it, so a run counts if the machine kept up.
fn run_stream(world: &World, folder: &Path) -> Ran {
    let (mode, dealing) = (Mode::Backstop, Dealing::Racing);
    let mut speed = 80.0;
    for nth in 0..SLOWER_MAX {
        let options = Options {
            program: program(),
            mode,
            store: None,
            workers: WORKERS,
            speed,
            dealing,
        };
        let ran = run(world, &options, &folder.join(nth.to_string()));
        if ran.behind_ms < SLACK_MS {
            return ran;
        }
        speed /= 2.0;
    }
    unreachable!("at {speed} times the speed this machine is still {SLACK_MS} ms behind")
}

#[test]
fn immediate_backfill_misses_falsely_and_the_stream_does_not() {
    let world = world();
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        program: program(),
        mode: Mode::Immediate,
        store: None,
        workers: WORKERS,
        speed: 2_000.0,
        dealing: Dealing::Faithful,
    };
    let immediate = run(&world, &options, folder.path());
    let foretold = foretold::false_misses(folder.path());
    assert!(foretold.len() > 20, "{}", foretold.len());
    assert_eq!(falsely_missed(&world, &immediate), foretold);

    let ran = run_stream(&world, folder.path());
    assert_eq!(falsely_missed(&world, &ran), BTreeSet::new());
    let missed = checks(&ran, Effect::Miss);
    assert_eq!(missed.len(), missing(&world).len(), "each once");
    assert_eq!(BTreeSet::from_iter(missed), missing(&world));
    let handled = checks(&ran, Effect::Handled);
    assert_eq!(BTreeSet::from_iter(handled.clone()), in_time(&world));
    in_order(&ran);

    let figures = measure(&world, &world.seen(), Mode::Backstop, &ran);
    assert_eq!((figures.false_misses, figures.lost), (0, 0));
    assert_eq!(figures.true_misses_found, world.truth.missing());
    let hold = ran.hold.unwrap();
    assert_eq!((hold.timeouts, hold.overflows), (world.truth.missing(), 0));
    assert_eq!((hold.added, hold.added > 0), (hold.removed, true));
    assert!(hold.mean_held >= 1.0, "{hold:?}");
}

/// Every line of a subscription is behind the one before it, misses among them.
fn in_order(ran: &Ran) {
    let mut reached = BTreeMap::new();
    for line in &ran.lines {
        let before = reached.insert(line.key, line.position);
        assert!(
            before < Some(line.position),
            "{} went from {before:?} to {}",
            line.key,
            line.position
        );
    }
}
