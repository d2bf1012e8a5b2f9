//! One job: why it waits, what happened to it, what is in it. A dead letter is a job that is dead,
//! and shown here too.

mod timeline;

use super::components::{RelativeTime, StateBadge};
use super::job_ref::JobRef;
use super::jobs::actions;
use super::link::{PageLink, part};
use super::payload::PayloadView;
use super::{PageFailure, PageFrame, PageSection, PageView, PostedForm, text};
use crate::App;
use crate::words::about;
use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use backstop::config::Config;
use backstop::why::JobExplanation;
use backstop_core::failure::DeathContext;
use backstop_core::port::{StoreResult, UniqueKeyHolder};
use backstop_core::retry::shortest_lifetime;
use backstop_core::{Fingerprint, Job, JobId, JobState, Kind, QueueName, Time};
use timeline::JobTimelineEntry;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/jobs/{id}", get(page))
        .route("/jobs/{id}/payload", post(whole_payload))
        .route("/dead/{id}", get(letter))
}

#[derive(Template)]
#[template(path = "job.html")]
struct JobPage {
    frame: PageFrame,
    id: String,
    /// The job and its queue, for what is done to it.
    pick: String,
    show_payload: String,
    is_letter: bool,
    state: StateBadge,
    queue: String,
    queue_link: String,
    /// What it is called by: its kind, if somebody gave it one.
    title: String,
    kind: String,
    kind_link: String,
    why: String,
    next: Option<(String, String)>,
    facts: Vec<(&'static str, JobFact)>,
    moments: Vec<JobTimelineEntry>,
    payload: PayloadView,
    is_whole: bool,
    is_hidden: bool,
    actions: Vec<JobActionButton>,
    death: Option<JobDeathPanel>,
    queues: Vec<String>,
}

/// A fact about a job.
enum JobFact {
    Text(String),
    When(RelativeTime),
    Code(String),
    Link(String, String),
}

/// What can be done to it, and what that means.
struct JobActionButton {
    word: &'static str,
    act: String,
    sentence: &'static str,
    is_danger: bool,
}

struct JobDeathPanel {
    group: String,
    group_link: String,
    redrive: String,
    act: String,
    context: Vec<(String, String)>,
}

/// Whether its payload is shown whole.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PayloadVisibility {
    Redacted,
    Whole,
}

/// Which job an address means.
enum JobMatch {
    One(Box<Job>),
    /// One of these: their queues know ids each by itself, and none of them was named.
    Several(Vec<Job>),
}

async fn page(view: PageView, Path(id): Path<String>) -> Result<Response, PageFailure> {
    match find_job(&view, &id).await? {
        JobMatch::One(job) => {
            show(&view, *job, PageSection::Jobs, PayloadVisibility::Redacted).await
        }
        JobMatch::Several(jobs) => choose(&view, &jobs, "/jobs"),
    }
}

/// A dead letter; one that is dead no longer is a job like any other.
async fn letter(view: PageView, Path(id): Path<String>) -> Result<Response, PageFailure> {
    match find_job(&view, &id).await? {
        JobMatch::One(job) if job.state == JobState::Dead => {
            show(&view, *job, PageSection::Dead, PayloadVisibility::Redacted).await
        }
        JobMatch::One(job) => {
            let link = JobRef {
                id: job.id,
                queue: queue_param(&view),
            }
            .link(&view, "/jobs");
            Ok(Redirect::to(&link.to_string()).into_response())
        }
        JobMatch::Several(jobs) => choose(&view, &jobs, "/dead"),
    }
}

/// The payload as it is: asked for in so many words, and written down before it is shown.
async fn whole_payload(
    view: PageView,
    Path(id): Path<String>,
    posted: PostedForm,
) -> Result<Response, PageFailure> {
    let audit = view.audit(&posted)?;
    let job = match find_job(&view, &id).await? {
        JobMatch::One(job) => job,
        JobMatch::Several(jobs) => return choose(&view, &jobs, "/jobs"),
    };
    let shown = async { Ok::<_, backstop_core::port::StoreError>((1, ())) };
    view.ask(audit.record("job payload", serde_json::json!({ "ids": [job.id] }), shown))
        .await?;
    let section = if job.state == JobState::Dead {
        PageSection::Dead
    } else {
        PageSection::Jobs
    };
    show(&view, *job, section, PayloadVisibility::Whole).await
}

