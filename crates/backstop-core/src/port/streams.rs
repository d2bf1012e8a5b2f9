//! Ordered streams: what arrives is kept per key until whoever has the key's lease has dealt with
//! it.
//!
//! A store knows nothing of the rules of [`crate::stream`]. It keeps records by position, hands
//! keys out under a lease, and takes in what was decided about them, all in one step. When a key is
//! to be looked at again is a date in the store: it can neither be lost nor be there twice.

use super::backlog::{check_count, check_term};
use super::error::{StoreError, StoreResult};
use crate::lease::{LeaseNumber, WorkerName};
use crate::limits;
use crate::name::{StreamKey, StreamName};
use crate::stream::{KeyChange, Record, StoredKey, StreamCounts};
use crate::time::Time;
use async_trait::async_trait;

/// What became of an offered record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfferOutcome {
    /// It is kept, durably, until it has been dealt with.
    Held,
    /// A record of its key and position is kept already; that one stays.
    Duplicate,
    /// Its key keeps [`limits::KEY_RECORDS_MAX`] records. Nothing was taken.
    Full,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TakeRequest {
    pub stream: StreamName,
    /// The number of their leases; drawn anew for every take, and the same only to repeat one.
    pub number: LeaseNumber,
    pub worker: WorkerName,
    /// Until when the keys are its own.
    pub until: Time,
    pub wanted: KeySelection,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySelection {
    /// These, whether there is something to decide or not, and whether they exist or not; none that
    /// somebody else has.
    Keys(Vec<StreamKey>),
    /// These, even from under somebody else's hands: what that one decides is stale from now on.
    Seized(Vec<StreamKey>),
    /// At most so many of those that are due, the longest due first.
    Due(usize),
}

/// Keys in the hands of who asked for them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TakeResult {
    /// Those that were to be had, in no order.
    pub keys: Vec<StoredKey>,
    /// When the next key of the stream is due, the end of leases included; not after `now` if more
    /// are due than one call hands out. Only for [`Wanted::Due`].
    pub next_due: Option<Time>,
}

/// The right to advance a key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyLease {
    pub stream: StreamName,
    pub key: StreamKey,
    /// The take that gave it out.
    pub number: LeaseNumber,
}

/// What was decided about a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyAdvance {
    /// The right to say so.
    pub lease: KeyLease,
    /// Counted up by the holder of a lease from 1 on: a repeated turn is recognised, and counts
    /// once.
    pub turn: u32,
    /// [`StoredKey::arrived`] as it was taken: what arrived since then is yet to be looked at.
    pub seen: u64,
    pub change: KeyChange,
    /// What becomes of the lease.
    pub lease_action: KeyLeaseAction,
}

/// What becomes of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyLeaseAction {
    /// It goes on until then.
    Keep(Time),
    /// It ends. The key is due at this time, and at once if something arrived since it was taken.
    Release(Option<Time>),
    /// It ends, and all records of the key go, also those that arrived since it was taken. Without
    /// a watermark and a standing nothing is left of the key. Of a key that is not there this is
    /// always applied.
    Clear,
}

/// What became of a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdvanceOutcome {
    /// It counts; also said when the very same turn of a lease is repeated.
    Applied,
    /// The lease was no longer the current one. Nothing was changed.
    Stale,
}

/// A stream as an operator sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamStatus {
    pub name: StreamName,
    pub keys: u64,
    pub holding: u64,
    pub records: u64,
    /// When the oldest of them came in.
    pub oldest: Option<Time>,
    pub counts: StreamCounts,
}

/// A part of the list of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListKeysRequest {
    pub stream: StreamName,
    pub after: Option<StreamKey>,
    pub filter: KeyFilter,
    /// At most so many; clamped to 1 … [`limits::PAGE_MAX`].
    pub limit: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyFilter {
    All,
    Holding,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyLeaseHolder {
    pub worker: WorkerName,
    /// The end of its lease, unless it keeps it.
    pub until: Time,
}

/// A key as an operator sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyStatus {
    pub key: StreamKey,
    /// The last position that was handled or passed.
    pub watermark: Option<i64>,
    /// What the rules remember, as bytes.
    pub state: Vec<u8>,
    pub records: u64,
    /// When the oldest of them came in.
    pub oldest: Option<Time>,
    /// When it is due, if nobody has it.
    pub due: Option<Time>,
    pub holder: Option<KeyLeaseHolder>,
}

