//! What is looked at, and what a key does to it. Nothing here reads, writes or draws.

use super::figures::Figures;
use super::sheet::{self, Row, Sheet};
use super::trail::Trail;
use backstop::QueueName;
use backstop::breakers::GuardName;
use backstop::core::order::Order;
use backstop::core::port::Gate;
use backstop::core::{Fingerprint, WorkerName};
use backstop::workers::Health;
use clap::ValueEnum;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::BTreeSet;

/// Characters a filter may have; nobody types more.
const FILTER_CHARS_MAX: usize = 64;

/// What can be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum View {
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

impl View {
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
    fn turned(self, by: usize) -> Self {
        let at = Self::ALL
            .iter()
            .position(|view| *view == self)
            .unwrap_or_default();
        Self::ALL[(at + by) % Self::ALL.len()]
    }
}

/// What keys are for at the moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Mode {
    /// Looking.
    #[default]
    Looking,
    /// Typing a filter.
    Filtering,
    /// Answering whether all of this is really meant.
    Asked(Vec<Deed>),
    /// Reading what keys there are.
    Helped,
}

/// Something to be done to the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Deed {
    /// Pause a queue, or resume it.
    SetGate(QueueName, Gate),
    /// Requeue the dead letters of a group.
    Requeue {
        /// Of this queue.
        queue: QueueName,
        /// That died of this.
        fingerprint: Fingerprint,
        /// As many as there were when it was asked for.
        count: u64,
    },
    /// Reset a breaker, or open a gate again.
    Reset(GuardName),
    /// Ask a worker for something.
    Order(WorkerName, Order),
}

/// What a key asks of whoever runs the loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    /// Nothing but to be drawn.
    Draw,
    /// The end.
    Quit,
    /// A new reading, now.
    Read,
    /// These, one after another.
    Do(Vec<Deed>),
}

/// A line about what was done, or what went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Notice {
    /// It was done.
    Done(String),
    /// It was not.
    Failed(String),
}

/// What is looked at.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Where the figures come from.
    pub(super) store: String,
    /// The view.
    pub(super) view: View,
    /// What keys are for.
    pub(super) mode: Mode,
    /// Rows that have this are shown; all if it is empty.
    pub(super) filter: String,
    /// The last reading; `None` before the first.
    pub(super) figures: Option<Figures>,
    /// The readings before it.
    pub(super) trail: Trail,
    /// What was done, or went wrong, since the last key.
    pub(super) notice: Option<Notice>,
    /// Why the store could not be read lately, if so: the figures are old then.
    pub(super) trouble: Option<String>,
    /// Rows that fit the screen, as it was drawn last.
    pub(super) rows_fit: usize,
    /// The row, by what it is: when others come and go before it, it stays chosen.
    chosen: Option<String>,
    at: usize,
    /// Rows that were selected, by what they are.
    selected: BTreeSet<String>,
}

impl State {
    /// Before the first reading.
    pub(super) fn new(view: View, store: String) -> Self {
        Self {
            store,
            view,
            mode: Mode::default(),
            filter: String::new(),
            figures: None,
            trail: Trail::default(),
            notice: None,
            trouble: None,
            rows_fit: 1,
            chosen: None,
            at: 0,
            selected: BTreeSet::new(),
        }
    }

    /// Shows a reading and those before it.
    pub(super) fn take_in(&mut self, figures: Figures, trail: Trail) {
        self.figures = Some(figures);
        self.trail = trail;
        self.trouble = None;
        self.settle();
    }

