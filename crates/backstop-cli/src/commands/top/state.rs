//! What is looked at, and what a key does to it. Nothing here reads, writes or draws.

use super::figures::TopFigures;
use super::rates::RateHistory;
use super::rows::{self, TopRow, TopTable};
use backstop::QueueName;
use backstop::breakers::BreakerName;
use backstop::core::port::QueueState;
use backstop::core::worker_command::WorkerCommand;
use backstop::core::{Fingerprint, WorkerName};
use backstop::workers::WorkerHealth;
use clap::ValueEnum;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::BTreeSet;

/// Characters a filter may have; nobody types more.
const FILTER_CHARS_MAX: usize = 64;

/// What can be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum TopView {
    /// Depth, age and pace of every queue
    Queues,
    /// What comes in, is done and dies, over time
    Rates,
    /// Who works
    Workers,
    /// What was given up, by cause
    Dead,
    /// Records held and missed
    Streams,
    /// Breakers and gates
    Breakers,
}

impl TopView {
    /// All of them, in the order of their keys.
    pub(super) const ALL: [Self; 6] = [
        Self::Queues,
        Self::Rates,
        Self::Workers,
        Self::Dead,
        Self::Streams,
        Self::Breakers,
    ];

    /// Its name on the tab.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Queues => "Queues",
            Self::Rates => "Rates",
            Self::Workers => "Workers",
            Self::Dead => "Dead letters",
            Self::Streams => "Streams",
            Self::Breakers => "Breakers",
        }
    }

    /// So many tabs further, around the end.
    fn rotate(self, by: usize) -> Self {
        let at = Self::ALL
            .iter()
            .position(|view| *view == self)
            .unwrap_or_default();
        Self::ALL[(at + by) % Self::ALL.len()]
    }
}

/// What keys are for at the moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum TopMode {
    #[default]
    Browsing,
    Filtering,
    /// Answering whether all of this is really meant.
    Confirming(Vec<TopAction>),
    /// Reading what keys there are.
    Help,
}

/// Something to be done to the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum TopAction {
    /// Pause a queue, or resume it.
    SetGate(QueueName, QueueState),
    /// Requeue the dead letters of a group.
    Requeue {
        queue: QueueName,
        fingerprint: Fingerprint,
        /// As many as there were when it was asked for.
        count: u64,
    },
    /// Reset a breaker, or open a gate again.
    Reset(BreakerName),
    /// Ask a worker for something.
    CommandWorker(WorkerName, WorkerCommand),
}

/// What a key asks of whoever runs the loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum KeyOutcome {
    /// Nothing but to be drawn.
    Draw,
    Quit,
    Read,
    Perform(Vec<TopAction>),
}

/// A line about what was done, or what went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum TopNotice {
    Done(String),
    Failed(String),
}

#[derive(Clone, Debug)]
pub(super) struct TopState {
    /// Where the figures come from.
    pub(super) store: String,
    pub(super) view: TopView,
    pub(super) mode: TopMode,
    /// Rows that have this are shown; all if it is empty.
    pub(super) filter: String,
    /// The last reading; `None` before the first.
    pub(super) figures: Option<TopFigures>,
    pub(super) history: RateHistory,
    /// What was done, or went wrong, since the last key.
    pub(super) notice: Option<TopNotice>,
    /// Why the store could not be read lately, if so: the figures are old then.
    pub(super) store_error: Option<String>,
    /// Rows that fit the screen, as it was drawn last.
    pub(super) rows_fit: usize,
    /// The row, by what it is: when others come and go before it, it stays chosen.
    cursor_id: Option<String>,
    at: usize,
    /// Rows that were selected, by what they are.
    selected: BTreeSet<String>,
}

impl TopState {
    pub(super) fn new(view: TopView, store: String) -> Self {
        Self {
            store,
            view,
            mode: TopMode::default(),
            filter: String::new(),
            figures: None,
            history: RateHistory::default(),
            notice: None,
            store_error: None,
            rows_fit: 1,
            cursor_id: None,
            at: 0,
            selected: BTreeSet::new(),
        }
    }

    /// Shows a reading and those before it.
    pub(super) fn take_in(&mut self, figures: TopFigures, history: RateHistory) {
        self.figures = Some(figures);
        self.history = history;
        self.store_error = None;
        self.restore_cursor();
    }

    /// Goes on showing the last reading, and says that it is old.
    pub(super) fn set_store_error(&mut self, why: String) {
        self.store_error = Some(why);
    }

    /// The rows that are shown.
    pub(super) fn table(&self) -> TopTable {
        let mut table = rows::build_table(self.view, self.figures.as_ref(), &self.history);
        let wanted = self.filter.to_lowercase();
        table.rows.retain(|row| row.matches(&wanted));
        table
    }

