//! Queues, schedules and sweeps, as `backstop.toml`: what `email_alerts config` prints is what its
//! workers run on.

#[cfg(test)]
mod tests;

use anyhow::{Context, Result};
use backstop::config::{Config, ConfigFile, ConfigOverrides, resolve};
use backstop::{Span, Time};
use std::fmt::Write;

/// The name under which digest runs are marked as complete.
pub const COMPLETION: &str = "digest_run_completion";

/// How fast time goes for waits and thresholds. Leases are about processes, and schedules about
/// people's clocks: they are as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// What an hour of the service takes.
    pub hour: Span,
    /// How long a job stays with a worker that gives no sign of life.
    pub lease: Span,
}

impl Pace {
    /// As in earnest.
    pub const REAL: Self = Self {
        hour: Span::hours(1),
        lease: Span::secs(15),
    };

    /// What is written for a time of the service.
    fn at(self, span: Span) -> Span {
        if self.hour == Span::hours(1) {
            return span;
        }
        Span::micros(span.as_micros() / 1_000 * self.hour.as_micros() / Span::hours(1).as_millis())
            .max(Span::micros(1))
    }

    /// The same for how often something is looked for, which is not done all the time.
    fn every(self, span: Span) -> Span {
        self.at(span).max(Span::secs(1))
    }
}

/// A sweep: which rows, and what becomes of them.
struct Lost {
    name: &'static str,
    query: &'static str,
    queue: &'static str,
    kind: &'static str,
    key: &'static str,
    payload: Option<&'static str>,
    older_than: Span,
    every: Span,
}

const HOUR: Span = Span::hours(1);
const HALF_HOUR: Span = Span::minutes(30);

const SWEEPS: [Lost; 7] = [
    Lost {
        name: "content_changes",
        query: "SELECT id FROM email_alerts.content_changes WHERE processed_at IS NULL AND created_at <= :cutoff ORDER BY id",
        queue: "process_and_generate_emails",
        kind: "ProcessContentChange",
        key: "content_change:{id}",
        payload: None,
        older_than: HOUR,
        every: HALF_HOUR,
    },
    Lost {
        name: "messages",
        query: "SELECT id FROM email_alerts.messages WHERE processed_at IS NULL AND created_at <= :cutoff ORDER BY id",
        queue: "process_and_generate_emails",
        kind: "ProcessMessage",
        key: "message:{id}",
        payload: None,
        older_than: HOUR,
        every: HALF_HOUR,
    },
    Lost {
        name: "digest_run_subscribers",
        query: "SELECT id FROM email_alerts.digest_run_subscribers WHERE processed_at IS NULL AND created_at <= :cutoff ORDER BY id",
        queue: "email_generation_digest",
        kind: "DigestEmailGeneration",
        key: "digest_run_subscriber:{id}",
        payload: None,
        older_than: HOUR,
        every: HALF_HOUR,
    },
    Lost {
        name: "daily_digest_runs",
        query: "SELECT date FROM email_alerts.digest_runs WHERE range = 'daily' AND processed_at IS NULL AND created_at <= :cutoff ORDER BY date",
        queue: "digest_initiation",
        kind: "DailyDigestInitiator",
        key: "digest_run:daily:{date}",
        payload: Some("{ date = \"{date}\" }"),
        older_than: HOUR,
        every: HALF_HOUR,
    },
    Lost {
        name: "weekly_digest_runs",
        query: "SELECT date FROM email_alerts.digest_runs WHERE range = 'weekly' AND processed_at IS NULL AND created_at <= :cutoff ORDER BY date",
        queue: "digest_initiation",
        kind: "WeeklyDigestInitiator",
        key: "digest_run:weekly:{date}",
        payload: Some("{ date = \"{date}\" }"),
        older_than: HOUR,
        every: HALF_HOUR,
    },
    Lost {
        name: "emails",
        query: "SELECT id FROM email_alerts.emails WHERE status = 'pending' AND queue = 'send_email' AND created_at <= :cutoff ORDER BY id",
        queue: "send_email",
        kind: "SendEmail",
        key: "email:{id}",
        payload: None,
        older_than: Span::hours(3),
        every: HALF_HOUR,
    },
    // Somebody waits for these: they are promised within a quarter of an hour.
    Lost {
        name: "transactional_emails",
        query: "SELECT id FROM email_alerts.emails WHERE status = 'pending' AND queue = 'send_email_transactional' AND created_at <= :cutoff ORDER BY id",
        queue: "send_email_transactional",
        kind: "SendEmail",
        key: "email:{id}",
        payload: None,
        older_than: Span::minutes(10),
        every: Span::minutes(5),
    },
];

