//! What the last action did, carried over the redirect in a cookie: an address that says "done"
//! would say it to whoever follows it.

use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

/// Characters of a note; a browser keeps 4,096 bytes of a cookie, and each may take three.
const CHARS_MAX: usize = 400;

/// One sentence for whoever pressed the button.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlashMessage {
    pub tone: FlashTone,
    pub text: String,
}

/// How a note is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlashTone {
    Done,
    /// It was not, or not all of it: what to do is in the text.
    Refused,
}

impl std::fmt::Display for FlashTone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Refused => "warn",
        })
    }
}

impl FlashMessage {
    /// The cookie that carries it.
    pub(super) const COOKIE: &str = "backstop_note";

    pub fn done(text: impl Into<String>) -> Self {
        Self {
            tone: FlashTone::Done,
            text: text.into(),
        }
    }

    /// It was not done, or not all of it.
    pub fn refused(text: impl Into<String>) -> Self {
        Self {
            tone: FlashTone::Refused,
            text: text.into(),
        }
    }

    /// Back to the page at `address`, which shows it.
    pub fn redirect(&self, base: &str, address: &str) -> Response {
        let text: String = self.text.chars().take(CHARS_MAX).collect();
        let text: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
        let value = format!("{}.{text}", self.tone);
        let mut answer = StatusCode::SEE_OTHER.into_response();
        let location = HeaderValue::from_str(address).unwrap_or(HeaderValue::from_static("."));
        answer.headers_mut().insert(LOCATION, location);
        answer
            .headers_mut()
            .append(SET_COOKIE, cookie(base, &value, 60));
        answer
    }

    /// What a cookie says; one that nobody here wrote says nothing.
    pub(super) fn read(value: &str) -> Option<Self> {
        let (tone, text) = value.split_once('.')?;
        let tone = [FlashTone::Done, FlashTone::Refused]
            .into_iter()
            .find(|known| known.to_string() == tone)?;
        let text = format!("t={text}");
        let (_, text) = form_urlencoded::parse(text.as_bytes()).next()?;
        Some(Self {
            tone,
            text: text.chars().take(CHARS_MAX).collect(),
        })
    }

    /// Forgets it once it was shown.
    pub(super) fn removal_cookie(base: &str) -> HeaderValue {
        cookie(base, "", 0)
    }
}

fn cookie(base: &str, value: &str, max_age: u32) -> HeaderValue {
    // Without a slash at its end: `/base/` would keep it from the page at `/base`.
    let path = if base.is_empty() { "/" } else { base };
    let text = format!(
        "{}={value}; Path={path}; Max-Age={max_age}; HttpOnly; SameSite=Strict",
        FlashMessage::COOKIE
    );
    // A base that is no header text could not have been mounted.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}
