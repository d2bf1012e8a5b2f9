//! The file as people write it: every key known, every other one refused with line and column.

use super::error_location::position_of;
use super::schedule::RawSchedule;
use super::server::RawServer;
use super::stream::RawStream;
use super::sweep::RawSweep;
use super::table::RawTable;
use super::telemetry::RawTelemetry;
use super::{ConfigFile, HandlerConfig, InvalidConfig, QueueConfig};
use crate::address::without_addresses;
use crate::exec::Exec;
#[cfg(feature = "http")]
use crate::http::{Http, IpNetwork, LinkLocalPolicy};
use crate::open::Durability;
use crate::worker::QueueSettings;
use backstop_core::bounds::DEAD_MAX_DEFAULT;
use backstop_core::breaker::BreakerSettings;
use backstop_core::gate::GateSettings;
use backstop_core::port::Retention;
use backstop_core::rate::RateLimit;
use backstop_core::{Overflow, QueueBounds, RetryPolicy, Span};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawConfig {
    pub(super) store: RawStore,
    pub(super) queues: BTreeMap<String, RawQueue>,
    pub(super) streams: BTreeMap<String, RawStream>,
    pub(super) sweeps: BTreeMap<String, RawSweep>,
    pub(super) schedules: BTreeMap<String, RawSchedule>,
    pub(super) tables: BTreeMap<String, RawTable>,
    pub(super) telemetry: RawTelemetry,
    /// Names of secret fields, instead of the usual ones.
    pub(super) redact: Option<Vec<String>>,
    /// How long a worker that stops lets its runs end.
    pub(super) grace: Option<Span>,
    pub(super) server: RawServer,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawStore {
    pub(super) url: Option<String>,
    pub(super) durability: Option<Durability>,
    pub(super) max_queues: Option<NonZeroUsize>,
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
    max_size: Option<u64>,
    overflow: Option<Overflow>,
    breaker: Option<BreakerSettings>,
    rate_limit: Option<RateLimit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHandler {
    exec: Option<Vec<String>>,
    http: Option<String>,
    timeout: Option<Span>,
    allow_link_local: Option<bool>,
    allow: Option<Vec<String>>,
    ca: Option<PathBuf>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct RawDead {
    max: Option<u64>,
    keep: Option<Span>,
    gate: Option<GateSettings>,
}

/// The file's text, key by key. What is wrong may quote the store's password.
pub(super) fn read(file: ConfigFile<'_>) -> Result<RawConfig, InvalidConfig> {
    toml::from_str(file.text).map_err(|error| {
        let place = error.span().map(|span| position_of(file.text, span.start));
        let place = place.map_or_else(String::new, |(line, column)| format!(":{line}:{column}"));
        let problem = error
            .message()
            .split('\n')
            .map(str::trim)
            .collect::<Vec<_>>()
            .join(", ");
        InvalidConfig::File {
            path: format!("{}{place}", file.path),
            problem: without_addresses(&problem),
        }
    })
}

/// The names of secret fields of a file that cannot be used as a whole.
pub(super) fn read_redact(file: ConfigFile<'_>) -> RawConfig {
    #[derive(Deserialize)]
    struct RedactOnly {
        redact: Option<Vec<String>>,
    }
    let redact = toml::from_str::<RedactOnly>(file.text)
        .ok()
        .and_then(|read| read.redact);
    RawConfig {
        redact,
        ..RawConfig::default()
    }
}

impl RawQueue {
    /// What it means, with the usual settings where it is silent.
    pub(super) fn build(self) -> Result<QueueConfig, String> {
        let usual = QueueSettings::default();
        let handler_timeout = self.handler.as_ref().and_then(|handler| handler.timeout);
        if self.timeout.is_some() && handler_timeout.is_some() {
            return Err(
                "`timeout` stands both in the queue and in its handler; keep one of them"
                    .to_owned(),
            );
        }
        let shelf = Retention {
            done_for: self.keep_done.unwrap_or(usual.retention.done_for),
            done_max: self.keep_done_max.unwrap_or(usual.retention.done_max),
            cancelled_for: self.keep_cancelled.unwrap_or(usual.retention.cancelled_for),
            dead_for: self.dead.keep.unwrap_or(usual.retention.dead_for),
        };
        let timeout = self.timeout.or(handler_timeout).or(usual.timeout);
        let handler = self.handler.map(RawHandler::build).transpose()?;
        if self.overflow.is_some() && self.max_size.is_none() {
            return Err(
                "`overflow` says what gives way in a full queue, and this one has no `max_size`"
                    .to_owned(),
            );
        }
        let is_bounded = self.max_size.is_some() || self.dead.max.is_some();
        let bounds = is_bounded.then(|| QueueBounds {
            max_size: self.max_size,
            overflow: self.overflow.unwrap_or_default(),
            dead_max: self.dead.max.unwrap_or(DEAD_MAX_DEFAULT),
        });
        Ok(QueueConfig {
            handler: handler.map(|handler| handler.within(timeout)),
            settings: QueueSettings {
                concurrency: self.concurrency.unwrap_or(usual.concurrency),
                prefetch: self.prefetch.or(usual.prefetch),
                retry: self.retry.unwrap_or(usual.retry),
                timeout,
                lease: self.lease.unwrap_or(usual.lease),
                retention: shelf,
                bounds,
                breaker: self.breaker,
                gate: self.dead.gate.unwrap_or_default(),
                rate_limit: self.rate_limit,
            },
        })
    }
}

impl RawHandler {
    pub(super) const fn timeout(&self) -> Option<Span> {
        self.timeout
    }

    pub(super) fn build(mut self) -> Result<HandlerConfig, String> {
        match (self.exec.take(), self.http.take()) {
            (Some(_), Some(_)) => {
                Err("`exec` and `http` stand both in the handler; keep one of them".to_owned())
            }
            (None, None) => Err(
                "the handler has neither `exec` nor `http`; write { exec = [\"./detect\"] } or { http = \"http://127.0.0.1:9000/detect\" }"
                    .to_owned(),
            ),
            (Some(argv), None) => self.command(argv),
            (None, Some(address)) => service(self, &address).map_err(|problem| format!("`http`: {problem}")),
        }
    }

    fn command(self, argv: Vec<String>) -> Result<HandlerConfig, String> {
        if self.allow_link_local.is_some() || self.allow.is_some() || self.ca.is_some() {
            return Err(
                "`allow_link_local`, `allow` and `ca` mean nothing beside `exec`; leave them out"
                    .to_owned(),
            );
        }
        let mut argv = argv.into_iter();
        match argv.next().filter(|program| !program.is_empty()) {
            Some(program) => Ok(HandlerConfig::Exec(Exec::new(program, argv))),
            None => Err(
                "`exec` is empty; write the command and its arguments, such as [\"python3\", \"detect.py\"]"
                    .to_owned(),
            ),
        }
    }
}

#[cfg(feature = "http")]
fn service(handler: RawHandler, address: &str) -> Result<HandlerConfig, String> {
    let link_local = if handler.allow_link_local == Some(true) {
        LinkLocalPolicy::Allowed
    } else {
        LinkLocalPolicy::Refused
    };
    let mut http = Http::new(address)
        .map_err(|problem| problem.to_string())?
        .link_local(link_local);
    if let Some(allow) = handler.allow {
        http = http.allow(networks(&allow)?);
    }
    if let Some(file) = handler.ca {
        http = http.ca(file);
    }
    http.check().map_err(|problem| problem.to_string())?;
    Ok(HandlerConfig::Http(http))
}

#[cfg(not(feature = "http"))]
fn service(_: RawHandler, _: &str) -> Result<HandlerConfig, String> {
    Err("this program was built without the feature `http`".to_owned())
}

#[cfg(feature = "http")]
fn networks(allow: &[String]) -> Result<Vec<IpNetwork>, String> {
    if allow.is_empty() {
        return Err(
            "`allow` names no network, so nothing could be called; name one, or leave it out"
                .to_owned(),
        );
    }
    let network = |text: &String| {
        text.parse()
            .map_err(|problem| format!("`allow`: {text:?} {problem}"))
    };
    allow.iter().map(network).collect()
}
