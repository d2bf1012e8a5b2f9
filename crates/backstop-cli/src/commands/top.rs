//! `backstop top`: a store at a glance, in a terminal.
//!
//! [`figures`] reads the store, [`rates`] remembers readings for rates, [`state`] is what is looked
//! at and what a key does to it, [`rows`] makes rows of it, [`draw`] puts them on a screen,
//! [`live`] is the loop around all of this.

mod draw;
mod figures;
mod live;
mod rates;
mod rows;
mod state;

use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use backstop::{Backstop, Span};
use clap::Args;
use figures::TopFigures;
use ratatui::crossterm::terminal;
use rates::RateHistory;
use state::{TopState, TopView};
use std::io::{IsTerminal, stdin, stdout};
use std::time::Duration;

/// Readings nearer to each other than this would keep a store busy for nothing.
const INTERVAL_MIN: Span = Span::millis(200);
/// Readings further apart than this show yesterday's weather.
const INTERVAL_MAX: Span = Span::minutes(10);
/// Between the two readings that one frame's rates are made of, at most.
const ONCE_MAX: Span = Span::secs(1);
/// A frame that goes nowhere in particular.
const DEFAULT_SIZE: (u16, u16) = (120, 40);

/// What to look at, and how often.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  backstop top
  backstop top --store postgres://app@db.example.org/shop --interval 5s
  backstop top --once --view dead
  backstop top --once --json | jq '.queues[] | {name, ready, rate}'

Keys: arrows or 1-6 choose a view, j/k a row, h/l a page, x selects a row and A all of them, / filters rows, ? helps, q quits.
P pauses or resumes a queue, or quiets a worker and has it go on; R requeues a group of dead letters or resets a breaker, and S stops
a worker, after a question; all do it to all rows that are selected. Reads the store directly, whether or not a server runs; the interval is from 200ms to 10m.")]
pub(crate) struct TopArgs {
    /// How often the store is read
    #[arg(long, value_name = "D", default_value = "2s")]
    interval: Span,
    /// Print one frame as text, and end; with --json the figures
    #[arg(long)]
    once: bool,
    /// The view to begin with
    #[arg(long, value_enum, default_value_t = TopView::Queues)]
    view: TopView,
}

impl TopArgs {
    /// Whether it draws over the whole terminal, so that nothing else may be written there.
    pub(crate) const fn is_full_screen(&self, is_json: bool) -> bool {
        !self.once && !is_json
    }
}

/// Shows the store until `q`, or once.
pub(crate) async fn run(args: &TopArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    if args.interval < INTERVAL_MIN || args.interval > INTERVAL_MAX {
        let cause = format!(
            "--interval must be from {INTERVAL_MIN} to {INTERVAL_MAX}; it is {}",
            args.interval
        );
        return Err(CliError::misuse(cause).advise("backstop top --interval 2s"));
    }
    if args.is_full_screen(context.output.is_json()) {
        if !stdin().is_terminal() || !stdout().is_terminal() {
            let cause = "there is no terminal here to draw on and to take keys from";
            return Err(CliError::misuse(cause).advise("backstop top --once, or --once --json"));
        }
        let backstop = context.open_for_reading().await?;
        let state = TopState::new(args.view, context.config.store.to_string());
        return live::run(backstop, state, pause(args.interval), context).await;
    }
    print_once(args, context).await
}

async fn print_once(args: &TopArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let (figures, history) = read_twice(&backstop, args.interval.min(ONCE_MAX)).await?;
    if context.output.is_json() {
        context.output.json(&figures.shape(&history))?;
        return Ok(ExitStatus::Success);
    }
    let mut state = TopState::new(args.view, context.config.store.to_string());
    state.take_in(figures, history);
    let (width, _) = terminal::size()
        .ok()
        .filter(|_| stdout().is_terminal())
        .unwrap_or(DEFAULT_SIZE);
    context
        .output
        .lines(&draw::text(&mut state, width.max(40)))?;
    Ok(ExitStatus::Success)
}

/// Two readings, so that there are rates.
async fn read_twice(
    backstop: &Backstop,
    apart: Span,
) -> Result<(TopFigures, RateHistory), CliError> {
    let mut history = RateHistory::default();
    history.push(&TopFigures::read(backstop).await?);
    tokio::time::sleep(pause(apart)).await;
    let figures = TopFigures::read(backstop).await?;
    history.push(&figures);
    Ok((figures, history))
}

fn pause(span: Span) -> Duration {
    Duration::from_micros(span.as_micros().unsigned_abs())
}
