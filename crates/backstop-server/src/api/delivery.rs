//! Handing jobs over: what does not reach the one who asked is taken back, so that nobody is
//! charged for a run that never was.
//!
//! A caller can leave at any moment. While jobs are looked for, the search goes on without it,
//! because a claim that is cut off leaves jobs in nobody's hands; what it finds then goes back.
//! Once there is an answer, the jobs are the caller's when the last byte of it is asked for; if the
//! connection ends before, they go back as well.

use super::Problem;
use crate::App;
use axum::body::Body;
use backstop::http_workers::{LeaseRequest, LeasedJob, SeenWorkers};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

/// Jobs that were handed out and have not reached anybody: taken back when this is dropped.
pub(super) struct UndeliveredJobs {
    app: App,
    attendance: Arc<SeenWorkers>,
    leased: Vec<LeasedJob>,
}

/// Looks for jobs. Whoever stops waiting for this ends the search in good order.
pub(super) async fn lease_jobs(
    app: &App,
    attendance: Arc<SeenWorkers>,
    ask: LeaseRequest,
) -> Result<UndeliveredJobs, Problem> {
    let leaving = app.closing().child_token();
    let is_gone = leaving.clone().drop_guard();
    let app = app.clone();
    let search = tokio::spawn(async move {
        let config = app.config();
        let leased = app
            .backstop()
            .http_workers(&config, &attendance)
            .lease_until(&ask, &leaving)
            .await?;
        Ok(UndeliveredJobs {
            app,
            attendance,
            leased,
        })
    });
    let found = crate::detached::join_detached(search.await);
    drop(is_gone);
    found
}

impl UndeliveredJobs {
    pub(super) fn leased(&self) -> &[LeasedJob] {
        &self.leased
    }

    /// The body of the answer that carries these jobs.
    pub(super) fn into_body(self, answer: impl Into<Bytes>) -> Body {
        Body::new(DeliveryBody {
            remaining: answer.into(),
            undelivered: Some(self),
        })
    }

    fn mark_delivered(mut self) {
        self.leased.clear();
    }
}

impl Drop for UndeliveredJobs {
    fn drop(&mut self) {
        let leased = std::mem::take(&mut self.leased);
        // Without a runtime the process is ending; the leases then run out by themselves.
        let (false, Ok(runtime)) = (leased.is_empty(), Handle::try_current()) else {
            return;
        };
        tracing::info!(
            count = leased.len(),
            "whoever asked for jobs is gone; they are taken back"
        );
        let (app, attendance) = (self.app.clone(), Arc::clone(&self.attendance));
        runtime.spawn(async move {
            let config = app.config();
            app.backstop()
                .http_workers(&config, &attendance)
                .release_undelivered(leased)
                .await;
        });
    }
}

/// An answer whose last byte comes by itself: it is asked for only when there is room for it behind
/// all others.
struct DeliveryBody {
    remaining: Bytes,
    undelivered: Option<UndeliveredJobs>,
}

impl hyper::body::Body for DeliveryBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let most = this.remaining.len().saturating_sub(1);
        if most > 0 {
            return Poll::Ready(Some(Ok(Frame::data(this.remaining.split_to(most)))));
        }
        if let Some(undelivered) = this.undelivered.take() {
            undelivered.mark_delivered();
        }
        let last = std::mem::take(&mut this.remaining);
        Poll::Ready((!last.is_empty()).then(|| Ok(Frame::data(last))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining.len() as u64)
    }
}
