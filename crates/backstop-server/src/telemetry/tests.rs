use super::*;
use axum::body::Body;
use axum::http::Request;
use axum::middleware::from_fn;
use backstop::config::{ConfigFile, ConfigOverrides, resolve};
use backstop::testing;
use backstop::{Backstop, RandomSource};
use backstop_core::schedule::InstantOutcome;
use backstop_core::stream::StreamCounter;
use backstop_memory::MemoryStore;
use backstop_testkit::flaky::Flaky;
use http_body_util::BodyExt;
use std::collections::BTreeSet;
use std::path::Path;
use tower::ServiceExt;

fn app(backstop: Backstop, toml: &str) -> App {
    let written = ConfigFile {
        path: "backstop.toml",
        text: toml,
    };
    App::new(
        backstop,
        resolve(
            Some(written),
            ConfigOverrides::default(),
            ConfigOverrides::default(),
        )
        .unwrap(),
        "",
    )
}

fn router(app: &App) -> Router {
    let odd = get(|| async { StatusCode::INTERNAL_SERVER_ERROR });
    let all = routes()
        .route("/v1/jobs/{id}", get(|| async { "a job" }))
        .route("/odd", odd);
    all.layer(from_fn(measure)).with_state(app.clone())
}

async fn ask(router: &Router, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

/// A store that can be switched off, on a clock that stands still.
fn flaky() -> (Arc<Flaky>, App) {
    let clock = testing::start().clock;
    let store = Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1));
    (
        Arc::clone(&store),
        app(Backstop::on(store, clock, RandomSource::seeded(1)), ""),
    )
}

#[tokio::test]
async fn a_scrape_tells_what_is_in_the_store() {
    let test = testing::start();
    let backstop = &test.backstop;
    backstop.draft("mail").push().await.unwrap();
    backstop
        .draft("mail")
        .after(backstop::Span::hours(1))
        .push()
        .await
        .unwrap();
    test.clock.advance(backstop::Span::secs(7));
    let toml = "[schedules.daily]\ncron = \"30 8 * * *\"\nqueue = \"digests\"\n";
    let (status, text) = ask(&router(&app(test.backstop.clone(), toml)), "/metrics").await;
    assert_eq!(status, StatusCode::OK);
    for line in [
        "backstop_store_up 1",
        "backstop_queue_jobs{queue=\"mail\",state=\"ready\"} 1",
        "backstop_queue_jobs{queue=\"mail\",state=\"scheduled\"} 1",
        "backstop_queue_jobs{queue=\"mail\",state=\"dead\"} 0",
        "backstop_queue_jobs_total{queue=\"mail\",event=\"enqueued\"} 2",
        "backstop_queue_oldest_ready_seconds{queue=\"mail\"} 7",
        "backstop_queue_workers{queue=\"mail\"} 0",
        "backstop_dead_letters{queue=\"mail\"} 0",
        "backstop_expired_lease_seconds 0",
        "backstop_recovery_bound_seconds 18",
        "backstop_schedule_unfired{schedule=\"daily\"} 0",
    ] {
        assert!(
            text.lines().any(|told| told == line),
            "{line} is missing:\n{text}"
        );
    }
}

#[tokio::test]
async fn a_queue_has_as_many_workers_as_take_its_jobs() {
    let test = testing::start();
    test.backstop.draft("mail").push().await.unwrap();
    let app = app(test.backstop.clone(), "");
    let (config, attendance) = (app.config(), backstop::http_workers::SeenWorkers::default());
    let remote = test.backstop.http_workers(&config, &attendance);
    let asks = |name: &str| backstop::http_workers::LeaseRequest {
        queues: vec!["mail".parse().unwrap()],
        max: 1,
        worker: backstop_core::WorkerName::new(name),
        lease: None,
        wait: backstop::Span::ZERO,
        about: backstop::workers::WorkerDescription::default(),
    };
    let told = async || {
        let (_, text) = ask(&router(&app), "/metrics").await;
        let line = text
            .lines()
            .find(|line| line.starts_with("backstop_queue_workers"))
            .unwrap()
            .to_owned();
        (
            line,
            text.lines()
                .find(|line| line.starts_with("backstop_workers "))
                .unwrap()
                .to_owned(),
        )
    };
    for name in ["one", "two"] {
        remote.lease(&asks(name)).await.unwrap();
    }
    let order = backstop_core::worker_command::WorkerCommand::Quiet;
    test.backstop
        .changes("ada")
        .command_worker(&asks("one").worker, order)
        .await
        .unwrap()
        .unwrap();
    test.clock.advance(backstop::Span::secs(1));
    let (serving, all) = told().await;
    assert_eq!(
        (serving.as_str(), all.as_str()),
        (
            "backstop_queue_workers{queue=\"mail\"} 1",
            "backstop_workers 2"
        )
    );
}

