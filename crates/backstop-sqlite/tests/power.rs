//! An fsync fails, the disk is full, the process is killed, and in the end the power is cut:
//! whatever was acknowledged as durable is found again; with relaxed durability only the newest of
//! it may be missing. `tests/power/disk.c` is the disk.
//!
//! `BACKSTOP_CUTS=1000` runs as many seeds; a failure prints its seed, and `BACKSTOP_CUT=SEED` runs
//! that one again.

#![cfg(target_os = "linux")]

use backstop_core::amend::Filter;
use backstop_core::plan::QueueQuota;
use backstop_core::port::{BeatRequest, Claim, JobStore, OperatorStore, SettleOutcome, Store};
use backstop_core::verdict::Settlement;
use backstop_core::{Job, JobState, LeaseNumber, Span, WorkerName};
use backstop_sqlite::{SqliteDurability, SqliteOptions, SqliteStore};
use backstop_testkit::given::{self, DONE, START, job};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

const SEEDS: u64 = 50;
/// How a victim ends: killed, or by the power cut. The disk says so.
const KILLED: i32 = 76;
const CUT: i32 = 77;
const DIR: &str = "POWER_DIR";
const SEED: &str = "POWER_SEED";
const RELAXED: &str = "POWER_RELAXED";
const LOG_PAGES: &str = "POWER_LOG_PAGES";
const TURNS_MAX: u64 = 3_000;

/// With a log that is folded all the time, or never.
fn options() -> SqliteOptions {
    let log_pages = std::env::var(LOG_PAGES).map_or(40, |pages| pages.parse().expect("a number"));
    let durability = if std::env::var(RELAXED).is_ok() {
        SqliteDurability::Relaxed
    } else {
        SqliteDurability::Full
    };
    SqliteOptions {
        durability,
        log_pages,
        ..SqliteOptions::default()
    }
}

