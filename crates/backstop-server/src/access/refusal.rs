//! How a request is turned away: what is wrong and what to do, as problem+json for programs and as
//! a page for people.

use super::caller::Scope;
use super::origin::ForeignOrigin;
use super::queue_scope::{OTHER_QUEUES, OTHER_QUEUES_TITLE};
use crate::api::Problem;
use crate::pages::render_refusal;
use axum::http::header::{LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use backstop_core::limits::{
    CALLER_READS_MAX, CALLER_READS_WAITING_MAX, ENQUEUE_BYTES_MAX, PAYLOAD_BYTES_MAX,
};
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestAudience {
    /// A program that called the API.
    Program,
    Person,
}

impl RequestAudience {
    /// By the path of the router, without the path everything is mounted under.
    pub(crate) fn of(path: &str) -> Self {
        let is_api = path == "/v1" || path.starts_with("/v1/");
        let is_root = matches!(path, "/metrics" | "/openapi.json" | "/healthz" | "/readyz");
        if is_api || is_root {
            Self::Program
        } else {
            Self::Person
        }
    }
}

/// Why a request is turned away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RequestRefusal {
    NoToken,
    /// Its token is none of ours.
    WrongToken,
    ExpiredToken,
    /// Too many wrong ones came from that address.
    TooManyFailures(Duration),
    /// Its token does not allow this.
    NeedsScope(Scope),
    /// Its token is for these queues, and it goes beyond them.
    OtherQueues(String),
    /// It comes from where it may not.
    ForeignOrigin(ForeignOrigin),
    /// Whether it may pass is in the store, and the store does not answer.
    StoreUnavailable,
    /// Its address stands for no text.
    Unreadable,
    /// It brings more than is taken.
    BodyTooLong(usize),
    /// There are as many connections as there may be.
    TooManyConnections,
    /// Its caller has as many reads under way, and waiting, as it may.
    TooManyReads,
    /// It takes longer than it may.
    TooSlow(Duration),
    Broken,
}

impl RequestRefusal {
    /// The answer for whoever reads it at this path, which is the router's; `base` is the path
    /// everything is mounted under.
    pub(crate) fn answer_at(&self, path: &str, base: &str) -> Response {
        match RequestAudience::of(path) {
            RequestAudience::Program => self.problem(),
            RequestAudience::Person => self.page(base),
        }
    }

    /// The answer for a program.
    pub(crate) fn problem(&self) -> Response {
        let problem = Problem::new(self.status(), self.kind(), self.title(), self.detail());
        let problem = match self {
            Self::TooManyFailures(wait) => problem.retry_after(whole_seconds(*wait)),
            Self::TooManyConnections | Self::TooManyReads => problem.retry_after(1),
            _ => problem,
        };
        self.with_headers(problem.into_response())
    }

    /// The answer for somebody at a browser. `base` is the path everything is mounted under.
    pub(crate) fn page(&self, base: &str) -> Response {
        self.with_headers(render_refusal(
            base,
            self.status(),
            self.title(),
            &self.detail(),
        ))
    }

    /// Whether logging in may help.
    pub(crate) const fn is_about_login(&self) -> bool {
        matches!(self, Self::NoToken | Self::WrongToken | Self::ExpiredToken)
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::NoToken | Self::WrongToken | Self::ExpiredToken => StatusCode::UNAUTHORIZED,
            Self::TooManyFailures(_) | Self::TooManyReads => StatusCode::TOO_MANY_REQUESTS,
            Self::NeedsScope(_) | Self::OtherQueues(_) | Self::ForeignOrigin(_) => {
                StatusCode::FORBIDDEN
            }
            Self::StoreUnavailable | Self::TooManyConnections => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreadable => StatusCode::BAD_REQUEST,
            Self::BodyTooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Broken => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What kind of problem, for programs.
    fn kind(&self) -> &'static str {
        match self {
            Self::NoToken => "no-token",
            Self::WrongToken => "wrong-token",
            Self::ExpiredToken => "expired-token",
            Self::TooManyFailures(_) => "too-many-failures",
            Self::NeedsScope(_) => "scope-needed",
            Self::OtherQueues(_) => OTHER_QUEUES,
            Self::ForeignOrigin(_) => "foreign-origin",
            Self::StoreUnavailable => "store-unavailable",
            Self::Unreadable => "bad-request",
            Self::BodyTooLong(_) => "too-large",
            Self::TooManyConnections => "too-many-connections",
            Self::TooManyReads => "too-many-reads",
            Self::TooSlow(_) => "too-slow",
            Self::Broken => "broken",
        }
    }

