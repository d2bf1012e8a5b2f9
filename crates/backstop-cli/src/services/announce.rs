//! What is worked on beside queues, in the words of all commands that do.

use crate::output::CliOutput;
use backstop::ScheduleName;
use backstop::config::Config;
use backstop::sweeps::Sweep;
use backstop::tables::Table;
use std::fmt::Display;

/// The schedules that a worker fires.
pub(crate) fn schedules(worker: impl Display, config: &Config, output: CliOutput) {
    let names: Vec<&str> = config.schedules.keys().map(ScheduleName::as_str).collect();
    if !names.is_empty() {
        output.announce(format!(
            "worker {} fires {}",
            output.paint_notes().bold(worker),
            names.join(", ")
        ));
    }
}

pub(crate) fn sweeps(sweeps: &[Sweep], output: CliOutput) {
    if !sweeps.is_empty() {
        let names: Vec<&str> = sweeps.iter().map(Sweep::name).collect();
        output.announce(format!("lost work is looked for by {}", names.join(", ")));
    }
}

/// The tables that are worked off.
pub(crate) fn tables(tables: &[Table], config: &Config, output: CliOutput) {
    for table in tables {
        let (name, every, bound) = (table.name(), table.period(), table.recovery_bound());
        output.announce(format!(
            "table {name} is worked off every {every}; a dead worker's row runs again within {bound}"
        ));
        if let Some(note) = table.unshared_store_warning(&config.store) {
            output.announce(format!("table {name}: {note}"));
        }
    }
}
