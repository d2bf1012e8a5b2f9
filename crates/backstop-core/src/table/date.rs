//! Dates as tables store them: in a type of the database, as text, or as a number since 1970. A
//! date is read in every form, and written in the form that the column has.
//!
//! | form | such as | recognized by |
//! |---|---|---|
//! | native | a timestamp of PostgreSQL or MySQL | the type of the column |
//! | text | `2026-03-01 12:00:00`, `2026-03-01T12:00:00.250Z` | the latest values |
//! | seconds, millis, micros | `1772366400`, `1772366400000` | the size of the values |
//!
//! A text is a date, or a date and a time: `YYYY-MM-DD`, then a space or a T and `HH:MM:SS`, then
//! at most nine decimal places behind a point, then a zone: `Z`, `+02:00`, `+02`, or none for UTC.
//! A date alone means its first moment. Every other text is no date. A query that compares dates
//! must apply the same rule, or it would select a row that the rules cannot judge.

use crate::time::Time;
use serde::{Deserialize, Serialize};

/// The form in which a column stores dates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DateForm {
    /// The database's own type, with this many decimal places of a second.
    Native {
        digits: u8,
    },
    Text(TextDateForm),
    /// A number of whole seconds since 1970.
    Seconds,
    /// A number of whole milliseconds since 1970.
    Millis,
    /// A number of whole microseconds since 1970.
    Micros,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextDateForm {
    /// The character between date and time: a space or a T.
    pub separator: char,
    /// Decimal places of a second, from 0 to 6.
    pub digits: u8,
    /// The zone at the end of the text.
    pub zone: TextZone,
    /// Whether all values seen were in UTC and in one form, so that the texts sort as their times
    /// do.
    pub is_uniform: bool,
}

/// How a text marks that it is in UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TextZone {
    Missing,
    Letter,
    Offset,
}

/// The date form that the user configured for a table, instead of having it detected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DateFormat {
    Text,
    Rfc3339,
    Seconds,
    Millis,
    Micros,
}

/// A date as a column holds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DateValue {
    Number(i64),
    /// Text; dates of a native type are passed as text, too.
    Text(String),
}

/// Numbers from here on are milliseconds: as seconds, this one would be in the year 5138.
const MILLIS_FROM: i64 = 100_000_000_000;
/// Numbers from here on are microseconds.
const MICROS_FROM: i64 = 100_000_000_000_000;
/// The number of characters of a date and time without decimal places.
const TO_THE_SECOND: usize = 19;

impl TextDateForm {
    pub const PLAIN: Self = Self {
        separator: ' ',
        digits: 0,
        zone: TextZone::Missing,
        is_uniform: true,
    };
    pub const RFC3339: Self = Self {
        separator: 'T',
        digits: 0,
        zone: TextZone::Letter,
        is_uniform: true,
    };

    /// Writes the time in this form; decimal places that the form does not have are cut off.
    pub fn write(&self, time: Time) -> String {
        let zone = match self.zone {
            TextZone::Missing => "",
            TextZone::Letter => "Z",
            TextZone::Offset => "+00:00",
        };
        format!("{}{zone}", self.with_digits(time, self.digits))
    }

    /// Writes the time without decimal places: the common prefix of all values of that second.
    pub fn second(&self, time: Time) -> String {
        self.with_digits(time, 0)
    }

    /// Writes only the day, which is the same in all forms.
    pub fn day(time: Time) -> String {
        canonical(time).chars().take(10).collect()
    }

    /// Whether texts of both forms sort as their times do. Before a zone, the number of decimal
    /// places must be the same.
    fn sorts_with(self, other: Self) -> bool {
        let is_alike = (self.separator, self.zone) == (other.separator, other.zone);
        let has_as_many = self.zone == TextZone::Missing || self.digits == other.digits;
        self.is_uniform && other.is_uniform && is_alike && has_as_many
    }

    fn with_digits(self, time: Time, digits: u8) -> String {
        let all = canonical(time);
        let end = if digits == 0 {
            TO_THE_SECOND
        } else {
            TO_THE_SECOND + 1 + usize::from(digits.min(6))
        };
        let cut: String = all.chars().take(end).collect();
        if self.separator == ' ' {
            cut
        } else {
            cut.replacen(' ', &self.separator.to_string(), 1)
        }
    }
}

