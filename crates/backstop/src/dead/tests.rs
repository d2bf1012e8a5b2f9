use super::*;
use crate::testing::{TestBackstop, start};
use backstop_core::amend::AmendRefusal;
use backstop_core::port::{EnqueueOutcome, StoreError};
use backstop_core::{QueueBounds, Span};

/// A store with these dead letters in queue `q`, a second apart: name, payload, error.
async fn given(letters: &[(&str, &str, &str)]) -> TestBackstop {
    let test = start();
    for (name, payload, error) in letters {
        bury(&test, "q", name, payload, error).await;
    }
    test
}

async fn bury(test: &TestBackstop, queue: &str, name: &str, payload: &str, error: &str) {
    test.clock.advance(Span::secs(1));
    let line = serde_json::json!({
        "id": name, "queue": queue, "error": error, "error_type": "Boom", "attempt_count": 3,
        "original_job": { "payload": serde_json::from_str::<serde_json::Value>(payload).unwrap() },
    });
    let letter =
        ImportedDeadLetter::read(line.to_string().as_bytes(), test.backstop.now()).unwrap();
    assert_eq!(
        dead(test).import(vec![letter]).await.unwrap(),
        [EnqueueOutcome::Inserted]
    );
}

fn dead(test: &TestBackstop) -> DeadLetters {
    test.backstop.dead().by("ada@host")
}

fn ids(names: &[&str]) -> DeadSelection {
    DeadSelection::Ids(names.iter().map(|name| JobId::named(name)).collect())
}

fn matching(text: &str) -> DeadFilter {
    DeadFilter {
        text: Some(text.to_owned()),
        ..DeadFilter::default()
    }
}

/// The names of those that are dead, the newest first.
async fn names(test: &TestBackstop, filter: &DeadFilter) -> String {
    let (mut names, mut cursor) = (String::new(), None);
    loop {
        let page = dead(test).list(filter, cursor, 2).await.unwrap();
        assert!(page.letters.len() <= 2);
        for letter in page.letters {
            names.extend(('a'..='z').find(|name| JobId::named(&name.to_string()) == letter.id));
        }
        cursor = page.next;
        if cursor.is_none() {
            return names;
        }
    }
}

async fn state(test: &TestBackstop, name: &str) -> JobState {
    test.backstop
        .job(JobId::named(name))
        .await
        .unwrap()
        .unwrap()
        .state
}

const SIX: [(&str, &str, &str); 6] = [
    ("a", "1", "order 1 lost"),
    ("b", "2", "no such user"),
    ("c", "3", "order 3 lost"),
    ("d", "4", "order 4 lost"),
    ("e", "5", "no such user"),
    ("f", "\"order\"", "else"),
];

#[tokio::test]
async fn a_list_is_filtered_and_paged() {
    let test = given(&SIX).await;
    assert_eq!(names(&test, &DeadFilter::default()).await, "fedcba");
    assert_eq!(names(&test, &matching("ORDER")).await, "fdca");
    assert_eq!(names(&test, &matching("nowhere")).await, "");
    let third = test.backstop.now().before(Span::secs(3));
    assert_eq!(
        names(
            &test,
            &DeadFilter {
                since: Some(third),
                ..DeadFilter::default()
            }
        )
        .await,
        "fedc"
    );
    assert_eq!(
        names(
            &test,
            &DeadFilter {
                until: Some(third),
                ..DeadFilter::default()
            }
        )
        .await,
        "cba"
    );
    let group = dead(&test).groups(None, 1).await.unwrap().remove(0);
    assert_eq!(names(&test, &DeadFilter::from(&group)).await, "dca");
}