    /// Goes on showing the last reading, and says that it is old.
    pub(super) fn unread(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// The rows that are shown.
    pub(super) fn sheet(&self) -> Sheet {
        let mut sheet = sheet::of(self.view, self.figures.as_ref(), &self.trail);
        let wanted = self.filter.to_lowercase();
        sheet.rows.retain(|row| row.has(&wanted));
        sheet
    }

    /// The chosen row's place among those shown.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// Whether a row was selected.
    pub(super) fn is_selected(&self, row: &Row) -> bool {
        self.selected.contains(&row.id)
    }

    /// What a key does.
    pub(super) fn press(mut self, key: KeyEvent) -> (Self, Wish) {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return (self, Wish::Quit);
        }
        self.notice = None;
        let wish = match std::mem::take(&mut self.mode) {
            Mode::Looking => self.look(key.code),
            Mode::Filtering => self.type_filter(key.code),
            Mode::Asked(deeds) => self.answer(key.code, deeds),
            // Whatever the key, the help goes away.
            Mode::Helped => Wish::Draw,
        };
        (self, wish)
    }

    fn look(&mut self, code: KeyCode) -> Wish {
        match code {
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Char('r') => return Wish::Read,
            KeyCode::Char('P') if self.view == View::Workers => return self.turn_workers(),
            KeyCode::Char('P') => return self.turn_gate(),
            KeyCode::Char('S') => self.ask_to_stop(),
            KeyCode::Char('R') => self.ask(),
            KeyCode::Char('x') => self.select(),
            KeyCode::Char('A') => self.select_all(),
            KeyCode::Char('?') => self.mode = Mode::Helped,
            KeyCode::Char('/') => self.mode = Mode::Filtering,
            KeyCode::Esc if self.filter.is_empty() => self.selected.clear(),
            KeyCode::Esc => self.refilter(String::new()),
            KeyCode::Right | KeyCode::Tab => self.show(self.view.turned(1)),
            KeyCode::Left | KeyCode::BackTab => self.show(self.view.turned(View::ALL.len() - 1)),
            KeyCode::Char(digit @ '1'..='6') => self.show(View::ALL[digit as usize - '1' as usize]),
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
        Wish::Draw
    }

    fn type_filter(&mut self, code: KeyCode) -> Wish {
        match code {
            KeyCode::Enter => return Wish::Draw,
            KeyCode::Esc => {
                self.refilter(String::new());
                return Wish::Draw;
            }
            KeyCode::Backspace => {
                let mut filter = self.filter.clone();
                filter.pop();
                self.refilter(filter);
            }
            KeyCode::Char(letter) if self.filter.chars().count() < FILTER_CHARS_MAX => {
                self.refilter(format!("{}{letter}", self.filter));
            }
            _ => {}
        }
        self.mode = Mode::Filtering;
        Wish::Draw
    }

    /// Only `y` means yes.
    fn answer(&mut self, code: KeyCode, deeds: Vec<Deed>) -> Wish {
        if code == KeyCode::Char('y') {
            return self.wish(deeds);
        }
        self.notice = Some(Notice::Done("nothing was changed".to_owned()));
        Wish::Draw
    }

    fn show(&mut self, view: View) {
        if view != self.view {
            (self.view, self.chosen, self.at) = (view, None, 0);
            self.filter.clear();
            self.selected.clear();
            self.settle();
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
        let rows = self.sheet().rows;
        let is_all = rows.iter().all(|row| self.is_selected(row));
        self.selected = rows
            .into_iter()
            .filter(|_| !is_all)
            .map(|row| row.id)
            .collect();
    }

    /// What is done is done to those that were selected: they are not selected for the next.
    fn wish(&mut self, deeds: Vec<Deed>) -> Wish {
        self.selected.clear();
        Wish::Do(deeds)
    }

    fn refilter(&mut self, filter: String) {
        self.filter = filter;
        self.settle();
    }

    fn go(&mut self, at: usize) {
        let rows = self.sheet().rows;
        self.at = at.min(rows.len().saturating_sub(1));
        self.chosen = rows.get(self.at).map(|row| row.id.clone());
    }

    /// Finds the chosen row again; if it is gone, the one in its place.
    fn settle(&mut self) {
        let rows = self.sheet().rows;
        let found = self
            .chosen
            .as_ref()
            .and_then(|chosen| rows.iter().position(|row| row.id == *chosen));
        self.at = found.unwrap_or_else(|| self.at.min(rows.len().saturating_sub(1)));
        self.chosen = rows.get(self.at).map(|row| row.id.clone());
    }

    fn row(&self) -> Option<Row> {
        self.sheet().rows.into_iter().nth(self.at)
    }

    /// The rows that are meant: those that were selected, else the chosen one. What is not shown is
    /// never meant.
    fn meant(&self) -> Vec<Row> {
        let mut rows = self.sheet().rows;
        rows.retain(|row| self.is_selected(row));
        if rows.is_empty() {
            self.row().into_iter().collect()
        } else {
            rows
        }
    }

    /// Pausing loses nothing and is undone by the same key: for one queue a capital letter is
    /// enough.
    fn turn_gate(&mut self) -> Wish {
        let names: BTreeSet<QueueName> = self
            .meant()
            .into_iter()
            .filter_map(|row| row.queue)
            .collect();
        let known = self.figures.iter().flat_map(|figures| &figures.queues);
        let queues: Vec<_> = known.filter(|queue| names.contains(&queue.name)).collect();
        // Of several, none is opened while another gets paused by the same key.
        let is_open = queues.iter().any(|queue| queue.gate == Gate::Open);
        let (meant, gate) = if is_open {
            (Gate::Open, Gate::Paused)
        } else {
            (Gate::Paused, Gate::Open)
        };
        let turned = queues.iter().filter(|queue| queue.gate == meant);
        let deeds: Vec<Deed> = turned
            .map(|queue| Deed::SetGate(queue.name.clone(), gate))
            .collect();
        match deeds.len() {
            0 => {
                let told = "P pauses a queue: choose one in Queues or Rates";
                self.notice = Some(Notice::Failed(told.to_owned()));
            }
            1 => return self.wish(deeds),
            _ => self.mode = Mode::Asked(deeds),
        }
        Wish::Draw
    }

    /// To quiet a worker loses nothing either, and is undone by the same key.
    fn turn_workers(&mut self) -> Wish {
        let workers: Vec<_> = self
            .meant()
            .into_iter()
            .filter_map(|row| row.worker)
            .collect();
        let takes = |health: Health| matches!(health, Health::Live | Health::Silent);
        // Of several, none goes on while another is quieted by the same key.
        let any_takes = workers.iter().any(|(_, health)| takes(*health));
        let order = if any_takes {
            Order::Quiet
        } else {
            Order::Resume
        };
        let is_meant = |health: Health| {
            if any_takes {
                takes(health)
            } else {
                health == Health::Quiet
            }
        };
        let meant = workers.into_iter().filter(|(_, health)| is_meant(*health));
        let deeds: Vec<Deed> = meant.map(|(name, _)| Deed::Order(name, order)).collect();
        match deeds.len() {
            0 => {
                let told =
                    "P quiets a worker, or has it go on: this one has begun to stop, or is none";
                self.notice = Some(Notice::Failed(told.to_owned()));
            }
            1 => return self.wish(deeds),
            _ => self.mode = Mode::Asked(deeds),
        }
        Wish::Draw
    }

    fn ask_to_stop(&mut self) {
        let workers = self.meant().into_iter().filter_map(|row| row.worker);
        let there = workers.filter(|(_, health)| health.is_there() && *health != Health::Stopping);
        let deeds: Vec<Deed> = there
            .map(|(name, _)| Deed::Order(name, Order::Stop))
            .collect();
        if !deeds.is_empty() {
            self.mode = Mode::Asked(deeds);
            return;
        }
        let told = "S stops a worker: choose one in Workers that does not stop already";
        self.notice = Some(Notice::Failed(told.to_owned()));
    }

    fn ask(&mut self) {
        let deeds: Vec<Deed> = self
            .meant()
            .into_iter()
            .filter_map(|row| row.again)
            .collect();
        if !deeds.is_empty() {
            self.mode = Mode::Asked(deeds);
            return;
        }
        let told =
            "R requeues a group of dead letters, or resets a breaker: choose one in its view";
        self.notice = Some(Notice::Failed(told.to_owned()));
    }
}

#[cfg(test)]
mod tests;