impl DateForm {
    /// The date form that the user configured.
    pub const fn declared_format(declared_format: DateFormat) -> Self {
        match declared_format {
            DateFormat::Text => Self::Text(TextDateForm::PLAIN),
            DateFormat::Rfc3339 => Self::Text(TextDateForm::RFC3339),
            DateFormat::Seconds => Self::Seconds,
            DateFormat::Millis => Self::Millis,
            DateFormat::Micros => Self::Micros,
        }
    }

    /// Detects the form of numbers from their median. So a few numbers that are no dates, such as
    /// one for "never", do not matter.
    pub fn of_numbers(numbers: impl IntoIterator<Item = i64>) -> Option<Self> {
        let mut sizes: Vec<u64> = numbers.into_iter().map(i64::unsigned_abs).collect();
        sizes.sort_unstable();
        let middle = sizes.get(sizes.len() / 2).copied()?;
        Some(match i64::try_from(middle).unwrap_or(i64::MAX) {
            ..MILLIS_FROM => Self::Seconds,
            MILLIS_FROM..MICROS_FROM => Self::Millis,
            _ => Self::Micros,
        })
    }

    /// Detects the form of texts: that of the first. It is uniform only if all readable texts sort
    /// with each other.
    pub fn of_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut found: Option<TextDateForm> = None;
        for (_, form) in texts.into_iter().filter_map(read_text) {
            found = Some(match found {
                None => form,
                Some(first) => TextDateForm {
                    is_uniform: first.sorts_with(form),
                    digits: first.digits.max(form.digits),
                    ..first
                },
            });
        }
        found.map(Self::Text)
    }

    /// Writes the time as a column of this form holds it. A finer time is cut off, not rounded.
    pub fn write(&self, time: Time) -> DateValue {
        match self {
            Self::Native { digits } => DateValue::Text(
                TextDateForm {
                    digits: *digits,
                    ..TextDateForm::PLAIN
                }
                .write(time),
            ),
            Self::Text(form) => DateValue::Text(form.write(time)),
            Self::Seconds | Self::Millis | Self::Micros => DateValue::Number(self.floor(time)),
        }
    }

    /// The time of a number in this form; `None` if the form is not numeric.
    pub fn read_number(&self, number: i64) -> Option<Time> {
        self.unit()
            .map(|unit| Time::from_micros(number.saturating_mul(unit)))
    }

    /// The largest number of this form at or before a time.
    pub fn floor(&self, time: Time) -> i64 {
        time.as_micros().div_euclid(self.unit().unwrap_or(1))
    }

    /// The smallest number of this form at or after a time.
    pub fn ceil(&self, time: Time) -> i64 {
        let unit = self.unit().unwrap_or(1);
        let floor = self.floor(time);
        if floor.saturating_mul(unit) == time.as_micros() {
            floor
        } else {
            floor + 1
        }
    }

    /// The number of microseconds in one unit of this form.
    pub const fn unit(&self) -> Option<i64> {
        match self {
            Self::Seconds => Some(1_000_000),
            Self::Millis => Some(1_000),
            Self::Micros => Some(1),
            Self::Native { .. } | Self::Text(_) => None,
        }
    }

    pub fn word(&self) -> String {
        match self {
            Self::Native { .. } => "native".to_owned(),
            Self::Text(form) => format!(
                "text such as {}",
                form.write(Time::from_millis(1_772_366_400_000))
            ),
            Self::Seconds => "seconds since 1970".to_owned(),
            Self::Millis => "milliseconds since 1970".to_owned(),
            Self::Micros => "microseconds since 1970".to_owned(),
        }
    }
}

/// `2026-03-01 12:00:00.000000`, in UTC: texts of this form sort as their times do.
pub fn canonical(time: Time) -> String {
    // A time outside four-digit years becomes the nearest one inside, which gives the same result
    // in a comparison.
    const FIRST: Time = Time::from_micros(-62_135_596_800_000_000);
    const LAST: Time = Time::from_micros(253_402_207_200_999_999);
    let time = time.clamp(FIRST, LAST);
    let micros = time.as_micros().rem_euclid(1_000_000);
    let whole = Time::from_micros(time.as_micros() - micros).to_string();
    let second: String = whole.chars().take(TO_THE_SECOND).collect();
    format!("{}.{micros:06}", second.replacen('T', " ", 1))
}

