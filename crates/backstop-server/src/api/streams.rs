//! Streams: records in, and how keys stand.

use super::read::{Asked, At, Body, large, limit, named, ok, parsed};
use super::reason::ReasonAsked;
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::Caller;
use crate::history::Alarms;
use crate::wire::list::List;
use crate::wire::stream::{
    ForgottenShape, KeyDoneShape, KeyWholeShape, KeysShape, OfferedShape, OfferedTogetherShape,
    StreamShape, StreamsShape, redacted,
};
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use backstop::config::StreamConfig;
use backstop::core::limits::{OFFER_MAX, PAYLOAD_BYTES_MAX};
use backstop::core::port::StoreError;
use backstop::core::stream::OffStep;
use backstop::operate::Changes;
use backstop::streams::{Grids, Offered, Reading, Record, Resume, Standing, Stream, WhichKeys};
use backstop::{StreamKey, StreamName};
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use utoipa::{IntoParams, ToSchema};

/// Keys of one call whose steps are looked at. Each takes a read of the store.
const GRIDS_MAX: usize = 10;
/// How long a push looks at steps: these reads wait behind lists.
const GRIDS_WITHIN: Duration = Duration::from_millis(250);

/// Which keys.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct KeysAsked {
    /// Only keys that hold records: true.
    holding: Option<String>,
    /// Only keys behind this one: the `next` of the page before.
    cursor: Option<String>,
    /// At most so many: 1 to 1000, 50 if not said. Other numbers are brought into that range.
    limit: Option<String>,
}

/// Records that come in together; a record alone may also be the whole body.
#[derive(Serialize, ToSchema)]
#[schema(as = StreamRecords)]
pub(super) struct RecordsShape {
    /// Each is `{"key","position","payload","step"?,"tenant"?}`, or whatever the configuration says
    /// where key and position are in.
    #[schema(max_items = 5000)]
    records: Vec<Value>,
}

/// A body as it is read: many records, or one that is all of it. The list is read no further than
/// its bound.
enum OfferedBody<'a> {
    Many(List<&'a RawValue, OFFER_MAX>),
    One,
}

impl<'de> Deserialize<'de> for OfferedBody<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OfferedBodyVisitor)
    }
}

struct OfferedBodyVisitor;

impl<'de> Visitor<'de> for OfferedBodyVisitor {
    type Value = OfferedBody<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("records: an object with a list `records`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let (mut records, mut other) = (None, None);
        while let Some(field) = fields.next_key::<Cow<'de, str>>()? {
            if field == "records" && records.is_none() {
                records = fields.next_value()?;
            } else {
                fields.next_value::<IgnoredAny>()?;
                other = other.or(Some(field));
            }
        }
        match (records, other) {
            (Some(_), Some(other)) => Err(A::Error::unknown_field(&other, &["records"])),
            (Some(records), None) => Ok(OfferedBody::Many(records)),
            (None, _) => Ok(OfferedBody::One),
        }
    }
}

