//! Which dead letters, as flags say it.

use crate::commands::reason::ReasonArgs;
use crate::error::CliError;
use backstop::core::Fingerprint;
use backstop::dead::{DeadFilter, DeadSelection};
use backstop::{JobId, Kind, QueueName, Span, Time};
use clap::Args;
use std::str::FromStr;

/// Which dead letters, by what they are.
#[derive(Args, Debug, Default)]
pub(crate) struct DeadFilterArgs {
    /// Of this queue
    #[arg(long)]
    pub(super) queue: Option<QueueName>,
    /// Of this kind
    #[arg(long)]
    kind: Option<Kind>,
    /// Dead of an error of this class, as lists show it
    #[arg(long, value_name = "CLASS")]
    error_type: Option<String>,
    /// Of this group, as `backstop dead groups` shows it
    #[arg(long, value_name = "HEX")]
    fingerprint: Option<Fingerprint>,
    /// That died at this time or later: RFC 3339, or so long ago, such as 1h
    #[arg(long, value_name = "TIME")]
    since: Option<TimeOrAge>,
    /// That died at this time or earlier
    #[arg(long, value_name = "TIME")]
    until: Option<TimeOrAge>,
    /// With this in the error, its class or the payload, in whatever case
    #[arg(long)]
    text: Option<String>,
}

/// Which dead letters: these, the oldest of a queue, those that fit, or all in so many words.
#[derive(Args, Debug)]
pub(crate) struct DeadSelectionArgs {
    /// Their ids, or the names their jobs were pushed under
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    filter: DeadFilterArgs,
    /// So many that died first, of --queue
    #[arg(long, value_name = "N")]
    oldest: Option<usize>,
    /// Every dead letter there is
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    pub(super) reason: ReasonArgs,
}

/// An instant, or how long ago it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TimeOrAge {
    At(Time),
    Ago(Span),
}

impl FromStr for TimeOrAge {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = text.parse().map(Self::At);
        let ago = text.parse().map(Self::Ago);
        at.or(ago).map_err(|_| {
            format!("`{text}` is not a time; write 2026-11-15T08:30:00Z, or 1h for an hour ago")
        })
    }
}

impl TimeOrAge {
    fn time(self, now: Time) -> Time {
        match self {
            Self::At(time) => time,
            Self::Ago(span) => now.before(span),
        }
    }
}

impl DeadFilterArgs {
    /// What they say at `now`.
    pub(super) fn filter(&self, now: Time) -> DeadFilter {
        DeadFilter {
            queue: self.queue.clone(),
            kind: self.kind.clone(),
            error_type: self.error_type.clone(),
            fingerprint: self.fingerprint,
            since: self.since.map(|when| when.time(now)),
            until: self.until.map(|when| when.time(now)),
            text: self.text.clone(),
        }
    }
}

impl DeadSelectionArgs {
    pub(super) fn is_empty(&self, now: Time) -> bool {
        self.ids.is_empty()
            && self.oldest.is_none()
            && !self.all
            && self.filter.filter(now).is_empty()
    }

    /// What they say at `now`; `word` is what is to be done.
    pub(super) fn selection(&self, word: &str, now: Time) -> Result<DeadSelection, CliError> {
        let filter = self.filter.filter(now);
        match (self.ids.is_empty(), filter.is_empty(), self.oldest, self.all) {
            (false, _, None, false) if is_by_queue(&filter) => {
                let ids = self.ids.iter().map(|id| JobId::from_text(id)).collect();
                Ok(match filter.queue {
                    Some(queue) => DeadSelection::Within { queue, ids },
                    None => DeadSelection::Ids(ids),
                })
            }
            (true, false, None, false) => Ok(DeadSelection::Matching(filter)),
            (true, true, None, true) => Ok(DeadSelection::All),
            (true, _, Some(count), false) => oldest(&filter, count, word),
            (true, true, None, false) => Err(CliError::misuse(format!("which dead letters to {word}?")).advise(format!(
                "backstop dead {word} ID…, or --oldest N --queue QUEUE, or filters such as --queue and --since, \
                 or --all for every one"
            ))),
            _ => Err(CliError::misuse("ids, --oldest, filters and --all are ways to say which; use one of them, or ids with --queue")
                .advise(format!("backstop dead {word} --help"))),
        }
    }
}

/// Whether it names a queue at most.
fn is_by_queue(filter: &DeadFilter) -> bool {
    *filter
        == DeadFilter {
            queue: filter.queue.clone(),
            ..DeadFilter::default()
        }
}

fn oldest(filter: &DeadFilter, count: usize, word: &str) -> Result<DeadSelection, CliError> {
    match filter.queue.clone() {
        Some(queue) if is_by_queue(filter) && count > 0 => {
            Ok(DeadSelection::Oldest { queue, count })
        }
        _ => Err(CliError::misuse(
            "--oldest takes 1 or more, the --queue they are of, and no other filter",
        )
        .advise(format!("backstop dead {word} --oldest 10 --queue emails"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_an_instant_or_how_long_ago() {
        let now: Time = "2026-01-02T00:00:00Z".parse().unwrap();
        let check = |text: &str, expected: &str| {
            assert_eq!(
                text.parse::<TimeOrAge>().unwrap().time(now).to_string(),
                expected
            );
        };
        check("1h", "2026-01-01T23:00:00Z");
        check("2025-01-01T00:00:00+01:00", "2024-12-31T23:00:00Z");
        assert!("yesterday".parse::<TimeOrAge>().is_err());
    }
}
