//! The listener: refuses to stand open, takes connections in, and goes down in good order.

use super::connection::serve_connection;
use super::connection_limit::{AcceptDecision, ConnectionLimit};
use super::tls::{InvalidCertificate, TlsCertificate};
use super::{refusal_router, router};
use crate::access::AdmissionFlag;
use crate::access::TokenRegistry;
use crate::{App, history, resume};
use axum::Router;
use backstop::config::{Config, ServerConfig, ServerTransport};
use backstop_core::port::StoreError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long requests under way may take to end once the server closes.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// How long it may take to tell somebody that there is no room.
const REFUSAL_MAX: Duration = Duration::from_secs(5);
/// How long to wait where the machine has no room for another connection.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Others can reach it, and nobody would have to show a token.
    #[error(
        "{0} can be reached by others, and there is no token in the store that would keep them out"
    )]
    NoToken(String),
    /// Others can reach it, and would send their tokens for all to read.
    #[error("{0} can be reached by others, and what they send would not be encrypted")]
    NotEncrypted(SocketAddr),
    /// The certificate cannot be used.
    #[error("`tls`: {0}")]
    Certificate(#[from] InvalidCertificate),
    #[error("nobody can listen at {0}: {1}")]
    Address(SocketAddr, std::io::Error),
    /// The tokens are in the store, and it failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A server that listens, and has not begun to answer.
pub struct Server {
    app: App,
    listener: TcpListener,
    address: SocketAddr,
    keys: Option<Arc<TlsCertificate>>,
}

/// A server that answers. Dropping it ends it at once.
#[must_use = "dropping it ends it"]
pub struct RunningServer {
    app: App,
    address: SocketAddr,
    keys: Option<Arc<TlsCertificate>>,
    force: CancellationToken,
    supervisor: Option<JoinHandle<()>>,
}

/// Another configuration for a server that answers, found to be good.
pub struct ConfigChange {
    config: Config,
    keys: Option<TlsCertificate>,
}

/// Whether the certificate that a configuration names can be used.
pub fn check_certificate(server: &ServerConfig) -> Result<(), ServeError> {
    TlsCertificate::of(server)?;
    Ok(())
}

impl Server {
    /// Listens as the configuration of `app` says, if that is safe.
    pub async fn bind(app: &App) -> Result<Self, ServeError> {
        let config = app.config();
        let server = &config.server;
        check_safe(app, server).await?;
        let keys = TlsCertificate::of(server)?.map(Arc::new);
        let failed = |error| ServeError::Address(server.listen, error);
        let listener = TcpListener::bind(server.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            app: app.clone(),
            listener,
            address,
            keys,
        })
    }

    /// Answers from now on. Must be called within a Tokio runtime.
    pub fn start(self) -> RunningServer {
        let Self {
            app,
            listener,
            address,
            keys,
        } = self;
        let force = CancellationToken::new();
        let connection_listener = Listener {
            router: router(&app),
            refusing: refusal_router(),
            keys: keys.clone(),
            closing: app.closing().clone(),
            connection_limit: ConnectionLimit::of(&app.config().server),
            connections: TaskTracker::new(),
            tasks: app.tasks().clone(),
        };
        // Begun now, the doctor is done when the first page is asked for.
        drop(app.doctor().report(&app));
        app.tasks().spawn(resume::run_resume_loop(app.clone()));
        // Whoever serves charts keeps what they are drawn from.
        tokio::spawn(history::run_recorder(app.clone(), app.closing().clone()));
        let supervisor = tokio::spawn(connection_listener.serve(listener, force.clone()));
        RunningServer {
            app,
            address,
            keys,
            force,
            supervisor: Some(supervisor),
        }
    }
}

/// Whatever others can reach must know them, and must not have them speak in the open.
async fn check_safe(app: &App, server: &ServerConfig) -> Result<(), ServeError> {
    if !server.needs_tokens() {
        return Ok(());
    }
    let now = app.backstop().now();
    if TokenRegistry::of(app.backstop())
        .list()
        .await?
        .iter()
        .all(|token| token.is_expired(now))
    {
        return Err(ServeError::NoToken(public_address(server)));
    }
    check_encrypted(server)
}

/// Whether what is listened on for others is encrypted, or is said to be by somebody before it.
pub fn check_encrypted(server: &ServerConfig) -> Result<(), ServeError> {
    if !server.is_loopback() && server.transport == ServerTransport::Plain {
        return Err(ServeError::NotEncrypted(server.listen));
    }
    Ok(())
}

fn public_address(server: &ServerConfig) -> String {
    match server.origins.first() {
        _ if !server.is_loopback() => server.listen.to_string(),
        Some(origin) => origin.clone(),
        None => format!("the proxy before {}", server.listen),
    }
}

