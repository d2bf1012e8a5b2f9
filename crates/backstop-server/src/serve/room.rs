//! How many connections there may be: in all, and from one address where addresses tell clients apart.

use crate::access::place;
use backstop::config::ServerConfig;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One address may have this part of all connections: nobody keeps everybody else out alone.
const SHARE: usize = 2;
/// Connections beyond all that are told so; more are closed without a word.
const REFUSED_MAX: usize = 64;

/// The room for connections.
pub(super) struct Room {
    all: Arc<Semaphore>,
    /// For those who are told that there is none.
    spare: Arc<Semaphore>,
    /// Connections by where they come from.
    held: Arc<Held>,
    /// The most of one address; `None` where many clients share one, or all are this machine's.
    of_one_max: Option<usize>,
}

type Held = Mutex<BTreeMap<IpAddr, usize>>;

/// What becomes of a connection that comes.
pub(super) enum Entry {
    /// It is served.
    Served(Seat),
    /// It is told that there is no room.
    Refused(OwnedSemaphorePermit),
    /// It is closed.
    Closed,
}

/// A place for one connection, free again when dropped.
pub(super) struct Seat {
    _one: OwnedSemaphorePermit,
    held: Arc<Held>,
    from: IpAddr,
}

impl Room {
    pub(super) fn of(server: &ServerConfig) -> Self {
        let tells_apart = !server.is_loopback() && !server.is_behind_proxy();
        Self {
            all: Arc::new(Semaphore::new(server.connections_max)),
            spare: Arc::new(Semaphore::new(REFUSED_MAX)),
            held: Arc::default(),
            of_one_max: tells_apart.then(|| server.connections_max.div_ceil(SHARE)),
        }
    }

    pub(super) fn enter(&self, from: IpAddr) -> Entry {
        if let Some(seat) = self.seat(place(from)) {
            return Entry::Served(seat);
        }
        Arc::clone(&self.spare).try_acquire_owned().map_or(Entry::Closed, Entry::Refused)
    }

    fn seat(&self, from: IpAddr) -> Option<Seat> {
        let one = Arc::clone(&self.all).try_acquire_owned().ok()?;
        let mut held = lock(&self.held);
        let count = held.entry(from).or_default();
        // Whoever is refused has connections, so that no entry is left behind for nothing.
        if self.of_one_max.is_some_and(|max| *count >= max) {
            return None;
        }
        *count += 1;
        Some(Seat { _one: one, held: Arc::clone(&self.held), from })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        if let Some(count) = held.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.from);
            }
        }
    }
}

fn lock(held: &Held) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
    // Every critical section leaves it whole.
    held.lock().unwrap_or_else(PoisonError::into_inner)
}
