//! Numbers, spans and times as people read them.

pub use crate::words::{bytes, count, to_the_second};
use backstop_core::{Kind, Span, Time};

/// A count that stops being exact at `max`: `500,000+`.
pub fn capped(found: u64, max: u64) -> String {
    if found >= max {
        format!("{}+", count(max))
    } else {
        count(found)
    }
}

/// A span in its two largest units: `3 d 4 h`, `1.2 s`, `40 ms`.
pub fn span(span: Span) -> String {
    let millis = span.as_millis();
    let seconds = millis / 1_000;
    match seconds {
        0 if millis < 1 && !span.is_zero() => "< 1 ms".to_owned(),
        0 => format!("{millis} ms"),
        1..10 => format!("{}.{} s", seconds, millis % 1_000 / 100),
        10..60 => format!("{seconds} s"),
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

fn two(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large} {large_unit}")
    } else {
        format!("{large} {large_unit} {small} {small_unit}")
    }
}

/// An instant to the second, in UTC: `2026-11-17T08:30:00Z`.
pub fn second(time: Time) -> String {
    Time::from_micros(
        time.as_micros()
            .div_euclid(1_000_000)
            .saturating_mul(1_000_000),
    )
    .to_string()
}

/// How long ago, or how soon: `3 min ago`, `in 20 s`.
pub fn when(time: Time, now: Time) -> String {
    if time > now {
        format!("in {}", span(time.since(now)))
    } else {
        format!("{} ago", span(now.since(time)))
    }
}

/// A share in whole per cent, rounded; what is something never as nothing, and what is not all
/// never as all.
pub fn share(part: u64, whole: u64) -> String {
    let whole = whole.max(1);
    let percent = (part.saturating_mul(100).saturating_add(whole / 2)) / whole;
    match percent {
        0 if part > 0 => "< 1 %".to_owned(),
        100 if part < whole => "> 99 %".to_owned(),
        percent => format!("{percent} %"),
    }
}

/// One or many: `1 job`, `2 jobs`.
pub fn many(number: u64, one: &str, more: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { more })
}

/// A kind in a list, as words of the command line have it.
pub fn kind(kind: &Kind) -> String {
    name(&crate::words::kind(kind))
}

/// A name or a message that somebody else gave, so that there is something to see and to click on:
/// one of spaces and characters without a picture is written as their numbers.
pub fn name(text: &str) -> String {
    let is_blank = |letter: char| {
        let is_format = matches!(letter, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{2800}' | '\u{3164}');
        letter.is_whitespace() || letter.is_control() || is_format
    };
    if text.is_empty() {
        return "(nothing)".to_owned();
    }
    if text.chars().all(is_blank) {
        return text.escape_unicode().to_string();
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_be_seen() {
        for (text, expected) in [
            ("welcome", "welcome"),
            (" a ", " a "),
            ("", "(nothing)"),
            ("\u{202e}gnp", "\u{202e}gnp"),
            (" ", "\\u{20}"),
            ("\u{200b}\n", "\\u{200b}\\u{a}"),
        ] {
            assert_eq!(name(text), expected);
        }
    }

    #[test]
    fn shares_are_rounded_and_never_to_nothing_or_all() {
        for (part, whole, expected) in [
            (0, 0, "0 %"),
            (0, 6, "0 %"),
            (1, 6, "17 %"),
            (1, 3, "33 %"),
            (6, 6, "100 %"),
            (1, 1_000, "< 1 %"),
            (999, 1_000, "> 99 %"),
        ] {
            assert_eq!(share(part, whole), expected, "{part} of {whole}");
        }
    }

    #[test]
    fn numbers_and_spans_are_written_as_people_write_them() {
        assert_eq!(
            (count(1_234_567), count(999)),
            ("1,234,567".to_owned(), "999".to_owned())
        );
        assert_eq!(
            (capped(499_999, 500_000), capped(700_000, 500_000)),
            ("499,999".to_owned(), "500,000+".to_owned())
        );
        for (spanned, expected) in [
            (Span::ZERO, "0 ms"),
            (Span::micros(5), "< 1 ms"),
            (Span::millis(40), "40 ms"),
            (Span::millis(1_250), "1.2 s"),
            (Span::secs(75), "1 min 15 s"),
            (Span::minutes(180), "3 h"),
            (Span::hours(30), "1 d 6 h"),
        ] {
            assert_eq!(span(spanned), expected);
        }
    }
}
