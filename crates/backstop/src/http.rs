//! Web services as handlers: the payload is the body of a POST, the status decides.
//!
//! | the answer | the job |
//! |---|---|
//! | 2xx | done |
//! | 410, 422 | dead at once |
//! | 429, 503 | failed; tried again when `Retry-After` says, else as the policy says |
//! | anything else, a redirect included | failed; tried again as the policy says |
//! | none: no connection, too slow, broken off | failed; tried again as the policy says |
//!
//! Knows nothing of policies: how long a job waits without a `Retry-After` is decided where every
//! retry is.

mod connection;
mod network;
mod response;
mod target;

use crate::handler::{Handler, Run};
use async_trait::async_trait;
use backstop_core::failure::{ErrorReport, FailureCause};
use backstop_core::limits::RESPONSE_CHARS_MAX;
use backstop_core::verdict::{FailureAdvice, RunEnding};
use backstop_core::{Span, Time};
pub use network::{InvalidNetwork, IpNetwork};
use reqwest::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use response::{ResponseOutcome, classify};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use target::TargetUrl;
use tokio::time::{Instant, timeout_at};

/// How long a service may take where nobody said how long: a run without an end would hold its
/// place for ever.
const TIMEOUT_DEFAULT: Span = Span::secs(30);
/// How long the body of a refusal is waited for. The status has decided by then; the body only
/// explains it.
const BODY_WAIT: Duration = Duration::from_secs(5);
/// Bytes of a body that are read: one more than the characters on record can have, so that a cut is
/// seen as one.
const BODY_BYTES_MAX: usize = 4 * RESPONSE_CHARS_MAX + 1;

/// A web service that runs jobs, as somebody described it. [`Http::handler`] makes the handler.
///
/// Every run is one POST with the payload as its JSON body, the job in `X-Backstop-Job-Id`,
/// `-Queue`, `-Kind`, `-Attempt` and `-Lease`, and the job's id as `Idempotency-Key`. A kind is
/// percent-encoded where it is not plain visible ASCII. Redirects are not followed, and proxies of
/// the environment are not used.
#[derive(Clone, Debug)]
pub struct Http {
    target: TargetUrl,
    timeout: Span,
    networks: AllowedNetworks,
    ca: Option<PathBuf>,
}

/// Where a service may be.
#[derive(Clone, Debug, Default)]
struct AllowedNetworks {
    link_local: LinkLocalPolicy,
    /// In these networks only; anywhere if there are none.
    allow: Arc<[IpNetwork]>,
}

/// Whether a service may be at a link-local address, which is where clouds hand out the credentials
/// of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkLocalPolicy {
    /// It is not called there, whatever its name resolves to.
    #[default]
    Refused,
    Allowed,
}

/// A web service that cannot be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidHttp {
    /// The text is no address. It is not repeated: it may hold a password.
    #[error("this is not an address ({0}); write one such as http://127.0.0.1:9000/detect")]
    NotAnAddress(String),
    #[error(
        "only http:// and https:// addresses can be called; write one such as http://127.0.0.1:9000/detect"
    )]
    Scheme,
    /// A link-local address, and nobody said that it is meant.
    #[error(
        "{0} is link-local or like it, where clouds hand out a machine's credentials; if it is meant, write `allow_link_local = true` beside it"
    )]
    LinkLocal(IpAddr),
    /// An address outside of the networks that are allowed.
    #[error("{0} is in none of the networks of `allow`; add its own, or leave `allow` out")]
    NotAllowed(IpAddr),
    /// Roots for a service without TLS.
    #[error(
        "`ca` is for https:// addresses, and this one begins with http://; leave it out or change the address"
    )]
    CaWithoutTls,
    /// The roots cannot be used.
    #[error("`ca`: {0}")]
    Certificates(String),
    /// The client could not be set up.
    #[error("the HTTP client could not be set up: {0}")]
    Client(String),
}

impl Http {
    /// The service at an `http://` or `https://` address.
    pub fn new(address: &str) -> Result<Self, InvalidHttp> {
        let target = TargetUrl::parse(address)?;
        Ok(Self {
            target,
            timeout: TIMEOUT_DEFAULT,
            networks: AllowedNetworks::default(),
            ca: None,
        })
    }

    /// With so long for an answer, the connection included; 30 s unless said otherwise.
    #[must_use]
    pub fn timeout(mut self, timeout: Span) -> Self {
        self.timeout = timeout;
        self
    }

    /// With link-local addresses allowed or refused.
    #[must_use]
    pub fn link_local(mut self, link_local: LinkLocalPolicy) -> Self {
        self.networks.link_local = link_local;
        self
    }

    /// In these networks only: whatever its name resolves to, no other address is called. None of
    /// them means anywhere. An address that is link-local must be allowed as such beside.
    #[must_use]
    pub fn allow(mut self, networks: impl IntoIterator<Item = IpNetwork>) -> Self {
        self.networks.allow = networks.into_iter().collect();
        self
    }

