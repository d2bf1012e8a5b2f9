//! Adopted tables: rows by state and by age, what is due, what is never tried again.

use super::cached_query::{CachedQuery, JUST_NOW, QueryCache};
use super::chart::{BarChart, ChartBar, ChartMarkup, ChartSegment, ChartTone, ChartUnit};
use super::components::RelativeTime;
use super::link::{PageLink, anchor};
use super::{PageFailure, PageFrame, PageSection, PageView, text};
use crate::App;
use askama::Template;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use backstop::Backstop;
use backstop::config::TableConfig;
use backstop::tables::{AgeBand, FailingPasses, Table, TableStatus};
use backstop_core::{Span, Time};
use futures_util::future::join_all;
use serde_json::Value;

/// Tables that a page looks at.
const TABLES_SHOWN: usize = 50;
/// Expired rows that are told one by one.
const EXPIRED_SHOWN: usize = 20;

/// What is known of a table.
struct TableInspection {
    status: TableStatus,
    expired: Vec<Value>,
}

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/tables", get(list))
        .layer(Extension(QueryCache::<TableInspection>::default()))
}

#[derive(Template)]
#[template(path = "tables.html")]
struct TableListPage {
    frame: PageFrame,
    tables: Vec<TablePanel>,
    left_out: usize,
}

