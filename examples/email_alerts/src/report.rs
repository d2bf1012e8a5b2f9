//! What came of a run, measured against what should have.

mod checks;
mod table;

use crate::config::COMPLETION;
use crate::desk::Desk;
use crate::play::Course;
use crate::provider::{self, Service};
use crate::send::idempotency_key;
use anyhow::Result;
use backstop::config::Config;
use backstop::core::port::ListJobsRequest;
use backstop::schedules::InstantOutcome;
use backstop::{JobState, Span, Time};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// What came of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// What should be, and what is.
    pub checks: Vec<Check>,
    /// What happened on the way.
    pub story: Story,
}

/// What should be, and what is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Check {
    /// Of what.
    pub what: &'static str,
    /// How many there should be.
    pub expected: i64,
    /// How many there are.
    pub found: i64,
}

/// What happened on the way.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Story {
    /// Processes that were killed.
    pub kills: u32,
    /// Of these, those that swept.
    pub sweeper_kills: u32,
    /// Jobs that lost a worker.
    pub jobs_that_lost_a_worker: u64,
    /// Enqueues that got lost after their row was committed.
    pub enqueues_lost: u64,
    /// Rows that sweeps gave a job, by sweep.
    pub recovered: BTreeMap<String, usize>,
    /// Digest runs of past days that schedules made up.
    pub made_up: u64,
    /// Dead letters that an operator requeued.
    pub requeued: u64,
    /// What the provider has seen.
    pub provider: provider::Counts,
    /// How long it took until nothing was left to do.
    pub took_ms: u64,
}

impl Check {
    /// Whether all is as it should be.
    pub const fn holds(&self) -> bool {
        self.expected == self.found
    }
}

impl Report {
    /// Whether all is as it should be.
    pub fn holds(&self) -> bool {
        self.checks.iter().all(Check::holds)
    }

    /// The tables that people read.
    pub fn table(&self) -> String {
        table::draw(self)
    }
}

/// What sweeps recovered, by sweep and run. They remember their last fifty runs, so whoever wants
/// all of them asks now and then.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovered(BTreeMap<(String, Time), usize>);

impl Recovered {
    /// Notes what they remember.
    pub async fn note(&mut self, desk: &Desk, config: &Config) -> Result<()> {
        for (name, sweep) in &config.sweeps {
            let runs = desk.backstop.sweeper(sweep).history().await?;
            self.0.extend(
                runs.iter()
                    .map(|run| ((name.clone(), run.at), run.enqueued)),
            );
        }
        Ok(())
    }

    fn by_sweep(&self) -> BTreeMap<String, usize> {
        let mut sums = BTreeMap::new();
        for ((name, _), enqueued) in &self.0 {
            *sums.entry(name.clone()).or_default() += enqueued;
        }
        sums
    }
}

/// What is left to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outstanding {
    rows: i64,
    missing_runs: usize,
    live: u64,
    dead: u64,
}

impl Outstanding {
    /// Looks at tables, runs and queues.
    pub async fn read(desk: &Desk, config: &Config, since: Time) -> Result<Self> {
        let rows = checks::unprocessed(desk).await?;
        let found = checks::runs(desk).await?;
        let missing_runs = expected_runs(config, since, desk.backstop.now())
            .difference(&found)
            .count();
        let queues = desk.backstop.store().queues(desk.backstop.now()).await?;
        let live = queues.iter().map(|queue| queue.counts.live()).sum();
        let dead = queues
            .iter()
            .map(|queue| queue.counts.of(JobState::Dead))
            .sum();
        Ok(Self {
            rows,
            missing_runs,
            live,
            dead,
        })
    }

    /// Whether all is done.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Whether nothing is under way, and somebody has to look at what died.
    pub const fn only_dead(&self) -> bool {
        self.live == 0 && self.dead > 0
    }
}

/// The runs that schedules mean: range and date.
fn expected_runs(config: &Config, since: Time, until: Time) -> BTreeSet<(String, String)> {
    let digests = config
        .schedules
        .values()
        .filter(|schedule| schedule.name.as_str() != COMPLETION);
    let runs = digests.flat_map(|schedule| {
        let range = if schedule.kind.as_str().starts_with("Daily") {
            "daily"
        } else {
            "weekly"
        };
        let instants = schedule.between(since.before(Span::micros(1)), until);
        instants.map(move |instant| (range.to_owned(), schedule.timezone.date(instant)))
    });
    runs.collect()
}

