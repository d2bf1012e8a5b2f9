//! A process that is killed in the middle of its work, and what the next one finds.

use backstop_core::amend::Filter;
use backstop_core::port::{
    AdvanceOutcome, JobStore, KeyAdvance, KeyFilter, KeyLease, KeyLeaseAction, KeySelection,
    ListKeysRequest, OfferOutcome, OperatorStore, SettleOutcome, Store, StreamStore, TakeRequest,
};
use backstop_core::stream::{KeyChange, Record, StoredKey};
use backstop_core::{Job, JobState, LeaseNumber, Payload, Span, StreamKey, StreamName, WorkerName};
use backstop_sqlite::{SqliteOptions, SqliteStore};
use backstop_testkit::given::{self, DONE, START, Scene, job};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

const ROUNDS: usize = 4;
const FILE: &str = "BACKSTOP_CRASH_FILE";
const ROUND: &str = "BACKSTOP_CRASH_ROUND";

async fn open(path: &Path) -> Arc<SqliteStore> {
    let store = SqliteStore::open(path, SqliteOptions::default()).expect("the file opens");
    store.migrate().await.expect("it migrates");
    Arc::new(store)
}

/// What the other test runs as a process of its own, to be killed: works, and tells what was
/// acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn victim() {
    let (Ok(file), Ok(round)) = (std::env::var(FILE), std::env::var(ROUND)) else {
        return;
    };
    let store = open(Path::new(&file)).await;
    let round: u64 = round.parse().expect("a number");
    let producers =
        (0..4).map(|producer| tokio::spawn(produce(Arc::clone(&store), round, producer)));
    let mut producers: Vec<_> = producers.collect();
    producers.push(tokio::spawn(flow(Arc::clone(&store), round)));
    let mut scene = Scene::new(store);
    for _ in 0..round * 1_000_000 {
        scene.draw();
    }
    // Some are left running, as they are when a worker dies.
    for turn in 0_u64.. {
        let runs = scene.claim("q", 20).await;
        let ended = runs.iter().filter(|_| turn % 3 != 0);
        let settled = scene
            .settle_all(ended.clone().map(|run| (&run.lease, DONE)))
            .await;
        assert!(
            settled
                .iter()
                .all(|settled| *settled == SettleOutcome::Applied)
        );
        tell('S', given::names(ended));
    }
    drop(producers);
}

async fn produce(store: Arc<SqliteStore>, round: u64, producer: u64) {
    for turn in 0.. {
        let names: Vec<String> = (0..10)
            .map(|n| format!("{round}-{producer}-{turn}-{n}"))
            .collect();
        let jobs = names.iter().map(|name| job("q", name).into()).collect();
        store.enqueue(jobs, START).await.expect("enqueued");
        tell('E', names);
    }
}

fn stream() -> StreamName {
    StreamName::new("s").expect("a name")
}

/// Offers records and handles most of them; some stay, as they do when a worker dies.
async fn flow(store: Arc<SqliteStore>, round: u64) {
    let name = |position: i64| format!("{}-{position}", position % 7);
    for turn in 0_u64.. {
        let first = (round * 1_000_000 + turn * 10).cast_signed();
        let positions = first..first + 10;
        let record = |position: i64| Record {
            key: StreamKey::new(&(position % 7).to_string()).expect("a key"),
            position,
            step: 7,
            tenant: None,
            payload: Payload::from_stored(b"1".to_vec()),
        };
        let records = positions.clone().map(record).collect();
        let offered = store
            .offer(stream(), records, START)
            .await
            .expect("offered");
        assert!(offered.iter().all(|offered| *offered == OfferOutcome::Held));
        tell('O', positions.map(name).collect());
        if turn % 3 != 0 {
            let number = LeaseNumber::draw(round << 32 | turn);
            let (worker, until) = (WorkerName::new("w"), START.after(Span::secs(30)));
            let take = TakeRequest {
                stream: stream(),
                number,
                worker,
                until,
                wanted: KeySelection::Due(5),
            };
            let taken = store.take(take, START).await.expect("taken");
            let handled = taken.keys.iter().filter_map(|key| handle(number, key));
            let (advances, told): (Vec<_>, Vec<_>) = handled.unzip();
            let advanced = store.advance(advances, START).await.expect("advanced");
            assert!(
                advanced
                    .iter()
                    .all(|advanced| *advanced == AdvanceOutcome::Applied)
            );
            tell('A', told);
        }
    }
}

/// All records of a key are handled.
fn handle(number: LeaseNumber, key: &StoredKey) -> Option<(KeyAdvance, String)> {
    let watermark = key.records.last()?.position;
    let drop = key.records.iter().map(|record| record.position).collect();
    let change = KeyChange {
        watermark: Some(watermark),
        drop,
        ..KeyChange::default()
    };
    let lease = KeyLease {
        stream: stream(),
        key: key.key.clone(),
        number,
    };
    let advance = KeyAdvance {
        lease,
        turn: 1,
        seen: key.arrived,
        change,
        lease_action: KeyLeaseAction::Release(None),
    };
    Some((advance, format!("{}-{watermark}", key.key)))
}

