//! Ordered streams: the store keeps records per key until the holder of the key's lease has handled
//! them.
//!
//! A store knows nothing of the rules of [`crate::stream`]. It keeps records by position, leases
//! keys, and applies what the rules decided about a key in one atomic step. The store also keeps
//! the time at which each key is due again, so a wake-up can neither be lost nor exist twice.

use super::backlog::{check_count, check_lease_duration};
use super::error::{StoreError, StoreResult};
use crate::lease::{LeaseNumber, WorkerName};
use crate::limits;
use crate::name::{StreamKey, StreamName};
use crate::stream::{KeyChange, Record, StoredKey, StreamCounts};
use crate::time::Time;
use async_trait::async_trait;

/// What the store did with an offered record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfferOutcome {
    /// The store keeps the record durably until it has been handled.
    Held,
    /// The key already has a record at this position; that one stays.
    Duplicate,
    /// The key already has [`limits::KEY_RECORDS_MAX`] records. Nothing was stored.
    Full,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TakeRequest {
    pub stream: StreamName,
    /// The lease number of all keys taken; drawn anew for every take. Only a repeated call reuses
    /// it.
    pub number: LeaseNumber,
    pub worker: WorkerName,
    /// When the leases end, unless they are renewed.
    pub until: Time,
    pub wanted: KeySelection,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySelection {
    /// These keys, whether they are due or not, and whether they exist or not; except those that
    /// another worker has leased.
    Keys(Vec<StreamKey>),
    /// These keys, even if another worker has leased them. What that worker decides from now on is
    /// stale.
    Seized(Vec<StreamKey>),
    /// At most this many due keys, longest due first.
    Due(usize),
}

/// The keys that a take leased.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TakeResult {
    /// The leased keys, in no particular order.
    pub keys: Vec<StoredKey>,
    /// When the next key of the stream is due, the ends of leases included. Not later than `now`
    /// if more keys are due than one call takes. Only set for [`KeySelection::Due`].
    pub next_due: Option<Time>,
}

/// The right to advance a key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyLease {
    pub stream: StreamName,
    pub key: StreamKey,
    /// The number of the take that granted the lease.
    pub number: LeaseNumber,
}

/// A decision about a key, to be written under its lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyAdvance {
    /// The lease that allows the decision.
    pub lease: KeyLease,
    /// The holder of the lease counts its turns from 1, so that the store recognises a repeated
    /// turn and applies it once.
    pub turn: u32,
    /// [`StoredKey::arrived`] at the take. Records that arrived later still have to be looked at.
    pub seen: u64,
    pub change: KeyChange,
    /// Whether the lease goes on.
    pub lease_action: KeyLeaseAction,
}

/// What the store does with the lease of an advanced key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyLeaseAction {
    /// The lease goes on until this time.
    Keep(Time),
    /// The lease ends. The key is due at this time, or at once if a record arrived since the take.
    Release(Option<Time>),
    /// The lease ends and the store removes all records of the key, also those that arrived since
    /// the take. Without a watermark and a state nothing is left of the key. On a key that does not
    /// exist this is always applied.
    Clear,
}

/// What the store did with a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdvanceOutcome {
    /// The store applied it. A repetition of the same turn of a lease gets this answer too.
    Applied,
    /// The lease was no longer current. Nothing was changed.
    Stale,
}

/// A stream as an operator sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamStatus {
    pub name: StreamName,
    pub keys: u64,
    pub holding: u64,
    pub records: u64,
    /// When the oldest stored record arrived.
    pub oldest: Option<Time>,
    pub counts: StreamCounts,
}

/// A request for one page of the keys of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListKeysRequest {
    pub stream: StreamName,
    pub after: Option<StreamKey>,
    pub filter: KeyFilter,
    /// At most this many keys; clamped to 1 … [`limits::PAGE_MAX`].
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
    /// When its lease ends, unless the worker renews it.
    pub until: Time,
}

