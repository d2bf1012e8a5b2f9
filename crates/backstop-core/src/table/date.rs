//! Dates as tables have them: a type of the database's own, text, or a number since 1970. Read in every form, written back in the form found.
//!
//! | form | such as | told apart by |
//! |---|---|---|
//! | native | a timestamp of PostgreSQL's or MySQL's | the column's type |
//! | text | `2026-03-01 12:00:00`, `2026-03-01T12:00:00.250Z` | the latest values; without a zone it is UTC |
//! | seconds, millis, micros | `1772366400`, `1772366400000` | how large the values are |

use crate::time::Time;
use serde::{Deserialize, Serialize};

/// How a column says when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// In the database's own type, with so many digits of a second.
    Native {
        /// From 0 to 6.
        digits: u8,
    },
    /// As text.
    Text(TextForm),
    /// In whole seconds since 1970.
    Seconds,
    /// In whole milliseconds since 1970.
    Millis,
    /// In whole microseconds since 1970.
    Micros,
}

/// How text says when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextForm {
    /// Between date and time: a space or a T.
    pub separator: char,
    /// Digits of a second, from 0 to 6.
    pub digits: u8,
    /// What stands at the end.
    pub zone: Zone,
    /// Whether all values seen were in UTC and of one form: texts then sort as times do.
    pub is_uniform: bool,
}

/// How text says that it is in UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zone {
    /// Not at all.
    Unsaid,
    /// `Z`.
    Letter,
    /// `+00:00`.
    Offset,
}

/// What somebody said about a table's dates, instead of letting them be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Said {
    /// `2026-03-01 12:00:00`, in UTC.
    Text,
    /// `2026-03-01T12:00:00Z`.
    Rfc3339,
    /// Seconds since 1970.
    Seconds,
    /// Milliseconds since 1970.
    Millis,
    /// Microseconds since 1970.
    Micros,
}

/// A date as a column holds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Written {
    /// A number.
    Number(i64),
    /// Text; also what a native type is given as.
    Text(String),
}

/// From here on a number is in milliseconds: as seconds it would be in the year 5138.
const MILLIS_FROM: i64 = 100_000_000_000;
/// From here on a number is in microseconds.
const MICROS_FROM: i64 = 100_000_000_000_000;
/// Characters of a date and time to the second.
const TO_THE_SECOND: usize = 19;

impl TextForm {
    /// `2026-03-01 12:00:00`.
    pub const PLAIN: Self = Self { separator: ' ', digits: 0, zone: Zone::Unsaid, is_uniform: true };
    /// `2026-03-01T12:00:00Z`.
    pub const RFC3339: Self = Self { separator: 'T', digits: 0, zone: Zone::Letter, is_uniform: true };

    /// The time as this form has it; a part of a second that it has no digits for is cut off.
    pub fn write(&self, time: Time) -> String {
        let zone = match self.zone {
            Zone::Unsaid => "",
            Zone::Letter => "Z",
            Zone::Offset => "+00:00",
        };
        format!("{}{zone}", self.with_digits(time, self.digits))
    }

    /// The same to the second, and no more: what every value of that second begins with.
    pub fn second(&self, time: Time) -> String {
        self.with_digits(time, 0)
    }

    /// The day only, whatever stands behind it.
    pub fn day(time: Time) -> String {
        canonical(time).chars().take(10).collect()
    }

    /// Whether texts of both forms sort as times do. Before a zone, the digits of a second must be as many.
    fn sorts_with(self, other: Self) -> bool {
        let is_alike = (self.separator, self.zone) == (other.separator, other.zone);
        let has_as_many = self.zone == Zone::Unsaid || self.digits == other.digits;
        self.is_uniform && other.is_uniform && is_alike && has_as_many
    }

    fn with_digits(self, time: Time, digits: u8) -> String {
        let all = canonical(time);
        let end = if digits == 0 { TO_THE_SECOND } else { TO_THE_SECOND + 1 + usize::from(digits.min(6)) };
        let cut: String = all.chars().take(end).collect();
        if self.separator == ' ' { cut } else { cut.replacen(' ', &self.separator.to_string(), 1) }
    }
}

impl Form {
    /// The form that was said.
    pub const fn said(said: Said) -> Self {
        match said {
            Said::Text => Self::Text(TextForm::PLAIN),
            Said::Rfc3339 => Self::Text(TextForm::RFC3339),
            Said::Seconds => Self::Seconds,
            Said::Millis => Self::Millis,
            Said::Micros => Self::Micros,
        }
    }

    /// The form of these numbers: that of the largest.
    pub fn of_numbers(numbers: impl IntoIterator<Item = i64>) -> Option<Self> {
        let largest = numbers.into_iter().map(i64::unsigned_abs).max()?;
        Some(match i64::try_from(largest).unwrap_or(i64::MAX) {
            ..MILLIS_FROM => Self::Seconds,
            MILLIS_FROM..MICROS_FROM => Self::Millis,
            _ => Self::Micros,
        })
    }

