//! Dead letters: what they died of first, then the letters, and what brings them back.

mod act;
mod filter;
mod redrives;

use super::jobs::{Chip, short, told};
use super::link::{Link, part};
use super::mark::When;
use super::pick::Pick;
use super::trail::{Pages, Trail};
use super::{Frame, PageFailure, Section, View, text};
use crate::App;
use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use backstop::dead::{DeadGroup, DeadLetter, DeadLetters};
use backstop_core::Time;
use backstop_core::failure::truncated;
use filter::LetterFilter;

/// Groups on a page: the largest ones.
const GROUPS: usize = 50;
/// Letters on a page.
const PAGE: usize = 50;
/// Characters of an error in a list.
const ERROR_MAX: usize = 240;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/dead", get(list))
        .route("/dead/confirm", get(act::confirm))
        .route("/dead/act", post(act::act))
        .route("/dead/redrive", get(redrives::plan).post(redrives::start))
        .route("/dead/redrives", get(redrives::list))
        .route("/dead/redrives/{id}", get(redrives::one))
        .route("/dead/redrives/{id}/stop", post(redrives::stop))
        .route("/dead/redrives/{id}/resume", post(redrives::resume))
}

/// The dead letters, in the caller's name and with the secrets of the configuration hidden.
fn letters(view: &View) -> DeadLetters {
    let config = view.app().config();
    let policies = config
        .queues
        .iter()
        .map(|(name, entry)| (name.clone(), entry.settings.retry.clone()));
    let dead = view.app().backstop().dead().by(view.who());
    dead.redacting(config.redaction.clone())
        .retrying_by(policies.collect())
}

#[derive(Template)]
#[template(path = "dead.html")]
struct Page {
    frame: Frame,
    filter: filter::Shown,
    chips: Vec<Chip>,
    queues: Vec<QueueChip>,
    total: String,
    groups: Option<Groups>,
    letters: Option<Letters>,
    tabs: Vec<Tab>,
    kept: Vec<(String, String)>,
    redrive: String,
    runs: String,
}

/// A way to look at them.
pub(super) struct Tab {
    pub(super) word: &'static str,
    pub(super) link: String,
    pub(super) is_on: bool,
}

struct QueueChip {
    name: String,
    count: String,
    link: String,
    is_on: bool,
}

struct Groups {
    rows: Vec<GroupRow>,
    is_cut: bool,
}

struct GroupRow {
    error_type: String,
    error: String,
    fingerprint: String,
    queue: String,
    queue_link: String,
    kind: String,
    count: String,
    first: When,
    last: When,
    link: String,
    redrive: String,
    requeue: String,
    sample: String,
}

struct Letters {
    rows: Vec<LetterRow>,
    damaged: Vec<String>,
    pages: Pages,
    matching: Option<String>,
}

struct LetterRow {
    id: String,
    pick: String,
    short: String,
    link: String,
    queue: String,
    kind: String,
    error_type: String,
    error: String,
    attempts: String,
    requeues: u32,
    died: Option<When>,
}

async fn list(view: View) -> Result<Response, PageFailure> {
    let filter = LetterFilter::of(&view)?;
    let (dead, now) = (letters(&view), view.now());
    let stats = view.ask(dead.stats()).await?;
    let link = filter.on(view.at("/dead"));
    let shows_letters = view.query("view") == Some("letters") || filter.is_beyond_queue();
    let queue_link = |name: &backstop_core::QueueName| {
        let is_on = filter.0.queue.as_ref() == Some(name);
        let link = link.clone().without("after");
        let link = if is_on {
            link.without("queue")
        } else {
            link.with("queue", name)
        };
        (is_on, link.to_string())
    };
    let queues = stats
        .queues
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(name, count)| {
            let (is_on, link) = queue_link(name);
            QueueChip {
                name: name.to_string(),
                count: text::count(*count),
                link,
                is_on,
            }
        });
    let runs = super::runs::word(&view).await?;
    let page = Page {
        runs,
        frame: frame(&view, &filter),
        chips: filter.chips(&link),
        queues: queues.collect(),
        total: text::count(stats.total),
        groups: if shows_letters {
            None
        } else {
            Some(groups(&view, &dead, &filter, now).await?)
        },
        letters: if shows_letters {
            Some(page_of(&view, &dead, &filter, now).await?)
        } else {
            None
        },
        tabs: tabs(
            &view,
            &filter,
            if shows_letters { "letters" } else { "groups" },
        ),
        kept: link.pairs().to_vec(),
        redrive: filter.on(view.at("/dead/redrive")).to_string(),
        filter: filter.shown(),
    };
    view.show(&page)
}