/// The file for a database. Digests are expected from `since` on, or from when a worker first
/// starts.
pub fn text(url: &str, pace: Pace, since: Option<Time>) -> String {
    let mut text = format!("[store]\nurl = {}\n", quoted(url));
    queues(&mut text, pace);
    schedules(&mut text, since);
    for lost in &SWEEPS {
        sweep(&mut text, lost, url, pace);
    }
    text
}

/// What the file means.
pub fn read(text: &str) -> Result<Config> {
    let written = ConfigFile {
        path: "backstop.toml",
        text,
    };
    resolve(
        Some(written),
        ConfigOverrides::default(),
        ConfigOverrides::default(),
    )
    .context("the example's own configuration")
}

fn queues(text: &mut String, pace: Pace) {
    // About two hours in all, as long as the nine retries of the source.
    let (base, cap) = (pace.at(Span::secs(15)), pace.at(HOUR));
    let retry = format!(
        "retry = {{ kind = \"exponential\", base = \"{base}\", factor = 2.0, cap = \"{cap}\", jitter = 0.25, max_attempts = 10 }}"
    );
    let lease = pace.lease;
    for (queue, concurrency) in [
        ("process_and_generate_emails", 2),
        ("digest_initiation", 2),
        ("email_generation_digest", 4),
        ("send_email", 8),
        ("send_email_transactional", 4),
    ] {
        line(
            text,
            &format!(
                "\n[queues.{queue}]\nconcurrency = {concurrency}\nlease = \"{lease}\"\ntimeout = \"5m\"\n{retry}"
            ),
        );
        if queue == "send_email" {
            let over = pace.at(Span::minutes(5));
            line(
                text,
                &format!("rate_limit = {{ count = 21600, per = \"60s\", over = \"{over}\" }}"),
            );
        }
    }
}

fn schedules(text: &mut String, since: Option<Time>) {
    let since = since
        .map(|since| format!("\nsince = \"{since}\""))
        .unwrap_or_default();
    for (name, cron, kind) in [
        ("daily_digest", "30 8 * * *", "DailyDigestInitiator"),
        ("weekly_digest", "30 8 * * 6", "WeeklyDigestInitiator"),
    ] {
        line(
            text,
            &format!(
                "\n[schedules.{name}]\ncron = \"{cron}\"\ntimezone = \"Europe/London\"{since}\nqueue = \"digest_initiation\"\nkind = \"{kind}\"\n\
                 missed = {{ policy = \"all\", max = 7, look_back = \"7d\", grace = \"30m\" }}"
            ),
        );
    }
    line(
        text,
        &format!(
            "\n[schedules.{COMPLETION}]\ncron = \"* * * * *\"\nqueue = \"digest_initiation\"\nkind = \"MarkDigestRunsComplete\"\n\
             missed = {{ policy = \"one\", look_back = \"1h\", grace = \"1m\" }}"
        ),
    );
}

fn sweep(text: &mut String, lost: &Lost, url: &str, pace: Pace) {
    let Lost {
        name,
        query,
        queue,
        kind,
        key,
        payload,
        older_than,
        every,
    } = lost;
    line(
        text,
        &format!(
            "\n[sweeps.{name}]\nurl = {}\nquery = {}",
            quoted(url),
            quoted(query)
        ),
    );
    line(
        text,
        &format!("queue = \"{queue}\"\nkind = \"{kind}\"\nunique_key = \"{key}\""),
    );
    if let Some(payload) = payload {
        line(text, &format!("payload = {payload}"));
    }
    line(
        text,
        &format!(
            "older_than = \"{}\"\nevery = \"{}\"",
            pace.at(*older_than),
            pace.every(*every)
        ),
    );
}

fn line(text: &mut String, line: &str) {
    let _ = writeln!(text, "{line}");
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
