//! Plays a world to worker processes, in its own time at a multiple of its speed, and gathers what
//! they say.

mod deal;
mod message;
mod pool;
pub mod worker;

use crate::clock::Clock;
use crate::consumer::Counts;
pub use crate::generate::SLACK_MS;
use crate::limits::{BROKEN_SHOWN_MAX, FINISH_MAX, SILENCE_MAX, WORKERS_MAX};
use crate::memory::{Durability, KeptLine, Memory};
use crate::mode::{Mode, Setup};
use crate::sequencer::Hold;
use crate::world::{DIRECTORY_FILE, Seen, World};
use anyhow::{Context, Result, bail, ensure};
use deal::Dealer;
pub use deal::Dealing;
use message::Answer;
pub use pool::STORE_VARIABLE;
use pool::{Pool, Told};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file of the store, if a run has one of its own.
const STORE_FILE: &str = "stream.db";

/// How long before the world workers are started, so that they are there when it begins.
const HEAD_START: Duration = Duration::from_millis(500);

/// How a world is played.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program whose `worker` command is started; this one, for most.
    pub program: PathBuf,
    /// How results are put in order.
    pub mode: Mode,
    /// The store that the stream is in; a file in the folder of the run if none is named.
    pub store: Option<String>,
    /// Worker processes.
    pub workers: usize,
    /// How many seconds of the world pass in one.
    pub speed: f64,
    /// Which worker gets what.
    pub dealing: Dealing,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Ran {
    /// How many results came to what end before they were put in order.
    pub counts: Counts,
    /// The first of those that were broken, in words.
    pub broken: Vec<String>,
    /// What the hold went through, if there is one.
    pub hold: Option<Hold>,
    /// The lines that went on, in order.
    pub lines: Vec<KeptLine>,
    /// The longest that a result was on its way from its arrival to a worker's answer, in the
    /// world's time. Beyond [`SLACK_MS`] what was missed may be the machine's doing.
    pub behind_ms: i64,
    /// How long it took.
    pub took: Duration,
}

/// Plays a world, with everything that outlives a process in a folder. `progress` hears how many
/// results were taken.
pub fn play(
    world: &World,
    seen: &[Option<Seen>],
    options: &Options,
    folder: &Path,
    progress: &dyn Fn(usize),
) -> Result<Ran> {
    ensure!(
        (1..=WORKERS_MAX).contains(&options.workers),
        "1 to {WORKERS_MAX} workers, please"
    );
    ensure!(
        options.speed.is_finite() && options.speed > 0.0,
        "a speed is a number above 0"
    );
    world.write(folder)?;
    let mut setup = setup(world, options, folder);
    let mut memory = setup.memory()?;
    ensure!(
        memory.lines(0)?.is_empty(),
        "{} is of an earlier run; name a new folder",
        setup.memory.display()
    );
    setup.prepare()?;
    setup.clock = Clock::starting(world.truth.starts_at_ms, options.speed).ahead(HEAD_START);
    let began = Instant::now();
    let mut conductor = Conductor {
        world,
        seen,
        clock: setup.clock,
        pool: Pool::start(&options.program, &setup, options.workers)?,
        dealer: Dealer::new(options.dealing, options.workers),
        next: 0,
        oldest: HashMap::new(),
        ran: Ran {
            counts: Counts::default(),
            broken: Vec::new(),
            hold: None,
            lines: Vec::new(),
            behind_ms: 0,
            took: Duration::ZERO,
        },
    };
    conductor.conduct(progress)?;
    let Conductor { mut ran, pool, .. } = conductor;
    ran.hold = pool.finish(FINISH_MAX)?;
    ran.took = began.elapsed();
    ran.lines = all_lines(&mut *memory)?;
    Ok(ran)
}

