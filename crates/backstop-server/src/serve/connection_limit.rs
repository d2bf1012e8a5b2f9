//! How many connections there may be: in all, and from one address where addresses tell clients
//! apart.
//!
//! A connection of which no request was let in yet is a stranger's. When there is no room, the
//! oldest of these makes place for the next one: who opens connections and sends nothing keeps
//! nobody out, and connections of callers who were let in stay.

use crate::access::{AdmissionFlag, client_network};
use backstop::config::ServerConfig;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// One address may have this part of all connections: nobody keeps everybody else out alone.
const NETWORK_SHARE: usize = 2;
/// Connections beyond all that are told so; more are closed without a word.
const REFUSED_MAX: usize = 64;

pub(super) struct ConnectionLimit {
    connections: Arc<Mutex<OpenConnections>>,
    /// For those who are told that there is none.
    spare: Arc<Semaphore>,
    max: usize,
    /// The most of one address; `None` where many clients share one, or all are this machine's.
    network_max: Option<usize>,
}

/// The seats that are taken.
#[derive(Default)]
struct OpenConnections {
    taken: usize,
    /// By where their connections come from.
    by_network: BTreeMap<IpAddr, usize>,
    /// Those that may be taken away, the oldest first.
    unadmitted: BTreeMap<u64, UnadmittedConnection>,
    next: u64,
}

/// A connection of which no request was let in when it was last looked at.
struct UnadmittedConnection {
    from: IpAddr,
    admission: AdmissionFlag,
    evicted: CancellationToken,
}

/// What becomes of a connection that comes.
pub(super) enum AcceptDecision {
    Served(ConnectionSlot),
    /// It is told that there is no room.
    Refused(OwnedSemaphorePermit),
    Closed,
}

/// A place for one connection, free again when dropped.
pub(super) struct ConnectionSlot {
    connections: Arc<Mutex<OpenConnections>>,
    number: u64,
    from: IpAddr,
    admission: AdmissionFlag,
    evicted: CancellationToken,
}

impl ConnectionLimit {
    pub(super) fn of(server: &ServerConfig) -> Self {
        let tells_apart = !server.is_loopback() && !server.is_behind_proxy();
        Self {
            connections: Arc::default(),
            spare: Arc::new(Semaphore::new(REFUSED_MAX)),
            max: server.connections_max,
            network_max: tells_apart.then(|| server.connections_max.div_ceil(NETWORK_SHARE)),
        }
    }

    pub(super) fn enter(&self, from: IpAddr) -> AcceptDecision {
        if let Some(slot) = self.take_slot(client_network(from)) {
            return AcceptDecision::Served(slot);
        }
        Arc::clone(&self.spare)
            .try_acquire_owned()
            .map_or(AcceptDecision::Closed, AcceptDecision::Refused)
    }

    fn take_slot(&self, from: IpAddr) -> Option<ConnectionSlot> {
        let mut connections = lock(&self.connections);
        let of_network = connections
            .by_network
            .get(&from)
            .copied()
            .unwrap_or_default();
        if self.network_max.is_some_and(|max| of_network >= max) {
            return None;
        }
        if connections.taken >= self.max && !connections.evict_oldest_unadmitted() {
            return None;
        }
        let (number, admission, evicted) = (
            connections.next,
            AdmissionFlag::default(),
            CancellationToken::new(),
        );
        connections.next += 1;
        connections.taken += 1;
        *connections.by_network.entry(from).or_default() += 1;
        let connection = UnadmittedConnection {
            from,
            admission: admission.clone(),
            evicted: evicted.clone(),
        };
        connections.unadmitted.insert(number, connection);
        Some(ConnectionSlot {
            connections: Arc::clone(&self.connections),
            number,
            from,
            admission,
            evicted,
        })
    }
}

impl OpenConnections {
    /// Takes the seat of the oldest connection that sent nothing worth an answer; whether there was
    /// one.
    fn evict_oldest_unadmitted(&mut self) -> bool {
        while let Some((_, oldest)) = self.unadmitted.pop_first() {
            if !oldest.admission.is_set() {
                oldest.evicted.cancel();
                self.leave(oldest.from);
                return true;
            }
        }
        false
    }

    fn leave(&mut self, from: IpAddr) {
        self.taken -= 1;
        if let Some(count) = self.by_network.get_mut(&from) {
            *count -= 1;
            if *count == 0 {
                self.by_network.remove(&from);
            }
        }
    }
}

impl ConnectionSlot {
    /// To be given when a request of this connection is let in.
    pub(super) const fn admission(&self) -> &AdmissionFlag {
        &self.admission
    }

    /// Cancelled when another connection has this seat.
    pub(super) const fn evicted(&self) -> &CancellationToken {
        &self.evicted
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut connections = lock(&self.connections);
        // Whoever was evicted has left already.
        if !self.evicted.is_cancelled() {
            connections.unadmitted.remove(&self.number);
            connections.leave(self.from);
        }
    }
}

fn lock(connections: &Mutex<OpenConnections>) -> MutexGuard<'_, OpenConnections> {
    // Every critical section leaves it whole.
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn room(max: usize) -> ConnectionLimit {
        ConnectionLimit::of(&ServerConfig {
            connections_max: max,
            ..ServerConfig::default()
        })
    }

    fn slot(room: &ConnectionLimit) -> Option<ConnectionSlot> {
        match room.enter(HERE) {
            AcceptDecision::Served(slot) => Some(slot),
            AcceptDecision::Refused(_) | AcceptDecision::Closed => None,
        }
    }

    #[test]
    fn the_oldest_stranger_makes_place_and_whoever_was_let_in_stays() {
        let room = room(3);
        let [first, second, third] = [(); 3].map(|()| slot(&room).unwrap());
        first.admission().set();
        let fourth = slot(&room).unwrap();
        assert!(second.evicted().is_cancelled());
        assert!(!first.evicted().is_cancelled() && !third.evicted().is_cancelled());
        third.admission().set();
        fourth.admission().set();
        assert!(
            slot(&room).is_none(),
            "all were let in, and none makes place"
        );
        drop(second);
        assert!(slot(&room).is_none(), "its seat was another one's already");
        drop(first);
        assert!(slot(&room).is_some());
    }

    #[test]
    fn a_flood_of_strangers_keeps_nobody_out() {
        let room = room(100);
        let ours = slot(&room).unwrap();
        ours.admission().set();
        let flood: Vec<ConnectionSlot> = (0..1_000).filter_map(|_| slot(&room)).collect();
        assert_eq!(
            flood
                .iter()
                .filter(|slot| !slot.evicted().is_cancelled())
                .count(),
            99
        );
        assert!(!ours.evicted().is_cancelled());
        let newcomer = slot(&room).unwrap();
        newcomer.admission().set();
        let _more: Vec<ConnectionSlot> = (0..1_000).filter_map(|_| slot(&room)).collect();
        assert!(!newcomer.evicted().is_cancelled());
        drop(flood);
        assert_eq!(lock(&room.connections).taken, 100);
    }
}
