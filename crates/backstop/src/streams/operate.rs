//! A stream as producers and operators have it: put records by, look at keys, forget them, set them
//! going again.

use super::dead::{letter_id, letters_queue};
use super::event::Effect;
use super::handler::StreamHandler;
use super::running::RunningStream;
use super::settings::{BadStream, StreamSettings};
use crate::client::Backstop;
use crate::worker::{Services, usual_worker};
use backstop_core::amend::{Action, Selection};
use backstop_core::limits::{ENQUEUE_BYTES_MAX, OFFER_MAX};
use backstop_core::port::{
    Advance, Advanced, Amendment, Answer, KeyLease, KeyQuery, KeyStatus, Offered, StoreError,
    StreamStatus, Take, Then, Wanted, WhichKeys,
};
use backstop_core::stream::{Record, Resume, Standing, StoredKey, Window};
use backstop_core::{LeaseNumber, Span, State, StreamKey, StreamName};
use std::sync::Arc;
use std::time::Duration;

/// How long an operator has a key.
const LEASE: Span = Span::secs(15);
/// Waits between tries of a call that the store did not answer, or of a key that somebody works on.
const WAITS: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// A stream. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stream {
    backstop: Backstop,
    name: StreamName,
}

/// What was forgotten with a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forgotten {
    /// Records that are gone.
    pub records: u64,
}

impl Stream {
    pub(crate) fn new(backstop: Backstop, name: &str) -> Result<Self, BadStream> {
        Ok(Self {
            backstop,
            name: StreamName::new(name)?,
        })
    }

    pub(crate) const fn of(backstop: Backstop, name: StreamName) -> Self {
        Self { backstop, name }
    }

    /// Its name.
    pub const fn name(&self) -> &StreamName {
        &self.name
    }

    pub(super) const fn backstop(&self) -> &Backstop {
        &self.backstop
    }

    /// Serves it in this process: records are handled here, and so are keys that are due. Must be
    /// called within a Tokio runtime.
    pub fn serve(
        &self,
        settings: StreamSettings,
        handler: impl StreamHandler,
    ) -> Result<RunningStream, BadStream> {
        self.serve_with(settings, handler, Services::OwnThread)
    }

    /// As [`Stream::serve`], with what keeps leases alive run elsewhere than usual.
    pub fn serve_with(
        &self,
        settings: StreamSettings,
        handler: impl StreamHandler,
        services: Services,
    ) -> Result<RunningStream, BadStream> {
        RunningStream::start(self, settings, Arc::new(handler), services)
    }

    /// Puts records by; whoever serves the stream deals with them. When it answers, those held are
    /// durable; answers in the order of `records`. Offering a record again is harmless.
    pub async fn offer(&self, records: Vec<Record>) -> Answer<Vec<Offered>> {
        offer_in_parts(&self.backstop, &self.name, records).await
    }

    /// How it stands; `None` if nobody has heard of it.
    pub async fn status(&self) -> Answer<Option<StreamStatus>> {
        let streams = self.backstop.store().streams().await?;
        Ok(streams.into_iter().find(|status| status.name == self.name))
    }

    /// Its next keys behind `after`, by name.
    pub async fn keys(
        &self,
        after: Option<StreamKey>,
        which: WhichKeys,
        limit: usize,
    ) -> Answer<Vec<KeyStatus>> {
        let query = KeyQuery {
            stream: self.name.clone(),
            after,
            which,
            limit,
        };
        self.backstop
            .store()
            .stream_keys(query, self.backstop.current_time().await)
            .await
    }

    /// One key with the records it keeps.
    pub async fn key(&self, key: &StreamKey) -> Answer<Option<StoredKey>> {
        self.backstop
            .store()
            .stream_key(self.name.clone(), key.clone())
            .await
    }

    /// Forgets a key: what it holds is gone, and the next record is its first. `None` if nobody has
    /// heard of it.
    pub async fn forget(&self, key: &StreamKey) -> Answer<Option<Forgotten>> {
        self.clear(key, false).await
    }

    /// Forgets a key and ignores its records until it is enabled again.
    pub async fn disable(&self, key: &StreamKey) -> Answer<Forgotten> {
        Ok(self
            .clear(key, true)
            .await?
            .unwrap_or(Forgotten { records: 0 }))
    }

    /// Takes a disabled key's records again; whether it was disabled.
    pub async fn enable(&self, key: &StreamKey) -> Answer<bool> {
        let is_disabled = self.is_disabled(key).await?;
        if is_disabled {
            self.clear(key, false).await?;
        }
        Ok(is_disabled)
    }

    /// Whether the records of a key are ignored.
    pub(crate) async fn is_disabled(&self, key: &StreamKey) -> Answer<bool> {
        let Some(stored) = self.key(key).await? else {
            return Ok(false);
        };
        let window =
            Window::load(stored).map_err(|error| StoreError::corrupt("reading a key", error))?;
        Ok(window.standing().disabled)
    }

    /// Sets a halted key going again, with the record it halted at or past it; whether it was
    /// halted. A record that is tried again here is no dead letter any more.
    pub async fn resume(&self, key: &StreamKey, resume: Resume) -> Answer<bool> {
        let Some(position) = self.halted_at(key).await? else {
            return Ok(false);
        };
        if resume == Resume::Again {
            self.drop_letters(key, position).await?;
        }
        self.set_going(key, resume).await
    }

    /// A key that halted at this position goes on past it: its dead letter was requeued and
    /// handled.
    pub(super) async fn go_past(&self, key: &StreamKey, position: i64) -> Answer<()> {
        if self.halted_at(key).await? == Some(position) {
            self.set_going(key, Resume::Past).await?;
        }
        Ok(())
    }

