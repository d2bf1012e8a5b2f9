//! Runs the simulator: `simulate --seeds 200` for fresh ones, `simulate --seed N` for one again.

use backstop_testkit::simulator::{FAULTS, simulate};
use std::collections::BTreeMap;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (first, count) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--seed", seed] => (seed.parse().ok(), Some(1)),
        ["--seeds", count] => (Some(rand::random()), count.parse().ok()),
        _ => (None, None),
    };
    let (Some(first), Some(count)) = (first, count) else {
        say("usage: simulate --seeds COUNT | --seed SEED");
        return ExitCode::from(2);
    };
    run(first, count)
}

fn run(first: u64, count: u64) -> ExitCode {
    let mut fired: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut jobs, mut failed) = (0, 0);
    for seed in (0..count).map(|n| first.wrapping_add(n)) {
        let simulation = simulate(seed);
        jobs += simulation.jobs;
        for (fault, times) in simulation.fired.counts() {
            *fired.entry(fault).or_default() += times;
        }
        if !simulation.violations.is_empty() {
            failed += 1;
            say(&format!("seed {seed}: {}", simulation.options));
            for violation in &simulation.violations {
                say(&format!("  {violation}"));
            }
            if count == 1 {
                say(&simulation.history);
            }
        }
    }
    let never: Vec<&str> = FAULTS
        .into_iter()
        .filter(|fault| !fired.contains_key(fault))
        .collect();
    say(&format!(
        "{count} seeds from {first}: {jobs} jobs, {failed} seeds failed; faults: {fired:?}"
    ));
    if count >= 100 && !never.is_empty() {
        say(&format!(
            "faults that never came, so that nothing was shown about them: {never:?}"
        ));
        return ExitCode::FAILURE;
    }
    if failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

#[expect(clippy::print_stdout, reason = "what a program prints is its result")]
fn say(text: &str) {
    println!("{text}");
}
