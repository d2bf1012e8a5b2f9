//! What is in the store, as a scrape tells it. The same whichever server is asked: alerts take the
//! maximum over all of them, or scrape one.
//!
//! | name | labels | what it is |
//! |---|---|---|
//! | `backstop_store_up` | | 1 if the store answered in time; nothing below is told if it did not |
//! | `backstop_store_answer_seconds` | | how long it took for its answers |
//! | `backstop_queue_jobs` | `queue`, `state` | jobs, by where they stand |
//! | `backstop_queue_jobs_total` (counter) | `queue`, `event` | jobs `enqueued`, `done`, `dead` and `cancelled` since the queue exists |
//! | `backstop_queue_oldest_ready_seconds` | `queue` | for how long the job that is claimed next could have run |
//! | `backstop_queue_paused` | `queue` | 1 if it gives nothing out |
//! | `backstop_queue_max_size` | `queue` | live jobs it takes, if it is bounded |
//! | `backstop_queue_workers` | `queue` | live workers that serve it and take new jobs |
//! | `backstop_dead_letters` | `queue` | jobs that were given up |
//! | `backstop_dead_letters_max` | `queue` | how many of them it takes |
//! | `backstop_workers` | | workers that beat within 30 s |
//! | `backstop_expired_lease_seconds` | | for how long the lease that ended first has not been taken over; 0 if none is |
//! | `backstop_recovery_bound_seconds` | | the longest that may take, by the leases of the configuration |
//! | `backstop_breaker_open` | `queue` | 1 while the service behind a queue is left alone, or tried with jobs that wait |
//! | `backstop_gate_shut` | `queue`, `kind` | 1 while jobs of a kind are not started |
//! | `backstop_stream_records` | `stream` | records that wait |
//! | `backstop_stream_keys` | `stream` | keys that are known |
//! | `backstop_stream_oldest_seconds` | `stream` | for how long the record has waited that came in first |
//! | `backstop_stream_events_total` (counter) | `stream`, `event` | what happened, by the words of `backstop stream list` |
//! | `backstop_doctor_findings` | `grade` | what `backstop doctor` would say: `warning`, `bad`; bad ones fall short of the promise. Absent until it has looked |
//! | `backstop_doctor_age_seconds` | | since it looked and came to an end |
//! | `backstop_doctor_failed` | | 1 if its last look failed: the findings are those of the one before. Absent until it has looked |
//! | `backstop_schedule_unfired` | `schedule` | instants past their grace that nobody has dealt with: not entered, or in no queue yet. What was given up is not among them |
//! | `backstop_schedule_given_up` | `schedule` | instants that were counted as missed, or skipped by its policy, within the last hour |
//! | `backstop_sweep_last_seconds` | `sweep` | since its last run |
//! | `backstop_sweep_last_enqueued`, `_last_failed` | `sweep` | rows its last run found lost and gave a job; 1 if that run failed |
//! | `backstop_sweep_last_unseen` | `sweep` | 1 if there were more rows than a run can look at |

use super::exposition::{Metric, MetricType, MetricsText};
use super::labels::{OTHER, VALUES_MAX};
use crate::App;
use crate::doctor::{DoctorFindings, DoctorReport};
use backstop::breakers::{BreakerInfo, BreakerName};
use backstop::examine::{blocks_jobs, content_findings};
use backstop::why::LIVE_WITHIN;
use backstop::workers::WorkerInfo;
use backstop::{QueueSettings, WorkerTiming};
use backstop_core::port::{FindingSeverity, QueueState, QueueStatus, StoreResult, StreamStatus};
use backstop_core::{JobState, Span, Time};
use std::collections::BTreeMap;
use std::time::Instant;

macro_rules! metrics {
    ($($constant:ident = $name:literal, $shape:ident, $help:literal;)*) => {
        $(const $constant: Metric = Metric { name: $name, shape: MetricType::$shape, help: $help };)*

        /// Every metric that is read from the store.
        #[cfg(test)]
        pub(super) const NAMES: &[&str] = &[$($name),*];
    };
}

