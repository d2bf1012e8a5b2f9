//! One schedule: when it is due next, and its ledger as a strip of days and as a list.

use super::{in_words, link, local, named, tone};
use crate::pages::chart::{Calendar, CalendarDay, Markup, Share, Tone};
use crate::pages::link::{Link, part};
use crate::pages::mark::When;
use crate::pages::trail::{Pages, Trail};
use crate::pages::{Frame, PageFailure, Section, View, text};
use crate::words::cut;
use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use backstop::schedules::{Day, Entry, Policy, ScheduleStatus, What, Why};
use backstop_core::{Schedule, ScheduleName, Span, Time};
use std::collections::BTreeMap;

/// Entries of a ledger that are looked at: a day of a schedule that runs every minute has 1,440.
const ENTRIES_MAX: usize = 20_000;
/// Entries that are listed.
const LISTED_MAX: usize = 100;
/// Days of the strip: as long as a ledger is kept.
const DAYS: Span = Span::days(31);
/// Characters of a job's id in the list.
const ID_CHARS: usize = 9;
/// Instants to come that are told.
const COMING: usize = 5;

/// What becomes of instants, the best first: the worst is drawn on top.
const FATES: [(&str, Tone); 8] = [
    ("fired", Tone::Good),
    ("triggered", Tone::Plain),
    ("due", Tone::Other),
    ("skipped", Tone::Calm),
    ("late", Tone::Warn),
    ("made_up", Tone::Warn),
    ("coalesced", Tone::Warn),
    ("missed", Tone::Bad),
];