/// What the other test runs as a process of its own, on the disk that fails: durable commits with
/// light ones between them. It tells what was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victim() {
    let (Ok(dir), Ok(seed)) = (std::env::var(DIR), std::env::var(SEED)) else {
        return;
    };
    let seed: u64 = seed.parse().expect("a number");
    let Some(store) = open(&Path::new(&dir).join("store.db")).await else {
        return;
    };
    let life = u64::from(std::env::var("POWER_KILL_AT").is_err());
    let mut draws = Draws(seed << 1 | life);
    for turn in 0..TURNS_MAX {
        let refused = match draws.below(4) {
            0 => !work_on_some(&store, &mut draws).await,
            1 => store.queues(START).await.is_err(),
            _ => !push_some(&store, &format!("{life}-{turn}"), &mut draws).await,
        };
        if refused {
            tell("refused", &turn.to_string());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// The disk may fail as the file is opened, too.
async fn open(path: &Path) -> Option<SqliteStore> {
    for _ in 0..100 {
        if let Ok(store) = SqliteStore::open(path, options())
            && store.migrate().await.is_ok()
        {
            return Some(store);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

async fn push_some(store: &SqliteStore, turn: &str, draws: &mut Draws) -> bool {
    let names: Vec<String> = (0..=draws.below(3))
        .map(|n| format!("{turn}-{n}"))
        .collect();
    let payload = format!("\"{}\"", "x".repeat(draws.below(6_000) as usize));
    let made = |name: &String| job("q", name).payload(payload.clone()).into();
    let pushed = store.enqueue(names.iter().map(made).collect(), START).await;
    if pushed.is_ok() {
        for name in &names {
            tell("pushed", &given::id(name).to_string());
        }
    }
    pushed.is_ok()
}

/// Claims and beats, which are light, and ends most of the runs, which is durable.
async fn work_on_some(store: &SqliteStore, draws: &mut Draws) -> bool {
    let number = LeaseNumber::draw(draws.next());
    let want = QueueQuota {
        queue: given::queue("q"),
        max: 3,
    };
    let until = START.after(Span::secs(30));
    let claim = Claim {
        worker: WorkerName::new("w"),
        number,
        wants: vec![want],
        until,
    };
    let Ok(claimed) = store.claim(claim, START).await else {
        return false;
    };
    let leases: Vec<_> = claimed.runs.iter().map(|run| run.lease.clone()).collect();
    for _ in 0..draws.below(4) {
        let beat = BeatRequest {
            worker: WorkerName::new("w"),
            queues: Vec::new(),
            leases: leases.clone(),
            until,
        };
        if store.beat(beat, START).await.is_err() {
            return false;
        }
    }
    let ends = leases.iter().skip(1).map(|lease| Settlement {
        lease: lease.clone(),
        outcome: DONE,
    });
    let Ok(settled) = store.settle(ends.collect(), START).await else {
        return false;
    };
    for (run, settled) in claimed.runs.iter().skip(1).zip(settled) {
        if settled == SettleOutcome::Applied {
            tell("settled", &run.lease.job.to_string());
        }
    }
    true
}

#[expect(clippy::print_stdout, reason = "the parent reads this")]
fn tell(what: &str, name: &str) {
    println!("{what} {name}");
}

/// Numbers that look random, the same for each seed.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Builds the disk with the C compiler that the project needs anyway.
fn build_disk(dir: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/power/disk.c");
    let library = dir.join("disk.so");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let built = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .args(["-ldl", "-lpthread"])
        .status()
        .expect("a C compiler");
    assert!(built.success(), "the disk does not compile");
    library
}

/// What became of one seed, or of all.
#[derive(Default)]
struct Figures {
    acknowledged: usize,
    refused: usize,
    /// Acknowledged, and not found after the power cut.
    lost: Vec<String>,
    /// What must not be: a hole among those found, or a damaged file.
    faults: Vec<String>,
}

#[tokio::test]
async fn what_was_acknowledged_survives_failed_fsyncs_and_a_power_cut() {
    let all = campaign(SqliteDurability::Full).await;
    assert!(all.lost.is_empty(), "lost: {:?}", first(&all.lost));
    assert!(all.refused > 0, "no fsync failed: the disk is not in use");
}

/// Fsyncs do not fail here: what a failed one takes with it, nobody has promised then.
#[tokio::test]
async fn with_relaxed_durability_a_power_cut_takes_only_the_newest() {
    let all = campaign(SqliteDurability::Relaxed).await;
    assert!(!all.lost.is_empty(), "every commit waited for the disk");
}

async fn campaign(durability: SqliteDurability) -> Figures {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = build_disk(dir.path());
    let empty = dir.path().join("empty.db");
    drop(open(&empty).await.expect("it opens"));
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse().expect("a number"))
    };
    let seeds = match number("BACKSTOP_CUT") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BACKSTOP_CUTS").unwrap_or(SEEDS),
    };
    let mut all = Figures::default();
    for seed in seeds {
        let figures = run(seed, durability, dir.path(), &disk, &empty).await;
        all.acknowledged += figures.acknowledged;
        all.refused += usize::from(figures.refused > 0);
        let of_seed = |text| format!("seed {seed}: {text}");
        all.lost.extend(figures.lost.into_iter().map(of_seed));
        all.faults.extend(figures.faults.into_iter().map(of_seed));
    }
    report(&format!(
        "{durability:?}: {} acknowledged, {} lost; {} seeds refused something",
        all.acknowledged,
        all.lost.len(),
        all.refused
    ));
    assert!(all.faults.is_empty(), "{:?}", first(&all.faults));
    all
}

fn first(texts: &[String]) -> &[String] {
    &texts[..texts.len().min(5)]
}

#[expect(clippy::print_stdout, reason = "the figures of a campaign")]
fn report(figures: &str) {
    println!("{figures}");
}

/// One seed: what fails when is drawn from it.
async fn run(
    seed: u64,
    durability: SqliteDurability,
    dir: &Path,
    disk: &Path,
    empty: &Path,
) -> Figures {
    let place = dir.join(seed.to_string());
    for folder in ["cut", "state"] {
        std::fs::create_dir_all(place.join(folder)).expect("a directory");
    }
    std::fs::copy(empty, place.join("store.db")).expect("a copy");
    let mut draws = Draws(seed);
    let mut told = Vec::new();
    let mut live = |draws: &mut Draws, end| {
        let mut victim = victim_of(seed, &place, disk);
        if durability == SqliteDurability::Relaxed {
            victim.env(RELAXED, "1");
        }
        live(victim, durability, draws, end, &mut told)
    };
    if draws.below(3) == 0 {
        let killed = live(&mut draws, "POWER_KILL_AT");
        assert!(
            matches!(killed.code(), Some(KILLED)),
            "seed {seed}: {killed}"
        );
    }
    let cut = live(&mut draws, "POWER_CUT_AT");
    assert!(matches!(cut.code(), Some(CUT)), "seed {seed}: {cut}");
    let figures = check(&place.join("cut/store.db"), &told).await;
    std::fs::remove_dir_all(&place).expect("removed");
    figures
}

fn victim_of(seed: u64, place: &Path, disk: &Path) -> Command {
    let mut victim = Command::new(std::env::current_exe().expect("this program"));
    victim
        .args(["victim", "--exact", "--nocapture"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    victim
        .env(DIR, place)
        .env(SEED, seed.to_string())
        .env("LD_PRELOAD", disk);
    victim
}

/// One life of the victim; adds what it told.
fn live(
    mut victim: Command,
    durability: SqliteDurability,
    draws: &mut Draws,
    end: &str,
    told: &mut Vec<(String, String)>,
) -> ExitStatus {
    let mut set = |name: &str, value: u64| {
        victim.env(name, value.to_string());
    };
    set(end, 40 + draws.below(900));
    set(LOG_PAGES, [40, 16_000][draws.below(2) as usize]);
    let faults = match durability {
        SqliteDurability::Full => 8,
        SqliteDurability::Relaxed => 2,
    };
    match draws.below(faults) {
        // Nothing fails but the power.
        0 => {}
        1 => {
            set("POWER_FULL_AT", 1 + draws.below(300));
            set("POWER_FULL_COUNT", 1 + draws.below(20));
        }
        _ => {
            set("POWER_FAIL_AT", 1 + draws.below(40));
            set("POWER_FAIL_COUNT", [1, 1, 1, 2, 3][draws.below(5) as usize]);
            set("POWER_ERRNO", [5, 28][draws.below(2) as usize]);
            set("POWER_EVICT", draws.below(2));
        }
    }
    let output = victim.output().expect("a process");
    // A last line may be cut in the middle: then it is no acknowledgement.
    let text = String::from_utf8_lossy(&output.stdout);
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let words = whole.lines().filter_map(|line| line.split_once(' '));
    let words = words.filter(|(what, _)| ["pushed", "settled", "refused"].contains(what));
    told.extend(words.map(|(what, name)| (what.to_owned(), name.to_owned())));
    output.status
}

/// What of it is in the file after the power cut.
async fn check(file: &Path, told: &[(String, String)]) -> Figures {
    let store = SqliteStore::open(file, options()).expect("the file opens");
    store.migrate().await.expect("it migrates");
    let jobs = given::list(&store, &Filter::default(), 1_000, START).await;
    let found: HashMap<String, &Job> = jobs.iter().map(|job| (job.id.to_string(), job)).collect();
    let mut figures = Figures::default();
    for (what, name) in told {
        let job = found.get(name.as_str());
        let is_kept = match what.as_str() {
            "pushed" => job.is_some(),
            "settled" => job.is_some_and(|job| job.state == JobState::Done),
            _ => {
                figures.refused += 1;
                continue;
            }
        };
        figures.acknowledged += 1;
        if !is_kept {
            figures.lost.push(format!("{what} {name}"));
        } else if let Some(lost) = figures.lost.first() {
            let hole = format!("{what} {name} is there, but not {lost}, which came before");
            figures.faults.push(hole);
        }
    }
    let sound = store.examine().await.expect("an examination");
    if !sound
        .findings
        .iter()
        .any(|finding| finding.what == "integrity checked")
    {
        figures
            .faults
            .push(format!("the file is damaged: {sound:?}"));
    }
    figures
}
