//! One job: why it waits, what happened to it, what is in it. A dead letter is a job that is dead,
//! and shown here too.

mod timeline;

use super::jobs::actions;
use super::link::{Link, part};
use super::mark::{StateMark, When};
use super::payload::ShownPayload;
use super::pick::Pick;
use super::{Frame, PageFailure, Posted, Section, View, text};
use crate::App;
use crate::words::about;
use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use backstop::config::Config;
use backstop::why::Why;
use backstop_core::failure::Context;
use backstop_core::port::{Answer, KeyHolder};
use backstop_core::retry::shortest_life;
use backstop_core::{Fingerprint, Job, JobId, Kind, QueueName, State, Time};
use timeline::Moment;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/jobs/{id}", get(page))
        .route("/jobs/{id}/payload", post(whole))
        .route("/dead/{id}", get(letter))
}

#[derive(Template)]
#[template(path = "job.html")]
struct Page {
    frame: Frame,
    id: String,
    /// The job and its queue, for what is done to it.
    pick: String,
    show_payload: String,
    is_letter: bool,
    state: StateMark,
    queue: String,
    queue_link: String,
    /// What it is called by: its kind, if somebody gave it one.
    title: String,
    kind: String,
    kind_link: String,
    why: String,
    next: Option<(String, String)>,
    facts: Vec<(&'static str, Fact)>,
    moments: Vec<Moment>,
    payload: ShownPayload,
    is_whole: bool,
    is_hidden: bool,
    actions: Vec<Deed>,
    death: Option<Death>,
    queues: Vec<String>,
}

/// A fact about a job.
enum Fact {
    Text(String),
    When(When),
    Code(String),
    Link(String, String),
}

/// What can be done to it, and what that means.
struct Deed {
    word: &'static str,
    act: String,
    sentence: &'static str,
    is_danger: bool,
}

/// What it died of.
struct Death {
    group: String,
    group_link: String,
    redrive: String,
    act: String,
    context: Vec<(String, String)>,
}

/// Whether its payload is shown whole.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Showing {
    Redacted,
    Whole,
}

/// Which job an address means.
enum Meant {
    One(Box<Job>),
    /// One of these: their queues know ids each by itself, and none of them was named.
    Several(Vec<Job>),
}

async fn page(view: View, Path(id): Path<String>) -> Result<Response, PageFailure> {
    match meant(&view, &id).await? {
        Meant::One(job) => show(&view, *job, Section::Jobs, Showing::Redacted).await,
        Meant::Several(jobs) => choose(&view, &jobs, "/jobs"),
    }
}

/// A dead letter; one that is dead no longer is a job like any other.
async fn letter(view: View, Path(id): Path<String>) -> Result<Response, PageFailure> {
    match meant(&view, &id).await? {
        Meant::One(job) if job.state == State::Dead => {
            show(&view, *job, Section::Dead, Showing::Redacted).await
        }
        Meant::One(job) => {
            let link = Pick {
                id: job.id,
                queue: named(&view),
            }
            .link(&view, "/jobs");
            Ok(Redirect::to(&link.to_string()).into_response())
        }
        Meant::Several(jobs) => choose(&view, &jobs, "/dead"),
    }
}

/// The payload as it is: asked for in so many words, and written down before it is shown.
async fn whole(
    view: View,
    Path(id): Path<String>,
    posted: Posted,
) -> Result<Response, PageFailure> {
    let audit = view.audit(&posted)?;
    let job = match meant(&view, &id).await? {
        Meant::One(job) => job,
        Meant::Several(jobs) => return choose(&view, &jobs, "/jobs"),
    };
    let shown = async { Ok::<_, backstop_core::port::StoreError>((1, ())) };
    view.ask(audit.around("job payload", serde_json::json!({ "ids": [job.id] }), shown))
        .await?;
    let section = if job.state == State::Dead {
        Section::Dead
    } else {
        Section::Jobs
    };
    show(&view, *job, section, Showing::Whole).await
}

/// The queue that the address names.
fn named(view: &View) -> Option<QueueName> {
    view.query("queue")
        .and_then(|name| QueueName::new(name).ok())
}

/// The job that is meant: that of the queue that is named, or, if it has gone from there or none
/// is, whichever there is.
async fn meant(view: &View, id: &str) -> Result<Meant, PageFailure> {
    let (id, backstop) = (JobId::from_text(id), view.app().backstop());
    if let Some(queue) = named(view)
        && let Some(job) = view.ask(backstop.job_in(&queue, id)).await?
    {
        return Ok(Meant::One(Box::new(job)));
    }
    let mut found = view.ask(backstop.namesakes(id)).await?;
    match found.len() {
        0 | 1 => found
            .pop()
            .map(|job| Meant::One(Box::new(job)))
            .ok_or_else(|| {
                view.missing(format!(
                    "There is no job {id}; it may have been deleted, or pruned after it ended."
                ))
            }),
        _ => Ok(Meant::Several(found)),
    }
}

