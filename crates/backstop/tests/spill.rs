//! Dead letters that the store does not take: kept on the disk, taken in again, once.

use backstop::core::amend::{AmendAction, Selection};
use backstop::core::port::{AmendJobsRequest, OperatorStore};
use backstop::core::{JobState, QueueBounds, QueueName};
use backstop::testing::VirtualClock;
use backstop::{
    Backstop, GivenUpData, JobId, RandomSource, RunError, SpillSettings, SpillStatus, TakeInReport,
};
use backstop_memory::MemoryStore;
use backstop_testkit::flaky::{Fault, Flaky};
use std::fmt::{Debug, Write as _};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tracing::field::{Field, Visit};

struct Setup {
    folder: TempDir,
    store: Arc<MemoryStore>,
    flaky: Arc<Flaky>,
    backstop: Backstop,
}

fn setup() -> Setup {
    setup_with(|settings| settings)
}

fn setup_with(change: impl Fn(SpillSettings) -> SpillSettings) -> Setup {
    let folder = TempDir::new().expect("a folder");
    let store = Arc::new(MemoryStore::new());
    let flaky = Arc::new(Flaky::new(Arc::<MemoryStore>::clone(&store), 1));
    let clock = Arc::new(VirtualClock::start());
    let backstop = Backstop::on(Arc::<Flaky>::clone(&flaky), clock, RandomSource::seeded(7));
    let backstop = backstop.spill_with(change(SpillSettings::at(folder.path().join("spill"))));
    Setup {
        folder,
        store,
        flaky,
        backstop,
    }
}

impl Setup {
    /// The same store and directory as another process would have them.
    fn another(&self) -> Backstop {
        let clock = Arc::new(VirtualClock::start());
        Backstop::on(
            Arc::<Flaky>::clone(&self.flaky),
            clock,
            RandomSource::seeded(8),
        )
        .spill_to(self.directory())
    }

    fn directory(&self) -> PathBuf {
        self.folder.path().join("spill")
    }

    async fn give_up(&self, id: &str) -> GivenUpData {
        give_up(&self.backstop, id).await
    }

    async fn spill(&self, id: &str) -> PathBuf {
        match self.give_up(id).await {
            GivenUpData::Spilled(path) => path,
            other => unreachable!("{other:?}"),
        }
    }

    async fn status(&self) -> SpillStatus {
        self.backstop
            .spill()
            .status()
            .await
            .expect("the disk answers")
    }

    async fn is_dead(&self, id: &str) -> bool {
        let job = self
            .store
            .job(JobId::named(id), self.backstop.now())
            .await
            .expect("the store answers");
        job.is_some_and(|job| job.state == JobState::Dead)
    }

    async fn delete(&self, id: &str) {
        let selection = Selection::Ids(vec![JobId::named(id)]);
        let amendment = AmendJobsRequest {
            selection,
            action: AmendAction::Delete,
            only: None,
            cursor: None,
            max: 1,
        };
        assert_eq!(
            self.store
                .amend(amendment, self.backstop.now())
                .await
                .expect("the store answers")
                .applied,
            1
        );
    }

    /// Dead letters that are there, and that ever came in.
    async fn dead(&self) -> (u64, u64) {
        let queues = self
            .store
            .queues(self.backstop.now())
            .await
            .expect("the store answers");
        queues.first().map_or((0, 0), |queue| {
            (queue.counts.of(JobState::Dead), queue.totals.dead)
        })
    }

    async fn bound(&self, dead_max: u64) {
        let bounds = QueueBounds {
            dead_max,
            ..QueueBounds::default()
        };
        self.store
            .set_bounds(
                QueueName::new("q").expect("a name"),
                bounds,
                self.backstop.now(),
            )
            .await
            .expect("the store answers");
    }

