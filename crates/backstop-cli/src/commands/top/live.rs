//! The loop: keys and readings come in, frames and deeds go out.

use super::draw::draw;
use super::figures::TopFigures;
use super::rates::RateHistory;
use super::state::{KeyOutcome, TopAction, TopNotice, TopState};
use crate::commands::dead;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::words::counted;
use backstop::Backstop;
use backstop::core::WorkerName;
use backstop::core::port::{QueueState, StoreResult};
use backstop::core::worker_command::{CommandOutcome, WorkerCommand};
use backstop::dead::{DeadFilter, DeadLetters, DeadSelection};
use backstop::operate::AuditedChanges;
use backstop::workers::WorkerCommandResult;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc};

/// How long the thread that waits for keys goes on after the end.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// Keys and readings that may wait to be drawn.
const WAITING_MAX: usize = 64;

/// Shows the store until it is told to stop; the terminal is as it was then, whatever happened.
pub(super) async fn run(
    backstop: Backstop,
    state: TopState,
    interval: Duration,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let letters = dead::letters(&backstop, context);
    let signals = [
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::interrupt(),
    ]
    .map(signal);
    let [terminate, hangup, interrupt] = signals;
    let signals = [terminate?, hangup?, interrupt?];
    // This also makes a panic give the terminal back before it is told.
    let mut terminal = ratatui::try_init().map_err(|error| {
        CliError::new(format!("the terminal cannot be drawn on: {error}"))
            .advise("backstop top --once")
    })?;
    let ended = TopScreen::start(&backstop, letters, interval)
        .show(state, &mut terminal, signals)
        .await;
    ratatui::restore();
    ended?;
    Ok(ExitStatus::Success)
}

struct TopScreen {
    changes: AuditedChanges,
    letters: DeadLetters,
    now: Arc<Notify>,
    keys: mpsc::Receiver<Event>,
    readings: mpsc::Receiver<StoreResult<TopFigures>>,
    notices: (mpsc::Sender<TopNotice>, mpsc::Receiver<TopNotice>),
}

impl TopScreen {
    fn start(backstop: &Backstop, letters: DeadLetters, interval: Duration) -> Self {
        let (key_sender, keys) = mpsc::channel(WAITING_MAX);
        std::thread::spawn(move || read_keys(&key_sender));
        let (sender, readings) = mpsc::channel(1);
        let now = Arc::new(Notify::new());
        tokio::spawn(read_store(
            backstop.clone(),
            interval,
            Arc::clone(&now),
            sender,
        ));
        Self {
            changes: backstop.changes(&CliContext::current_user()),
            letters,
            now,
            keys,
            readings,
            notices: mpsc::channel(WAITING_MAX),
        }
    }

    async fn show(
        mut self,
        mut state: TopState,
        terminal: &mut DefaultTerminal,
        mut signals: [Signal; 3],
    ) -> io::Result<()> {
        let [terminate, hangup, interrupt] = &mut signals;
        loop {
            terminal.draw(|frame| draw(frame, &mut state))?;
            let event = tokio::select! {
                event = self.keys.recv() => event,
                Some(reading) = self.readings.recv() => {
                    show_reading(&mut state, reading);
                    continue;
                }
                Some(notice) = self.notices.1.recv() => {
                    state.notice = Some(notice);
                    self.now.notify_one();
                    continue;
                }
                _ = terminate.recv() => return Ok(()),
                _ = hangup.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
            };
            // Without keys nobody can leave: a terminal that is gone is the end.
            let Some(event) = event else { return Ok(()) };
            let Event::Key(key) = event else { continue };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            let outcome;
            (state, outcome) = state.press(key);
            match outcome {
                KeyOutcome::Draw => {}
                KeyOutcome::Quit => return Ok(()),
                KeyOutcome::Read => self.now.notify_one(),
                KeyOutcome::Perform(actions) => self.perform(actions),
            }
        }
    }

    /// Does it beside the drawing: a slow store must not hold up keys.
    fn perform(&self, actions: Vec<TopAction>) {
        let (changes, letters, sender) = (
            self.changes.clone(),
            self.letters.clone(),
            self.notices.0.clone(),
        );
        tokio::spawn(async move {
            let notice = perform_all(&actions, &changes, &letters).await;
            // Whoever asked may have left.
            let _ = sender.send(notice).await;
        });
    }
}