/// Not live where letters are looked into: that costs more than somebody who only left the page
/// open should.
fn frame(view: &View, filter: &LetterFilter) -> Frame {
    let frame = view.frame(Section::Dead, "Dead letters");
    if filter.0.text.is_some() {
        frame
    } else {
        frame.live()
    }
}

/// Groups, letters, redrives.
fn tabs(view: &View, filter: &LetterFilter, on: &str) -> Vec<Tab> {
    let queue = Link::to(view.at("/dead")).with_some("queue", filter.0.queue.as_ref());
    let tab = |word, link: Link| Tab {
        word,
        link: link.to_string(),
        is_on: word == on,
    };
    vec![
        tab("groups", queue),
        tab(
            "letters",
            filter.on(view.at("/dead")).with("view", "letters"),
        ),
        tab("redrives", Link::to(view.at("/dead/redrives"))),
    ]
}

async fn groups(
    view: &View,
    dead: &DeadLetters,
    filter: &LetterFilter,
    now: Time,
) -> Result<Groups, PageFailure> {
    let groups = view
        .ask(dead.groups(filter.0.queue.clone(), GROUPS))
        .await?;
    Ok(Groups {
        is_cut: groups.len() == GROUPS,
        rows: groups.iter().map(|group| row(view, group, now)).collect(),
    })
}

fn row(view: &View, group: &DeadGroup, now: Time) -> GroupRow {
    let of_group = |path: &str| {
        Link::to(view.at(path))
            .with("queue", &group.queue)
            .with("fingerprint", group.fingerprint)
    };
    GroupRow {
        error_type: group
            .sample
            .error_type
            .as_deref()
            .map(text::name)
            .unwrap_or_default(),
        error: truncated(text::name(&group.sample.error), ERROR_MAX),
        fingerprint: group.fingerprint.to_string(),
        queue: group.queue.to_string(),
        queue_link: view.at(&format!("/queues/{}", part(group.queue.as_str()))),
        kind: group
            .sample
            .kind
            .as_ref()
            .map(text::kind)
            .unwrap_or_default(),
        count: text::count(group.count),
        first: When::new(group.first_at, now),
        last: When::new(group.last_at, now),
        link: of_group("/dead").to_string(),
        redrive: of_group("/dead/redrive").to_string(),
        requeue: of_group("/dead/confirm")
            .with("action", "requeue")
            .with("all", "matching")
            .to_string(),
        sample: Pick::new(group.sample.id, &group.queue)
            .link(view, "/dead")
            .to_string(),
    }
}

async fn page_of(
    view: &View,
    dead: &DeadLetters,
    filter: &LetterFilter,
    now: Time,
) -> Result<Letters, PageFailure> {
    let cursor = view.query("after").map(str::to_owned);
    let page = view.ask(dead.list(&filter.0, cursor, PAGE)).await?;
    let link = filter.on(view.at("/dead")).with("view", "letters");
    let matching = view.ask(filter::count(dead, &filter.0)).await?;
    Ok(Letters {
        rows: page
            .letters
            .iter()
            .map(|letter| letter_row(view, letter, now))
            .collect(),
        damaged: page.damaged.iter().map(told).collect(),
        pages: Trail::of(view, "after")
            .pages(&link, page.next)
            .ordered("those that died last first"),
        matching: matching.map(|count| count.to_string()),
    })
}

fn letter_row(view: &View, letter: &DeadLetter, now: Time) -> LetterRow {
    let pick = Pick::new(letter.id, &letter.queue);
    LetterRow {
        id: letter.id.to_string(),
        pick: pick.to_string(),
        short: short(letter.id),
        link: pick.link(view, "/dead").to_string(),
        queue: letter.queue.to_string(),
        kind: text::kind(&letter.kind),
        error_type: letter.error_type.clone().unwrap_or_default(),
        error: truncated(letter.error.clone(), ERROR_MAX),
        attempts: text::count(letter.attempt_count.into()),
        requeues: letter.requeues,
        died: When::maybe(letter.last_failed_at, now),
    }
}
