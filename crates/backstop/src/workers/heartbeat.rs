//! Two cells for each worker: `cards/WORKER` is written by the worker, `orders/WORKER` by its
//! operators.
//!
//! A worker that stops takes both away. What workers leave that vanish is removed when they were
//! not heard of for a day.

use super::{WorkerCommandResult, WorkerDescription};
use crate::client::Backstop;
use crate::shared_cells::{read, remove, update};
use backstop_core::limits::{HOST_CHARS_MAX, VERSION_CHARS_MAX};
use backstop_core::port::{Cell, StoreResult};
use backstop_core::worker_command::{
    ActiveCommand, RunIdentity, WorkerCommand, WorkerRun, WorkerState, apply_command,
};
use backstop_core::{Span, Time, WorkerName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What the names of the cells begin with.
pub(crate) const HEARTBEATS: &str = "cards/";
pub(crate) const COMMANDS: &str = "orders/";
/// A card that was written before that is removed, unless its worker is among the living.
const KEPT: Span = Span::days(1);
/// Nobody else says who a worker of a process is for so long after it wrote its card, which it does
/// every minute.
const GUARDED: Span = Span::minutes(3);
/// Memory is told in steps of this size: a worker at rest has nothing new to tell.
const MEMORY_STEP: u64 = 1 << 20;

/// What a worker tells, as it is kept.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct WorkerHeartbeat {
    #[serde(flatten)]
    pub(crate) about: WorkerDescription,
    /// Which run of it this is, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<WorkerRun>,
    /// How many of its places are taken. Only workers of a process tell this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) taken: Option<u32>,
    /// How often it sends heartbeats. Only workers of a process tell this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) beats_every: Option<Span>,
    #[serde(default)]
    pub(crate) duty: WorkerState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<Time>,
}

/// An order that stands, or none any more.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CommandCell(pub(crate) Option<ActiveCommand>);

impl WorkerHeartbeat {
    /// The card of a worker of this process.
    pub(crate) fn of_local_worker(
        about: WorkerDescription,
        run: WorkerRun,
        taken: usize,
        duty: WorkerState,
    ) -> Self {
        let taken = Some(u32::try_from(taken).unwrap_or(u32::MAX));
        Self {
            about: about.bounded(),
            run: Some(run),
            taken,
            beats_every: None,
            duty,
            at: None,
        }
    }

    pub(crate) fn beating_every(self, period: Span) -> Self {
        Self {
            beats_every: Some(period),
            ..self
        }
    }

    /// The card of a worker elsewhere, as far as it tells. One that tells nothing has a card, too:
    /// whoever speaks for it heeds its orders.
    pub(crate) fn of_http_worker(about: &WorkerDescription) -> Self {
        let about = about.clone().bounded();
        Self {
            run: run_of(&about),
            about,
            ..Self::default()
        }
    }

    /// Whether a worker of a process wrote it: those tell how many of their places are taken, and
    /// others cannot.
    pub(crate) const fn is_of_process(&self) -> bool {
        self.taken.is_some()
    }

    /// Whether a worker of a process wrote it, and not long ago: then it is there, and nobody else
    /// says who it is.
    fn is_guarded(&self, now: Time) -> bool {
        self.is_of_process() && self.at.is_some_and(|at| now.since(at) < GUARDED)
    }

    /// What is known by this card together with what was told before: a call adds to what was told
    /// of the same run, and one that tells another run begins anew.
    #[must_use]
    pub(crate) fn merged_over(self, before: &Self) -> Self {
        if before.is_of_process()
            || self
                .run
                .as_ref()
                .is_some_and(|run| before.run.as_ref() != Some(run))
        {
            return self;
        }
        let (reported, known) = (self.about, before.about.clone());
        let about = WorkerDescription {
            host: reported.host.or(known.host),
            pid: reported.pid.or(known.pid),
            version: reported.version.or(known.version),
            since: reported.since.or(known.since),
            places: reported.places.or(known.places),
            memory: reported.memory.or(known.memory),
        };
        Self {
            about,
            run: self.run.or_else(|| before.run.clone()),
            ..Self::default()
        }
    }

    /// Whether it says the same, whenever it was written.
    pub(crate) fn equals_but_time(&self, other: &Self) -> bool {
        Self {
            at: None,
            ..self.clone()
        } == Self {
            at: None,
            ..other.clone()
        }
    }

