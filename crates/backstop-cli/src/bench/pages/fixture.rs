//! A store as it is after a year of bad luck: jobs in every state over several queues and kinds,
//! dead letters of several causes, a full audit, and an example of everything that has a page of
//! its own.

use super::super::BenchArgs;
use super::super::http::config;
use super::super::measure;
use super::super::streams::record;
use anyhow::{Context, Result, ensure};
use backstop::core::amend::{AmendAction, Filter};
use backstop::core::bounds::QueueBounds;
use backstop::core::failure::{ErrorReport, FailureCause, FailureHistory, FailureRecord};
use backstop::core::limits::{BURY_MAX, CLAIM_JOBS_MAX, ENQUEUE_JOBS_MAX, LEASE_MAX};
use backstop::core::plan::QueueQuota;
use backstop::core::port::{Claim, EnqueueOutcome, ListJobsRequest, NewDeadLetter};
use backstop::core::verdict::{DoneRetention, EndReason, Settlement};
use backstop::core::{Fingerprint, LeaseNumber, LeasedRun, Outcome, WorkerName};
use backstop::dead::redrive::RedrivePlan;
use backstop::dead::{DeadFilter, DeadSelection};
use backstop::search::JobSearch;
use backstop::{Backstop, JobId, JobState, Kind, NewJob, Payload, QueueName, Span, StreamKey};
use backstop_server::App;
use backstop_server::bulk::{BulkActions, BulkPlan, BulkTarget};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use indicatif::ProgressBar;
use std::path::Path;

const QUEUES: [&str; 8] = [
    "mail",
    "billing",
    "search",
    "thumbnails",
    "exports",
    "webhooks",
    "reports",
    "cleanup",
];
const KINDS: [&str; 5] = ["deliver", "render", "charge", "index", "expire"];
/// Of this kind there is one job, the oldest of all: a list of them has to look far.
const RARE: &str = "once";
/// What letters died of. Words, since a fingerprint does not heed numbers.
const CAUSES: [&str; 12] = [
    "the card was declined",
    "no answer in time",
    "connection refused",
    "the mailbox is full",
    "not a picture",
    "the schema does not fit",
    "permission denied",
    "out of memory",
    "the certificate has expired",
    "no such customer",
    "the quota is used up",
    "an invalid address",
];
/// Of all jobs, one in so many is to run later, and three in so many have ended or failed once.
const PARTS: usize = 10;
/// Jobs of each queue in somebody's hands.
const RUNNING: usize = 50;
/// Entries of the audit, and how many are written at once.
const AUDIT_MAX: usize = 10_000;
const AT_ONCE: usize = 64;
/// Keys of the stream that hold a record.
const KEYS: usize = 1_000;

/// Examples of what has a page of its own.
pub(super) struct PageFixture {
    pub(super) queue: QueueName,
    pub(super) kind: Kind,
    pub(super) rare: Kind,
    pub(super) job: JobId,
    pub(super) letter: JobId,
    pub(super) fingerprint: Fingerprint,
    pub(super) run: String,
    pub(super) redrive: String,
    config: String,
}

impl PageFixture {
    pub(super) const STREAM: &str = "uptime";
    pub(super) const KEY: &str = "key-1";
    /// Of the schedule and of the sweep.
    pub(super) const NAME: &str = "daily";

    /// Fills a store, which is new.
    pub(super) async fn fill(
        backstop: &Backstop,
        folder: &Path,
        args: &BenchArgs,
        bar: &ProgressBar,
    ) -> Result<Self> {
        let queues = QUEUES
            .iter()
            .map(|name| QueueName::new(name))
            .collect::<Result<Vec<_>, _>>()?;
        push(backstop, &queues, args.jobs(), bar).await?;
        end(backstop, &queues, args.jobs() * 3 / PARTS, bar).await?;
        bury(backstop, &queues, args.dead, bar).await?;
        bar.set_message("filling in everything else");
        offer(backstop).await?;
        note(backstop, AUDIT_MAX.min(args.jobs() / 100)).await?;
        let config = write_config(folder)?;
        let fingerprint = Fingerprint::of(&error(0));
        Ok(Self {
            job: first(backstop, JobState::Ready).await?,
            letter: first(backstop, JobState::Dead).await?,
            redrive: redrive(backstop, fingerprint).await?,
            run: run(backstop, &config).await?,
            queue: queues[0].clone(),
            kind: Kind::new(KINDS[0])?,
            rare: Kind::new(RARE)?,
            fingerprint,
            config,
        })
    }