fn setup(world: &World, options: &Options, folder: &Path) -> Setup {
    let clock = Clock::starting(world.truth.starts_at_ms, options.speed);
    let own = || format!("sqlite:{}", folder.join(STORE_FILE).display());
    Setup {
        mode: options.mode,
        directory: folder.join(DIRECTORY_FILE),
        memory: folder.join(format!("{}.db", options.mode)),
        store: options.store.clone().unwrap_or_else(own),
        // A store may have seen other runs, and each begins anew.
        stream: format!("uptime-{}", clock.began_unix_us()),
        // A run ends with its folder; what it measures is order, not disks.
        durability: Durability::Relaxed,
        clock,
    }
}

struct Conductor<'a> {
    world: &'a World,
    seen: &'a [Option<Seen>],
    clock: Clock,
    pool: Pool,
    dealer: Dealer,
    /// The first arrival that no worker has.
    next: usize,
    /// When the first arrival of each batch that is with a worker came.
    oldest: HashMap<u64, i64>,
    ran: Ran,
}

impl Conductor<'_> {
    fn conduct(&mut self, progress: &dyn Fn(usize)) -> Result<()> {
        while self.next < self.world.trace.len() || !self.dealer.is_idle() {
            let now_ms = self.clock.now_ms();
            let waiting = &self.world.trace[self.next..];
            let due = waiting.partition_point(|arrival| arrival.at_ms <= now_ms);
            let dealt = self.deal(due)?;
            if dealt == 0 || dealt == due {
                self.listen(dealt < due)?;
            }
            let taken = usize::try_from(self.ran.counts.received).unwrap_or(usize::MAX);
            progress(taken);
        }
        Ok(())
    }

    /// Gives out what is due, as far as workers have room, and says how much that was.
    fn deal(&mut self, due: usize) -> Result<usize> {
        let keys = self.seen[self.next..self.next + due]
            .iter()
            .map(|seen| seen.map(|seen| seen.slot.key));
        let dealt = self.dealer.deal(keys);
        for batch in &dealt.batches {
            let arrivals = batch
                .places
                .iter()
                .map(|place| &self.world.trace[self.next + place]);
            self.pool.send(batch.worker, batch.number, arrivals)?;
            let first = batch
                .places
                .first()
                .map(|place| self.world.trace[self.next + place].at_ms);
            self.oldest.extend(first.map(|at_ms| (batch.number, at_ms)));
        }
        self.next += dealt.taken;
        Ok(dealt.taken)
    }

    /// Hears one answer, or waits until something is due.
    fn listen(&mut self, is_full: bool) -> Result<()> {
        let until_due = self
            .world
            .trace
            .get(self.next)
            .map(|arrival| self.clock.until(arrival.at_ms));
        let patience = if is_full {
            SILENCE_MAX
        } else {
            until_due.unwrap_or(SILENCE_MAX)
        };
        match self.pool.hear(patience.min(SILENCE_MAX)) {
            Some(Told {
                worker,
                answer:
                    Some(Answer::Taken {
                        batch,
                        counts,
                        broken,
                    }),
            }) => {
                self.dealer.done(worker, batch);
                let arrived_ms = self.oldest.remove(&batch);
                let behind_ms = arrived_ms.map_or(0, |at_ms| self.clock.now_ms() - at_ms);
                self.ran.behind_ms = self.ran.behind_ms.max(behind_ms);
                self.ran.counts.add(counts);
                let room = BROKEN_SHOWN_MAX.saturating_sub(self.ran.broken.len());
                self.ran.broken.extend(broken.into_iter().take(room));
                Ok(())
            }
            Some(Told { worker, .. }) => {
                bail!("worker {worker} ended before its time; see above for its reason")
            }
            None if patience >= SILENCE_MAX && !self.dealer.is_idle() => {
                bail!("no worker has answered for {SILENCE_MAX:?}")
            }
            None => Ok(()),
        }
    }
}

fn all_lines(memory: &mut dyn Memory) -> Result<Vec<KeptLine>> {
    let mut lines: Vec<KeptLine> = Vec::new();
    loop {
        let page = memory
            .lines(lines.last().map_or(0, |line| line.seq))
            .context("the lines of a run")?;
        if page.is_empty() {
            return Ok(lines);
        }
        lines.extend(page);
    }
}
