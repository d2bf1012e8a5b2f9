//! Whether anything goes on over a connection that carries many requests: one over which nothing
//! does is closed, be it that nobody asks, or that nobody takes the answers.

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long nothing may go on; an event stream says something every 15 s.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// The pulse of one connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct Pulse(Arc<Mutex<Beats>>);

struct Beats {
    /// Requests that are being answered; how long that takes is bounded elsewhere.
    running: usize,
    last: Instant,
}

/// A request that is being answered, until dropped.
pub(super) struct Running(Pulse);

/// The body of an answer; every part that is taken is a beat.
pub(super) struct Heard {
    body: Body,
    pulse: Pulse,
}

impl Pulse {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Beats {
            running: 0,
            last: Instant::now(),
        })))
    }

    pub(super) fn begin(&self) -> Running {
        let mut beats = self.beats();
        beats.running += 1;
        beats.last = Instant::now();
        Running(self.clone())
    }

    pub(super) fn heard(&self, body: Body) -> Heard {
        Heard {
            body,
            pulse: self.clone(),
        }
    }

    /// Waits until nothing has gone on for long.
    pub(super) async fn stopped(&self) {
        loop {
            let left = self.left();
            if left.is_zero() {
                return;
            }
            sleep(left).await;
        }
    }

    fn left(&self) -> Duration {
        let beats = self.beats();
        let silent = if beats.running > 0 {
            Duration::ZERO
        } else {
            beats.last.elapsed()
        };
        SILENCE_MAX.saturating_sub(silent)
    }

    fn beats(&self) -> MutexGuard<'_, Beats> {
        // Every critical section leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut beats = self.0.beats();
        beats.running -= 1;
        beats.last = Instant::now();
    }
}

impl HttpBody for Heard {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() {
            self.pulse.beats().last = Instant::now();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
