//! Streams: records in, and how keys stand.

use super::read::{
    PathParams, QueryParams, RequestBody, ok, parse_limit, parse_name, parse_param,
    respond_off_thread,
};
use super::reason::ChangeReasonQuery;
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::Caller;
use crate::history::StreamAlarms;
use crate::wire::list::LimitedList;
use crate::wire::stream::{
    StreamKeyDoneShape, StreamKeyForgottenShape, StreamKeyShape, StreamKeysShape,
    StreamOfferedRecordShape, StreamOfferedShape, StreamShape, StreamsShape, redacted,
};
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use backstop::config::StreamConfig;
use backstop::core::limits::{OFFER_MAX, PAYLOAD_BYTES_MAX};
use backstop::core::port::StoreError;
use backstop::core::stream::OffStep;
use backstop::operate::AuditedChanges;
use backstop::streams::{
    KeyFilter, KeyGrids, KeyState, OfferOutcome, Record, RecordReader, ResumeFrom, Stream,
};
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
pub(super) struct ListStreamKeysQuery {
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
pub(super) struct StreamRecordsShape {
    /// Each is `{"key","position","payload","step"?,"tenant"?}`, or whatever the configuration
    /// says where key and position are in.
    #[schema(max_items = 5000)]
    records: Vec<Value>,
}

/// A body as it is read: many records, or one that is all of it. The list is read no further than
/// its bound.
enum OfferedBody<'a> {
    Many(LimitedList<&'a RawValue, OFFER_MAX>),
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
    request_body = StreamRecordsShape,
    responses(
        (status = 200, body = StreamOfferedShape),
        (status = 429, description = "Their keys keep as many records as they can, or the stream is new and there are too many", body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn offer(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams(stream): PathParams<String>,
    body: RequestBody,
) -> Result<Response, Problem> {
    let name: StreamName = parse_name(&stream)?;
    let (reading, stream_name) = (app.clone(), name.clone());
    let records = body
        .read_with(&app, move |body| read_records(&reading, &stream_name, body))
        .await?;
    let places: Vec<(StreamKey, i64)> = records
        .iter()
        .map(|record| (record.key.clone(), record.position))
        .collect();
    let stream = open_stream(&app, &name)?;
    if !records.is_empty() {
        app.new_queues().check_stream(&app, &caller, &name).await?;
    }
    let off_steps = off_steps(&app, &caller, &stream, &records).await;
    let answers = stream.offer(records).await?;
    if !answers.is_empty() && answers.iter().all(|answer| *answer == OfferOutcome::Full) {
        return Err(Problem::full(
            "their keys keep as many records as they can; see that the stream is served, and that no key is halted",
        ));
    }
    let results = places.into_iter().zip(answers).zip(off_steps);
    let results = results.map(|(((key, position), offered), off_step)| {
        StreamOfferedRecordShape::new(key, position, offered, off_step)
    });
    Ok(ok(&StreamOfferedShape {
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
    let turn = app.reads().try_acquire(caller.key());
    let mut grids = KeyGrids::new(if turn.is_some() { GRIDS_MAX } else { 0 });
    let mut off_steps = Vec::with_capacity(records.len());
    let until = Instant::now() + GRIDS_WITHIN;
    for record in records {
        // What is known of a key by then is used on: it takes no waiting.
        let off_step = timeout_at(until, grids.off_step(stream, record)).await;
        off_steps.push(off_step.ok().flatten());
    }
    off_steps
}

fn read_records(app: &App, name: &StreamName, body: &RequestBody) -> Result<Vec<Record>, Problem> {
    let config = app.config();
    let usual = StreamConfig::default();
    let reading = RecordReader::new(config.streams.get(name).unwrap_or(&usual), None);
    let OfferedBody::Many(written) = body.read()? else {
        return Ok(vec![read_record(&reading, &body.bytes, "")?]);
    };
    let read = |(at, raw): (usize, &&RawValue)| {
        read_record(&reading, raw.get().as_bytes(), &format!("record {at}: "))
    };
    written.0.iter().enumerate().map(read).collect()
}

/// A record, or what is wrong with the one that `which` names.
fn read_record(reading: &RecordReader<'_>, text: &[u8], which: &str) -> Result<Record, Problem> {
    let wrong = if text.len() > PAYLOAD_BYTES_MAX {
        Problem::too_large
    } else {
        Problem::bad_request
    };
    reading
        .record(text)
        .map_err(|error| wrong(format!("{which}{error}")))
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
    let alarms = StreamAlarms::read(app.backstop(), &streams).await?;
    let shapes = streams
        .iter()
        .map(|status| StreamShape::new(status, &alarms));
    Ok(ok(&StreamsShape {
        streams: shapes.collect(),
    }))
}

/// List the keys of a stream: how far they are, what they hold, what they wait for.
#[utoipa::path(
    get, path = "/streams/{s}/keys", tag = "streams", params(("s" = String, Path, description = "The stream"), ListStreamKeysQuery),
    responses(
        (status = 200, body = StreamKeysShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn keys(
    State(app): State<App>,
    PathParams(stream): PathParams<String>,
    QueryParams(query): QueryParams<ListStreamKeysQuery>,
) -> Result<Response, Problem> {
    let name: StreamName = parse_name(&stream)?;
    let limit = parse_limit(query.limit.as_deref())?;
    let after: Option<StreamKey> = parse_param("cursor", query.cursor.as_deref())?;
    let is_holding = parse_param::<bool>("holding", query.holding.as_deref())?.unwrap_or_default();
    let which = if is_holding {
        KeyFilter::Holding
    } else {
        KeyFilter::All
    };
    let stream = open_stream(&app, &name)?;
    let is_first = after.is_none();
    let keys = stream.keys(after, which, limit).await?;
    let is_known = !keys.is_empty() || !is_first || app.config().streams.contains_key(&name);
    if !is_known && stream.status().await?.is_none() {
        return Err(Problem::not_found(format_args!(
            "there is no stream {name}; /v1/streams lists them"
        )));
    }
    Ok(ok(&StreamKeysShape::new(&keys, limit)))
}

/// Show one key: its gaps, what it holds, what was missing, what came late.
#[utoipa::path(
    get, path = "/streams/{s}/keys/{k}", tag = "streams",
    params(("s" = String, Path, description = "The stream"), ("k" = String, Path, description = "The key")),
    responses(
        (status = 200, body = StreamKeyShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn key(
    State(app): State<App>,
    PathParams((stream, key)): PathParams<(String, String)>,
) -> Result<Response, Problem> {
    let (name, key): (StreamName, StreamKey) = (parse_name(&stream)?, parse_name(&key)?);
    let stored = open_stream(&app, &name)?
        .key(&key)
        .await?
        .ok_or_else(|| key_not_found(&name, &key))?;
    let (config, bytes) = (app.config(), stored.bytes());
    respond_off_thread(&app, bytes, move || {
        let stored = redacted(stored, &config.redaction);
        match KeyState::from_bytes(&stored.state) {
            Ok(key_state) => ok(&StreamKeyShape::new(&name, &stored, &key_state)),
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
    params(("s" = String, Path, description = "The stream"), ("k" = String, Path, description = "The key"), ChangeReasonQuery),
    responses(
        (status = 200, body = StreamKeyForgottenShape<'_>),
        (status = 404, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn forget(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams((stream, key)): PathParams<(String, String)>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let (name, key): (StreamName, StreamKey) = (parse_name(&stream)?, parse_name(&key)?);
    let stream = open_stream(&app, &name)?;
    let changes = app
        .backstop()
        .changes(caller.name())
        .because(query.reason()?);
    let gone = changes.forget(&stream, &key).await?;
    let gone = gone.ok_or_else(|| key_not_found(&name, &key))?;
    Ok(ok(&StreamKeyForgottenShape {
        count: gone.records,
        disabled: false,
        key: &key,
    }))
}

/// Forget a key, and ignore its records until it is enabled: what it holds is gone.
#[utoipa::path(
    post, path = "/streams/{s}/keys/{k}/disable", tag = "streams",
    params(("s" = String, Path, description = "The stream"), ("k" = String, Path, description = "The key"), ChangeReasonQuery),
    responses(
        (status = 200, body = StreamKeyForgottenShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn disable(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams((stream, key)): PathParams<(String, String)>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let (stream, key, changes) = change_target(&app, &caller, (&stream, &key), &query)?;
    let gone = changes.disable(&stream, &key).await?;
    Ok(ok(&StreamKeyForgottenShape {
        count: gone.records,
        disabled: true,
        key: &key,
    }))
}

/// Take the records of a disabled key again; its next record is its first.
#[utoipa::path(
    post, path = "/streams/{s}/keys/{k}/enable", tag = "streams",
    params(("s" = String, Path, description = "The stream"), ("k" = String, Path, description = "The key"), ChangeReasonQuery),
    responses(
        (status = 200, body = StreamKeyDoneShape<'_>),
        (status = 409, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn enable(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams((stream, key)): PathParams<(String, String)>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let (stream, key, changes) = change_target(&app, &caller, (&stream, &key), &query)?;
    if !changes.enable(&stream, &key).await? {
        return Err(Problem::conflict(format_args!(
            "key {key} of stream {} is not disabled",
            stream.name()
        )));
    }
    Ok(ok(&StreamKeyDoneShape {
        done: "enabled",
        key: &key,
    }))
}

/// Set a halted key going again: the record it halted at is tried once more.
#[utoipa::path(
    post, path = "/streams/{s}/keys/{k}/resume", tag = "streams",
    params(("s" = String, Path, description = "The stream"), ("k" = String, Path, description = "The key"), ChangeReasonQuery),
    responses(
        (status = 200, body = StreamKeyDoneShape<'_>),
        (status = 409, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn resume(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams((stream, key)): PathParams<(String, String)>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let target = change_target(&app, &caller, (&stream, &key), &query)?;
    resume_key(target, ResumeFrom::SameRecord, "resumed").await
}

/// Set a halted key going again past the record it halted at, which stays a dead letter.
#[utoipa::path(
    post, path = "/streams/{s}/keys/{k}/skip", tag = "streams",
    params(("s" = String, Path, description = "The stream"), ("k" = String, Path, description = "The key"), ChangeReasonQuery),
    responses(
        (status = 200, body = StreamKeyDoneShape<'_>),
        (status = 409, body = ProblemShape<'_>, content_type = "application/problem+json"),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn skip(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParams((stream, key)): PathParams<(String, String)>,
    QueryParams(query): QueryParams<ChangeReasonQuery>,
) -> Result<Response, Problem> {
    let target = change_target(&app, &caller, (&stream, &key), &query)?;
    resume_key(target, ResumeFrom::NextRecord, "skipped").await
}

/// A key that something is done to, and in whose name and why.
fn change_target(
    app: &App,
    caller: &Caller,
    (stream, key): (&str, &str),
    query: &ChangeReasonQuery,
) -> Result<(Stream, StreamKey, AuditedChanges), Problem> {
    let (name, key): (StreamName, StreamKey) = (parse_name(stream)?, parse_name(key)?);
    Ok((
        open_stream(app, &name)?,
        key,
        app.backstop()
            .changes(caller.name())
            .because(query.reason()?),
    ))
}

async fn resume_key(
    (stream, key, changes): (Stream, StreamKey, AuditedChanges),
    resume: ResumeFrom,
    done: &'static str,
) -> Result<Response, Problem> {
    if !changes.resume_key(&stream, &key, resume).await? {
        let name = stream.name();
        return Err(Problem::conflict(format_args!(
            "key {key} of stream {name} is not halted, or is no longer; /v1/streams/{name}/keys/{key} shows it"
        )));
    }
    Ok(ok(&StreamKeyDoneShape { done, key: &key }))
}

fn open_stream(app: &App, name: &StreamName) -> Result<Stream, Problem> {
    app.backstop()
        .stream(name.as_str())
        .map_err(Problem::bad_request)
}

fn key_not_found(stream: &StreamName, key: &StreamKey) -> Problem {
    Problem::not_found(format_args!(
        "stream {stream} has no key {key}; /v1/streams/{stream}/keys lists those it has"
    ))
}