/// Measures a run; it is about digests from the first time on, and about what came in from the
/// second on.
pub(crate) async fn measure(
    desk: &Desk,
    config: &Config,
    provider: &Service,
    (since, started): (Time, Time),
    course: Course,
) -> Result<Report> {
    let mut checks = checks::of_tables(desk, started).await?;
    let (expected, found) = (
        expected_runs(config, since, desk.backstop.now()),
        checks::runs(desk).await?,
    );
    checks.push(Check::new(
        "digest runs of the period",
        expected.len(),
        expected.intersection(&found).count(),
    ));
    checks.push(Check::new(
        "digest runs of any other date",
        0,
        found.difference(&expected).count(),
    ));
    checks.extend(of_provider(desk, provider).await?);
    let left = Outstanding::read(desk, config, since).await?;
    checks.push(Check::new(
        "jobs that wait or are dead",
        0,
        (left.live + left.dead) as usize,
    ));
    checks.push(Check::new(
        "rows that a sweep would find",
        0,
        lost_rows(desk, config).await?,
    ));
    Ok(Report {
        checks,
        story: story(desk, config, provider, course).await?,
    })
}

impl Check {
    fn new(what: &'static str, expected: usize, found: usize) -> Self {
        let counted = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        Self {
            what,
            expected: counted(expected),
            found: counted(found),
        }
    }
}

/// Every email that is sent was delivered, under its key; nothing else was, and nothing twice.
async fn of_provider(desk: &Desk, provider: &Service) -> Result<Vec<Check>> {
    let delivered = provider.delivered();
    let sent: HashSet<String> = checks::sent(desk)
        .await?
        .into_iter()
        .map(idempotency_key)
        .collect();
    let of_sent = delivered.keys().filter(|key| sent.contains(*key)).count();
    let contents: HashSet<(&str, &str)> = delivered
        .values()
        .map(|mail| (mail.to.as_str(), mail.subject.as_str()))
        .collect();
    Ok(vec![
        Check::new(
            "emails sent that the provider delivered",
            sent.len(),
            of_sent,
        ),
        Check::new(
            "delivered and not marked as sent",
            0,
            delivered.len() - of_sent,
        ),
        Check::new(
            "delivered twice to one address",
            0,
            delivered.len() - contents.len(),
        ),
    ])
}

/// Rows of any age that sweeps take for lost, or cannot read.
async fn lost_rows(desk: &Desk, config: &Config) -> Result<usize> {
    let mut lost = 0;
    for sweep in config.sweeps.values() {
        let report = desk
            .backstop
            .sweeper(sweep)
            .dry_run(desk.backstop.now().after(Span::days(1)))
            .await?;
        lost += report.found.len() + report.unusable.len();
    }
    Ok(lost)
}

async fn story(desk: &Desk, config: &Config, provider: &Service, course: Course) -> Result<Story> {
    let mut made_up = 0;
    for schedule in config
        .schedules
        .values()
        .filter(|schedule| schedule.name.as_str() != COMPLETION)
    {
        let runs = desk.backstop.schedules().runs(&schedule.name, 100).await?;
        made_up += runs
            .iter()
            .filter(|run| run.outcome == InstantOutcome::MadeUp)
            .count() as u64;
    }
    let lost = checks::keys(desk)
        .await?
        .iter()
        .filter(|key| desk.loss.takes(key))
        .count();
    Ok(Story {
        kills: course.kills,
        sweeper_kills: course.sweeper_kills,
        jobs_that_lost_a_worker: lost_a_worker(desk).await?,
        enqueues_lost: lost as u64,
        recovered: course.recovered.by_sweep(),
        made_up,
        requeued: course.requeued,
        provider: provider.counts(),
        took_ms: course.took_ms,
    })
}

async fn lost_a_worker(desk: &Desk) -> Result<u64> {
    let (mut count, mut cursor) = (0, None);
    loop {
        let query = ListJobsRequest {
            cursor,
            limit: 1_000,
            ..ListJobsRequest::default()
        };
        let page = desk
            .backstop
            .store()
            .jobs(query, desk.backstop.now())
            .await?;
        count += page.jobs.iter().filter(|job| job.lost_leases > 0).count() as u64;
        cursor = page.next;
        if cursor.is_none() {
            return Ok(count);
        }
    }
}
