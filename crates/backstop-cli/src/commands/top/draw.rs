//! Putting what is looked at on a screen.

use super::rates::TopFlow;
use super::rows::{TopRow, TopTable, format_rate};
use super::state::{TopAction, TopMode, TopNotice, TopState, TopView};
use crate::output::table::CellTone;
use crate::output::words::{count, counted, one_line};
use backstop::core::port::QueueState;
use backstop::core::worker_command::WorkerCommand;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{
    Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState, Tabs, Wrap,
};
use ratatui::{Frame, symbols};

/// Lines around the rows: title, tabs, the head of the table, the line of keys.
const AROUND: u16 = 5;
/// Lines of the large sparkline with its frame.
const CHART: u16 = 8;
/// No column but the last is wider.
const COLUMN_MAX: usize = 40;

const HELP: &str = "\
←/→ or 1-6   view
j/k or ↑/↓   row
h/l          page
g/G          first, last row
x            select a row, or no longer
A            select all rows shown, or none
/            filter rows; Esc shows all again
r            read the store now
?            this
q            quit

Capital letters change something:
P            pause a queue, or resume it; a worker
             takes no new jobs, or goes on
R            requeue a group of dead letters,
             or reset a breaker; asks first
S            stop a worker; asks first
All do it to all rows that are selected.";

/// Deeds of several that a question names.
const QUESTIONS_MAX: usize = 10;

/// Draws all of it; notes in `state` how many rows fit.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut TopState) {
    let [title, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(headline(state), title);
    frame.render_widget(tab_line(state.view), tabs);
    let body = if state.view == TopView::Rates {
        chart(frame, state, body)
    } else {
        body
    };
    rows(frame, state, body);
    frame.render_widget(footline(state), foot);
    match &state.mode {
        TopMode::Help => draw_popup(frame, " Keys ", HELP),
        TopMode::Confirming(actions) => draw_popup(frame, " Sure? ", &question(actions)),
        TopMode::Browsing | TopMode::Filtering => {}
    }
}

/// One frame as text, as high as its rows ask for.
pub(super) fn text(state: &mut TopState, width: u16) -> String {
    let rows = u16::try_from(state.table().rows.len().max(1)).unwrap_or(u16::MAX / 2);
    let chart = if state.view == TopView::Rates {
        CHART
    } else {
        0
    };
    // What is chosen and which keys there are means nothing to whoever reads a page.
    let size = Rect::new(0, 0, width, rows + chart + AROUND - 1);
    let backend = TestBackend::new(size.width, size.height);
    let Ok(mut terminal) = Terminal::new(backend);
    let Ok(_) = terminal.draw(|frame| draw_page(frame, state));
    lines(&terminal).join("\n").trim_end().to_owned()
}

fn draw_page(frame: &mut Frame<'_>, state: &mut TopState) {
    let [title, tabs, body] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Min(1),
    ])
    .areas(frame.area());
    frame.render_widget(headline(state), title);
    frame.render_widget(tab_line(state.view), tabs);
    let body = if state.view == TopView::Rates {
        chart(frame, state, body)
    } else {
        body
    };
    let view_table = state.table();
    frame.render_widget(table(&view_table), body);
    if view_table.rows.is_empty() {
        frame.render_widget(Paragraph::new(view_table.empty), below_head(body));
    }
}

/// What a terminal shows, line by line.
pub(super) fn lines(terminal: &Terminal<TestBackend>) -> Vec<String> {
    let buffer = terminal.backend().buffer();
    let line = |y| {
        (0..buffer.area.width)
            .map(|x| buffer[(x, y)].symbol())
            .collect::<String>()
    };
    (0..buffer.area.height)
        .map(|y| line(y).trim_end().to_owned())
        .collect()
}

fn headline(state: &TopState) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let dim = Style::new().add_modifier(Modifier::DIM);
    let mut parts = vec![
        Span::styled("backstop", bold),
        Span::styled(format!("  {}", state.store), dim),
    ];
    if let Some(figures) = &state.figures {
        let live: u64 = figures.queues.iter().map(|queue| queue.counts.live()).sum();
        let held: u64 = figures.streams.iter().map(|stream| stream.records).sum();
        let dead = figures.dead();
        let rate = format_rate(state.history.rate(None, TopFlow::Done));
        parts.push(Span::raw(format!(
            "  {} live · {rate} done/s · ",
            count(live)
        )));
        let tone = if dead > 0 {
            CellTone::Bad
        } else {
            CellTone::Plain
        };
        parts.push(Span::styled(format!("{} dead", count(dead)), style(tone)));
        parts.push(Span::raw(format!(
            " · {} held · {}",
            count(held),
            counted(figures.workers.len() as u64, "worker")
        )));
    }
    Line::from(parts)
}