#[derive(Template)]
#[template(path = "namesakes.html")]
struct Choice {
    frame: Frame,
    id: String,
    rows: Vec<Namesake>,
}

/// One of several jobs of an id.
struct Namesake {
    link: String,
    queue: String,
    state: StateMark,
    kind: String,
    age: When,
}

/// The jobs of an id, to choose from.
fn choose(view: &View, jobs: &[Job], under: &str) -> Result<Response, PageFailure> {
    let now = view.now();
    let row = |job: &Job| Namesake {
        link: Pick::new(job.id, &job.queue).link(view, under).to_string(),
        queue: job.queue.to_string(),
        state: StateMark(job.state),
        kind: text::kind(&job.kind),
        age: When::new(job.inserted_at, now),
    };
    let page = Choice {
        frame: view.frame(Section::Jobs, "Which job?").live(),
        id: jobs
            .first()
            .map(|job| job.id.to_string())
            .unwrap_or_default(),
        rows: jobs.iter().map(row).collect(),
    };
    view.show(&page)
}

/// Where the whole payload is asked for.
fn payload_link(view: &View, pick: &Pick) -> String {
    let path = view.at(&format!("/jobs/{}/payload", pick.id));
    Link::to(path)
        .with_some("queue", pick.queue.as_ref())
        .to_string()
}

async fn show(
    view: &View,
    job: Job,
    section: Section,
    showing: Showing,
) -> Result<Response, PageFailure> {
    let config = view.app().config();
    let explained = view
        .ask(
            view.app()
                .backstop()
                .why_of(job.clone(), |job| config.max_attempts(job)),
        )
        .await?;
    let (job, answer) = (&job, &explained.why);
    let (now, pick) = (view.now(), Pick::new(job.id, &job.queue));
    let holder = view.ask(holder(view, job, now)).await?;
    let queues = view.ask(view.store().queues(now)).await?;
    let shown = config.redaction.payload(job.payload.as_bytes());
    let is_hidden = showing == Showing::Redacted && shown != job.payload.as_bytes();
    let payload = match showing {
        Showing::Redacted => ShownPayload::of(&shown),
        Showing::Whole => ShownPayload::of(job.payload.as_bytes()),
    };
    let title = title(job);
    let frame = view.frame(section, format!("{title} {}", super::jobs::short(job.id)));
    let page = Page {
        // What was asked for once is not fetched again behind the caller's back.
        frame: if showing == Showing::Whole {
            frame
        } else {
            frame.live()
        },
        id: job.id.to_string(),
        pick: pick.to_string(),
        show_payload: payload_link(view, &pick),
        is_letter: section == Section::Dead,
        state: StateMark(job.state),
        queue: job.queue.to_string(),
        queue_link: view.at(&format!("/queues/{}", part(job.queue.as_str()))),
        title,
        kind: text::kind(&job.kind),
        kind_link: Link::to(view.at("/jobs"))
            .with("queue", &job.queue)
            .with("kind", &job.kind)
            .to_string(),
        why: config.redaction.text(&sentence(answer)),
        next: next(view, answer, job),
        facts: facts(view, job, holder, now),
        moments: timeline::moments(job, &config.redaction, now),
        payload,
        is_whole: showing == Showing::Whole,
        is_hidden,
        actions: actions(Some(job.state))
            .into_iter()
            .map(|word| deed(view, word, job.state))
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
async fn holder(view: &View, job: &Job, now: Time) -> Answer<Option<KeyHolder>> {
    let Some(key) = &job.unique_key else {
        return Ok(None);
    };
    let mut holders = view
        .store()
        .holders(job.queue.clone(), vec![key.clone()], now)
        .await?;
    Ok(holders
        .pop()
        .flatten()
        .filter(|holder| holder.job != job.id))
}

fn sentence(answer: &Why) -> String {
    let words = text::to_the_second(&answer.to_string());
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).chain(['.']).collect()
    })
}

