use super::*;
use crate::generate::{Plan, generate};

fn check(bytes: &'static [u8], expected: &str) {
    let arrival = Arrival {
        at_ms: 5,
        bytes: Bytes::from_static(bytes),
    };
    assert_eq!(arrival.to_line(), expected);
    assert_eq!(Arrival::from_line(expected).unwrap(), arrival);
}

#[test]
fn bytes_come_back_from_a_trace_as_they_were() {
    check(
        br#"{"a" : 1.50,"b":[]}"#,
        r#"{"at_ms":5,"result":{"a" : 1.50,"b":[]}}"#,
    );
    check(br#"{"a":"#, r#"{"at_ms":5,"hex":"7b2261223a"}"#);
    check(b"{\n}", r#"{"at_ms":5,"hex":"7b0a7d"}"#);
    check(b" {}", r#"{"at_ms":5,"hex":"207b7d"}"#);
    check(b"null", r#"{"at_ms":5,"hex":"6e756c6c"}"#);
    check(b"\xff\x00", r#"{"at_ms":5,"hex":"ff00"}"#);
    check(b"", r#"{"at_ms":5,"hex":""}"#);
}

#[test]
fn a_line_that_is_no_arrival_is_refused() {
    for line in [
        "{}",
        r#"{"at_ms":5}"#,
        r#"{"at_ms":5,"hex":"7b0"}"#,
        r#"{"at_ms":5,"hex":"+1"}"#,
        r#"{"at_ms":5,"result":{},"hex":""}"#,
        r#"{"at_ms":5,"result":{},"colour":1}"#,
    ] {
        assert!(Arrival::from_line(line).is_err(), "{line}");
    }
}

#[test]
fn a_world_comes_back_from_its_folder_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan {
        subscriptions: 20,
        minutes: 10,
        broken: 0.2,
        ..Plan::default()
    };
    let world = generate(&plan).unwrap();
    world.write(folder.path()).unwrap();
    assert_eq!(World::read(folder.path()).unwrap(), world);
}

#[test]
fn a_trace_out_of_order_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = generate(&Plan {
        subscriptions: 2,
        minutes: 3,
        ..Plan::default()
    })
    .unwrap();
    world.trace.reverse();
    world.write(folder.path()).unwrap();
    let refused = World::read(folder.path())
        .expect_err("it runs backwards")
        .to_string();
    assert_eq!(refused, "trace.ndjson is not in the order of `at_ms`");
}