#[tokio::test]
async fn a_half_open_breaker_counts_as_open_only_while_jobs_wait_behind_it() {
    let test = testing::start();
    let toml = "[queues.mail]\nbreaker = { failure_threshold = 1, recovery_timeout = \"10s\" }\n\
                retry = { kind = \"constant\", every = \"1m\", max_attempts = 1 }\n";
    let is_told = async |value: u8| {
        let (_, text) = ask(&router(&app(test.backstop.clone(), toml)), "/metrics").await;
        let line = format!("backstop_breaker_open{{queue=\"mail\"}} {value}");
        assert!(
            text.lines().any(|told| told == line),
            "{line} is missing:\n{text}"
        );
    };
    test.backstop.draft("mail").push().await.unwrap();
    let (config, attendance) = (
        app(test.backstop.clone(), toml).config(),
        backstop::http_workers::SeenWorkers::default(),
    );
    let remote = test.backstop.http_workers(&config, &attendance);
    let asked = backstop::http_workers::LeaseRequest {
        queues: vec!["mail".parse().unwrap()],
        max: 1,
        worker: backstop_core::WorkerName::new("one"),
        lease: None,
        wait: backstop::Span::ZERO,
        about: backstop::workers::WorkerDescription::default(),
    };
    let handed = remote.lease(&asked).await.unwrap().remove(0);
    let ending = backstop_core::verdict::RunEnding::Failed {
        cause: backstop_core::failure::FailureCause::Failed,
        error: backstop_core::failure::ErrorReport::message("no"),
        advice: backstop_core::verdict::FailureAdvice::Retry,
        progressed: false,
    };
    let ended = backstop::http_workers::SettleRequest {
        job: handed.run.lease.job,
        token: Some(handed.token),
        ending,
    };
    remote.settle(vec![ended]).await.unwrap();
    is_told(1).await;
    test.clock.advance(backstop::Span::secs(11));
    is_told(0).await;
    test.backstop.draft("mail").push().await.unwrap();
    is_told(1).await;
}

#[tokio::test]
async fn instants_that_were_given_up_are_no_longer_told_as_unfired() {
    let test = testing::start();
    let toml = "[schedules.daily]\ncron = \"30 8 * * *\"\nqueue = \"digests\"\nmissed = { policy = \"skip\" }\n";
    let schedules: Vec<_> = app(test.backstop.clone(), toml)
        .config()
        .schedules
        .values()
        .cloned()
        .collect();
    let told = async |line: &str| {
        let (_, text) = ask(&router(&app(test.backstop.clone(), toml)), "/metrics").await;
        assert!(
            text.lines().any(|told| told == line),
            "{line} is missing:\n{text}"
        );
    };
    test.backstop.schedules().look(&schedules).await.unwrap();
    test.clock.advance(backstop::Span::hours(3 * 24));
    told("backstop_schedule_unfired{schedule=\"daily\"} 3").await;
    test.backstop.schedules().look(&schedules).await.unwrap();
    told("backstop_schedule_unfired{schedule=\"daily\"} 0").await;
    let missed = test
        .backstop
        .schedules()
        .missed(&schedules, test.backstop.now())
        .await
        .unwrap();
    assert_eq!(missed.len(), 3, "they are listed all the same");
}

#[tokio::test]
async fn instants_that_were_given_up_are_told_for_an_hour_by_a_process_that_counted_none() {
    // One policy each, and one instant that nobody looks back to; what a pause skips is nobody's
    // loss.
    for (rule, absence, given_up) in [
        (
            "cron = \"30 8 * * *\"\nmissed = { policy = \"skip\" }",
            3,
            3,
        ),
        (
            "cron = \"30 8 * * *\"\nmissed = { policy = \"all\", max = 1 }",
            3,
            2,
        ),
        ("cron = \"30 8 * * *\"\nmissed = { policy = \"one\" }", 3, 0),
        (
            "cron = \"30 8 * * *\"\nmissed = { policy = \"one\", look_back = \"2d\" }",
            12,
            10,
        ),
        (
            "cron = \"30 8 2 * *\"\nmissed = { policy = \"one\", look_back = \"2d\" }",
            20,
            1,
        ),
    ] {
        let test = testing::start();
        let toml = format!("[schedules.daily]\nqueue = \"digests\"\n{rule}\n");
        let schedules: Vec<_> = app(test.backstop.clone(), &toml)
            .config()
            .schedules
            .values()
            .cloned()
            .collect();
        let told = async |count: usize| {
            let (_, text) = ask(&router(&app(test.backstop.clone(), &toml)), "/metrics").await;
            let line = format!("backstop_schedule_given_up{{schedule=\"daily\"}} {count}");
            assert!(
                text.lines().any(|told| told == line),
                "{line} is missing for {rule}:\n{text}"
            );
        };
        test.backstop.schedules().look(&schedules).await.unwrap();
        told(0).await;
        test.clock.advance(backstop::Span::hours(absence * 24));
        test.backstop.schedules().look(&schedules).await.unwrap();
        told(given_up).await;
        test.clock.advance(backstop::Span::minutes(59));
        told(given_up).await;
        test.clock.advance(backstop::Span::minutes(2));
        told(0).await;
    }
}

