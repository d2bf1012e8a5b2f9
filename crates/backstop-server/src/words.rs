//! Numbers and times as people read them.

use backstop_core::{Span, Time};

/// `1234567` as `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 job`, `2 jobs`.
pub fn counted(number: u64, one: &str) -> String {
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A length of time in its two largest units.
pub fn about(span: Span) -> String {
    const UNITS: [(&str, i64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let secs = span.as_micros() / 1_000_000;
    if secs == 0 {
        return if span.is_zero() { "0s".to_owned() } else { format!("{}ms", span.as_millis().max(1)) };
    }
    let largest = UNITS.iter().position(|(_, size)| secs >= *size).unwrap_or(UNITS.len() - 1);
    let mut left = secs;
    let mut parts = Vec::new();
    for (unit, size) in &UNITS[largest..(largest + 2).min(UNITS.len())] {
        if left / size > 0 {
            parts.push(format!("{}{unit}", left / size));
        }
        left %= size;
    }
    parts.join(" ")
}

/// An instant as seen from `now`: `in 5m`, `2h 3m ago`.
pub fn relative(at: Time, now: Time) -> String {
    if at > now { format!("in {}", about(at.since(now))) } else { format!("{} ago", about(now.since(at))) }
}

/// One line of text that cannot move the cursor, ring the bell or hide what follows.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// At most so many characters, with the cut shown.
pub fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let cases =
            [(0, "0"), (999, "999"), (1_000, "1,000"), (123_456, "123,456"), (1_234_567, "1,234,567")];
        for (number, text) in cases {
            assert_eq!(count(number), text);
        }
        assert_eq!((counted(1, "job"), counted(1_000, "job")), ("1 job".to_owned(), "1,000 jobs".to_owned()));
    }

    #[test]
    fn a_length_of_time_has_two_units() {
        let cases = [
            (Span::ZERO, "0s"),
            (Span::micros(3), "1ms"),
            (Span::millis(250), "250ms"),
            (Span::secs(59), "59s"),
            (Span::secs(61), "1m 1s"),
            (Span::secs(3_600), "1h"),
            (Span::secs(3_661), "1h 1m"),
            (Span::days(3).plus(Span::hours(4)).plus(Span::minutes(5)), "3d 4h"),
        ];
        for (span, text) in cases {
            assert_eq!(about(span), text);
        }
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(one_line("a\x1b[31mb\nc\td"), "a [31mb c d");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
    }
}
