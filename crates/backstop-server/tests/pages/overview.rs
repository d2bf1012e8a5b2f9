//! The overview: problems first.

use crate::given::{dead, heard, ready, running, until_said};
use crate::site::Site;
use backstop::core::bounds::QueueBounds;
use backstop::core::failure::ErrorReport;
use backstop::{QueueSettings, Span};
use backstop_server::history::{History, HistoryRecorder};

/// Their words, the worst first; that a store in memory is no place for work is told on every page
/// here.
fn problems(page: &str) -> Vec<&str> {
    let kinds = page.split("<span class=\"kind\">").skip(1);
    let kinds = kinds.map(|rest| rest.split("</span>").next().unwrap());
    kinds.filter(|kind| *kind != "doctor").collect()
}

#[tokio::test]
async fn what_the_doctor_finds_is_told_and_charts_follow() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    let page = site.page("/").await;
    assert!(
        page.contains("still being looked at") && !page.contains("kept in memory"),
        "{page}"
    );
    let page = until_said(&site, "/", "kept in memory").await;
    assert!(
        !page.contains("still being looked at") && problems(&page).is_empty(),
        "{page}"
    );
    assert!(!page.contains("The doctor looked"), "{page}");
    site.test.clock.advance(Span::minutes(3));
    let page = site.page("/").await;
    assert!(
        page.contains("The doctor looked at the store <time"),
        "its age is told: {page}"
    );
    for chart in [
        "Jobs a second",
        "Jobs that wait",
        "Wait of the oldest ready job",
        "Dead letters",
    ] {
        assert!(page.contains(chart), "{chart}");
    }
}

#[tokio::test]
async fn runs_that_were_given_up_are_told_for_an_hour_as_their_alert_is() {
    for (rule, days, is_told) in [
        ("missed = { policy = \"skip\" }", 3, true),
        ("missed = { policy = \"all\", max = 1 }", 3, true),
        ("missed = { policy = \"one\" }", 3, false),
        (
            "missed = { policy = \"one\", look_back = \"2d\" }",
            12,
            true,
        ),
    ] {
        let toml =
            format!("[schedules.daily]\ncron = \"30 8 * * *\"\nqueue = \"digests\"\n{rule}\n");
        let site = Site::new(&toml);
        let schedules: Vec<_> = site.app.config().schedules.values().cloned().collect();
        let told = async || problems(&site.page("/").await).contains(&"runs given up");
        site.test
            .backstop
            .schedules()
            .look(&schedules)
            .await
            .unwrap();
        assert!(!told().await, "{rule}");
        site.test.clock.advance(Span::hours(days * 24));
        site.test
            .backstop
            .schedules()
            .look(&schedules)
            .await
            .unwrap();
        assert_eq!(told().await, is_told, "{rule}");
        site.test.clock.advance(Span::minutes(61));
        assert!(!told().await, "{rule}");
    }
}

#[tokio::test]
async fn a_queue_that_nobody_serves_is_stuck() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    site.test.clock.advance(Span::minutes(3));
    let page = site.page("/").await;
    assert_eq!(problems(&page), ["stuck"]);
    assert!(
        page.contains("Nobody serves queue emails, and 1 job is ready.") && page.contains("3 min"),
        "{page}"
    );
    assert!(page.contains("href=\"/queues/emails\""), "{page}");
}

#[tokio::test]
async fn a_queue_whose_workers_take_no_new_jobs_is_stuck_also_where_the_configuration_has_a_handler()
 {
    let site = Site::new("[queues.emails]\nhandler = { exec = [\"true\"] }\n");
    let backstop = &site.test.backstop;
    ready(backstop, "emails", "a").await;
    site.test.clock.advance(Span::minutes(3));
    // It is heard over HTTP, asks for jobs, and is asked to be quiet.
    let (config, attendance) = (
        site.app.config(),
        backstop::http_workers::SeenWorkers::default(),
    );
    let remote = backstop.http_workers(&config, &attendance);
    let worker = backstop::core::WorkerName::new("worker-7");
    heard(backstop, "emails", "worker-7").await;
    remote
        .beat(
            &worker,
            &backstop::workers::WorkerDescription::default(),
            Vec::new(),
            None,
        )
        .await
        .unwrap();
    heard(backstop, "emails", "worker-7").await;
    assert!(problems(&site.page("/").await).is_empty(), "it serves it");
    assert!(!site.page("/queues").await.contains("nobody serves it"));
    backstop
        .changes("ada")
        .command_worker(
            &worker,
            backstop::core::worker_command::WorkerCommand::Quiet,
        )
        .await
        .unwrap()
        .unwrap();
    assert_eq!(problems(&site.page("/").await), ["stuck"]);
    assert!(site.page("/queues").await.contains("nobody serves it"));
}

#[tokio::test]
async fn a_paused_queue_is_told_once_its_jobs_are_late() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    site.test
        .backstop
        .changes("ada")
        .pause(&"emails".parse().unwrap())
        .await
        .unwrap();
    assert!(problems(&site.page("/").await).is_empty());
    site.test.clock.advance(Span::minutes(6));
    assert_eq!(problems(&site.page("/").await), ["paused"]);
}

#[tokio::test]
async fn deaths_of_now_are_told_and_old_ones_are_not() {
    let site = Site::new("");
    for name in ["a", "b"] {
        dead(
            &site.test.backstop,
            "emails",
            name,
            ErrorReport::message("boom"),
        )
        .await;
    }
    let page = site.page("/").await;
    assert_eq!(problems(&page), ["dying"]);
    assert!(
        page.contains("2 letters") && page.contains("href=\"/dead?queue=emails\""),
        "{page}"
    );
    site.test.clock.advance(Span::hours(1));
    assert!(problems(&site.page("/").await).is_empty());
}

