//! Jobs that are picked one by one, each with the queue it was seen in: on Redis another queue may
//! have a job of the same id.

use super::link::PageLink;
use super::{PageFailure, PageView};
use backstop_core::limits::AMEND_MAX;
use backstop_core::{JobId, QueueName};
use std::collections::BTreeMap;
use std::fmt;

/// One job. Its text is `ID:QUEUE`, or the id alone where nobody said the queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct JobRef {
    pub(super) id: JobId,
    pub(super) queue: Option<QueueName>,
}

impl JobRef {
    /// The job of this id in this queue.
    pub(super) fn new(id: JobId, queue: &QueueName) -> Self {
        Self {
            id,
            queue: Some(queue.clone()),
        }
    }

    /// As a page wrote it; any other text is an id, or the name of one.
    pub(super) fn read(text: &str) -> Self {
        let written = text.trim().split_once(':');
        let read =
            written.and_then(|(id, queue)| Some((id.parse().ok()?, QueueName::new(queue).ok()?)));
        match read {
            Some((id, queue)) => Self {
                id,
                queue: Some(queue),
            },
            None => Self {
                id: JobId::from_text(text.trim()),
                queue: None,
            },
        }
    }

    pub(super) fn all<'a>(
        view: &PageView,
        texts: impl Iterator<Item = &'a str>,
    ) -> Result<Vec<Self>, PageFailure> {
        let picks: Vec<Self> = texts
            .filter(|text| !text.trim().is_empty())
            .map(Self::read)
            .collect();
        if picks.len() > AMEND_MAX {
            return Err(view.bad(format!(
                "At most {AMEND_MAX} jobs are picked one by one; choose all that match instead."
            )));
        }
        Ok(picks)
    }

    /// Its page, under `/jobs` or `/dead`.
    pub(super) fn link(&self, view: &PageView, under: &str) -> PageLink {
        PageLink::to(view.at(&format!("{under}/{}", self.id)))
            .with_some("queue", self.queue.as_ref())
    }
}

impl fmt::Display for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.queue {
            Some(queue) => write!(f, "{}:{queue}", self.id),
            None => write!(f, "{}", self.id),
        }
    }
}

/// The ids of each queue, in the order in which they were picked; those of no queue in particular
/// first.
pub(super) fn by_queue(picks: &[JobRef]) -> BTreeMap<Option<QueueName>, Vec<JobId>> {
    let mut parts = BTreeMap::<_, Vec<JobId>>::new();
    for pick in picks {
        parts.entry(pick.queue.clone()).or_default().push(pick.id);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pick_reads_back_and_a_name_stays_a_name() {
        let queue = QueueName::new("emails.v2").unwrap();
        let id = JobId::named("order-17");
        for pick in [JobRef::new(id, &queue), JobRef { id, queue: None }] {
            assert_eq!(JobRef::read(&format!(" {pick} ")), pick);
        }
        assert_eq!(JobRef::read("order-17"), JobRef { id, queue: None });
        for name in [
            "a:b",
            "order:17:x",
            ":",
            &format!("{id}:"),
            &format!("{id}:no queue"),
        ] {
            assert_eq!(
                JobRef::read(name),
                JobRef {
                    id: JobId::named(name),
                    queue: None
                },
                "{name}"
            );
        }
    }
}
