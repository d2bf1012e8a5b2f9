use super::*;
use backstop_core::unique::UniqueConstraint;
use backstop_core::{RetryPolicy, Span};

#[test]
fn bytes_sort_as_their_numbers_do() {
    let numbers = [
        i64::MIN,
        -62_135_596_799_999_999,
        -1,
        0,
        1,
        253_402_300_799_999_999,
        i64::MAX,
    ];
    let bytes = numbers.map(sortable);
    assert!(bytes.is_sorted());
    assert_eq!(bytes.map(|bytes| from_sortable(&bytes)), numbers.map(Some));
}

#[test]
fn a_job_reads_back_as_it_came_in() {
    let now = Time::from_micros(1_767_225_600_123_457);
    let queue = QueueName::new("q").expect("a name");
    let kind = Kind::new("send 🙂").expect("a kind");
    let mut job = NewJob::new(
        JobId::named("a"),
        queue.clone(),
        kind,
        Payload::from_stored(vec![0, 255, 10]),
    );
    job.run_at = Some(now.after(Span::hours(1)));
    job.priority = Priority::High;
    job.unique = Some(UniqueConstraint::live(
        UniqueKey::new("ключ").expect("a key"),
    ));
    job.retry = RetryPolicy::from_json(br#"{"kind":"constant","every":"7s"}"#).ok();
    let packed = pack(&job, 42, now);
    let record = RedisJobRecord::parse(&packed.record).expect("a record");
    let seen = record
        .view(&queue, job.id, Some(packed.payload), None, None)
        .expect("a job");
    assert_eq!(
        (seen.state, seen.run_at, seen.inserted_at),
        (JobState::Scheduled, job.run_at.expect("set"), now)
    );
    assert_eq!(
        (seen.payload, seen.priority, seen.kind),
        (job.payload, job.priority, job.kind)
    );
    assert_eq!(
        (seen.unique_key, seen.options.retry()),
        (job.unique.map(|unique| unique.key), job.retry)
    );
    assert_eq!(
        (seen.attempt, seen.finished_at, seen.reason),
        (0, None, None)
    );
}

#[test]
fn a_small_payload_stands_in_the_record_and_a_large_one_apart() {
    let (queue, kind) = (
        QueueName::new("q").expect("a name"),
        Kind::new("kind").expect("a kind"),
    );
    for (size, is_apart) in [
        (0, false),
        (PAYLOAD_WITHIN_MAX - 4, false),
        (PAYLOAD_WITHIN_MAX - 3, true),
    ] {
        let payload = Payload::from_stored(vec![7; size]);
        let job = NewJob::new(
            JobId::named("a"),
            queue.clone(),
            kind.clone(),
            payload.clone(),
        );
        let packed = pack(&job, 42, Time::from_micros(0));
        assert_eq!(packed.payload.is_empty(), !is_apart, "{size}");
        let apart = is_apart.then_some(packed.payload);
        let record = RedisJobRecord::parse(&packed.record).expect("a record");
        let seen = record
            .view(&queue, job.id, apart, None, None)
            .expect("a job");
        assert_eq!((seen.payload, seen.unique_key), (payload, None), "{size}");
    }
}

#[test]
fn what_is_no_record_is_refused() {
    for bytes in [&b""[..], b"1", &[b'1'; HEAD_BYTES], &[0; 200]] {
        assert!(RedisJobRecord::parse(bytes).is_none(), "{bytes:?}");
    }
    assert!(unpack_payload(Some(vec![0, 0, 0, 9])).is_none());
}

#[test]
fn letters_read_back() {
    for state in JobState::ALL {
        assert_eq!(state_of(state_code(state)), Some(state));
    }
    for reason in EndReason::ALL {
        assert_eq!(reason_of(reason_code(Some(reason))), Some(reason));
    }
    assert_eq!(reason_of(reason_code(None)), None);
}
