//! The simulator itself: its seeds repeat, and what it runs keeps its promises. More seeds: the
//! `simulate` program.

use backstop_testkit::simulator::simulate;

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in [1, 2, 3] {
        let (once, again) = (simulate(seed), simulate(seed));
        assert_eq!(once.options, again.options);
        assert_eq!(once.history, again.history, "seed {seed}");
        assert_ne!(once.history, simulate(seed + 10).history);
    }
}

#[test]
fn whatever_goes_wrong_no_promise_is_broken() {
    for seed in 100..115 {
        let simulation = simulate(seed);
        assert!(simulation.jobs > 0);
        assert!(
            simulation.violations.is_empty(),
            "seed {seed}: {:#?}",
            simulation.violations
        );
    }
}