    /// Waits, on virtual time, for what happens by itself.
    async fn records_become(&self, records: usize) {
        for _ in 0..1_000 {
            if self.status().await.records == records {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        unreachable!("never {records}: {:?}", self.status().await);
    }
}

async fn give_up(backstop: &Backstop, id: &str) -> GivenUpData {
    let fails = |_| async { Err::<(), _>(RunError::dead("never")) };
    let retried = backstop
        .with_retry("q", &format!("the data of {id}"))
        .id(id)
        .run(fails)
        .await
        .expect("it runs");
    retried.outcome.expect_err("it fails").data
}

fn taken(records: usize) -> TakeInReport {
    TakeInReport {
        records,
        ..TakeInReport::default()
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path)
        .expect("it is there")
        .permissions()
        .mode()
        & 0o777
}

#[tokio::test(start_paused = true)]
async fn what_a_store_that_is_down_does_not_take_is_taken_in_when_it_is_back() {
    let setup = setup();
    setup.flaky.set_down(true);
    let path = setup.spill("a").await;
    setup.spill("b").await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    let status = setup.status().await;
    assert_eq!(
        (status.records, status.segments, status.set_aside.len()),
        (2, 1, 0)
    );
    assert!(status.oldest.is_some_and(|at| at < setup.backstop.now()) && status.bytes > 0);
    setup.flaky.set_down(false);
    setup.records_become(0).await;
    assert_eq!(setup.dead().await, (2, 2));
    assert!(!path.exists());
    let job = setup
        .store
        .job(JobId::named("a"), setup.backstop.now())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(job.payload.as_bytes(), br#""the data of a""#);
    assert_eq!(job.history.last_error(), "never");
    // It goes on working: the next outage is like the first.
    setup.flaky.set_down(true);
    setup.spill("c").await;
    setup.flaky.set_down(false);
    setup.records_become(0).await;
    assert_eq!(setup.dead().await, (3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_burial_whose_answer_was_lost_is_one_dead_letter() {
    let setup = setup();
    setup.flaky.next_call(Fault::Refused);
    setup.flaky.next_call(Fault::LostReply);
    setup.spill("a").await;
    assert_eq!(setup.dead().await, (1, 1), "it is there, and nobody knows");
    setup.records_become(0).await;
    assert_eq!(setup.dead().await, (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_finds_no_room_is_taken_in_when_there_is_some() {
    let setup = setup();
    setup.bound(1).await;
    assert_eq!(
        setup.give_up("z").await,
        GivenUpData::Buried(JobId::named("z"))
    );
    setup.spill("a").await;
    setup.spill("b").await;
    assert_eq!(
        setup.backstop.spill().take_in().await.unwrap(),
        TakeInReport {
            full: 2,
            ..taken(0)
        }
    );
    setup.delete("z").await;
    setup.records_become(1).await;
    assert!(setup.is_dead("a").await);
    setup.delete("a").await;
    setup.records_become(0).await;
    assert!(
        setup.is_dead("b").await && !setup.is_dead("a").await,
        "what was deleted does not come back"
    );
    assert_eq!(setup.dead().await, (1, 3));
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_the_burial_and_the_removal_does_no_harm() {
    let setup = setup();
    setup.flaky.set_down(true);
    let path = setup.spill("a").await;
    let kept = std::fs::read(&path).unwrap();
    setup.flaky.set_down(false);
    assert_eq!(setup.backstop.spill().take_in().await.unwrap(), taken(1));
    assert!(!path.exists());
    std::fs::write(&path, kept).unwrap();
    let another = setup.another();
    setup.records_become(0).await;
    assert!(!path.exists());
    assert_eq!(setup.dead().await, (1, 1));
    drop(another);
}

#[tokio::test(start_paused = true)]
async fn lines_that_nobody_can_read_are_set_aside_and_hide_nothing() {
    let setup = setup();
    setup.flaky.set_down(true);
    let path = setup.spill("a").await;
    for id in ["b", "c", "d"] {
        assert_eq!(setup.spill(id).await, path);
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // As a crash would leave it: one line changed on the disk, the last one torn.
    let changed = lines[1].replace("the data of b", "the data of x");
    let torn = &lines[3][..lines[3].len() / 2];
    let left = setup.directory().join("left-by-a-crash.ndjson");
    std::fs::write(
        &left,
        format!("{}\n{changed}\n{}\n{torn}", lines[0], lines[2]),
    )
    .unwrap();
    std::fs::remove_file(&path).unwrap();
    setup.flaky.set_down(false);
    let taken_in = setup.another().spill().take_in().await.unwrap();
    assert_eq!(
        taken_in,
        TakeInReport {
            set_aside: 2,
            ..taken(2)
        }
    );
    assert!(setup.is_dead("a").await && setup.is_dead("c").await && !left.exists());
    let bad = left.with_extension("bad");
    assert_eq!(
        std::fs::read_to_string(&bad).unwrap(),
        format!("{changed}\n{torn}\n")
    );
    assert_eq!(mode(&bad), 0o600);
    assert_eq!(setup.status().await.set_aside, [bad]);
}

#[tokio::test(start_paused = true)]
async fn a_full_segment_is_followed_by_another_one() {
    let setup = setup_with(|settings| SpillSettings {
        segment_bytes_max: 2_000,
        ..settings
    });
    setup.flaky.set_down(true);
    let mut paths = Vec::new();
    for n in 0..10 {
        paths.push(setup.spill(&n.to_string()).await);
    }
    paths.dedup();
    assert!(paths.len() > 2, "{paths:?}");
    for path in &paths {
        assert!(std::fs::metadata(path).unwrap().len() <= 2_000, "{path:?}");
    }
    assert_eq!(setup.status().await.records, 10);
    setup.flaky.set_down(false);
    setup.records_become(0).await;
    assert_eq!(setup.dead().await, (10, 10));
}

#[tokio::test(start_paused = true)]
async fn small_segments_do_not_pile_up_while_there_is_no_room() {
    let setup = setup();
    setup.bound(1).await;
    setup.give_up("z").await;
    for n in 0..40 {
        setup.spill(&n.to_string()).await;
        setup.backstop.spill().take_in().await.unwrap();
    }
    let status = setup.status().await;
    assert!(status.records == 40 && status.segments < 12, "{status:?}");
    setup.bound(100).await;
    setup.records_become(0).await;
    assert_eq!(setup.dead().await, (41, 41));
}

#[tokio::test(start_paused = true)]
async fn over_the_bound_of_the_directory_the_record_is_in_the_log() {
    let log = Log::default();
    let _listening = tracing::subscriber::set_default(log.clone());
    let setup = setup_with(|settings| SpillSettings {
        total_bytes_max: 2_000,
        ..settings
    });
    setup.flaky.set_down(true);
    let (mut spilled, mut lost) = (0, Vec::new());
    for n in 0..6 {
        match setup.give_up(&n.to_string()).await {
            GivenUpData::Spilled(_) => spilled += 1,
            GivenUpData::Lost => lost.push(n.to_string()),
            other => unreachable!("{other:?}"),
        }
    }
    assert!(spilled > 0 && lost.len() > 1, "{spilled}, {lost:?}");
    assert!(setup.status().await.bytes <= 2_000);
    let losses = log.lines("CRITICAL DATA LOSS");
    assert_eq!(losses.len(), lost.len());
    assert!(
        losses[0].starts_with("ERROR CRITICAL DATA LOSS") && losses[0].contains("data_loss=true"),
        "{}",
        losses[0]
    );
    // The line says what to do with it.
    let records: Vec<&str> = losses
        .iter()
        .filter_map(|line| line.split("lost_record=").nth(1))
        .collect();
    std::fs::write(
        setup.directory().join("found-in-the-log.ndjson"),
        records.join("\n"),
    )
    .unwrap();
    setup.flaky.set_down(false);
    setup.backstop.spill().take_in().await.unwrap();
    assert_eq!(setup.dead().await, (6, 6));
}

#[tokio::test(start_paused = true)]
async fn without_a_disk_the_record_is_in_the_log() {
    let log = Log::default();
    let _listening = tracing::subscriber::set_default(log.clone());
    let setup = setup_with(|settings| {
        let file = settings.directory.with_extension("file");
        std::fs::write(&file, "not a directory").unwrap();
        SpillSettings {
            directory: file.join("spill"),
            ..settings
        }
    });
    setup.flaky.set_down(true);
    assert_eq!(setup.give_up("a").await, GivenUpData::Lost);
    assert!(log.lines("CRITICAL DATA LOSS")[0].contains("the data of a"));
}

#[tokio::test(start_paused = true)]
async fn only_its_owner_can_look_into_a_segment() {
    let setup = setup();
    setup.flaky.set_down(true);
    let path = setup.spill("a").await;
    assert_eq!((mode(&path), mode(&setup.directory())), (0o600, 0o700));
}

#[tokio::test(start_paused = true)]
async fn a_live_process_keeps_its_segments_and_a_dead_one_leaves_them() {
    let setup = setup();
    setup.flaky.set_down(true);
    let path = setup.spill("a").await;
    let clock = Arc::new(VirtualClock::start());
    let another = Backstop::on(
        Arc::<MemoryStore>::clone(&setup.store),
        clock,
        RandomSource::seeded(8),
    );
    let another = another.spill_to(setup.directory());
    assert_eq!(
        another.spill().take_in().await.unwrap(),
        taken(0),
        "its store is up, and still they are not its own"
    );
    assert!(path.exists());
    let Setup {
        folder: _folder,
        backstop,
        store,
        ..
    } = setup;
    let now = backstop.now();
    drop(backstop);
    // By itself, or because it is asked to: whichever comes first.
    while path.exists() {
        another.spill().take_in().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(store.job(JobId::named("a"), now).await.unwrap().is_some());
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn what_was_spilled_beside_a_file_is_taken_in_when_it_is_opened() {
    let setup = setup();
    let file = setup.folder.path().join("jobs.db");
    setup.flaky.set_down(true);
    let before = setup
        .backstop
        .clone()
        .spill_to(setup.folder.path().join("jobs.db-spill"));
    assert!(matches!(
        give_up(&before, "a").await,
        GivenUpData::Spilled(_)
    ));
    drop(before);
    let backstop = Backstop::open(&format!("sqlite:{}", file.display()))
        .await
        .unwrap();
    let taken_in = async {
        while backstop.job(JobId::named("a")).await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), taken_in)
        .await
        .unwrap();
    assert_eq!(
        backstop
            .job(JobId::named("a"))
            .await
            .unwrap()
            .unwrap()
            .state,
        JobState::Dead
    );
}

/// The environment's word for the directory of the process that is to be killed.
const VICTIM: &str = "BACKSTOP_TEST_SPILL_VICTIM";

#[tokio::test]
#[ignore = "is run, and killed, by the test below"]
async fn a_process_that_spills_until_it_is_killed() {
    let Ok(directory) = std::env::var(VICTIM) else {
        return;
    };
    let flaky = Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1));
    flaky.set_down(true);
    let backstop = Backstop::on(
        flaky,
        Arc::new(VirtualClock::start()),
        RandomSource::from_system(),
    );
    let settings = SpillSettings {
        segment_bytes_max: 10_000,
        ..SpillSettings::at(directory)
    };
    let backstop = backstop.spill_with(settings);
    for n in 0.. {
        let id = format!("victim-{n}");
        assert!(matches!(
            give_up(&backstop, &id).await,
            GivenUpData::Spilled(_)
        ));
        println!("spilled {id}");
    }
}

#[tokio::test]
async fn what_a_killed_process_spilled_is_taken_in_by_the_next_one() {
    let setup = setup();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_process_that_spills_until_it_is_killed",
            "--ignored",
            "--nocapture",
        ])
        .env(VICTIM, setup.directory())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    // The first line may follow the test's own name.
    let mut told = lines.filter_map(|line| line.split("spilled ").nth(1).map(str::to_owned));
    let mut spilled: Vec<String> = told.by_ref().take(50).collect();
    assert_eq!(spilled.len(), 50, "the process spills");
    let while_it_lives = setup.backstop.spill().take_in().await.unwrap();
    victim.kill().unwrap();
    victim.wait().unwrap();
    spilled.extend(told);
    assert_eq!(while_it_lives, taken(0), "its segments are its own");
    let another = setup.another();
    // One round holds so many segments and no more.
    while setup.status().await.records > 0 {
        another.spill().take_in().await.unwrap();
    }
    for id in &spilled {
        assert!(setup.is_dead(id).await, "{id} was acknowledged");
    }
    let (dead, ever) = setup.dead().await;
    assert!(
        dead == ever && dead >= spilled.len() as u64,
        "{dead} of {ever}, {} acknowledged",
        spilled.len()
    );
}

/// Remembers what is logged: level, message and fields.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn lines(&self, part: &str) -> Vec<String> {
        self.0
            .lock()
            .expect("nobody panicked")
            .iter()
            .filter(|line| line.contains(part))
            .cloned()
            .collect()
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let line = format!(
            "{} {}{}",
            event.metadata().level(),
            fields.message,
            fields.others
        );
        self.0.lock().expect("nobody panicked").push(line);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            write!(self.others, " {}={value:?}", field.name()).expect("text takes text");
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        write!(self.others, " {}={value}", field.name()).expect("text takes text");
    }
}
