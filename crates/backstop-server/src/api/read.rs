//! Reading requests: bodies, paths and parameters, with what is wrong in them told as a problem.

use super::Problem;
use crate::App;
use crate::access::Caller;
use crate::wire::list::TOO_MANY;
use crate::work_limits::{Crowded, WorkPermit};
use axum::body::HttpBody;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use backstop::core::limits::LARGE_BYTES_MIN;
use backstop::core::terminal::escaped_json;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

/// How many entries a list has if nobody says.
const LIMIT_DEFAULT: usize = 50;
/// The most a list has.
const LIMIT_MAX: usize = 1_000;

/// The bytes of a request. Those of a large one take one of the places of its caller, from before
/// they are received: nobody fills the memory, or the queue to be parsed, for everybody.
pub(super) struct RequestBody {
    pub(super) bytes: Bytes,
    _turn: Option<WorkPermit>,
}

impl FromRequest<App> for RequestBody {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let turn = match caller_of_large(&request) {
            Some(caller) => Some(app.bodies().acquire(&caller).await?),
            None => None,
        };
        let read = Bytes::from_request(request, app).await;
        let bytes = read.map_err(|rejection: BytesRejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Problem::too_large(
                "the request is larger than its limit: 1 MB a job, 8 MB a batch. Send less at once, or store large data elsewhere and push its address",
            ),
            _ => Problem::bad_request(format_args!("the request could not be read: {}", rejection.body_text())),
        })?;
        let turn = turn.filter(|_| bytes.len() >= LARGE_BYTES_MIN);
        Ok(Self { bytes, _turn: turn })
    }
}

/// Who sends a body that is large, or may be: its length need not be known before its end.
fn caller_of_large(request: &Request) -> Option<Arc<str>> {
    let length = request.body().size_hint().upper();
    let is_small = length.is_some_and(|length| length < LARGE_BYTES_MIN as u64);
    let caller = request.extensions().get::<Caller>();
    caller
        .filter(|_| !is_small)
        .map(|caller| Arc::clone(caller.key()))
}

impl RequestBody {
    pub(super) fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        serde_json::from_slice(&self.bytes).map_err(|error| {
            let is_list = self.bytes.trim_ascii_start().starts_with(b"[");
            explain_unreadable(&error, is_list)
        })
    }

    /// What `read` makes of the request; a large one is read off the serving threads.
    pub(super) async fn read_with<T: Send + 'static>(
        self,
        app: &App,
        read: impl FnOnce(&Self) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        app.large_work()
            .body(self.bytes.len(), move || read(&self))
            .await?
    }

    /// What the request says, if it says anything.
    pub(super) fn read_or_default<'a, T: Deserialize<'a> + Default>(
        &'a self,
    ) -> Result<T, Problem> {
        if self.bytes.iter().all(u8::is_ascii_whitespace) {
            Ok(T::default())
        } else {
            self.read()
        }
    }
}

/// Why a body cannot be read, in the words of whoever wrote it.
fn explain_unreadable(error: &serde_json::Error, is_list: bool) -> Problem {
    let (place, text) = (
        format!(" at line {} column {}", error.line(), error.column()),
        error.to_string(),
    );
    let what = text.strip_suffix(&place).unwrap_or(&text);
    if let Some(too_many) = what.strip_prefix(TOO_MANY) {
        return Problem::too_large(too_many);
    }
    let place = if error.line() == 0 {
        String::new()
    } else {
        place
    };
    if !error.is_data() {
        let what = what.replace("expected ident", "expected true, false or null");
        return Problem::bad_request(format_args!("the body is not JSON: {what}{place}"));
    }
    let mismatch = what
        .strip_prefix("invalid type: ")
        .and_then(|rest| rest.split_once(", expected "));
    // serde takes a list for the fields of an object in their order.
    let too_short = what
        .strip_prefix("invalid length ")
        .and_then(|rest| rest.split_once(", expected "));
    let mismatch = match too_short {
        Some((_, expected)) => Some(("sequence", expected)),
        None if is_list => Some(("sequence", "map")),
        None => mismatch,
    };
    match mismatch {
        Some((found, expected)) => Problem::bad_request(format_args!(
            "the body: expected {}, found {}{place}",
            json_type_name(expected),
            json_type_name(found)
        )),
        None => Problem::bad_request(format_args!("the body: {what}{place}")),
    }
}

