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
pub(super) struct IdleTimeout(Arc<Mutex<ConnectionActivity>>);

struct ConnectionActivity {
    /// Requests that are being answered; how long that takes is bounded elsewhere.
    running: usize,
    last: Instant,
}

/// A request that is being answered, until dropped.
pub(super) struct RequestGuard(IdleTimeout);

/// The body of an answer; every part that is taken is a beat.
pub(super) struct WatchedBody {
    body: Body,
    idle_timeout: IdleTimeout,
}

impl IdleTimeout {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(ConnectionActivity {
            running: 0,
            last: Instant::now(),
        })))
    }

    pub(super) fn begin_request(&self) -> RequestGuard {
        let mut activity = self.activity();
        activity.running += 1;
        activity.last = Instant::now();
        RequestGuard(self.clone())
    }

    pub(super) fn watch_body(&self, body: Body) -> WatchedBody {
        WatchedBody {
            body,
            idle_timeout: self.clone(),
        }
    }

    /// Waits until nothing has gone on for long.
    pub(super) async fn wait_until_idle(&self) {
        loop {
            let left = self.time_left();
            if left.is_zero() {
                return;
            }
            sleep(left).await;
        }
    }

    fn time_left(&self) -> Duration {
        let activity = self.activity();
        let silent = if activity.running > 0 {
            Duration::ZERO
        } else {
            activity.last.elapsed()
        };
        SILENCE_MAX.saturating_sub(silent)
    }

    fn activity(&self) -> MutexGuard<'_, ConnectionActivity> {
        // Every critical section leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut activity = self.0.activity();
        activity.running -= 1;
        activity.last = Instant::now();
    }
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() {
            self.idle_timeout.activity().last = Instant::now();
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