    /// What kind of problem, for people.
    fn title(&self) -> &'static str {
        match self {
            Self::NoToken => "A token is needed",
            Self::WrongToken => "The token is not known",
            Self::ExpiredToken => "The token has expired",
            Self::TooManyFailures(_) => "Too many wrong tokens",
            Self::NeedsScope(_) => "The token does not allow this",
            Self::OtherQueues(_) => OTHER_QUEUES_TITLE,
            Self::ForeignOrigin(_) => "This comes from elsewhere",
            Self::StoreUnavailable => "The store does not answer",
            Self::Unreadable => "The address cannot be read",
            Self::BodyTooLong(_) => "There is too much of it",
            Self::TooManyConnections => "There is no room",
            Self::TooManyReads => "Too many reads at once",
            Self::TooSlow(_) => "This took too long",
            Self::Broken => "Answering failed",
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::NoToken => "a token is needed here: send it as `Authorization: Bearer TOKEN`; `backstop token create --scope SCOPE` makes one, with the scope push, work, read or admin".to_owned(),
            Self::WrongToken => "this token is not known here, or was revoked; `backstop token list` shows those that are".to_owned(),
            Self::ExpiredToken => "this token's time is over; `backstop token create` makes another".to_owned(),
            Self::TooManyFailures(wait) => format!("too many wrong tokens came from your address; try again in {} s", whole_seconds(*wait)),
            Self::NeedsScope(scope) => format!("this needs a token with scope {scope}; `backstop token create --scope {scope}` makes one"),
            Self::OtherQueues(limits) => format!("this token is for {limits} only, and this goes across queues, or is about none; use a token that was made without --queue"),
            Self::ForeignOrigin(origin) => explain_foreign_origin(*origin).to_owned(),
            // Whoever is told this has shown nothing yet: what the store said is for the log alone.
            Self::StoreUnavailable => "whether you may do this is in the store, which does not answer; the server's log says more; try again".to_owned(),
            Self::Unreadable => "what the percent signs of this address stand for is no UTF-8 text; write names as UTF-8 before they are encoded".to_owned(),
            Self::BodyTooLong(max) => explain_too_long(*max),
            Self::TooManyConnections => "there are as many connections as this server holds, in all or from your address; close some, or raise `connections_max` in [server]".to_owned(),
            Self::TooManyReads => format!("{CALLER_READS_MAX} lists or pages of this caller are being read, and {CALLER_READS_WAITING_MAX} more wait; ask again when one of them has ended, and for less at a time (`queue`, `limit`)"),
            Self::TooSlow(limit) => format!("this took longer than {} s and was called off; whatever it had begun may have been done", whole_seconds(*limit)),
            Self::Broken => "answering this failed; the server's log says why".to_owned(),
        }
    }

    fn with_headers(&self, mut response: Response) -> Response {
        let headers = response.headers_mut();
        if self.is_about_login() {
            headers.insert(
                WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"backstop\""),
            );
        }
        match self {
            Self::TooManyFailures(wait) => {
                drop(headers.insert(RETRY_AFTER, whole_seconds(*wait).into()));
            }
            Self::TooManyReads => drop(headers.insert(RETRY_AFTER, 1.into())),
            _ => {}
        }
        response
    }
}

/// Names the bound that is documented, not the room for what stands around it.
fn explain_too_long(max: usize) -> String {
    if max > ENQUEUE_BYTES_MAX {
        format!(
            "the body is too long: the payloads of one request have at most {ENQUEUE_BYTES_MAX} bytes (8 MB); send less at a time"
        )
    } else if max > PAYLOAD_BYTES_MAX {
        format!(
            "the body is too long: a payload has at most {PAYLOAD_BYTES_MAX} bytes (1 MB); store large data elsewhere and push its address"
        )
    } else {
        format!("the body has more than {max} bytes; send less at a time")
    }
}

fn explain_foreign_origin(origin: ForeignOrigin) -> &'static str {
    match origin {
        ForeignOrigin::Host => {
            "without tokens only this machine is served, under 127.0.0.1 or localhost; to be reached under another name set `origins` in [server] and make tokens"
        }
        ForeignOrigin::Forwarded => {
            "a proxy passed this on (or it is HTTP/1.0, or names no host), and whoever comes through it would be let in without a token; set `origins` in [server] to where browsers find the proxy, and make tokens"
        }
        ForeignOrigin::Page => {
            "this comes from a page of another site; if it is where browsers find this server behind a proxy, name it in `origins` of [server]"
        }
        ForeignOrigin::Unstated => {
            "nothing shows that this was sent by a page of ours; use a browser of today, or a token in the Authorization header"
        }
    }
}

/// To a place of ours.
pub(crate) fn see_other(place: &str) -> Response {
    match HeaderValue::from_str(place) {
        Ok(location) => (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response(),
        Err(_) => RequestRefusal::Broken.problem(),
    }
}

/// In whole seconds, so that nobody comes back too early.
pub(crate) fn whole_seconds(wait: Duration) -> u32 {
    u32::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_page_that_turns_somebody_away_looks_like_the_others() {
        let answer = RequestRefusal::NeedsScope(Scope::Admin).page("/bs");
        assert_eq!(answer.status(), StatusCode::FORBIDDEN);
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20)
            .await
            .unwrap();
        let page = String::from_utf8(body.to_vec()).unwrap();
        for part in [
            "<main",
            "<h1>",
            "name=\"viewport\"",
            "href=\"/bs/assets/backstop.",
            "This needs a token with scope admin",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }
}
