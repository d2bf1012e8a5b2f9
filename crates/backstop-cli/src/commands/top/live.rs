//! The loop: keys and readings come in, frames and deeds go out.

use super::draw::draw;
use super::figures::Figures;
use super::state::{Deed, Notice, State, Wish};
use super::trail::Trail;
use crate::commands::dead;
use crate::context::Context;
use crate::output::words::counted;
use crate::trouble::{Trouble, Verdict};
use backstop::Backstop;
use backstop::core::WorkerName;
use backstop::core::order::{Order, Ordered};
use backstop::core::port::{Answer, Gate};
use backstop::dead::{DeadFilter, DeadLetters, DeadSelection};
use backstop::operate::Changes;
use backstop::workers::Given;
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
    state: State,
    interval: Duration,
    context: &Context,
) -> Result<Verdict, Trouble> {
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
        Trouble::new(format!("the terminal cannot be drawn on: {error}"))
            .advise("backstop top --once")
    })?;
    let ended = Live::start(&backstop, letters, interval)
        .show(state, &mut terminal, signals)
        .await;
    ratatui::restore();
    ended?;
    Ok(Verdict::Fine)
}

struct Live {
    changes: Changes,
    letters: DeadLetters,
    now: Arc<Notify>,
    keys: mpsc::Receiver<Event>,
    readings: mpsc::Receiver<Answer<Figures>>,
    notices: (mpsc::Sender<Notice>, mpsc::Receiver<Notice>),
}

impl Live {
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
            changes: backstop.changes(&Context::who()),
            letters,
            now,
            keys,
            readings,
            notices: mpsc::channel(WAITING_MAX),
        }
    }

    async fn show(
        mut self,
        mut state: State,
        terminal: &mut DefaultTerminal,
        mut signals: [Signal; 3],
    ) -> io::Result<()> {
        let [terminate, hangup, interrupt] = &mut signals;
        loop {
            terminal.draw(|frame| draw(frame, &mut state))?;
            let event = tokio::select! {
                event = self.keys.recv() => event,
                Some(reading) = self.readings.recv() => {
                    take_in(&mut state, reading);
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
            let wish;
            (state, wish) = state.press(key);
            match wish {
                Wish::Draw => {}
                Wish::Quit => return Ok(()),
                Wish::Read => self.now.notify_one(),
                Wish::Do(deeds) => self.perform(deeds),
            }
        }
    }

    /// Does it beside the drawing: a slow store must not hold up keys.
    fn perform(&self, deeds: Vec<Deed>) {
        let (changes, letters, sender) = (
            self.changes.clone(),
            self.letters.clone(),
            self.notices.0.clone(),
        );
        tokio::spawn(async move {
            let notice = performed(&deeds, &changes, &letters).await;
            // Whoever asked may have left.
            let _ = sender.send(notice).await;
        });
    }
}

/// Does it, and says how it went. Of several the first that fails is the last that is tried.
async fn performed(deeds: &[Deed], changes: &Changes, letters: &DeadLetters) -> Notice {
    let mut told = Vec::with_capacity(deeds.len());
    for deed in deeds {
        match done(deed, changes, letters).await {
            Ok(done) => told.push(done),
            Err(error) if deeds.len() == 1 => return Notice::Failed(error.to_string()),
            Err(error) => {
                let (done, all) = (told.len(), deeds.len());
                return Notice::Failed(format!("{done} of {all} were done, then: {error}"));
            }
        }
    }
    Notice::Done(told.join("; "))
}

async fn done(deed: &Deed, changes: &Changes, letters: &DeadLetters) -> Answer<String> {
    Ok(match deed {
        Deed::SetGate(queue, gate) => {
            match gate {
                Gate::Paused => changes.pause(queue).await?,
                Gate::Open => changes.resume(queue).await?,
            }
            match gate {
                Gate::Paused => {
                    format!("{queue} is paused; it takes jobs in and keeps them. P resumes it")
                }
                Gate::Open => format!("{queue} is open"),
            }
        }
        Deed::Requeue {
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
        Deed::Order(worker, order) => ordered(worker, *order, changes.order(worker, *order).await?),
        Deed::Reset(name) => {
            let word = if changes.reset(name).await? {
                "reset"
            } else {
                "gone"
            };
            format!("{name} is {word}")
        }
    })
}

fn ordered(worker: &WorkerName, order: Order, given: Option<Given>) -> String {
    match (given.map(|given| given.ordered), order) {
        (None, _) => format!("{worker} is gone"),
        (Some(Ordered::TooLate), _) => format!("{worker} has begun to stop"),
        (Some(_), Order::Quiet) => {
            format!("{worker} takes no new jobs within seconds. P has it go on")
        }
        (Some(_), Order::Resume) => {
            format!("{worker} goes on within seconds, unless it has begun to stop")
        }
        (Some(_), Order::Stop) => format!("{worker} ends what it runs, and then itself"),
    }
}

fn take_in(state: &mut State, reading: Answer<Figures>) {
    match reading {
        Ok(figures) => {
            let mut trail: Trail = std::mem::take(&mut state.trail);
            trail.push(&figures);
            state.take_in(figures, trail);
        }
        Err(error) => state.unread(error.to_string()),
    }
}

/// Reads the store, then waits for the interval or for somebody who cannot.
async fn read_store(
    backstop: Backstop,
    interval: Duration,
    now: Arc<Notify>,
    readings: mpsc::Sender<Answer<Figures>>,
) {
    while readings.send(Figures::read(&backstop).await).await.is_ok() {
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