#[tokio::test]
async fn what_the_doctor_says_is_told_once_it_has_looked_and_never_as_zero_before() {
    let router = router(&app(testing::start().backstop, ""));
    let (_, first) = ask(&router, "/metrics").await;
    assert!(!first.contains("backstop_doctor_"), "{first}");
    let told = tokio::time::timeout(std::time::Duration::from_mins(1), async {
        loop {
            let (_, text) = ask(&router, "/metrics").await;
            if text.contains("backstop_doctor_age_seconds 0\n") {
                return text;
            }
            tokio::task::yield_now().await;
        }
    });
    let text = told.await.unwrap();
    assert!(
        text.contains("backstop_doctor_findings{grade=\"warning\"}"),
        "{text}"
    );
    assert!(
        !text.contains("backstop_doctor_findings{grade=\"bad\"} 0"),
        "a store in memory keeps no promise: {text}"
    );
}

#[tokio::test]
async fn a_store_that_is_down_is_told_so_and_nothing_else_is() {
    let (store, app) = flaky();
    app.backstop().draft("mail").push().await.unwrap();
    store.set_down(true);
    let (status, text) = ask(&router(&app), "/metrics").await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains("backstop_store_up 0\n"), "{text}");
    assert!(!text.contains("backstop_queue_jobs{"), "no zeros: {text}");
    assert!(!text.contains("backstop_workers "), "no zeros: {text}");
}

#[tokio::test]
async fn a_server_is_alive_without_its_store_and_ready_only_with_it() {
    let (store, app) = flaky();
    assert_eq!(ask(&router(&app), "/readyz").await.0, StatusCode::OK);
    store.set_down(true);
    let router = router(&app);
    assert_eq!(
        ask(&router, "/healthz").await,
        (StatusCode::OK, "alive\n".to_owned())
    );
    let (status, words) = ask(&router, "/readyz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(words.contains("backstop doctor"), "{words}");
}

#[tokio::test]
async fn a_store_that_was_not_migrated_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("new.db").display());
    let backstop = Backstop::connect(&url, backstop::Durability::Full)
        .await
        .unwrap();
    assert_eq!(
        ask(&router(&app(backstop, "")), "/readyz").await.0,
        StatusCode::SERVICE_UNAVAILABLE
    );
}

#[tokio::test]
async fn requests_are_counted_by_the_pattern_of_their_route() {
    let router = router(&app(testing::start().backstop, ""));
    for path in ["/v1/jobs/1", "/v1/jobs/2", "/odd", "/no/such/page"] {
        ask(&router, path).await;
    }
    let (_, text) = ask(&router, "/metrics").await;
    let counted = |line: &str| {
        let found = text
            .lines()
            .find_map(|told| told.strip_prefix(line))
            .and_then(|value| value.trim().parse().ok());
        found.unwrap_or(0_u64)
    };
    assert!(
        counted(
            "backstop_http_requests_total{method=\"GET\",route=\"/v1/jobs/{id}\",status=\"200\"}"
        ) >= 2
    );
    assert!(
        counted("backstop_http_requests_total{method=\"GET\",route=\"/odd\",status=\"500\"}") >= 1
    );
    assert!(
        !text.contains("/v1/jobs/1"),
        "an address is no label: {text}"
    );
    assert!(
        !text.contains("/no/such/page"),
        "nor is one that is nowhere: {text}"
    );
    assert!(text.contains(
        "backstop_http_request_seconds_bucket{method=\"GET\",route=\"/v1/jobs/{id}\",le=\"0.0005\"}"
    ));
}

#[test]
fn the_place_of_a_caller_is_read_from_its_header() {
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut headers = axum::http::HeaderMap::new();
    assert_eq!(trace_of(&headers), None);
    headers.insert("traceparent", traceparent.parse().unwrap());
    assert_eq!(
        trace_of(&headers).map(|trace| trace.to_string()).as_deref(),
        Some(traceparent)
    );
    headers.insert("traceparent", "00-nonsense".parse().unwrap());
    assert_eq!(trace_of(&headers), None);
}