/// What serde calls a thing, as JSON calls it.
fn json_type_name(name: &str) -> &str {
    match name {
        "map" | "a map" => "an object",
        "sequence" | "a sequence" => "a list",
        "unit value" => "null",
        "f64" => "a number",
        "u16" | "u32" | "u64" | "i64" => "a whole number",
        "a boolean" | "bool" => "true or false",
        other => other,
    }
}

impl From<Crowded> for Problem {
    fn from(crowded: Crowded) -> Self {
        const AGAIN: &str = "nothing was done. Send it again in a moment, or less at a time";
        match crowded {
            Crowded::Caller => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too-many-at-once",
                "Too many at once",
                format_args!(
                    "as many large requests of this caller are under way, and waiting, \
                     as may be; {AGAIN}"
                ),
            ),
            Crowded::Server => Self::busy(format_args!(
                "as many large requests are under way, and waiting, as may be; {AGAIN}"
            )),
        }
        .retry_after(1)
    }
}

/// The parts of a path, decoded.
pub(super) struct PathParams<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(at)| Self(at)).map_err(|rejection| {
            Problem::bad_request(format_args!(
                "the path cannot be read: {}",
                rejection.body_text()
            ))
        })
    }
}

/// The parameters behind a question mark.
pub(super) struct QueryParams<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(query)| Self(query)).map_err(|rejection| {
            Problem::bad_request(format_args!("the parameters: {}", rejection.body_text()))
        })
    }
}

/// What a parameter says; an empty one says nothing.
pub(super) fn parse_param<T>(name: &str, text: Option<&str>) -> Result<Option<T>, Problem>
where
    T: FromStr,
    T::Err: Display,
{
    let text = text.filter(|text| !text.is_empty());
    text.map(str::parse)
        .transpose()
        .map_err(|error| Problem::bad_request(format_args!("`{name}`: {error}")))
}

/// A part of a path that names something.
pub(super) fn parse_name<T>(text: &str) -> Result<T, Problem>
where
    T: FromStr,
    T::Err: Display,
{
    text.parse()
        .map_err(|error: T::Err| Problem::bad_request(error))
}

/// The length of a list: what is too small or too large is brought to the nearest that is not.
pub(super) fn parse_limit(text: Option<&str>) -> Result<usize, Problem> {
    let Some(number) = parse_param::<f64>("limit", text)? else {
        return Ok(LIMIT_DEFAULT);
    };
    if number.is_nan() {
        return Err(Problem::bad_request("`limit` is a number from 1 to 1000"));
    }
    Ok(clamp_number(number, LIMIT_MAX))
}

/// A number from 1 to `max`, whatever was written. NaN cannot be written in JSON.
#[expect(clippy::cast_sign_loss, reason = "clamped before")]
#[expect(clippy::cast_precision_loss, reason = "bounds are small")]
pub(super) fn clamp_number(number: f64, max: usize) -> usize {
    number.clamp(1.0, max as f64) as usize
}

/// A result as JSON. `size` is about how many bytes it takes.
pub(super) fn json(status: StatusCode, shape: &impl Serialize, size: usize) -> Response {
    match to_json(shape, size) {
        Ok(body) => with_json_type(status, escape_body(body)),
        Err(problem) => problem.into_response(),
    }
}