/// Parses a text into its time and form; without a zone, it is in UTC. Returns `None` for a text
/// that is no date according to the module head.
pub fn read_text(text: &str) -> Option<(Time, TextDateForm)> {
    let day = text
        .get(..DAY.len())
        .filter(|day| is_like(day, DAY) && !day.starts_with("0000"))?;
    let Some(rest) = text.get(DAY.len()..).filter(|rest| !rest.is_empty()) else {
        let midnight = format!("{day}T00:00:00Z").parse().ok()?;
        return Some((
            midnight,
            TextDateForm {
                is_uniform: false,
                ..TextDateForm::PLAIN
            },
        ));
    };
    let separator = rest
        .chars()
        .next()
        .filter(|first| matches!(first, ' ' | 'T'))?;
    let clock = rest
        .get(1..=CLOCK.len())
        .filter(|clock| is_like(clock, CLOCK))?;
    let (digits, part_micros, end) = read_part(rest.get(1 + CLOCK.len()..)?)?;
    let (zone, offset_micros) = read_zone(end)?;
    // Other notations of a zero offset also mean UTC, but they do not sort with these.
    let is_uniform = matches!(end, "" | "Z" | "+00:00");
    let second: Time = format!("{day}T{clock}Z").parse().ok()?;
    let time = Time::from_micros(second.as_micros() + part_micros - offset_micros);
    Some((
        time,
        TextDateForm {
            separator,
            digits,
            zone,
            is_uniform,
        },
    ))
}

/// The pattern of a day: 9 stands for any digit, 5 for a digit up to 5.
const DAY: &str = "9999-99-99";
/// The pattern of a time of day. Parsing later rejects hour 24; 60 is no second here.
const CLOCK: &str = "99:59:59";
/// The most decimal places in a text; those after the sixth are ignored.
const PART_DIGITS_MAX: usize = 9;
/// The largest offset of a zone from UTC, in hours.
const ZONE_HOURS_MAX: i64 = 14;

fn is_like(text: &str, pattern: &str) -> bool {
    let fits = |(byte, like): (u8, u8)| match like {
        b'9' => byte.is_ascii_digit(),
        b'5' => matches!(byte, b'0'..=b'5'),
        like => byte == like,
    };
    text.len() == pattern.len() && text.bytes().zip(pattern.bytes()).all(fits)
}

/// Parses decimal places of a second: their number, their microseconds, and the rest of the text.
fn read_part(text: &str) -> Option<(u8, i64, &str)> {
    let Some(part) = text.strip_prefix('.') else {
        return Some((0, 0, text));
    };
    let end = part.trim_start_matches(|char: char| char.is_ascii_digit());
    let digits = &part[..part.len() - end.len()];
    if digits.is_empty() || digits.len() > PART_DIGITS_MAX {
        return None;
    }
    let micros = format!("{digits:0<6}")[..6].parse().ok()?;
    Some((u8::try_from(digits.len().min(6)).ok()?, micros, end))
}

