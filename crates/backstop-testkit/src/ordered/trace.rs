//! What is brought, where and in which order: decided by a seed, so that processes need not tell
//! each other.

use backstop_core::stream::Record;
use backstop_core::{Payload, StreamKey};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;

/// How far positions are apart.
pub const STEP: i64 = 60;
/// Records that are brought twice, and positions whose record never comes.
const TWICE: f64 = 0.02;
const NEVER: f64 = 0.01;
/// How many places early or late a record comes among those of its key.
const SHUFFLE_MAX: usize = 8;
/// Records that are brought together.
const BATCH_RECORDS: usize = 100;

/// What is brought. Positions come in waves: of a wave everything arrives before anything is given
/// up. The first wave is the first position of each key, so that nothing can overtake it; the last
/// position of a wave comes always, so that each gap of the wave is seen in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trace {
    /// Decides everything else.
    pub seed: u64,
    /// How many keys.
    pub keys: usize,
    /// How many positions each key has.
    pub positions: usize,
    /// How many positions of each key are in a wave, but for the first.
    pub wave: usize,
    /// Among how many processes the records are divided. Those of one key go to all of them.
    pub shares: usize,
}

/// What must become of a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Its record is handled.
    Handled,
    /// It is missed.
    Missed,
}

impl Trace {
    /// How many waves there are.
    pub const fn waves(&self) -> usize {
        1 + (self.positions - 1).div_ceil(self.wave)
    }

    /// The batches of a wave that this process brings, in the order in which they arrive.
    pub fn batches(&self, wave: usize, share: usize) -> Vec<Vec<Record>> {
        let arrivals = self
            .arrivals(wave)
            .into_iter()
            .filter(|arrival| arrival.share == share);
        let records: Vec<Record> = arrivals
            .map(|arrival| record(arrival.key, position(arrival.place)))
            .collect();
        records
            .chunks(BATCH_RECORDS)
            .map(<[Record]>::to_vec)
            .collect()
    }

    /// The last record of a wave for each key that this process looks after: it brings them once
    /// more.
    pub fn last_of_wave(&self, wave: usize, share: usize) -> Vec<Record> {
        let last = self.last_position(wave);
        (share..self.keys)
            .step_by(self.shares)
            .map(|key| record(key, last))
            .collect()
    }

    /// The highest position of a wave.
    pub fn last_position(&self, wave: usize) -> i64 {
        position(self.places(wave).end - 1)
    }

    /// How many calls a wave makes, if none is repeated.
    pub fn calls(&self, wave: usize) -> usize {
        self.places(wave).len() * self.keys
    }

    /// What must become of each position, in order: all keys, the calls of a key side by side.
    pub fn expected(&self) -> Vec<(StreamKey, Vec<(i64, Expected)>)> {
        let never: Vec<BTreeSet<(usize, usize)>> =
            (0..self.waves()).map(|wave| self.never(wave)).collect();
        let of_key = |key: usize| {
            let of_wave = |wave: usize| {
                let never = &never[wave];
                self.places(wave).map(move |place| {
                    let is_missed = never.contains(&(key, place));
                    (
                        position(place),
                        if is_missed {
                            Expected::Missed
                        } else {
                            Expected::Handled
                        },
                    )
                })
            };
            (name(key), (0..self.waves()).flat_map(of_wave).collect())
        };
        (0..self.keys).map(of_key).collect()
    }

    fn places(&self, wave: usize) -> std::ops::Range<usize> {
        match wave {
            0 => 0..1,
            _ => 1 + (wave - 1) * self.wave..self.positions.min(1 + wave * self.wave),
        }
    }

    /// Keys and places of a wave whose records never come.
    fn never(&self, wave: usize) -> BTreeSet<(usize, usize)> {
        let (mut dice, places) = (self.dice(wave, 0), self.places(wave));
        let may_miss = places.start..if wave == 0 { 0 } else { places.end - 1 };
        let all = (0..self.keys).flat_map(|key| may_miss.clone().map(move |place| (key, place)));
        all.filter(|_| dice.random_bool(NEVER)).collect()
    }

    fn arrivals(&self, wave: usize) -> Vec<Arrival> {
        let (mut dice, never) = (self.dice(wave, 1), self.never(wave));
        let mut arrivals = Vec::new();
        for key in 0..self.keys {
            for place in self
                .places(wave)
                .filter(|place| !never.contains(&(key, *place)))
            {
                for _ in 0..if dice.random_bool(TWICE) { 2 } else { 1 } {
                    let at = (place + dice.random_range(0..=SHUFFLE_MAX), dice.random());
                    arrivals.push(Arrival {
                        at,
                        share: dice.random_range(0..self.shares),
                        key,
                        place,
                    });
                }
            }
        }
        arrivals.sort_by_key(|arrival| arrival.at);
        arrivals
    }

    fn dice(&self, wave: usize, salt: u64) -> StdRng {
        StdRng::seed_from_u64(self.seed.wrapping_add(2 * wave as u64 + salt))
    }
}

/// A record on its way.
struct Arrival {
    /// When it comes; a random draw among those that come together.
    at: (usize, u64),
    share: usize,
    key: usize,
    place: usize,
}

fn position(place: usize) -> i64 {
    i64::try_from(place).expect("a trace is short") * STEP
}

fn name(key: usize) -> StreamKey {
    StreamKey::new(&format!("key-{key}")).expect("a key")
}

fn record(key: usize, position: i64) -> Record {
    let payload = Payload::from_stored(position.to_string().into_bytes());
    Record {
        key: name(key),
        position,
        step: STEP,
        tenant: None,
        payload,
    }
}
