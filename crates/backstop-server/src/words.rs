//! Numbers and times as people read them.

pub use backstop_core::terminal::one_line;
use backstop_core::{Kind, Span, Time};

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

/// Bytes in the largest unit that leaves something before the point: `512 B`, `12 MiB`, `1.5 GiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    // Tenths, so that small numbers keep one digit behind the point.
    let mut tenths = u128::from(bytes) * 10;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1_024;
        unit += 1;
    }
    match (tenths / 10, tenths % 10) {
        (whole @ 0..10, part @ 1..) => format!("{whole}.{part} {}", UNITS[unit]),
        (whole, _) => format!("{whole} {}", UNITS[unit]),
    }
}

pub fn counted(number: u64, one: &str) -> String {
    format!(
        "{} {one}{}",
        count(number),
        if number == 1 { "" } else { "s" }
    )
}

/// A length of time in its two largest units, without parts of a second.
pub fn about(span: Span) -> String {
    let secs = span.as_micros() / 1_000_000;
    if secs == 0 {
        span.plain()
    } else {
        Span::secs(secs).plain()
    }
}

/// A length of time as people read it, to a tenth of a second.
pub fn span(span: Span) -> String {
    span.plain()
}

/// An instant as seen from `now`: `in 5m`, `2h 3m ago`.
pub fn relative(at: Time, now: Time) -> String {
    if at > now {
        format!("in {}", about(at.since(now)))
    } else {
        format!("{} ago", about(now.since(at)))
    }
}

/// An instant as people read it: to the millisecond at most.
pub fn instant(at: Time) -> String {
    cut_digits(&at.to_string(), 3)
}

/// A text of ours in which instants are written to the second: what is finer than that is for
/// programs.
pub fn to_the_second(text: &str) -> String {
    cut_digits(text, 0)
}

/// A text of ours in which instants are written to the millisecond.
pub fn to_the_millisecond(text: &str) -> String {
    cut_digits(text, 3)
}

/// A text in which the seconds of instants have at most so many digits behind the point.
fn cut_digits(text: &str, max: usize) -> String {
    let (mut shortened, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('.') {
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let is_instant = digits > 0
            && after[digits..].starts_with('Z')
            && before.ends_with(|c: char| c.is_ascii_digit());
        shortened.push_str(before);
        let kept = if is_instant {
            &after[..digits.min(max)]
        } else {
            ""
        };
        if !is_instant || !kept.is_empty() {
            shortened.push('.');
        }
        shortened.push_str(kept);
        rest = if is_instant { &after[digits..] } else { after };
    }
    shortened.push_str(rest);
    shortened
}

/// At most so many characters, with the cut shown.
pub fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars()
        .take(chars_max.saturating_sub(1))
        .chain(['…'])
        .collect()
}

/// A kind in a list: one that nobody named is none.
pub fn kind(kind: &Kind) -> String {
    if *kind == Kind::default() {
        "–".to_owned()
    } else {
        kind.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (123_456, "123,456"),
            (1_234_567, "1,234,567"),
        ];
        for (number, text) in cases {
            assert_eq!(count(number), text);
        }
        assert_eq!(
            (counted(1, "job"), counted(1_000, "job")),
            ("1 job".to_owned(), "1,000 jobs".to_owned())
        );
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
            (
                Span::days(3).plus(Span::hours(4)).plus(Span::minutes(5)),
                "3d 4h",
            ),
        ];
        for (span, text) in cases {
            assert_eq!(about(span), text);
        }
        let finer = [
            Span::micros(3),
            Span::micros(1_234_567),
            Span::secs(90),
            Span::ZERO,
        ]
        .map(span);
        assert_eq!(finer, ["1ms", "1.2s", "1m 30s", "0s"]);
    }

    #[test]
    fn instants_in_a_sentence_are_told_as_finely_as_people_want() {
        let told = "since 2026-11-17T09:01:02.447491Z; 1.5 s. of 3.Z, 2026-11-17T09:01:02.5Z and 2026-11-17T09:01:02Z.";
        assert_eq!(
            to_the_second(told),
            "since 2026-11-17T09:01:02Z; 1.5 s. of 3.Z, 2026-11-17T09:01:02Z and 2026-11-17T09:01:02Z."
        );
        assert_eq!(
            to_the_millisecond(told),
            "since 2026-11-17T09:01:02.447Z; 1.5 s. of 3.Z, 2026-11-17T09:01:02.5Z and 2026-11-17T09:01:02Z."
        );
        assert_eq!(
            instant(Time::from_micros(1_767_225_600_000_123)),
            "2026-01-01T00:00:00.000Z"
        );
        assert_eq!(
            instant(Time::from_millis(1_767_225_600_000)),
            "2026-01-01T00:00:00Z"
        );
    }

    #[test]
    fn bytes_are_told_in_their_largest_unit() {
        let told = [
            0,
            512,
            1_024,
            1_536,
            12 << 20,
            (1 << 30) + (1 << 29),
            20 << 30,
            u64::MAX,
        ]
        .map(bytes);
        let expected = [
            "0 B",
            "512 B",
            "1 KiB",
            "1.5 KiB",
            "12 MiB",
            "1.5 GiB",
            "20 GiB",
            "16777215 TiB",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn what_is_cut_shows_that_it_was() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
    }
}