/// Parses a zone: its notation, and its offset east of UTC in microseconds.
fn read_zone(text: &str) -> Option<(TextZone, i64)> {
    let sign = match text.bytes().next() {
        None => return Some((TextZone::Missing, 0)),
        Some(b'Z') if text.len() == 1 => return Some((TextZone::Letter, 0)),
        Some(b'+') => 1,
        Some(b'-') => -1,
        Some(_) => return None,
    };
    let away = &text[1..];
    if !is_like(away, "99") && !is_like(away, "99:59") {
        return None;
    }
    let hours: i64 = away[..2]
        .parse()
        .ok()
        .filter(|hours| *hours <= ZONE_HOURS_MAX)?;
    let minutes: i64 = away
        .get(3..)
        .map_or(Some(0), |minutes| minutes.parse().ok())?;
    Some((TextZone::Offset, sign * (hours * 60 + minutes) * 60_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        text.parse().expect("a time")
    }

    #[test]
    fn a_date_is_written_back_as_it_was_found() {
        for text in [
            "2026-03-01 12:00:00",
            "2026-03-01 12:00:00.250",
            "2026-03-01T12:00:00Z",
            "2026-03-01T12:00:00.123456Z",
            "2026-03-01T12:00:00+00:00",
            "1969-12-31 23:59:59.999999",
        ] {
            let (time, form) = read_text(text).expect(text);
            assert_eq!(form.write(time), text);
            assert!(form.is_uniform);
        }
    }

    #[test]
    fn another_zone_is_understood_and_does_not_sort() {
        let (time, form) = read_text("2026-03-01T14:00:00+02:00").expect("a time");
        assert_eq!(time, at("2026-03-01T12:00:00Z"));
        assert!(!form.is_uniform);
        let mixed = DateForm::of_texts(["2026-03-01 12:00:00", "2026-03-01T12:00:00Z"]);
        assert!(matches!(
            mixed,
            Some(DateForm::Text(TextDateForm {
                is_uniform: false,
                separator: ' ',
                ..
            }))
        ));
        let sorts = |texts: [&str; 2]| matches!(DateForm::of_texts(texts), Some(DateForm::Text(form)) if form.is_uniform);
        assert!(
            sorts(["2026-03-01 12:00:00", "2026-03-01 12:00:00.5"]),
            "what is shorter comes first"
        );
        assert!(
            !sorts(["2026-03-01T12:00:00Z", "2026-03-01T12:00:00.5Z"]),
            "a Z comes behind a point"
        );
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "yesterday",
            "2026-03",
            "2026-03-01 ",
            "2026-03-01 12:00",
            "2026-02-30 12:00:00",
            "2026-02-29",
            "0000-01-01 12:00:00",
            "2026-03-01 24:00:00",
            "2026-03-01 12:00:60",
            "2026-03-01t12:00:00",
            "2026-03-01T12:00:00z",
            "2026-03-01 12:00:00.",
            "2026-03-01 12:00:00.1234567890",
            "2026-03-01 12:00:00 +02:00",
            "2026-03-01 12:00:00 UTC",
            "2026-03-01 12:00:00+0200",
            "2026-03-01 12:00:00+15:00",
            "2026-03-01 12:00:00; DROP",
            "2026-03-01 12:00:00\n",
            "é026-03-01 12:00:00",
            "2026-03-0é",
            "2026-03-01é12:00:00",
        ] {
            assert_eq!(read_text(text), None, "{text}");
        }
    }

    #[test]
    fn a_date_alone_is_its_first_moment_and_zones_move_a_time() {
        for (text, time) in [
            ("2026-03-01", "2026-03-01T00:00:00Z"),
            ("2024-02-29", "2024-02-29T00:00:00Z"),
            (
                "2026-03-01 12:00:00.123456789",
                "2026-03-01T12:00:00.123456Z",
            ),
            ("1969-12-31 23:59:59.9999999", "1969-12-31T23:59:59.999999Z"),
            ("2026-03-01T12:00:00.5-03:30", "2026-03-01T15:30:00.5Z"),
            ("2026-03-01 12:00:00+02", "2026-03-01T10:00:00Z"),
            ("2026-03-01 12:00:00+00", "2026-03-01T12:00:00Z"),
        ] {
            let (read, form) = read_text(text).expect(text);
            assert_eq!(read, at(time), "{text}");
            assert_eq!(
                form.is_uniform,
                text.ends_with("9999999") || text.ends_with("456789"),
                "{text}"
            );
        }
    }

    #[test]
    fn numbers_are_told_apart_by_their_size() {
        let now = at("2026-03-01T12:00:00Z").as_micros();
        assert_eq!(
            DateForm::of_numbers([0, now / 1_000_000]),
            Some(DateForm::Seconds)
        );
        assert_eq!(DateForm::of_numbers([now / 1_000]), Some(DateForm::Millis));
        assert_eq!(DateForm::of_numbers([now]), Some(DateForm::Micros));
        assert_eq!(DateForm::of_numbers([]), None);
        let [seconds, millis] = [now / 1_000_000, now / 1_000];
        assert_eq!(
            DateForm::of_numbers([seconds, i64::MAX, seconds]),
            Some(DateForm::Seconds),
            "one is for ever"
        );
        assert_eq!(
            DateForm::of_numbers([millis, 1, millis, seconds, millis]),
            Some(DateForm::Millis)
        );
    }

    #[test]
    fn bounds_between_two_numbers_are_the_next_ones() {
        let half = Time::from_millis(1_500);
        assert_eq!(
            (DateForm::Seconds.floor(half), DateForm::Seconds.ceil(half)),
            (1, 2)
        );
        let whole = Time::from_millis(2_000);
        assert_eq!(
            (
                DateForm::Seconds.floor(whole),
                DateForm::Seconds.ceil(whole)
            ),
            (2, 2)
        );
        assert_eq!(DateForm::Seconds.floor(Time::from_millis(-500)), -1);
    }

    #[test]
    fn canonical_text_sorts_as_time_does_and_knows_no_end() {
        let times = [
            i64::MIN,
            -1,
            0,
            999_999,
            1_000_000,
            1_772_366_400_000_001,
            i64::MAX,
        ]
        .map(Time::from_micros);
        let texts = times.map(canonical);
        assert!(texts.windows(2).all(|pair| pair[0] <= pair[1]), "{texts:?}");
        assert!(texts.iter().all(|text| text.len() == 26), "{texts:?}");
    }
}