fn tell(what: char, names: Vec<String>) {
    let mut out = std::io::stdout().lock();
    for name in names {
        writeln!(out, "{what} {name}").expect("the parent listens");
    }
}

/// Runs the victim, kills it after some acknowledgements, and returns all that it told.
fn run_and_kill(file: &Path, round: usize) -> Vec<(char, String)> {
    let mut victim = Command::new(std::env::current_exe().expect("this program"))
        .args(["victim", "--exact", "--nocapture"])
        .env(FILE, file)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let (mut told, enough) = (Vec::new(), 500 + round * 700);
    let lines = BufReader::new(victim.stdout.take().expect("its output")).lines();
    for line in lines.map_while(Result::ok) {
        // A last line may be cut in the middle: then it is no acknowledgement.
        if let Some((what, name)) = line
            .split_once(' ')
            .filter(|(what, _)| ["E", "S", "O", "A"].contains(what))
        {
            told.push((what.chars().next().expect("a letter"), name.to_owned()));
        }
        if told.len() == enough {
            victim.kill().expect("killed");
        }
    }
    victim.wait().expect("ended");
    assert!(
        told.len() >= enough,
        "the victim died before it was killed: it told {} things",
        told.len()
    );
    told
}

#[tokio::test]
async fn whatever_was_acknowledged_survives_a_kill() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("store.db");
    let mut told = Vec::new();
    for round in 0..ROUNDS {
        told.extend(run_and_kill(&file, round));
        let store = open(&file).await;
        let jobs = given::list(&*store, &Filter::default(), 1_000, START).await;
        check_told(&told, &jobs);
        check_counts(&store, &jobs).await;
        check_streams(&store, &told).await;
        let sound = store.examine().await.expect("an examination");
        assert!(
            sound
                .findings
                .iter()
                .any(|finding| finding.what == "integrity checked"),
            "{sound:?}"
        );
    }
    let held = seize_all(&file).await;
    assert_eq!(
        held, 0,
        "what was left running can be taken over, and is then not left"
    );
}

fn check_told(told: &[(char, String)], jobs: &[Job]) {
    let names = given::listed(jobs);
    let states: HashMap<&str, JobState> = names
        .iter()
        .map(String::as_str)
        .zip(jobs.iter().map(|job| job.state))
        .collect();
    for (what, name) in told.iter().filter(|(what, _)| matches!(what, 'E' | 'S')) {
        let state = states.get(name.as_str());
        assert!(state.is_some(), "{name} was acknowledged and is lost");
        assert!(
            *what == 'E' || state == Some(&JobState::Done),
            "{name} was settled and is {state:?}"
        );
    }
}

/// What was offered is held or handled, what was handled stays so, and the counts say how much
/// there is.
async fn check_streams(store: &SqliteStore, told: &[(char, String)]) {
    let query = ListKeysRequest {
        stream: stream(),
        after: None,
        filter: KeyFilter::All,
        limit: 100,
    };
    let keys = store.stream_keys(query, START).await.expect("keys");
    let mut found = HashMap::new();
    for key in &keys {
        let held = store
            .stream_key(stream(), key.key.clone())
            .await
            .expect("a key")
            .expect("it is listed");
        found.insert(key.key.to_string(), held);
    }
    for (what, name) in told.iter().filter(|(what, _)| matches!(what, 'O' | 'A')) {
        let (key, position) = name.split_once('-').expect("a key and a position");
        let (key, position) = (&found[key], position.parse::<i64>().expect("a position"));
        let is_handled = key.watermark.is_some_and(|watermark| watermark >= position);
        // Of what is past the window only the count is known.
        let is_held = key.records.iter().any(|record| record.position == position)
            || key
                .records
                .last()
                .is_some_and(|last| last.position < position && key.count > 256);
        assert!(
            is_handled || *what == 'O' && is_held,
            "{what} {name} was acknowledged and is lost"
        );
    }
    if let Some(status) = store.streams().await.expect("streams").pop() {
        let records: Vec<u64> = keys
            .iter()
            .map(|key| key.records)
            .filter(|records| *records > 0)
            .collect();
        let counted = (status.keys, status.holding, status.records);
        assert_eq!(
            counted,
            (
                keys.len() as u64,
                records.len() as u64,
                records.iter().sum()
            )
        );
    }
}

async fn check_counts(store: &SqliteStore, jobs: &[Job]) {
    let status = &store.queues(START).await.expect("queues")[0];
    for state in JobState::ALL {
        let rows = jobs.iter().filter(|job| job.state == state).count();
        assert_eq!(status.counts.of(state), rows as u64, "{state}");
    }
}

/// Takes over and ends everything that was left running; tells how much runs then.
async fn seize_all(file: &Path) -> u64 {
    let mut scene = Scene::new(open(file).await);
    for _ in 0..ROUNDS * 2_000_000 {
        scene.draw();
    }
    scene.pass(Span::hours(1));
    loop {
        let seized = scene.seize("heir").await;
        if seized.is_empty() {
            return scene.queue("q").await.counts.of(JobState::Running);
        }
        scene
            .settle_all(seized.iter().map(|seized| (&seized.run.lease, DONE)))
            .await;
    }
}