metrics! {
    STORE_UP = "backstop_store_up", Gauge, "1 if the store answered in time";
    STORE_ANSWER = "backstop_store_answer_seconds", Gauge, "how long the store took to answer";
    QUEUE_JOBS = "backstop_queue_jobs", Gauge, "jobs of a queue by where they stand";
    QUEUE_TOTALS = "backstop_queue_jobs_total", Counter, "jobs since the queue exists, by what became of them";
    OLDEST_READY = "backstop_queue_oldest_ready_seconds", Gauge, "for how long the job that is claimed next could have run";
    PAUSED = "backstop_queue_paused", Gauge, "1 if the queue gives nothing out";
    MAX_SIZE = "backstop_queue_max_size", Gauge, "live jobs the queue takes";
    QUEUE_WORKERS = "backstop_queue_workers", Gauge, "live workers that serve the queue and take new jobs";
    DEAD = "backstop_dead_letters", Gauge, "jobs that were given up";
    DEAD_MAX = "backstop_dead_letters_max", Gauge, "dead letters the queue takes";
    WORKERS = "backstop_workers", Gauge, "workers that beat within 30 s";
    EXPIRED = "backstop_expired_lease_seconds", Gauge, "for how long the lease that ended first has not been taken over";
    BOUND = "backstop_recovery_bound_seconds", Gauge, "the longest time from the death of a worker to the next run of its job";
    BREAKER = "backstop_breaker_open", Gauge, "1 while the service behind a queue is left alone, or tried with jobs that wait";
    GATE = "backstop_gate_shut", Gauge, "1 while jobs of a kind are not started";
    RECORDS = "backstop_stream_records", Gauge, "records of a stream that wait";
    KEYS = "backstop_stream_keys", Gauge, "keys of a stream that are known";
    OLDEST_RECORD = "backstop_stream_oldest_seconds", Gauge, "for how long the record has waited that came in first";
    STREAM_EVENTS = "backstop_stream_events_total", Counter, "what happened in a stream";
    FINDINGS = "backstop_doctor_findings", Gauge, "what backstop doctor would say";
    FINDINGS_AGE = "backstop_doctor_age_seconds", Gauge, "since the doctor looked at the store and came to an end";
    DOCTOR_FAILED = "backstop_doctor_failed", Gauge, "1 if the last look of the doctor at the store failed";
    UNFIRED = "backstop_schedule_unfired", Gauge, "instants of a schedule past their grace that nobody has dealt with";
    GIVEN_UP = "backstop_schedule_given_up", Gauge, "instants of a schedule that were given up within the last hour";
    SWEEP_SINCE = "backstop_sweep_last_seconds", Gauge, "since the last run of a sweep";
    SWEEP_ENQUEUED = "backstop_sweep_last_enqueued", Gauge, "rows that the last run of a sweep found lost";
    SWEEP_FAILED = "backstop_sweep_last_failed", Gauge, "1 if the last run of a sweep failed";
    SWEEP_UNSEEN = "backstop_sweep_last_unseen", Gauge, "1 if there were more rows than the last run of a sweep could look at";
}

/// For how long it is told that instants were given up: as long as the alert says.
const GIVEN_UP_WITHIN: Span = Span::hours(1);

/// The store as it stands; a part is `None` if it could not be read.
#[derive(Debug)]
pub(super) struct StoreReadings {
    pub(super) quick: Option<QuickReadings>,
    pub(super) slow: Option<SlowReadings>,
    pub(super) doctor_report: DoctorReport,
}

/// What is cheap to ask.
#[derive(Clone, Debug)]
pub(super) struct QuickReadings {
    took: f64,
    now: Time,
    queues: Vec<QueueStatus>,
    workers: Vec<WorkerInfo>,
    guards: Vec<BreakerInfo>,
    streams: Vec<StreamStatus>,
    expired: Span,
    bound: Span,
}

#[derive(Clone, Debug)]
pub(super) struct SlowReadings {
    /// Of every schedule of the configuration.
    unfired: BTreeMap<String, usize>,
    given_up: BTreeMap<String, usize>,
    sweeps: Vec<LastSweepRun>,
}

/// The last run of a sweep.
#[derive(Clone, Debug)]
struct LastSweepRun {
    name: String,
    since: Span,
    enqueued: usize,
    failed: bool,
    unseen: bool,
}