    /// The text of a configuration with a schedule and a sweep.
    pub(super) fn config(&self) -> &str {
        &self.config
    }
}

/// Pushes them, one in [`PARTS`] to run later.
async fn push(
    backstop: &Backstop,
    queues: &[QueueName],
    count: usize,
    bar: &ProgressBar,
) -> Result<()> {
    let mut before: Option<tokio::task::JoinHandle<_>> = None;
    for (batch, first) in (0..count).step_by(ENQUEUE_JOBS_MAX).enumerate() {
        bar.set_message(format!("pushing {first} of {count} jobs"));
        let queue = &queues[batch % queues.len()];
        let jobs = (first..count.min(first + ENQUEUE_JOBS_MAX)).map(|n| job(backstop, queue, n));
        let (backstop, jobs) = (backstop.clone(), jobs.collect::<Result<Vec<_>>>()?);
        // One is made while the other is written.
        let pushing = tokio::spawn(async move { backstop.push_jobs(jobs).await });
        if let Some(before) = before.replace(pushing) {
            before.await??;
        }
    }
    if let Some(last) = before {
        last.await??;
    }
    Ok(())
}

fn job(backstop: &Backstop, queue: &QueueName, n: usize) -> Result<NewJob> {
    let kind = if n == 0 { RARE } else { KINDS[n % KINDS.len()] };
    let payload = Payload::json(measure::payload(n))?;
    let mut job = NewJob::new(backstop.new_id(), queue.clone(), Kind::new(kind)?, payload);
    if n % PARTS == 1 {
        job.run_at = Some(
            backstop
                .now()
                .after(Span::hours(1))
                .after(Span::secs(i64::try_from(n)?)),
        );
    }
    Ok(job)
}

/// Ends so many that are ready: most are done, some called off, some to be tried again. Leaves a
/// few in somebody's hands.
async fn end(
    backstop: &Backstop,
    queues: &[QueueName],
    count: usize,
    bar: &ProgressBar,
) -> Result<()> {
    let mut ended = 0;
    for queue in queues.iter().cycle() {
        if ended >= count {
            break;
        }
        bar.set_message(format!("ending {ended} of {count} jobs"));
        let runs = claim(backstop, queue, CLAIM_JOBS_MAX.min(count - ended)).await?;
        ensure!(!runs.is_empty(), "no job of {queue} is left to be ended");
        ended += runs.len();
        let settlements = runs.iter().enumerate();
        let settlements = settlements.map(|(n, run)| Settlement {
            lease: run.lease.clone(),
            outcome: outcome(backstop, run, n),
        });
        backstop
            .store()
            .settle(settlements.collect(), backstop.now())
            .await?;
    }
    for queue in queues {
        claim(backstop, queue, RUNNING).await?;
    }
    Ok(())
}

async fn claim(backstop: &Backstop, queue: &QueueName, max: usize) -> Result<Vec<LeasedRun>> {
    let now = backstop.now();
    let claim = Claim {
        number: LeaseNumber::draw(rand::random()),
        worker: WorkerName::new("bench"),
        until: now.after(LEASE_MAX),
        wants: vec![QueueQuota {
            queue: queue.clone(),
            max,
        }],
    };
    Ok(backstop.store().claim(claim, now).await?.runs)
}

fn outcome(backstop: &Backstop, run: &LeasedRun, n: usize) -> Outcome {
    match n % 5 {
        0 => Outcome::Retry {
            at: backstop.now().after(Span::hours(6)),
            history: history(backstop, n),
            anew: false,
        },
        1 => Outcome::Cancelled {
            reason: EndReason::Unwanted,
            history: run.history.clone(),
        },
        _ => Outcome::Done(DoneRetention::Listed),
    }
}

fn error(n: usize) -> ErrorReport {
    let cause = CAUSES[n % CAUSES.len()];
    ErrorReport {
        error_type: Some("Failed".to_owned()),
        ..ErrorReport::message(format!("{cause}: job {n}"))
    }
}

fn history(backstop: &Backstop, n: usize) -> FailureHistory {
    let worker = WorkerName::new("bench");
    FailureHistory::default().with_failure(FailureRecord::new(
        backstop.now(),
        1,
        FailureCause::Failed,
        &worker,
        error(n),
    ))
}

