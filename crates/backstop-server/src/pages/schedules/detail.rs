//! One schedule: when it is due next, and its ledger as a strip of days and as a list.

use super::{in_words, link, local, named, tone};
use crate::pages::chart::{CalendarChart, CalendarDay, ChartMarkup, ChartSegment, ChartTone};
use crate::pages::components::RelativeTime;
use crate::pages::link::{PageLink, part};
use crate::pages::pagination::{PaginationLinks, PaginationState};
use crate::pages::{PageFailure, PageFrame, PageSection, PageView, text};
use crate::words::cut;
use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use backstop::schedules::{
    InstantOutcome, LedgerEntry, MissedPolicy, ScheduleStatus, SkipReason, UtcDay,
};
use backstop_core::{Schedule, ScheduleName, Span, Time};
use std::collections::BTreeMap;

/// Entries of a ledger that are looked at: a day of a schedule that runs every minute has 1,440.
const ENTRIES_MAX: usize = 20_000;
const LISTED_MAX: usize = 100;
/// Days of the strip: as long as a ledger is kept.
const DAYS: Span = Span::days(31);
/// Characters of a job's id in the list.
const ID_CHARS: usize = 9;
/// Instants to come that are told.
const COMING: usize = 5;

/// What becomes of instants, the best first: the worst is drawn on top.
const FATES: [(&str, ChartTone); 8] = [
    ("fired", ChartTone::Good),
    ("triggered", ChartTone::Plain),
    ("due", ChartTone::Other),
    ("skipped", ChartTone::Calm),
    ("late", ChartTone::Warn),
    ("made_up", ChartTone::Warn),
    ("coalesced", ChartTone::Warn),
    ("missed", ChartTone::Bad),
];

#[derive(Template)]
#[template(path = "schedule.html")]
struct SchedulePage {
    frame: PageFrame,
    name: String,
    link: String,
    is_configured: bool,
    facts: Vec<(&'static str, String)>,
    paused: Option<RelativeTime>,
    missing: usize,
    coming: Vec<(String, RelativeTime)>,
    zone: String,
    /// What the address asks for, for forms that come back here.
    kept: Vec<(String, String)>,
    strip: Option<ChartMarkup>,
    chips: Vec<InstantOutcomeChip>,
    entries: Vec<LedgerEntryRow>,
    pages: PaginationLinks,
    all: Option<String>,
}

/// A fate to look at.
struct InstantOutcomeChip {
    word: String,
    count: String,
    link: String,
    is_on: bool,
}

/// What became of an instant.
struct LedgerEntryRow {
    local: String,
    instant: String,
    what: String,
    tone: &'static str,
    after: String,
    job: Option<(String, String, String)>,
    why: String,
}

/// What the address asks for.
struct ScheduleLedgerQuery {
    day: Option<String>,
    fate: Option<&'static str>,
    before: Option<Time>,
}

impl ScheduleLedgerQuery {
    fn of(view: &PageView) -> Self {
        let day = view
            .query("day")
            .filter(|day| format!("{day}T00:00:00Z").parse::<Time>().is_ok());
        let fate = view.query("what").and_then(|what| {
            FATES
                .iter()
                .map(|(fate, _)| *fate)
                .find(|fate| *fate == what)
        });
        Self {
            day: day.map(str::to_owned),
            fate,
            before: view.query("before").and_then(|at| at.parse().ok()),
        }
    }

    fn fits_day(&self, entry: &LedgerEntry) -> bool {
        self.day
            .as_deref()
            .is_none_or(|day| UtcDay::of(entry.instant).to_string() == day)
    }

    fn fits(&self, entry: &LedgerEntry) -> bool {
        let is_before = self.before.is_none_or(|before| entry.instant < before);
        is_before
            && self.fits_day(entry)
            && self.fate.is_none_or(|fate| entry.outcome.as_str() == fate)
    }

