use super::*;

const NOW: Time = Time::from_millis(1_000_000);

fn defaults() -> PushDefaults {
    PushDefaults {
        queue: QueueName::new("emails").unwrap(),
        kind: None,
        priority: None,
        delay: None,
        at: None,
        unique_by: None,
        unique_for: None,
        unique_in: Vec::new(),
        retry: None,
        trace: None,
        batch: None,
        lines: LineFormat::Auto,
    }
}

fn read_with(line: &str, defaults: &PushDefaults) -> Result<NewJob, String> {
    parse(line.as_bytes(), 7, defaults, NOW, || JobId::named("fresh"))
}

fn good(line: &str) -> NewJob {
    read_with(line, &defaults()).expect(line)
}

fn check_bad(line: &str, part: &str) {
    let error = read_with(
        line,
        &PushDefaults {
            lines: LineFormat::Jobs,
            ..defaults()
        },
    )
    .expect_err(line);
    assert!(error.contains(part), "{part:?} is missing in: {error}");
}

#[test]
fn a_line_is_a_payload_unless_it_looks_like_a_job() {
    let payloads = [
        "1",
        "{\"a\": 1}",
        "{\"payload\":1,\"something\":\"else\"}",
        "[\"payload\"]",
        "{\"note\":\"a \\\"payload\\\" of words\"}",
        "\"payload\"",
    ];
    for line in payloads {
        assert_eq!(good(line).payload.as_bytes(), line.as_bytes());
    }
    for line in ["{\"payload\":1}", " {\"kind\":\"k\",\"payload\":1 } "] {
        assert_eq!(good(line).payload.as_bytes(), b"1");
    }
}

#[test]
fn a_payload_is_taken_byte_for_byte() {
    let line = "{\"payload\": {\"b\":1.50,  \"a\":\"\\u00e9\", \"a\":1e3 } , \"kind\":\"k\"}";
    assert_eq!(
        good(line).payload.as_bytes(),
        "{\"b\":1.50,  \"a\":\"\\u00e9\", \"a\":1e3 }".as_bytes()
    );
    assert_eq!(good(" {\"x\" : 1} ").payload.as_bytes(), b" {\"x\" : 1} ");
}

#[test]
fn every_key_of_a_job_counts() {
    let job = good(
        r#"{"queue":"q","kind":"k","payload":null,"run_at":"1970-01-01T00:00:09Z","unique_key":"u","priority":"high","retry":{"kind":"constant","every":"1m"},"id":"order-17"}"#,
    );
    assert_eq!(
        (
            job.queue.as_str(),
            job.kind.as_str(),
            job.payload.as_bytes()
        ),
        ("q", "k", &b"null"[..])
    );
    assert_eq!(
        (job.id, job.priority),
        (JobId::named("order-17"), Priority::High)
    );
    assert_eq!(job.run_at, Some(Time::from_millis(9_000)));
    assert_eq!(
        job.unique,
        Some(UniqueConstraint::live(UniqueKey::new("u").unwrap()))
    );
    assert!(job.retry.is_some());
    assert_eq!(
        good(r#"{"payload":1,"delay":"10s"}"#).run_at,
        Some(NOW.after(Span::secs(10)))
    );
}

#[test]
fn what_a_line_says_wins_over_the_flags() {
    let flags = PushDefaults {
        kind: Some(Kind::new("flag").unwrap()),
        priority: Some(Priority::Low),
        delay: Some(Span::secs(1)),
        unique_for: Some(Span::secs(60)),
        unique_in: vec![JobState::Ready],
        ..defaults()
    };
    let own = read_with(
        r#"{"payload":1,"kind":"line","priority":0,"delay":"2s","unique_key":"u"}"#,
        &flags,
    )
    .unwrap();
    assert_eq!(
        (own.kind.as_str(), own.priority),
        ("line", Priority::Critical)
    );
    assert_eq!(own.run_at, Some(NOW.after(Span::secs(2))));
    let unique = own.unique.unwrap();
    assert_eq!(
        (unique.period, unique.states),
        (Some(Span::secs(60)), StateSet::of(&[JobState::Ready]))
    );
    let plain = read_with("1", &flags).unwrap();
    assert_eq!(
        (plain.kind.as_str(), plain.priority, plain.unique),
        ("flag", Priority::Low, None)
    );
    assert_eq!(plain.run_at, Some(NOW.after(Span::secs(1))));
}

#[test]
fn a_batch_gives_every_line_of_a_queue_its_own_id_for_ever() {
    let batch = PushDefaults {
        batch: Some("monday".to_owned()),
        ..defaults()
    };
    let id = |line: &str, number, defaults: &PushDefaults| {
        parse(line.as_bytes(), number, defaults, NOW, || {
            JobId::named("fresh")
        })
        .unwrap()
        .id
    };
    assert_eq!(id("1", 7, &batch), id("2", 7, &batch));
    assert_ne!(id("1", 7, &batch), id("1", 8, &batch));
    let elsewhere = PushDefaults {
        queue: QueueName::new("sms").unwrap(),
        ..batch.clone()
    };
    assert_ne!(id("1", 7, &batch), id("1", 7, &elsewhere));
    assert_eq!(
        id(r#"{"payload":1,"id":"x"}"#, 7, &batch),
        JobId::named("x")
    );
    assert_eq!(id("1", 7, &defaults()), JobId::named("fresh"));
}

#[test]
fn a_bad_line_says_why() {
    check_bad("{\"payload\":1", "not a job: EOF");
    check_bad("{\"payload\":1,\"kindd\":\"k\"}", "unknown field `kindd`");
    check_bad("{\"kind\":\"k\"}", "missing field `payload`");
    check_bad("{\"payload\":1,\"queue\":\"a b\"}", "not a queue name");
    check_bad("{\"payload\":1,\"delay\":\"soon\"}", "not a duration");
    check_bad(
        "{\"payload\":1,\"delay\":\"1s\",\"run_at\":\"2026-01-01T00:00:00Z\"}",
        "keep one",
    );
    check_bad(
        "{\"payload\":1,\"retry\":{\"kind\":\"magic\"}}",
        "not a kind of policy",
    );
    let error = read_with("{\"to\":", &defaults()).unwrap_err();
    assert!(error.contains("not JSON"), "{error}");
    let error = parse(b"\xff", 1, &defaults(), NOW, || JobId::named("f")).unwrap_err();
    assert!(error.contains("UTF-8"), "{error}");
}

#[test]
fn lines_are_unique_by_what_they_say_unless_they_name_a_key() {
    let by_user = PushDefaults {
        unique_by: Some(UniqueBy::Fields(vec!["/user".to_owned()])),
        ..defaults()
    };
    let key = |line: &str| {
        read_with(line, &by_user).map(|job| job.unique.map(|unique| unique.key.to_string()))
    };
    let one = key(r#"{"user":7,"n":1}"#).unwrap();
    assert_eq!(key(r#"{"payload":{"n":2,"user":7}}"#).unwrap(), one);
    assert_ne!(key(r#"{"user":8}"#).unwrap(), one);
    assert_eq!(
        key(r#"{"payload":{"user":7},"unique_key":"k"}"#).unwrap(),
        Some("k".to_owned())
    );
    assert!(key(r#"{"n":1}"#).unwrap_err().contains("nothing at /user"));
}
