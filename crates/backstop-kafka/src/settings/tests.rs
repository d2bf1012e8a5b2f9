use super::{KafkaProperties, KafkaSettings};
use std::time::Duration;

#[track_caller]
fn check(change: impl FnOnce(&mut KafkaSettings), said: &str) {
    let mut settings = KafkaSettings::new("localhost:9092", ["orders"], "billing");
    change(&mut settings);
    let answer = settings
        .check()
        .map_or_else(|error| error.to_string(), |()| "fine".to_owned());
    assert_eq!(answer, said);
}

#[test]
fn the_defaults_are_fine() {
    check(|_| {}, "fine");
}

#[test]
fn names_must_be_there() {
    check(
        |settings| settings.brokers = " ".into(),
        "`brokers` is empty; say at least one",
    );
    check(
        |settings| settings.topics.clear(),
        "`topics` is empty; say at least one",
    );
    check(
        |settings| settings.group.clear(),
        "`group` is empty; say at least one",
    );
}

#[test]
fn a_topic_has_a_name_that_kafka_allows() {
    let said = "`a b` cannot be a topic: names have 1 to 249 of A-Z a-z 0-9 . _ -";
    check(|settings| settings.topics.push("a b".into()), said);
    check(
        |settings| settings.topics.push("Orders.v2_late-1".into()),
        "fine",
    );
    let mut settings = KafkaSettings::new("localhost:9092", ["x".repeat(250)], "billing");
    settings.check().unwrap_err();
    settings.topics = vec![String::new()];
    settings.check().unwrap_err();
}

#[test]
fn bounds_have_bounds() {
    check(
        |settings| settings.batch_records_max = 0,
        "`batch_records_max` is 0; set it to 1 or more, 5000 or less",
    );
    check(
        |settings| settings.partition_batches_max = 65,
        "`partition_batches_max` is 65; set it to 1 or more, 64 or less",
    );
    check(
        |settings| settings.session_timeout = Duration::from_millis(900),
        "`session_timeout` is 900ms; set it to 1s or more, 300s or less",
    );
    check(
        |settings| settings.stop_wait = Duration::from_secs(601),
        "`stop_wait` is 601s; set it to 0ns or more, 600s or less",
    );
}

#[test]
fn a_bound_holds_what_has_to_fit_into_it() {
    check(
        |settings| settings.partition_uncommitted_max = 499,
        "`partition_uncommitted_max` is smaller than `batch_records_max`, so nothing could move; \
         raise the one or lower the other",
    );
    check(
        |settings| settings.partition_waiting_max = 499,
        "`partition_waiting_max` is smaller than `batch_records_max`, so nothing could move; \
         raise the one or lower the other",
    );
    check(
        |settings| settings.records_max = 19_999,
        "`records_max` is smaller than `partition_waiting_max`, so nothing could move; \
         raise the one or lower the other",
    );
    check(
        |settings| settings.bytes_max = 1_000,
        "`bytes_max` is smaller than `batch_bytes_max`, so nothing could move; raise the one or lower the other",
    );
}

#[test]
fn what_the_source_depends_on_is_not_the_users_to_set() {
    check(
        |settings| settings.properties.set("enable.auto.commit", "true"),
        "the property `enable.auto.commit` is set by the source itself; remove it from `properties`",
    );
    check(
        |settings| {
            settings
                .properties
                .set("security.protocol", "sasl_plaintext");
        },
        "fine",
    );
}

#[test]
fn properties_are_shown_without_their_values() {
    let properties =
        KafkaProperties::from_iter([("sasl.password", "hunter2"), ("sasl.username", "joe")]);
    let mut settings = KafkaSettings::new("localhost:9092", ["orders"], "billing");
    settings.properties = properties;
    let shown = format!("{settings:?}");
    assert!(shown.contains("sasl.password"), "{shown}");
    assert!(
        !shown.contains("hunter2") && !shown.contains("joe"),
        "{shown}"
    );
}