#[derive(Template)]
#[template(path = "schedule.html")]
struct Page {
    frame: Frame,
    name: String,
    link: String,
    is_configured: bool,
    facts: Vec<(&'static str, String)>,
    paused: Option<When>,
    missing: usize,
    coming: Vec<(String, When)>,
    zone: String,
    /// What the address asks for, for forms that come back here.
    kept: Vec<(String, String)>,
    strip: Option<Markup>,
    chips: Vec<Chip>,
    entries: Vec<Shown>,
    pages: Pages,
    all: Option<String>,
}

/// A fate to look at.
struct Chip {
    word: String,
    count: String,
    link: String,
    is_on: bool,
}

/// What became of an instant.
struct Shown {
    local: String,
    instant: String,
    what: String,
    tone: &'static str,
    after: String,
    job: Option<(String, String, String)>,
    why: String,
}

/// What the address asks for.
struct Asked {
    day: Option<String>,
    fate: Option<&'static str>,
    before: Option<Time>,
}

impl Asked {
    fn of(view: &View) -> Self {
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

    fn fits_day(&self, entry: &Entry) -> bool {
        self.day
            .as_deref()
            .is_none_or(|day| Day::of(entry.instant).to_string() == day)
    }

    fn fits(&self, entry: &Entry) -> bool {
        let is_before = self.before.is_none_or(|before| entry.instant < before);
        is_before
            && self.fits_day(entry)
            && self.fate.is_none_or(|fate| entry.what.as_str() == fate)
    }

    fn link(&self, at: &str) -> Link {
        Link::to(at)
            .with_some("day", self.day.as_ref())
            .with_some("what", self.fate)
    }
}

pub(super) async fn page(view: View, Path(name): Path<String>) -> Result<Response, PageFailure> {
    let name = named(&view, &name)?;
    let (config, now) = (view.app().config(), view.now());
    let schedules = view.app().backstop().schedules();
    let schedule = config.schedules.get(&name);
    let entries = view.ask(schedules.runs(&name, ENTRIES_MAX)).await?;
    let status = match schedule {
        Some(schedule) => Some(view.ask(schedules.status(schedule)).await?),
        None => None,
    };
    let standing = view
        .ask(schedules.known())
        .await?
        .into_iter()
        .find(|(known, _)| *known == name);
    if schedule.is_none() && standing.is_none() && entries.is_empty() {
        return Err(view.missing(format!(
            "There is no schedule {name}: it needs an entry [schedules.{name}] in the configuration."
        )));
    }
    let paused = standing.as_ref().and_then(|(_, standing)| standing.paused);
    let (asked, here) = (Asked::of(&view), link(&view, &name));
    let zone = schedule.map_or("UTC", |schedule| schedule.timezone.as_str());
    let listed: Vec<&Entry> = entries
        .iter()
        .filter(|entry| asked.fits(entry))
        .take(LISTED_MAX + 1)
        .collect();
    let next = listed.get(LISTED_MAX).and(listed.get(LISTED_MAX - 1));
    let is_filtered = asked.day.is_some() || asked.fate.is_some() || asked.before.is_some();
    let page = Page {
        frame: view.frame(Section::Schedules, name.to_string()).live(),
        is_configured: schedule.is_some(),
        facts: schedule
            .map(|schedule| facts(schedule, status.as_ref()))
            .unwrap_or_default(),
        paused: When::maybe(paused, now),
        missing: status.as_ref().map_or(0, |status| status.missing),
        coming: schedule
            .filter(|_| paused.is_none())
            .map(|schedule| coming(schedule, now))
            .unwrap_or_default(),
        zone: zone.to_owned(),
        kept: asked.link(&here).pairs().to_vec(),
        strip: (!entries.is_empty()).then(|| strip(&entries, &asked, &here, now)),
        chips: chips(&entries, &asked, &here),
        pages: Trail::of(&view, "before")
            .pages(
                &asked.link(&here),
                next.map(|last| last.instant.to_string()),
            )
            .called("Older")
            .placed("#runs"),
        all: is_filtered.then(|| here.clone()),
        entries: listed
            .into_iter()
            .take(LISTED_MAX)
            .map(|entry| shown(&view, &name, entry, zone))
            .collect(),
        name: name.to_string(),
        link: here,
    };
    view.show(&page)
}

fn facts(schedule: &Schedule, status: Option<&ScheduleStatus>) -> Vec<(&'static str, String)> {
    let missed = &schedule.missed;
    let made_up = match missed.policy {
        Policy::Skip => "are not made up".to_owned(),
        Policy::One => "are made up by one run, the newest".to_owned(),
        Policy::All => format!("are made up, the newest {} of them", missed.max),
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

fn coming(schedule: &Schedule, now: Time) -> Vec<(String, When)> {
    let instants = schedule.cron.instants(&schedule.timezone, now).take(COMING);
    instants
        .map(|at| (local(at, schedule.timezone.as_str()), When::new(at, now)))
        .collect()
}

fn strip(entries: &[Entry], asked: &Asked, here: &str, now: Time) -> Markup {
    let mut counts: BTreeMap<Day, [u64; FATES.len()]> = BTreeMap::new();
    for entry in entries {
        let of_day = counts.entry(Day::of(entry.instant)).or_default();
        let fate = entry.what.as_str();
        if let Some(at) = FATES.iter().position(|(known, _)| *known == fate) {
            of_day[at] += 1;
        }
    }
    let day = |day: Day| {
        let (name, counts) = (
            day.to_string(),
            counts.get(&day).copied().unwrap_or_default(),
        );
        let shares = FATES
            .iter()
            .zip(counts)
            .map(|((fate, tone), count)| Share::new(words(fate), *tone, count));
        CalendarDay {
            address: format!("{}#runs", Link::to(here).with("day", &name)),
            is_chosen: asked.day.as_deref() == Some(&name),
            shares: shares.collect(),
            name,
        }
    };
    let days = Day::through(Day::of(now.before(DAYS)), Day::of(now));
    Calendar {
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

fn chips(entries: &[Entry], asked: &Asked, here: &str) -> Vec<Chip> {
    let of = |fate: &str| {
        entries
            .iter()
            .filter(|entry| asked.fits_day(entry) && entry.what.as_str() == fate)
            .count()
    };
    let chip = |(fate, _): &(&'static str, Tone)| {
        let there = Asked {
            day: asked.day.clone(),
            fate: Some(fate),
            before: None,
        };
        Chip {
            word: words(fate).to_owned(),
            count: text::count(of(fate) as u64),
            link: there.link(here).to_string(),
            is_on: asked.fate == Some(fate),
        }
    };
    FATES
        .iter()
        .filter(|(fate, _)| of(fate) > 0 || asked.fate == Some(fate))
        .map(chip)
        .collect()
}

fn shown(view: &View, name: &ScheduleName, entry: &Entry, zone: &str) -> Shown {
    let job = entry.job(name).map(|id| {
        let id = id.to_string();
        let link = view.at(&format!("/jobs/{}", part(&id)));
        (cut(&id, ID_CHARS), id, link)
    });
    Shown {
        local: local(entry.instant, zone),
        instant: text::second(entry.instant),
        what: entry.what.as_str().replace('_', " "),
        tone: tone(entry.what.as_str()),
        after: text::span(entry.lateness()),
        job,
        why: why(entry.what),
    }
}

/// Why it is as it is, in a sentence.
fn why(what: What) -> String {
    match what {
        What::Fired => "in its queue in time".to_owned(),
        What::Due => "agreed to fire; not in its queue yet".to_owned(),
        What::Late => "in its queue late, within the grace".to_owned(),
        What::MadeUp => "it had been missing".to_owned(),
        What::Triggered(_) => "asked for by hand".to_owned(),
        What::Coalesced(into) => format!("the run of {} stands for it", text::second(into)),
        What::Missed(why) | What::Skipped(why) => match why {
            Why::Paused => "the schedule was paused".to_owned(),
            Why::Policy => "missing, and the policy makes up nothing".to_owned(),
            Why::OverMax => "more were missing than `max` makes up".to_owned(),
            Why::TooOld => "missing for longer than `look_back`".to_owned(),
            Why::QueueFull => "its queue stayed full".to_owned(),
        },
    }
}