impl QuickReadings {
    pub(super) async fn read(app: &App) -> StoreResult<Self> {
        let (backstop, config, started) = (app.backstop(), app.config(), Instant::now());
        let (store, now) = (backstop.store(), backstop.now());
        let usual = QueueSettings::default().lease;
        let longest = config
            .queues
            .values()
            .map(|queue| queue.settings.lease)
            .max()
            .unwrap_or(usual);
        Ok(Self {
            now,
            queues: store.queues(now).await?,
            workers: backstop.workers(LIVE_WITHIN).await?,
            guards: backstop.breakers().list().await?,
            streams: store.streams().await?,
            expired: store
                .expired_leases(now)
                .await?
                .first
                .map_or(Span::ZERO, |ended| now.since(ended)),
            bound: WorkerTiming::default().recovery_bound(longest.max(usual)),
            took: started.elapsed().as_secs_f64(),
        })
    }
}

impl SlowReadings {
    pub(super) async fn read(app: &App) -> StoreResult<Self> {
        let (backstop, config) = (app.backstop(), app.config());
        let now = backstop.now();
        let schedules: Vec<_> = config.schedules.values().cloned().collect();
        let mut unfired: BTreeMap<String, usize> = schedules
            .iter()
            .map(|schedule| (schedule.name.to_string(), 0))
            .collect();
        for (_, schedule) in backstop.schedules().unfired(&schedules).await? {
            *unfired.entry(schedule.to_string()).or_default() += 1;
        }
        let mut given_up = BTreeMap::new();
        for schedule in &schedules {
            let count = backstop
                .schedules()
                .count_given_up(schedule, now.before(GIVEN_UP_WITHIN))
                .await?;
            given_up.insert(schedule.name.to_string(), count);
        }
        let mut sweeps = Vec::new();
        for sweep in config.sweeps.values() {
            let last = backstop
                .sweeper(sweep)
                .history()
                .await?
                .into_iter()
                .max_by_key(|run| run.at);
            sweeps.extend(last.map(|run| LastSweepRun {
                name: sweep.name().to_owned(),
                since: now.since(run.at),
                enqueued: run.enqueued,
                failed: run.error.is_some(),
                unseen: run.unseen,
            }));
        }
        Ok(Self {
            unfired,
            given_up,
            sweeps,
        })
    }
}

impl StoreReadings {
    pub(super) const fn is_up(&self) -> bool {
        self.quick.is_some()
    }

    pub(super) fn render(&self) -> String {
        let mut text = MetricsText::default();
        text.write_value(STORE_UP, f64::from(u8::from(self.is_up())));
        if let Some(quick) = &self.quick {
            quick.write_to(&mut text);
            quick.write_findings(&self.doctor_report, &mut text);
        }
        if let Some(slow) = &self.slow {
            slow.write_to(&mut text);
        }
        text.into_text()
    }
}

/// One sample: its labels and its value.
type LabelledValue<'a> = (Vec<(&'static str, &'a str)>, f64);

/// One of a queue's totals.
type QueueTotalFn = fn(&QueueStatus) -> u64;

impl QuickReadings {
    fn write_to(&self, text: &mut MetricsText) {
        text.write_value(STORE_ANSWER, self.took);
        self.write_queues(text);
        text.write_value(WORKERS, count(self.workers.len() as u64));
        text.write_value(EXPIRED, self.expired.as_secs_f64());
        text.write_value(BOUND, self.bound.as_secs_f64());
        self.write_breakers(text);
        self.write_streams(text);
    }

    fn write_queues(&self, text: &mut MetricsText) {
        let queues = NamedItems::of(
            &self.queues,
            |queue| queue.name.as_str(),
            |queue| queue.counts.live(),
        );
        text.write_samples(
            QUEUE_JOBS,
            JobState::ALL.into_iter().flat_map(|state| {
                queues
                    .sum_values(move |queue| Some(count(queue.counts.of(state))))
                    .with_label("state", state.as_str())
            }),
        );
        let events: [(&str, QueueTotalFn); 4] = [
            ("enqueued", |queue| queue.totals.enqueued),
            ("done", |queue| queue.totals.done),
            ("dead", |queue| queue.totals.dead),
            ("cancelled", |queue| queue.totals.cancelled),
        ];
        text.write_samples(
            QUEUE_TOTALS,
            events.into_iter().flat_map(|(event, total)| {
                queues
                    .sum_values(move |queue| Some(count(total(queue))))
                    .with_label("event", event)
            }),
        );
        let waited = |queue: &QueueStatus| {
            let since = queue
                .next_ready
                .map_or(Span::ZERO, |ready| self.now.since(ready));
            Some(since.as_secs_f64())
        };
        text.write_samples(OLDEST_READY, queues.max_values(waited).samples());
        let is_paused =
            |queue: &QueueStatus| Some(f64::from(u8::from(queue.state == QueueState::Paused)));
        text.write_samples(PAUSED, queues.max_values(is_paused).samples());
        text.write_samples(
            MAX_SIZE,
            queues
                .sum_values(|queue| queue.bounds.max_size.map(count))
                .samples(),
        );
        let serving = |queue: &QueueStatus| {
            let serves = |worker: &&WorkerInfo| {
                worker.status.queues.contains(&queue.name) && worker.takes_jobs(self.now)
            };
            Some(count(self.workers.iter().filter(serves).count() as u64))
        };
        text.write_samples(QUEUE_WORKERS, queues.sum_values(serving).samples());
        text.write_samples(
            DEAD,
            queues
                .sum_values(|queue| Some(count(queue.counts.of(JobState::Dead))))
                .samples(),
        );
        text.write_samples(
            DEAD_MAX,
            queues
                .sum_values(|queue| Some(count(queue.bounds.dead_max)))
                .samples(),
        );
    }

