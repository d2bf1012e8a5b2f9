use super::*;
use backstop::config::{ConfigOverrides, resolve};
use backstop::dead::DeadSelection;
use backstop::dead::redrive::{
    CANARY_DEFAULT, MAX_FAILURES_DEFAULT, RedrivePlan, THEN_RATE_DEFAULT,
};
use backstop::testing::start;
use backstop::{Backstop, RandomSource, Span};
use backstop_testkit::flaky::{Flaky, Odds};
use std::sync::Arc;

fn app(backstop: &Backstop) -> App {
    let config = resolve(None, ConfigOverrides::default(), ConfigOverrides::default()).unwrap();
    App::new(backstop.clone(), config, "")
}

async fn written_down(dead: &DeadLetters) -> String {
    let plan = RedrivePlan {
        canary: CANARY_DEFAULT,
        max_failures: MAX_FAILURES_DEFAULT,
        then_rate: THEN_RATE_DEFAULT,
        selection: DeadSelection::All,
    };
    dead.redrive_unattended(plan).await.unwrap()
}

#[test]
fn what_was_given_up_is_remembered_within_bounds() {
    let given_up = AbandonedRedrives::default();
    for n in 0..GIVEN_UP_MAX {
        given_up.add(&n.to_string());
    }
    assert!(given_up.has("0") && given_up.ids().len() == GIVEN_UP_MAX);
    given_up.add("one more");
    assert!(given_up.has("one more") && !given_up.has("0"));
}

#[tokio::test]
async fn one_that_was_given_up_here_is_left_alone_here_and_taken_elsewhere() {
    let test = start();
    let (dead, here, elsewhere) = (
        test.backstop.dead(),
        app(&test.backstop),
        app(&test.backstop),
    );
    let id = written_down(&dead).await;
    test.clock.advance(Span::minutes(1));
    here.abandoned_redrives().add(&id);
    resume(&here).await.unwrap();
    here.tasks().close();
    here.tasks().wait().await;
    assert_eq!(dead.abandoned_redrives().await.unwrap().len(), 1);
    resume(&elsewhere).await.unwrap();
    elsewhere.tasks().close();
    elsewhere.tasks().wait().await;
    assert!(dead.abandoned_redrives().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_whose_store_does_not_answer_holds_up_no_server_that_closes() {
    let test = start();
    let id = written_down(&test.backstop.dead()).await;
    let store = Arc::new(Flaky::new(Arc::clone(test.backstop.store()), 1));
    let clock = Arc::clone(&test.clock);
    let backstop = Backstop::on(Arc::<Flaky>::clone(&store), clock, RandomSource::seeded(1));
    let hour = Duration::from_hours(1);
    store.set_odds(Odds {
        delay_before: 1.0,
        delay_max: hour,
        ..Odds::default()
    });
    let app = app(&backstop);
    spawn_redrive(&app, backstop.dead(), id);
    app.closing().cancel();
    app.tasks().close();
    tokio::time::timeout(LEAVE_MAX * 2, app.tasks().wait())
        .await
        .expect("it is cut off");
}
