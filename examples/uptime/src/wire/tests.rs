use super::*;
use crate::limits::RESULT_DEPTH_MAX;

/// The published shapes, and one with all that a checker sends.
const SHAPES: [(&str, &[u8]); 10] = [
    ("success", include_bytes!("fixtures/success.json")),
    ("failure", include_bytes!("fixtures/failure.json")),
    ("timeout", include_bytes!("fixtures/timeout.json")),
    ("miss", include_bytes!("fixtures/miss.json")),
    (
        "miss_backfill",
        include_bytes!("fixtures/miss_backfill.json"),
    ),
    ("disallowed", include_bytes!("fixtures/disallowed.json")),
    (
        "assert_failure",
        include_bytes!("fixtures/assert_failure.json"),
    ),
    (
        "assert_compile_error",
        include_bytes!("fixtures/assert_compile_error.json"),
    ),
    (
        "assert_runtime_error",
        include_bytes!("fixtures/assert_runtime_error.json"),
    ),
    ("as_sent", include_bytes!("fixtures/as_sent.json")),
];

fn shape(name: &str) -> CheckResult {
    let (_, bytes) = SHAPES
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a shape of that name");
    CheckResult::read(bytes).expect(name)
}

/// What became of a shape: status, reason, duration, code, region.
fn check(name: &str, expected: &str) {
    let result = shape(name);
    let reason = result
        .status_reason
        .map(|reason| serde_json::to_value(reason.kind).unwrap());
    let code = result.request_info.map(|request| request.http_status_code);
    let seen = format!(
        "{} {} {:?} {:?} {:?}",
        result.status,
        reason.as_ref().and_then(Value::as_str).unwrap_or("-"),
        result.duration_ms.and_then(|number| number.as_i64()),
        code.map(|code| code.and_then(|code| code.as_i64())),
        result.region,
    );
    assert_eq!(seen, expected, "{name}");
}

#[test]
fn every_published_shape_is_read() {
    check("success", "success - Some(50) Some(Some(200)) None");
    check(
        "failure",
        "failure dns_error Some(100) Some(Some(500)) None",
    );
    check("timeout", "failure timeout Some(100) Some(None) None");
    check("miss", "missed_window miss_produced None None None");
    check(
        "miss_backfill",
        "missed_window miss_backfill None None None",
    );
    check("disallowed", "disallowed_by_robots - None None None");
    check(
        "assert_failure",
        r#"failure failure Some(100) Some(Some(500)) Some("default")"#,
    );
    check(
        "assert_compile_error",
        r#"failure assertion_compilation_error Some(100) Some(Some(500)) Some("default")"#,
    );
    check(
        "assert_runtime_error",
        r#"failure assertion_evaluation_error Some(100) Some(Some(500)) Some("default")"#,
    );
    check(
        "as_sent",
        r#"failure redirect_error Some(75) Some(Some(302)) Some("us-west")"#,
    );
}

#[test]
fn the_published_ids_and_times_are_understood() {
    let result = shape("success");
    assert_eq!(result.guid.to_string(), "54afc7ed9c53491481919c931f75bae1");
    assert_eq!(
        result.subscription_id.to_string(),
        "5421b5df80744113a6b57014f01a3a42"
    );
    assert_eq!(
        result.trace_id.to_string(),
        "947efba02dac463b9c1d886a44bafc94"
    );
    assert_eq!(
        (result.scheduled_check_time_ms, result.actual_check_time_ms),
        (1_717_614_062_978, 1_717_614_068_008)
    );
}

#[test]
fn what_a_checker_sends_beyond_the_schema_is_read_too() {
    let result = shape("as_sent");
    let request = result.request_info.unwrap();
    assert_eq!(
        request.response_headers.unwrap()[0],
        ("location".to_owned(), "/a".to_owned())
    );
    assert_eq!(
        request
            .durations
            .unwrap()
            .dns_lookup
            .unwrap()
            .duration_us
            .as_i64(),
        Some(900)
    );
    assert_eq!(result.request_info_list.len(), 2);
    assert_eq!(
        shape("assert_compile_error")
            .status_reason
            .unwrap()
            .details
            .unwrap()["pos"],
        8
    );
    assert_eq!(
        shape("assert_failure").assertion_failure_data.unwrap()["child"]["kind"],
        "leaf"
    );
}

#[test]
fn the_bytes_stay_as_they_came() {
    for (name, bytes) in SHAPES {
        let received = Received::read(Bytes::from_static(bytes)).unwrap();
        assert_eq!(received.bytes, bytes, "{name}");
    }
}

/// Reads the success shape after one change to its text.
fn changed(from: &str, to: &str) -> Result<CheckResult, Broken> {
    let text = str::from_utf8(SHAPES[0].1).unwrap();
    assert!(text.contains(from), "{from} is part of the shape");
    CheckResult::read(text.replacen(from, to, 1).as_bytes())
}

