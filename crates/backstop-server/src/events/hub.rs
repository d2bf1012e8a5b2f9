//! One poller for all viewers: it runs while there are any.

use super::watched_state::WatchedState;
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

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ViewerEvent {
    /// Names it: who has heard it has heard everything before it.
    pub(super) id: String,
    /// `changed`, or `tick` if nothing did.
    pub(super) name: &'static str,
    pub(super) what: Vec<&'static str>,
}

/// Where viewers listen. Cheap to clone.
#[derive(Clone)]
pub struct EventHub(Arc<Mutex<HubState>>);

struct HubState {
    sender: broadcast::Sender<ViewerEvent>,
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
pub(super) enum HubFull {
    /// There are as many as there may be.
    Hub,
    /// The caller has as many as one may have.
    Caller,
}

/// Somebody's place among the viewers, free again when it is dropped.
struct ViewerSlot {
    hub: EventHub,
    who: Arc<str>,
}

impl Drop for ViewerSlot {
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

impl Default for EventHub {
    fn default() -> Self {
        let (sender, _) = broadcast::channel(BEHIND_MAX);
        let (epoch, places) = (rand::random(), BTreeMap::new());
        Self(Arc::new(Mutex::new(HubState {
            sender,
            epoch,
            number: 0,
            is_polling: false,
            places,
        })))
    }
}

pub(super) struct EventViewer {
    hub: EventHub,
    receiver: broadcast::Receiver<ViewerEvent>,
    /// What is told before anything is heard.
    first: VecDeque<ViewerEvent>,
    _place: ViewerSlot,
}

impl EventViewer {
    /// What is told next; `None` once the hub is gone.
    pub(super) async fn next(&mut self) -> Option<ViewerEvent> {
        if let Some(event) = self.first.pop_front() {
            return Some(event);
        }
        match self.receiver.recv().await {
            Ok(event) => Some(event),
            // What was missed is made up for by one look.
            Err(RecvError::Lagged(_)) => Some(self.hub.current_event()),
            Err(RecvError::Closed) => None,
        }
    }
}

impl EventHub {
    /// Takes a viewer of `who` in, who has heard everything up to `last`.
    pub(super) fn join(
        &self,
        app: &App,
        who: &str,
        last: Option<&str>,
    ) -> Result<EventViewer, HubFull> {
        let mut state = self.state();
        let who = state.take_slot(who)?;
        let receiver = state.sender.subscribe();
        // While nobody listened nobody looked: even the newest id may be out of date then.
        let is_up_to_date = state.is_polling && last == Some(state.id().as_str());
        let first = if is_up_to_date {
            VecDeque::new()
        } else {
            VecDeque::from([state.look_again()])
        };
        if !state.is_polling {
            state.is_polling = true;
            tokio::spawn(self.clone().poll(app.clone()));
        }
        drop(state);
        Ok(EventViewer {
            receiver,
            first,
            _place: ViewerSlot {
                hub: self.clone(),
                who,
            },
            hub: self.clone(),
        })
    }

    /// Looks for as long as somebody listens.
    async fn poll(self, app: App) {
        let (mut before, mut is_failing, mut announced_at) = (None, false, Instant::now());
        loop {
            let started = Instant::now();
            let what = match WatchedState::read(&app).await {
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
            if !what.is_empty() || announced_at.elapsed() >= TICK {
                announced_at = Instant::now();
                self.announce(what);
            }
            tokio::time::sleep(EVERY.max(started.elapsed() * SHARE)).await;
            if self.stop_if_unwatched() {
                return;
            }
        }
    }

    fn announce(&self, what: Vec<&'static str>) {
        let mut state = self.state();
        state.number += 1;
        let name = if what.is_empty() { "tick" } else { "changed" };
        let what = if what.is_empty() { vec!["time"] } else { what };
        let event = ViewerEvent {
            id: state.id(),
            name,
            what,
        };
        // Without viewers there is nobody to tell.
        let _ = state.sender.send(event);
    }

    /// Whether everybody has left; then the poller must end, and the next viewer starts another.
    fn stop_if_unwatched(&self) -> bool {
        let mut state = self.state();
        state.is_polling = state.sender.receiver_count() > 0;
        !state.is_polling
    }

    fn current_event(&self) -> ViewerEvent {
        self.state().look_again()
    }

    fn state(&self) -> MutexGuard<'_, HubState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HubState {
    fn id(&self) -> String {
        format!("{:016x}-{}", self.epoch, self.number)
    }

    /// A place for one more viewer of `who`; answers whose it is.
    fn take_slot(&mut self, who: &str) -> Result<Arc<str>, HubFull> {
        if self.places.values().sum::<usize>() >= VIEWERS_MAX {
            return Err(HubFull::Hub);
        }
        let known = self
            .places
            .get_key_value(who)
            .map(|(who, _)| Arc::clone(who));
        let who = known.unwrap_or_else(|| who.into());
        let count = self.places.entry(Arc::clone(&who)).or_default();
        if *count >= VIEWERS_OF_ONE_MAX {
            return Err(HubFull::Caller);
        }
        *count += 1;
        Ok(who)
    }

    /// Look once, whatever it was.
    fn look_again(&self) -> ViewerEvent {
        ViewerEvent {
            id: self.id(),
            name: "changed",
            what: vec!["all"],
        }
    }
}
