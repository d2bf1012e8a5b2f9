use super::*;
use backstop_core::{JobId, Lease, LeaseNumber, Outcome, Time};

/// Ends of runs, as `queue number` each.
fn ends(named: &[&str]) -> Vec<Settlement> {
    let end = |named: &&str| {
        let (queue, number) = named.split_once(' ').expect("a queue and a number");
        let lease = Lease {
            queue: QueueName::new(queue).expect("a name"),
            job: JobId::from_bytes([0; 16]),
            number: LeaseNumber::from_i64(number.parse().expect("a number")),
        };
        Settlement {
            lease,
            outcome: Outcome::Released {
                at: Time::from_micros(0),
            },
        }
    };
    named.iter().map(end).collect()
}

fn names(ends: &[Settlement]) -> Vec<String> {
    ends.iter()
        .map(|end| format!("{} {}", end.lease.queue, end.lease.number.as_i64()))
        .collect()
}

fn queues(ends: &[Settlement]) -> Vec<QueueName> {
    ends.iter().map(|end| end.lease.queue.clone()).collect()
}

/// Lines of these, added at `now`.
fn lines(named: &[&str], now: Instant) -> RetryQueue {
    let mut again = RetryQueue::default();
    again.add(ends(named), now);
    again
}

#[test]
fn one_call_is_for_all_lines_and_waits_longer_each_time_it_fails() {
    let mut now = Instant::now();
    let mut again = lines(&["a 1", "b 2", "a 3"], now);
    for millis in [50, 100, 200, 400, 800, 1_600, 2_000, 2_000] {
        assert!(again.next(now).is_none(), "not before its time");
        // What one line alone is asked for in between is another rule.
        again.is_apart = false;
        now += Duration::from_millis(millis);
        assert_eq!(again.due(), Some(now));
        let (how, batch) = again.next(now).expect("it is due");
        assert_eq!(
            (how, names(&batch)),
            (
                SettleCallKind::Together,
                ["a 1", "a 3", "b 2"].map(str::to_owned).into()
            )
        );
        assert!(
            again.next(now).is_none() && again.due().is_none(),
            "all of it is under way"
        );
        again.finish_call(how, &queues(&batch), batch, now);
        again.is_apart = false;
    }
}

#[test]
fn what_is_answered_is_gone_and_the_rest_stays_in_its_order() {
    let now = Instant::now();
    let mut again = lines(&["a 1", "b 2", "b 3"], now);
    let due = now + WAIT_FIRST;
    let (how, batch) = again.next(due).expect("it is due");
    // One more of each ends meanwhile: behind the others, whatever becomes of them.
    let mut fresh = ends(&["a 4", "b 5", "c 6"]);
    again.take_queued_from(&mut fresh);
    assert_eq!((names(&fresh), again.len()), (vec!["c 6".to_owned()], 5));
    again.finish_call(how, &queues(&batch), ends(&["b 2", "b 3"]), due);
    let (alone, silent) = again
        .next(due)
        .expect("who was not answered for holds up no other");
    assert_eq!(
        (alone, names(&silent)),
        (
            SettleCallKind::Alone,
            ["b 2", "b 3", "b 5"].map(str::to_owned).into()
        )
    );
    let (how, batch) = again.next(due).expect("somebody answers: at once");
    assert_eq!(
        (how, names(&batch)),
        (SettleCallKind::Together, vec!["a 4".to_owned()])
    );
    again.finish_call(how, &queues(&batch), Vec::new(), due);
    again.finish_call(alone, &queues(&silent), Vec::new(), due);
    assert!(again.is_empty() && again.next(due).is_none() && again.due().is_none());
}

#[test]
fn where_nobody_answers_for_all_together_each_is_asked_for_alone_in_turn() {
    let mut now = Instant::now();
    let mut again = lines(&["a 1", "b 2", "c 3"], now);
    let mut alone = Vec::new();
    now += WAIT_FIRST;
    let (mut how, mut batch) = again.next(now).expect("it is due");
    for _ in 0..6 {
        again.finish_call(how, &queues(&batch), batch, now);
        now += WAIT_LAST;
        let (one, of_one) = again.next(now).expect("one");
        alone.extend(names(&of_one));
        assert_eq!(one, SettleCallKind::Alone);
        (how, batch) = again.next(now).expect("and the others beside it");
        assert_eq!((how, batch.len()), (SettleCallKind::Together, 2));
        assert!(again.next(now).is_none(), "two calls at a time");
        again.finish_call(one, &queues(&of_one), of_one, now);
    }
    assert_eq!(alone, ["a 1", "b 2", "c 3", "a 1", "b 2", "c 3"]);
}

