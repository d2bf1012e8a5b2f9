//! Results from web requests: `POST /results` with one result, or with one on each line.
//!
//! The answer has a line for each of them, in their order. It comes when they are safe; a request
//! that got none, or 503, may be brought again. Whoever can reach the address can bring results: it
//! is meant for this machine and for networks of one's own.

#[cfg(test)]
mod tests;

use crate::consumer::Taken;
use crate::intake::Intake;
use crate::limits::{BODY_BYTES_MAX, BODY_RESULTS_MAX, BODY_WAIT_MAX, HTTP_STOP_MAX, REQUESTS_MAX};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use serde::Serialize;
use serde::de::IgnoredAny;
use std::io;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

#[derive(Clone)]
struct Desk {
    intake: Intake,
    /// Requests that may be under way.
    room: Arc<Semaphore>,
}

/// What became of one result, as a line of the answer.
#[derive(Serialize)]
struct Line {
    became: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Why a request was turned away.
enum Refusal {
    Empty,
    TooLarge,
    TooMany,
    TooSlow,
    Busy,
    Failed(String),
}

/// Serves requests until `stop`, and then ends those that are under way.
pub async fn serve(
    listener: TcpListener,
    intake: Intake,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let desk = Desk {
        intake,
        room: Arc::new(Semaphore::new(REQUESTS_MAX)),
    };
    let router = Router::new()
        .route("/results", post(results))
        .with_state(desk);
    let (tell, mut told) = watch::channel(false);
    let stopped = async move {
        // An error means that nobody can tell any more: then it is time, too.
        let _ = told.wait_for(|is_told| *is_told).await;
    };
    let served = axum::serve(listener, router).with_graceful_shutdown(stopped);
    let farewell = async {
        stop.await;
        let _ = tell.send(true);
        sleep(HTTP_STOP_MAX).await;
    };
    tokio::select! {
        served = served => served,
        () = farewell => Ok(()),
    }
}

async fn results(State(desk): State<Desk>, body: Body) -> Response {
    let answered = desk.take(body).await;
    answered.unwrap_or_else(IntoResponse::into_response)
}

impl Desk {
    async fn take(&self, body: Body) -> Result<Response, Refusal> {
        let _room = self.room.try_acquire().map_err(|_| Refusal::Busy)?;
        let body = timeout(BODY_WAIT_MAX, to_bytes(body, BODY_BYTES_MAX));
        let body = body
            .await
            .map_err(|_| Refusal::TooSlow)?
            .map_err(|_| Refusal::TooLarge)?;
        let batch = batch(&body)?;
        let taken = self
            .intake
            .take(batch)
            .await
            .map_err(|error| Refusal::Failed(format!("{error:#}")))?;
        Ok((
            [(header::CONTENT_TYPE, "application/x-ndjson")],
            answer(&taken),
        )
            .into_response())
    }
}

/// A body that is one JSON value is one result, on however many lines it is written.
fn batch(body: &Bytes) -> Result<Vec<Bytes>, Refusal> {
    let lines: Vec<Bytes> = if serde_json::from_slice::<IgnoredAny>(body).is_ok() {
        vec![body.clone()]
    } else {
        let lines = body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        lines
            .filter(|line| !line.is_empty())
            .map(|line| body.slice_ref(line))
            .collect()
    };
    match lines.len() {
        0 => Err(Refusal::Empty),
        1..=BODY_RESULTS_MAX => Ok(lines),
        _ => Err(Refusal::TooMany),
    }
}

fn answer(taken: &Taken) -> String {
    let mut broken = taken.broken.iter().peekable();
    let mut text = String::new();
    for (place, outcome) in taken.outcomes.iter().enumerate() {
        let why = broken
            .next_if(|(at, _)| *at == place)
            .map(|(_, why)| why.to_string());
        let line = Line {
            became: outcome.as_str(),
            why,
        };
        text.push_str(&serde_json::to_string(&line).expect("words are always JSON"));
        text.push('\n');
    }
    text
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, why) = match self {
            Self::Empty => (
                StatusCode::BAD_REQUEST,
                "there is no result in it".to_owned(),
            ),
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("a body has at most {BODY_BYTES_MAX} bytes"),
            ),
            Self::TooMany => (
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("a body has at most {BODY_RESULTS_MAX} results"),
            ),
            Self::TooSlow => (
                StatusCode::REQUEST_TIMEOUT,
                format!("a body has to be here within {BODY_WAIT_MAX:?}"),
            ),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "too many requests at once".to_owned(),
            ),
            Self::Failed(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
        };
        (status, format!("{why}\n")).into_response()
    }
}
