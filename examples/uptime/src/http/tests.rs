use super::*;

fn check(body: &str, expected: &[&str]) {
    let batch =
        batch(&Bytes::from(body.to_owned())).map_err(|refusal| refusal.into_response().status());
    assert_eq!(batch.unwrap(), expected, "{body}");
}

#[test]
fn a_result_may_be_written_on_several_lines() {
    check("{\n \"guid\": 1\n}\n", &["{\n \"guid\": 1\n}\n"]);
}

#[test]
fn several_results_are_on_a_line_each() {
    check(
        "{\"guid\":1}\n\r\n {\"guid\":2}\r\n",
        &["{\"guid\":1}", "{\"guid\":2}"],
    );
    check("{\"guid\":1}\nrubbish", &["{\"guid\":1}", "rubbish"]);
}

#[test]
fn a_body_without_results_or_with_too_many_is_refused() {
    let status =
        |body: String| batch(&body.into()).map_err(|refusal| refusal.into_response().status());
    assert_eq!(status(" \n\n".to_owned()), Err(StatusCode::BAD_REQUEST));
    assert_eq!(
        status("1\n".repeat(BODY_RESULTS_MAX + 1)),
        Err(StatusCode::PAYLOAD_TOO_LARGE)
    );
}