fn tab_line(view: TopView) -> Tabs<'static> {
    let titles = TopView::ALL
        .iter()
        .enumerate()
        .map(|(at, view)| format!("{} {}", at + 1, view.title()));
    let chosen = TopView::ALL.iter().position(|each| *each == view);
    let marked = Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED);
    Tabs::new(titles)
        .select(chosen)
        .highlight_style(marked)
        .divider(symbols::line::VERTICAL)
}

/// The rate of all queues over time; answers what room is left.
fn chart(frame: &mut Frame<'_>, state: &TopState, area: Rect) -> Rect {
    let [top, rest] = Layout::vertical([Constraint::Length(CHART), Constraint::Min(1)]).areas(area);
    let line = state.history.line(None, TopFlow::Done);
    let highest = line.iter().copied().max().unwrap_or_default();
    let shown = &line[line
        .len()
        .saturating_sub(usize::from(top.width.saturating_sub(2)))..];
    #[expect(clippy::cast_precision_loss, reason = "a rate to look at")]
    let title = format!(
        " done a second, all queues; the highest is {} ",
        format_rate(Some(highest as f64 / 1_000.0))
    );
    let spark = Sparkline::default()
        .data(shown)
        .style(style(CellTone::Good))
        .block(Block::bordered().title(title));
    frame.render_widget(spark, top);
    rest
}

fn rows(frame: &mut Frame<'_>, state: &mut TopState, area: Rect) {
    let view_table = with_selection(state.table(), state);
    state.rows_fit = usize::from(area.height.saturating_sub(1)).max(1);
    if view_table.rows.is_empty() {
        let empty_text = if state.filter.is_empty() {
            view_table.empty
        } else {
            "no row has this; Esc shows all again"
        };
        frame.render_widget(table(&view_table), area);
        frame.render_widget(
            Paragraph::new(empty_text).wrap(Wrap { trim: true }),
            below_head(area),
        );
        return;
    }
    let marked = Style::new().add_modifier(Modifier::REVERSED);
    let mut chosen = TableState::default().with_selected(state.at());
    frame.render_stateful_widget(
        table(&view_table).row_highlight_style(marked),
        area,
        &mut chosen,
    );
}

/// With a star before the rows that were selected, as soon as there are some.
fn with_selection(mut view_table: TopTable, state: &TopState) -> TopTable {
    if view_table.rows.iter().any(|row| state.is_selected(row)) {
        for row in &mut view_table.rows {
            let mark = if state.is_selected(row) { "* " } else { "  " };
            if let Some((text, _)) = row.cells.first_mut() {
                text.insert_str(0, mark);
            }
        }
    }
    view_table
}

const fn below_head(area: Rect) -> Rect {
    Rect {
        y: area.y + 1,
        height: area.height.saturating_sub(1),
        ..area
    }
}

fn table(view_table: &TopTable) -> Table<'static> {
    let head = view_table
        .titles
        .iter()
        .map(|title| match title.strip_prefix('#') {
            Some(number) => Cell::new(Text::from(number).alignment(Alignment::Right)),
            None => Cell::new(*title),
        });
    let head = Row::new(head).style(Style::new().add_modifier(Modifier::BOLD));
    let rows = view_table
        .rows
        .iter()
        .map(|row| render_row(row, view_table.titles))
        .collect::<Vec<_>>();
    Table::new(rows, widths(view_table))
        .header(head)
        .column_spacing(2)
}

fn render_row(row: &TopRow, titles: &[&str]) -> Row<'static> {
    let cells = row.cells.iter().zip(titles).map(|((text, tone), title)| {
        let alignment = if title.starts_with('#') {
            Alignment::Right
        } else {
            Alignment::Left
        };
        Cell::new(Text::styled(text.clone(), style(*tone)).alignment(alignment))
    });
    Row::new(cells.collect::<Vec<_>>())
}