/// The names of all metrics: those read from the store, and those that code of ours tells.
pub(crate) fn exported() -> BTreeSet<String> {
    let at = backstop::Time::default();
    let (why, job) = (
        backstop_core::schedule::SkipReason::Policy,
        backstop::JobId::named("a"),
    );
    let words = [
        InstantOutcome::Fired,
        InstantOutcome::Late,
        InstantOutcome::MadeUp,
        InstantOutcome::Triggered(job),
        InstantOutcome::Coalesced(at),
        InstantOutcome::Missed(why),
        InstantOutcome::Skipped(why),
    ]
    .map(InstantOutcome::as_str);
    let mut names: BTreeSet<String> = snapshot::NAMES
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for file in [
        "backstop/src/engine/metrics.rs",
        "backstop/src/idempotence.rs",
        "backstop/src/schedules/metrics.rs",
        "backstop/src/streams/metrics.rs",
        "backstop/src/sweeps/metrics.rs",
        "backstop/src/tables/metrics.rs",
        "backstop-server/src/telemetry/http.rs",
    ] {
        let code = std::fs::read_to_string(crates.join(file)).unwrap();
        let code = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let texts = code.flat_map(|line| line.split('"').skip(1).step_by(2));
        for name in texts.filter(|text| text.starts_with("backstop_")) {
            match name {
                "backstop_schedule_{}_total" => {
                    names.extend(words.map(|word| name.replace("{}", word)));
                }
                "backstop_stream_{}_total" => {
                    names.extend(
                        StreamCounter::ALL
                            .iter()
                            .map(|count| name.replace("{}", count.as_str())),
                    );
                }
                plain => drop(names.insert(plain.to_owned())),
            }
        }
    }
    names
}

/// Whether a metric is read from the store at the scrape.
pub(crate) fn is_of_store(name: &str) -> bool {
    snapshot::NAMES.contains(&name)
}

#[tokio::test]
async fn promtool_finds_nothing_wrong_with_a_scrape() {
    let test = testing::start();
    let router = router(&app(
        test.backstop.clone(),
        "[schedules.daily]\ncron = \"30 8 * * *\"\nqueue = \"digests\"\n",
    ));
    test.backstop.draft("scraped").push().await.unwrap();
    test.backstop
        .worker()
        .handle_raw("scraped", |_| async { Ok(()) })
        .drain()
        .await
        .unwrap();
    ask(&router, "/odd").await;
    let (_, text) = ask(&router, "/metrics").await;
    for family in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = family.split(' ').next().unwrap();
        assert!(
            text.contains(&format!("# HELP {name} ")),
            "{name} has no help"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("scrape"), &text).unwrap();
    let scrape = std::fs::File::open(folder.path().join("scrape")).unwrap();
    let output = backstop_testkit::servers::promtool()
        .args(["check", "metrics"])
        .stdin(scrape)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}\n{text}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn what_a_worker_does_is_told_by_the_names_of_the_tables() {
    let test = testing::start();
    let router = router(&app(test.backstop.clone(), ""));
    test.backstop.draft("told").push().await.unwrap();
    let worker = test
        .backstop
        .worker()
        .handle_raw("told", |_| async { Ok(()) });
    worker.drain().await.unwrap();
    let (_, text) = ask(&router, "/metrics").await;
    for line in [
        "backstop_pushed_total{queue=\"told\",result=\"inserted\"} 1",
        "backstop_runs_total{queue=\"told\",outcome=\"done\"} 1",
        "backstop_run_seconds_count{queue=\"told\"} 1",
        "backstop_start_delay_seconds_bucket{queue=\"told\",le=\"0.1\"} 1",
    ] {
        assert!(
            text.lines().any(|told| told == line),
            "{line} is missing:\n{text}"
        );
    }
}

#[test]
fn every_histogram_that_is_told_has_its_buckets() {
    let exported = exported();
    for (name, _) in recorder::HISTOGRAMS {
        assert!(
            exported.contains(name),
            "{name} has buckets, and nobody tells it"
        );
    }
    let seconds = exported.iter().filter(|name| name.ends_with("_seconds"));
    for name in seconds.filter(|name| !snapshot::NAMES.contains(&name.as_str())) {
        let is_gauge = name == "backstop_oldest_expired_lease_seconds";
        assert!(
            is_gauge || recorder::HISTOGRAMS.iter().any(|(known, _)| known == name),
            "{name} has no buckets"
        );
    }
}
