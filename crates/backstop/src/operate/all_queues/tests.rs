use crate::Backstop;
use crate::testing::{TestBackstop, start};
use backstop_core::port::QueueState;
use backstop_core::{QueueName, Span};

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

async fn given(names: &[&str]) -> TestBackstop {
    let test = start();
    for name in names {
        test.backstop.draft(name).push().await.unwrap();
    }
    test
}

async fn paused(backstop: &Backstop) -> Vec<String> {
    let queues = backstop.store().queues(backstop.now()).await.unwrap();
    let paused = queues
        .into_iter()
        .filter(|queue| queue.state == QueueState::Paused);
    paused.map(|queue| queue.name.to_string()).collect()
}

#[tokio::test]
async fn what_was_paused_together_is_resumed_and_what_was_paused_before_stays() {
    let test = given(&["a", "b", "c"]).await;
    let changes = test.backstop.changes("ada");
    changes.pause(&queue("b")).await.unwrap();
    assert_eq!(changes.pause_all().await.unwrap(), ["a", "c"].map(queue));
    assert_eq!(paused(&test.backstop).await, ["a", "b", "c"]);
    assert_eq!(changes.resume_all().await.unwrap(), ["a", "c"].map(queue));
    assert_eq!(paused(&test.backstop).await, ["b"]);
    assert_eq!(
        changes.resume_all().await.unwrap(),
        Vec::<QueueName>::new(),
        "nothing is noted any more"
    );
}

#[tokio::test]
async fn what_somebody_paused_or_resumed_by_itself_since_is_left_to_them() {
    let test = given(&["a", "b", "c"]).await;
    let changes = test.backstop.changes("ada");
    changes.pause_all().await.unwrap();
    changes.pause(&queue("a")).await.unwrap();
    changes.resume(&queue("b")).await.unwrap();
    changes.resume_all().await.unwrap();
    assert_eq!(paused(&test.backstop).await, ["a"]);
}

#[tokio::test]
async fn paused_twice_is_resumed_once() {
    let test = given(&["a", "b"]).await;
    let changes = test.backstop.changes("ada");
    changes.pause_all().await.unwrap();
    test.backstop.draft("late").push().await.unwrap();
    assert_eq!(changes.pause_all().await.unwrap(), [queue("late")]);
    assert_eq!(
        changes.resume_all().await.unwrap(),
        ["a", "b", "late"].map(queue)
    );
    assert!(paused(&test.backstop).await.is_empty());
}

#[tokio::test]
async fn each_is_one_entry_of_the_audit_that_names_the_queues() {
    let test = given(&["a", "b"]).await;
    let changes = test.backstop.changes("ada");
    changes.pause_all().await.unwrap();
    test.clock.advance(Span::secs(1));
    changes.resume_all().await.unwrap();
    let entries = test.backstop.audit("").entries(10).await.unwrap();
    let told: Vec<_> = entries
        .iter()
        .map(|entry| {
            (
                entry.what.as_str(),
                entry.count,
                entry.selection.to_string(),
            )
        })
        .collect();
    let named = r#"{"all":true,"queues":["a","b"]}"#.to_owned();
    let expected = ["queue resume", "queue pause"].map(|what| (what, Some(2), named.clone()));
    assert_eq!(told, expected);
}