/// A result as JSON that `write` makes, of payloads of so many bytes; a large one is written off
/// the serving threads.
pub(super) async fn respond_off_thread(
    app: &App,
    bytes: usize,
    write: impl FnOnce() -> Response + Send + 'static,
) -> Result<Response, Problem> {
    Ok(app.large_work().answer(bytes, write).await?)
}

/// A result in the bytes of JSON. `size` is about how many.
pub(super) fn to_json(shape: &impl Serialize, size: usize) -> Result<Vec<u8>, Problem> {
    let mut body = Vec::with_capacity(size);
    // Shapes have only text keys and finite numbers.
    serde_json::to_writer(&mut body, shape).map_err(|error| {
        let detail =
            format_args!("the answer could not be written: {error}; the server's log says more");
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "broken",
            "Answering failed",
            detail,
        )
    })?;
    Ok(body)
}

/// The same JSON without characters that a terminal acts on: answers are looked at with curl.
/// Leases are not: a worker gets its payload byte for byte.
pub(super) fn escape_body(body: Vec<u8>) -> Vec<u8> {
    // One of these bytes is in each of the characters that JSON leaves raw.
    let may_begin_one = |byte: &u8| matches!(byte, 0x7f | 0xc2 | 0xd8 | 0xe2);
    if !body.iter().any(may_begin_one) {
        return body;
    }
    match std::str::from_utf8(&body) {
        Ok(text) => escaped_json(text).into_bytes(),
        Err(_) => body,
    }
}

/// An answer whose body is JSON.
pub(super) fn with_json_type(status: StatusCode, body: impl IntoResponse) -> Response {
    let kind = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, kind)], body).into_response()
}

pub(super) fn ok(shape: &impl Serialize) -> Response {
    json(StatusCode::OK, shape, 1_024)
}

/// [`crate::detached::run_detached`] of a change that fails with a problem, whatever errors it
/// meets on the way.
pub(super) fn run_detached<T: Send + 'static>(
    change: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> impl Future<Output = Result<T, Problem>> {
    crate::detached::run_detached(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_in_a_body_is_said_in_words_of_json() {
        let check = |text: &str, expected: &str| {
            let body = RequestBody {
                bytes: Bytes::copy_from_slice(text.as_bytes()),
                _turn: None,
            };
            let problem = body
                .read::<crate::wire::work::SettleRequestShape<'_>>()
                .unwrap_err();
            assert!(problem.detail().contains(expected), "{text}: {problem:?}");
        };
        let end = |error: &str| {
            format!(r#"{{"settle":[{{"id":"a","lease":"b","outcome":"failed","error":{error}}}]}}"#)
        };
        check(
            &end(r#""boom""#),
            r#"`error` as an object: {"message":"boom"}, found string "boom" at line 1"#,
        );
        check(&end("{}"), "missing field `message`");
        check(
            r#"{"settle":{}}"#,
            "the body: expected a list, found an object at line 1",
        );
        check(
            "nope",
            "the body is not JSON: expected true, false or null at line 1",
        );
        check(
            "[]",
            "the body: expected ends of runs: an object with a list `settle`, found a list",
        );
        check("[[{}]]", "the body: expected an object, found a list");
        check("", "the body is not JSON: EOF");
    }

    #[test]
    fn a_limit_is_brought_to_the_nearest_that_can_be() {
        let check = |text: &str, expected: usize| {
            assert_eq!(parse_limit(Some(text)).unwrap(), expected, "{text}");
        };
        check("", 50);
        check("7", 7);
        check("-1", 1);
        check("0", 1);
        check("1000000000", 1_000);
        check("1e9", 1_000);
        check("inf", 1_000);
        check("-inf", 1);
        check("99999999999999999999999999", 1_000);
        assert_eq!(parse_limit(None).unwrap(), 50);
        for wrong in ["NaN", "ten", "1; DROP TABLE jobs", "\0"] {
            assert_eq!(
                parse_limit(Some(wrong)).unwrap_err().status(),
                StatusCode::BAD_REQUEST,
                "{wrong}"
            );
        }
    }
}
