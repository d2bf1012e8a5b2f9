//! Dead letters: what they died of first, then the letters, and what brings them back.

mod act;
mod filter;
mod redrives;

use super::components::RelativeTime;
use super::job_ref::JobRef;
use super::jobs::{FilterChip, describe_damaged, short};
use super::link::{PageLink, part};
use super::pagination::{PaginationLinks, PaginationState};
use super::{PageFailure, PageFrame, PageSection, PageView, text};
use crate::App;
use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use backstop::dead::{DeadGroup, DeadLetter, DeadLetters};
use backstop_core::Time;
use backstop_core::failure::truncate_text;
use filter::DeadLetterFilter;

/// Groups on a page: the largest ones.
const GROUPS: usize = 50;
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
fn letters(view: &PageView) -> DeadLetters {
    let config = view.app().config();
    let policies = config
        .queues
        .iter()
        .map(|(name, entry)| (name.clone(), entry.settings.retry.clone()));
    let dead = view.app().backstop().dead().by(view.who());
    dead.redacting(config.redaction.clone())
        .with_retry_policies(policies.collect())
}

#[derive(Template)]
#[template(path = "dead.html")]
struct DeadLetterListPage {
    frame: PageFrame,
    filter: filter::DeadFilterForm,
    chips: Vec<FilterChip>,
    queues: Vec<QueueChip>,
    total: String,
    groups: Option<DeadGroupList>,
    letters: Option<DeadLetterList>,
    tabs: Vec<DeadLetterTab>,
    kept: Vec<(String, String)>,
    redrive: String,
    runs: String,
}

/// A way to look at them.
pub(super) struct DeadLetterTab {
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

struct DeadGroupList {
    rows: Vec<DeadGroupRow>,
    is_cut: bool,
}

struct DeadGroupRow {
    error_type: String,
    error: String,
    fingerprint: String,
    queue: String,
    queue_link: String,
    kind: String,
    count: String,
    first: RelativeTime,
    last: RelativeTime,
    link: String,
    redrive: String,
    requeue: String,
    sample: String,
}

struct DeadLetterList {
    rows: Vec<DeadLetterRow>,
    damaged: Vec<String>,
    pages: PaginationLinks,
    matching: Option<String>,
}

struct DeadLetterRow {
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
    died: Option<RelativeTime>,
}

async fn list(view: PageView) -> Result<Response, PageFailure> {
    let filter = DeadLetterFilter::of(&view)?;
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
    let runs = super::runs::link_label(&view).await?;
    let page = DeadLetterListPage {
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
        filter: filter.to_form(),
    };
    view.show(&page)
}

/// Not live where letters are looked into: that costs more than somebody who only left the page
/// open should.
fn frame(view: &PageView, filter: &DeadLetterFilter) -> PageFrame {
    let frame = view.frame(PageSection::Dead, "Dead letters");
    if filter.0.text.is_some() {
        frame
    } else {
        frame.live()
    }
}

fn tabs(view: &PageView, filter: &DeadLetterFilter, on: &str) -> Vec<DeadLetterTab> {
    let queue = PageLink::to(view.at("/dead")).with_some("queue", filter.0.queue.as_ref());
    let tab = |word, link: PageLink| DeadLetterTab {
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
        tab("redrives", PageLink::to(view.at("/dead/redrives"))),
    ]
}

async fn groups(
    view: &PageView,
    dead: &DeadLetters,
    filter: &DeadLetterFilter,
    now: Time,
) -> Result<DeadGroupList, PageFailure> {
    let groups = view
        .ask(dead.groups(filter.0.queue.clone(), GROUPS))
        .await?;
    Ok(DeadGroupList {
        is_cut: groups.len() == GROUPS,
        rows: groups.iter().map(|group| row(view, group, now)).collect(),
    })
}

fn row(view: &PageView, group: &DeadGroup, now: Time) -> DeadGroupRow {
    let of_group = |path: &str| {
        PageLink::to(view.at(path))
            .with("queue", &group.queue)
            .with("fingerprint", group.fingerprint)
    };
    DeadGroupRow {
        error_type: group
            .sample
            .error_type
            .as_deref()
            .map(text::name)
            .unwrap_or_default(),
        error: truncate_text(text::name(&group.sample.error), ERROR_MAX),
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
        first: RelativeTime::new(group.first_at, now),
        last: RelativeTime::new(group.last_at, now),
        link: of_group("/dead").to_string(),
        redrive: of_group("/dead/redrive").to_string(),
        requeue: of_group("/dead/confirm")
            .with("action", "requeue")
            .with("all", "matching")
            .to_string(),
        sample: JobRef::new(group.sample.id, &group.queue)
            .link(view, "/dead")
            .to_string(),
    }
}

async fn page_of(
    view: &PageView,
    dead: &DeadLetters,
    filter: &DeadLetterFilter,
    now: Time,
) -> Result<DeadLetterList, PageFailure> {
    let cursor = view.query("after").map(str::to_owned);
    let page = view.ask(dead.list(&filter.0, cursor, PAGE)).await?;
    let link = filter.on(view.at("/dead")).with("view", "letters");
    let matching = view.ask(filter::count(dead, &filter.0)).await?;
    Ok(DeadLetterList {
        rows: page
            .letters
            .iter()
            .map(|letter| letter_row(view, letter, now))
            .collect(),
        damaged: page.damaged.iter().map(describe_damaged).collect(),
        pages: PaginationState::of(view, "after")
            .pages(&link, page.next)
            .with_order("those that died last first"),
        matching: matching.map(|count| count.to_string()),
    })
}

fn letter_row(view: &PageView, letter: &DeadLetter, now: Time) -> DeadLetterRow {
    let pick = JobRef::new(letter.id, &letter.queue);
    DeadLetterRow {
        id: letter.id.to_string(),
        pick: pick.to_string(),
        short: short(letter.id),
        link: pick.link(view, "/dead").to_string(),
        queue: letter.queue.to_string(),
        kind: text::kind(&letter.kind),
        error_type: letter.error_type.clone().unwrap_or_default(),
        error: truncate_text(letter.error.clone(), ERROR_MAX),
        attempts: text::count(letter.attempt_count.into()),
        requeues: letter.requeues,
        died: RelativeTime::maybe(letter.last_failed_at, now),
    }
}
