//! What an answer means for the job. Decides only; reads no clock and no socket.

use backstop_core::verdict::FailureAdvice;
use backstop_core::{Span, Time};
use std::time::UNIX_EPOCH;

/// The longest wait a service can ask for: one that means a week is taken to be broken, and asked
/// again tomorrow.
const RETRY_AFTER_MAX: Span = Span::hours(24);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ResponseOutcome {
    Done,
    Failed(FailureAdvice),
}

/// What a status means, with the `Retry-After` beside it.
pub(super) fn classify(status: u16, retry_after: Option<&str>, now: Time) -> ResponseOutcome {
    match status {
        200..=299 => ResponseOutcome::Done,
        410 | 422 => ResponseOutcome::Failed(FailureAdvice::Dead),
        429 | 503 => {
            let wait = retry_after.and_then(|text| wait(text, now));
            ResponseOutcome::Failed(wait.map_or(FailureAdvice::Retry, FailureAdvice::RetryAfter))
        }
        _ => ResponseOutcome::Failed(FailureAdvice::Retry),
    }
}

/// The wait a `Retry-After` asks for: seconds, or a date. `None` if it is neither.
fn wait(text: &str, now: Time) -> Option<Span> {
    let text = text.trim();
    seconds(text)
        .or_else(|| Some(date(text)?.since(now)))
        .map(|wait| wait.min(RETRY_AFTER_MAX))
}

/// Whole seconds. Below zero is now, as a date in the past is; too many digits for a number is
/// still a long time.
fn seconds(text: &str) -> Option<Span> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let is_negative = digits.len() < text.len();
    Some(if is_negative {
        Span::ZERO
    } else {
        Span::secs(digits.parse().unwrap_or(i64::MAX))
    })
}

/// Any of the three forms of RFC 9110.
fn date(text: &str) -> Option<Time> {
    let date = httpdate::parse_http_date(text).ok()?;
    // Before 1970 is as past as 1970.
    let since_1970 = date.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(Time::from_micros(
        i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1994-11-06T08:49:37Z, the date of the RFC's examples.
    const NOW: Time = Time::from_millis(784_111_777_000);

    fn check(status: u16, retry_after: Option<&str>, expected: ResponseOutcome) {
        assert_eq!(
            classify(status, retry_after, NOW),
            expected,
            "{status}, Retry-After: {retry_after:?}"
        );
    }

    const RETRY: ResponseOutcome = ResponseOutcome::Failed(FailureAdvice::Retry);
    const DEAD: ResponseOutcome = ResponseOutcome::Failed(FailureAdvice::Dead);

    const fn after(wait: Span) -> ResponseOutcome {
        ResponseOutcome::Failed(FailureAdvice::RetryAfter(wait))
    }

    #[test]
    fn the_status_decides() {
        for (statuses, expected) in [
            (
                &[200, 201, 202, 204, 206, 226, 299][..],
                ResponseOutcome::Done,
            ),
            (&[410, 422], DEAD),
            (&[429, 503], RETRY),
            (&[100, 101, 199, 300, 301, 302, 303, 304, 307, 308], RETRY),
            (
                &[
                    400, 401, 403, 404, 405, 408, 409, 411, 413, 415, 418, 421, 423, 425, 451, 499,
                ],
                RETRY,
            ),
            (&[500, 501, 502, 504, 505, 599, 600, 999], RETRY),
        ] {
            for status in statuses {
                check(*status, None, expected);
            }
        }
    }

    #[test]
    fn retry_after_counts_for_429_and_503_alone() {
        for status in [429, 503] {
            check(status, Some("7"), after(Span::secs(7)));
        }
        for (status, expected) in [
            (200, ResponseOutcome::Done),
            (422, DEAD),
            (500, RETRY),
            (301, RETRY),
            (502, RETRY),
        ] {
            check(status, Some("7"), expected);
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_within_bounds() {
        for (text, expected) in [
            ("0", after(Span::ZERO)),
            (" 120 ", after(Span::secs(120))),
            ("007", after(Span::secs(7))),
            ("-1", after(Span::ZERO)),
            ("86400", after(RETRY_AFTER_MAX)),
            ("86401", after(RETRY_AFTER_MAX)),
            ("9223372036854775807", after(RETRY_AFTER_MAX)),
            ("99999999999999999999999999", after(RETRY_AFTER_MAX)),
            ("-99999999999999999999999999", after(Span::ZERO)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", after(Span::minutes(1))),
            ("Sunday, 06-Nov-94 08:50:37 GMT", after(Span::minutes(1))),
            ("Sun Nov  6 08:50:37 1994", after(Span::minutes(1))),
            ("Sun, 06 Nov 1994 08:49:37 GMT", after(Span::ZERO)),
            ("Sun, 06 Nov 1994 08:49:36 GMT", after(Span::ZERO)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", after(Span::ZERO)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", after(RETRY_AFTER_MAX)),
        ] {
            check(503, Some(text), expected);
        }
    }

    #[test]
    fn a_retry_after_that_says_nothing_leaves_the_policys_wait() {
        for text in [
            "",
            " ",
            "-",
            "soon",
            "1.5",
            "+3",
            "1e3",
            "0x10",
            "3s",
            "Sun, 06 Nov 1994",
            "٣",
        ] {
            check(429, Some(text), RETRY);
        }
    }
}