/// Each column as wide as its widest cell; the last one takes what is left.
fn widths(view_table: &TopTable) -> Vec<Constraint> {
    let width = |at: usize| {
        let title = view_table.titles[at]
            .trim_start_matches('#')
            .chars()
            .count();
        let cells = view_table.rows.iter().filter_map(|row| row.cells.get(at));
        cells
            .map(|(text, _)| text.chars().count())
            .max()
            .unwrap_or_default()
            .max(title)
            .min(COLUMN_MAX)
    };
    let last = view_table.titles.len() - 1;
    let is_text = !view_table.titles[last].starts_with('#');
    let constraint = |at: usize| match at {
        at if at == last && is_text => Constraint::Fill(1),
        at => Constraint::Length(u16::try_from(width(at)).unwrap_or(u16::MAX)),
    };
    (0..view_table.titles.len()).map(constraint).collect()
}

fn footline(state: &TopState) -> Line<'static> {
    let is_typing = state.mode == TopMode::Filtering;
    match (&state.store_error, &state.notice) {
        _ if is_typing => Line::from(format!(
            "/{}▏  Enter keeps it, Esc shows all again",
            state.filter
        )),
        (Some(error), _) => {
            let figures = state
                .figures
                .as_ref()
                .map(|figures| format!("figures of {}: ", figures.at));
            Line::styled(
                format!("{}{error}", figures.unwrap_or_default()),
                style(CellTone::Bad),
            )
        }
        (None, Some(TopNotice::Failed(message))) => {
            Line::styled(message.clone(), style(CellTone::Bad))
        }
        (None, Some(TopNotice::Done(message))) => {
            Line::styled(message.clone(), style(CellTone::Good))
        }
        (None, None) => {
            let keys = "←/→ view  j/k row  x select  A all  / filter  ? help  q quit  P pause  R requeue or reset  S stop";
            let filter = &state.filter;
            let shown = if filter.is_empty() {
                keys.to_owned()
            } else {
                format!("only rows with {filter}; Esc shows all again")
            };
            Line::styled(shown, Style::new().add_modifier(Modifier::DIM))
        }
    }
}

/// What is asked before it is done.
fn question(actions: &[TopAction]) -> String {
    let mut questions: Vec<String> = actions
        .iter()
        .take(QUESTIONS_MAX)
        .map(action_question)
        .collect();
    let more = actions.len().saturating_sub(questions.len());
    questions.extend((more > 0).then(|| format!("… and {more} more?")));
    format!("{}\n\ny  yes\nany other key  no", questions.join("\n"))
}

fn action_question(action: &TopAction) -> String {
    match action {
        TopAction::SetGate(queue, QueueState::Paused) => format!("Pause {queue}?"),
        TopAction::SetGate(queue, QueueState::Active) => format!("Resume {queue}?"),
        TopAction::Requeue {
            queue,
            fingerprint,
            count,
        } => {
            let letters = counted(*count, "dead letter");
            format!(
                "Requeue {letters} of {queue} that died of the same ({fingerprint})?\nThey run again, with all attempts anew."
            )
        }
        TopAction::Reset(name) => {
            format!(
                "Reset {}?\nWhat it keeps back runs at once.",
                one_line(&name.to_string())
            )
        }
        TopAction::CommandWorker(worker, order) => {
            let worker = one_line(worker.as_str());
            match order {
                WorkerCommand::Quiet => format!("Have {worker} take no new jobs?"),
                WorkerCommand::Resume => format!("Have {worker} go on?"),
                WorkerCommand::Stop => {
                    format!(
                        "Stop {worker}?\nIt ends what it runs, within its grace, and then itself."
                    )
                }
            }
        }
    }
}

/// A box over the middle.
fn draw_popup(frame: &mut Frame<'_>, title: &'static str, text: &str) {
    let wide = text
        .lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or_default();
    let high = text.lines().count();
    let fit = |wanted: usize, most: u16| u16::try_from(wanted).unwrap_or(u16::MAX).min(most);
    let area = frame.area();
    let (width, height) = (fit(wide + 4, area.width), fit(high + 2, area.height));
    let place = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, place);
    let block = Block::bordered()
        .title(title)
        .padding(ratatui::widgets::Padding::horizontal(1));
    frame.render_widget(
        Paragraph::new(text.to_owned())
            .wrap(Wrap { trim: false })
            .block(block),
        place,
    );
}

fn style(tone: CellTone) -> Style {
    match tone {
        CellTone::Plain => Style::new(),
        CellTone::Good => Style::new().fg(Color::Green),
        CellTone::Warning => Style::new().fg(Color::Yellow),
        CellTone::Bad => Style::new().fg(Color::Red),
    }
}

#[cfg(test)]
mod tests;
