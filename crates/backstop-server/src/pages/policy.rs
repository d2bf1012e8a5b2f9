//! The policy lab: what a retry policy does, and what it does to a service that is out for a while.
//!
//! Everything stands in the address, so that a finding can be sent to somebody. Nothing is changed
//! and no store is asked.

use super::chart::{Bar, Bars, Markup, Share, Tone, Unit};
use super::{Frame, PageFailure, Section, View};
use crate::App;
use crate::lab::{Grid, Question, Rate, Setting, ends, grid, picture, told};
use askama::Template;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use backstop_core::breaker::BreakerSettings;
use backstop_core::retry::{Preview, preview};
use backstop_core::simulate::{Scenario, Simulated};
use backstop_core::{RetryPolicy, Span};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Waits that are laid out.
const ATTEMPTS: std::ops::RangeInclusive<u32> = 1..=100;
/// The most jobs of a simulation in a page; the command line has more time.
const JOBS_MAX: f64 = 200_000.0;
/// Calls at a time of a simulation.
const CONCURRENCY: std::ops::RangeInclusive<u32> = 1..=10_000;
/// Characters of a policy, or of a breaker.
const JSON_CHARS_MAX: usize = 8_192;
/// Simulations at a time: they take a whole core.
const AT_ONCE: usize = 1;
/// How long a page waits for its turn, and for its end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Policies to start from.
const EXAMPLES: [(&str, &str); 6] = [
    (
        "exponential",
        r#"{"kind":"exponential","base":"1s","factor":2.0,"cap":"30s","jitter":0.25,"max_attempts":3}"#,
    ),
    (
        "fibonacci",
        r#"{"kind":"fibonacci","unit":"1m","max_attempts":8}"#,
    ),
    (
        "steps",
        r#"{"kind":"steps","delays":["10s","20s","30s","60s","60s"],"max_attempts":6}"#,
    ),
    ("polynomial", r#"{"kind":"polynomial","max_attempts":12}"#),
    (
        "constant",
        r#"{"kind":"constant","every":"1m","max_attempts":10}"#,
    ),
    ("progressive", r#"{"kind":"progressive"}"#),
];

/// The page of the lab.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/policy", get(page))
        .layer(Extension(Arc::new(Semaphore::new(AT_ONCE))))
}

#[derive(Template)]
#[template(path = "policy.html")]
struct Page {
    frame: Frame,
    asked: Fields,
    examples: Vec<(&'static str, String)>,
    preview: Result<Laid, String>,
    simulated: Option<Result<Played, String>>,
}

/// The fields of the form, as they were filled in.
struct Fields {
    policy: String,
    attempts: String,
    rate: String,
    outage: String,
    service_time: String,
    concurrency: String,
    breaker: String,
}

/// A policy laid out.
struct Laid {
    grid: Grid,
    ends: String,
    chart: Markup,
}

/// A simulation, told and drawn.
struct Played {
    told: Vec<(String, String)>,
    drawing: Drawing,
}

/// The chart of a simulation, made by the lab, which escapes what it writes.
struct Drawing(String);

impl std::fmt::Display for Drawing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl askama::filters::HtmlSafe for Drawing {}

impl Fields {
    fn of(view: &View) -> Self {
        let said = |name: &str, usual: &str| {
            view.query(name)
                .unwrap_or(usual)
                .chars()
                .take(JSON_CHARS_MAX)
                .collect::<String>()
        };
        Self {
            policy: said("policy", EXAMPLES[0].1),
            attempts: said("attempts", "6"),
            rate: said("rate", "20/s"),
            outage: said("outage", "5m"),
            service_time: said("service_time", "50ms"),
            concurrency: said("concurrency", "8"),
            breaker: said("breaker", ""),
        }
    }

    fn policy(&self) -> Result<RetryPolicy, String> {
        RetryPolicy::from_json(self.policy.as_bytes()).map_err(|error| error.to_string())
    }

    fn laid(&self) -> Result<Laid, String> {
        let policy = self.policy()?;
        let attempts = number("Failures", &self.attempts, ATTEMPTS)?;
        let waits = preview(&policy, attempts);
        Ok(Laid {
            grid: grid(&policy, &waits),
            ends: ends(&policy),
            chart: chart(&waits),
        })
    }

    fn question(&self) -> Result<Question, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let breaker = match self.breaker.trim() {
            "" => None,
            json => Some(
                serde_json::from_str::<BreakerSettings>(json)
                    .map_err(|error| format!("Breaker: {error}"))?,
            ),
        };
        let rate: Rate = self.rate.parse().map_err(|error| text(&error))?;
        let question = Question {
            arrivals_per_second: rate.per_second(),
            outage: self.outage.parse().map_err(|error| text(&error))?,
            service_time: self.service_time.parse().map_err(|error| text(&error))?,
            concurrency: number("Calls at a time", &self.concurrency, CONCURRENCY)?,
            policy: self.policy()?,
            breaker,
            ..Question::default()
        };
        bounded(question)
    }
}

/// A question that a page has the time to answer: not more jobs than it may have, however long the
/// backlog takes to go.
fn bounded(question: Question) -> Result<Question, String> {
    let recovery = question.outage_at.plus(question.outage);
    let longest = Span::secs(1).scaled(JOBS_MAX / question.arrivals_per_second);
    let aftermath_max = longest.minus(recovery);
    if aftermath_max < question.outage {
        return Err(format!(
            "That is more than {JOBS_MAX} jobs, which a page has no time for: ask for a lower rate or a shorter outage, or use `backstop policy simulate`."
        ));
    }
    Ok(Question {
        aftermath_max,
        ..question
    })
}

fn number(what: &str, text: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32, String> {
    let number = text
        .trim()
        .parse()
        .ok()
        .filter(|number| range.contains(number));
    number.ok_or_else(|| {
        format!(
            "{what}: give a whole number from {} to {}.",
            range.start(),
            range.end()
        )
    })
}

async fn page(
    view: View,
    Extension(turn): Extension<Arc<Semaphore>>,
) -> Result<Response, PageFailure> {
    let asked = Fields::of(&view);
    let simulated = match view.query("simulate") {
        Some(_) => Some(simulate(&asked, &turn).await),
        None => None,
    };
    let example = |(name, json): (&'static str, &str)| {
        (
            name,
            super::Link::to(view.at("/policy"))
                .with("policy", json)
                .to_string(),
        )
    };
    let page = Page {
        frame: view.frame(Section::Policy, "Policy lab"),
        preview: asked.laid(),
        asked,
        examples: EXAMPLES.map(example).into(),
        simulated,
    };
    view.show(&page)
}

async fn simulate(asked: &Fields, turn: &Arc<Semaphore>) -> Result<Played, String> {
    let question = asked.question()?;
    let busy = || "Other simulations are being played; try again in a moment.".to_owned();
    let waited = tokio::time::timeout(PATIENCE, Arc::clone(turn).acquire_owned()).await;
    let permit = waited.map_err(|_| busy())?.map_err(|_| busy())?;
    let played = tokio::task::spawn_blocking(move || {
        let played = question.play();
        drop(permit);
        played
    });
    let played = tokio::time::timeout(PATIENCE, played).await;
    let played = played.map_err(|_| {
        "It takes longer than a page can wait; use `backstop policy simulate`.".to_owned()
    })?;
    let played =
        played.map_err(|_| "The simulation failed; the server's log says why.".to_owned())?;
    played
        .map(|(scenario, simulated)| drawn(&scenario, &simulated))
        .map_err(|error| error.to_string())
}

fn drawn(scenario: &Scenario, simulated: &Simulated) -> Played {
    let sentence = |line: String| {
        let (word, rest) = line.split_once(':').unwrap_or(("", &line));
        (word.to_owned(), rest.trim().to_owned())
    };
    let lines = told(scenario, simulated).into_iter().take(4);
    Played {
        told: lines.map(sentence).collect(),
        drawing: Drawing(picture(scenario, simulated, Setting::Page)),
    }
}

/// The waits as bars: how long at least, and how much longer at most.
fn chart(waits: &[Preview]) -> Markup {
    let millis = |span: Span| span.as_millis().unsigned_abs();
    let bar = |wait: &Preview| Bar {
        name: format!("attempt {}", wait.failures),
        shares: vec![
            Share::new("at least", Tone::Plain, millis(wait.min)),
            Share::new("more at most", Tone::Warn, millis(wait.max.minus(wait.min))),
        ],
    };
    let bars = waits.iter().take(BARS_MAX).map(bar).collect();
    Bars {
        id: "waits",
        title: "How long each wait is",
        of: "Wait",
        unit: Unit::Millis,
        bars,
    }
    .figure()
}

/// Waits that are drawn.
const BARS_MAX: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_would_take_too_long_is_refused_with_what_to_do() {
        let asked = |per_second: f64, outage: Span| {
            bounded(Question {
                arrivals_per_second: per_second,
                outage,
                ..Question::default()
            })
        };
        assert!(asked(20.0, Span::minutes(5)).is_ok());
        assert!(
            asked(20.0, Span::days(3))
                .unwrap_err()
                .contains("shorter outage")
        );
        assert!(
            asked(1e12, Span::minutes(1))
                .unwrap_err()
                .contains("lower rate")
        );
    }

    #[test]
    fn every_example_can_be_laid_out() {
        for (name, json) in EXAMPLES {
            let policy = RetryPolicy::from_json(json.as_bytes());
            assert!(policy.is_ok(), "{name}: {policy:?}");
        }
    }
}