/// A table as the page shows it.
struct TablePanel {
    name: String,
    /// Its place in the page, which an id can name whatever the table is called.
    anchor: String,
    facts: Vec<(&'static str, String)>,
    is_handled: bool,
    letters: String,
    is_looking: bool,
    seen: Option<RelativeTime>,
    error: Option<String>,
    failing: Option<FailingPassesView>,
    status: Option<TableStatusView>,
}

struct FailingPassesView {
    since: RelativeTime,
    passes: String,
    error: String,
}

impl FailingPassesView {
    fn new(failing: &FailingPasses, now: Time) -> Self {
        Self {
            since: RelativeTime::new(failing.since, now),
            passes: text::many(failing.passes, "pass", "passes"),
            error: failing.error.clone(),
        }
    }
}

struct TableStatusView {
    figures: Vec<TableFigure>,
    bands: ChartMarkup,
    undated: u64,
    expired: Vec<String>,
    expired_more: u64,
    last_pass: Option<RelativeTime>,
    next_pass: RelativeTime,
    next_due: Option<RelativeTime>,
    is_due: bool,
}

struct TableFigure {
    name: &'static str,
    value: String,
    is_warning: bool,
}

async fn list(
    view: PageView,
    Extension(looks): Extension<QueryCache<TableInspection>>,
) -> Result<Response, PageFailure> {
    let config = view.app().config();
    let tables = config.tables.values().take(TABLES_SHOWN);
    let shown = join_all(tables.map(|entry| {
        let (looks, view) = (looks.clone(), view.clone());
        async move {
            let table = entry.table.clone();
            let look = inspect(view.app().backstop().clone(), table.clone(), view.now());
            let known = looks.query(table.name(), view.now(), look).await;
            let failing = view
                .ask(view.app().backstop().adopted_table(&table).failing())
                .await?;
            Ok(TablePanel {
                failing: failing.map(|failing| FailingPassesView::new(&failing, view.now())),
                ..table_panel(&view, entry, &known)
            })
        }
    }))
    .await;
    let shown = shown.into_iter().collect::<Result<_, PageFailure>>()?;
    let left_out = config.tables.len().saturating_sub(TABLES_SHOWN);
    view.show(&TableListPage {
        frame: view.frame(PageSection::Tables, "Tables"),
        tables: shown,
        left_out,
    })
}

async fn inspect(backstop: Backstop, table: Table, at: Time) -> Result<TableInspection, String> {
    let adopted = backstop.adopted_table(&table);
    let status = adopted
        .status(at)
        .await
        .map_err(|error| error.to_string())?;
    let expired = if status.expired > 0 {
        adopted
            .expired(at, EXPIRED_SHOWN)
            .await
            .map_err(|error| error.to_string())?
    } else {
        Vec::new()
    };
    Ok(TableInspection { status, expired })
}

fn table_panel(
    view: &PageView,
    entry: &TableConfig,
    known: &CachedQuery<TableInspection>,
) -> TablePanel {
    let (table, now) = (&entry.table, view.now());
    let (at, seen) = match &known.seen {
        Some((at, seen)) => (Some(*at), Some(seen)),
        None => (None, None),
    };
    let status = seen.and_then(|seen| seen.as_ref().as_ref().ok());
    TablePanel {
        name: table.name().to_owned(),
        anchor: anchor("table", table.name()),
        facts: facts(table),
        is_handled: entry.handler.is_some() || table.is_handled(),
        letters: PageLink::to(view.at("/dead"))
            .with("queue", table.dead_letter_queue())
            .to_string(),
        is_looking: known.is_looking,
        seen: RelativeTime::maybe(at.filter(|at| now.since(*at) > JUST_NOW), now),
        error: seen.and_then(|seen| seen.as_ref().as_ref().err().cloned()),
        failing: None,
        status: status.map(|sight| status_view(sight, table.name(), now)),
    }
}

fn facts(table: &Table) -> Vec<(&'static str, String)> {
    let rules = table.rules();
    let tried = if rules.counts_failures() {
        "by how often they failed"
    } else {
        "by their age"
    };
    let until = match rules.max_failures() {
        Some(max) => format!(
            "up to {} old and {max} failures",
            text::span(rules.max_age())
        ),
        None => format!("up to {} old", text::span(rules.max_age())),
    };
    vec![
        (
            "Table",
            format!("{} in {}", table.table_name(), table.source().address()),
        ),
        ("Rows are tried", format!("{tried}, {until}")),
        (
            "Pass",
            format!(
                "every {}, at most {}",
                text::span(table.period()),
                text::many(table.records_max() as u64, "row", "rows")
            ),
        ),
    ]
}

fn status_view(sight: &TableInspection, name: &str, now: Time) -> TableStatusView {
    let status = &sight.status;
    let figure = |name, count, is_warning| TableFigure {
        name,
        value: text::count(count),
        is_warning,
    };
    let expired: Vec<String> = sight.expired.iter().map(ToString::to_string).collect();
    TableStatusView {
        figures: vec![
            figure("new", status.new, false),
            figure("error", status.error, false),
            figure("success", status.success, false),
            figure("in other states", status.other, false),
            figure("due", status.due, false),
            figure("waiting", status.waiting, false),
            figure("expired", status.expired, status.expired > 0),
            figure("in hand", status.in_hand as u64, false),
        ],
        bands: bands(&status.bands, name),
        undated: status.undated,
        expired_more: status.expired.saturating_sub(expired.len() as u64),
        expired,
        last_pass: RelativeTime::maybe(status.last_pass, now),
        next_pass: RelativeTime::new(status.next_pass, now),
        next_due: RelativeTime::maybe(status.next_due.filter(|at| *at > status.at), now),
        is_due: status.due > 0,
    }
}

fn bands(bands: &[AgeBand], name: &str) -> ChartMarkup {
    let bar = |band: &AgeBand| {
        let age = band.until.map_or_else(
            || "older".to_owned(),
            |until| format!("up to {}", text::span(until)),
        );
        let every = |every: Span| format!("{age}, every {}", text::span(every));
        ChartBar {
            name: band.every.map_or_else(|| age.clone(), every),
            shares: vec![
                ChartSegment::new("new", ChartTone::Plain, band.new),
                ChartSegment::new("error", ChartTone::Bad, band.error),
            ],
        }
    };
    let id = anchor("ages", name);
    BarChart {
        id: &id,
        title: "Open rows by age",
        of: "Age",
        unit: ChartUnit::Count,
        bars: bands.iter().map(bar).collect(),
    }
    .figure()
}