    /// The form of these texts: that of the first, if all that can be read agree with it in what makes them sort.
    pub fn of_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut found: Option<TextForm> = None;
        for (_, form) in texts.into_iter().filter_map(read_text) {
            found = Some(match found {
                None => form,
                Some(first) => TextForm {
                    is_uniform: first.sorts_with(form),
                    digits: first.digits.max(form.digits),
                    ..first
                },
            });
        }
        found.map(Self::Text)
    }

    /// The time as a column of this form holds it; cut off, not rounded, where it is finer.
    pub fn write(&self, time: Time) -> Written {
        match self {
            Self::Native { digits } => {
                Written::Text(TextForm { digits: *digits, ..TextForm::PLAIN }.write(time))
            }
            Self::Text(form) => Written::Text(form.write(time)),
            Self::Seconds | Self::Millis | Self::Micros => Written::Number(self.floor(time)),
        }
    }

    /// The time of a number in this form; `None` if it is not a form of numbers.
    pub fn read_number(&self, number: i64) -> Option<Time> {
        self.unit().map(|unit| Time::from_micros(number.saturating_mul(unit)))
    }

    /// The largest number of this form that is not after a time.
    pub fn floor(&self, time: Time) -> i64 {
        time.as_micros().div_euclid(self.unit().unwrap_or(1))
    }

    /// The smallest number of this form that is not before a time.
    pub fn ceil(&self, time: Time) -> i64 {
        let unit = self.unit().unwrap_or(1);
        let floor = self.floor(time);
        if floor.saturating_mul(unit) == time.as_micros() { floor } else { floor + 1 }
    }

    /// How many microseconds one of its numbers is.
    pub const fn unit(&self) -> Option<i64> {
        match self {
            Self::Seconds => Some(1_000_000),
            Self::Millis => Some(1_000),
            Self::Micros => Some(1),
            Self::Native { .. } | Self::Text(_) => None,
        }
    }

    /// Its name among people.
    pub fn word(&self) -> String {
        match self {
            Self::Native { .. } => "native".to_owned(),
            Self::Text(form) => format!("text such as {}", form.write(Time::from_millis(1_772_366_400_000))),
            Self::Seconds => "seconds since 1970".to_owned(),
            Self::Millis => "milliseconds since 1970".to_owned(),
            Self::Micros => "microseconds since 1970".to_owned(),
        }
    }
}

/// `2026-03-01 12:00:00.000000`, in UTC: texts of this form sort as times do.
pub fn canonical(time: Time) -> String {
    // Where there is no such text the nearest year with four digits says as much to a comparison.
    const FIRST: Time = Time::from_micros(-62_135_596_800_000_000);
    const LAST: Time = Time::from_micros(253_402_207_200_999_999);
    let time = time.clamp(FIRST, LAST);
    let micros = time.as_micros().rem_euclid(1_000_000);
    let whole = Time::from_micros(time.as_micros() - micros).to_string();
    let second: String = whole.chars().take(TO_THE_SECOND).collect();
    format!("{}.{micros:06}", second.replacen('T', " ", 1))
}

/// The time that a text says, and in which form; without a zone it is in UTC.
pub fn read_text(text: &str) -> Option<(Time, TextForm)> {
    let separator = text.chars().nth(10).filter(|at| matches!(at, ' ' | 'T'))?;
    let behind = text.get(TO_THE_SECOND..)?;
    let digits =
        behind.strip_prefix('.').map_or(0, |part| part.chars().take_while(char::is_ascii_digit).count());
    let end = behind.get(if digits == 0 { 0 } else { digits + 1 }..)?;
    let (zone, is_utc) = match end {
        "" => (Zone::Unsaid, true),
        "Z" => (Zone::Letter, true),
        "+00:00" => (Zone::Offset, true),
        _ => (Zone::Letter, false),
    };
    let stamp = if zone == Zone::Unsaid { format!("{text}Z") } else { text.to_owned() };
    let time: Time = stamp.replacen(' ', "T", 1).parse().ok()?;
    let digits = u8::try_from(digits.min(6)).unwrap_or(6);
    Some((time, TextForm { separator, digits, zone, is_uniform: is_utc }))
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
        let mixed = Form::of_texts(["2026-03-01 12:00:00", "2026-03-01T12:00:00Z"]);
        assert!(matches!(mixed, Some(Form::Text(TextForm { is_uniform: false, separator: ' ', .. }))));
        let sorts =
            |texts: [&str; 2]| matches!(Form::of_texts(texts), Some(Form::Text(form)) if form.is_uniform);
        assert!(sorts(["2026-03-01 12:00:00", "2026-03-01 12:00:00.5"]), "what is shorter comes first");
        assert!(!sorts(["2026-03-01T12:00:00Z", "2026-03-01T12:00:00.5Z"]), "a Z comes behind a point");
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "yesterday",
            "2026-03-01",
            "2026-02-30 12:00:00",
            "2026-03-01 12:00:00; DROP",
            "é026-03-01 12:00:00",
        ] {
            assert_eq!(read_text(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_told_apart_by_their_size() {
        let now = at("2026-03-01T12:00:00Z").as_micros();
        assert_eq!(Form::of_numbers([0, now / 1_000_000]), Some(Form::Seconds));
        assert_eq!(Form::of_numbers([now / 1_000]), Some(Form::Millis));
        assert_eq!(Form::of_numbers([now]), Some(Form::Micros));
        assert_eq!(Form::of_numbers([]), None);
    }

    #[test]
    fn bounds_between_two_numbers_are_the_next_ones() {
        let half = Time::from_millis(1_500);
        assert_eq!((Form::Seconds.floor(half), Form::Seconds.ceil(half)), (1, 2));
        let whole = Time::from_millis(2_000);
        assert_eq!((Form::Seconds.floor(whole), Form::Seconds.ceil(whole)), (2, 2));
        assert_eq!(Form::Seconds.floor(Time::from_millis(-500)), -1);
    }

    #[test]
    fn canonical_text_sorts_as_time_does_and_knows_no_end() {
        let times =
            [i64::MIN, -1, 0, 999_999, 1_000_000, 1_772_366_400_000_001, i64::MAX].map(Time::from_micros);
        let texts = times.map(canonical);
        assert!(texts.windows(2).all(|pair| pair[0] <= pair[1]), "{texts:?}");
        assert!(texts.iter().all(|text| text.len() == 26), "{texts:?}");
    }
}
