//! Adopted tables: rows by state and by age, what is due, what is never tried again.

use super::chart::{Bar, Bars, Markup, Share, Tone, Unit};
use super::link::{Link, anchor};
use super::looks::{JUST_NOW, Known, Looks};
use super::mark::When;
use super::{Frame, PageFailure, Section, View, text};
use crate::App;
use askama::Template;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use backstop::Backstop;
use backstop::config::TableConfig;
use backstop::tables::{AgeBand, Failing, Status, Table};
use backstop_core::{Span, Time};
use futures_util::future::join_all;
use serde_json::Value;

/// Tables that a page looks at.
const TABLES_SHOWN: usize = 50;
/// Expired rows that are told one by one.
const EXPIRED_SHOWN: usize = 20;

/// What is known of a table.
struct Sight {
    status: Status,
    expired: Vec<Value>,
}

/// The page of tables.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/tables", get(list))
        .layer(Extension(Looks::<Sight>::default()))
}

#[derive(Template)]
#[template(path = "tables.html")]
struct Page {
    frame: Frame,
    tables: Vec<Shown>,
    left_out: usize,
}

/// A table as the page shows it.
struct Shown {
    name: String,
    /// Its place in the page, which an id can name whatever the table is called.
    anchor: String,
    facts: Vec<(&'static str, String)>,
    is_handled: bool,
    letters: String,
    is_looking: bool,
    seen: Option<When>,
    error: Option<String>,
    failing: Option<FailingShown>,
    status: Option<StatusShown>,
}

/// Passes that fail.
struct FailingShown {
    since: When,
    passes: String,
    error: String,
}

impl FailingShown {
    fn new(failing: &Failing, now: Time) -> Self {
        Self {
            since: When::new(failing.since, now),
            passes: text::many(failing.passes, "pass", "passes"),
            error: failing.error.clone(),
        }
    }
}

/// How a table stands.
struct StatusShown {
    figures: Vec<Figure>,
    bands: Markup,
    undated: u64,
    expired: Vec<String>,
    expired_more: u64,
    last_pass: Option<When>,
    next_pass: When,
    next_due: Option<When>,
    is_due: bool,
}

/// A number on top.
struct Figure {
    name: &'static str,
    value: String,
    is_warning: bool,
}

async fn list(
    view: View,
    Extension(looks): Extension<Looks<Sight>>,
) -> Result<Response, PageFailure> {
    let config = view.app().config();
    let tables = config.tables.values().take(TABLES_SHOWN);
    let shown = join_all(tables.map(|entry| {
        let (looks, view) = (looks.clone(), view.clone());
        async move {
            let table = entry.table.clone();
            let look = look(view.app().backstop().clone(), table.clone(), view.now());
            let known = looks.look(table.name(), view.now(), look).await;
            let failing = view
                .ask(view.app().backstop().adopted(&table).failing())
                .await?;
            Ok(Shown {
                failing: failing.map(|failing| FailingShown::new(&failing, view.now())),
                ..shown(&view, entry, &known)
            })
        }
    }))
    .await;
    let shown = shown.into_iter().collect::<Result<_, PageFailure>>()?;
    let left_out = config.tables.len().saturating_sub(TABLES_SHOWN);
    view.show(&Page {
        frame: view.frame(Section::Tables, "Tables"),
        tables: shown,
        left_out,
    })
}

async fn look(backstop: Backstop, table: Table, at: Time) -> Result<Sight, String> {
    let adopted = backstop.adopted(&table);
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
    Ok(Sight { status, expired })
}

fn shown(view: &View, entry: &TableConfig, known: &Known<Sight>) -> Shown {
    let (table, now) = (&entry.table, view.now());
    let (at, seen) = match &known.seen {
        Some((at, seen)) => (Some(*at), Some(seen)),
        None => (None, None),
    };
    let status = seen.and_then(|seen| seen.as_ref().as_ref().ok());
    Shown {
        name: table.name().to_owned(),
        anchor: anchor("table", table.name()),
        facts: facts(table),
        is_handled: entry.handler.is_some() || table.is_handled(),
        letters: Link::to(view.at("/dead"))
            .with("queue", table.letters_queue())
            .to_string(),
        is_looking: known.is_looking,
        seen: When::maybe(at.filter(|at| now.since(*at) > JUST_NOW), now),
        error: seen.and_then(|seen| seen.as_ref().as_ref().err().cloned()),
        failing: None,
        status: status.map(|sight| standing(sight, table.name(), now)),
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

fn standing(sight: &Sight, name: &str, now: Time) -> StatusShown {
    let status = &sight.status;
    let figure = |name, count, is_warning| Figure {
        name,
        value: text::count(count),
        is_warning,
    };
    let expired: Vec<String> = sight.expired.iter().map(ToString::to_string).collect();
    StatusShown {
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
        last_pass: When::maybe(status.last_pass, now),
        next_pass: When::new(status.next_pass, now),
        next_due: When::maybe(status.next_due.filter(|at| *at > status.at), now),
        is_due: status.due > 0,
    }
}

fn bands(bands: &[AgeBand], name: &str) -> Markup {
    let bar = |band: &AgeBand| {
        let age = band.until.map_or_else(
            || "older".to_owned(),
            |until| format!("up to {}", text::span(until)),
        );
        let every = |every: Span| format!("{age}, every {}", text::span(every));
        Bar {
            name: band.every.map_or_else(|| age.clone(), every),
            shares: vec![
                Share::new("new", Tone::Plain, band.new),
                Share::new("error", Tone::Bad, band.error),
            ],
        }
    };
    let id = anchor("ages", name);
    Bars {
        id: &id,
        title: "Open rows by age",
        of: "Age",
        unit: Unit::Count,
        bars: bands.iter().map(bar).collect(),
    }
    .figure()
}
