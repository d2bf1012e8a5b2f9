//! One stream: what happened in it, how it waits, and its keys.

use super::{as_time, link, named, percent, state};
use crate::history::{StreamAlarms, StreamSeries, TimeWindow};
use crate::pages::chart::{ChartLine, ChartMarkup, ChartTone, ChartUnit, LineChart};
use crate::pages::components::RelativeTime;
use crate::pages::link::{PageLink, part};
use crate::pages::pagination::{PaginationLinks, PaginationState};
use crate::pages::{PageFailure, PageFrame, PageSection, PageView, text};
use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use backstop::config::StreamConfig;
use backstop::core::stream::StreamAlarm;
use backstop::streams::{
    DeadRecordPolicy, DrainMode, KeyFilter, KeyState, KeyStatus, LatePolicy, StreamCounter,
    StreamStatus, dead_letter_queue,
};
use backstop_core::{StreamKey, StreamName, Time};

const KEYS_SHOWN: usize = 50;

#[derive(Template)]
#[template(path = "stream.html")]
struct StreamPage {
    frame: PageFrame,
    name: String,
    link: String,
    figures: Vec<StreamFigure>,
    alarms: Vec<String>,
    windows: Vec<StreamFilterChip>,
    charts: Vec<ChartMarkup>,
    counters: Vec<(&'static str, String)>,
    rules: Option<Vec<(&'static str, String)>>,
    filters: Vec<StreamFilterChip>,
    keys: Vec<StreamKeyListRow>,
    is_filtered: bool,
    pages: PaginationLinks,
    letters: String,
}

struct StreamFigure {
    name: &'static str,
    value: String,
    detail: String,
    is_bad: bool,
}

/// A choice that stands in the address.
pub(super) struct StreamFilterChip {
    word: &'static str,
    link: String,
    is_on: bool,
}

/// A key in the list.
struct StreamKeyListRow {
    name: String,
    link: String,
    state: &'static str,
    tone: &'static str,
    watermark: Option<(String, Option<String>)>,
    held: u64,
    held_text: String,
    oldest: Option<RelativeTime>,
    due: Option<RelativeTime>,
    worker: String,
}

pub(super) async fn page(
    view: PageView,
    Path(stream): Path<String>,
) -> Result<Response, PageFailure> {
    let name = named(&view, &stream)?;
    let (now, config, backstop) = (view.now(), view.app().config(), view.app().backstop());
    let known = view.ask(view.store().streams()).await?;
    let status = known.into_iter().find(|status| status.name == name);
    let entry = config.streams.get(&name);
    if status.is_none() && entry.is_none() {
        return Err(view.missing(format!(
            "There is no stream {name}: it comes into being with its first record, or with an entry in the configuration."
        )));
    }
    let status = status.unwrap_or_else(|| super::unheard_stream(&name));
    let window: TimeWindow = view
        .query("window")
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    let series = view
        .ask(view.app().history().stream(backstop, &name, window))
        .await?;
    let alarms = view
        .ask(StreamAlarms::read(backstop, std::slice::from_ref(&status)))
        .await?;
    let ringing = alarms.of(&name);
    let which = if view.query("keys") == Some("all") {
        KeyFilter::All
    } else {
        KeyFilter::Holding
    };
    let after = view
        .query_exact("after")
        .map(StreamKey::new)
        .transpose()
        .map_err(|error| view.bad(error))?;
    let stream = backstop
        .stream(name.as_str())
        .map_err(|error| view.bad(error))?;
    let keys = view.ask(stream.keys(after, which, KEYS_SHOWN)).await?;
    let here = StreamPageQuery {
        view: &view,
        name: &name,
        window,
        which,
    };
    let next = keys.last().filter(|_| keys.len() == KEYS_SHOWN);
    let page = StreamPage {
        frame: view.frame(PageSection::Streams, name.to_string()).live(),
        name: name.to_string(),
        link: link(&view, &name),
        figures: figures(&status, ringing, now),
        alarms: ringing.iter().map(ToString::to_string).collect(),
        windows: TimeWindow::ALL
            .into_iter()
            .map(|window| here.window(window))
            .collect(),
        charts: charts(&series),
        counters: counters(&status),
        rules: entry.map(rules),
        filters: [KeyFilter::Holding, KeyFilter::All]
            .map(|which| here.which(which))
            .into(),
        pages: PaginationState::of(&view, "after")
            .pages(&here.link(), next.map(|key| key.key.to_string())),
        keys: keys
            .iter()
            .map(|key| key_row(&view, &name, key, now))
            .collect(),
        is_filtered: which == KeyFilter::Holding,
        letters: PageLink::to(view.at("/dead"))
            .with("queue", dead_letter_queue(&name))
            .to_string(),
    };
    view.show(&page)
}

/// What the address says, so that a choice keeps all others.
struct StreamPageQuery<'a> {
    view: &'a PageView,
    name: &'a StreamName,
    window: TimeWindow,
    which: KeyFilter,
}

impl StreamPageQuery<'_> {
    fn link(&self) -> PageLink {
        let link = PageLink::to(link(self.view, self.name));
        let link = if self.window == TimeWindow::default() {
            link
        } else {
            link.with("window", self.window)
        };
        if self.which == KeyFilter::All {
            link.with("keys", "all")
        } else {
            link
        }
    }

    fn window(&self, window: TimeWindow) -> StreamFilterChip {
        let there = StreamPageQuery { window, ..*self };
        StreamFilterChip {
            word: window.words(),
            link: there.link().to_string(),
            is_on: window == self.window,
        }
    }