    /// What the doctor found in the store, and what can be told of its contents at once. Where it
    /// has never come to the end of a look there is no number; where the last one failed, that is
    /// told beside what the one before found.
    fn write_findings(&self, doctor_report: &DoctorReport, text: &mut MetricsText) {
        if doctor_report.found.is_some() || doctor_report.failed.is_some() {
            text.write_value(
                DOCTOR_FAILED,
                f64::from(u8::from(doctor_report.failed.is_some())),
            );
        }
        let Some(DoctorFindings {
            at,
            findings: of_store,
        }) = &doctor_report.found
        else {
            return;
        };
        let of_contents = content_findings(&self.queues, &self.guards);
        let graded = |grade| {
            of_store
                .iter()
                .chain(&of_contents)
                .filter(|finding| finding.severity == grade)
                .count()
        };
        let graded = [
            ("warning", graded(FindingSeverity::Warning)),
            ("bad", graded(FindingSeverity::Bad)),
        ];
        text.write_samples(
            FINDINGS,
            graded.map(|(grade, found)| (vec![("grade", grade)], count(found as u64))),
        );
        text.write_value(FINDINGS_AGE, self.now.since(*at).as_secs_f64());
    }

    fn write_breakers(&self, text: &mut MetricsText) {
        let value = |is_shut: bool| f64::from(u8::from(is_shut));
        let judged = |guard| (guard, blocks_jobs(guard, &self.queues));
        let mut guards: Vec<(&BreakerInfo, bool)> = self.guards.iter().map(judged).collect();
        // Those that are shut come first: the bound must not hide them.
        guards.sort_by_key(|(_, is_shut)| !is_shut);
        let breakers = guards
            .iter()
            .filter(|(guard, _)| matches!(guard.name, BreakerName::Breaker(_)));
        text.write_samples(
            BREAKER,
            breakers.take(VALUES_MAX).map(|(guard, is_shut)| {
                (
                    vec![("queue", guard.name.queue().as_str())],
                    value(*is_shut),
                )
            }),
        );
        let gates = guards
            .iter()
            .filter_map(|(guard, is_shut)| Some((guard, guard.name.kind()?, *is_shut)));
        text.write_samples(
            GATE,
            gates.take(VALUES_MAX).map(|(guard, kind, is_shut)| {
                (
                    vec![
                        ("queue", guard.name.queue().as_str()),
                        ("kind", kind.as_str()),
                    ],
                    value(is_shut),
                )
            }),
        );
    }

    fn write_streams(&self, text: &mut MetricsText) {
        let streams = NamedItems::of(
            &self.streams,
            |stream| stream.name.as_str(),
            |stream| stream.records,
        );
        let streams = NamedItems {
            label: "stream",
            ..streams
        };
        text.write_samples(
            RECORDS,
            streams
                .sum_values(|stream| Some(count(stream.records)))
                .samples(),
        );
        text.write_samples(
            KEYS,
            streams
                .sum_values(|stream| Some(count(stream.keys)))
                .samples(),
        );
        let oldest = |stream: &StreamStatus| {
            Some(
                stream
                    .oldest
                    .map_or(Span::ZERO, |oldest| self.now.since(oldest))
                    .as_secs_f64(),
            )
        };
        text.write_samples(OLDEST_RECORD, streams.max_values(oldest).samples());
        text.write_samples(
            STREAM_EVENTS,
            backstop_core::stream::StreamCounter::ALL
                .into_iter()
                .flat_map(|event| {
                    streams
                        .sum_values(move |stream| Some(count(stream.counts[event])))
                        .with_label("event", event.as_str())
                }),
        );
    }
}

