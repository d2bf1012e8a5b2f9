//! A real server on a real store, filled with something of everything.

use backstop::config::{self, Config, ConfigFile, ConfigOverrides};
use backstop::core::amend::{AmendAction, Filter};
use backstop::core::failure::ErrorReport;
use backstop::core::lease::WorkerName;
use backstop::core::stream::Record;
use backstop::core::verdict::FailureAdvice;
use backstop::dead::redrive::RedrivePlan;
use backstop::dead::{DeadFilter, DeadSelection};
use backstop::http_workers::SeenWorkers;
use backstop::rusqlite::Connection;
use backstop::search::JobSearch;
use backstop::workers::WorkerDescription;
use backstop::{
    Backstop, Payload, QueueName, QueueSettings, RetryPolicy, Run, RunError, RunningWorker, Span,
    StoreAddress, StreamKey,
};
use backstop_server::App;
use backstop_server::access::{NewToken, Scope, TokenRegistry};
use backstop_server::bulk::{BulkActions, BulkPlan, BulkTarget};
use backstop_server::serve::{RunningServer, Server};
use serde_json::json;
use std::future::Future;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;

const CONFIG: &str = r#"
[queues.mail]
retry = { kind = "constant", every = "1h", max_attempts = 2 }
breaker = { failure_threshold = 5, recovery_timeout = "1h" }

[streams.uptime]
step = "1m"
steps = ["1h"]
late = "drop"

[streams.halting]
step = "1m"
on_dead = "halt"

[schedules.digest]
cron = "30 8 * * *"
timezone = "Europe/London"
since = "2026-01-01T00:00:00Z"
queue = "digests"
kind = "DailyDigest"
payload = { range = "daily" }

[sweeps.orders]
url = "sqlite:{app}"
query = "SELECT id FROM orders WHERE processed_at IS NULL AND placed_at <= :cutoff"
older_than = "5s"
every = "1h"
queue = "orders"
unique_key = "order:{id}"

[tables.invoices]
url = "sqlite:{app}"
table = "BACKLOG"
max_age = "30d"
"#;

const TABLES: &str = "
CREATE TABLE orders (id TEXT PRIMARY KEY, placed_at TEXT NOT NULL, processed_at TEXT);
CREATE TABLE BACKLOG (ID TEXT PRIMARY KEY, STATUS TEXT NOT NULL, DATE_INSERTED TEXT NOT NULL,
  FAILURES INTEGER NOT NULL DEFAULT 0, LAST_FAILURE TEXT);
INSERT INTO BACKLOG (ID, STATUS, DATE_INSERTED) VALUES ('1', 'NEW', CURRENT_TIMESTAMP), ('2', 'ERROR', CURRENT_TIMESTAMP);
";

/// A row that was lost long ago, and one that is too old to be tried: both are named on a page.
const ROWS: &str = "INSERT INTO orders (id, placed_at) VALUES (?1, '2020-01-01 00:00:00')";
const OLD: &str =
    "INSERT INTO BACKLOG (ID, STATUS, DATE_INSERTED) VALUES (?1, 'ERROR', '2020-01-01 00:00:00')";

/// What stands in a field of every payload whose name says that it is secret.
pub(crate) const SECRET: &str = "hunter2";

/// The queue that grows while a site is busy.
pub(crate) const NEWS: &str = "news";
const NEWS_EVERY: Duration = Duration::from_millis(300);

/// The worker that never ends what it began.
pub(crate) const BUSY: &str = "busy";

/// A server and what it serves.
pub(crate) struct Site {
    /// Where it is, without a slash at the end.
    pub(crate) url: String,
    /// What it serves.
    pub(crate) backstop: Backstop,
    runtime: Runtime,
    serving: Option<RunningServer>,
    _busy: Vec<RunningWorker>,
    _folder: TempDir,
}

impl Site {
    /// With nothing in it.
    pub(crate) fn empty() -> Self {
        Self::start("", &[], "")
    }

    /// With something of everything; texts that users choose are each of `texts`.
    pub(crate) fn filled(texts: &[&str]) -> Self {
        Self::start(CONFIG, texts, "")
    }

    /// One that lets nobody in without a token.
    pub(crate) fn guarded() -> Self {
        Self::start(
            &format!("{CONFIG}\n[server]\norigins = [\"https://jobs.example.org\"]\n"),
            &["plain"],
            "",
        )
    }

    /// One below a path, as behind a proxy that serves other things too.
    pub(crate) fn mounted(base: &str) -> Self {
        Self::start(CONFIG, &["plain"], base)
    }