#[test]
fn a_queue_that_is_in_the_others_way_is_soon_alone() {
    let mut now = Instant::now();
    let named: Vec<String> = ('a'..='j').map(|queue| format!("{queue} 1")).collect();
    let mut again = lines(&named.iter().map(String::as_str).collect::<Vec<_>>(), now);
    for _ in 0..4 {
        now += WAIT_LAST;
        let mut under_way = Vec::new();
        // What does not contain it is answered at once; what does, later.
        while let Some((how, batch)) = again.next(now) {
            if names(&batch).contains(&"e 1".to_owned()) {
                under_way.push((how, batch));
            } else {
                again.finish_call(how, &queues(&batch), Vec::new(), now);
            }
        }
        for (how, batch) in under_way {
            again.finish_call(how, &queues(&batch), batch, now);
        }
    }
    assert_eq!(again.len(), 1, "only that one is left");
}

#[test]
fn a_call_takes_no_more_than_a_batch_and_from_every_line() {
    let now = Instant::now();
    let mut again = RetryQueue::default();
    for queue in ["a", "b"] {
        again.add(
            ends(&vec![format!("{queue} 1").as_str(); 2 * BATCH_MAX]),
            now,
        );
    }
    let (_, batch) = again.next(now + WAIT_FIRST).expect("it is due");
    let of = |queue: &str| {
        batch
            .iter()
            .filter(|end| end.lease.queue.as_str() == queue)
            .count()
    };
    assert_eq!(
        (of("a"), of("b"), again.len()),
        (BATCH_MAX / 2, BATCH_MAX / 2, 4 * BATCH_MAX)
    );
}

#[test]
fn behind_a_first_call_that_takes_long_nothing_of_its_queues_is_asked_for() {
    let now = Instant::now();
    let mut again = RetryQueue::default();
    again.track_call(&queues(&ends(&["a 1", "a 2", "b 3"])), now);
    let mut fresh = ends(&["a 4", "c 5"]);
    again.take_queued_from(&mut fresh);
    assert_eq!((names(&fresh), again.len()), (vec!["c 5".to_owned()], 4));
    assert!(again.next(now + WAIT_LAST).is_none() && again.due().is_none());
    again.finish_call(
        SettleCallKind::First,
        &queues(&ends(&["a 1", "a 2", "b 3"])),
        ends(&["a 2"]),
        now,
    );
    let (how, batch) = again.next(now + WAIT_LAST).expect("it is due");
    assert_eq!(
        (how, names(&batch)),
        (
            SettleCallKind::Together,
            vec!["a 2".to_owned(), "a 4".to_owned()]
        )
    );
}

#[test]
fn a_line_that_is_not_answered_for_is_beside_the_others_until_it_is() {
    let mut now = Instant::now();
    let mut again = lines(&["busy 1", "silent 1"], now);
    now += WAIT_FIRST;
    let (how, batch) = again.next(now).expect("it is due");
    again.finish_call(how, &queues(&batch), ends(&["silent 1"]), now);
    for round in 0..10 {
        let mut fresh = ends(&["busy 2"]);
        again.take_queued_from(&mut fresh);
        again.add(fresh, now);
        let (mut alone, mut together) = (None, None);
        while let Some((how, batch)) = again.next(now) {
            *(if how == SettleCallKind::Alone {
                &mut alone
            } else {
                &mut together
            }) = Some(batch);
        }
        let together = together.expect("the others go on at once");
        assert_eq!(names(&together), ["busy 2"], "round {round}");
        again.finish_call(
            SettleCallKind::Together,
            &queues(&together),
            Vec::new(),
            now,
        );
        if let Some(alone) = alone {
            again.finish_call(SettleCallKind::Alone, &queues(&alone), alone, now);
        }
        assert!(
            again.due().is_none_or(|due| due > now),
            "nobody asks without a pause: round {round}"
        );
        now += Duration::from_millis(10);
    }
    now += WAIT_LAST;
    let (how, batch) = again.next(now).expect("it is due again");
    again.finish_call(how, &queues(&batch), Vec::new(), now);
    assert!(again.is_empty());
}