/// The queue that the address names.
fn queue_param(view: &PageView) -> Option<QueueName> {
    view.query("queue")
        .and_then(|name| QueueName::new(name).ok())
}

/// The job that is meant: that of the queue that is named, or, if it has gone from there or none
/// is, whichever there is.
async fn find_job(view: &PageView, id: &str) -> Result<JobMatch, PageFailure> {
    let (id, backstop) = (JobId::from_text(id), view.app().backstop());
    if let Some(queue) = queue_param(view)
        && let Some(job) = view.ask(backstop.job_in(&queue, id)).await?
    {
        return Ok(JobMatch::One(Box::new(job)));
    }
    let mut found = view.ask(backstop.namesakes(id)).await?;
    match found.len() {
        0 | 1 => found
            .pop()
            .map(|job| JobMatch::One(Box::new(job)))
            .ok_or_else(|| {
                view.missing(format!(
                    "There is no job {id}; it may have been deleted, or pruned after it ended."
                ))
            }),
        _ => Ok(JobMatch::Several(found)),
    }
}

#[derive(Template)]
#[template(path = "namesakes.html")]
struct JobChoicePage {
    frame: PageFrame,
    id: String,
    rows: Vec<JobChoiceRow>,
}

/// One of several jobs of an id.
struct JobChoiceRow {
    link: String,
    queue: String,
    state: StateBadge,
    kind: String,
    age: RelativeTime,
}

/// The jobs of an id, to choose from.
fn choose(view: &PageView, jobs: &[Job], under: &str) -> Result<Response, PageFailure> {
    let now = view.now();
    let row = |job: &Job| JobChoiceRow {
        link: JobRef::new(job.id, &job.queue)
            .link(view, under)
            .to_string(),
        queue: job.queue.to_string(),
        state: StateBadge(job.state),
        kind: text::kind(&job.kind),
        age: RelativeTime::new(job.inserted_at, now),
    };
    let page = JobChoicePage {
        frame: view.frame(PageSection::Jobs, "Which job?").live(),
        id: jobs
            .first()
            .map(|job| job.id.to_string())
            .unwrap_or_default(),
        rows: jobs.iter().map(row).collect(),
    };
    view.show(&page)
}

/// Where the whole payload is asked for.
fn payload_link(view: &PageView, pick: &JobRef) -> String {
    let path = view.at(&format!("/jobs/{}/payload", pick.id));
    PageLink::to(path)
        .with_some("queue", pick.queue.as_ref())
        .to_string()
}

async fn show(
    view: &PageView,
    job: Job,
    section: PageSection,
    showing: PayloadVisibility,
) -> Result<Response, PageFailure> {
    let config = view.app().config();
    let explained = view
        .ask(
            view.app()
                .backstop()
                .explain_loaded(job.clone(), |job| config.max_attempts(job)),
        )
        .await?;
    let (job, answer) = (&job, &explained.explanation);
    let (now, pick) = (view.now(), JobRef::new(job.id, &job.queue));
    let holder = view.ask(holder(view, job, now)).await?;
    let queues = view.ask(view.store().queues(now)).await?;
    let shown = config.redaction.payload(job.payload.as_bytes());
    let is_hidden = showing == PayloadVisibility::Redacted && shown != job.payload.as_bytes();
    let payload = match showing {
        PayloadVisibility::Redacted => PayloadView::of(&shown),
        PayloadVisibility::Whole => PayloadView::of(job.payload.as_bytes()),
    };
    let title = title(job);
    let frame = view.frame(section, format!("{title} {}", super::jobs::short(job.id)));
    let page = JobPage {
        // What was asked for once is not fetched again behind the caller's back.
        frame: if showing == PayloadVisibility::Whole {
            frame
        } else {
            frame.live()
        },
        id: job.id.to_string(),
        pick: pick.to_string(),
        show_payload: payload_link(view, &pick),
        is_letter: section == PageSection::Dead,
        state: StateBadge(job.state),
        queue: job.queue.to_string(),
        queue_link: view.at(&format!("/queues/{}", part(job.queue.as_str()))),
        title,
        kind: text::kind(&job.kind),
        kind_link: PageLink::to(view.at("/jobs"))
            .with("queue", &job.queue)
            .with("kind", &job.kind)
            .to_string(),
        why: config.redaction.text(&sentence(answer)),
        next: next(view, answer, job),
        facts: facts(view, job, holder, now),
        moments: timeline::moments(job, &config.redaction, now),
        payload,
        is_whole: showing == PayloadVisibility::Whole,
        is_hidden,
        actions: actions(Some(job.state))
            .into_iter()
            .map(|word| action_button(view, word, job.state))
            .collect(),
        death: death(view, job),
        queues: queues
            .iter()
            .take(500)
            .map(|queue| queue.name.to_string())
            .collect(),
    };
    view.show(&page)
}

