//! A run: a past week without digests, work that comes in, worker processes, and somebody who kills
//! them.

mod crew;

use crate::config::{self, COMPLETION, Pace};
use crate::database::Database;
use crate::desk::Desk;
use crate::limits::{EMAIL_BATCH_MAX, REQUEUES_MAX, SETTLE_LOOK_EVERY, SETTLE_TIME_MAX};
use crate::loss::Loss;
use crate::provider::{Health, Service};
use crate::report::{Outstanding, Recovered, Report, measure};
use crate::worker::Setup;
use crate::world::{Scale, arrive, found};
use anyhow::Result;
use backstop::config::Config;
use backstop::dead::DeadSelection;
use backstop::{Backstop, ScheduleName, Span, Time};
use crew::Crew;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two kills, in milliseconds.
const KILLED_AFTER_MS: std::ops::Range<u64> = 300..1_100;
/// How often what sweeps recovered is noted, before they forget it.
const NOTE_EVERY: Duration = Duration::from_secs(10);
/// How far back digests are expected: a little less than schedules look back, so that the oldest
/// one does not fall out of their sight while a run begins.
const PERIOD: Span = Span::hours(7 * 24 - 1);

/// Who is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victims {
    /// Those that run jobs.
    Workers,
    /// The one that sweeps as well. A sweeper that dies in the middle of a run has its turn for
    /// another 30 s, whatever an hour takes here.
    Everybody,
}

/// How a run goes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The dice.
    pub seed: u64,
    /// Worker processes.
    pub workers: usize,
    /// How many of them are killed, one after another.
    pub kills: u32,
    /// Who is.
    pub victims: Victims,
    /// The share of enqueues after a commit that get lost.
    pub lost: f64,
    /// How unwell the provider is.
    pub health: Health,
    /// How large the world is.
    pub scale: Scale,
    /// How fast time goes.
    pub pace: Pace,
    /// How long work comes in, at least.
    pub arrive: Duration,
    /// Emails made in one go.
    pub email_batch: i64,
}

impl Plan {
    /// Nobody is killed and nothing gets lost. The provider is as providers are.
    pub fn calm(scale: Scale, pace: Pace) -> Self {
        Self {
            seed: 1,
            workers: 2,
            kills: 0,
            victims: Victims::Workers,
            lost: 0.0,
            health: Health {
                fails: 0.03,
                silent: 0.0,
            },
            scale,
            pace,
            arrive: Duration::from_secs(2),
            email_batch: EMAIL_BATCH_MAX,
        }
    }

    /// Workers are killed, a quarter of all enqueues gets lost, and the provider is unwell. Batches
    /// are small, so that kills fall between them.
    pub fn chaos(scale: Scale, pace: Pace, seed: u64, kills: u32) -> Self {
        let health = Health {
            fails: 0.08,
            silent: 0.04,
        };
        Self {
            seed,
            workers: 3,
            kills,
            lost: 0.25,
            health,
            email_batch: 10,
            ..Self::calm(scale, pace)
        }
    }
}

/// What a run went through, beside what is in the tables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Course {
    /// Processes that were killed.
    pub kills: u32,
    /// Of these, those that swept.
    pub sweeper_kills: u32,
    /// What sweeps recovered.
    pub recovered: Recovered,
    /// Dead letters that an operator requeued.
    pub requeued: u64,
    /// How long it took until nothing was left to do, in milliseconds.
    pub took_ms: u64,
}

/// Plays a plan on a database, with worker processes of a program; answers what came of it.
pub async fn play(plan: &Plan, url: &str, program: &Path) -> Result<Report> {
    let provider = Service::new(plan.health, plan.seed);
    let started = Backstop::open(url).await?.now();
    let since = started.before(PERIOD);
    let loss = Loss {
        share: plan.lost,
        seed: plan.seed,
    };
    let setup = Setup {
        config: config::text(url, plan.pace, Some(since)),
        provider: provider.start().await?,
        loss,
        email_batch: plan.email_batch,
    };
    found(&Database::at(url), plan.scale).await?;
    let (desk, config) = setup.desk().await?;

    let began = Instant::now();
    let mut crew = Crew::start(program, &setup, plan.workers).await?;
    let during = plan.arrive.max(Duration::from_millis(
        u64::from(plan.kills) * KILLED_AFTER_MS.end / 2,
    ));
    let killing = kill_now_and_then(&mut crew, plan);
    let ((), sweeper_kills) =
        tokio::try_join!(arrive(&desk, plan.scale, plan.seed, during), killing)?;
    let mut course = Course {
        kills: plan.kills,
        sweeper_kills,
        ..Course::default()
    };
    settle(&desk, &config, since, &mut course).await?;
    course.took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    crew.stop().await?;
    course.recovered.note(&desk, &config).await?;
    measure(&desk, &config, &provider, (since, started), course).await
}

/// Answers how often that was the one that sweeps.
async fn kill_now_and_then(crew: &mut Crew, plan: &Plan) -> Result<u32> {
    let mut dice = StdRng::seed_from_u64(plan.seed ^ 0xdead);
    // The sweeper comes first.
    let spared = match plan.victims {
        Victims::Workers => 1,
        Victims::Everybody => 0,
    };
    let mut sweeper_kills = 0;
    for _ in 0..plan.kills {
        tokio::time::sleep(Duration::from_millis(dice.random_range(KILLED_AFTER_MS))).await;
        let nth = dice.random_range(spared..=plan.workers);
        sweeper_kills += u32::from(nth == 0);
        crew.kill_one(nth).await?;
    }
    Ok(sweeper_kills)
}

/// Waits until nothing is left to do, or for as long as there is patience. Jobs that lost three
/// workers are dead by then, and need a person to say that they are not to blame: they are
/// requeued.
async fn settle(desk: &Desk, config: &Config, since: Time, course: &mut Course) -> Result<()> {
    let (began, mut noted, mut requeues) = (Instant::now(), Instant::now(), 0);
    while began.elapsed() < SETTLE_TIME_MAX {
        let left = Outstanding::read(desk, config, since).await?;
        tracing::debug!(?left, "waiting until nothing is left to do");
        if left.is_nothing() {
            return complete(desk, config).await;
        }
        if left.only_dead() && requeues < REQUEUES_MAX {
            let dead = desk.backstop.dead().by("the operator");
            course.requeued += dead.requeue(&DeadSelection::All).await?.count;
            requeues += 1;
        }
        if noted.elapsed() > NOTE_EVERY {
            course.recovered.note(desk, config).await?;
            noted = Instant::now();
        }
        tokio::time::sleep(SETTLE_LOOK_EVERY).await;
    }
    Ok(())
}

/// Has finished digest runs marked, without waiting for the next full minute.
async fn complete(desk: &Desk, config: &Config) -> Result<()> {
    let schedule = &config.schedules[&ScheduleName::new(COMPLETION)?];
    let run = desk.backstop.schedules().trigger(schedule).await?;
    let began = Instant::now();
    while began.elapsed() < SETTLE_TIME_MAX {
        let job = desk.backstop.job(run.id).await?;
        if job.is_none_or(|job| job.state.is_final()) {
            break;
        }
        tokio::time::sleep(SETTLE_LOOK_EVERY).await;
    }
    Ok(())
}
