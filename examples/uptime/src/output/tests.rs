use super::*;
use crate::given::{KEY, MINUTE_MS, event, result};
use bytes::Bytes;

const OWNER: Owner = Owner {
    organization: OrganizationId(1),
    detector: DetectorId(10),
};

fn read(line: &str) -> Value {
    assert!(!line.contains('\n'), "a line is one line");
    serde_json::from_str(line).unwrap()
}

#[test]
fn a_result_is_in_its_line_byte_for_byte() {
    let received = Received::read(result(5, "success", "us")).unwrap();
    let line = of_result(
        &event(5, Effect::Handled),
        &received,
        OWNER,
        Some(Standing::Up { failures: 0 }),
    );
    let text = str::from_utf8(&received.bytes).unwrap();
    assert!(line.contains(&format!(r#""result":{text}"#)), "{line}");
}

#[test]
fn line_breaks_between_the_fields_of_a_result_become_spaces() {
    let pretty = Bytes::from_static(include_bytes!("../wire/fixtures/assert_compile_error.json"));
    let received = Received::read(pretty).unwrap();
    let line = of_result(&event(5, Effect::Handled), &received, OWNER, None);
    let kept = read(&line)["result"].clone();
    assert_eq!(
        kept,
        serde_json::from_slice::<Value>(&received.bytes).unwrap()
    );
}

#[test]
fn a_line_says_whose_it_is_and_what_people_search_by() {
    let received = Received::read(result(5, "failure", "us")).unwrap();
    let down = Standing::Down {
        since_ms: 5,
        successes: 0,
    };
    let line = read(&of_result(
        &event(5, Effect::Handled),
        &received,
        OWNER,
        Some(down),
    ));
    assert_eq!(
        (
            &line["item_type"],
            &line["effect"],
            &line["timestamp_ms"],
            &line["organization_id"]
        ),
        (
            &"uptime_result".into(),
            &"handled".into(),
            &(5 * MINUTE_MS).into(),
            &1.into()
        )
    );
    let expected = serde_json::json!({
        "subscription_id": KEY.to_string(), "check_status": "failure", "status_reason_type": "timeout", "region": "us",
        "actual_check_time_ms": 300_250, "duration_ms": 12.5, "request_type": "GET", "http_status_code": 200,
        "mode": "active", "incident_status": "in_incident",
    });
    assert_eq!(line["attributes"], expected);
}

fn miss_of(minute: i64) -> Value {
    let following = CheckResult::read(&result(minute + 1, "success", "us")).unwrap();
    read(&of_miss(
        &event(minute, Effect::Miss),
        Some(&following),
        OWNER,
        0,
    ))
}

#[test]
fn a_miss_is_a_result_made_up_from_the_one_after_the_gap() {
    let miss = &miss_of(5)["result"];
    let made_up =
        CheckResult::read(miss.to_string().as_bytes()).expect("it has the form of a result");
    assert_eq!(made_up.status, Status::MissedWindow);
    assert_eq!(
        made_up.status_reason.unwrap().kind,
        ReasonType::MissBackfill
    );
    assert_eq!(made_up.scheduled_check_time_ms, 5 * MINUTE_MS);
    assert_eq!(made_up.actual_check_time_ms, 6 * MINUTE_MS + 250);
    assert_eq!(made_up.region.as_deref(), Some("us"));
    assert_eq!(
        (&miss["duration_ms"], &miss["request_info"]),
        (&0.into(), &Value::Null)
    );
    for id in ["guid", "trace_id", "span_id"] {
        let id = miss[id].as_str().unwrap();
        assert!(id.len() == 32 && !id.contains('-'), "{id}");
    }
}

#[test]
fn the_ids_of_a_miss_are_its_own_and_always_the_same() {
    let ids =
        |miss: Value| ["guid", "trace_id", "span_id"].map(|id| miss["result"][id].to_string());
    let (first, again, other) = (ids(miss_of(5)), ids(miss_of(5)), ids(miss_of(6)));
    assert_eq!(first, again);
    let mut all: Vec<_> = first.iter().chain(&other).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 6);
}

#[test]
fn a_miss_before_a_result_without_a_region_has_none_either() {
    let without = include_bytes!("../wire/fixtures/success.json");
    let following = CheckResult::read(without).unwrap();
    let miss = read(&of_miss(
        &event(5, Effect::Miss),
        Some(&following),
        OWNER,
        0,
    ));
    assert_eq!(miss["result"].get("region"), None);
    let alone = read(&of_miss(&event(5, Effect::Miss), None, OWNER, 777));
    assert_eq!(alone["result"]["actual_check_time_ms"], 777);
}

#[test]
fn a_range_of_misses_is_one_line_that_leaves_none_out() {
    let following = CheckResult::read(&result(500, "success", "us")).unwrap();
    let range = Effect::MissRange {
        to: 499 * MINUTE_MS,
        count: 399,
    };
    let line = read(&of_miss(&event(101, range), Some(&following), OWNER, 0));
    assert_eq!(
        (
            &line["effect"],
            &line["timestamp_ms"],
            &line["to_ms"],
            &line["count"]
        ),
        (
            &"miss_range".into(),
            &(101 * MINUTE_MS).into(),
            &(499 * MINUTE_MS).into(),
            &399.into()
        )
    );
}
