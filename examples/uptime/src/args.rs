//! What people type.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use uptime::clock::Clock;
use uptime::generate::Plan;
use uptime::mode::Mode;
use uptime::run::{Dealing, STORE_VARIABLE};

/// Results of uptime checks that arrive out of order, and what consumers make of them.
///
/// A site is checked every minute. The result of 4:00 is in the hands of a slow worker, that of
/// 4:01 overtakes it. A consumer that calls every gap a miss at once now tells people that the
/// check of 4:00 was missed, which is false, and drops its result when it comes.
///
/// `run` makes a small world in which that happens all the time, plays it to several worker
/// processes of such a consumer, and then to those of one that waits for what was overtaken, and
/// counts.
#[derive(Parser)]
#[command(
    name = "uptime",
    after_help = "\
Begin with:
  uptime run                                  half an hour of results in twenty seconds, for each of both
  uptime run --svg figures.svg --workers 8    the same with more workers, and a picture
  uptime generate --out world --seed 7        a world to look at: three files of JSON
  uptime run --world world                    and to play
  uptime consume --file world/trace.ndjson --directory world/directory.json --memory uptime.db
  uptime output --memory uptime.db            what went on to the analytics"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Makes a world from a seed: who is watched, what arrives when, and what is true about it
    Generate(GenerateArgs),
    /// Plays a world to worker processes and shows what came of it
    Run(RunArgs),
    /// Takes results from a file, from requests or from a topic: validates them, puts them in
    /// order, judges them, remembers
    Consume(ConsumeArgs),
    /// Prints what went on to the analytics, or the incidents
    Output(OutputArgs),
    /// One worker process of a run
    #[command(hide = true)]
    Worker(WorkerArgs),
}

#[derive(Args)]
pub(crate) struct GenerateArgs {
    /// The folder for directory.json, trace.ndjson and truth.json
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: PathBuf,
    /// Print the numbers as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
}

#[derive(Args)]
pub(crate) struct RunArgs {
    /// A world that `generate` made; without it, one is made
    #[arg(long, value_name = "FOLDER", conflicts_with = "plan")]
    pub(crate) world: Option<PathBuf>,
    /// How results are put in order
    #[arg(long, value_enum, default_value_t = Modes::Both)]
    pub(crate) mode: Modes,
    /// The store of `backstop`; without it, a file of SQLite for each run
    #[arg(long, value_name = "URL", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// Worker processes
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub(crate) workers: usize,
    /// How many seconds of the world pass in one
    #[arg(long, default_value_t = 90.0, value_name = "TIMES")]
    pub(crate) speed: f64,
    /// Which worker gets what
    #[arg(long, value_enum, default_value_t = Dealing::Racing)]
    pub(crate) dealing: Dealing,
    /// Draw the figures
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Keep the world and the memory of the run in this folder, to look into; it must be a new one
    #[arg(long, value_name = "FOLDER")]
    pub(crate) keep: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
}

/// Ways of putting results in order, one after the other.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Modes {
    /// A gap is a miss at once, and a result that was overtaken is dropped
    Immediate,
    /// A result waits for those before it, for three minutes at most; what does not come in that
    /// time is a miss
    Backstop,
    /// One after the other, on the same trace
    Both,
}

impl Modes {
    pub(crate) const fn modes(self) -> &'static [Mode] {
        match self {
            Self::Immediate => &[Mode::Immediate],
            Self::Backstop => &[Mode::Backstop],
            Self::Both => &[Mode::Immediate, Mode::Backstop],
        }
    }
}

/// Where results come from.
#[derive(Args)]
#[group(id = "source", required = true, multiple = false)]
pub(crate) struct SourceArgs {
    /// A file with a result on each line, or a trace; `-` reads from stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Requests to this address: `POST /results`. A port alone is one of this machine only
    #[arg(long, value_name = "[HOST:]PORT", value_parser = address)]
    pub(crate) http: Option<SocketAddr>,
    /// A topic of these brokers: `host:port`, several with commas between
    #[cfg(feature = "kafka")]
    #[arg(long, value_name = "BROKERS", requires = "topic")]
    kafka: Option<String>,
}

/// What is read from brokers.
#[cfg(feature = "kafka")]
#[derive(Args)]
pub(crate) struct TopicArgs {
    /// The topic
    #[arg(long, value_name = "NAME", requires = "kafka")]
    topic: Option<String>,
    /// The group; its members share the partitions
    #[arg(long, value_name = "NAME", default_value = "uptime")]
    group: String,
}

