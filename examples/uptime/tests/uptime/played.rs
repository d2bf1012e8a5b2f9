//! What a run came to, as sets and lists of checks.

use crate::foretold::Check;
use std::collections::BTreeSet;
use std::path::Path;
use uptime::event::Effect;
use uptime::run::{Options, Ran, play};
use uptime::world::{Slot, World};

pub(crate) fn run(world: &World, options: &Options, folder: &Path) -> Ran {
    play(world, &world.seen(), options, folder, &|_| ()).unwrap()
}

/// The checks with this effect, in the order of their lines.
pub(crate) fn checks(ran: &Ran, effect: Effect) -> Vec<Check> {
    let lines = ran.lines.iter().filter(|line| line.effect == effect);
    lines
        .map(|line| (line.key.to_string(), line.position))
        .collect()
}

/// The checks that are rightly called missed.
pub(crate) fn missing(world: &World) -> BTreeSet<Check> {
    world
        .truth
        .dropped
        .union(&world.truth.late)
        .map(check)
        .collect()
}

/// The checks whose results arrive in time.
pub(crate) fn in_time(world: &World) -> BTreeSet<Check> {
    let missing = missing(world);
    let admitted = world
        .seen()
        .into_iter()
        .flatten()
        .filter(|seen| seen.is_admitted);
    admitted
        .map(|seen| check(&seen.slot))
        .filter(|check| !missing.contains(check))
        .collect()
}

pub(crate) fn falsely_missed(world: &World, ran: &Ran) -> BTreeSet<Check> {
    let missing = missing(world);
    checks(ran, Effect::Miss)
        .into_iter()
        .filter(|check| !missing.contains(check))
        .collect()
}

fn check(slot: &Slot) -> Check {
    (slot.key.to_string(), slot.position)
}
