//! Ports nobody listens on.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;

/// Below the ports that systems give to outgoing connections. A client that keeps trying to reach a
/// stopped server on one of those is given, sooner or later, that very port to call from, and
/// connects to itself. The bus of a Redis Cluster adds ten thousand and stays below as well.
const PORTS: Range<u16> = 10_000..20_000;

/// How often a port is looked for; one of very few in use.
const TRIES_MAX: usize = 1_000;

/// An address of this machine that nobody listens on. Somebody else may be quicker to use it: try
/// again then.
pub(super) fn free() -> SocketAddr {
    (0..TRIES_MAX)
        .map(|_| local(rand::random_range(PORTS)))
        .find(|addr| TcpListener::bind(addr).is_ok())
        .expect("one port of ten thousand is free")
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