/// A key as an operator sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyStatus {
    pub key: StreamKey,
    /// The last position that was handled or passed over.
    pub watermark: Option<i64>,
    /// What the stream rules remember about the key, as opaque bytes.
    pub state: Vec<u8>,
    pub records: u64,
    /// When the oldest stored record arrived.
    pub oldest: Option<Time>,
    /// When the key is due; `None` while it is leased.
    pub due: Option<Time>,
    pub holder: Option<KeyLeaseHolder>,
}

/// Ordered streams. Every method is atomic per key, and safe to repeat when its outcome is unknown.
///
/// When a key is due:
///
/// | what happens | the key is due |
/// |---|---|
/// | a record is held; the key is not leased | now, or as before if that is earlier |
/// | a record is held; the key is leased | when the lease ends, or as before if that is earlier |
/// | taken, renewed, or advanced and kept; it has records | when the lease ends |
/// | taken, renewed, or advanced and kept; it has no records | never |
/// | released, and a record arrived since the take | now |
/// | released, and none arrived | at the time named, or never |
/// | cleared | never |
#[async_trait]
pub trait StreamStore: Send + Sync {
    /// Stores records; answers in the order of `records`. Records that it holds are durable once
    /// this returns. Their keys are due at once, or when the current lease on the key ends.
    async fn offer(
        &self,
        stream: StreamName,
        records: Vec<Record>,
        now: Time,
    ) -> StoreResult<Vec<OfferOutcome>>;

    /// Leases keys. A key whose lease has not expired (see [`crate::lease::is_expired`]) is only
    /// taken if it is seized. A repeated take returns the keys that still have its lease number,
    /// and no others; once all of them are released, the number counts as new. The take stops once
    /// the records of its keys reach [`limits::TAKE_BYTES_MAX`] bytes. Like a claim, it need not be
    /// durable when it returns.
    async fn take(&self, take: TakeRequest, now: Time) -> StoreResult<TakeResult>;

    /// Renews leases until `until`, by the rule of [`crate::lease::extend_lease`], and returns
    /// those that are no longer current.
    async fn keep(
        &self,
        leases: Vec<KeyLease>,
        until: Time,
        now: Time,
    ) -> StoreResult<Vec<KeyLease>>;

    /// Applies decisions, each on its own and durably; answers in the order of `advances`. Only
    /// this moves a watermark or removes a record.
    async fn advance(
        &self,
        advances: Vec<KeyAdvance>,
        now: Time,
    ) -> StoreResult<Vec<AdvanceOutcome>>;

    async fn streams(&self) -> StoreResult<Vec<StreamStatus>>;

    /// Lists the next keys of a stream, ordered by the bytes of their names.
    async fn stream_keys(&self, query: ListKeysRequest, now: Time) -> StoreResult<Vec<KeyStatus>>;

    /// Reads one key with the records that a take would return, without leasing it. It stops
    /// reading records once they reach [`limits::PAGE_BYTES_MAX`] bytes; [`StoredKey::count`] says
    /// how many there are.
    async fn stream_key(
        &self,
        stream: StreamName,
        key: StreamKey,
    ) -> StoreResult<Option<StoredKey>>;
}

/// Refuses an offer that exceeds the limits.
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

/// Refuses a take that exceeds the limits.
pub fn check_take(take: &TakeRequest, now: Time) -> StoreResult<()> {
    match &take.wanted {
        KeySelection::Keys(keys) | KeySelection::Seized(keys) => {
            check_count("take", keys.len(), limits::STREAM_KEYS_MAX)?;
        }
        KeySelection::Due(max) => check_count("take", *max, limits::DUE_KEYS_MAX)?,
    }
    check_lease_duration("take", take.until, now)
}

/// Refuses decisions that exceed the limits.
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
            check_lease_duration("advance", until, now)?;
        }
    }
    Ok(())
}
