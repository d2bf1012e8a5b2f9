//! Lists, searches and pages of one caller: a few at once, so that one caller does not keep the
//! store busy for all.

use crate::App;
use crate::access::{Caller, RequestRefusal, inner_path, is_expensive};
use crate::work_limits::WorkPermit;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use backstop_core::limits::LARGE_BYTES_MIN;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Lets a read through when it is its caller's turn.
pub(crate) async fn limit_reads(State(app): State<App>, request: Request, next: Next) -> Response {
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("", MatchedPath::as_str);
    let route = inner_path(&app, route).to_owned();
    let caller = request
        .extensions()
        .get::<Caller>()
        .map(|caller| caller.key().clone());
    let Some(caller) = caller.filter(|_| is_expensive(request.method(), &route)) else {
        return next.run(request).await;
    };
    match app.reads().acquire(&caller).await {
        Ok(turn) => hold_permit(turn, next.run(request).await),
        Err(_) => RequestRefusal::TooManyReads.answer_at(&route, app.base()),
    }
}

/// The turn lasts until a large answer is taken: whoever does not read its answers gets no more of
/// them.
fn hold_permit(turn: WorkPermit, response: Response) -> Response {
    if response.body().size_hint().lower() < LARGE_BYTES_MIN as u64 {
        return response;
    }
    response.map(|body| Body::new(PermitBody { body, _turn: turn }))
}

struct PermitBody {
    body: Body,
    _turn: WorkPermit,
}

impl HttpBody for PermitBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