    fn link(&self, at: &str) -> PageLink {
        PageLink::to(at)
            .with_some("day", self.day.as_ref())
            .with_some("what", self.fate)
    }
}

pub(super) async fn page(
    view: PageView,
    Path(name): Path<String>,
) -> Result<Response, PageFailure> {
    let name = named(&view, &name)?;
    let (config, now) = (view.app().config(), view.now());
    let schedules = view.app().backstop().schedules();
    let schedule = config.schedules.get(&name);
    let entries = view.ask(schedules.runs(&name, ENTRIES_MAX)).await?;
    let status = match schedule {
        Some(schedule) => Some(view.ask(schedules.status(schedule)).await?),
        None => None,
    };
    let state = view
        .ask(schedules.list_known())
        .await?
        .into_iter()
        .find(|(known, _)| *known == name);
    if schedule.is_none() && state.is_none() && entries.is_empty() {
        return Err(view.missing(format!(
            "There is no schedule {name}: it needs an entry [schedules.{name}] in the configuration."
        )));
    }
    let paused = state.as_ref().and_then(|(_, state)| state.paused);
    let (query, here) = (ScheduleLedgerQuery::of(&view), link(&view, &name));
    let zone = schedule.map_or("UTC", |schedule| schedule.timezone.as_str());
    let listed: Vec<&LedgerEntry> = entries
        .iter()
        .filter(|entry| query.fits(entry))
        .take(LISTED_MAX + 1)
        .collect();
    let next = listed.get(LISTED_MAX).and(listed.get(LISTED_MAX - 1));
    let is_filtered = query.day.is_some() || query.fate.is_some() || query.before.is_some();
    let page = SchedulePage {
        frame: view.frame(PageSection::Schedules, name.to_string()).live(),
        is_configured: schedule.is_some(),
        facts: schedule
            .map(|schedule| facts(schedule, status.as_ref()))
            .unwrap_or_default(),
        paused: RelativeTime::maybe(paused, now),
        missing: status.as_ref().map_or(0, |status| status.missing),
        coming: schedule
            .filter(|_| paused.is_none())
            .map(|schedule| coming(schedule, now))
            .unwrap_or_default(),
        zone: zone.to_owned(),
        kept: query.link(&here).pairs().to_vec(),
        strip: (!entries.is_empty()).then(|| strip(&entries, &query, &here, now)),
        chips: chips(&entries, &query, &here),
        pages: PaginationState::of(&view, "before")
            .pages(
                &query.link(&here),
                next.map(|last| last.instant.to_string()),
            )
            .with_next_label("Older")
            .with_anchor("#runs"),
        all: is_filtered.then(|| here.clone()),
        entries: listed
            .into_iter()
            .take(LISTED_MAX)
            .map(|entry| ledger_row(&view, &name, entry, zone))
            .collect(),
        name: name.to_string(),
        link: here,
    };
    view.show(&page)
}

fn facts(schedule: &Schedule, status: Option<&ScheduleStatus>) -> Vec<(&'static str, String)> {
    let missed = &schedule.missed;
    let made_up = match missed.policy {
        MissedPolicy::Skip => "are not made up".to_owned(),
        MissedPolicy::One => "are made up by one run, the newest".to_owned(),
        MissedPolicy::All => format!("are made up, the newest {} of them", missed.max),
    };
    let mut facts = vec![
        ("When", in_words(schedule)),
        ("Cron", schedule.cron.to_string()),
        ("Time zone", schedule.timezone.to_string()),
        ("Queue", schedule.queue.to_string()),
        ("Kind", schedule.kind.to_string()),
        (
            "Missing runs",
            format!(
                "{made_up}; one is missing {} after its instant, and looked for {} back",
                text::span(missed.grace),
                text::span(missed.look_back)
            ),
        ),
    ];
    facts.extend(status.map(|status| ("Expected since", text::second(status.since))));
    facts
}

fn coming(schedule: &Schedule, now: Time) -> Vec<(String, RelativeTime)> {
    let instants = schedule.cron.instants(&schedule.timezone, now).take(COMING);
    instants
        .map(|at| {
            (
                local(at, schedule.timezone.as_str()),
                RelativeTime::new(at, now),
            )
        })
        .collect()
}

fn strip(
    entries: &[LedgerEntry],
    query: &ScheduleLedgerQuery,
    here: &str,
    now: Time,
) -> ChartMarkup {
    let mut counts: BTreeMap<UtcDay, [u64; FATES.len()]> = BTreeMap::new();
    for entry in entries {
        let of_day = counts.entry(UtcDay::of(entry.instant)).or_default();
        let fate = entry.outcome.as_str();
        if let Some(at) = FATES.iter().position(|(known, _)| *known == fate) {
            of_day[at] += 1;
        }
    }
    let day = |day: UtcDay| {
        let (name, counts) = (
            day.to_string(),
            counts.get(&day).copied().unwrap_or_default(),
        );
        let shares = FATES
            .iter()
            .zip(counts)
            .map(|((fate, tone), count)| ChartSegment::new(words(fate), *tone, count));
        CalendarDay {
            address: format!("{}#runs", PageLink::to(here).with("day", &name)),
            is_chosen: query.day.as_deref() == Some(&name),
            shares: shares.collect(),
            name,
        }
    };
    let days = UtcDay::through(UtcDay::of(now.before(DAYS)), UtcDay::of(now));
    CalendarChart {
        id: "ledger",
        title: "The last month, a column a day (UTC)",
        days: days.map(day).collect(),
    }
    .figure()
}

/// A fate without the ledger's underscore.
const fn words(fate: &'static str) -> &'static str {
    match fate.as_bytes() {
        b"made_up" => "made up",
        _ => fate,
    }
}

fn chips(
    entries: &[LedgerEntry],
    query: &ScheduleLedgerQuery,
    here: &str,
) -> Vec<InstantOutcomeChip> {
    let of = |fate: &str| {
        entries
            .iter()
            .filter(|entry| query.fits_day(entry) && entry.outcome.as_str() == fate)
            .count()
    };
    let chip = |(fate, _): &(&'static str, ChartTone)| {
        let there = ScheduleLedgerQuery {
            day: query.day.clone(),
            fate: Some(fate),
            before: None,
        };
        InstantOutcomeChip {
            word: words(fate).to_owned(),
            count: text::count(of(fate) as u64),
            link: there.link(here).to_string(),
            is_on: query.fate == Some(fate),
        }
    };
    FATES
        .iter()
        .filter(|(fate, _)| of(fate) > 0 || query.fate == Some(fate))
        .map(chip)
        .collect()
}

fn ledger_row(
    view: &PageView,
    name: &ScheduleName,
    entry: &LedgerEntry,
    zone: &str,
) -> LedgerEntryRow {
    let job = entry.job(name).map(|id| {
        let id = id.to_string();
        let link = view.at(&format!("/jobs/{}", part(&id)));
        (cut(&id, ID_CHARS), id, link)
    });
    LedgerEntryRow {
        local: local(entry.instant, zone),
        instant: text::second(entry.instant),
        what: entry.outcome.as_str().replace('_', " "),
        tone: tone(entry.outcome.as_str()),
        after: text::span(entry.lateness()),
        job,
        why: why(entry.outcome),
    }
}

/// Why it is as it is, in a sentence.
fn why(what: InstantOutcome) -> String {
    match what {
        InstantOutcome::Fired => "in its queue in time".to_owned(),
        InstantOutcome::Due => "agreed to fire; not in its queue yet".to_owned(),
        InstantOutcome::Late => "in its queue late, within the grace".to_owned(),
        InstantOutcome::MadeUp => "it had been missing".to_owned(),
        InstantOutcome::Triggered(_) => "asked for by hand".to_owned(),
        InstantOutcome::Coalesced(into) => {
            format!("the run of {} stands for it", text::second(into))
        }
        InstantOutcome::Missed(why) | InstantOutcome::Skipped(why) => match why {
            SkipReason::Paused => "the schedule was paused".to_owned(),
            SkipReason::Policy => "missing, and the policy makes up nothing".to_owned(),
            SkipReason::OverMax => "more were missing than `max` makes up".to_owned(),
            SkipReason::TooOld => "missing for longer than `look_back`".to_owned(),
            SkipReason::QueueFull => "its queue stayed full".to_owned(),
        },
    }
}