    fn which(&self, which: KeyFilter) -> StreamFilterChip {
        let there = StreamPageQuery { which, ..*self };
        let word = if which == KeyFilter::All {
            "All keys"
        } else {
            "Keys that hold records"
        };
        StreamFilterChip {
            word,
            link: there.link().to_string(),
            is_on: which == self.which,
        }
    }
}

fn figures(status: &StreamStatus, ringing: &[StreamAlarm], now: Time) -> Vec<StreamFigure> {
    let counts = &status.counts;
    let oldest = status
        .oldest
        .map(|at| format!("oldest {}", text::when(at, now)))
        .unwrap_or_default();
    let rings = |alarm| ringing.contains(&alarm);
    let figure = |name, value, detail, is_bad| StreamFigure {
        name,
        value,
        detail,
        is_bad,
    };
    vec![
        figure("held now", text::count(status.records), oldest, false),
        figure(
            "keys that hold",
            text::count(status.holding),
            format!("of {}", text::count(status.keys)),
            false,
        ),
        figure(
            "handled",
            text::count(counts[StreamCounter::Handled]),
            "ever".to_owned(),
            false,
        ),
        figure(
            "success rate",
            percent(counts.success_rate()),
            "waits that nothing was given up in".to_owned(),
            false,
        ),
        figure(
            "timeout rate",
            percent(counts.timeout_rate()),
            "timeouts per record added, ever; alarm above 5 % in ten minutes".to_owned(),
            rings(StreamAlarm::TimeoutRate),
        ),
        figure(
            "overflow rate",
            percent(counts.overflow_rate()),
            "overflows per record added, ever; alarm above 0.1 % in ten minutes".to_owned(),
            rings(StreamAlarm::OverflowRate),
        ),
    ]
}

fn counters(status: &StreamStatus) -> Vec<(&'static str, String)> {
    status
        .counts
        .named()
        .map(|(name, number)| (name, text::count(number)))
        .collect()
}

fn charts(series: &StreamSeries) -> Vec<ChartMarkup> {
    let line = |name, tone, series| ChartLine { name, tone, series };
    let flow = LineChart {
        id: "flow",
        title: "Records a second",
        unit: ChartUnit::PerSecond,
        lines: vec![
            line("handled", ChartTone::Good, &series.handled),
            line("had to wait", ChartTone::Plain, &series.added),
            line("missing", ChartTone::Bad, &series.misses),
            line("late", ChartTone::Warn, &series.late),
            line("timeouts", ChartTone::Other, &series.timeouts),
        ],
    };
    let held = LineChart {
        id: "held",
        title: "Records held",
        unit: ChartUnit::Count,
        lines: vec![
            line("records", ChartTone::Plain, &series.held),
            line("keys", ChartTone::Other, &series.holding),
        ],
    };
    vec![flow.figure(), held.figure()]
}

/// What the configuration says, in the words of the configuration.
fn rules(config: &StreamConfig) -> Vec<(&'static str, String)> {
    let rules = &config.settings.rules;
    let steps: Vec<String> = rules.steps.iter().map(ToString::to_string).collect();
    let whole = rules
        .steps
        .iter()
        .fold(backstop_core::Span::ZERO, |sum, step| sum.plus(*step));
    vec![
        (
            "steps",
            format!("{}: {} for each gap", steps.join(", "), text::span(whole)),
        ),
        ("max_held", rules.max_held.to_string()),
        ("max_misses", rules.max_misses.to_string()),
        ("hold_for", rules.hold_for.to_string()),
        (
            "drain",
            match rules.drain {
                DrainMode::Immediate => "immediate: as soon as what is missing arrives".to_owned(),
                DrainMode::Scheduled => "scheduled: when the key is looked at again".to_owned(),
            },
        ),
        (
            "late",
            match rules.late {
                LatePolicy::Drop => "drop: counted and listed".to_owned(),
                LatePolicy::Amend => "amend: the handler gets it as a correction".to_owned(),
            },
        ),
        (
            "on_dead",
            match rules.on_dead {
                DeadRecordPolicy::Skip => "skip: the key goes on past it".to_owned(),
                DeadRecordPolicy::Halt => {
                    "halt: the key stands still until somebody acts".to_owned()
                }
            },
        ),
        ("rollout", format!("{} %", rules.rollout.percent)),
        (
            "retry",
            String::from_utf8_lossy(&rules.retry.to_json()).into_owned(),
        ),
    ]
}

fn key_row(
    view: &PageView,
    stream: &StreamName,
    status: &KeyStatus,
    now: Time,
) -> StreamKeyListRow {
    let key_state = KeyState::from_bytes(&status.state).ok();
    let (state, tone) = state(key_state.as_ref(), status.records, status.holder.is_some());
    StreamKeyListRow {
        name: text::name(status.key.as_str()),
        link: key_link(view, stream, &status.key),
        state,
        tone,
        watermark: status.watermark.map(|at| (at.to_string(), as_time(at))),
        held: status.records,
        held_text: text::count(status.records),
        oldest: RelativeTime::maybe(status.oldest, now),
        due: RelativeTime::maybe(status.due, now),
        worker: status
            .holder
            .as_ref()
            .map(|holder| holder.worker.to_string())
            .unwrap_or_default(),
    }
}

/// Where a key is. One of dots only would be taken for a way up, and is asked for by name.
pub(super) fn key_link(view: &PageView, stream: &StreamName, key: &StreamKey) -> String {
    if key.as_str().chars().all(|c| c == '.') {
        return PageLink::to(format!("{}/key", link(view, stream)))
            .with("key", key)
            .to_string();
    }
    format!("{}/keys/{}", link(view, stream), part(key.as_str()))
}
