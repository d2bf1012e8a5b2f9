use super::*;
use backstop::config::{Overrides, resolve};
use backstop::{Backstop, Random, testing};
use backstop_memory::MemoryStore;
use backstop_testkit::flaky::Flaky;

fn given() -> (Arc<Flaky>, App) {
    let store = Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1));
    let backstop = Backstop::on(Arc::<Flaky>::clone(&store), testing::start().clock, Random::seeded(1));
    let config = resolve(None, Overrides::default(), Overrides::default()).unwrap();
    (store, App::new(backstop, config, ""))
}

/// What is known once the look under way, if there is one, has ended.
async fn settled(app: &App) -> Option<Opinion> {
    while app.doctor().desk().is_looking {
        tokio::task::yield_now().await;
    }
    app.doctor().desk().opinion.clone()
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_first_is_told_that_nothing_is_known_and_waits_for_nothing() {
    let (_, app) = given();
    assert!(app.doctor().opinion(&app).is_none());
    let found = settled(&app).await.unwrap();
    assert!(found.findings.as_ref().as_ref().unwrap().iter().any(|finding| finding.what.contains("memory")));
    assert_eq!(app.doctor().opinion(&app).unwrap().at, found.at);
}

#[tokio::test(start_paused = true)]
async fn a_look_is_made_again_after_a_while_and_never_twice_at_once() {
    let (store, app) = given();
    app.doctor().opinion(&app);
    let first = settled(&app).await.unwrap();
    store.set_down(true);
    app.doctor().opinion(&app);
    assert!(!app.doctor().desk().is_looking, "the last look is good for a while");
    tokio::time::advance(EVERY).await;
    assert!(
        Arc::ptr_eq(&app.doctor().opinion(&app).unwrap().findings, &first.findings),
        "until there is another"
    );
    assert!(
        settled(&app).await.unwrap().findings.is_err(),
        "what failed is told as that, never as nothing found"
    );
}