    /// One whose store does not stand still: there is news for whoever looks, several times a
    /// second.
    pub(crate) fn busy() -> Self {
        let site = Self::filled(&["plain"]);
        let backstop = site.backstop.clone();
        site.runtime.spawn(async move {
            let mut every = tokio::time::interval(NEWS_EVERY);
            loop {
                every.tick().await;
                backstop.draft(NEWS).json(&1).push().await.unwrap();
            }
        });
        site
    }

    fn start(text: &str, texts: &[&str], base: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (backstop, serving, busy) = runtime.block_on(async {
            let (config, backstop) = open(folder.path(), text).await;
            rows(folder.path(), texts);
            if config.server.needs_tokens() {
                // Such a server does not start before there is one.
                let first = NewToken {
                    name: "first".to_owned(),
                    scopes: vec![Scope::Admin],
                    queues: Vec::new(),
                    expires_in: None,
                };
                TokenRegistry::of(&backstop)
                    .create("tests", first)
                    .await
                    .unwrap();
            }
            let busy = fill(&backstop, &config, texts).await;
            bulk(&App::new(backstop.clone(), config.clone(), ""), texts).await;
            (backstop.clone(), serve(&backstop, config, base).await, busy)
        });
        let url = format!("http://{}{base}", serving.address());
        Self {
            url,
            backstop,
            runtime,
            serving: Some(serving),
            _busy: busy,
            _folder: folder,
        }
    }

    /// Waits for something asynchronous.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// The address of a page.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // A browser may hold a connection open for as long as it likes.
        if let Some(serving) = self.serving.take() {
            self.runtime.block_on(async move { serving.force() });
        }
    }
}

async fn open(folder: &Path, text: &str) -> (Config, Backstop) {
    let app = folder.join("app.db");
    Connection::open(&app)
        .unwrap()
        .execute_batch(TABLES)
        .unwrap();
    let text = text.replace("{app}", &app.display().to_string());
    let store = StoreAddress::new(format!("sqlite:{}", folder.join("backstop.db").display()));
    let flags = ConfigOverrides {
        store: Some(store.clone()),
        ..ConfigOverrides::default()
    };
    let written = ConfigFile {
        path: "backstop.toml",
        text: &text,
    };
    let mut config = config::resolve(Some(written), ConfigOverrides::default(), flags).unwrap();
    config.server.listen.set_port(0);
    let backstop = Backstop::open(store.as_written()).await.unwrap();
    (config, backstop)
}

/// Rows of the user's own tables, with a text for a key.
fn rows(folder: &Path, texts: &[&str]) {
    let app = Connection::open(folder.join("app.db")).unwrap();
    for text in texts {
        app.execute(ROWS, [cut(text, 100)]).unwrap();
        app.execute(OLD, [cut(text, 100)]).unwrap();
    }
}

async fn serve(backstop: &Backstop, config: Config, base: &str) -> RunningServer {
    let app = App::new(backstop.clone(), config, base);
    Server::bind(&app).await.unwrap().start()
}

/// Fills the store; answers workers that are to stay.
async fn fill(backstop: &Backstop, config: &Config, texts: &[&str]) -> Vec<RunningWorker> {
    let mut busy = Vec::new();
    for text in texts {
        jobs(backstop, text).await;
        records(
            backstop,
            config,
            ("uptime", 7),
            &[1, 2, 7, 5, 3, 4, 6, 10, 12],
            text,
        )
        .await;
        records(backstop, config, ("halting", 2), &[1, 2, 3], text).await;
        operators(backstop, text).await;
        elsewhere(backstop, config, text).await;
        let stays = backstop
            .worker()
            .name(&format!("{BUSY} {}", cut(text, 100)));
        let stays = stays.handle_raw("slow", |_: Run| std::future::pending());
        backstop
            .draft("slow")
            .kind(cut(text, 100))
            .json(text)
            .push()
            .await
            .unwrap();
        busy.push(stays.start().unwrap());
    }
    if !texts.is_empty() {
        let schedules: Vec<_> = config.schedules.values().cloned().collect();
        backstop.schedules().look(&schedules).await.unwrap();
    }
    busy
}

/// A worker over HTTP: whatever it says of itself is told.
async fn elsewhere(backstop: &Backstop, config: &Config, text: &str) {
    let (said, attendance) = (Some(cut(text, 100).to_owned()), SeenWorkers::default());
    let about = WorkerDescription {
        host: said.clone(),
        version: said,
        ..WorkerDescription::default()
    };
    let name = WorkerName::new(cut(text, 100));
    backstop
        .http_workers(config, &attendance)
        .beat(&name, &about, Vec::new(), None)
        .await
        .unwrap();
}