    /// The same, but for the memory, which is never the same twice: to tell each change of it would
    /// be a write every few seconds.
    pub(crate) fn equals_but_memory(&self, other: &Self) -> bool {
        let without = |heartbeat: &Self| {
            let about = WorkerDescription {
                memory: None,
                ..heartbeat.about.clone()
            };
            Self {
                about,
                ..heartbeat.clone()
            }
        };
        without(self).equals_but_time(&without(other))
    }

    /// Whether it may be forgotten: it is old, and its worker is not among the living.
    pub(crate) fn is_over(cell: &Cell, living: &BTreeSet<String>, now: Time) -> bool {
        let is_old = read::<Self>(cell)
            .is_none_or(|heartbeat| heartbeat.at.is_none_or(|at| at.after(KEPT) < now));
        is_old && !living.contains(cell.name.strip_prefix(HEARTBEATS).unwrap_or_default())
    }
}

impl CommandCell {
    /// Whether it may be forgotten: nothing stands, or its worker is not among the living.
    pub(crate) fn is_over(cell: &Cell, living: &BTreeSet<String>) -> bool {
        let current_command = read::<Self>(cell).is_some_and(|command| command.0.is_some());
        !current_command || !living.contains(cell.name.strip_prefix(COMMANDS).unwrap_or_default())
    }
}

impl WorkerDescription {
    /// With texts cut to their limits: what a worker elsewhere says has any length.
    fn bounded(self) -> Self {
        let cut = |text: String, max: usize| {
            Some(text.chars().take(max).collect::<String>()).filter(|text| !text.is_empty())
        };
        Self {
            host: self.host.and_then(|host| cut(host, HOST_CHARS_MAX)),
            version: self
                .version
                .and_then(|version| cut(version, VERSION_CHARS_MAX)),
            memory: self
                .memory
                .map(|bytes| bytes.div_ceil(MEMORY_STEP).saturating_mul(MEMORY_STEP)),
            ..self
        }
    }
}

/// The run that this is of.
fn run_of(about: &WorkerDescription) -> Option<WorkerRun> {
    let WorkerDescription {
        host, pid, since, ..
    } = about;
    if pid.is_none() && since.is_none() {
        return None;
    }
    let host = host.as_deref().unwrap_or_default();
    let (pid, start) = (
        pid.unwrap_or_default(),
        since.map(|since| since.to_string()).unwrap_or_default(),
    );
    // An order that was given before it told of its process is for it: it began before any order.
    let since = since.unwrap_or(Time::from_millis(0));
    Some(WorkerRun {
        id: format!("{host}/{pid}/{start}"),
        since,
    })
}

/// What a call tells of its run.
pub(crate) fn run_identity(about: &WorkerDescription) -> RunIdentity {
    match run_of(&about.clone().bounded()) {
        Some(run) if about.since.is_some() => RunIdentity::Run(run),
        Some(process) => RunIdentity::Process(process.id),
        None => RunIdentity::Nothing,
    }
}

pub(crate) fn heartbeat_cell(worker: &WorkerName) -> String {
    format!("{HEARTBEATS}{worker}")
}

pub(crate) fn command_cell(worker: &WorkerName) -> String {
    format!("{COMMANDS}{worker}")
}

/// Puts down the card of a worker of this process. One that says the same is left as it is.
pub(crate) async fn write_heartbeat(
    backstop: &Backstop,
    worker: &WorkerName,
    heartbeat: &WorkerHeartbeat,
) -> StoreResult<()> {
    write_with(backstop, worker, |_| Some(heartbeat.clone())).await
}

/// Puts down what a worker elsewhere tells. Whoever goes by the name of a worker of a process
/// changes nothing of that one's card.
pub(crate) async fn write_http_heartbeat(
    backstop: &Backstop,
    worker: &WorkerName,
    heartbeat: &WorkerHeartbeat,
) -> StoreResult<()> {
    let now = backstop.now();
    write_with(backstop, worker, |current| {
        (!current.is_guarded(now)).then(|| heartbeat.clone().merged_over(current))
    })
    .await
}