    /// The chosen row's place among those shown.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// Whether a row was selected.
    pub(super) fn is_selected(&self, row: &TopRow) -> bool {
        self.selected.contains(&row.id)
    }

    pub(super) fn press(mut self, key: KeyEvent) -> (Self, KeyOutcome) {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return (self, KeyOutcome::Quit);
        }
        self.notice = None;
        let outcome = match std::mem::take(&mut self.mode) {
            TopMode::Browsing => self.press_browsing(key.code),
            TopMode::Filtering => self.type_filter(key.code),
            TopMode::Confirming(actions) => self.answer(key.code, actions),
            // Whatever the key, the help goes away.
            TopMode::Help => KeyOutcome::Draw,
        };
        (self, outcome)
    }

    fn press_browsing(&mut self, code: KeyCode) -> KeyOutcome {
        match code {
            KeyCode::Char('q') => return KeyOutcome::Quit,
            KeyCode::Char('r') => return KeyOutcome::Read,
            KeyCode::Char('P') if self.view == TopView::Workers => return self.toggle_workers(),
            KeyCode::Char('P') => return self.toggle_pause(),
            KeyCode::Char('S') => self.confirm_stop(),
            KeyCode::Char('R') => self.confirm_retry(),
            KeyCode::Char('x') => self.select(),
            KeyCode::Char('A') => self.select_all(),
            KeyCode::Char('?') => self.mode = TopMode::Help,
            KeyCode::Char('/') => self.mode = TopMode::Filtering,
            KeyCode::Esc if self.filter.is_empty() => self.selected.clear(),
            KeyCode::Esc => self.set_filter(String::new()),
            KeyCode::Right | KeyCode::Tab => self.show(self.view.rotate(1)),
            KeyCode::Left | KeyCode::BackTab => self.show(self.view.rotate(TopView::ALL.len() - 1)),
            KeyCode::Char(digit @ '1'..='6') => {
                self.show(TopView::ALL[digit as usize - '1' as usize]);
            }
            KeyCode::Char('j') | KeyCode::Down => self.go(self.at.saturating_add(1)),
            KeyCode::Char('k') | KeyCode::Up => self.go(self.at.saturating_sub(1)),
            KeyCode::Char('l') | KeyCode::PageDown => {
                self.go(self.at.saturating_add(self.rows_fit));
            }
            KeyCode::Char('h') | KeyCode::PageUp => self.go(self.at.saturating_sub(self.rows_fit)),
            KeyCode::Char('g') | KeyCode::Home => self.go(0),
            KeyCode::Char('G') | KeyCode::End => self.go(usize::MAX),
            _ => {}
        }
        KeyOutcome::Draw
    }

    fn type_filter(&mut self, code: KeyCode) -> KeyOutcome {
        match code {
            KeyCode::Enter => return KeyOutcome::Draw,
            KeyCode::Esc => {
                self.set_filter(String::new());
                return KeyOutcome::Draw;
            }
            KeyCode::Backspace => {
                let mut filter = self.filter.clone();
                filter.pop();
                self.set_filter(filter);
            }
            KeyCode::Char(letter) if self.filter.chars().count() < FILTER_CHARS_MAX => {
                self.set_filter(format!("{}{letter}", self.filter));
            }
            _ => {}
        }
        self.mode = TopMode::Filtering;
        KeyOutcome::Draw
    }

    fn answer(&mut self, code: KeyCode, actions: Vec<TopAction>) -> KeyOutcome {
        if code == KeyCode::Char('y') {
            return self.perform(actions);
        }
        self.notice = Some(TopNotice::Done("nothing was changed".to_owned()));
        KeyOutcome::Draw
    }

    fn show(&mut self, view: TopView) {
        if view != self.view {
            (self.view, self.cursor_id, self.at) = (view, None, 0);
            self.filter.clear();
            self.selected.clear();
            self.restore_cursor();
        }
    }

    /// Selects the chosen row, or no longer.
    fn select(&mut self) {
        let Some(row) = self.row() else { return };
        if !self.selected.remove(&row.id) {
            self.selected.insert(row.id);
        }
    }

    /// Selects all rows that are shown, or none if they are selected already.
    fn select_all(&mut self) {
        let rows = self.table().rows;
        let is_all = rows.iter().all(|row| self.is_selected(row));
        self.selected = rows
            .into_iter()
            .filter(|_| !is_all)
            .map(|row| row.id)
            .collect();
    }

    /// What is done is done to those that were selected: they are not selected for the next.
    fn perform(&mut self, actions: Vec<TopAction>) -> KeyOutcome {
        self.selected.clear();
        KeyOutcome::Perform(actions)
    }

    fn set_filter(&mut self, filter: String) {
        self.filter = filter;
        self.restore_cursor();
    }

    fn go(&mut self, at: usize) {
        let rows = self.table().rows;
        self.at = at.min(rows.len().saturating_sub(1));
        self.cursor_id = rows.get(self.at).map(|row| row.id.clone());
    }

    /// Finds the chosen row again; if it is gone, the one in its place.
    fn restore_cursor(&mut self) {
        let rows = self.table().rows;
        let found = self
            .cursor_id
            .as_ref()
            .and_then(|cursor_id| rows.iter().position(|row| row.id == *cursor_id));
        self.at = found.unwrap_or_else(|| self.at.min(rows.len().saturating_sub(1)));
        self.cursor_id = rows.get(self.at).map(|row| row.id.clone());
    }

    fn row(&self) -> Option<TopRow> {
        self.table().rows.into_iter().nth(self.at)
    }

    /// The rows that are meant: those that were selected, else the chosen one. What is not shown is
    /// never meant.
    fn target_rows(&self) -> Vec<TopRow> {
        let mut rows = self.table().rows;
        rows.retain(|row| self.is_selected(row));
        if rows.is_empty() {
            self.row().into_iter().collect()
        } else {
            rows
        }
    }

    /// Pausing loses nothing and is undone by the same key: for one queue a capital letter is
    /// enough.
    fn toggle_pause(&mut self) -> KeyOutcome {
        let names: BTreeSet<QueueName> = self
            .target_rows()
            .into_iter()
            .filter_map(|row| row.queue)
            .collect();
        let known = self.figures.iter().flat_map(|figures| &figures.queues);
        let queues: Vec<_> = known.filter(|queue| names.contains(&queue.name)).collect();
        // Of several, none is opened while another gets paused by the same key.
        let is_open = queues.iter().any(|queue| queue.state == QueueState::Active);
        let (target_gate, gate) = if is_open {
            (QueueState::Active, QueueState::Paused)
        } else {
            (QueueState::Paused, QueueState::Active)
        };
        let turned = queues.iter().filter(|queue| queue.state == target_gate);
        let actions: Vec<TopAction> = turned
            .map(|queue| TopAction::SetGate(queue.name.clone(), gate))
            .collect();
        match actions.len() {
            0 => {
                let message = "P pauses a queue: choose one in Queues or Rates";
                self.notice = Some(TopNotice::Failed(message.to_owned()));
            }
            1 => return self.perform(actions),
            _ => self.mode = TopMode::Confirming(actions),
        }
        KeyOutcome::Draw
    }

    /// To quiet a worker loses nothing either, and is undone by the same key.
    fn toggle_workers(&mut self) -> KeyOutcome {
        let workers: Vec<_> = self
            .target_rows()
            .into_iter()
            .filter_map(|row| row.worker)
            .collect();
        let takes =
            |health: WorkerHealth| matches!(health, WorkerHealth::Live | WorkerHealth::Silent);
        // Of several, none goes on while another is quieted by the same key.
        let any_takes = workers.iter().any(|(_, health)| takes(*health));
        let order = if any_takes {
            WorkerCommand::Quiet
        } else {
            WorkerCommand::Resume
        };
        let is_meant = |health: WorkerHealth| {
            if any_takes {
                takes(health)
            } else {
                health == WorkerHealth::Quiet
            }
        };
        let targets = workers.into_iter().filter(|(_, health)| is_meant(*health));
        let actions: Vec<TopAction> = targets
            .map(|(name, _)| TopAction::CommandWorker(name, order))
            .collect();
        match actions.len() {
            0 => {
                let message =
                    "P quiets a worker, or has it go on: this one has begun to stop, or is none";
                self.notice = Some(TopNotice::Failed(message.to_owned()));
            }
            1 => return self.perform(actions),
            _ => self.mode = TopMode::Confirming(actions),
        }
        KeyOutcome::Draw
    }

    fn confirm_stop(&mut self) {
        let workers = self.target_rows().into_iter().filter_map(|row| row.worker);
        let there =
            workers.filter(|(_, health)| health.is_there() && *health != WorkerHealth::Stopping);
        let actions: Vec<TopAction> = there
            .map(|(name, _)| TopAction::CommandWorker(name, WorkerCommand::Stop))
            .collect();
        if !actions.is_empty() {
            self.mode = TopMode::Confirming(actions);
            return;
        }
        let message = "S stops a worker: choose one in Workers that does not stop already";
        self.notice = Some(TopNotice::Failed(message.to_owned()));
    }

    fn confirm_retry(&mut self) {
        let actions: Vec<TopAction> = self
            .target_rows()
            .into_iter()
            .filter_map(|row| row.retry_action)
            .collect();
        if !actions.is_empty() {
            self.mode = TopMode::Confirming(actions);
            return;
        }
        let message =
            "R requeues a group of dead letters, or resets a breaker: choose one in its view";
        self.notice = Some(TopNotice::Failed(message.to_owned()));
    }
}

#[cfg(test)]
mod tests;