fn check_broken(from: &str, to: &str, expected: &str) {
    let broken = changed(from, to).expect_err(to);
    assert_eq!(broken.to_string(), expected);
}

#[test]
fn a_broken_result_says_what_is_wrong_with_it() {
    check_broken(r#""status": "success","#, "", "`status` is missing");
    check_broken(
        r#""status_reason": null,"#,
        "",
        "`status_reason` is missing",
    );
    check_broken(
        r#""success""#,
        r#""great""#,
        "`status` is \"great\": unknown variant `great`, expected one of `success`, `failure`, `missed_window`, \
         `disallowed_by_robots`",
    );
    check_broken(
        r#""5421b5df80744113a6b57014f01a3a42""#,
        r#""5421b5df-8074-4113-a6b5-7014f01a3a42""#,
        "`subscription_id` is \"5421b5df-8074-4113-a6b5-7014f01a3a42\": must be 32 hex digits without dashes",
    );
    check_broken(
        r#""58e84098e63f42e1""#,
        r#""58e84098""#,
        "`span_id` is \"58e84098\": must be 16 or 32 hex digits without dashes",
    );
    check_broken(
        "1717614062978",
        "\"soon\"",
        "`scheduled_check_time_ms` is \"soon\": invalid type: string \"soon\", expected a JSON number",
    );
    for time in ["1717614062978.5", "-1", "1e17", "253402300800000"] {
        let broken = changed("1717614062978", time).expect_err(time).to_string();
        assert!(
            broken.ends_with("must be whole milliseconds since 1970"),
            "{broken}"
        );
    }
    check_broken(
        r#"{ "request_type": "HEAD", "http_status_code": 200 }"#,
        r#"{ "request_type": "HEAD" }"#,
        "`request_info` is { \"request_type\": \"HEAD\" }: missing field `http_status_code`",
    );
}

#[test]
fn what_is_no_json_object_is_broken() {
    let check = |bytes: &[u8], expected: &str| {
        let broken = CheckResult::read(bytes).expect_err(expected).to_string();
        assert!(broken.contains(expected), "{broken}");
    };
    check(b"", "nothing");
    check(b"[1,2]", "[1,2]");
    check(b"{\"guid\":", "EOF while parsing");
    check(b"{} {}", "trailing characters");
    check(b"{\"guid\":\"a\",\"guid\":\"b\"}", "duplicate field `guid`");
    check(b"{\"name\":\"\xff\"}", "not UTF-8 from byte 9 on");
    check(&vec![b' '; RESULT_BYTES_MAX + 1], "1048577 bytes");
}

#[test]
fn a_result_may_be_nested_only_so_deep_even_where_nobody_looks() {
    let nested = |depth: usize| {
        let value = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        changed(
            "\"success\"",
            &format!("\"success\", \"somebody's\": {value}"),
        )
    };
    nested(RESULT_DEPTH_MAX - 1).expect("the object around it counts");
    assert_eq!(
        nested(RESULT_DEPTH_MAX),
        Err(Broken::TooDeep(RESULT_DEPTH_MAX + 1))
    );
    let brackets = format!("\"{}\\\"{}\"", "[".repeat(500), "{".repeat(500));
    changed("\"success\"", &format!("\"success\", \"text\": {brackets}"))
        .expect("text has no depth");
}

#[test]
fn a_long_value_is_cut_short_in_the_message() {
    let broken =
        changed("\"success\"", &format!("\"{}\"", "ä".repeat(500))).expect_err("no such status");
    let Broken::Wrong { found, .. } = broken else {
        panic!("{broken}")
    };
    assert_eq!(found.chars().count(), 61);
    assert!(found.ends_with('…'));
}

#[test]
fn what_nothing_is_decided_by_may_be_new() {
    let result = changed("\"HEAD\"", "\"TRACE\"").unwrap();
    assert_eq!(
        result.request_info.unwrap().request_type,
        RequestType::Other("TRACE".to_owned())
    );
    let result = changed(
        "null",
        r#"{"type":"quic_error","description":"?","details":{"type":"new"}}"#,
    )
    .unwrap();
    assert_eq!(
        result.status_reason.unwrap().kind,
        ReasonType::Other("quic_error".to_owned())
    );
}

#[test]
fn a_time_may_be_written_as_a_float_and_an_id_in_capitals() {
    assert_eq!(
        changed("1717614062978", "1717614062978.0").unwrap(),
        shape("success")
    );
    let capitals = changed(
        "54afc7ed9c53491481919c931f75bae1",
        "54AFC7ED9C53491481919C931F75BAE1",
    )
    .unwrap();
    assert_eq!(capitals, shape("success"));
}
