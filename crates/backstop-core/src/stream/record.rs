//! One record of an ordered stream.

use crate::limits::{POSITION_MAX, TENANT_BYTES_MAX};
use crate::name::StreamKey;
use crate::payload::Payload;
use crate::time::Time;
use std::sync::Arc;

/// A record as a producer sends it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The key whose order the record belongs to.
    pub key: StreamKey,
    /// The place of the record in the order of its key.
    pub position: i64,
    /// The distance to the next expected record of the key, in the unit of positions.
    pub step: i64,
    /// The owner of the record, for a stream that is rolled out to some tenants only.
    pub tenant: Option<Arc<str>>,
    pub payload: Payload,
}

/// A record that its key holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldRecord {
    /// The distance to the next expected record of the key.
    pub step: i64,
    pub tenant: Option<Arc<str>>,
    pub payload: Payload,
    pub at: Time,
    /// Whether the record is counted as added. A record that has only just arrived is not.
    pub waits: bool,
}

/// A record that the stream rejects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRecord {
    /// The position is out of range.
    #[error(
        "position {0} is out of range; positions are whole numbers up to {POSITION_MAX}, and so far below 0"
    )]
    Position(i64),
    /// The step is out of range.
    #[error(
        "step {0} is out of range; a step is a whole number from 1 to {POSITION_MAX}, in the unit of positions"
    )]
    Step(i64),
    /// The tenant is too long, or contains a NUL.
    #[error(
        "a tenant has at most {TENANT_BYTES_MAX} bytes and no NUL among them; this one has {0}"
    )]
    Tenant(usize),
}

impl Record {
    /// Checks that the record is within the limits.
    pub fn check(&self) -> Result<(), InvalidRecord> {
        if !(-POSITION_MAX..=POSITION_MAX).contains(&self.position) {
            return Err(InvalidRecord::Position(self.position));
        }
        if !(1..=POSITION_MAX).contains(&self.step) {
            return Err(InvalidRecord::Step(self.step));
        }
        match &self.tenant {
            Some(tenant) if tenant.len() > TENANT_BYTES_MAX || tenant.contains('\0') => {
                Err(InvalidRecord::Tenant(tenant.len()))
            }
            _ => Ok(()),
        }
    }
}
