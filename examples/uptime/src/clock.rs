//! The time of a run: a trace's own time, played faster than it passed, and the same in every
//! process.
#![expect(
    clippy::cast_precision_loss,
    reason = "times of day have far fewer digits than a float holds"
)]

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Tells the time of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Clock {
    starts_at_ms: i64,
    began_unix_us: i64,
    speed: f64,
}

impl Clock {
    /// The time on the wall.
    pub const fn wall() -> Self {
        Self {
            starts_at_ms: 0,
            began_unix_us: 0,
            speed: 1.0,
        }
    }

    /// A time that starts at `starts_at_ms` now and passes `speed` times as fast as on the wall.
    pub fn starting(starts_at_ms: i64, speed: f64) -> Self {
        Self {
            starts_at_ms,
            began_unix_us: unix_us(),
            speed,
        }
    }

    /// The same, so much later on the wall: until then it is earlier than its start.
    #[must_use]
    pub fn ahead(self, lead: Duration) -> Self {
        let lead_us = i64::try_from(lead.as_micros()).unwrap_or(i64::MAX);
        Self {
            began_unix_us: self.began_unix_us.saturating_add(lead_us),
            ..self
        }
    }

    /// When it was started, on the wall, in microseconds since 1970.
    pub const fn began_unix_us(&self) -> i64 {
        self.began_unix_us
    }

    /// How many seconds of it pass in one.
    pub const fn speed(&self) -> f64 {
        self.speed
    }

    /// What time it is.
    pub fn now_ms(&self) -> i64 {
        let passed_us = unix_us().saturating_sub(self.began_unix_us);
        self.starts_at_ms + (passed_us as f64 * self.speed / 1000.0) as i64
    }

    /// How long to wait, on the wall, until it is `at_ms`.
    pub fn until(&self, at_ms: i64) -> Duration {
        let left_ms = at_ms.saturating_sub(self.now_ms()).max(0);
        Duration::from_secs_f64(left_ms as f64 / 1000.0 / self.speed)
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}",
            self.starts_at_ms, self.began_unix_us, self.speed
        )
    }
}

impl FromStr for Clock {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (starts_at, rest) = text.split_once(':')?;
            let (began, speed) = rest.split_once(':')?;
            let speed = speed
                .parse()
                .ok()
                .filter(|speed: &f64| speed.is_finite() && *speed > 0.0)?;
            Some(Self {
                starts_at_ms: starts_at.parse().ok()?,
                began_unix_us: began.parse().ok()?,
                speed,
            })
        };
        read().ok_or_else(|| format!("{text} is no clock; it is START_MS:BEGAN_UNIX_US:SPEED"))
    }
}

/// A wall clock before 1970 is as wrong as can be; 0 is as good as any answer.
fn unix_us() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
