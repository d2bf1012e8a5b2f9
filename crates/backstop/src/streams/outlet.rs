//! What the hands of one batch have to say is written together.

use super::running::Shared;
use backstop_core::Time;
use backstop_core::limits::STREAM_KEYS_MAX;
use backstop_core::port::{Advance, Advanced, Answer, Then};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_secs(1);

/// The way of hands to the store.
#[derive(Clone)]
pub(super) struct Outlet {
    said: mpsc::Sender<Said>,
    hands: Arc<AtomicUsize>,
}

/// What a hand has to say, and where it waits for the answer.
struct Said {
    advance: Advance,
    answer: oneshot::Sender<Written>,
}

/// What the store said to it.
pub(super) enum Written {
    /// It was taken in.
    Yes,
    /// The lease was lost.
    Stale,
    /// It refuses this for good; nothing was changed.
    Refused,
    /// It did not answer; nobody knows.
    Unknown,
}

/// Writes what hands say until all of them are gone.
pub(super) struct Writer {
    shared: Arc<Shared>,
    said: mpsc::Receiver<Said>,
    hands: Arc<AtomicUsize>,
}

impl Outlet {
    pub(super) fn new(shared: &Arc<Shared>, hands: usize) -> (Self, Writer) {
        let (sender, receiver) = mpsc::channel(hands.max(1));
        let hands = Arc::new(AtomicUsize::new(hands));
        let writer = Writer {
            shared: Arc::clone(shared),
            said: receiver,
            hands: Arc::clone(&hands),
        };
        (
            Self {
                said: sender,
                hands,
            },
            writer,
        )
    }

    /// Has something written.
    pub(super) async fn say(&self, advance: Advance) -> Written {
        let (answer, answered) = oneshot::channel();
        if self.said.send(Said { advance, answer }).await.is_err() {
            return Written::Unknown;
        }
        answered.await.unwrap_or(Written::Unknown)
    }

    /// A hand has nothing more to say.
    pub(super) fn leave(&self) {
        self.hands.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Writer {
    pub(super) async fn run(mut self) {
        let linger: Duration = self.shared.settings.linger.into();
        let mut waiting: Vec<Said> = Vec::new();
        let mut due = Instant::now();
        loop {
            let room = STREAM_KEYS_MAX - waiting.len();
            tokio::select! {
                biased;
                got = self.said.recv_many(&mut waiting, room), if room > 0 => {
                    if got == 0 {
                        break;
                    }
                    if got == waiting.len() {
                        due = Instant::now() + linger;
                    }
                }
                () = tokio::time::sleep_until(due), if !waiting.is_empty() => {}
            }
            // Nobody is left who could say something before these are answered.
            let all_wait = waiting.len() >= self.hands.load(Ordering::Relaxed);
            if all_wait || waiting.len() >= STREAM_KEYS_MAX || Instant::now() >= due {
                write(&self.shared, std::mem::take(&mut waiting)).await;
            }
        }
        write(&self.shared, waiting).await;
    }
}

/// Writes what was said. What the store refuses for good is refused alone, not with its neighbours:
/// the rest is cut in half until only that is left.
async fn write(shared: &Shared, said: Vec<Said>) {
    let mut parts = vec![said];
    while let Some(mut part) = parts.pop().filter(|part| !part.is_empty()) {
        let advances = part.iter().map(|said| said.advance.clone()).collect();
        match advance(shared, advances).await {
            Ok(advanced) => {
                for (said, advanced) in part.into_iter().zip(advanced) {
                    said.answer(match advanced {
                        Advanced::Applied => Written::Yes,
                        Advanced::Stale => Written::Stale,
                    });
                }
            }
            Err(error) if !error.is_transient() && part.len() > 1 => {
                let second = part.split_off(part.len() / 2);
                parts.extend([second, part]);
            }
            Err(error) => {
                tracing::error!(%error, stream = %shared.name, count = part.len(), "keys not advanced");
                for said in part {
                    said.answer(if error.is_transient() {
                        Written::Unknown
                    } else {
                        Written::Refused
                    });
                }
            }
        }
    }
}

impl Said {
    fn answer(self, written: Written) {
        // A hand that went away does not want to know.
        let _ = self.answer.send(written);
    }
}

/// Repeating a turn is harmless: it is tried again for as long as the store may be silent.
async fn advance(shared: &Shared, advances: Vec<Advance>) -> Answer<Vec<Advanced>> {
    let (began, mut wait) = (Instant::now(), RETRY_FIRST);
    loop {
        let now = shared.now();
        match shared
            .store()
            .advance(renewed(shared, &advances, now), now)
            .await
        {
            Err(error)
                if error.is_transient() && began.elapsed() < shared.settings.patience.into() =>
            {
                tracing::warn!(%error, stream = %shared.name, "keys not advanced; trying again in {wait:?}");
            }
            Err(error) => {
                if error.is_transient() {
                    shared.adrift.went_down();
                }
                return Err(error);
            }
            answer => return answer,
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY_LAST);
    }
}

/// The same, with leases that go on from now: whoever waited for company, or for the store, asked
/// for less than is left by now.
fn renewed(shared: &Shared, advances: &[Advance], now: Time) -> Vec<Advance> {
    let then = |then: Then| match then {
        Then::Keep(_) => Then::Keep(now.after(shared.settings.lease)),
        Then::Release(_) | Then::Clear => then,
    };
    advances
        .iter()
        .map(|advance| Advance {
            then: then(advance.then),
            ..advance.clone()
        })
        .collect()
}