#[tokio::test]
async fn stats_and_groups_count_and_show_a_sample() {
    let test = given(&SIX).await;
    bury(&test, "p", "g", "1", "password=hunter2 refused").await;
    test.backstop.draft("alive").push().await.unwrap();
    let stats = serde_json::to_string(&dead(&test).stats().await.unwrap()).unwrap();
    assert_eq!(stats, r#"{"queues":{"alive":0,"p":1,"q":6},"total":7}"#);
    let groups = dead(&test).groups(None, 10).await.unwrap();
    let shown: Vec<_> = groups
        .iter()
        .map(|group| (group.count, group.sample.error.as_str()))
        .collect();
    assert_eq!(
        shown,
        [
            (3, "order 4 lost"),
            (2, "no such user"),
            (1, "password=[redacted] refused"),
            (1, "else")
        ]
    );
    assert_eq!(groups[0].sample.error_type.as_deref(), Some("Boom"));
    let estimate = async |filter: &DeadFilter| dead(&test).estimate(filter).await.unwrap();
    assert_eq!(estimate(&DeadFilter::default()).await, Some(7));
    assert_eq!(estimate(&DeadFilter::from(&groups[0])).await, Some(3));
    assert_eq!(estimate(&matching("x")).await, None);
}

#[tokio::test]
async fn one_letter_is_shown_whole_and_a_list_is_redacted() {
    let test = given(&[("a", r#"{"password":"hunter2"}"#, "token=abc123 refused")]).await;
    let DeadLetterLookup::Letter(letter) = dead(&test).show(JobId::named("a")).await.unwrap()
    else {
        panic!("not shown")
    };
    let text = serde_json::to_string(&letter).unwrap();
    assert!(
        text.contains("hunter2") && !text.contains("abc123"),
        "{text}"
    );
    let page = dead(&test)
        .list(&DeadFilter::default(), None, 9)
        .await
        .unwrap();
    let text = serde_json::to_string(&page.letters).unwrap();
    assert!(
        !text.contains("hunter2") && !text.contains("abc123") && text.contains("[redacted]"),
        "{text}"
    );
    dead(&test).requeue(&ids(&["a"])).await.unwrap();
    let shown = dead(&test).show(JobId::named("a")).await.unwrap();
    assert!(
        matches!(shown, DeadLetterLookup::OtherState(JobState::Ready)),
        "{shown:?}"
    );
    assert!(matches!(
        dead(&test).show(JobId::named("z")).await.unwrap(),
        DeadLetterLookup::NotFound
    ));
}

#[tokio::test]
async fn the_oldest_go_first() {
    let test = given(&SIX).await;
    let queue = QueueName::new("q").unwrap();
    let changed = dead(&test)
        .requeue(&DeadSelection::Oldest { queue, count: 2 })
        .await
        .unwrap();
    assert_eq!(
        (changed.count, names(&test, &DeadFilter::default()).await),
        (2, "fedc".to_owned())
    );
    assert_eq!(state(&test, "a").await, JobState::Ready);
}

#[tokio::test]
async fn a_change_that_full_queues_refuse_lists_a_thousand_and_counts_the_others() {
    let test = start();
    for from in (0..2_500).step_by(500) {
        let letters = (from..from + 500).map(|n| {
            let line = format!(r#"{{"id":"{n}","queue":"q","original_job":{{"payload":{n}}}}}"#);
            ImportedDeadLetter::read(line.as_bytes(), test.backstop.now()).unwrap()
        });
        dead(&test).import(letters.collect()).await.unwrap();
    }
    let full = QueueName::new("full").unwrap();
    for queue in [&full, &QueueName::new("q").unwrap()] {
        let bounds = QueueBounds {
            max_size: Some(0),
            ..QueueBounds::default()
        };
        let (store, now) = (test.backstop.store(), test.backstop.now());
        store.set_bounds(queue.clone(), bounds, now).await.unwrap();
    }
    // The letters may be of many queues, and of each one may go.
    let each = dead(&test).requeue(&DeadSelection::All).await.unwrap();
    assert_eq!(
        (each.count, each.refused.len(), each.refused_count()),
        (0, 1_000, 2_500)
    );
    // All go to one queue: what is behind the first pages is not even read.
    let moved = dead(&test).move_to(&DeadSelection::All, &full).await;
    let text = DeadSelection::Matching(matching("1"));
    let found = dead(&test).move_to(&text, &full).await;
    for changed in [moved.unwrap(), found.unwrap()] {
        assert_eq!(changed.count, 0);
        let refused = changed.refused_count();
        assert!((1..=1_000).contains(&refused), "{refused} refused");
    }
}

#[tokio::test]
async fn a_selection_means_what_it_says_and_only_dead_letters() {
    let test = given(&SIX).await;
    test.backstop.draft("q").id("x").push().await.unwrap();
    let changed = dead(&test)
        .requeue(&DeadSelection::Matching(matching("order")))
        .await
        .unwrap();
    assert_eq!(
        (changed.count, names(&test, &DeadFilter::default()).await),
        (4, "eb".to_owned())
    );
    let changed = dead(&test)
        .delete(&ids(&["b", "b", "a", "x", "z"]))
        .await
        .unwrap();
    let refused = [("a", JobState::Ready), ("x", JobState::Ready)]
        .map(|(name, state)| (JobId::named(name), AmendRefusal::OtherState(state)));
    assert_eq!((changed.count, &changed.refused[..2]), (1, &refused[..]));
    assert_eq!(
        changed.refused[2..],
        [(JobId::named("z"), AmendRefusal::NotFound)]
    );
    let other = QueueName::new("other").unwrap();
    assert_eq!(
        dead(&test)
            .move_to(&DeadSelection::All, &other)
            .await
            .unwrap()
            .count,
        1
    );
    let moved = test.backstop.job(JobId::named("e")).await.unwrap().unwrap();
    assert_eq!(
        (
            moved.queue,
            moved.state,
            moved.requeues,
            moved.history.failures().len()
        ),
        (other, JobState::Ready, 1, 1)
    );
    assert_eq!(state(&test, "x").await, JobState::Ready);
}

#[tokio::test]
async fn clear_removes_the_dead_of_one_queue_or_of_all() {
    let test = given(&SIX).await;
    bury(&test, "p", "g", "1", "boom").await;
    test.backstop.draft("q").id("x").push().await.unwrap();
    assert_eq!(
        dead(&test)
            .clear(&QueueName::new("q").unwrap())
            .await
            .unwrap()
            .count,
        6
    );
    assert_eq!(
        (
            dead(&test).stats().await.unwrap().total,
            state(&test, "x").await
        ),
        (1, JobState::Ready)
    );
    assert_eq!(dead(&test).clear_all().await.unwrap().count, 1);
}

#[tokio::test]
async fn nothing_selected_is_misuse_and_not_all() {
    let test = given(&SIX).await;
    let queue = QueueName::new("q").unwrap();
    for nothing in [
        DeadSelection::Ids(vec![]),
        DeadSelection::Matching(DeadFilter::default()),
        DeadSelection::Oldest { queue, count: 0 },
        DeadSelection::Matching(matching("")),
        DeadSelection::Matching(matching(" ")),
        DeadSelection::Matching(DeadFilter {
            error_type: Some(String::new()),
            ..DeadFilter::default()
        }),
    ] {
        let refused = dead(&test).delete(&nothing).await;
        assert!(
            matches!(refused, Err(StoreError::Misuse { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(dead(&test).stats().await.unwrap().total, 6);
}

#[tokio::test]
async fn an_export_is_a_backup() {
    let test = given(&SIX).await;
    dead(&test).requeue(&ids(&["a"])).await.unwrap();
    let page = dead(&test)
        .export(&DeadFilter::default(), None)
        .await
        .unwrap();
    assert_eq!((page.letters.len(), page.next), (5, None));
    let lines: Vec<String> = page
        .letters
        .iter()
        .map(|letter| serde_json::to_string(letter).unwrap())
        .collect();
    let other = start();
    other.clock.advance(Span::secs(60));
    let read =
        |line: &String| ImportedDeadLetter::read(line.as_bytes(), other.backstop.now()).unwrap();
    let letters: Vec<_> = lines.iter().map(read).collect();
    assert_eq!(
        dead(&other).import(letters.clone()).await.unwrap(),
        [EnqueueOutcome::Inserted; 5]
    );
    assert_eq!(
        dead(&other).import(letters).await.unwrap(),
        [EnqueueOutcome::Same; 5]
    );
    let again = dead(&other)
        .export(&DeadFilter::default(), None)
        .await
        .unwrap();
    let again: Vec<String> = again
        .letters
        .iter()
        .map(|letter| serde_json::to_string(letter).unwrap())
        .collect();
    assert_eq!(again, lines);
}

#[tokio::test]
async fn every_change_is_written_down_the_newest_first() {
    let test = given(&SIX[..2]).await;
    test.clock.advance(Span::secs(1));
    dead(&test).requeue(&ids(&["a"])).await.unwrap();
    test.clock.advance(Span::secs(1));
    dead(&test).delete(&DeadSelection::All).await.unwrap();
    let audit = dead(&test).audit(2).await.unwrap();
    let told: Vec<_> = audit
        .iter()
        .map(|entry| (entry.what.as_str(), entry.count, entry.who.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("delete", Some(1), "ada@host"),
            ("requeue", Some(1), "ada@host")
        ]
    );
    assert_eq!(audit[0].selection, serde_json::json!({ "all": true }));
    assert_eq!(
        dead(&test).audit(99).await.unwrap().len(),
        4,
        "two imports before them"
    );
}

#[tokio::test]
async fn a_journal_keeps_the_newest() {
    let test = start();
    for count in 0..250 {
        test.clock.advance(Span::secs(1));
        let noted = dead(&test)
            .log
            .open_entry("requeue", serde_json::Value::Null)
            .await
            .unwrap();
        dead(&test).log.record_end(noted, count, None).await;
    }
    let trim = async || dead(&test).log.journal().trim(100).await.unwrap();
    assert_eq!((trim().await, trim().await, trim().await), (100, 50, 0));
    let audit = dead(&test).audit(1_000).await.unwrap();
    assert_eq!(
        (audit.len(), audit[0].count, audit[99].count),
        (100, Some(249), Some(150))
    );
}
