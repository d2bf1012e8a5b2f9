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
use backstop::remote::{Ask, Attendance, Handed};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

/// Jobs that were handed out and have not reached anybody: taken back when this is dropped.
pub(super) struct Undelivered {
    app: App,
    attendance: Arc<Attendance>,
    handed: Vec<Handed>,
}

/// Looks for jobs. Whoever stops waiting for this ends the search in good order.
pub(super) async fn look(
    app: &App,
    attendance: Arc<Attendance>,
    ask: Ask,
) -> Result<Undelivered, Problem> {
    let leaving = app.closing().child_token();
    let is_gone = leaving.clone().drop_guard();
    let app = app.clone();
    let search = tokio::spawn(async move {
        let config = app.config();
        let handed = app
            .backstop()
            .remote(&config, &attendance)
            .lease_until(&ask, &leaving)
            .await?;
        Ok(Undelivered {
            app,
            attendance,
            handed,
        })
    });
    let found = crate::to_the_end::ended(search.await);
    drop(is_gone);
    found
}

impl Undelivered {
    pub(super) fn handed(&self) -> &[Handed] {
        &self.handed
    }

    /// The body of the answer that carries these jobs.
    pub(super) fn carried_by(self, answer: impl Into<Bytes>) -> Body {
        Body::new(Delivery {
            left: answer.into(),
            undelivered: Some(self),
        })
    }

    fn delivered(mut self) {
        self.handed.clear();
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        let handed = std::mem::take(&mut self.handed);
        // Without a runtime the process is ending; the leases then run out by themselves.
        let (false, Ok(runtime)) = (handed.is_empty(), Handle::try_current()) else {
            return;
        };
        tracing::info!(
            count = handed.len(),
            "whoever asked for jobs is gone; they are taken back"
        );
        let (app, attendance) = (self.app.clone(), Arc::clone(&self.attendance));
        runtime.spawn(async move {
            let config = app.config();
            app.backstop()
                .remote(&config, &attendance)
                .take_back(handed)
                .await;
        });
    }
}

/// An answer whose last byte comes by itself: it is asked for only when there is room for it behind
/// all others.
struct Delivery {
    left: Bytes,
    undelivered: Option<Undelivered>,
}

impl hyper::body::Body for Delivery {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let most = this.left.len().saturating_sub(1);
        if most > 0 {
            return Poll::Ready(Some(Ok(Frame::data(this.left.split_to(most)))));
        }
        if let Some(undelivered) = this.undelivered.take() {
            undelivered.delivered();
        }
        let last = std::mem::take(&mut this.left);
        Poll::Ready((!last.is_empty()).then(|| Ok(Frame::data(last))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}
