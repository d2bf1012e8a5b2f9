//! Processes that serve one stream, each with its share of a trace, and are killed while they do.

use backstop::streams::{KeyFilter, StreamCounter, StreamStatus};
use backstop::{Backstop, Span};
use backstop_testkit::ordered::{EventLog, Line, Seen, Trace, check};
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// While a wave is brought, and when everything of it has arrived. The first is longer than any
/// wave takes.
const WAIT_LONG: &str = "serve 3000000";
const WAIT_SHORT: &str = "serve 100";
/// What no phase of a wave takes.
const PHASE_TIME_MAX: Duration = Duration::from_mins(10);
/// The last of what the processes warned of, where a test fails.
const WARNINGS_SHOWN: usize = 50;
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Between two looks at the store.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// The processes, and the store as the test itself sees it.
pub(crate) struct Crew {
    backstop: Backstop,
    store: String,
    folder: TempDir,
    log: EventLog,
    trace: Trace,
    lease: Span,
    members: Vec<Member>,
    started: u32,
    /// What processes say, and where they say it.
    said: Receiver<Said>,
    ear: Sender<Said>,
    dice: StdRng,
    /// Lengths of the log at which a process is killed, the next one last.
    kills: Vec<u64>,
    killed: usize,
}

/// Which process says what.
struct Said {
    number: u32,
    line: String,
}

struct Member {
    number: u32,
    process: Child,
    orders: ChildStdin,
}

impl Crew {
    pub(crate) async fn start(store: &str, trace: Trace, lease: Span, dice: StdRng) -> Self {
        let backstop = Backstop::open(store).await.expect("the store opens");
        let folder = tempfile::tempdir().expect("a folder");
        let log = EventLog::open(folder.path().join("log")).expect("a log");
        let (ear, said) = channel();
        let mut crew = Self {
            backstop,
            store: store.to_owned(),
            folder,
            log,
            trace,
            lease,
            members: Vec::new(),
            started: 0,
            said,
            ear,
            dice,
            kills: Vec::new(),
            killed: 0,
        };
        crew.members = (0..trace.shares)
            .map(|share| crew.start_member(share))
            .collect();
        crew
    }

    /// Brings a wave, and has all of it handled; kills so many processes meanwhile.
    pub(crate) async fn wave(&mut self, wave: usize, kills: usize) {
        self.plan_kills(wave, kills);
        self.all_do(&[WAIT_LONG]);
        self.all_do(&[WAIT_LONG, &format!("bring {wave}")]);
        self.all_do(&[WAIT_SHORT]);
        self.all_do(&[WAIT_SHORT, &format!("sweep {wave}")]);
        let deadline = Instant::now() + PHASE_TIME_MAX;
        let mut asked = Instant::now();
        while !self.is_through(wave).await {
            assert!(
                Instant::now() < deadline,
                "wave {wave} is not through: {:?}",
                self.status().await
            );
            while asked.elapsed() < ASK_EVERY {
                self.kill_if_due(&[WAIT_SHORT, &format!("sweep {wave}")]);
                std::thread::sleep(LOOK_EVERY);
            }
            asked = Instant::now();
        }
    }

    /// Kills are spread over what the wave adds to the log, so that each of them meets work however
    /// fast it is done. How much that is is known only by the waves before, which had other numbers
    /// of repeats: the last third is left out.
    fn plan_kills(&mut self, wave: usize, kills: usize) {
        let from = self.log.bytes().expect("the log has a length");
        let calls: usize = (0..wave).map(|wave| self.trace.calls(wave)).sum();
        let to = from + from * self.trace.calls(wave) as u64 * 2 / (3 * calls.max(1) as u64);
        self.kills
            .extend((0..kills).map(|_| self.dice.random_range(from..to)));
        self.kills.sort_unstable_by_key(|at| std::cmp::Reverse(*at));
    }

