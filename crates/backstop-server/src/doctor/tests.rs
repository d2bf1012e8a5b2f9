use super::*;
use backstop::config::{ConfigOverrides, resolve};
use backstop::{Backstop, RandomSource, testing};
use backstop_memory::MemoryStore;
use backstop_testkit::flaky::{Fault, Flaky};

fn given() -> (Arc<Flaky>, App) {
    let store = Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1));
    let backstop = Backstop::on(
        Arc::<Flaky>::clone(&store),
        testing::start().clock,
        RandomSource::seeded(1),
    );
    let config = resolve(None, ConfigOverrides::default(), ConfigOverrides::default()).unwrap();
    (store, App::new(backstop, config, ""))
}

/// What is known once the look under way, if there is one, has ended.
async fn settled(app: &App) -> DoctorReport {
    while app.doctor().state().report.is_looking {
        tokio::task::yield_now().await;
    }
    app.doctor().state().report.clone()
}

/// What is known after one more look.
async fn after_a_look(app: &App) -> DoctorReport {
    assert!(app.doctor().report(app).is_looking);
    settled(app).await
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_first_is_told_that_nothing_is_known_and_waits_for_nothing() {
    let (_, app) = given();
    assert!(app.doctor().report(&app).found.is_none());
    let found = settled(&app).await.found.unwrap();
    assert!(
        found
            .findings
            .iter()
            .any(|finding| finding.what.contains("memory"))
    );
    assert_eq!(app.doctor().report(&app).found.unwrap().at, found.at);
}

#[tokio::test(start_paused = true)]
async fn a_look_is_made_again_after_a_while() {
    let (_, app) = given();
    let first = after_a_look(&app).await.found.unwrap();
    assert!(
        !app.doctor().report(&app).is_looking,
        "the last look is good for a while"
    );
    tokio::time::advance(EVERY).await;
    let known = app.doctor().report(&app);
    assert!(known.is_looking);
    assert!(
        Arc::ptr_eq(&known.found.unwrap().findings, &first.findings),
        "until there is another"
    );
    assert!(!Arc::ptr_eq(
        &settled(&app).await.found.unwrap().findings,
        &first.findings
    ));
}

#[tokio::test(start_paused = true)]
async fn a_look_that_failed_is_told_beside_the_last_good_one_and_is_made_again_soon() {
    let (store, app) = given();
    let first = after_a_look(&app).await.found.unwrap();
    store.set_down(true);
    tokio::time::advance(EVERY).await;
    let failed = after_a_look(&app).await;
    assert!(failed.failed.is_some(), "what failed is told as that");
    assert!(
        Arc::ptr_eq(&failed.found.unwrap().findings, &first.findings),
        "what was known stays known"
    );
    store.set_down(false);
    tokio::time::advance(EVERY).await;
    let healed = after_a_look(&app).await;
    assert!(healed.failed.is_none() && healed.found.is_some());
}

#[tokio::test(start_paused = true)]
async fn however_long_a_look_failed_for_the_next_one_is_not_put_off_by_that() {
    let (_, app) = given();
    let look = DoctorExamination(app.doctor().clone());
    tokio::time::advance(EXAMINE_MAX).await;
    look.record_failure("no answer".to_owned());
    drop(look);
    tokio::time::advance(EVERY).await;
    assert!(app.doctor().report(&app).is_looking);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_panics_is_told_as_failed_and_another_begins() {
    let (_, app) = given();
    let doctor = app.doctor().clone();
    doctor.state().report.is_looking = true;
    let look = DoctorExamination(doctor);
    let broken = tokio::spawn(async move {
        let _look = look;
        panic!("as examine would");
    });
    assert!(broken.await.is_err());
    let known = app.doctor().report(&app);
    assert!(!known.is_looking && known.failed.is_some(), "{known:?}");
    tokio::time::advance(EVERY).await;
    assert!(after_a_look(&app).await.failed.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn however_many_ask_at_once_one_looks() {
    let (store, app) = given();
    store.set_down(true);
    let asked = futures_util::future::join_all((0..64).map(|_| {
        let app = app.clone();
        tokio::spawn(async move { drop(app.doctor().report(&app)) })
    }));
    assert!(asked.await.into_iter().all(|asked| asked.is_ok()));
    assert!(settled(&app).await.failed.is_some());
    assert_eq!(store.injected_into("examine", Fault::Down), 1);
}
