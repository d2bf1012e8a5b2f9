//! Settings of the server: refused, or told.

use crate::place::{Place, open};
use crate::user;
use backstop_core::Outcome;
use backstop_core::amend::Filter;
use backstop_core::port::{
    ExaminationReport, FindingSeverity, JobStore, SettleOutcome, Store, StoreError,
};
use backstop_core::verdict::{DoneRetention, Settlement};
use backstop_testkit::given::{DONE, START, Scene, job};
use backstop_testkit::servers::redis::{Append, Settings};
use backstop_testkit::servers::{self, Redis};
use std::time::Duration;

fn with(append: Append, options: &[(&'static str, &str)]) -> Redis {
    let options = options
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()))
        .collect();
    Redis::start(Settings { append, options })
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_until_it_does_not() {
    let server = with(Append::Off, &[("maxmemory-policy", "allkeys-lru")]);
    let store = open(&server.fresh_url());
    let refused = store.migrate().await;
    assert!(
        matches!(&refused, Err(StoreError::Misuse { cause, .. }) if cause.contains("noeviction")),
        "{refused:?}"
    );
    let refused = store.enqueue(vec![job("q", "a").into()], START).await;
    assert!(
        matches!(&refused, Err(StoreError::Misuse { cause, .. }) if cause.contains("allkeys-lru")),
        "{refused:?}"
    );
    server.cli(&["config", "set", "maxmemory-policy", "noeviction"]);
    store.migrate().await.expect("nothing stands against it");
    store
        .enqueue(vec![job("q", "a").into()], START)
        .await
        .expect("the job goes in");
}

#[tokio::test]
async fn scripts_the_server_forgot_are_loaded_again() {
    let server = with(Append::Off, &[]);
    let place = Place::on(&server).await;
    let mut scene = place.scene();
    scene.insert([job("q", "a"), job("q", "b")]).await;
    let forget = || server.cli(&["script", "flush"]);
    forget();
    let run = scene.claim_one("q").await;
    forget();
    assert_eq!(scene.begin(std::slice::from_ref(&run.lease)).await, []);
    forget();
    scene.settle(&run.lease, DONE).await;
    forget();
    assert_eq!(scene.promote().await, 0);
    forget();
    assert_eq!(scene.seize("rescuer").await, []);
    forget();
    assert_eq!(scene.list(&Filter::default()).await.len(), 2);
}

#[tokio::test]
async fn a_store_of_a_newer_program_is_refused() {
    let place = Place::on(servers::redis()).await;
    place
        .server
        .cli(&["set", &format!("{}:schema", place.prefix()), "v7"]);
    let refused = open(&place.url).migrate().await;
    assert!(
        matches!(&refused, Err(StoreError::Misuse { cause, .. }) if cause.contains("version 7")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_store_of_a_pre_release_is_refused_and_left_as_it_is() {
    for version in ["1", "4"] {
        let url = servers::redis().fresh_url();
        let key = format!("{}:schema", url.split_once("prefix=").expect("a prefix").1);
        servers::redis().cli(&["set", &key, version]);
        let refused = open(&url)
            .migrate()
            .await
            .expect_err("its version means something else");
        assert!(matches!(refused, StoreError::Misuse { .. }), "{refused:?}");
        assert!(
            refused
                .to_string()
                .contains("pre-release of backstop. Export"),
            "{refused}"
        );
        assert_eq!(servers::redis().cli(&["get", &key]).trim(), version);
        let examination = open(&url).examine().await.expect("it is examined");
        graded(&examination, FindingSeverity::Bad, "pre-release");
    }
}

#[tokio::test]
async fn a_wrong_password_may_be_right_later_and_is_not_repeated() {
    let server = with(Append::Off, &[]);
    server.cli(&["config", "set", "requirepass", "right"]);
    let at = |login: &str| open(&format!("redis://{login}{}", server.addr()));
    for login in ["", ":hunter2@", "ada:hunter2@"] {
        let began = std::time::Instant::now();
        let refused = at(login).migrate().await;
        let Err(error @ StoreError::Unavailable { .. }) = refused else {
            panic!("{login}: {refused:?}")
        };
        assert!(
            began.elapsed() < std::time::Duration::from_secs(8),
            "it is told, not tried until time is up"
        );
        assert!(
            error.to_string().contains("check user and password"),
            "{error}"
        );
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    at(":right@").migrate().await.expect("it is the password");
}

fn graded(examination: &ExaminationReport, grade: FindingSeverity, what: &str) {
    let found = examination
        .findings
        .iter()
        .any(|finding| finding.severity == grade && finding.what.contains(what));
    assert!(found, "no {grade:?} {what}: {examination:#?}");
}

#[tokio::test]
async fn what_a_crash_may_lose_is_said_in_words() {
    for (append, grade, what, promise) in [
        (
            Append::Off,
            FindingSeverity::Bad,
            "appendonly = no",
            "may lose everything",
        ),
        (
            Append::EverySecond,
            FindingSeverity::Warning,
            "appendfsync = everysec",
            "two seconds",
        ),
        (
            Append::Always,
            FindingSeverity::Good,
            "appendfsync = always",
            "survives a crash",
        ),
    ] {
        let server = with(append, &[]);
        let place = Place::on(&server).await;
        let examination = place.store.examine().await.expect("it is examined");
        graded(&examination, grade, what);
        graded(
            &examination,
            FindingSeverity::Good,
            "maxmemory-policy = noeviction",
        );
        graded(&examination, FindingSeverity::Good, "store version 1");
        assert!(
            examination.promise.contains(promise),
            "{}",
            examination.promise
        );
    }
}

#[tokio::test]
async fn a_user_without_rights_beyond_its_keys_is_enough() {
    let server = with(Append::EverySecond, &[]);
    let rights = [
        "~shop:*",
        "resetchannels",
        "&shop:*",
        "+@all",
        "-config",
        "-@dangerous",
        "+info",
    ];
    server.cli(&[&["acl", "setuser", "ada", "on", ">secret"][..], &rights].concat());
    let store = open(&format!("redis://ada:secret@{}?prefix=shop", server.addr()));
    store.migrate().await.expect("it may");
    store
        .enqueue(vec![job("q", "a").into()], START)
        .await
        .expect("it may");
    let examination = store.examine().await.expect("it may");
    graded(
        &examination,
        FindingSeverity::Warning,
        "appendfsync is unknown",
    );
    assert!(
        examination.promise.contains("does not tell"),
        "{}",
        examination.promise
    );
}

#[tokio::test]
async fn a_queue_that_refuses_takes_no_answer_of_another_with_it() {
    let server = with(Append::EverySecond, &[]);
    let rights = |keys| {
        server.cli(&[
            "acl",
            "setuser",
            "ada",
            "on",
            ">secret",
            "+@all",
            "&*",
            "resetkeys",
            keys,
        ])
    };
    rights("~shop:*");
    let store = open(&format!("redis://ada:secret@{}?prefix=shop", server.addr()));
    store.migrate().await.expect("it may");
    let mut scene = Scene::new(store.clone());
    scene.insert([job("mine", "a"), job("other", "b")]).await;
    let (a, b) = (
        scene.claim_one("mine").await,
        scene.claim_one("other").await,
    );
    rights("~shop:{mine}:*");
    // Refused, or answered twice, the end of a job of which nothing is kept would be stale.
    let gone = Outcome::Done(DoneRetention::Gone);
    let said = scene
        .settle_all([(&b.lease, gone.clone()), (&a.lease, gone.clone())])
        .await;
    assert_eq!(said, [SettleOutcome::Unanswered, SettleOutcome::Applied]);
    let alone = vec![Settlement {
        lease: b.lease.clone(),
        outcome: gone.clone(),
    }];
    let refused = store.settle(alone, scene.now).await;
    assert!(
        matches!(refused, Err(StoreError::Misuse { .. })),
        "{refused:?}"
    );
    rights("~shop:*");
    assert_eq!(scene.settle(&b.lease, gone).await, SettleOutcome::Applied);
}

/// All that it needs to do is tried by the contract.
#[tokio::test]
async fn the_user_of_the_stores_page_may_be_told_the_settings_and_do_nothing_dangerous() {
    let server = with(Append::Always, &[]);
    user::make_on(&server);
    let store = open(&user::log_in(&server.fresh_url()));
    store.migrate().await.expect("it may");
    graded(
        &store.examine().await.expect("it may"),
        FindingSeverity::Good,
        "appendfsync = always",
    );
    let as_user = [
        "--user",
        "backstop",
        "--pass",
        "SECRET",
        "--no-auth-warning",
    ];
    for dangerous in [
        &["flushall"][..],
        &["keys", "*"],
        &["config", "set", "appendonly", "no"],
        &["cluster", "reset"],
        &["get", "other"],
        &["publish", "other", "hint"],
    ] {
        let said = server.cli(&[&as_user[..], dangerous].concat());
        assert!(said.contains("NOPERM"), "{dangerous:?}: {said}");
    }
}

#[tokio::test]
async fn a_hint_reaches_other_processes() {
    let place = Place::on(servers::redis()).await;
    let mut hints = open(&place.url).watch();
    let elsewhere = open(&place.url);
    let mut heard = elsewhere.watch();
    // The subscription itself is a hint: something may have come before it.
    heard.next().await;
    place.scene().insert([job("q", "a")]).await;
    let hint = tokio::time::timeout(Duration::from_secs(30), heard.next()).await;
    assert!(hint.is_ok(), "no hint came from the other store");
    // A store that is gone gives no more hints, and harms nobody who still waits.
    let hint = tokio::time::timeout(Duration::from_millis(50), async {
        loop {
            hints.next().await;
        }
    });
    assert!(hint.await.is_err());
}

#[tokio::test]
async fn a_full_server_takes_no_jobs_but_lets_claimed_ones_be_kept_and_ended() {
    let server = with(Append::Off, &[]);
    let place = Place::on(&server).await;
    let mut scene = place.scene();
    scene.insert(["a", "b"].map(|name| job("q", name))).await;
    let runs = scene.claim("q", 2).await;
    let leases: Vec<_> = runs.iter().map(|run| run.lease.clone()).collect();
    server.cli(&["config", "set", "maxmemory", "1"]);
    assert_eq!(scene.begin(&leases).await, []);
    assert_eq!(
        scene
            .beat(&leases, START.after(backstop_core::Span::secs(60)))
            .await,
        []
    );
    assert_eq!(
        scene.settle(&leases[0], DONE).await,
        backstop_core::port::SettleOutcome::Applied
    );
    let refused = place.store.enqueue(vec![job("q", "c").into()], START).await;
    assert!(
        matches!(&refused, Err(StoreError::Unavailable { cause, .. }) if cause.contains("full")),
        "{refused:?}"
    );
    server.cli(&["config", "set", "maxmemory", "0"]);
    scene.insert([job("q", "c")]).await;
}