    /// Gives all processes these orders, and returns when all have carried them out.
    fn all_do(&mut self, orders: &[&str]) {
        let last = (*orders.last().expect("an order")).to_owned();
        let order = &orders[orders.len() - 1..];
        for share in 0..self.members.len() {
            self.order(share, order);
        }
        let deadline = Instant::now() + PHASE_TIME_MAX;
        let mut done: BTreeSet<u32> = BTreeSet::new();
        while !self
            .members
            .iter()
            .all(|member| done.contains(&member.number))
        {
            assert!(
                Instant::now() < deadline,
                "`{last}` is not done within {PHASE_TIME_MAX:?}"
            );
            match self.said.recv_timeout(LOOK_EVERY) {
                Ok(Said { number, line }) if line == last => drop(done.insert(number)),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("the crew keeps a sender itself")
                }
            }
            self.kill_if_due(orders);
        }
    }

    fn order(&mut self, share: usize, orders: &[&str]) {
        for order in orders {
            // A process that ended by itself is found when it is asked how.
            let _ = writeln!(self.members[share].orders, "{order}");
        }
    }

    /// `kill -9` for one of them if the log is long enough, and another in its place that goes on
    /// with these orders.
    fn kill_if_due(&mut self, orders: &[&str]) {
        for member in &mut self.members {
            let ended = member.process.try_wait().expect("asked");
            assert!(
                ended.is_none(),
                "process {} ended by itself: {ended:?}",
                member.number
            );
        }
        let bytes = self.log.bytes().expect("the log has a length");
        if self.kills.last().is_none_or(|at| *at > bytes) {
            return;
        }
        self.kills.pop();
        let share = self.dice.random_range(0..self.members.len());
        let member = &mut self.members[share];
        member.process.kill().expect("killed");
        member.process.wait().expect("gone");
        self.log
            .append(&Line {
                process: member.number,
                seen: Seen::Killed,
            })
            .expect("written down");
        self.killed += 1;
        self.members[share] = self.start_member(share);
        self.order(share, orders);
    }

    fn start_member(&mut self, share: usize) -> Member {
        self.started += 1;
        let (
            number,
            Trace {
                seed,
                keys,
                positions,
                wave,
                shares,
            },
        ) = (self.started, self.trace);
        let numbers = [keys, positions, wave, shares, share].map(|number| number.to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_stream_worker"));
        command
            .arg(&self.store)
            .arg(self.folder.path())
            .arg(self.lease.as_millis().to_string());
        command.arg(seed.to_string()).args(numbers);
        command
            .arg(number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().expect("the process starts");
        let orders = process.stdin.take().expect("it is piped");
        let (ear, stdout) = (
            self.ear.clone(),
            process.stdout.take().expect("it is piped"),
        );
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // Nobody listens any more when the test is over.
                let _ = ear.send(Said { number, line });
            }
        });
        Member {
            number,
            process,
            orders,
        }
    }

    async fn status(&self) -> Option<StreamStatus> {
        self.backstop
            .stream("ordered")
            .expect("a name")
            .status()
            .await
            .expect("the store answers")
    }

    /// Whether every key has come to the end of the wave, and holds nothing.
    async fn is_through(&self, wave: usize) -> bool {
        let (stream, last) = (
            self.backstop.stream("ordered").expect("a name"),
            self.trace.last_position(wave),
        );
        if self.status().await.is_none_or(|status| status.records > 0) {
            return false;
        }
        let (mut after, mut through) = (None, 0);
        loop {
            let keys = stream
                .keys(after, KeyFilter::All, 1_000)
                .await
                .expect("the store answers");
            through += keys
                .iter()
                .filter(|key| key.watermark == Some(last))
                .count();
            after = keys.last().map(|key| key.key.clone());
            if after.is_none() {
                return through == self.trace.keys;
            }
        }
    }

    /// What the processes wrote down is in order, with at most so many calls that came again
    /// without a kill, and the store has counted the same. Answers whether a kill met somebody at
    /// work.
    pub(crate) async fn assert_sound(&self, unkilled_max: usize) -> bool {
        let lines = EventLog::read(self.folder.path().join("log")).expect("the log can be read");
        let checked = check(&self.trace, &lines);
        let broken: Vec<String> = checked
            .violations
            .iter()
            .take(20)
            .map(ToString::to_string)
            .collect();
        assert!(
            broken.is_empty(),
            "{} broken: {broken:#?}",
            checked.violations.len()
        );
        assert!(
            checked.unkilled <= unkilled_max,
            "{} calls came again without a kill, by {} lost leases",
            checked.unkilled,
            checked.lost
        );
        let counts = self.status().await.expect("the stream is known").counts;
        let calls: usize = (0..self.trace.waves())
            .map(|wave| self.trace.calls(wave))
            .sum();
        let of = [
            StreamCounter::Late,
            StreamCounter::CircuitBreaker,
            StreamCounter::StoreFailures,
            StreamCounter::Dead,
            StreamCounter::Failures,
        ];
        assert_eq!(of.map(|count| counts[count]), [0; 5], "{counts:?}");
        assert_eq!(
            counts[StreamCounter::Handled] + counts[StreamCounter::Misses],
            calls as u64,
            "each was accepted once"
        );
        assert_eq!(counts.held(), 0);
        println!(
            "{} kills, {} calls cut, {} repeated ({} of them without a kill, by {} lost leases), {} handled, {} missed, {} duplicates",
            self.killed,
            checked.cut,
            checked.repeats,
            checked.unkilled,
            checked.lost,
            counts[StreamCounter::Handled],
            counts[StreamCounter::Misses],
            counts[StreamCounter::Duplicates]
        );
        checked.cut > 0 && checked.repeats > 0
    }

    pub(crate) const fn killed(&self) -> usize {
        self.killed
    }
}

impl Drop for Crew {
    /// A test that failed leaves no processes behind, and what they wrote to be looked at.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            println!("the log is in {}", self.folder.path().display());
            let warnings =
                std::fs::read_to_string(self.folder.path().join("warnings")).unwrap_or_default();
            for warning in warnings.lines().rev().take(WARNINGS_SHOWN) {
                println!("{warning}");
            }
        }
        for member in &mut self.members {
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
    }
}
