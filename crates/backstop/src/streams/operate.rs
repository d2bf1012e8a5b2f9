//! A stream as producers and operators have it: put records by, look at keys, forget them, set them
//! going again.

use super::dead_letters::{dead_letter_id, dead_letter_queue};
use super::event::EventEffect;
use super::handler::StreamHandler;
use super::running::RunningStream;
use super::settings::{StreamSettings, StreamSetupError};
use crate::client::Backstop;
use crate::worker::{ServicePlacement, default_worker_name};
use backstop_core::amend::{AmendAction, Selection};
use backstop_core::limits::{ENQUEUE_BYTES_MAX, OFFER_MAX};
use backstop_core::port::{
    AdvanceOutcome, AmendJobsRequest, KeyAdvance, KeyFilter, KeyLease, KeyLeaseAction,
    KeySelection, KeyStatus, ListKeysRequest, OfferOutcome, StoreError, StoreResult, StreamStatus,
    TakeRequest,
};
use backstop_core::stream::{KeyState, KeyWindow, Record, ResumeFrom, StoredKey};
use backstop_core::{JobState, LeaseNumber, Span, StreamKey, StreamName};
use std::sync::Arc;
use std::time::Duration;

/// How long an operator has a key.
const LEASE: Span = Span::secs(15);
/// Waits between tries of a call that the store did not answer, or of a key that somebody works on.
const RETRY_WAITS: [Duration; 4] = [
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
pub struct ForgottenKey {
    pub records: u64,
}

impl Stream {
    pub(crate) fn new(backstop: Backstop, name: &str) -> Result<Self, StreamSetupError> {
        Ok(Self {
            backstop,
            name: StreamName::new(name)?,
        })
    }

    pub(crate) const fn of(backstop: Backstop, name: StreamName) -> Self {
        Self { backstop, name }
    }

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
    ) -> Result<RunningStream, StreamSetupError> {
        self.serve_with(settings, handler, ServicePlacement::OwnThread)
    }

    /// As [`Stream::serve`], with what keeps leases alive run elsewhere than usual.
    pub fn serve_with(
        &self,
        settings: StreamSettings,
        handler: impl StreamHandler,
        services: ServicePlacement,
    ) -> Result<RunningStream, StreamSetupError> {
        RunningStream::start(self, settings, Arc::new(handler), services)
    }

    /// Puts records by; whoever serves the stream deals with them. When it answers, those held are
    /// durable; answers in the order of `records`. Offering a record again is harmless.
    pub async fn offer(&self, records: Vec<Record>) -> StoreResult<Vec<OfferOutcome>> {
        offer_in_parts(&self.backstop, &self.name, records).await
    }

    /// How it stands; `None` if nobody has heard of it.
    pub async fn status(&self) -> StoreResult<Option<StreamStatus>> {
        let streams = self.backstop.store().streams().await?;
        Ok(streams.into_iter().find(|status| status.name == self.name))
    }

    /// Its next keys behind `after`, by name.
    pub async fn keys(
        &self,
        after: Option<StreamKey>,
        which: KeyFilter,
        limit: usize,
    ) -> StoreResult<Vec<KeyStatus>> {
        let query = ListKeysRequest {
            stream: self.name.clone(),
            after,
            filter: which,
            limit,
        };
        self.backstop
            .store()
            .stream_keys(query, self.backstop.current_time().await)
            .await
    }

    /// One key with the records it keeps.
    pub async fn key(&self, key: &StreamKey) -> StoreResult<Option<StoredKey>> {
        self.backstop
            .store()
            .stream_key(self.name.clone(), key.clone())
            .await
    }

    /// Forgets a key: what it holds is gone, and the next record is its first. `None` if nobody has
    /// heard of it.
    pub async fn forget(&self, key: &StreamKey) -> StoreResult<Option<ForgottenKey>> {
        self.clear(key, false).await
    }

    /// Forgets a key and ignores its records until it is enabled again.
    pub async fn disable(&self, key: &StreamKey) -> StoreResult<ForgottenKey> {
        Ok(self
            .clear(key, true)
            .await?
            .unwrap_or(ForgottenKey { records: 0 }))
    }

    /// Takes a disabled key's records again; whether it was disabled.
    pub async fn enable(&self, key: &StreamKey) -> StoreResult<bool> {
        let is_disabled = self.is_disabled(key).await?;
        if is_disabled {
            self.clear(key, false).await?;
        }
        Ok(is_disabled)
    }

    /// Whether the records of a key are ignored.
    pub(crate) async fn is_disabled(&self, key: &StreamKey) -> StoreResult<bool> {
        let Some(stored) = self.key(key).await? else {
            return Ok(false);
        };
        let window =
            KeyWindow::load(stored).map_err(|error| StoreError::corrupt("reading a key", error))?;
        Ok(window.state().disabled)
    }

    /// Sets a halted key going again, with the record it halted at or past it; whether it was
    /// halted. A record that is tried again here is no dead letter any more.
    pub async fn resume(&self, key: &StreamKey, resume: ResumeFrom) -> StoreResult<bool> {
        let Some(position) = self.halted_at(key).await? else {
            return Ok(false);
        };
        if resume == ResumeFrom::SameRecord {
            self.delete_dead_letters(key, position).await?;
        }
        self.resume_halted(key, resume).await
    }

    /// A key that halted at this position goes on past it: its dead letter was requeued and
    /// handled.
    pub(super) async fn go_past(&self, key: &StreamKey, position: i64) -> StoreResult<()> {
        if self.halted_at(key).await? == Some(position) {
            self.resume_halted(key, ResumeFrom::NextRecord).await?;
        }
        Ok(())
    }

    async fn halted_at(&self, key: &StreamKey) -> StoreResult<Option<i64>> {
        let Some(stored) = self.key(key).await? else {
            return Ok(None);
        };
        let key_state = KeyState::from_bytes(&stored.state);
        Ok(key_state
            .map_err(|error| StoreError::corrupt("looking at a key", error))?
            .halted)
    }

    /// Whatever the key halted at, its letter lies there under one of these ids.
    async fn delete_dead_letters(&self, key: &StreamKey, position: i64) -> StoreResult<()> {
        let ids =
            EventEffect::WORDS.map(|effect| dead_letter_id(&self.name, key, position, effect));
        let amendment = AmendJobsRequest {
            selection: Selection::Within(dead_letter_queue(&self.name), ids.to_vec()),
            action: AmendAction::Delete,
            only: Some(JobState::Dead),
            cursor: None,
            max: ids.len(),
        };
        self.backstop
            .store()
            .amend(amendment, self.backstop.current_time().await)
            .await
            .map(drop)
    }

    async fn resume_halted(&self, key: &StreamKey, resume: ResumeFrom) -> StoreResult<bool> {
        let (number, stored) = self.take(KeySelection::Keys(vec![key.clone()])).await?;
        let seen = stored.arrived;
        let mut window = KeyWindow::load(stored)
            .map_err(|error| StoreError::corrupt("resuming a key", error))?;
        let was_halted = window.resume(resume);
        let then = KeyLeaseAction::Release(Some(self.backstop.current_time().await));
        self.advance(number, seen, &mut window, then).await?;
        Ok(was_halted)
    }

    async fn clear(&self, key: &StreamKey, disabled: bool) -> StoreResult<Option<ForgottenKey>> {
        if !disabled && self.key(key).await?.is_none() {
            return Ok(None);
        }
        let (number, stored) = self.take(KeySelection::Seized(vec![key.clone()])).await?;
        // All that are there: those that nobody has looked at yet are gone as well.
        let (seen, records) = (stored.arrived, stored.count);
        let mut window = match KeyWindow::load(stored) {
            Ok(window) => window,
            // What cannot be read can still be forgotten.
            Err(error) => {
                tracing::warn!(%error, stream = %self.name, %key, "an unreadable key is forgotten");
                KeyWindow::new(key.clone())
            }
        };
        window.forget(disabled);
        self.advance(number, seen, &mut window, KeyLeaseAction::Clear)
            .await?;
        Ok(Some(ForgottenKey { records }))
    }

    /// Takes one key, waiting a moment for whoever has it.
    async fn take(&self, wanted: KeySelection) -> StoreResult<(LeaseNumber, StoredKey)> {
        for wait in RETRY_WAITS.map(Some).into_iter().chain([None]) {
            let (number, now) = (
                self.backstop.random().lease_number(),
                self.backstop.current_time().await,
            );
            let take = TakeRequest {
                stream: self.name.clone(),
                number,
                worker: default_worker_name(&self.backstop),
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
        window: &mut KeyWindow,
        then: KeyLeaseAction,
    ) -> StoreResult<()> {
        let lease = KeyLease {
            stream: self.name.clone(),
            key: window.key().clone(),
            number,
        };
        let advance = KeyAdvance {
            lease,
            turn: 1,
            seen,
            change: window.take_change(),
            lease_action: then,
        };
        let answers = self
            .backstop
            .store()
            .advance(vec![advance], self.backstop.current_time().await)
            .await?;
        match answers.first() {
            Some(AdvanceOutcome::Applied) => Ok(()),
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
) -> StoreResult<Vec<OfferOutcome>> {
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
) -> StoreResult<Vec<OfferOutcome>> {
    for wait in RETRY_WAITS {
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
