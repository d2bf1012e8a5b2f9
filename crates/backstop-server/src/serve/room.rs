//! How many connections there may be: in all, and from one address where addresses tell clients
//! apart.
//!
//! A connection of which no request was let in yet is a stranger's. When there is no room, the
//! oldest of these makes place for the next one: who opens connections and sends nothing keeps
//! nobody out, and connections of callers who were let in stay.

use crate::access::{Welcome, place};
use backstop::config::ServerConfig;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// One address may have this part of all connections: nobody keeps everybody else out alone.
const SHARE: usize = 2;
/// Connections beyond all that are told so; more are closed without a word.
const REFUSED_MAX: usize = 64;

/// The room for connections.
pub(super) struct Room {
    seats: Arc<Mutex<Seats>>,
    /// For those who are told that there is none.
    spare: Arc<Semaphore>,
    max: usize,
    /// The most of one address; `None` where many clients share one, or all are this machine's.
    of_one_max: Option<usize>,
}

/// The seats that are taken.
#[derive(Default)]
struct Seats {
    taken: usize,
    /// By where their connections come from.
    of_places: BTreeMap<IpAddr, usize>,
    /// Those that may be taken away, the oldest first.
    strangers: BTreeMap<u64, Stranger>,
    next: u64,
}

/// A connection of which no request was let in when it was last looked at.
struct Stranger {
    from: IpAddr,
    welcome: Welcome,
    evicted: CancellationToken,
}

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
    seats: Arc<Mutex<Seats>>,
    number: u64,
    from: IpAddr,
    welcome: Welcome,
    evicted: CancellationToken,
}

impl Room {
    pub(super) fn of(server: &ServerConfig) -> Self {
        let tells_apart = !server.is_loopback() && !server.is_behind_proxy();
        Self {
            seats: Arc::default(),
            spare: Arc::new(Semaphore::new(REFUSED_MAX)),
            max: server.connections_max,
            of_one_max: tells_apart.then(|| server.connections_max.div_ceil(SHARE)),
        }
    }

    pub(super) fn enter(&self, from: IpAddr) -> Entry {
        if let Some(seat) = self.seat(place(from)) {
            return Entry::Served(seat);
        }
        Arc::clone(&self.spare)
            .try_acquire_owned()
            .map_or(Entry::Closed, Entry::Refused)
    }

    fn seat(&self, from: IpAddr) -> Option<Seat> {
        let mut seats = lock(&self.seats);
        let of_place = seats.of_places.get(&from).copied().unwrap_or_default();
        if self.of_one_max.is_some_and(|max| of_place >= max) {
            return None;
        }
        if seats.taken >= self.max && !seats.evict_oldest_stranger() {
            return None;
        }
        let (number, welcome, evicted) = (seats.next, Welcome::default(), CancellationToken::new());
        seats.next += 1;
        seats.taken += 1;
        *seats.of_places.entry(from).or_default() += 1;
        let stranger = Stranger {
            from,
            welcome: welcome.clone(),
            evicted: evicted.clone(),
        };
        seats.strangers.insert(number, stranger);
        Some(Seat {
            seats: Arc::clone(&self.seats),
            number,
            from,
            welcome,
            evicted,
        })
    }
}

impl Seats {
    /// Takes the seat of the oldest connection that sent nothing worth an answer; whether there was
    /// one.
    fn evict_oldest_stranger(&mut self) -> bool {
        while let Some((_, oldest)) = self.strangers.pop_first() {
            if !oldest.welcome.is_given() {
                oldest.evicted.cancel();
                self.leave(oldest.from);
                return true;
            }
        }
        false
    }

    fn leave(&mut self, from: IpAddr) {
        self.taken -= 1;
        if let Some(count) = self.of_places.get_mut(&from) {
            *count -= 1;
            if *count == 0 {
                self.of_places.remove(&from);
            }
        }
    }
}

impl Seat {
    /// To be given when a request of this connection is let in.
    pub(super) const fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Cancelled when another connection has this seat.
    pub(super) const fn evicted(&self) -> &CancellationToken {
        &self.evicted
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = lock(&self.seats);
        // Whoever was evicted has left already.
        if !self.evicted.is_cancelled() {
            seats.strangers.remove(&self.number);
            seats.leave(self.from);
        }
    }
}

fn lock(seats: &Mutex<Seats>) -> MutexGuard<'_, Seats> {
    // Every critical section leaves it whole.
    seats.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn room(max: usize) -> Room {
        Room::of(&ServerConfig {
            connections_max: max,
            ..ServerConfig::default()
        })
    }

    fn seat(room: &Room) -> Option<Seat> {
        match room.enter(HERE) {
            Entry::Served(seat) => Some(seat),
            Entry::Refused(_) | Entry::Closed => None,
        }
    }

    #[test]
    fn the_oldest_stranger_makes_place_and_whoever_was_let_in_stays() {
        let room = room(3);
        let [first, second, third] = [(); 3].map(|()| seat(&room).unwrap());
        first.welcome().give();
        let fourth = seat(&room).unwrap();
        assert!(second.evicted().is_cancelled());
        assert!(!first.evicted().is_cancelled() && !third.evicted().is_cancelled());
        third.welcome().give();
        fourth.welcome().give();
        assert!(
            seat(&room).is_none(),
            "all were let in, and none makes place"
        );
        drop(second);
        assert!(seat(&room).is_none(), "its seat was another one's already");
        drop(first);
        assert!(seat(&room).is_some());
    }

    #[test]
    fn a_flood_of_strangers_keeps_nobody_out() {
        let room = room(100);
        let ours = seat(&room).unwrap();
        ours.welcome().give();
        let flood: Vec<Seat> = (0..1_000).filter_map(|_| seat(&room)).collect();
        assert_eq!(
            flood
                .iter()
                .filter(|seat| !seat.evicted().is_cancelled())
                .count(),
            99
        );
        assert!(!ours.evicted().is_cancelled());
        let newcomer = seat(&room).unwrap();
        newcomer.welcome().give();
        let _more: Vec<Seat> = (0..1_000).filter_map(|_| seat(&room)).collect();
        assert!(!newcomer.evicted().is_cancelled());
        drop(flood);
        assert_eq!(lock(&room.seats).taken, 100);
    }
}