impl RunningServer {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Prepares to go on by another configuration, with certificates read again; refuses one that
    /// it would not have started with. The store, and where and how it listens, stay as they are,
    /// whatever `config` says.
    pub async fn prepare(&self, mut config: Config) -> Result<ConfigChange, ServeError> {
        let current = self.app.config();
        // What is shown and compared must be the store that is open.
        config.store = current.store.clone();
        config.durability = current.durability;
        let current = current.server.clone();
        let keeps_transport = std::mem::discriminant(&current.transport)
            == std::mem::discriminant(&config.server.transport);
        config.server = ServerConfig {
            listen: current.listen,
            base: current.base,
            connections_max: current.connections_max,
            transport: if keeps_transport {
                config.server.transport
            } else {
                current.transport
            },
            ..config.server
        };
        check_safe(&self.app, &config.server).await?;
        let keys = TlsCertificate::of(&config.server)?;
        Ok(ConfigChange { config, keys })
    }

    /// Goes on by what was prepared. Requests and connections that have begun keep what they began
    /// with.
    pub fn apply(&self, apply: ConfigChange) {
        if let (Some(current), Some(keys)) = (&self.keys, apply.keys) {
            current.replace(keys);
        }
        self.app.reload(apply.config);
    }

    /// Says that it ends before long, and goes on answering: workers elsewhere have runs to keep
    /// and to end as long as anything runs here.
    pub fn leave(&self) {
        self.app.leave();
    }

    /// Tells it to end: no more connections, requests under way are answered, whoever waits is
    /// answered now.
    pub fn stop(&self) {
        self.app.closing().cancel();
    }

    /// Tells it to end at once.
    pub fn force(&self) {
        self.stop();
        self.force.cancel();
    }

    /// Waits until it has ended. Safe to drop while waiting and to call again.
    pub async fn wait_until_ended(&mut self) {
        if let Some(supervisor) = self.supervisor.as_mut() {
            // It does not panic by itself; if the runtime is going down there is nothing left to
            // wait for.
            let _ = supervisor.await;
            self.supervisor = None;
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        if self.supervisor.is_some() {
            self.force();
        }
    }
}

struct Listener {
    router: Router,
    /// For those there is no room for.
    refusing: Router,
    keys: Option<Arc<TlsCertificate>>,
    closing: CancellationToken,
    connection_limit: ConnectionLimit,
    connections: TaskTracker,
    /// What goes on when no request waits for it.
    tasks: TaskTracker,
}

impl Listener {
    async fn serve(self, listener: TcpListener, force: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => break,
                (stream, from) = accept_next(&listener) => self.accept(stream, from, &force),
            }
        }
        // From here on nobody finds us: whoever tries is told so by the machine, and goes
        // elsewhere.
        drop(listener);
        self.connections.close();
        self.tasks.close();
        tokio::select! {
            ((), ()) = async { tokio::join!(self.connections.wait(), self.tasks.wait()) } => {}
            () = force.cancelled() => {}
            () = tokio::time::sleep(DRAIN_MAX) => {
                tracing::warn!("{} connections did not end within {DRAIN_MAX:?}; they are cut", self.connections.len());
                force.cancel();
            }
        }
    }

    fn accept(&self, stream: TcpStream, from: SocketAddr, force: &CancellationToken) {
        let acceptor = self.keys.as_ref().map(|keys| keys.acceptor());
        let closing = self.closing.clone();
        match self.connection_limit.enter(from.ip()) {
            AcceptDecision::Served(slot) => {
                let (admission, evicted) = (slot.admission().clone(), slot.evicted().clone());
                let serving = serve_connection(
                    stream,
                    from,
                    acceptor,
                    self.router.clone(),
                    closing,
                    admission,
                );
                let serving = async move {
                    tokio::select! {
                        () = serving => {}
                        () = evicted.cancelled() => tracing::debug!(%from, "a connection made place for another"),
                    }
                };
                self.track(serving, slot, force);
            }
            AcceptDecision::Refused(spare) => {
                tracing::debug!(%from, "there is no room for another connection");
                let refused = serve_connection(
                    stream,
                    from,
                    acceptor,
                    self.refusing.clone(),
                    closing,
                    AdmissionFlag::default(),
                );
                self.track(timeout(REFUSAL_MAX, refused), spare, force);
            }
            AcceptDecision::Closed => {}
        }
    }

    /// Sees to a connection until it ends; `place` is its own as long.
    fn track<T>(
        &self,
        serving: impl Future<Output = T> + Send + 'static,
        slot: impl Send + 'static,
        force: &CancellationToken,
    ) {
        let force = force.clone();
        self.connections.spawn(async move {
            let _place = slot;
            tokio::select! {
                _ = serving => {}
                () = force.cancelled() => {}
            }
        });
    }
}

async fn accept_next(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken in");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}
