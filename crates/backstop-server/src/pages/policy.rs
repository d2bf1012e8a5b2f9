//! The policy lab: what a retry policy does, and what it does to a service that is out for a while.
//!
//! Everything stands in the address, so that a finding can be sent to somebody. Nothing is changed
//! and no store is asked.

use super::chart::{BarChart, ChartBar, ChartMarkup, ChartSegment, ChartTone, ChartUnit};
use super::{PageFailure, PageFrame, PageSection, PageView};
use crate::App;
use crate::policy_lab::{
    ArrivalRate, PictureStyle, SimulationRequest, WaitTable, describe_end, render_picture,
    summarize, wait_table,
};
use askama::Template;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use backstop_core::breaker::BreakerSettings;
use backstop_core::retry::{RetryPreview, preview};
use backstop_core::simulate::{Scenario, SimulationResult};
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
struct PolicyLabPage {
    frame: PageFrame,
    form: PolicyLabForm,
    examples: Vec<(&'static str, String)>,
    preview: Result<RetryWaitsView, String>,
    simulated: Option<Result<SimulationView, String>>,
}

/// The fields of the form, as they were filled in.
struct PolicyLabForm {
    policy: String,
    attempts: String,
    rate: String,
    outage: String,
    service_time: String,
    concurrency: String,
    breaker: String,
}

struct RetryWaitsView {
    grid: WaitTable,
    ends: String,
    chart: ChartMarkup,
}

/// A simulation, told and drawn.
struct SimulationView {
    sentences: Vec<(String, String)>,
    drawing: SimulationDrawing,
}

/// The chart of a simulation, made by the lab, which escapes what it writes.
struct SimulationDrawing(String);

impl std::fmt::Display for SimulationDrawing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl askama::filters::HtmlSafe for SimulationDrawing {}

impl PolicyLabForm {
    fn of(view: &PageView) -> Self {
        let field_or_default = |name: &str, usual: &str| {
            view.query(name)
                .unwrap_or(usual)
                .chars()
                .take(JSON_CHARS_MAX)
                .collect::<String>()
        };
        Self {
            policy: field_or_default("policy", EXAMPLES[0].1),
            attempts: field_or_default("attempts", "6"),
            rate: field_or_default("rate", "20/s"),
            outage: field_or_default("outage", "5m"),
            service_time: field_or_default("service_time", "50ms"),
            concurrency: field_or_default("concurrency", "8"),
            breaker: field_or_default("breaker", ""),
        }
    }

    fn policy(&self) -> Result<RetryPolicy, String> {
        RetryPolicy::from_json(self.policy.as_bytes()).map_err(|error| error.to_string())
    }

    fn lay_out_waits(&self) -> Result<RetryWaitsView, String> {
        let policy = self.policy()?;
        let attempts = number("Failures", &self.attempts, ATTEMPTS)?;
        let waits = preview(&policy, attempts);
        Ok(RetryWaitsView {
            grid: wait_table(&policy, &waits),
            ends: describe_end(&policy),
            chart: chart(&waits),
        })
    }

    fn question(&self) -> Result<SimulationRequest, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let breaker = match self.breaker.trim() {
            "" => None,
            json => Some(
                serde_json::from_str::<BreakerSettings>(json)
                    .map_err(|error| format!("Breaker: {error}"))?,
            ),
        };
        let rate: ArrivalRate = self.rate.parse().map_err(|error| text(&error))?;
        let question = SimulationRequest {
            arrivals_per_second: rate.per_second(),
            outage: self.outage.parse().map_err(|error| text(&error))?,
            service_time: self.service_time.parse().map_err(|error| text(&error))?,
            concurrency: number("Calls at a time", &self.concurrency, CONCURRENCY)?,
            policy: self.policy()?,
            breaker,
            ..SimulationRequest::default()
        };
        bounded(question)
    }
}

