//! Where ways of putting results in order plug in.
//!
//! Validation is before it, [`crate::process`] behind it. A sequencer decides when each result is
//! handled and which positions are missed, and nothing else.

use crate::directory::Directory;
use crate::event::Record;
use crate::wire::SubscriptionId;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, RwLock};

/// The directory as the threads of a process share it.
pub type SharedDirectory = Arc<RwLock<Directory>>;

/// A way of putting results in order.
pub trait Sequencer: Send {
    /// Takes results on. When it answers they are safe, and it says what became of each. When it
    /// fails, bringing the same results again is harmless.
    fn offer(&mut self, records: Vec<Record>) -> anyhow::Result<Vec<Became>>;

    /// Forgets a subscription: what is held of it is cleared, its next result is a first one.
    fn forget(&mut self, key: SubscriptionId) -> anyhow::Result<()>;

    /// Waits until nothing is held any more, neither here nor by others who share the hold.
    fn drain(&mut self) -> anyhow::Result<()>;

    /// Stops, and tells what the hold went through, if there is one. What is held stays so, for
    /// others and for later.
    fn finish(self: Box<Self>) -> anyhow::Result<Option<Hold>>;
}

/// What became of a result at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Became {
    /// It was handled.
    Handled,
    /// It is held until its turn comes.
    Held,
    /// It was dropped: its position had been dealt with.
    Duplicate,
    /// It was dropped: its position is known to have been given up.
    Late,
    /// Its position had been given up, and it was handled as the correction of that.
    Amended,
    /// It was dropped: somebody disabled its key in the stream.
    Ignored,
    /// It could not be handled, and never will be: it is a dead letter.
    Dead,
}

impl Became {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Handled => "handled",
            Self::Held => "held",
            Self::Duplicate => "duplicate",
            Self::Late => "late",
            Self::Amended => "amended",
            Self::Ignored => "ignored",
            Self::Dead => "dead",
        }
    }
}

/// How many results became what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the words of `Became`")]
pub struct Offered {
    pub handled: u64,
    pub held: u64,
    pub duplicates: u64,
    pub late: u64,
    pub amended: u64,
    pub ignored: u64,
    pub dead: u64,
}

impl Offered {
    /// Counts one.
    pub fn count(&mut self, became: Became) {
        *match became {
            Became::Handled => &mut self.handled,
            Became::Held => &mut self.held,
            Became::Duplicate => &mut self.duplicates,
            Became::Late => &mut self.late,
            Became::Amended => &mut self.amended,
            Became::Ignored => &mut self.ignored,
            Became::Dead => &mut self.dead,
        } += 1;
    }

    /// Adds those of others.
    pub fn add(&mut self, other: Self) {
        self.handled += other.handled;
        self.held += other.held;
        self.duplicates += other.duplicates;
        self.late += other.late;
        self.amended += other.amended;
        self.ignored += other.ignored;
        self.dead += other.dead;
    }
}

/// What the hold of a stream went through.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Hold {
    /// Results that were held.
    pub added: u64,
    /// Those of them that left it.
    pub removed: u64,
    /// Times a key's gap was given up because it had waited long enough.
    pub timeouts: u64,
    /// Times it was because the key held too much.
    pub overflows: u64,
    /// Results a key held on average, while it held any.
    pub mean_held: f64,
}