async fn write_with(
    backstop: &Backstop,
    worker: &WorkerName,
    choose: impl Fn(&WorkerHeartbeat) -> Option<WorkerHeartbeat>,
) -> StoreResult<()> {
    let at = Some(backstop.now());
    let put = |current: &mut WorkerHeartbeat| {
        if let Some(heartbeat) =
            choose(current).filter(|heartbeat| !current.equals_but_time(heartbeat))
        {
            *current = WorkerHeartbeat { at, ..heartbeat };
        }
    };
    update(
        backstop,
        &heartbeat_cell(worker),
        WorkerHeartbeat::default(),
        put,
    )
    .await?;
    Ok(())
}

pub(crate) async fn read_heartbeat(
    backstop: &Backstop,
    worker: &WorkerName,
) -> StoreResult<Option<WorkerHeartbeat>> {
    let cell = backstop
        .store()
        .cells(vec![heartbeat_cell(worker)])
        .await?
        .pop()
        .flatten();
    Ok(cell.as_ref().and_then(read))
}

/// What is kept of a worker: its card, and the order that stands with the cell it stands in.
pub(crate) async fn read_heartbeat_and_command(
    backstop: &Backstop,
    worker: &WorkerName,
) -> StoreResult<(Option<WorkerHeartbeat>, Option<(ActiveCommand, Cell)>)> {
    let mut cells = backstop
        .store()
        .cells(vec![heartbeat_cell(worker), command_cell(worker)])
        .await?
        .into_iter();
    let mut next = || cells.next().flatten();
    let (heartbeat, command) = (next(), next());
    Ok((
        heartbeat.as_ref().and_then(read),
        command.and_then(command_in),
    ))
}

fn command_in(cell: Cell) -> Option<(ActiveCommand, Cell)> {
    Some((read::<CommandCell>(&cell)?.0?, cell))
}

/// The order that stands for a worker.
pub(crate) async fn read_command(
    backstop: &Backstop,
    worker: &WorkerName,
) -> StoreResult<Option<ActiveCommand>> {
    let cell = backstop
        .store()
        .cells(vec![command_cell(worker)])
        .await?
        .pop()
        .flatten();
    Ok(cell.and_then(command_in).map(|(command, _)| command))
}

/// Takes away what was kept of a run that has ended. What is there of another run stays.
pub(crate) async fn withdraw(
    backstop: &Backstop,
    worker: &WorkerName,
    run: &WorkerRun,
) -> StoreResult<()> {
    let cells = backstop
        .store()
        .cells(vec![heartbeat_cell(worker), command_cell(worker)])
        .await?;
    let is_ours = |cell: &Cell| {
        if cell.name.starts_with(HEARTBEATS) {
            read::<WorkerHeartbeat>(cell)
                .is_none_or(|heartbeat| heartbeat.run.as_ref() == Some(run))
        } else {
            read::<CommandCell>(cell)
                .and_then(|command| command.0)
                .is_none_or(|command| command.is_for(run))
        }
    };
    let ours: Vec<Cell> = cells.into_iter().flatten().filter(is_ours).collect();
    remove(backstop, &ours).await
}

/// What an order makes of the one that stands. One that was for another run does not stand.
pub(crate) async fn change_command(
    backstop: &Backstop,
    worker: &WorkerName,
    heartbeat: Option<&WorkerHeartbeat>,
    command: WorkerCommand,
    by: &str,
) -> StoreResult<WorkerCommandResult> {
    let (at, listens) = (backstop.now(), heartbeat.is_some());
    let run = heartbeat.and_then(|heartbeat| heartbeat.run.as_ref());
    let duty = heartbeat
        .map(|heartbeat| heartbeat.duty)
        .unwrap_or_default();
    let change = |cell: &mut CommandCell| {
        let current_command = cell
            .0
            .take()
            .filter(|current_command| run.is_none_or(|run| current_command.is_for(run)));
        let (desired_state, outcome) = apply_command(
            current_command
                .as_ref()
                .map(|current_command| current_command.desired_state),
            duty,
            command,
        );
        cell.0 = desired_state.map(|desired_state| match current_command {
            Some(current_command) if current_command.desired_state == desired_state => {
                current_command
            }
            _ => ActiveCommand {
                desired_state,
                at,
                by: by.to_owned(),
                run: run.map(|run| run.id.clone()),
            },
        });
        WorkerCommandResult {
            outcome,
            desired_state,
            listens,
        }
    };
    Ok(update(
        backstop,
        &command_cell(worker),
        CommandCell::default(),
        change,
    )
    .await?
    .1)
}
