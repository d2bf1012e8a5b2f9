//! What happens next to ordered streams.

use super::Player;
use crate::model::Operation;
use crate::random::Replies;
use backstop_core::limits::DUE_KEYS_MAX;
use backstop_core::port::{
    KeyAdvance, KeyLease, KeyLeaseAction, KeySelection, TakeRequest, TakeResult,
};
use backstop_core::stream::{KeyChange, Record, StoredRecord, StreamCounter, StreamCounts};
use backstop_core::{Payload, StreamKey, StreamName, Time};
use rand::RngExt;
use rand::seq::{IndexedRandom, IteratorRandom};

const STREAMS: [&str; 2] = ["a", "a-b"];
const STREAM_KEYS: [&str; 4] = ["k", "k 2", "ä", "Z"];
const TENANTS: [&str; 2] = ["one", "o'ther"];
/// The furthest a position is from 0.
const FAR: i64 = 5;

/// Hands and advances remembered: enough for stale ones, few enough for live ones to be drawn.
const HANDS_MAX: usize = 8;
const SAID_MAX: usize = 4;

/// What a player remembers of streams.
#[derive(Default)]
pub(super) struct Remembered {
    takes: Vec<TakeRequest>,
    hands: Vec<Hand>,
    said: Vec<KeyAdvance>,
}

/// A key that was handed out: some of them are over, or were taken away.
#[derive(Clone)]
struct Hand {
    lease: KeyLease,
    arrived: u64,
    turn: u32,
}

impl Player {
    /// The next operation on streams.
    pub(super) fn next_of_streams(&mut self) -> Operation {
        match self.dice.random_range(0..10) {
            0..3 => self.offer(),
            3..6 => self.take(),
            6 => self.keep(),
            _ => self.advance(),
        }
    }

    /// Takes note of keys that were handed out.
    pub(super) fn learn_taken(&mut self, take: &TakeRequest, taken: &TakeResult) {
        let hands = taken.keys.iter().map(|stored| Hand {
            lease: KeyLease {
                stream: take.stream.clone(),
                key: stored.key.clone(),
                number: take.number,
            },
            arrived: stored.arrived,
            turn: 0,
        });
        let known = |hand: &Hand| {
            self.streams
                .hands
                .iter()
                .any(|known| known.lease == hand.lease)
        };
        let fresh: Vec<Hand> = hands.filter(|hand| !known(hand)).collect();
        self.streams.hands.extend(fresh);
        keep_latest(&mut self.streams.hands, HANDS_MAX);
    }

    fn offer(&mut self) -> Operation {
        let count = self.dice.random_range(1..=4);
        Operation::Offer(self.stream(), (0..count).map(|_| self.record()).collect())
    }

    fn record(&mut self) -> Record {
        let StoredRecord {
            position,
            step,
            tenant,
            payload,
            ..
        } = self.stored_record();
        Record {
            key: self.stream_key(),
            position,
            step,
            tenant,
            payload,
        }
    }

    fn stored_record(&mut self) -> StoredRecord {
        let tenant = TENANTS
            .choose(&mut self.dice)
            .filter(|_| self.flip(0.3))
            .map(|tenant| (*tenant).into());
        StoredRecord {
            position: self.dice.random_range(-FAR..=FAR),
            step: self.dice.random_range(1..=3),
            tenant,
            at: self.now.before(self.span(10)),
            arrival: 0,
            payload: Payload::from_stored(
                self.dice.random_range(0..1_000).to_string().into_bytes(),
            ),
        }
    }

    fn take(&mut self) -> Operation {
        if self.flip(0.15) && !self.streams.takes.is_empty() {
            return Operation::Take(self.pick(|player| &player.streams.takes));
        }
        let wanted = match self.dice.random_range(0..10) {
            0..4 => KeySelection::Keys(self.stream_keys()),
            4 => KeySelection::Seized(self.stream_keys()),
            // Which of those that are due at one time go first is the store's choice, so that all
            // are asked for.
            _ => KeySelection::Due(DUE_KEYS_MAX),
        };
        let (stream, number, worker, until) =
            (self.stream(), self.number(), self.worker(), self.until());
        let take = TakeRequest {
            stream,
            number,
            worker,
            until,
            wanted,
        };
        self.streams.takes.push(take.clone());
        keep_latest(&mut self.streams.takes, 2);
        Operation::Take(take)
    }