/// Does it, and says how it went. Of several the first that fails is the last that is tried.
async fn perform_all(
    actions: &[TopAction],
    changes: &AuditedChanges,
    letters: &DeadLetters,
) -> TopNotice {
    let mut messages = Vec::with_capacity(actions.len());
    for action in actions {
        match perform_one(action, changes, letters).await {
            Ok(done) => messages.push(done),
            Err(error) if actions.len() == 1 => return TopNotice::Failed(error.to_string()),
            Err(error) => {
                let (done, all) = (messages.len(), actions.len());
                return TopNotice::Failed(format!("{done} of {all} were done, then: {error}"));
            }
        }
    }
    TopNotice::Done(messages.join("; "))
}

async fn perform_one(
    action: &TopAction,
    changes: &AuditedChanges,
    letters: &DeadLetters,
) -> StoreResult<String> {
    Ok(match action {
        TopAction::SetGate(queue, gate) => {
            match gate {
                QueueState::Paused => changes.pause(queue).await?,
                QueueState::Active => changes.resume(queue).await?,
            }
            match gate {
                QueueState::Paused => {
                    format!("{queue} is paused; it takes jobs in and keeps them. P resumes it")
                }
                QueueState::Active => format!("{queue} is open"),
            }
        }
        TopAction::Requeue {
            queue, fingerprint, ..
        } => {
            let filter = DeadFilter {
                queue: Some(queue.clone()),
                fingerprint: Some(*fingerprint),
                ..DeadFilter::default()
            };
            let changed = letters.requeue(&DeadSelection::Matching(filter)).await?;
            let refused = match changed.refused.first() {
                None => String::new(),
                Some((_, why)) => format!("; {} stay: {why}", changed.refused_count()),
            };
            format!(
                "{} of {queue} requeued{refused}",
                counted(changed.count, "dead letter")
            )
        }
        TopAction::CommandWorker(worker, order) => command_message(
            worker,
            *order,
            changes.command_worker(worker, *order).await?,
        ),
        TopAction::Reset(name) => {
            let word = if changes.reset(name).await? {
                "reset"
            } else {
                "gone"
            };
            format!("{name} is {word}")
        }
    })
}

fn command_message(
    worker: &WorkerName,
    order: WorkerCommand,
    given: Option<WorkerCommandResult>,
) -> String {
    match (given.map(|given| given.outcome), order) {
        (None, _) => format!("{worker} is gone"),
        (Some(CommandOutcome::TooLate), _) => format!("{worker} has begun to stop"),
        (Some(_), WorkerCommand::Quiet) => {
            format!("{worker} takes no new jobs within seconds. P has it go on")
        }
        (Some(_), WorkerCommand::Resume) => {
            format!("{worker} goes on within seconds, unless it has begun to stop")
        }
        (Some(_), WorkerCommand::Stop) => format!("{worker} ends what it runs, and then itself"),
    }
}

fn show_reading(state: &mut TopState, reading: StoreResult<TopFigures>) {
    match reading {
        Ok(figures) => {
            let mut history: RateHistory = std::mem::take(&mut state.history);
            history.push(&figures);
            state.take_in(figures, history);
        }
        Err(error) => state.set_store_error(error.to_string()),
    }
}

/// Reads the store, then waits for the interval or for somebody who cannot.
async fn read_store(
    backstop: Backstop,
    interval: Duration,
    now: Arc<Notify>,
    readings: mpsc::Sender<StoreResult<TopFigures>>,
) {
    while readings
        .send(TopFigures::read(&backstop).await)
        .await
        .is_ok()
    {
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = now.notified() => {}
        }
    }
}

/// Waits for keys until nobody wants them.
fn read_keys(keys: &mpsc::Sender<Event>) {
    while !keys.is_closed() {
        let event = match event::poll(KEY_WAIT) {
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let Ok(event) = event else { return };
        if keys.blocking_send(event).is_err() {
            return;
        }
    }
}
