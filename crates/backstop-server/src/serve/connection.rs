//! One connection from its first byte to its last.

use super::idle_timeout::IdleTimeout;
use super::tls::H2;
use super::write_timeout::WriteTimeout;
use crate::access::{AdmissionFlag, ConnectionPeer};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// How long a handshake, or the head of a request, may take; also how long a connection without
/// requests is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 100;
/// Requests of one connection at once, where it can have several.
const STREAMS_MAX: u32 = 128;
/// How often the other end of an idle connection is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(20);

/// Serves one connection until it ends, or, once the server closes, until its requests have been
/// answered.
pub(super) async fn serve_connection(
    stream: TcpStream,
    from: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    closing: CancellationToken,
    admission: AdmissionFlag,
) {
    // A small answer must not wait for company.
    let _ = stream.set_nodelay(true);
    let peer = ConnectionPeer {
        address: from.ip().to_canonical(),
        is_encrypted: acceptor.is_some(),
    };
    let service = build_service(peer, admission, router);
    let Some(acceptor) = acceptor else {
        return serve_http1(stream, service, closing).await;
    };
    match timeout(HEAD_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(H2) => {
            serve_http2(stream, service, closing).await;
        }
        Ok(Ok(stream)) => serve_http1(stream, service, closing).await,
        Ok(Err(error)) => tracing::debug!(%error, %from, "no handshake"),
        Err(_) => tracing::debug!(%from, "a handshake took too long"),
    }
}

async fn serve_http1(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: TowerToHyperService<impl HttpService>,
    closing: CancellationToken,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(WriteTimeout::with(stream)), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    log_end(ended);
}

async fn serve_http2(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    inner: TowerToHyperService<impl HttpService>,
    closing: CancellationToken,
) {
    let idle_timeout = IdleTimeout::new();
    let answering = idle_timeout.clone();
    let beating = service_fn(move |request: hyper::Request<Incoming>| {
        let (running, pulse, answer) = (
            answering.begin_request(),
            answering.clone(),
            inner.call(request),
        );
        async move {
            let answer = answer
                .await
                .map(|answer| answer.map(|body| pulse.watch_body(body)));
            drop(running);
            answer
        }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(WriteTimeout::with(stream)), beating);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = idle_timeout.wait_until_idle() => {
            connection.as_mut().graceful_shutdown();
            // Whoever does not take what is left for it is not waited for.
            timeout(HEAD_TIMEOUT, connection).await.unwrap_or(Ok(()))
        }
    };
    log_end(ended);
}

type RouterResponse = axum::response::Response;

/// What answers the requests of a connection.
trait HttpService:
    tower::Service<
        hyper::Request<Incoming>,
        Response = RouterResponse,
        Error = std::convert::Infallible,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static
{
}

impl<S> HttpService for S where
    S: tower::Service<
            hyper::Request<Incoming>,
            Response = RouterResponse,
            Error = std::convert::Infallible,
            Future: Send + 'static,
        > + Clone
        + Send
        + 'static
{
}

fn build_service(
    peer: ConnectionPeer,
    admission: AdmissionFlag,
    router: Router,
) -> TowerToHyperService<impl HttpService> {
    TowerToHyperService::new(router.map_request(
        move |request: hyper::Request<Incoming>| -> Request {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(admission.clone());
            request
        },
    ))
}

fn log_end(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}