    fn keep(&mut self) -> Operation {
        let hands: Vec<Hand> = self
            .streams
            .hands
            .sample(&mut self.dice, 3)
            .cloned()
            .collect();
        let mut leases: Vec<KeyLease> = hands.into_iter().map(|hand| hand.lease).collect();
        if let (true, Some(lease)) = (self.flip(0.1), leases.pop()) {
            leases.push(KeyLease {
                number: self.number(),
                ..lease
            });
        }
        Operation::Keep(leases, self.until())
    }

    fn advance(&mut self) -> Operation {
        let count = self.dice.random_range(1..=3);
        let hands = 0..self.streams.hands.len();
        let mut hands: Vec<usize> = hands.sample(&mut self.dice, count);
        hands.sort_unstable();
        let mut advances: Vec<KeyAdvance> =
            hands.into_iter().map(|at| self.one_advance(at)).collect();
        if let Some(again) = self
            .streams
            .said
            .choose(&mut self.dice)
            .cloned()
            .filter(|_| self.flip(0.2))
        {
            advances.push(again);
        }
        if self.replies == Replies::SometimesLost {
            // What one of them clears, another one of the same key may find gone when the call is
            // made again.
            advances.sort_by(|one, other| one.lease.cmp(&other.lease));
            advances.dedup_by(|one, other| {
                (&one.lease.stream, &one.lease.key) == (&other.lease.stream, &other.lease.key)
            });
        }
        if advances.is_empty() {
            return self.offer();
        }
        Operation::Advance(advances)
    }

    fn one_advance(&mut self, at: usize) -> KeyAdvance {
        let then = match self.dice.random_range(0..10) {
            0..3 => KeyLeaseAction::Keep(self.until()),
            3..6 => KeyLeaseAction::Release(None),
            6..9 => KeyLeaseAction::Release(Some(self.soon())),
            _ => KeyLeaseAction::Clear,
        };
        let change = self.change();
        let is_new = self.flip(0.9);
        let hand = &mut self.streams.hands[at];
        hand.turn += u32::from(is_new || hand.turn == 0);
        let (lease, turn, seen) = (hand.lease.clone(), hand.turn, hand.arrived);
        let lease = if self.flip(0.05) {
            KeyLease {
                number: self.number(),
                ..lease
            }
        } else {
            lease
        };
        let advance = KeyAdvance {
            lease,
            turn,
            seen,
            change,
            lease_action: then,
        };
        self.streams.said.push(advance.clone());
        keep_latest(&mut self.streams.said, SAID_MAX);
        advance
    }

    fn change(&mut self) -> KeyChange {
        let mut positions: Vec<i64> = (-FAR..=FAR).sample(&mut self.dice, 5);
        let held = positions.split_off(3);
        let hold = held.into_iter().map(|position| StoredRecord {
            position,
            ..self.stored_record()
        });
        let hold: Vec<StoredRecord> = hold.collect();
        let mut counts = StreamCounts::default();
        for count in StreamCounter::ALL {
            counts[count] = u64::from(self.flip(0.2));
        }
        let is_kept = self.flip(0.8);
        KeyChange {
            watermark: Some(self.dice.random_range(-FAR..=FAR)).filter(|_| is_kept),
            state: if is_kept {
                vec![self.dice.random(), 0, 255]
            } else {
                Vec::new()
            },
            hold: if self.flip(0.4) { hold } else { Vec::new() },
            drop: if self.flip(0.7) {
                positions
            } else {
                Vec::new()
            },
            counts,
        }
    }

    fn soon(&mut self) -> Time {
        if self.flip(0.3) {
            self.now.before(self.span(5))
        } else {
            self.now.after(self.span(10))
        }
    }

    fn stream(&mut self) -> StreamName {
        let name = STREAMS.choose(&mut self.dice).expect("there are streams");
        StreamName::new(name).expect("a name")
    }

    fn stream_key(&mut self) -> StreamKey {
        stream_key(STREAM_KEYS.choose(&mut self.dice).expect("there are keys"))
    }

    fn stream_keys(&mut self) -> Vec<StreamKey> {
        let count = self.dice.random_range(1..=3);
        STREAM_KEYS
            .sample(&mut self.dice, count)
            .map(|key| stream_key(key))
            .collect()
    }
}

fn stream_key(text: &str) -> StreamKey {
    StreamKey::new(text).expect("a key")
}

fn keep_latest<T>(of: &mut Vec<T>, max: usize) {
    let surplus = of.len().saturating_sub(max);
    of.drain(..surplus);
}