#[cfg(feature = "kafka")]
impl ConsumeArgs {
    /// What is read from brokers, if anything is.
    pub(crate) fn kafka(&self) -> Option<backstop_kafka::KafkaSettings> {
        let (brokers, topic) = (self.source.kafka.as_ref()?, self.topic.topic.as_ref()?);
        Some(backstop_kafka::KafkaSettings::new(
            brokers,
            [topic],
            &self.topic.group,
        ))
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text
        .parse()
        .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    port.or_else(|_| text.parse())
        .map_err(|_| "give a port, or an address such as 127.0.0.1:8080".to_owned())
}

#[derive(Args)]
pub(crate) struct ConsumeArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[cfg(feature = "kafka")]
    #[command(flatten)]
    topic: TopicArgs,
    /// Who is watched
    #[arg(long, value_name = "FILE")]
    pub(crate) directory: PathBuf,
    /// What outlives the process; made if it is not there. Several consumers may share it
    #[arg(long, value_name = "FILE")]
    pub(crate) memory: PathBuf,
    /// How results are put in order
    #[arg(long, value_enum, default_value_t = Mode::Backstop)]
    pub(crate) mode: Mode,
    /// The store of `backstop`, which consumers share too; without it, a file of SQLite beside the
    /// memory
    #[arg(long, value_name = "URL", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// The name of the stream in the store
    #[arg(long, value_name = "NAME", default_value = "uptime")]
    pub(crate) stream: String,
    /// At the end, wait until nothing is held any more; otherwise whoever consumes next goes on
    /// with it
    #[arg(long)]
    pub(crate) drain: bool,
    /// Print the counts as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct OutputArgs {
    /// The memory of consumers
    #[arg(long, value_name = "FILE")]
    pub(crate) memory: PathBuf,
    /// Incidents instead
    #[arg(long)]
    pub(crate) incidents: bool,
}

#[derive(Args)]
pub(crate) struct WorkerArgs {
    #[arg(long)]
    pub(crate) directory: PathBuf,
    #[arg(long)]
    pub(crate) memory: PathBuf,
    #[arg(long, env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: String,
    #[arg(long)]
    pub(crate) stream: String,
    #[arg(long, value_enum)]
    pub(crate) mode: Mode,
    #[arg(long)]
    pub(crate) clock: Clock,
}

/// What a world is like. Shares are between 0 and 1.
#[derive(Args)]
#[group(id = "plan", multiple = true)]
#[command(next_help_heading = "The world")]
pub(crate) struct PlanArgs {
    /// The same seed makes the same world
    #[arg(long, default_value_t = Plan::default().seed)]
    seed: u64,
    /// How many are watched
    #[arg(long, default_value_t = Plan::default().subscriptions, value_name = "N")]
    subscriptions: u32,
    /// How long checks are made
    #[arg(long, default_value_t = Plan::default().minutes, value_name = "N")]
    minutes: u32,
    /// Results that a slow worker holds back
    #[arg(long, default_value_t = Plan::default().slow, value_name = "SHARE")]
    slow: f64,
    /// For how many seconds at most
    #[arg(long, default_value_t = Plan::default().slow_max_s, value_name = "N")]
    slow_max_s: u32,
    /// Minutes from one stall of the consumer to the next
    #[arg(long, default_value_t = Plan::default().stall_every_min, value_name = "N")]
    stall_every_min: u32,
    /// Seconds a stall lasts; what comes in it arrives in a heap afterwards. 0: there is none
    #[arg(long, default_value_t = Plan::default().stall_s, value_name = "N")]
    stall_s: u32,
    /// Results that never arrive
    #[arg(long, default_value_t = Plan::default().dropped, value_name = "SHARE")]
    dropped: f64,
    /// Results that arrive when they have been given up
    #[arg(long, default_value_t = Plan::default().late, value_name = "SHARE")]
    late: f64,
    /// Results that arrive twice
    #[arg(long, default_value_t = Plan::default().duplicates, value_name = "SHARE")]
    duplicates: f64,
    /// Results beside which something arrives that is none
    #[arg(long, default_value_t = Plan::default().broken, value_name = "SHARE")]
    broken: f64,
}

impl PlanArgs {
    pub(crate) fn plan(&self) -> Plan {
        Plan {
            seed: self.seed,
            subscriptions: self.subscriptions,
            minutes: self.minutes,
            slow: self.slow,
            slow_max_s: self.slow_max_s,
            stall_every_min: self.stall_every_min,
            stall_s: self.stall_s,
            dropped: self.dropped,
            late: self.late,
            duplicates: self.duplicates,
            broken: self.broken,
        }
    }
}