    /// With the roots in this PEM file instead of those the machine trusts.
    #[must_use]
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca = Some(file.into());
        self
    }

    /// Whether it can be called, as far as its description tells: reads no file, resolves no name.
    pub fn check(&self) -> Result<(), InvalidHttp> {
        if self.ca.is_some() && !self.target.is_tls() {
            return Err(InvalidHttp::CaWithoutTls);
        }
        // No resolver is asked about an address that is already a number, so it is judged here.
        match self
            .target
            .ip()
            .and_then(|ip| self.networks.check_address(ip).err())
        {
            Some(connection::ForbiddenAddress::LinkLocal(ip)) => Err(InvalidHttp::LinkLocal(ip)),
            Some(connection::ForbiddenAddress::NotAllowed(ip)) => Err(InvalidHttp::NotAllowed(ip)),
            None => Ok(()),
        }
    }

    /// The handler, with a pool of connections of its own.
    pub fn handler(&self) -> Result<HttpHandler, InvalidHttp> {
        self.handler_with(connection::system())
    }

    fn handler_with(&self, names: connection::NameResolver) -> Result<HttpHandler, InvalidHttp> {
        self.check()?;
        let roots = match (&self.ca, self.target.is_tls()) {
            (Some(file), _) => connection::TrustedRoots::File(file),
            (None, true) => connection::TrustedRoots::Machine,
            (None, false) => connection::TrustedRoots::None,
        };
        let client = connection::client(names, self.networks.clone(), roots)?;
        Ok(HttpHandler {
            client,
            target: self.target.clone(),
            timeout: self.timeout,
        })
    }
}

/// Runs jobs by calling a web service. Made by [`Http::handler`].
#[derive(Clone)]
pub struct HttpHandler {
    client: Client,
    target: TargetUrl,
    timeout: Span,
}

impl fmt::Debug for HttpHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client's own text is left out: it is not known to be free of secrets.
        let Self {
            client: _,
            target,
            timeout,
        } = self;
        f.debug_struct("HttpHandler")
            .field("target", target)
            .field("timeout", timeout)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Handler for HttpHandler {
    async fn run(&self, run: Run) -> RunEnding {
        tokio::select! {
            biased;
            ending = self.call(&run) => ending,
            // What the service makes of the broken connection is unknown; its next call carries the
            // same key.
            () = run.cancelled() => RunEnding::Released(Span::ZERO),
        }
    }
}

impl HttpHandler {
    async fn call(&self, run: &Run) -> RunEnding {
        let deadline = Instant::now() + self.timeout.into();
        let response = match timeout_at(deadline, self.request(run).send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return self.call_error_ending(&connection::HttpCallError::of(error)),
            Err(_) => return self.timeout_ending(),
        };
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        match classify(response.status().as_u16(), retry_after, now()) {
            // Its body is left unread: no word in it can make the work undone.
            ResponseOutcome::Done => RunEnding::Done,
            ResponseOutcome::Failed(advice) => self.error_ending(response, advice, deadline).await,
        }
    }

    fn request(&self, run: &Run) -> RequestBuilder {
        let request = self
            .client
            .post(self.target.url())
            .header(CONTENT_TYPE, "application/json")
            .header("X-Backstop-Job-Id", run.id().to_string())
            .header("X-Backstop-Queue", run.queue().as_str())
            .header("X-Backstop-Kind", header_text(run.kind().as_str()))
            .header("X-Backstop-Attempt", run.attempt())
            .header("X-Backstop-Lease", run.lease().number.to_string())
            .header("Idempotency-Key", run.id().to_string())
            .body(run.payload().to_vec());
        match run.traceparent() {
            Some(traceparent) => request.header("traceparent", traceparent),
            None => request,
        }
    }

    async fn error_ending(
        &self,
        response: Response,
        advice: FailureAdvice,
        deadline: Instant,
    ) -> RunEnding {
        let status = response.status();
        let message = format!(
            "{} answered {status}{}",
            self.target,
            self.describe_redirect(&response)
        );
        let body = read_beginning(response, deadline.min(Instant::now() + BODY_WAIT)).await;
        let error = ErrorReport {
            error_type: Some("HttpStatus".to_owned()),
            http_status: Some(status.as_u16()),
            response_body: (!body.is_empty()).then(|| String::from_utf8_lossy(&body).into_owned()),
            ..ErrorReport::message(message)
        };
        RunEnding::Failed {
            cause: FailureCause::Failed,
            error,
            advice,
            progressed: false,
        }
    }

    /// What there is to say about a redirect; nothing about other answers.
    fn describe_redirect(&self, response: &Response) -> String {
        let status = response.status();
        if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
            return String::new();
        }
        let location = response
            .headers()
            .get(LOCATION)
            .and_then(|value| value.to_str().ok());
        match location.and_then(|location| self.target.join(location)) {
            Some(elsewhere) => {
                format!(" to {elsewhere}; redirects are not followed: configure that address")
            }
            None => "; redirects are not followed".to_owned(),
        }
    }

    fn call_error_ending(&self, trouble: &connection::HttpCallError) -> RunEnding {
        RunEnding::failed(ErrorReport {
            error_type: Some(trouble.error_type().to_owned()),
            ..ErrorReport::message(format!("{} {trouble}", self.target))
        })
    }

    fn timeout_ending(&self) -> RunEnding {
        let message = format!("{} did not answer within {}", self.target, self.timeout);
        let error = ErrorReport {
            error_type: Some("HttpTimeout".to_owned()),
            ..ErrorReport::message(message)
        };
        RunEnding::Failed {
            cause: FailureCause::TimedOut,
            error,
            advice: FailureAdvice::Retry,
            progressed: false,
        }
    }
}

/// The beginning of a body; what has come by the deadline, or until it breaks off.
async fn read_beginning(mut response: Response, deadline: Instant) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < BODY_BYTES_MAX {
        let Ok(Ok(Some(chunk))) = timeout_at(deadline, response.chunk()).await else {
            break;
        };
        let room = BODY_BYTES_MAX - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
    body
}

/// A text as a header can carry it. A kind may hold anything, line breaks included, and must not
/// become a header.
fn header_text(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'!'..=b'~' if byte != b'%' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// This machine's wall clock: a service writes a date in `Retry-After` for whoever has one.
fn now() -> Time {
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Time::from_micros(i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
