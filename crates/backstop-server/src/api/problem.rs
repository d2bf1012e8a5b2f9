//! What goes wrong, told to programs: `application/problem+json`, with a detail that says what to
//! do.

use super::read::escape_body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use backstop::core::amend::AmendRefusal;
use backstop::core::port::StoreError;
use serde::Serialize;
use std::fmt::Display;
use utoipa::ToSchema;

/// How long whoever met a full queue, or a store that does not answer, is asked to wait.
const RETRY_AFTER_SECS: u32 = 1;
/// What a server that is busy is called by programs.
const BUSY: &str = "busy";

/// Why a request was not answered.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    kind: &'static str,
    title: &'static str,
    detail: String,
    retry_after_secs: Option<u32>,
    count: Option<u64>,
}

/// A problem as it is written.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Problem)]
pub struct ProblemShape<'a> {
    /// What kind of problem, for programs: `urn:backstop:problem:KIND`.
    r#type: String,
    /// What kind of problem, for people.
    title: &'a str,
    /// The status of the answer.
    status: u16,
    /// What happened, and what to do.
    detail: &'a str,
    /// Of a change that was refused for lack of room: to how many it was done, which is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
}

impl Problem {
    /// Any other problem: `kind` for programs, `title` for people.
    pub fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: impl Display,
    ) -> Self {
        Self {
            status,
            kind,
            title,
            detail: detail.to_string(),
            retry_after_secs: None,
            count: None,
        }
    }

    /// The request says something that cannot be.
    pub fn bad_request(detail: impl Display) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "bad-request",
            "The request cannot be understood",
            detail,
        )
    }

    /// There is no such thing.
    pub fn not_found(detail: impl Display) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "not-found",
            "There is no such thing",
            detail,
        )
    }

    /// There is such a thing, and this cannot be done to it.
    pub fn method_not_allowed(detail: impl Display) -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method-not-allowed",
            "This cannot be done here",
            detail,
        )
    }

    /// It cannot be done as things stand.
    pub fn conflict(detail: impl Display) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "refused",
            "It cannot be done as things stand",
            detail,
        )
    }

    /// There is too much of it.
    pub fn too_large(detail: impl Display) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            "There is too much of it",
            detail,
        )
    }

    /// There is no room for it.
    pub fn full(detail: impl Display) -> Self {
        let status = StatusCode::TOO_MANY_REQUESTS;
        let problem = Self::new(status, "full", "There is no room for it", detail);
        Self {
            retry_after_secs: Some(RETRY_AFTER_SECS),
            ..problem
        }
    }

    /// A job names a new queue, and there is no room for one.
    pub fn too_many_queues(detail: impl Display) -> Self {
        let status = StatusCode::TOO_MANY_REQUESTS;
        Self::new(
            status,
            "too-many-queues",
            "There are too many queues",
            detail,
        )
    }

    /// A record names a new stream, and there is no room for one.
    pub fn too_many_streams(detail: impl Display) -> Self {
        let status = StatusCode::TOO_MANY_REQUESTS;
        Self::new(
            status,
            "too-many-streams",
            "There are too many streams",
            detail,
        )
    }

    /// The store does not answer.
    pub(super) fn unavailable(detail: impl Display) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let problem = Self::new(
            status,
            "store-unavailable",
            "The store does not answer",
            detail,
        );
        Self {
            retry_after_secs: Some(RETRY_AFTER_SECS),
            ..problem
        }
    }

    /// The server has as much to do as it takes on.
    pub(super) fn busy(detail: impl Display) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(status, BUSY, "The server is busy", detail)
    }

    /// A database of the user's failed.
    pub fn database_failed(detail: impl Display) -> Self {
        Self::new(
            StatusCode::BAD_GATEWAY,
            "database-failed",
            "Another database failed",
            detail,
        )
    }

    /// A database of the user's took too long.
    pub fn database_too_slow(detail: impl Display) -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "database-too-slow",
            "Another database took too long",
            detail,
        )
    }

    /// Why an action does not apply to a job.
    pub fn amend_refused(refusal: AmendRefusal) -> Self {
        match refusal {
            AmendRefusal::NotFound => Self::not_found(refusal),
            AmendRefusal::Full => Self {
                count: Some(0),
                ..Self::full(refusal)
            },
            other => Self::conflict(other),
        }
    }

    /// With so many seconds to wait before the next try.
    #[must_use]
    pub fn retry_after(self, secs: u32) -> Self {
        Self {
            retry_after_secs: Some(secs),
            ..self
        }
    }

    /// What happened, and what to do.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The status of the answer.
    pub const fn status(&self) -> StatusCode {
        self.status
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Misuse { cause, .. } => Self::bad_request(cause),
            StoreError::TooManyQueues { cause } => Self::too_many_queues(cause),
            StoreError::Unavailable { cause, .. } if cause.contains("disk is full") => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "disk-full",
                "The store has no room left",
                format!("{error}. Then send the request again: repeating is harmless"),
            ),
            StoreError::Unavailable { .. } => Self::unavailable(format_args!(
                "{error}. Send the request again in a moment: repeating is harmless"
            )),
            // The message names its next step.
            _ => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "store-corrupt",
                "The store holds something it should not",
                &error,
            ),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        // Whoever keeps a server busy must not fill its log, too.
        if self.status.is_server_error() && self.kind != BUSY {
            tracing::warn!(status = self.status.as_u16(), detail = %self.detail, "a request could not be answered");
        }
        let shape = ProblemShape {
            r#type: format!("urn:backstop:problem:{}", self.kind),
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            count: self.count,
        };
        let body = escape_body(serde_json::to_vec(&shape).unwrap_or_default());
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some(secs) = self.retry_after_secs {
            headers.insert(RETRY_AFTER, secs.into());
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: StoreError, status: u16, retry_after: Option<&str>, said: &str) {
        let response = Problem::from(error).into_response();
        let told = response
            .headers()
            .get(RETRY_AFTER)
            .map(|value| value.to_str().expect("text").to_owned());
        assert_eq!(
            (response.status().as_u16(), told.as_deref()),
            (status, retry_after),
            "{said}"
        );
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
    }

    #[test]
    fn what_the_store_says_decides_the_status() {
        check(
            StoreError::unavailable("pushing", "no route"),
            503,
            Some("1"),
            "gone",
        );
        let full = StoreError::unavailable("pushing", "the disk is full; free some space on it");
        check(full, 507, None, "full");
        check(
            StoreError::corrupt("listing", "a row"),
            500,
            None,
            "corrupt",
        );
        check(
            StoreError::misuse("listing", "a cursor"),
            400,
            None,
            "misuse",
        );
    }
}