#[tokio::test]
async fn a_worker_that_vanished_with_jobs_is_told() {
    let site = Site::new("");
    running(&site.test.backstop, "emails", "a", "worker-7").await;
    heard(&site.test.backstop, "emails", "worker-7").await;
    // Those that began later hide nothing.
    for n in 0..60 {
        running(&site.test.backstop, "emails", &n.to_string(), "worker-8").await;
    }
    site.test.clock.advance(Span::minutes(2));
    heard(&site.test.backstop, "emails", "worker-8").await;
    let page = site.page("/").await;
    assert_eq!(problems(&page), ["deaf worker", "lease over"]);
    assert!(
        page.contains("Worker worker-7 holds 1 job and has not been heard for 2 min"),
        "{page}"
    );
}

#[tokio::test]
async fn a_lease_left_behind_is_told_though_a_worker_of_its_name_beats_now() {
    let site = Site::new("");
    running(&site.test.backstop, "emails", "a", "worker-7").await;
    site.test.clock.advance(QueueSettings::default().lease);
    site.test.clock.advance(Span::secs(90));
    heard(&site.test.backstop, "emails", "worker-7").await;
    let page = site.page("/").await;
    assert_eq!(problems(&page), ["lease over"]);
    assert!(page.contains("under 1 lease;"), "{page}");
}

#[tokio::test]
async fn a_fresh_cause_of_death_is_told_behind_many_large_old_ones() {
    let site = Site::new("");
    for cause in 0..30 {
        for n in 0..2 {
            let error_type = Some(format!("Cause{cause}"));
            let report = ErrorReport {
                error_type,
                ..ErrorReport::message("old")
            };
            dead(
                &site.test.backstop,
                &format!("old-{cause}"),
                &format!("{cause}-{n}"),
                report,
            )
            .await;
        }
    }
    site.test.clock.advance(Span::hours(1));
    dead(
        &site.test.backstop,
        "emails",
        "fresh",
        ErrorReport::message("boom"),
    )
    .await;
    let page = site.page("/").await;
    assert_eq!(problems(&page), ["dying"]);
    assert!(
        page.contains("Jobs of queue emails die, of 1 cause"),
        "{page}"
    );
}

#[tokio::test]
async fn what_keeps_jobs_back_is_told_before_what_is_merely_full() {
    let site = Site::new("");
    let backstop = &site.test.backstop;
    let bounds = QueueBounds {
        max_size: Some(10),
        ..QueueBounds::default()
    };
    backstop
        .store()
        .set_bounds("emails".parse().unwrap(), bounds, backstop.now())
        .await
        .unwrap();
    for n in 0..8 {
        ready(backstop, "emails", &n.to_string()).await;
    }
    backstop
        .changes("ada")
        .open(&"emails".parse().unwrap(), "down")
        .await
        .unwrap();
    backstop
        .changes("ada")
        .open(&"emails/task".parse().unwrap(), "down")
        .await
        .unwrap();
    let page = site.page("/").await;
    assert_eq!(
        problems(&page),
        ["breaker open", "gate shut", "nearly full"]
    );
    assert!(page.contains("80 %"), "{page}");
}

#[tokio::test]
async fn a_missed_schedule_is_told() {
    let site = Site::new(
        "[schedules.nightly]\ncron = \"0 2 * * *\"\nqueue = \"reports\"\nkind = \"nightly\"\n",
    );
    let schedules: Vec<_> = site.app.config().schedules.values().cloned().collect();
    site.test
        .backstop
        .schedules()
        .look(&schedules)
        .await
        .unwrap();
    site.test.clock.advance(Span::days(2));
    let page = site.page("/").await;
    assert!(problems(&page).contains(&"missed schedule"), "{page}");
    assert!(page.contains("href=\"/schedules/nightly\""), "{page}");
}

#[tokio::test]
async fn charts_look_back_as_far_as_the_address_says() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    for window in ["5m", "1h", "24h", "7d"] {
        let page = site.page(&format!("/?window={window}")).await;
        assert!(
            page.contains(&format!("href=\"/?window={window}\" aria-current=\"true\"")),
            "{window}"
        );
    }
    assert_eq!(
        site.get("/?window=2y").await.status,
        axum::http::StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn an_hour_is_shown_by_itself_once_there_is_enough_of_it() {
    let site = Site::new("");
    ready(&site.test.backstop, "emails", "a").await;
    let mut recorder = HistoryRecorder::new(site.test.backstop.clone(), History::default());
    for minute in 1..=12 {
        recorder.take_snapshot().await.unwrap();
        site.test.clock.advance(Span::minutes(1));
        let shown = if minute < 10 { "5m" } else { "1h" };
        let page = site.page("/").await;
        assert!(
            page.contains(&format!("href=\"/?window={shown}\" aria-current=\"true\"")),
            "{minute}"
        );
    }
}

#[tokio::test]
async fn a_stream_that_nobody_serves_is_stuck_once_its_records_wait() {
    let site = Site::new("");
    let record = backstop::streams::Record {
        key: "site-7".parse().unwrap(),
        position: 60_000,
        step: 60_000,
        tenant: None,
        payload: backstop::Payload::default(),
    };
    site.test
        .backstop
        .stream("uptime")
        .unwrap()
        .offer(vec![record])
        .await
        .unwrap();
    assert!(problems(&site.page("/").await).is_empty());
    site.test.clock.advance(Span::minutes(3));
    let page = site.page("/").await;
    assert_eq!(problems(&page), ["stream stuck"]);
    assert!(
        page.contains("Nobody looks at 1 key of stream uptime that is due"),
        "{page}"
    );
    assert!(page.contains("href=\"/streams/uptime\""), "{page}");
}
