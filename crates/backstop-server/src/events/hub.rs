//! One poller for all viewers: it runs while there are any.

use super::look::Look;
use crate::App;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

/// Viewers of one server at a time.
pub const VIEWERS_MAX: usize = 200;
/// Of them, those of one caller: nobody takes all the places for themselves.
pub const VIEWERS_OF_ONE_MAX: usize = 20;
/// The least time between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// A store that is slow to answer is asked less often: looking takes at most one part in so many of
/// the time.
const SHARE: u32 = 10;
/// How often viewers look again although nothing changed: ages grow by themselves.
const TICK: Duration = Duration::from_secs(10);
/// Events a slow viewer may be behind before it is told to look once instead.
const BEHIND_MAX: usize = 16;

/// What viewers are told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Told {
    /// Names it: who has heard it has heard everything before it.
    pub(super) id: String,
    /// `changed`, or `tick` if nothing did.
    pub(super) name: &'static str,
    /// What changed.
    pub(super) what: Vec<&'static str>,
}

/// Where viewers listen. Cheap to clone.
#[derive(Clone)]
pub struct Hub(Arc<Mutex<State>>);

struct State {
    sender: broadcast::Sender<Told>,
    /// Drawn once: ids of another server, or of this one before it was started anew, say nothing
    /// here.
    epoch: u64,
    number: u64,
    is_polling: bool,
    /// How many places each caller has.
    places: BTreeMap<Arc<str>, usize>,
}

/// Why a viewer is not taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Full {
    /// There are as many as there may be.
    Hub,
    /// The caller has as many as one may have.
    Caller,
}

/// Somebody's place among the viewers, free again when it is dropped.
struct Place {
    hub: Hub,
    who: Arc<str>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        if let Some(count) = state.places.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                state.places.remove(&self.who);
            }
        }
    }
}

impl Default for Hub {
    fn default() -> Self {
        let (sender, _) = broadcast::channel(BEHIND_MAX);
        let (epoch, places) = (rand::random(), BTreeMap::new());
        Self(Arc::new(Mutex::new(State {
            sender,
            epoch,
            number: 0,
            is_polling: false,
            places,
        })))
    }
}

/// Somebody who listens.
pub(super) struct Viewer {
    hub: Hub,
    receiver: broadcast::Receiver<Told>,
    /// What is told before anything is heard.
    first: VecDeque<Told>,
    _place: Place,
}

impl Viewer {
    /// What is told next; `None` once the hub is gone.
    pub(super) async fn next(&mut self) -> Option<Told> {
        if let Some(told) = self.first.pop_front() {
            return Some(told);
        }
        match self.receiver.recv().await {
            Ok(told) => Some(told),
            // What was missed is made up for by one look.
            Err(RecvError::Lagged(_)) => Some(self.hub.current()),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Hub {
    /// Takes a viewer of `who` in, who has heard everything up to `last`.
    pub(super) fn join(&self, app: &App, who: &str, last: Option<&str>) -> Result<Viewer, Full> {
        let mut state = self.state();
        let who = state.take_place(who)?;
        let receiver = state.sender.subscribe();
        // While nobody listened nobody looked: even the newest id may be out of date then.
        let is_up_to_date = state.is_polling && last == Some(state.id().as_str());
        let first = if is_up_to_date {
            VecDeque::new()
        } else {
            VecDeque::from([state.told()])
        };
        if !state.is_polling {
            state.is_polling = true;
            tokio::spawn(self.clone().poll(app.clone()));
        }
        drop(state);
        Ok(Viewer {
            receiver,
            first,
            _place: Place {
                hub: self.clone(),
                who,
            },
            hub: self.clone(),
        })
    }

    /// Looks for as long as somebody listens.
    async fn poll(self, app: App) {
        let (mut before, mut is_failing, mut told_at) = (None, false, Instant::now());
        loop {
            let started = Instant::now();
            let what = match Look::now(&app).await {
                Ok(look) => {
                    let what = before
                        .as_ref()
                        .map_or_else(Vec::new, |before| look.changes(before));
                    before = Some(look);
                    if std::mem::take(&mut is_failing) {
                        vec!["store"]
                    } else {
                        what
                    }
                }
                Err(error) if !is_failing => {
                    tracing::warn!(%error, "viewers cannot be told of changes");
                    is_failing = true;
                    vec!["store"]
                }
                Err(_) => Vec::new(),
            };
            if !what.is_empty() || told_at.elapsed() >= TICK {
                told_at = Instant::now();
                self.tell(what);
            }
            tokio::time::sleep(EVERY.max(started.elapsed() * SHARE)).await;
            if self.is_left() {
                return;
            }
        }
    }

    fn tell(&self, what: Vec<&'static str>) {
        let mut state = self.state();
        state.number += 1;
        let name = if what.is_empty() { "tick" } else { "changed" };
        let what = if what.is_empty() { vec!["time"] } else { what };
        let told = Told {
            id: state.id(),
            name,
            what,
        };
        // Without viewers there is nobody to tell.
        let _ = state.sender.send(told);
    }

    /// Whether everybody has left; then the poller must end, and the next viewer starts another.
    fn is_left(&self) -> bool {
        let mut state = self.state();
        state.is_polling = state.sender.receiver_count() > 0;
        !state.is_polling
    }

    fn current(&self) -> Told {
        self.state().told()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn id(&self) -> String {
        format!("{:016x}-{}", self.epoch, self.number)
    }

    /// A place for one more viewer of `who`; answers whose it is.
    fn take_place(&mut self, who: &str) -> Result<Arc<str>, Full> {
        if self.places.values().sum::<usize>() >= VIEWERS_MAX {
            return Err(Full::Hub);
        }
        let known = self
            .places
            .get_key_value(who)
            .map(|(who, _)| Arc::clone(who));
        let who = known.unwrap_or_else(|| who.into());
        let count = self.places.entry(Arc::clone(&who)).or_default();
        if *count >= VIEWERS_OF_ONE_MAX {
            return Err(Full::Caller);
        }
        *count += 1;
        Ok(who)
    }

    /// Look once, whatever it was.
    fn told(&self) -> Told {
        Told {
            id: self.id(),
            name: "changed",
            what: vec!["all"],
        }
    }
}
