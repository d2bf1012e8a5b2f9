//! A network that fails: a TCP proxy before a server.

use super::port;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// Bytes on their way, for one direction of one connection.
const BUFFER_BYTES: usize = 16 << 10;
/// Connections at one time; more than any test has.
const CONNECTIONS_MAX: usize = 1_000;

/// What becomes of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// They pass.
    Pass,
    /// All connections are closed, and further ones refused.
    Cut,
    /// Connections stay and are taken on, but nothing passes. A connection that was there meanwhile
    /// stays silent for ever, as if its other end had vanished: only a client that gives up finds
    /// out.
    HalfOpen,
    /// Every connection is reset after so many further bytes from the server.
    Reset {
        /// How many.
        after_bytes: usize,
    },
    /// Every piece, in both directions, waits.
    Slow {
        /// For how long.
        delay: Duration,
    },
}

/// A proxy before one server, on a port of its own. Ends, with all its connections, when it is
/// dropped.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    mode: watch::Sender<Mode>,
    task: AbortHandle,
}

impl Proxy {
    /// Starts one that lets everything pass. Must be called within a Tokio runtime.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = loop {
            if let Ok(listener) = TcpListener::bind(port::free()).await {
                break listener;
            }
        };
        let addr = listener.local_addr().expect("it is bound");
        let (mode, watched) = watch::channel(Mode::Pass);
        let task = tokio::spawn(serve(listener, target, watched)).abort_handle();
        Self { addr, mode, task }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// From now on, this becomes of the bytes.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Takes connections on for as long as the mode lets it.
async fn serve(mut listener: TcpListener, target: SocketAddr, mut mode: watch::Receiver<Mode>) {
    let addr = listener.local_addr().expect("it is bound");
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let is_cut = *mode.borrow_and_update() == Mode::Cut;
        if is_cut {
            // Nobody listens, so the system itself refuses.
            drop(listener);
            connections.shutdown().await;
            if mode.wait_for(|mode| *mode != Mode::Cut).await.is_err() {
                return;
            }
            listener = TcpListener::bind(addr).await.expect("the port is ours");
        }
        tokio::select! {
            taken = listener.accept() => {
                if let Ok((client, _)) = taken && connections.len() < CONNECTIONS_MAX {
                    connections.spawn(carry(client, target, mode.clone()));
                }
            }
            changed = mode.changed() => if changed.is_err() { return },
        }
    }
}

/// Carries one connection to its end. How it ended, the two ends have seen.
async fn carry(mut client: TcpStream, target: SocketAddr, mode: watch::Receiver<Mode>) {
    if *mode.borrow() == Mode::HalfOpen {
        return std::future::pending().await;
    }
    let Ok(mut server) = TcpStream::connect(target).await else {
        return;
    };
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let ended = tokio::select! {
        ended = pass(from_client, to_server, Direction::Request, mode.clone()) => ended,
        ended = pass(from_server, to_client, Direction::Reply, mode) => ended,
    };
    if matches!(ended, Ok(End::Reset)) {
        let _ = client.set_zero_linger();
        let _ = server.set_zero_linger();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Reply,
}

enum End {
    Closed,
    Reset,
}

/// Passes one direction on, piece by piece, as the mode of that moment has it.
async fn pass(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    direction: Direction,
    mut mode: watch::Receiver<Mode>,
) -> io::Result<End> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut passed_bytes = 0;
    loop {
        let length = tokio::select! {
            biased;
            changed = mode.changed() => {
                if changed.is_err() || *mode.borrow() == Mode::HalfOpen {
                    return std::future::pending().await;
                }
                passed_bytes = 0;
                continue;
            }
            read = from.read(&mut buffer) => read?,
        };
        if length == 0 {
            return Ok(End::Closed);
        }
        let current = *mode.borrow();
        let piece = &buffer[..length];
        match current {
            Mode::Slow { delay } => tokio::time::sleep(delay).await,
            Mode::Reset { after_bytes } if direction == Direction::Reply => {
                if passed_bytes + length > after_bytes {
                    to.write_all(&piece[..after_bytes.saturating_sub(passed_bytes)])
                        .await?;
                    return Ok(End::Reset);
                }
            }
            Mode::HalfOpen => return std::future::pending().await,
            Mode::Pass | Mode::Cut | Mode::Reset { .. } => {}
        }
        to.write_all(piece).await?;
        passed_bytes += length;
    }
}

#[cfg(test)]
mod tests;
