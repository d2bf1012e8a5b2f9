//! How many in how long: `100/s`, `6000/m`, `2.5/h`.

use std::str::FromStr;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ArrivalRate(f64);

impl ArrivalRate {
    /// How many in a second.
    pub const fn per_second(self) -> f64 {
        self.0
    }
}

/// Text that is not a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a rate; write a number above 0 and a unit, such as 100/s, 600/m or 50/h")]
pub struct InvalidArrivalRate(String);

impl FromStr for ArrivalRate {
    type Err = InvalidArrivalRate;

    fn from_str(text: &str) -> Result<Self, InvalidArrivalRate> {
        let parsed = || {
            let (number, unit) = text.split_once('/')?;
            let secs = match unit {
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3_600.0,
                _ => return None,
            };
            // Digits and a point only: `inf`, `1e9` and signs are numbers to a machine, not a rate.
            let is_plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
            let number: f64 = number
                .parse()
                .ok()
                .filter(|number: &f64| is_plain && *number > 0.0)?;
            Some(Self(number / secs))
        };
        parsed().ok_or_else(|| InvalidArrivalRate(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_and_a_unit() {
        for (text, per_second) in [
            ("100/s", 100.0),
            ("90/m", 1.5),
            ("36/h", 0.01),
            ("0.5/s", 0.5),
        ] {
            assert_eq!(text.parse(), Ok(ArrivalRate(per_second)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "", "100", "/s", "100/", "100/d", "0/s", "-1/s", "inf/s", "1e3/s", "1.2.3/s", "100 /s",
        ] {
            assert_eq!(
                text.parse::<ArrivalRate>(),
                Err(InvalidArrivalRate(text.to_owned()))
            );
        }
    }
}