/// A question that a page has the time to answer: not more jobs than it may have, however long the
/// backlog takes to go.
fn bounded(question: SimulationRequest) -> Result<SimulationRequest, String> {
    let recovery = question.outage_at.plus(question.outage);
    let longest = Span::secs(1).scaled(JOBS_MAX / question.arrivals_per_second);
    let aftermath_max = longest.minus(recovery);
    if aftermath_max < question.outage {
        return Err(format!(
            "That is more than {JOBS_MAX} jobs, which a page has no time for: ask for a lower rate or a shorter outage, or use `backstop policy simulate`."
        ));
    }
    Ok(SimulationRequest {
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
    view: PageView,
    Extension(turn): Extension<Arc<Semaphore>>,
) -> Result<Response, PageFailure> {
    let form = PolicyLabForm::of(&view);
    let simulated = match view.query("simulate") {
        Some(_) => Some(simulate(&form, &turn).await),
        None => None,
    };
    let example = |(name, json): (&'static str, &str)| {
        (
            name,
            super::PageLink::to(view.at("/policy"))
                .with("policy", json)
                .to_string(),
        )
    };
    let page = PolicyLabPage {
        frame: view.frame(PageSection::Policy, "Policy lab"),
        preview: form.lay_out_waits(),
        form,
        examples: EXAMPLES.map(example).into(),
        simulated,
    };
    view.show(&page)
}

async fn simulate(form: &PolicyLabForm, turn: &Arc<Semaphore>) -> Result<SimulationView, String> {
    let question = form.question()?;
    let busy = || "Other simulations are being played; try again in a moment.".to_owned();
    let waited = tokio::time::timeout(PATIENCE, Arc::clone(turn).acquire_owned()).await;
    let permit = waited.map_err(|_| busy())?.map_err(|_| busy())?;
    let played = tokio::task::spawn_blocking(move || {
        let played = question.run();
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
        .map(|(scenario, simulated)| simulation_view(&scenario, &simulated))
        .map_err(|error| error.to_string())
}

fn simulation_view(scenario: &Scenario, simulated: &SimulationResult) -> SimulationView {
    let sentence = |line: String| {
        let (word, rest) = line.split_once(':').unwrap_or(("", &line));
        (word.to_owned(), rest.trim().to_owned())
    };
    let lines = summarize(scenario, simulated).into_iter().take(4);
    SimulationView {
        sentences: lines.map(sentence).collect(),
        drawing: SimulationDrawing(render_picture(scenario, simulated, PictureStyle::Embedded)),
    }
}

/// The waits as bars: how long at least, and how much longer at most.
fn chart(waits: &[RetryPreview]) -> ChartMarkup {
    let millis = |span: Span| span.as_millis().unsigned_abs();
    let bar = |wait: &RetryPreview| ChartBar {
        name: format!("attempt {}", wait.failures),
        shares: vec![
            ChartSegment::new("at least", ChartTone::Plain, millis(wait.min)),
            ChartSegment::new(
                "more at most",
                ChartTone::Warn,
                millis(wait.max.minus(wait.min)),
            ),
        ],
    };
    let bars = waits.iter().take(BARS_MAX).map(bar).collect();
    BarChart {
        id: "waits",
        title: "How long each wait is",
        of: "Wait",
        unit: ChartUnit::Millis,
        bars,
    }
    .figure()
}

const BARS_MAX: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_would_take_too_long_is_refused_with_what_to_do() {
        let bounded_question = |per_second: f64, outage: Span| {
            bounded(SimulationRequest {
                arrivals_per_second: per_second,
                outage,
                ..SimulationRequest::default()
            })
        };
        assert!(bounded_question(20.0, Span::minutes(5)).is_ok());
        assert!(
            bounded_question(20.0, Span::days(3))
                .unwrap_err()
                .contains("shorter outage")
        );
        assert!(
            bounded_question(1e12, Span::minutes(1))
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
