//! What the hands of one batch have to say is written together.

use super::running::StreamRuntime;
use backstop_core::Time;
use backstop_core::limits::STREAM_KEYS_MAX;
use backstop_core::port::{AdvanceOutcome, KeyAdvance, KeyLeaseAction, StoreResult};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_secs(1);

/// The way of hands to the store.
#[derive(Clone)]
pub(super) struct BatchSubmitter {
    pending: mpsc::Sender<PendingAdvance>,
    key_workers: Arc<AtomicUsize>,
}

/// What a hand has to say, and where it waits for the answer.
struct PendingAdvance {
    advance: KeyAdvance,
    answer: oneshot::Sender<SubmitOutcome>,
}

/// What the store said to it.
pub(super) enum SubmitOutcome {
    Yes,
    Stale,
    /// It refuses this for good; nothing was changed.
    Refused,
    /// It did not answer; nobody knows.
    Unknown,
}

/// Writes what hands say until all of them are gone.
pub(super) struct BatchWriter {
    shared: Arc<StreamRuntime>,
    pending: mpsc::Receiver<PendingAdvance>,
    key_workers: Arc<AtomicUsize>,
}

impl BatchSubmitter {
    pub(super) fn new(shared: &Arc<StreamRuntime>, key_workers: usize) -> (Self, BatchWriter) {
        let (sender, receiver) = mpsc::channel(key_workers.max(1));
        let key_workers = Arc::new(AtomicUsize::new(key_workers));
        let writer = BatchWriter {
            shared: Arc::clone(shared),
            pending: receiver,
            key_workers: Arc::clone(&key_workers),
        };
        (
            Self {
                pending: sender,
                key_workers,
            },
            writer,
        )
    }

    pub(super) async fn submit(&self, advance: KeyAdvance) -> SubmitOutcome {
        let (answer, answered) = oneshot::channel();
        if self
            .pending
            .send(PendingAdvance { advance, answer })
            .await
            .is_err()
        {
            return SubmitOutcome::Unknown;
        }
        answered.await.unwrap_or(SubmitOutcome::Unknown)
    }

    /// A hand has nothing more to say.
    pub(super) fn finish(&self) {
        self.key_workers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BatchWriter {
    pub(super) async fn run(mut self) {
        let linger: Duration = self.shared.settings.linger.into();
        let mut waiting: Vec<PendingAdvance> = Vec::new();
        let mut due = Instant::now();
        loop {
            let room = STREAM_KEYS_MAX - waiting.len();
            tokio::select! {
                biased;
                got = self.pending.recv_many(&mut waiting, room), if room > 0 => {
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
            let all_wait = waiting.len() >= self.key_workers.load(Ordering::Relaxed);
            if all_wait || waiting.len() >= STREAM_KEYS_MAX || Instant::now() >= due {
                write(&self.shared, std::mem::take(&mut waiting)).await;
            }
        }
        write(&self.shared, waiting).await;
    }
}

/// Writes what was said. What the store refuses for good is refused alone, not with its neighbours:
/// the rest is cut in half until only that is left.
async fn write(shared: &StreamRuntime, pending: Vec<PendingAdvance>) {
    let mut parts = vec![pending];
    while let Some(mut part) = parts.pop().filter(|part| !part.is_empty()) {
        let advances = part.iter().map(|pending| pending.advance.clone()).collect();
        match advance(shared, advances).await {
            Ok(advanced) => {
                for (pending, advanced) in part.into_iter().zip(advanced) {
                    pending.answer(match advanced {
                        AdvanceOutcome::Applied => SubmitOutcome::Yes,
                        AdvanceOutcome::Stale => SubmitOutcome::Stale,
                    });
                }
            }
            Err(error) if !error.is_transient() && part.len() > 1 => {
                let second = part.split_off(part.len() / 2);
                parts.extend([second, part]);
            }
            Err(error) => {
                tracing::error!(%error, stream = %shared.name, count = part.len(), "keys not advanced");
                for pending in part {
                    pending.answer(if error.is_transient() {
                        SubmitOutcome::Unknown
                    } else {
                        SubmitOutcome::Refused
                    });
                }
            }
        }
    }
}

impl PendingAdvance {
    fn answer(self, outcome: SubmitOutcome) {
        // A hand that went away does not want to know.
        let _ = self.answer.send(outcome);
    }
}

/// Repeating a turn is harmless: it is tried again for as long as the store may be silent.
async fn advance(
    shared: &StreamRuntime,
    advances: Vec<KeyAdvance>,
) -> StoreResult<Vec<AdvanceOutcome>> {
    let (began, mut wait) = (Instant::now(), RETRY_FIRST);
    loop {
        let now = shared.now();
        match shared
            .store()
            .advance(with_renewed_leases(shared, &advances, now), now)
            .await
        {
            Err(error)
                if error.is_transient() && began.elapsed() < shared.settings.patience.into() =>
            {
                tracing::warn!(%error, stream = %shared.name, "keys not advanced; trying again in {wait:?}");
            }
            Err(error) => {
                if error.is_transient() {
                    shared.outage.note_down();
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
fn with_renewed_leases(
    shared: &StreamRuntime,
    advances: &[KeyAdvance],
    now: Time,
) -> Vec<KeyAdvance> {
    let then = |then: KeyLeaseAction| match then {
        KeyLeaseAction::Keep(_) => KeyLeaseAction::Keep(now.after(shared.settings.lease)),
        KeyLeaseAction::Release(_) | KeyLeaseAction::Clear => then,
    };
    advances
        .iter()
        .map(|advance| KeyAdvance {
            lease_action: then(advance.lease_action),
            ..advance.clone()
        })
        .collect()
}