/// What a job is called by: its kind, or its queue where nobody has named a kind.
fn title(job: &Job) -> String {
    if job.kind == Kind::default() {
        format!("Job of {}", job.queue)
    } else {
        text::name(job.kind.as_str())
    }
}

/// The job that has its unique key, if it is another one.
async fn holder(view: &PageView, job: &Job, now: Time) -> StoreResult<Option<UniqueKeyHolder>> {
    let Some(key) = &job.unique_key else {
        return Ok(None);
    };
    let mut holders = view
        .store()
        .unique_holders(job.queue.clone(), vec![key.clone()], now)
        .await?;
    Ok(holders
        .pop()
        .flatten()
        .filter(|holder| holder.job != job.id))
}

fn sentence(answer: &JobExplanation) -> String {
    let words = text::to_the_second(&answer.to_string());
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).chain(['.']).collect()
    })
}

/// Where to go to have it run, where somebody can do something about it.
fn next(view: &PageView, answer: &JobExplanation, job: &Job) -> Option<(String, String)> {
    let queue = view.at(&format!("/queues/{}", part(job.queue.as_str())));
    Some(match answer {
        JobExplanation::Paused { .. } => ("Resume the queue".to_owned(), queue),
        JobExplanation::BreakerOpen { .. } => {
            ("Look at its breaker".to_owned(), view.at("/breakers"))
        }
        JobExplanation::GateShut { .. } => {
            let groups = PageLink::to(view.at("/dead")).with("queue", &job.queue);
            ("See what its kind dies of".to_owned(), groups.to_string())
        }
        JobExplanation::NoWorker => ("See how to serve its queue".to_owned(), queue),
        JobExplanation::Lost { .. }
        | JobExplanation::Quiet { .. }
        | JobExplanation::UnknownKind { .. } => {
            ("Look at the workers".to_owned(), view.at("/workers"))
        }
        JobExplanation::UniqueKeyHeld { twin, .. } => (
            "Look at its twin".to_owned(),
            JobRef::new(*twin, &job.queue)
                .link(view, "/jobs")
                .to_string(),
        ),
        JobExplanation::RateLimited { .. }
        | JobExplanation::Suspect { .. }
        | JobExplanation::Waiting { .. } => ("Look at its queue".to_owned(), queue),
        _ => return None,
    })
}

/// How many runs it had, may have, and how long these take if all of them fail.
fn attempts(job: &Job, config: &Config) -> String {
    let policy = job
        .options
        .retry()
        .unwrap_or_else(|| config.retry_of(&job.queue));
    match (policy.max_attempts(), shortest_lifetime(&policy)) {
        // It has no more of them, whatever the policy allows by now.
        _ if job.state == JobState::Dead => job.attempt.to_string(),
        (Some(max), Some(life)) => format!(
            "{} of {max}, spread over at least {}",
            job.attempt,
            about(life)
        ),
        (Some(max), None) => format!("{} of {max}", job.attempt),
        (None, _) => format!("{}, without a limit", job.attempt),
    }
}