/// Jobs that are ready, due later, done, failed and dead, with a text wherever one can be.
async fn jobs(backstop: &Backstop, text: &str) {
    let draft = |queue: &str| {
        let payload =
            json!({ "text": text, "nested": { cut(text, 64): [text] }, "password": SECRET });
        backstop.draft(queue).kind(cut(text, 100)).json(&payload)
    };
    draft("mail")
        .unique_key(cut(text, 200))
        .push()
        .await
        .unwrap();
    draft("mail").after(Span::hours(1)).push().await.unwrap();
    for queue in ["done", "dying", "failing"] {
        draft(queue).push().await.unwrap();
        draft(queue).push().await.unwrap();
    }
    let (said, again) = (text.to_owned(), text.to_owned());
    // What failed is to be found waiting for its retry, however slow the machine is.
    let retry =
        RetryPolicy::from_json(br#"{"kind":"constant","every":"1h","max_attempts":3}"#).unwrap();
    let worker = backstop.worker().queue(
        "failing",
        QueueSettings {
            retry,
            ..QueueSettings::default()
        },
    );
    let worker = worker.handle_raw("done", |_: Run| async { Ok(()) });
    let worker = worker.handle_raw("dying", move |_: Run| {
        let report = report(&said);
        async move { Err(RunError::with_advice(report, FailureAdvice::Dead)) }
    });
    let worker = worker.handle_raw("failing", move |_: Run| {
        let report = report(&again);
        async move { Err(RunError::with_advice(report, FailureAdvice::Retry)) }
    });
    worker.drain().await.unwrap();
}

fn report(text: &str) -> ErrorReport {
    ErrorReport {
        message: text.to_owned(),
        error_type: Some(text.to_owned()),
        stack_trace: Some(format!("at {text}\nat {text}")),
        http_status: Some(503),
        response_body: Some(text.to_owned()),
    }
}

/// Records of a key, minute by minute; that of one minute fails for good.
async fn records(
    backstop: &Backstop,
    config: &Config,
    (stream, bad): (&str, i64),
    minutes: &[i64],
    text: &str,
) {
    let settings = config.streams[&stream.parse().unwrap()].settings.clone();
    let said = text.to_owned();
    let handler = move |event: backstop::streams::StreamEvent| {
        let fails = event.position == 60_000 * bad;
        let report = report(&said);
        async move {
            if fails {
                Err(RunError::with_advice(report, FailureAdvice::Dead))
            } else {
                Ok(())
            }
        }
    };
    let running = backstop
        .stream(stream)
        .unwrap()
        .serve(settings, handler)
        .unwrap();
    let record = |minute: i64| Record {
        key: StreamKey::new(cut(text, 200)).unwrap(),
        position: minute * 60_000,
        step: 60_000,
        tenant: Some(cut(text, 60).into()),
        payload: Payload::json(json!({ "text": text }).to_string().into_bytes()).unwrap(),
    };
    for minute in minutes {
        running.handle(vec![record(*minute)]).await.unwrap();
    }
    running.stop().await;
}

/// What operators leave behind: a breaker opened by hand, a redrive, letters that were changed.
async fn operators(backstop: &Backstop, text: &str) {
    backstop
        .breakers()
        .open(&"mail".parse().unwrap(), text)
        .await
        .unwrap();
    let letters = backstop.dead().by(cut(text, 100));
    let queue = QueueName::new("dying").unwrap();
    let filter = DeadFilter {
        queue: Some(queue),
        text: Some(cut(text, 500).to_owned()),
        ..DeadFilter::default()
    };
    let plan = RedrivePlan {
        canary: 1,
        max_failures: 0,
        then_rate: "1/s".parse().unwrap(),
        selection: DeadSelection::Matching(filter),
    };
    let id = letters.redrive(plan).await.unwrap();
    letters
        .run_redrive(&id, |_| ControlFlow::Break(()))
        .await
        .unwrap();
}

/// A bulk action that found nothing to do, for each text: its page shows what was looked for.
async fn bulk(app: &App, texts: &[&str]) {
    for text in texts {
        let Ok(looked_for) = text.chars().take(200).collect::<String>().parse() else {
            continue;
        };
        let filter = Filter {
            queue: Some("done".parse().unwrap()),
            ..Filter::default()
        };
        let search = JobSearch {
            filter,
            text: Some(looked_for),
            worker: None,
        };
        let plan = BulkPlan {
            target: BulkTarget::jobs(&search, &AmendAction::Cancel),
            expected: None,
            back: String::new(),
        };
        let bulk = BulkActions::new(app, cut(text, 100));
        let id = bulk
            .start(plan)
            .await
            .unwrap()
            .expect("room for one after another");
        while bulk
            .report(&id)
            .await
            .unwrap()
            .is_some_and(|report| report.ended_at.is_none())
        {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

/// At most so many bytes of it.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or_default();
    &text[..end]
}