/// Put records into a stream; whoever serves it handles them in order. When it is answered, those
/// held are durable.
#[utoipa::path(
    post, path = "/streams/{s}/records", tag = "streams", params(("s" = String, Path, description = "The stream")),
    request_body = RecordsShape,
    responses(
        (status = 200, body = OfferedTogetherShape),
        (status = 429, description = "Their keys keep as many records as they can, or the stream is new and there are too many", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn offer(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At(stream): At<String>,
    body: Body,
) -> Result<Response, Problem> {
    let name: StreamName = named(&stream)?;
    let (reading, of) = (app.clone(), name.clone());
    let records = body
        .read_by(&app, move |body| records(&reading, &of, body))
        .await?;
    let places: Vec<(StreamKey, i64)> = records
        .iter()
        .map(|record| (record.key.clone(), record.position))
        .collect();
    let stream = stream_of(&app, &name)?;
    if !records.is_empty() {
        app.new_queues().check_stream(&app, &caller, &name).await?;
    }
    let off_steps = off_steps(&app, &caller, &stream, &records).await;
    let answers = stream.offer(records).await?;
    if !answers.is_empty() && answers.iter().all(|answer| *answer == Offered::Full) {
        return Err(Problem::full(
            "their keys keep as many records as they can; see that the stream is served, and that no key is halted",
        ));
    }
    let results = places.into_iter().zip(answers).zip(off_steps);
    let results = results.map(|(((key, position), offered), off_step)| {
        OfferedShape::new(key, position, offered, off_step)
    });
    Ok(ok(&OfferedTogetherShape {
        results: results.collect(),
    }))
}

/// Where each record is, if that is off the grid of its key. A caller that has as many reads under
/// way as it may pushes all the same, and learns nothing of this.
async fn off_steps(
    app: &App,
    caller: &Caller,
    stream: &Stream,
    records: &[Record],
) -> Vec<Option<OffStep>> {
    let turn = app.reads().enter_now(caller.key());
    let mut grids = Grids::new(if turn.is_some() { GRIDS_MAX } else { 0 });
    let mut off_steps = Vec::with_capacity(records.len());
    let until = Instant::now() + GRIDS_WITHIN;
    for record in records {
        // What is known of a key by then is used on: it takes no waiting.
        let off_step = timeout_at(until, grids.off_step(stream, record)).await;
        off_steps.push(off_step.ok().flatten());
    }
    off_steps
}

fn records(app: &App, name: &StreamName, body: &Body) -> Result<Vec<Record>, Problem> {
    let config = app.config();
    let usual = StreamConfig::default();
    let reading = Reading::new(config.streams.get(name).unwrap_or(&usual), None);
    let OfferedBody::Many(written) = body.read()? else {
        return Ok(vec![record(&reading, &body.bytes, "")?]);
    };
    let read = |(at, raw): (usize, &&RawValue)| {
        record(&reading, raw.get().as_bytes(), &format!("record {at}: "))
    };
    written.0.iter().enumerate().map(read).collect()
}

/// A record, or what is wrong with the one that `which` names.
fn record(reading: &Reading<'_>, text: &[u8], which: &str) -> Result<Record, Problem> {
    let wrong = if text.len() > PAYLOAD_BYTES_MAX {
        Problem::too_large
    } else {
        Problem::bad
    };
    reading
        .record(text)
        .map_err(|told| wrong(format!("{which}{told}")))
}

/// List streams: what they hold, and what happened in them.
#[utoipa::path(
    get, path = "/streams", tag = "streams",
    responses(
        (status = 200, body = StreamsShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(State(app): State<App>) -> Result<Response, Problem> {
    let streams = app.backstop().store().streams().await?;
    let alarms = Alarms::read(app.backstop(), &streams).await?;
    let shapes = streams
        .iter()
        .map(|status| StreamShape::new(status, &alarms));
    Ok(ok(&StreamsShape {
        streams: shapes.collect(),
    }))
}

/// List the keys of a stream: how far they are, what they hold, what they wait for.
#[utoipa::path(
    get, path = "/streams/{s}/keys", tag = "streams", params(("s" = String, Path, description = "The stream"), KeysAsked),
    responses(
        (status = 200, body = KeysShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn keys(
    State(app): State<App>,
    At(stream): At<String>,
    Asked(asked): Asked<KeysAsked>,
) -> Result<Response, Problem> {
    let name: StreamName = named(&stream)?;
    let limit = limit(asked.limit.as_deref())?;
    let after: Option<StreamKey> = parsed("cursor", asked.cursor.as_deref())?;
    let is_holding = parsed::<bool>("holding", asked.holding.as_deref())?.unwrap_or_default();
    let which = if is_holding {
        WhichKeys::Holding
    } else {
        WhichKeys::All
    };
    let stream = stream_of(&app, &name)?;
    let is_first = after.is_none();
    let keys = stream.keys(after, which, limit).await?;
    let is_known = !keys.is_empty() || !is_first || app.config().streams.contains_key(&name);
    if !is_known && stream.status().await?.is_none() {
        return Err(Problem::not_found(format_args!(
            "there is no stream {name}; /v1/streams lists them"
        )));
    }
    Ok(ok(&KeysShape::new(&keys, limit)))
}

/// Show one key: its gaps, what it holds, what was missing, what came late.
#[utoipa::path(
    get, path = "/streams/{s}/keys/{k}", tag = "streams",
    params(("s" = String, Path, description = "The stream"), ("k" = String, Path, description = "The key")),
    responses(
        (status = 200, body = KeyWholeShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn key(
    State(app): State<App>,
    At((stream, key)): At<(String, String)>,
) -> Result<Response, Problem> {
    let (name, key): (StreamName, StreamKey) = (named(&stream)?, named(&key)?);
    let stored = stream_of(&app, &name)?
        .key(&key)
        .await?
        .ok_or_else(|| no_key(&name, &key))?;
    let (config, bytes) = (app.config(), stored.bytes());
    large(&app, bytes, move || {
        let stored = redacted(stored, &config.redaction);
        match Standing::from_bytes(&stored.standing) {
            Ok(standing) => ok(&KeyWholeShape::new(&name, &stored, &standing)),
            Err(error) => {
                Problem::from(StoreError::corrupt("looking at a key", error)).into_response()
            }
        }
    })
    .await
}

/// Forget a key: what it holds is gone, and its next record is its first.
#[utoipa::path(
    delete, path = "/streams/{s}/keys/{k}", tag = "streams",
    params(("s" = String, Path, description = "The stream"), ("k" = String, Path, description = "The key"), ReasonAsked),
    responses(
        (status = 200, body = ForgottenShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn forget(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At((stream, key)): At<(String, String)>,
    Asked(asked): Asked<ReasonAsked>,
) -> Result<Response, Problem> {
    let (name, key): (StreamName, StreamKey) = (named(&stream)?, named(&key)?);
    let stream = stream_of(&app, &name)?;
    let changes = app
        .backstop()
        .changes(caller.name())
        .because(asked.reason()?);
    let gone = changes.forget(&stream, &key).await?;
    let gone = gone.ok_or_else(|| no_key(&name, &key))?;
    Ok(ok(&ForgottenShape {
        count: gone.records,
        disabled: false,
        key: &key,
    }))
}

/// Forget a key, and ignore its records until it is enabled: what it holds is gone.
#[utoipa::path(
    post, path = "/streams/{s}/keys/{k}/disable", tag = "streams",
    params(("s" = String, Path, description = "The stream"), ("k" = String, Path, description = "The key"), ReasonAsked),
    responses(
        (status = 200, body = ForgottenShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn disable(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At((stream, key)): At<(String, String)>,
    Asked(asked): Asked<ReasonAsked>,
) -> Result<Response, Problem> {
    let (stream, key, changes) = asked_for(&app, &caller, (&stream, &key), &asked)?;
    let gone = changes.disable(&stream, &key).await?;
    Ok(ok(&ForgottenShape {
        count: gone.records,
        disabled: true,
        key: &key,
    }))
}

/// Take the records of a disabled key again; its next record is its first.
#[utoipa::path(
    post, path = "/streams/{s}/keys/{k}/enable", tag = "streams",
    params(("s" = String, Path, description = "The stream"), ("k" = String, Path, description = "The key"), ReasonAsked),
    responses(
        (status = 200, body = KeyDoneShape<'_>),
        (status = 409, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn enable(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At((stream, key)): At<(String, String)>,
    Asked(asked): Asked<ReasonAsked>,
) -> Result<Response, Problem> {
    let (stream, key, changes) = asked_for(&app, &caller, (&stream, &key), &asked)?;
    if !changes.enable(&stream, &key).await? {
        return Err(Problem::conflict(format_args!(
            "key {key} of stream {} is not disabled",
            stream.name()
        )));
    }
    Ok(ok(&KeyDoneShape {
        done: "enabled",
        key: &key,
    }))
}

/// Set a halted key going again: the record it halted at is tried once more.
#[utoipa::path(
    post, path = "/streams/{s}/keys/{k}/resume", tag = "streams",
    params(("s" = String, Path, description = "The stream"), ("k" = String, Path, description = "The key"), ReasonAsked),
    responses(
        (status = 200, body = KeyDoneShape<'_>),
        (status = 409, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn resume(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At((stream, key)): At<(String, String)>,
    Asked(asked): Asked<ReasonAsked>,
) -> Result<Response, Problem> {
    let asked = asked_for(&app, &caller, (&stream, &key), &asked)?;
    set_going(asked, Resume::Again, "resumed").await
}

/// Set a halted key going again past the record it halted at, which stays a dead letter.
#[utoipa::path(
    post, path = "/streams/{s}/keys/{k}/skip", tag = "streams",
    params(("s" = String, Path, description = "The stream"), ("k" = String, Path, description = "The key"), ReasonAsked),
    responses(
        (status = 200, body = KeyDoneShape<'_>),
        (status = 409, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn skip(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At((stream, key)): At<(String, String)>,
    Asked(asked): Asked<ReasonAsked>,
) -> Result<Response, Problem> {
    let asked = asked_for(&app, &caller, (&stream, &key), &asked)?;
    set_going(asked, Resume::Past, "skipped").await
}

/// A key that something is done to, and in whose name and why.
fn asked_for(
    app: &App,
    caller: &Caller,
    (stream, key): (&str, &str),
    asked: &ReasonAsked,
) -> Result<(Stream, StreamKey, Changes), Problem> {
    let (name, key): (StreamName, StreamKey) = (named(stream)?, named(key)?);
    Ok((
        stream_of(app, &name)?,
        key,
        app.backstop()
            .changes(caller.name())
            .because(asked.reason()?),
    ))
}

async fn set_going(
    (stream, key, changes): (Stream, StreamKey, Changes),
    resume: Resume,
    done: &'static str,
) -> Result<Response, Problem> {
    if !changes.resume_key(&stream, &key, resume).await? {
        let name = stream.name();
        return Err(Problem::conflict(format_args!(
            "key {key} of stream {name} is not halted, or is no longer; /v1/streams/{name}/keys/{key} shows it"
        )));
    }
    Ok(ok(&KeyDoneShape { done, key: &key }))
}

fn stream_of(app: &App, name: &StreamName) -> Result<Stream, Problem> {
    app.backstop().stream(name.as_str()).map_err(Problem::bad)
}

fn no_key(stream: &StreamName, key: &StreamKey) -> Problem {
    Problem::not_found(format_args!(
        "stream {stream} has no key {key}; /v1/streams/{stream}/keys lists those it has"
    ))
}
