//! Which dead letters: what the address says.

use crate::bulk::JobCount;
use crate::pages::jobs::FilterChip;
use crate::pages::link::PageLink;
use crate::pages::{PageFailure, PageView, PostedForm};
use backstop::dead::{DeadFilter, DeadLetters, DeadSelection};
use backstop_core::port::StoreResult;
use backstop_core::{Kind, QueueName, Time};

/// Bytes of a text to look for.
const TEXT_MAX: usize = 1_024;
/// The parameters of an address that say which.
const NAMES: [&str; 7] = [
    "queue",
    "kind",
    "fingerprint",
    "error_type",
    "text",
    "since",
    "until",
];

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct DeadLetterFilter(pub(super) DeadFilter);

/// The filter as the form shows it.
pub(super) struct DeadFilterForm {
    pub(super) queue: String,
    pub(super) kind: String,
    pub(super) fingerprint: String,
    pub(super) error_type: String,
    pub(super) text: String,
    pub(super) since: String,
    pub(super) until: String,
    pub(super) is_empty: bool,
    /// Whether it says more than the fields that are always there.
    pub(super) is_narrow: bool,
}

impl DeadLetterFilter {
    pub(super) fn of(view: &PageView) -> Result<Self, PageFailure> {
        Self::read(view, |name| view.query(name), |name| view.query_exact(name))
    }

    pub(super) fn posted(view: &PageView, posted: &PostedForm) -> Result<Self, PageFailure> {
        Self::read(view, |name| posted.get(name), |name| posted.get_exact(name))
    }

    fn read<'a>(
        view: &PageView,
        param: impl Fn(&str) -> Option<&'a str>,
        exactly: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Self, PageFailure> {
        let bad = |error: &dyn std::fmt::Display| view.bad(error.to_string());
        let text = param("text").map(str::to_owned);
        if text.as_ref().is_some_and(|text| text.len() > TEXT_MAX) {
            return Err(view.bad(format!(
                "The text to look for has at most {TEXT_MAX} bytes."
            )));
        }
        Ok(Self(DeadFilter {
            queue: param("queue")
                .map(QueueName::new)
                .transpose()
                .map_err(|error| bad(&error))?,
            kind: exactly("kind")
                .map(Kind::new)
                .transpose()
                .map_err(|error| bad(&error))?,
            fingerprint: param("fingerprint")
                .map(str::parse)
                .transpose()
                .map_err(|error| bad(&error))?,
            error_type: exactly("error_type").map(str::to_owned),
            since: param("since")
                .map(instant)
                .transpose()
                .map_err(|error| bad(&error))?,
            until: param("until")
                .map(instant)
                .transpose()
                .map_err(|error| bad(&error))?,
            text,
        }))
    }

    /// An address with this filter.
    pub(super) fn on(&self, path: String) -> PageLink {
        let pairs = self.pairs().into_iter();
        pairs.fold(PageLink::to(path), |link, (name, value)| {
            link.with_some(name, value)
        })
    }

    fn pairs(&self) -> [(&'static str, Option<String>); NAMES.len()] {
        let filter = &self.0;
        [
            ("queue", filter.queue.as_ref().map(ToString::to_string)),
            ("kind", filter.kind.as_ref().map(ToString::to_string)),
            (
                "fingerprint",
                filter
                    .fingerprint
                    .map(|fingerprint| fingerprint.to_string()),
            ),
            ("error_type", filter.error_type.clone()),
            ("text", filter.text.clone()),
            ("since", filter.since.map(|since| since.to_string())),
            ("until", filter.until.map(|until| until.to_string())),
        ]
    }

    /// Whether it says more than a queue: then single letters are meant, not groups.
    pub(super) fn is_beyond_queue(&self) -> bool {
        self.0
            != DeadFilter {
                queue: self.0.queue.clone(),
                ..DeadFilter::default()
            }
    }

    /// Those that fit; where it says nothing, all.
    pub(super) fn selection(&self) -> DeadSelection {
        if self.0.is_empty() {
            DeadSelection::All
        } else {
            DeadSelection::Matching(self.0.clone())
        }
    }

    pub(super) fn to_form(&self) -> DeadFilterForm {
        let [queue, kind, fingerprint, error_type, text, since, until] =
            self.pairs().map(|(_, value)| value.unwrap_or_default());
        let is_narrow = [&kind, &error_type, &since, &until]
            .into_iter()
            .any(|field| !field.is_empty());
        let is_empty = self.0.is_empty();
        DeadFilterForm {
            queue,
            kind,
            fingerprint,
            error_type,
            text,
            since,
            until,
            is_empty,
            is_narrow,
        }
    }

    /// Its parts, each with the list that is without it.
    pub(super) fn chips(&self, link: &PageLink) -> Vec<FilterChip> {
        let chip = |(name, value): (&'static str, Option<String>)| {
            Some(FilterChip {
                name,
                value: value?,
                without: link.clone().without(name).to_string(),
            })
        };
        self.pairs().into_iter().filter_map(chip).collect()
    }
}

/// An instant as the page writes it, or as a browser's field does: that has no zone, and means UTC
/// here.
fn instant(text: &str) -> Result<Time, backstop_core::time::InvalidTime> {
    text.parse().or_else(|error| {
        let with_zone = [
            format!("{text}Z"),
            format!("{text}:00Z"),
            format!("{text}T00:00:00Z"),
        ];
        with_zone
            .iter()
            .find_map(|text| text.parse().ok())
            .ok_or(error)
    })
}

/// How many fit, where that is known without reading them; otherwise how many there are at most.
pub(super) async fn count(
    dead: &DeadLetters,
    filter: &DeadFilter,
) -> StoreResult<Option<JobCount>> {
    if let Some(count) = dead.estimate(filter).await? {
        return Ok(Some(JobCount::Exactly(count)));
    }
    let wider = DeadFilter {
        queue: filter.queue.clone(),
        fingerprint: filter.fingerprint,
        ..DeadFilter::default()
    };
    Ok(dead.estimate(&wider).await?.map(JobCount::AtMost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_without_a_zone_is_in_utc() {
        let exact: Time = "2026-11-17T08:30:00Z".parse().unwrap();
        for text in [
            "2026-11-17T08:30:00Z",
            "2026-11-17T08:30",
            "2026-11-17T08:30:00",
            "2026-11-17T09:30:00+01:00",
        ] {
            assert_eq!(instant(text), Ok(exact), "{text}");
        }
        assert_eq!(instant("2026-11-17"), "2026-11-17T00:00:00Z".parse());
        assert!(instant("yesterday").is_err());
    }
}
