use super::*;
use proptest::prelude::*;

fn check_span(text: &str, micros: Option<i64>) {
    assert_eq!(
        text.parse::<Span>().ok().map(Span::as_micros),
        micros,
        "{text}"
    );
}

#[test]
fn a_duration_is_a_number_and_a_unit() {
    check_span("500ms", Some(500_000));
    check_span("10s", Some(10_000_000));
    check_span("5m", Some(300_000_000));
    check_span("1h", Some(3_600_000_000));
    check_span("1d", Some(86_400_000_000));
    check_span("1.5s", Some(1_500_000));
    check_span("0s", Some(0));
    check_span("7us", Some(7));
}

#[test]
fn anything_else_is_refused() {
    for text in [
        "",
        "10",
        "s",
        "-1s",
        "1 s",
        "1w",
        "1..5s",
        "1.s",
        ".5s",
        "0.5us",
        "1s1s",
        "99999999999999999999d",
    ] {
        check_span(text, None);
    }
}

#[test]
fn a_time_reads_back_as_written() {
    let time = Time::from_micros(1_717_614_062_978_001);
    assert_eq!(time.to_string(), "2024-06-05T19:01:02.978001Z");
    assert_eq!(time.to_string().parse(), Ok(time));
    assert_eq!(
        "2026-11-15 08:30".parse::<Time>(),
        Err(InvalidTime("2026-11-15 08:30".into()))
    );
}

#[test]
fn arithmetic_stops_at_the_ends() {
    assert_eq!(
        Time::from_micros(i64::MAX).after(Span::days(1)),
        Time::from_micros(i64::MAX)
    );
    assert_eq!(Time::from_micros(5).since(Time::from_micros(9)), Span::ZERO);
    assert_eq!(Span::days(i64::MAX).times(2), Span::micros(i64::MAX));
    assert_eq!(Span::secs(1).scaled(f64::NAN), Span::ZERO);
    assert_eq!(Span::secs(1).scaled(f64::INFINITY), Span::micros(i64::MAX));
}

proptest! {
    #[test]
    fn a_duration_reads_back_as_written(micros in 0..i64::MAX) {
        let span = Span::micros(micros);
        prop_assert_eq!(span.to_string().parse::<Span>(), Ok(span));
    }
}