impl SlowReadings {
    fn write_to(&self, text: &mut MetricsText) {
        for (metric, counts) in [(UNFIRED, &self.unfired), (GIVEN_UP, &self.given_up)] {
            let shown = counts.iter().take(VALUES_MAX);
            text.write_samples(
                metric,
                shown.map(|(name, instants)| {
                    (vec![("schedule", name.as_str())], count(*instants as u64))
                }),
            );
        }
        let sweeps = || self.sweeps.iter().take(VALUES_MAX);
        let named = |run: &LastSweepRun, value: f64| (run.name.clone(), value);
        for (metric, samples) in [
            (
                SWEEP_SINCE,
                sweeps()
                    .map(|run| named(run, run.since.as_secs_f64()))
                    .collect::<Vec<_>>(),
            ),
            (
                SWEEP_ENQUEUED,
                sweeps()
                    .map(|run| named(run, count(run.enqueued as u64)))
                    .collect(),
            ),
            (
                SWEEP_FAILED,
                sweeps()
                    .map(|run| named(run, f64::from(u8::from(run.failed))))
                    .collect(),
            ),
            (
                SWEEP_UNSEEN,
                sweeps()
                    .map(|run| named(run, f64::from(u8::from(run.unseen))))
                    .collect(),
            ),
        ] {
            text.write_samples(
                metric,
                samples
                    .iter()
                    .map(|(name, value)| (vec![("sweep", name.as_str())], *value)),
            );
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a sample is a double")]
fn count(count: u64) -> f64 {
    count as f64
}

/// Things that are told by name as far as the bound goes, those that matter most first; the rest is
/// told as one.
struct NamedItems<'a, T> {
    label: &'static str,
    named: Vec<(&'a str, &'a T)>,
    rest: Vec<&'a T>,
}

impl<'a, T> NamedItems<'a, T> {
    fn of(all: &'a [T], name: impl Fn(&T) -> &str, weight: impl Fn(&T) -> u64) -> Self {
        let mut by_weight: Vec<&'a T> = all.iter().collect();
        by_weight.sort_by_key(|one| std::cmp::Reverse(weight(one)));
        let rest = by_weight.split_off(by_weight.len().min(VALUES_MAX));
        Self {
            label: "queue",
            named: by_weight.into_iter().map(|one| (name(one), one)).collect(),
            rest,
        }
    }

    /// The samples of a value that can be added up.
    fn sum_values(&self, value: impl Fn(&T) -> Option<f64>) -> NamedValues<'a> {
        self.samples(value, |sum, one| sum + one)
    }

    /// The samples of a value of which the greatest matters.
    fn max_values(&self, value: impl Fn(&T) -> Option<f64>) -> NamedValues<'a> {
        self.samples(value, f64::max)
    }

    fn samples(
        &self,
        value: impl Fn(&T) -> Option<f64>,
        join: impl Fn(f64, f64) -> f64,
    ) -> NamedValues<'a> {
        let named = self
            .named
            .iter()
            .filter_map(|(name, one)| Some((*name, value(one)?)));
        let rest = self.rest.iter().filter_map(|one| value(one)).reduce(join);
        NamedValues {
            label: self.label,
            values: named.chain(rest.map(|rest| (OTHER, rest))).collect(),
        }
    }
}

struct NamedValues<'a> {
    label: &'static str,
    values: Vec<(&'a str, f64)>,
}

impl<'a> NamedValues<'a> {
    fn samples(self) -> impl Iterator<Item = LabelledValue<'a>> {
        let label = self.label;
        self.values
            .into_iter()
            .map(move |(name, value)| (vec![(label, name)], value))
    }

    /// With another label behind the name.
    fn with_label(
        self,
        other: &'static str,
        word: &'static str,
    ) -> impl Iterator<Item = LabelledValue<'a>> {
        self.samples().map(move |(mut labels, value)| {
            labels.push((other, word));
            (labels, value)
        })
    }
}