/// Dead letters of a month.
async fn bury(
    backstop: &Backstop,
    queues: &[QueueName],
    count: usize,
    bar: &ProgressBar,
) -> Result<()> {
    let bounds = QueueBounds {
        dead_max: u64::MAX >> 1,
        ..QueueBounds::default()
    };
    for queue in queues {
        backstop
            .store()
            .set_bounds(queue.clone(), bounds, backstop.now())
            .await?;
    }
    for first in (0..count).step_by(BURY_MAX) {
        bar.set_message(format!("burying {first} of {count} dead letters"));
        let burials = (first..count.min(first + BURY_MAX)).map(|n| {
            let (now, job) = (
                backstop.now(),
                job(backstop, &queues[n % queues.len()], n + 2 * PARTS)?,
            );
            let died = now
                .before(Span::days(30))
                .after(Span::micros(i64::try_from(n)? * 25_000_000));
            Ok(NewDeadLetter {
                job: NewJob {
                    run_at: Some(died),
                    ..job
                },
                attempts: 1,
                lost_leases: 0,
                requeues: 0,
                inserted_at: died,
                finished_at: died,
                reason: EndReason::AttemptsExhausted,
                history: history(backstop, n),
            })
        });
        let buried = backstop
            .store()
            .bury(burials.collect::<Result<_>>()?, backstop.now())
            .await?;
        ensure!(
            buried.iter().all(|one| *one == EnqueueOutcome::Inserted),
            "a dead letter was not taken in"
        );
    }
    Ok(())
}

/// Records that wait for those before them.
async fn offer(backstop: &Backstop) -> Result<()> {
    let keys = (0..KEYS).map(|n| StreamKey::new(&format!("key-{n}")));
    let records = keys
        .map(|key| record(&key?, 7))
        .collect::<Result<Vec<_>>>()?;
    backstop.stream(PageFixture::STREAM)?.offer(records).await?;
    Ok(())
}

async fn note(backstop: &Backstop, count: usize) -> Result<()> {
    let audit = backstop.audit("bench");
    let noting = (0..count).map(|n| {
        let audit = &audit;
        async move {
            audit
                .open_entry("queue pause", serde_json::json!({ "n": n }))
                .await
        }
    });
    stream::iter(noting)
        .buffer_unordered(AT_ONCE)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    Ok(())
}

/// A job in a state.
async fn first(backstop: &Backstop, state: JobState) -> Result<JobId> {
    let filter = Filter {
        state: Some(state),
        ..Filter::default()
    };
    let query = ListJobsRequest {
        filter,
        limit: 1,
        ..ListJobsRequest::default()
    };
    let found = backstop
        .store()
        .jobs(query, backstop.now())
        .await?
        .jobs
        .pop();
    Ok(found.with_context(|| format!("no job is {state}"))?.id)
}

/// A redrive that was stopped before it began.
async fn redrive(backstop: &Backstop, fingerprint: Fingerprint) -> Result<String> {
    let dead = backstop.dead().by("bench");
    let filter = DeadFilter {
        fingerprint: Some(fingerprint),
        ..DeadFilter::default()
    };
    let selection = DeadSelection::Matching(filter);
    let plan = RedrivePlan {
        canary: 5,
        max_failures: 0,
        then_rate: "10/s".parse()?,
        selection,
    };
    let id = dead.redrive(plan).await?;
    Ok(dead.stop_redrive(&id).await?.id)
}

/// A bulk action on a queue without jobs.
async fn run(backstop: &Backstop, text: &str) -> Result<String> {
    let app = App::new(backstop.clone(), config(text)?, "");
    let filter = Filter {
        queue: Some(QueueName::new("empty")?),
        ..Filter::default()
    };
    let target = BulkTarget::jobs(
        &JobSearch {
            filter,
            ..JobSearch::default()
        },
        &AmendAction::Cancel,
    );
    let plan = BulkPlan {
        target,
        expected: None,
        back: "/jobs".to_owned(),
    };
    let started = BulkActions::new(&app, "bench").start(plan).await?;
    started.context("nothing else is under way")
}

/// A schedule, and a sweep over a database of its own.
fn write_config(folder: &Path) -> Result<String> {
    let file = folder.join("app.db");
    rusqlite::Connection::open(&file)?
        .execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, at TEXT)")?;
    let (name, url) = (PageFixture::NAME, format!("sqlite:{}", file.display()));
    Ok(format!(
        "[schedules.{name}]\ncron = \"30 8 * * *\"\nqueue = \"reports\"\n\n\
         [sweeps.{name}]\nurl = \"{url}\"\nquery = \"SELECT id FROM orders WHERE at <= :cutoff\"\nolder_than = \"1h\"\nevery = \"30m\"\n\
         queue = \"billing\"\nkind = \"charge\"\nunique_key = \"order:{{id}}\"\npayload = {{ id = \"{{id}}\" }}\n"
    ))
}
