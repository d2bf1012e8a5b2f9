//! What people type.

use backstop::Span;
use clap::{Args, Parser, Subcommand};
use email_alerts::config::Pace;
use email_alerts::limits::WORKERS_MAX;
use email_alerts::play::{Plan, Victims};
use email_alerts::world::Scale;

/// Workers are killed all the time: what they had is not to wait for long.
const LEASE_IN_CHAOS: Span = Span::secs(3);

/// A service that tells its subscribers by email what has changed, and loses nothing.
///
/// Content changes and messages come in and are told of at once; digests are due every morning and
/// every Saturday. All of it is in one PostgreSQL: tables and jobs. `chaos` kills the worker
/// processes, loses enqueues, has a provider that is unwell, and then counts: every email is
/// delivered exactly once.
#[derive(Parser)]
#[command(
    name = "email_alerts",
    after_help = "\
Begin with:
  email_alerts run                      a calm run, on a PostgreSQL of its own
  email_alerts chaos --kills 20         the same with workers killed and enqueues lost
  email_alerts config                   its queues, schedules and sweeps as backstop.toml"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// A calm run: nobody is killed and nothing gets lost
    Run(PlayArgs),
    /// A run in which worker processes are killed and enqueues get lost; exit 1 if anything is off
    /// in the end
    Chaos(ChaosArgs),
    /// Prints queues, schedules and sweeps as backstop.toml
    Config(ConfigArgs),
    /// One worker process of a run
    #[command(hide = true)]
    Worker,
}

#[derive(Args)]
pub(crate) struct ChaosArgs {
    /// The dice: which enqueues get lost, who is killed when
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// How many worker processes are killed, one after another
    #[arg(long, default_value_t = 12, value_name = "N")]
    pub(crate) kills: u32,
    /// The share of enqueues after a commit that get lost
    #[arg(long, default_value_t = 0.25, value_name = "SHARE", value_parser = share)]
    pub(crate) lost: f64,
    /// Kill the process that sweeps as well. Killed in the middle of a sweep it has its turn for
    /// another 30 s: the run takes longer
    #[arg(long)]
    kill_sweeper: bool,
    #[command(flatten)]
    pub(crate) play: PlayArgs,
}

#[derive(Args)]
pub(crate) struct PlayArgs {
    /// The database; without it, a PostgreSQL is started and removed again. It must have no schema
    /// `email_alerts`
    #[arg(
        long,
        value_name = "URL",
        env = "EMAIL_ALERTS_POSTGRES",
        hide_env_values = true
    )]
    pub(crate) postgres: Option<String>,
    /// What an hour of the service takes
    #[arg(long, default_value = "2s", value_name = "DURATION")]
    hour: Span,
    /// How long a job stays with a worker that gives no sign of life; 15s in a calm run, 3s in
    /// chaos
    #[arg(long, value_name = "DURATION")]
    lease: Option<Span>,
    /// Worker processes
    #[arg(long, value_name = "N", value_parser = workers)]
    pub(crate) workers: Option<usize>,
    /// Subscribers at the beginning
    #[arg(long, default_value_t = 150, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=100_000))]
    subscribers: i32,
    /// Content changes that come in; messages are half as many
    #[arg(long, default_value_t = 20, value_name = "N")]
    content_changes: u32,
    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct ConfigArgs {
    /// The database
    #[arg(
        long,
        value_name = "URL",
        default_value = "postgres://email_alerts@localhost/email_alerts"
    )]
    pub(crate) postgres: String,
    /// What an hour of the service takes
    #[arg(long, default_value = "1h", value_name = "DURATION")]
    pub(crate) hour: Span,
}

impl ChaosArgs {
    pub(crate) fn plan(&self) -> Plan {
        let pace = self.play.pace(LEASE_IN_CHAOS);
        let victims = if self.kill_sweeper {
            Victims::Everybody
        } else {
            Victims::Workers
        };
        Plan {
            lost: self.lost,
            victims,
            ..Plan::chaos(self.play.scale(), pace, self.seed, self.kills)
        }
    }
}

impl PlayArgs {
    pub(crate) fn scale(&self) -> Scale {
        Scale {
            subscribers: self.subscribers,
            lists: 12,
            past: 160,
            content_changes: self.content_changes,
            messages: self.content_changes / 2,
            sign_ups: self.content_changes,
        }
    }

    pub(crate) fn pace(&self, lease_usual: Span) -> Pace {
        Pace {
            hour: self.hour,
            lease: self.lease.unwrap_or(lease_usual),
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text
        .parse()
        .map_err(|_| format!("`{text}` is not a number"))?;
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err("a share is from 0 to 1".to_owned())
    }
}

fn workers(text: &str) -> Result<usize, String> {
    let workers = text
        .parse()
        .ok()
        .filter(|workers| (1..=WORKERS_MAX).contains(workers));
    workers.ok_or_else(|| format!("give a number from 1 to {WORKERS_MAX}"))
}
