//! What keeps back jobs whose kind dies.

use super::*;
use backstop_core::Bounds;

async fn set_dead_max(test: &Test, dead_max: u64) {
    let bounds = Bounds { dead_max, ..Bounds::default() };
    test.backstop.store().set_bounds(QueueName::new("q").unwrap(), bounds, test.backstop.now()).await.unwrap();
}

#[tokio::test]
async fn probes_whose_deaths_find_room_again_open_a_gate_that_lacked_it() {
    let test = pushed(&["a", "b", "c", "d"]).await;
    let (config, attendance) = (config(""), Attendance::default());
    let remote = test.backstop.remote(&config, &attendance);
    set_dead_max(&test, 1).await;
    let handed = remote.lease(&ask(2)).await.unwrap();
    remote.settle(handed.iter().map(dead).collect()).await.unwrap();
    let is_shut = async || {
        let guards = test.backstop.breakers().list().await.unwrap();
        guards.iter().any(|guard| guard.shut.is_some())
    };
    assert!(is_shut().await, "the second death found no room");
    set_dead_max(&test, 10).await;
    test.clock.advance(Span::minutes(1));
    let probes = remote.lease(&ask(2)).await.unwrap();
    assert_eq!(probes.len(), 2);
    remote.settle(probes.iter().map(dead).collect()).await.unwrap();
    assert!(!is_shut().await, "both deaths found room");
}