/// Where to go to have it run, where somebody can do something about it.
fn next(view: &View, answer: &Why, job: &Job) -> Option<(String, String)> {
    let queue = view.at(&format!("/queues/{}", part(job.queue.as_str())));
    Some(match answer {
        Why::Paused { .. } => ("Resume the queue".to_owned(), queue),
        Why::BreakerOpen { .. } => ("Look at its breaker".to_owned(), view.at("/breakers")),
        Why::GateShut { .. } => {
            let groups = Link::to(view.at("/dead")).with("queue", &job.queue);
            ("See what its kind dies of".to_owned(), groups.to_string())
        }
        Why::NoWorker => ("See how to serve its queue".to_owned(), queue),
        Why::Lost { .. } | Why::Quiet { .. } | Why::UnknownKind { .. } => {
            ("Look at the workers".to_owned(), view.at("/workers"))
        }
        Why::UniqueTwin { twin, .. } => (
            "Look at its twin".to_owned(),
            Pick::new(*twin, &job.queue).link(view, "/jobs").to_string(),
        ),
        Why::RateLimited { .. } | Why::Suspect { .. } | Why::Waiting { .. } => {
            ("Look at its queue".to_owned(), queue)
        }
        _ => return None,
    })
}

/// How many runs it had, may have, and how long these take if all of them fail.
fn attempts(job: &Job, config: &Config) -> String {
    let policy = job
        .terms
        .retry()
        .unwrap_or_else(|| config.retry_of(&job.queue));
    match (policy.max_attempts(), shortest_life(&policy)) {
        // It has no more of them, whatever the policy allows by now.
        _ if job.state == State::Dead => job.attempt.to_string(),
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
    view: &View,
    job: &Job,
    holder: Option<KeyHolder>,
    now: Time,
) -> Vec<(&'static str, Fact)> {
    let mut facts = vec![
        ("Priority", Fact::Text(job.priority.to_string())),
        ("Attempt", Fact::Text(attempts(job, &view.app().config()))),
        ("Came in", Fact::When(When::new(job.inserted_at, now))),
        (
            if job.state.is_final() {
                "Was to run"
            } else {
                "To run"
            },
            Fact::When(When::new(job.run_at, now)),
        ),
    ];
    if let Some(span) = job.running_for(now) {
        facts.push(("Running for", Fact::Text(text::span(span))));
    }
    if let Some(at) = job.finished_at {
        facts.push(("Ended", Fact::When(When::new(at, now))));
    }
    if let Some(reason) = job.reason {
        facts.push(("Because", Fact::Text(reason.as_str().replace('_', " "))));
    }
    if job.lost_leases > 0 {
        facts.push((
            "Workers lost with it",
            Fact::Text(text::count(job.lost_leases.into())),
        ));
    }
    if job.requeues > 0 {
        facts.push((
            "Requeued",
            Fact::Text(text::many(job.requeues.into(), "time", "times")),
        ));
    }
    if let Some(key) = &job.unique_key {
        facts.push(("Unique key", Fact::Code(key.to_string())));
    }
    if let Some(holder) = holder {
        let link = Pick::new(holder.job, &job.queue).link(view, "/jobs");
        facts.push((
            "Held by a twin",
            Fact::Link(holder.job.to_string(), link.to_string()),
        ));
    }
    if let Some(policy) = job.terms.retry() {
        facts.push((
            "Its own retry",
            Fact::Code(String::from_utf8_lossy(&policy.to_json()).into_owned()),
        ));
    }
    facts
}

/// A retry of a dead letter is called as in the list of letters, and goes the same way.
fn deed(view: &View, word: &'static str, state: State) -> Deed {
    let (word, act) = match (word, state) {
        ("retry", State::Dead) => ("requeue", "/dead/act"),
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
    Deed {
        word,
        act: view.at(act),
        sentence,
        is_danger,
    }
}

fn death(view: &View, job: &Job) -> Option<Death> {
    let fingerprint: Fingerprint = job.fingerprint()?;
    let of_group = |path: &str| {
        Link::to(view.at(path))
            .with("queue", &job.queue)
            .with("fingerprint", fingerprint)
            .to_string()
    };
    let context = job
        .history
        .failures()
        .pop()
        .and_then(|failure| failure.context);
    Some(Death {
        group: fingerprint.to_string(),
        group_link: of_group("/dead"),
        redrive: of_group("/dead/redrive"),
        act: view.at("/dead/act"),
        context: context.map(|context| around(&context)).unwrap_or_default(),
    })
}

/// What was known about the world when it died.
fn around(context: &Context) -> Vec<(String, String)> {
    let mut around = Vec::new();
    let mut say =
        |what: &str, said: Option<String>| around.extend(said.map(|said| (what.to_owned(), said)));
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
