//! The file as people write it: every key known, every other one refused with line and column.

use super::{BadConfig, QueueConfig, Written};
use crate::address::without_addresses;
use crate::exec::Exec;
use crate::open::Durability;
use crate::worker::QueueSettings;
use backstop_core::port::Shelf;
use backstop_core::{RetryPolicy, Span};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawConfig {
    pub(super) store: RawStore,
    pub(super) queues: BTreeMap<String, RawQueue>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawStore {
    pub(super) url: Option<String>,
    pub(super) durability: Option<Durability>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawQueue {
    handler: Option<RawHandler>,
    concurrency: Option<usize>,
    prefetch: Option<usize>,
    retry: Option<RetryPolicy>,
    timeout: Option<Span>,
    lease: Option<Span>,
    keep_done: Option<Span>,
    keep_done_max: Option<u64>,
    keep_cancelled: Option<Span>,
    dead: RawDead,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHandler {
    exec: Vec<String>,
    timeout: Option<Span>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawDead {
    keep: Option<Span>,
}

/// The file's text, key by key. What is wrong is shown with its line, which may hold the store's password.
pub(super) fn read(written: Written<'_>) -> Result<RawConfig, BadConfig> {
    toml::from_str(written.text).map_err(|error| BadConfig::File {
        path: written.path.to_owned(),
        problem: without_addresses(error.to_string().trim_end()),
    })
}

impl RawQueue {
    /// What it means, with the usual settings where it is silent.
    pub(super) fn checked(self) -> Result<QueueConfig, String> {
        let usual = QueueSettings::default();
        let handler_timeout = self.handler.as_ref().and_then(|handler| handler.timeout);
        if self.timeout.is_some() && handler_timeout.is_some() {
            return Err("`timeout` stands both in the queue and in its handler; keep one of them".to_owned());
        }
        let shelf = Shelf {
            done_for: self.keep_done.unwrap_or(usual.shelf.done_for),
            done_max: self.keep_done_max.unwrap_or(usual.shelf.done_max),
            cancelled_for: self.keep_cancelled.unwrap_or(usual.shelf.cancelled_for),
            dead_for: self.dead.keep.unwrap_or(usual.shelf.dead_for),
        };
        Ok(QueueConfig {
            handler: self.handler.map(RawHandler::checked).transpose()?,
            settings: QueueSettings {
                concurrency: self.concurrency.unwrap_or(usual.concurrency),
                prefetch: self.prefetch.or(usual.prefetch),
                retry: self.retry.unwrap_or(usual.retry),
                timeout: self.timeout.or(handler_timeout).or(usual.timeout),
                lease: self.lease.unwrap_or(usual.lease),
                shelf,
            },
        })
    }
}

impl RawHandler {
    fn checked(self) -> Result<Exec, String> {
        let mut argv = self.exec.into_iter();
        match argv.next().filter(|program| !program.is_empty()) {
            Some(program) => Ok(Exec::new(program, argv)),
            None => Err(
                "`exec` is empty; write the command and its arguments, such as [\"python3\", \"detect.py\"]"
                    .to_owned(),
            ),
        }
    }
}