    async fn halted_at(&self, key: &StreamKey) -> Answer<Option<i64>> {
        let Some(stored) = self.key(key).await? else {
            return Ok(None);
        };
        let standing = Standing::from_bytes(&stored.standing);
        Ok(standing
            .map_err(|error| StoreError::corrupt("looking at a key", error))?
            .halted)
    }

    /// Whatever the key halted at, its letter lies there under one of these ids.
    async fn drop_letters(&self, key: &StreamKey, position: i64) -> Answer<()> {
        let ids = Effect::WORDS.map(|effect| letter_id(&self.name, key, position, effect));
        let amendment = Amendment {
            selection: Selection::Within(letters_queue(&self.name), ids.to_vec()),
            action: Action::Delete,
            only: Some(State::Dead),
            cursor: None,
            max: ids.len(),
        };
        self.backstop
            .store()
            .amend(amendment, self.backstop.current_time().await)
            .await
            .map(drop)
    }

    async fn set_going(&self, key: &StreamKey, resume: Resume) -> Answer<bool> {
        let (number, stored) = self.take(Wanted::Keys(vec![key.clone()])).await?;
        let seen = stored.arrived;
        let mut window =
            Window::load(stored).map_err(|error| StoreError::corrupt("resuming a key", error))?;
        let was_halted = window.resume(resume);
        let then = Then::Release(Some(self.backstop.current_time().await));
        self.advance(number, seen, &mut window, then).await?;
        Ok(was_halted)
    }

    async fn clear(&self, key: &StreamKey, disabled: bool) -> Answer<Option<Forgotten>> {
        if !disabled && self.key(key).await?.is_none() {
            return Ok(None);
        }
        let (number, stored) = self.take(Wanted::Seized(vec![key.clone()])).await?;
        // All that are there: those that nobody has looked at yet are gone as well.
        let (seen, records) = (stored.arrived, stored.count);
        let mut window = match Window::load(stored) {
            Ok(window) => window,
            // What cannot be read can still be forgotten.
            Err(error) => {
                tracing::warn!(%error, stream = %self.name, %key, "an unreadable key is forgotten");
                Window::new(key.clone())
            }
        };
        window.forget(disabled);
        self.advance(number, seen, &mut window, Then::Clear).await?;
        Ok(Some(Forgotten { records }))
    }

    /// Takes one key, waiting a moment for whoever has it.
    async fn take(&self, wanted: Wanted) -> Answer<(LeaseNumber, StoredKey)> {
        for wait in WAITS.map(Some).into_iter().chain([None]) {
            let (number, now) = (
                self.backstop.random().lease_number(),
                self.backstop.current_time().await,
            );
            let take = Take {
                stream: self.name.clone(),
                number,
                worker: usual_worker(&self.backstop),
                until: now.after(LEASE),
                wanted: wanted.clone(),
            };
            match self.backstop.store().take(take, now).await {
                Ok(mut taken) => {
                    if let Some(stored) = taken.keys.pop() {
                        return Ok((number, stored));
                    }
                }
                Err(error) if error.is_transient() && wait.is_some() => {}
                Err(error) => return Err(error),
            }
            if let Some(wait) = wait {
                tokio::time::sleep(wait).await;
            }
        }
        Err(StoreError::unavailable(
            "taking a key",
            "somebody works on it; try again when they are done",
        ))
    }

    async fn advance(
        &self,
        number: LeaseNumber,
        seen: u64,
        window: &mut Window,
        then: Then,
    ) -> Answer<()> {
        let lease = KeyLease {
            stream: self.name.clone(),
            key: window.key().clone(),
            number,
        };
        let advance = Advance {
            lease,
            turn: 1,
            seen,
            change: window.change(),
            then,
        };
        let answers = self
            .backstop
            .store()
            .advance(vec![advance], self.backstop.current_time().await)
            .await?;
        match answers.first() {
            Some(Advanced::Applied) => Ok(()),
            _ => Err(StoreError::unavailable(
                "changing a key",
                "somebody else took it meanwhile; try again",
            )),
        }
    }
}

/// Offers records in as many calls as their number and size ask for, again where the store did not
/// answer.
pub(super) async fn offer_in_parts(
    backstop: &Backstop,
    stream: &StreamName,
    records: Vec<Record>,
) -> Answer<Vec<Offered>> {
    let mut answers = Vec::with_capacity(records.len());
    for part in in_parts(records) {
        answers.extend(offer(backstop, stream, part).await?);
    }
    Ok(answers)
}

/// Records in the order given, cut where one call of a store would be over its limits.
pub(super) fn in_parts(records: Vec<Record>) -> Vec<Vec<Record>> {
    let mut parts: Vec<Vec<Record>> = Vec::new();
    let mut bytes = 0;
    for record in records {
        bytes += record.payload.len();
        match parts.last_mut() {
            Some(part) if part.len() < OFFER_MAX && bytes <= ENQUEUE_BYTES_MAX => part.push(record),
            _ => {
                bytes = record.payload.len();
                parts.push(vec![record]);
            }
        }
    }
    parts
}

async fn offer(
    backstop: &Backstop,
    stream: &StreamName,
    records: Vec<Record>,
) -> Answer<Vec<Offered>> {
    for wait in WAITS {
        match backstop
            .store()
            .offer(
                stream.clone(),
                records.clone(),
                backstop.current_time().await,
            )
            .await
        {
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, %stream, "records not taken; trying again in {wait:?}");
                tokio::time::sleep(wait).await;
            }
            answer => return answer,
        }
    }
    backstop
        .store()
        .offer(stream.clone(), records, backstop.current_time().await)
        .await
}
