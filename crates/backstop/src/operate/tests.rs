use super::*;
use crate::testing::{TestBackstop, start};
use backstop_core::Span;

async fn given(names: &[&str]) -> TestBackstop {
    let test = start();
    for name in names {
        test.backstop.draft("q").id(name).push().await.unwrap();
    }
    test
}

/// What the audit says, the newest first.
async fn told(test: &TestBackstop) -> Vec<(String, Option<u64>, String)> {
    let entries = test.backstop.audit("").entries(100).await.unwrap();
    entries
        .into_iter()
        .map(|entry| (entry.what, entry.count, entry.selection.to_string()))
        .collect()
}

fn named(names: &[&str]) -> Selection {
    Selection::Ids(names.iter().map(|name| JobId::named(name)).collect())
}

#[tokio::test]
async fn an_id_named_twice_is_refused_once_and_the_audit_counts_what_was_done() {
    let test = given(&["a", "b"]).await;
    let changes = test.backstop.changes("ada");
    let changed = changes
        .amend(&named(&["a", "gone", "gone"]), &AmendAction::Cancel)
        .await
        .unwrap();
    assert_eq!(
        (changed.count, changed.refused),
        (1, vec![(JobId::named("gone"), AmendRefusal::NotFound)])
    );
    let told = told(&test).await;
    assert_eq!((told[0].0.as_str(), told[0].1), ("job cancel", Some(1)));
}

#[tokio::test]
async fn more_ids_than_one_call_takes_are_done_in_several_and_told_in_short() {
    let test = given(&["a"]).await;
    let ids: Vec<JobId> = (0..AMEND_MAX)
        .map(|n| JobId::named(&n.to_string()))
        .chain([JobId::named("a")])
        .collect();
    let changed = test
        .backstop
        .changes("ada")
        .amend(&Selection::Ids(ids), &AmendAction::Delete)
        .await
        .unwrap();
    assert_eq!((changed.count, changed.refused.len()), (1, AMEND_MAX));
    assert!(told(&test).await[0].2.ends_with("\"more\":901}"));
}

#[tokio::test]
async fn clearing_a_queue_leaves_what_is_not_waiting() {
    let test = given(&["a", "b", "c"]).await;
    let changes = test.backstop.changes("ada");
    changes
        .amend(&named(&["a"]), &AmendAction::Cancel)
        .await
        .unwrap();
    test.clock.advance(Span::secs(1));
    assert_eq!(
        changes.clear(&QueueName::new("q").unwrap()).await.unwrap(),
        2
    );
    assert!(
        test.backstop
            .job(JobId::named("a"))
            .await
            .unwrap()
            .is_some(),
        "cancelled jobs stay"
    );
    assert_eq!(
        told(&test).await[0],
        (
            "queue clear".to_owned(),
            Some(2),
            r#"{"queue":"q"}"#.to_owned()
        )
    );
}

#[tokio::test]
async fn a_reset_of_nothing_leaves_no_entry() {
    let test = start();
    let guard: BreakerName = "q".parse().unwrap();
    let changes = test.backstop.changes("ada");
    assert!(!changes.reset(&guard).await.unwrap());
    changes.open(&guard, "maintenance").await.unwrap();
    assert!(changes.reset(&guard).await.unwrap());
    let counts: Vec<_> = told(&test)
        .await
        .into_iter()
        .map(|(what, count, _)| (what, count))
        .collect();
    let expected = [("breaker reset", Some(1)), ("breaker open", Some(1))];
    assert_eq!(counts.len(), 2, "{counts:?}");
    for entry in expected {
        assert!(
            counts.contains(&(entry.0.to_owned(), entry.1)),
            "{counts:?}"
        );
    }
}

#[tokio::test]
async fn what_is_already_so_leaves_no_entry() {
    let test = given(&["a"]).await;
    let (changes, queue) = (test.backstop.changes("ada"), QueueName::new("q").unwrap());
    let guard: BreakerName = "q".parse().unwrap();
    let (stream, key) = (
        test.backstop.stream("s").unwrap(),
        StreamKey::new("k").unwrap(),
    );
    let nobody = WorkerName::new("nobody");
    for _ in 0..3 {
        changes.pause(&queue).await.unwrap();
        changes.open(&guard, "maintenance").await.unwrap();
        changes.disable(&stream, &key).await.unwrap();
        changes
            .command_worker(&nobody, WorkerCommand::Stop)
            .await
            .unwrap();
    }
    for _ in 0..3 {
        changes.reset(&guard).await.unwrap();
        changes.forget(&stream, &key).await.unwrap();
        changes
            .amend(&named(&["a", "gone"]), &AmendAction::Cancel)
            .await
            .unwrap();
        changes.clear(&queue).await.unwrap();
    }
    let search = JobSearch {
        filter: Filter::default(),
        text: Some("nowhere".parse().unwrap()),
        worker: None,
    };
    changes
        .amend_found(&search, &Redaction::default(), &AmendAction::Delete)
        .await
        .unwrap();
    let dead = test.backstop.dead();
    dead.requeue(&crate::dead::DeadSelection::All)
        .await
        .unwrap();
    dead.clear(&queue).await.unwrap();
    changes.resume(&queue).await.unwrap();
    changes.resume(&queue).await.unwrap();
    assert!(changes.resume_all().await.unwrap().is_empty());
    let mut told: Vec<String> = told(&test)
        .await
        .into_iter()
        .map(|(what, ..)| what)
        .collect();
    told.sort_unstable();
    let expected = [
        "breaker open",
        "breaker reset",
        "job cancel",
        "queue pause",
        "queue resume",
        "stream disable",
        "stream forget",
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_pause_by_hand_of_a_queue_that_was_paused_with_all_is_told() {
    let test = given(&["a"]).await;
    let (changes, queue) = (test.backstop.changes("ada"), QueueName::new("q").unwrap());
    changes.pause_all().await.unwrap();
    changes.pause(&queue).await.unwrap();
    assert_eq!(told(&test).await.len(), 2);
    assert!(
        changes.resume_all().await.unwrap().is_empty(),
        "it is paused by itself now"
    );
}