/// Ordered streams. Every method is atomic per key, and safe to repeat when its outcome is unknown.
///
/// When a key is due:
///
/// | what happens | the key is due |
/// |---|---|
/// | a record is held; nobody has the key | now, or as it was if that is earlier |
/// | a record is held; somebody has the key | at the end of the lease, or as it was if that is earlier |
/// | it is taken, kept or advanced with [`Then::Keep`], and has records | at the end of the lease |
/// | it is taken, kept or advanced with [`Then::Keep`], and has none | never |
/// | it is released, and something arrived that was not seen | now |
/// | it is released, and nothing did | at the time said, or never |
/// | it is cleared | never |
#[async_trait]
pub trait StreamStore: Send + Sync {
    /// Takes records in. When it answers, those held are durable, and their keys are due: at once,
    /// or as soon as the lease that somebody has on them is over. Answers in the order of
    /// `records`.
    async fn offer(
        &self,
        stream: StreamName,
        records: Vec<Record>,
        now: Time,
    ) -> StoreResult<Vec<OfferOutcome>>;

    /// Hands keys out: none that is under a lease which has not expired, as
    /// [`crate::lease::is_expired`] says, unless it is seized. A repeated take answers with the
    /// keys that are still under its number, and with no others; once all of them are released, the
    /// number is as good as new. Once the records of those handed out make
    /// [`limits::TAKE_BYTES_MAX`], others have to wait for the next take. As little durable by
    /// itself as a claim.
    async fn take(&self, take: TakeRequest, now: Time) -> StoreResult<TakeResult>;

    /// Makes leases last until `until`, as [`crate::lease::extended`] says, and tells which of them
    /// are no longer the current ones.
    async fn keep(
        &self,
        leases: Vec<KeyLease>,
        until: Time,
        now: Time,
    ) -> StoreResult<Vec<KeyLease>>;

    /// Takes in what was decided, each by itself and durably; answers in the order of `advances`.
    /// The only way a watermark moves or a record goes.
    async fn advance(
        &self,
        advances: Vec<KeyAdvance>,
        now: Time,
    ) -> StoreResult<Vec<AdvanceOutcome>>;

    async fn streams(&self) -> StoreResult<Vec<StreamStatus>>;

    /// The next keys of a stream, by the bytes of their names.
    async fn stream_keys(&self, query: ListKeysRequest, now: Time) -> StoreResult<Vec<KeyStatus>>;

    /// One key with the records that a take would bring along; nothing is leased. Once these
    /// records make [`limits::PAGE_BYTES_MAX`], no further one is read: [`StoredKey::count`] says
    /// how many there are.
    async fn stream_key(
        &self,
        stream: StreamName,
        key: StreamKey,
    ) -> StoreResult<Option<StoredKey>>;
}

/// Refuses an offer that is over the limits.
pub fn check_offer(records: &[Record]) -> StoreResult<()> {
    check_count("offer", records.len(), limits::OFFER_MAX)?;
    let bytes: usize = records.iter().map(|record| record.payload.len()).sum();
    if bytes > limits::ENQUEUE_BYTES_MAX {
        let cause = format!(
            "{bytes} bytes at once; at most {} go into one call",
            limits::ENQUEUE_BYTES_MAX
        );
        return Err(StoreError::misuse("offer", cause));
    }
    let bad = records.iter().find_map(|record| record.check().err());
    bad.map_or(Ok(()), |bad| Err(StoreError::misuse("offer", bad)))
}

/// Refuses a take that is over the limits.
pub fn check_take(take: &TakeRequest, now: Time) -> StoreResult<()> {
    match &take.wanted {
        KeySelection::Keys(keys) | KeySelection::Seized(keys) => {
            check_count("take", keys.len(), limits::STREAM_KEYS_MAX)?;
        }
        KeySelection::Due(max) => check_count("take", *max, limits::DUE_KEYS_MAX)?,
    }
    check_term("take", take.until, now)
}

/// Refuses decisions that are over the limits.
pub fn check_advances(advances: &[KeyAdvance], now: Time) -> StoreResult<()> {
    check_count("advance", advances.len(), limits::STREAM_KEYS_MAX)?;
    let held = || advances.iter().flat_map(|advance| &advance.change.hold);
    let (count, bytes) = (
        held().count(),
        held().map(|record| record.payload.len()).sum::<usize>(),
    );
    if count > limits::OFFER_MAX || bytes > limits::ENQUEUE_BYTES_MAX {
        let cause = format!(
            "{count} records of {bytes} bytes to hold at once; at most {} of {} bytes go into one call",
            limits::OFFER_MAX,
            limits::ENQUEUE_BYTES_MAX
        );
        return Err(StoreError::misuse("advance", cause));
    }
    for advance in advances {
        let bytes = advance.change.state.len();
        if bytes > limits::KEY_STATE_BYTES_MAX {
            let cause = format!(
                "{bytes} bytes about key {}; at most {} fit",
                advance.lease.key,
                limits::KEY_STATE_BYTES_MAX
            );
            return Err(StoreError::misuse("advance", cause));
        }
        if let KeyLeaseAction::Keep(until) = advance.lease_action {
            check_term("advance", until, now)?;
        }
    }
    Ok(())
}
