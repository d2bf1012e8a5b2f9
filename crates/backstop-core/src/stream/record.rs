//! One record of a stream.

use crate::limits::{POSITION_MAX, TENANT_BYTES_MAX};
use crate::name::StreamKey;
use crate::payload::Payload;
use crate::time::Time;
use std::sync::Arc;

/// A record as it comes in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Whose order it belongs to.
    pub key: StreamKey,
    /// Its place in that order.
    pub position: i64,
    /// How far from it the next one is expected, in the unit of positions.
    pub step: i64,
    /// Who it belongs to, where a stream is switched on for some and not for others.
    pub tenant: Option<Arc<str>>,
    pub payload: Payload,
}

/// A record of a key while it waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldRecord {
    /// How far from it the next one is expected.
    pub step: i64,
    pub tenant: Option<Arc<str>>,
    pub payload: Payload,
    pub at: Time,
    /// Whether it was counted as added: it waits, and did not just arrive.
    pub waits: bool,
}

/// A record that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRecord {
    /// Its position is out of range.
    #[error(
        "position {0} is out of range; positions are whole numbers up to {POSITION_MAX}, and so far below 0"
    )]
    Position(i64),
    /// Its step is out of range.
    #[error(
        "step {0} is out of range; a step is a whole number from 1 to {POSITION_MAX}, in the unit of positions"
    )]
    Step(i64),
    /// Its tenant is too long, or has a NUL.
    #[error(
        "a tenant has at most {TENANT_BYTES_MAX} bytes and no NUL among them; this one has {0}"
    )]
    Tenant(usize),
}

impl Record {
    /// Whether it is within the limits.
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
