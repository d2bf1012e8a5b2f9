//! A member of the group as a process of its own: this program again, told by its environment what
//! to do.

use crate::brokers::{self, Brokers};
use crate::ledger::Ledger;
use async_trait::async_trait;
use backstop_kafka::{
    ConsumerStopReport, KafkaConsumer, KafkaMessage, MessageSink, MessageSinkError,
};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const NAME: &str = "BACKSTOP_KAFKA_MEMBER";
const ADDRESS: &str = "BACKSTOP_KAFKA_MEMBER_BROKERS";
const TOPIC: &str = "BACKSTOP_KAFKA_MEMBER_TOPIC";
const GROUP: &str = "BACKSTOP_KAFKA_MEMBER_GROUP";
const LEDGER: &str = "BACKSTOP_KAFKA_MEMBER_LEDGER";
const STALL: &str = "BACKSTOP_KAFKA_MEMBER_STALL";

/// Records of a partition that a member may have been given and not have committed.
pub(crate) const UNCOMMITTED_MAX: usize = 60;

/// A member that runs.
pub(crate) struct Member(Child);

impl Member {
    /// Starts one that takes in everything.
    pub(crate) fn start(name: &str, brokers: &Brokers, ledger: &Ledger) -> Self {
        Self::spawn(&mut command(name, brokers, ledger))
    }

    /// Starts one that takes in everything but the batch with this offset, of each partition: with
    /// that it never ends.
    pub(crate) fn start_stalling(
        name: &str,
        brokers: &Brokers,
        ledger: &Ledger,
        offset: i64,
    ) -> Self {
        Self::spawn(command(name, brokers, ledger).env(STALL, offset.to_string()))
    }

    fn spawn(command: &mut Command) -> Self {
        Self(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a process"),
        )
    }

    /// As `kill -9` does.
    pub(crate) fn kill(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("gone");
    }

    /// Tells it to stop; [`Member::ended`] waits for it.
    pub(crate) fn dismiss(&mut self) {
        drop(self.0.stdin.take());
    }

    /// What it said when it had stopped: records unfinished, and uncommitted.
    pub(crate) fn ended(mut self) -> (usize, usize) {
        self.dismiss();
        let lines = BufReader::new(self.0.stdout.take().expect("its output")).lines();
        let last = lines
            .map_while(Result::ok)
            .filter_map(|line| read(&line))
            .last();
        assert!(self.0.wait().expect("its end").success());
        last.expect("a farewell")
    }
}

impl Drop for Member {
    /// A test that fails leaves no process behind.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(name: &str, brokers: &Brokers, ledger: &Ledger) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["member::member", "--exact", "--nocapture"]);
    command.env(NAME, name).env(LEDGER, ledger.path());
    command
        .env(ADDRESS, &brokers.address)
        .env(TOPIC, &brokers.topic)
        .env(GROUP, &brokers.group);
    command
}

fn read(line: &str) -> Option<(usize, usize)> {
    let (unfinished, uncommitted) = line.strip_prefix("stopped ")?.split_once(' ')?;
    Some((unfinished.parse().ok()?, uncommitted.parse().ok()?))
}

/// What a member does. Without its environment, nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member() {
    let Ok(name) = std::env::var(NAME) else {
        return;
    };
    let said = |variable: &str| std::env::var(variable).expect("told by the parent");
    let mut settings = brokers::settings(&said(ADDRESS), &said(TOPIC), &said(GROUP));
    settings.partition_batches_max = 4;
    settings.partition_uncommitted_max = UNCOMMITTED_MAX;
    let ledger = Ledger::at(Path::new(&said(LEDGER)));
    let stall = std::env::var(STALL)
        .ok()
        .map(|offset| offset.parse().expect("a number"));
    let source = KafkaConsumer::start(
        &settings,
        Arc::new(Clerk {
            name,
            ledger,
            stall,
        }),
    )
    .expect("a source");
    let listen = || std::io::stdin().read_to_end(&mut Vec::new());
    tokio::task::spawn_blocking(listen)
        .await
        .expect("a thread")
        .expect("the parent closes it");
    let ConsumerStopReport {
        unfinished,
        uncommitted,
        ..
    } = source.stop().await;
    println!("\nstopped {unfinished} {uncommitted}");
}

/// Writes down what it takes in, at its leisure.
struct Clerk {
    name: String,
    ledger: Ledger,
    stall: Option<i64>,
}

#[async_trait]
impl MessageSink for Clerk {
    async fn take_in(&self, batch: Vec<KafkaMessage>) -> Result<(), MessageSinkError> {
        if batch
            .iter()
            .any(|message| Some(message.offset) == self.stall)
        {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
        self.ledger
            .append(&self.name, &batch)
            .map_err(MessageSinkError::new)
    }
}
