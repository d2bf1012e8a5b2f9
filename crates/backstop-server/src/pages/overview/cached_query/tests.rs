use super::*;
use backstop_core::port::{QueueState, QueueTotals, StateCounts, StoreError};
use backstop_core::{Fingerprint, JobId, QueueBounds, QueueName};
use std::cell::Cell;

fn at(secs: i64) -> Time {
    Time::from_micros(0).after(Span::secs(secs))
}

#[tokio::test]
async fn an_answer_is_taken_for_true_for_a_while_and_a_failure_is_not() {
    let kept = CachedAnswer::<u32>::default();
    let ask = |secs, answer: u32| kept.get_or_query(at(secs), DEAR_FOR, async move { Ok(answer) });
    assert_eq!(
        [
            ask(0, 1).await.unwrap(),
            ask(4, 2).await.unwrap(),
            ask(5, 3).await.unwrap()
        ],
        [1, 1, 3]
    );
    let fails = kept.get_or_query(at(20), DEAR_FOR, async {
        Err(StoreError::unavailable("asking", "off"))
    });
    fails.await.unwrap_err();
    assert_eq!(
        ask(20, 4).await.unwrap(),
        4,
        "what failed was not kept, nor what was said long ago"
    );
}

#[tokio::test]
async fn a_clock_that_is_set_back_makes_no_answer_last() {
    let kept = CachedAnswer::<u32>::default();
    let ask = |secs, answer: u32| kept.get_or_query(at(secs), DEAR_FOR, async move { Ok(answer) });
    assert_eq!(ask(3_600, 1).await.unwrap(), 1);
    assert_eq!(ask(0, 2).await.unwrap(), 2, "an hour back");
    assert_eq!(ask(4, 3).await.unwrap(), 2, "from here on as ever");
}

#[tokio::test]
async fn pages_that_ask_at_once_make_one_question() {
    let (kept, calls) = (CachedAnswer::<u32>::default(), Cell::new(0));
    let ask = |secs| {
        kept.get_or_query(at(secs), DEAR_FOR, async {
            calls.set(calls.get() + 1);
            // The other one has its turn while this waits for the store.
            tokio::task::yield_now().await;
            Ok(calls.get())
        })
    };
    // Requests may come to the lock in another order than they read the clock.
    let (one, other, third) = tokio::join!(ask(1), ask(0), ask(2));
    assert_eq!([one.unwrap(), other.unwrap(), third.unwrap()], [1, 1, 1]);
}

#[tokio::test]
async fn whoever_waited_for_a_question_that_failed_asks_again() {
    let kept = CachedAnswer::<u32>::default();
    let fails = kept.get_or_query(at(0), DEAR_FOR, async {
        tokio::task::yield_now().await;
        Err(StoreError::unavailable("asking", "off"))
    });
    let (failed, answer) = tokio::join!(fails, kept.get_or_query(at(0), DEAR_FOR, async { Ok(7) }));
    failed.unwrap_err();
    assert_eq!(answer.unwrap(), 7);
}

#[tokio::test]
async fn what_is_cheap_is_asked_for_every_time() {
    let (kept, now) = (CachedAnswer::<u32>::default(), at(0));
    for answer in 1..4 {
        let few = true_for(LETTERS_FEW, LETTERS_FEW);
        assert_eq!(
            kept.get_or_query(now, few, async { Ok(answer) })
                .await
                .unwrap(),
            answer
        );
    }
    assert_eq!(true_for(LETTERS_FEW + 1, LETTERS_FEW), DEAR_FOR);
}

#[test]
fn groups_of_a_queue_whose_letters_are_gone_are_told_no_more() {
    let name = |text: &str| QueueName::new(text).unwrap();
    let queue = |text, dead| {
        let mut counts = StateCounts::default();
        *counts.of_mut(JobState::Dead) = dead;
        let (gate, totals, bounds) = (
            QueueState::Active,
            QueueTotals::default(),
            QueueBounds::default(),
        );
        QueueStatus {
            name: name(text),
            state: gate,
            counts,
            totals,
            next_ready: None,
            bounds,
        }
    };
    let group = |text| DeadLetterGroup {
        queue: name(text),
        fingerprint: Fingerprint::from_i64(1),
        count: 1,
        first_at: at(0),
        last_at: at(0),
        sample: JobId::from_text("a"),
    };
    let groups = vec![group("full"), group("emptied"), group("gone")];
    assert_eq!(
        present(groups, &[queue("full", 20_000), queue("emptied", 0)]),
        [group("full")]
    );
}