fn facts(
    view: &PageView,
    job: &Job,
    holder: Option<UniqueKeyHolder>,
    now: Time,
) -> Vec<(&'static str, JobFact)> {
    let mut facts = vec![
        ("Priority", JobFact::Text(job.priority.to_string())),
        (
            "Attempt",
            JobFact::Text(attempts(job, &view.app().config())),
        ),
        (
            "Came in",
            JobFact::When(RelativeTime::new(job.inserted_at, now)),
        ),
        (
            if job.state.is_final() {
                "Was to run"
            } else {
                "To run"
            },
            JobFact::When(RelativeTime::new(job.run_at, now)),
        ),
    ];
    if let Some(span) = job.running_for(now) {
        facts.push(("Running for", JobFact::Text(text::span(span))));
    }
    if let Some(at) = job.finished_at {
        facts.push(("Ended", JobFact::When(RelativeTime::new(at, now))));
    }
    if let Some(reason) = job.reason {
        facts.push(("Because", JobFact::Text(reason.as_str().replace('_', " "))));
    }
    if job.lost_leases > 0 {
        facts.push((
            "Workers lost with it",
            JobFact::Text(text::count(job.lost_leases.into())),
        ));
    }
    if job.requeues > 0 {
        facts.push((
            "Requeued",
            JobFact::Text(text::many(job.requeues.into(), "time", "times")),
        ));
    }
    if let Some(key) = &job.unique_key {
        facts.push(("Unique key", JobFact::Code(key.to_string())));
    }
    if let Some(holder) = holder {
        let link = JobRef::new(holder.job, &job.queue).link(view, "/jobs");
        facts.push((
            "Held by a twin",
            JobFact::Link(holder.job.to_string(), link.to_string()),
        ));
    }
    if let Some(policy) = job.options.retry() {
        facts.push((
            "Its own retry",
            JobFact::Code(String::from_utf8_lossy(&policy.to_json()).into_owned()),
        ));
    }
    facts
}

/// A retry of a dead letter is called as in the list of letters, and goes the same way.
fn action_button(view: &PageView, word: &'static str, state: JobState) -> JobActionButton {
    let (word, act) = match (word, state) {
        ("retry", JobState::Dead) => ("requeue", "/dead/act"),
        _ => (word, "/jobs/act"),
    };
    let (sentence, is_danger) = match word {
        "requeue" => (
            "It becomes ready in its queue at once, with all its attempts again; its history stays.",
            false,
        ),
        "retry" => (
            "It runs as soon as a worker is free, with all its attempts again if it had ended.",
            false,
        ),
        "cancel" => (
            "It does not run any more; if it runs, its worker is told to stop. It can be retried.",
            true,
        ),
        _ => (
            "It is removed with its history and cannot be brought back.",
            true,
        ),
    };
    JobActionButton {
        word,
        act: view.at(act),
        sentence,
        is_danger,
    }
}

fn death(view: &PageView, job: &Job) -> Option<JobDeathPanel> {
    let fingerprint: Fingerprint = job.fingerprint()?;
    let of_group = |path: &str| {
        PageLink::to(view.at(path))
            .with("queue", &job.queue)
            .with("fingerprint", fingerprint)
            .to_string()
    };
    let context = job
        .history
        .failures()
        .pop()
        .and_then(|failure| failure.context);
    Some(JobDeathPanel {
        group: fingerprint.to_string(),
        group_link: of_group("/dead"),
        redrive: of_group("/dead/redrive"),
        act: view.at("/dead/act"),
        context: context
            .map(|context| context_facts(&context))
            .unwrap_or_default(),
    })
}

/// What was known about the world when it died.
fn context_facts(context: &DeathContext) -> Vec<(String, String)> {
    let mut around = Vec::new();
    let mut say = |what: &str, value: Option<String>| {
        around.extend(value.map(|value| (what.to_owned(), value)));
    };
    say("worker", context.worker.clone());
    say("host", context.host.clone());
    say("version", context.version.clone());
    for (queue, depth) in &context.queue_depths {
        say(&format!("jobs in {queue}"), Some(text::count(*depth)));
    }
    for (guard, state) in &context.breakers {
        say(&format!("guard {guard}"), Some(state.clone()));
    }
    if !context.lost_workers.is_empty() {
        say("workers lost", Some(context.lost_workers.join(", ")));
    }
    around
}
