//! Who asks, and what they may ask for. Every request that reaches a route carries a [`Caller`]
//! among its extensions.

use super::queue_scope::QueueScope;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A right. `admin` includes all others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Put jobs and records in.
    Push,
    Work,
    Read,
    Admin,
}

impl Scope {
    pub const ALL: [Self; 4] = [Self::Push, Self::Work, Self::Read, Self::Admin];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Work => "work",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Text that is no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a scope; scopes are push, work, read and admin")]
pub struct InvalidScope(String);

impl FromStr for Scope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        Self::ALL
            .into_iter()
            .find(|scope| scope.as_str() == text)
            .ok_or_else(|| InvalidScope(text.to_owned()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScopeSet(u8);

impl ScopeSet {
    pub const ALL: Self = Self(1 << Scope::Admin as u8);

    /// Whether `scope` is among them, by itself or through `admin`.
    pub const fn include(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u8) != 0 || self.0 & (1 << Scope::Admin as u8) != 0
    }
}

impl FromIterator<Scope> for ScopeSet {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(
            scopes
                .into_iter()
                .fold(0, |bits, scope| bits | (1 << scope as u8)),
        )
    }
}

/// Who asks: the audit log's word for them, their rights, and how far these go.
#[derive(Clone, Debug)]
pub struct Caller {
    name: Arc<str>,
    /// Tells it apart from other callers, also from one of the same name.
    key: Arc<str>,
    scopes: ScopeSet,
    queue_scope: QueueScope,
}

impl Caller {
    /// Somebody with these rights everywhere.
    pub fn new(name: &str, scopes: ScopeSet) -> Self {
        let name: Arc<str> = name.into();
        Self {
            key: Arc::clone(&name),
            name,
            scopes,
            queue_scope: QueueScope::AllQueues,
        }
    }

    /// With these rights so far only.
    #[must_use]
    pub fn with_queue_scope(self, queue_scope: QueueScope) -> Self {
        Self {
            queue_scope,
            ..self
        }
    }

    /// Told apart from other callers by `key`.
    #[must_use]
    pub(super) fn with_key(self, key: &str) -> Self {
        Self {
            key: key.into(),
            ..self
        }
    }

    /// What its bounds are counted by: its token, or its address where nobody needs one.
    pub(crate) const fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// The audit log's word for them: `token NAME`, `loopback`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether they have a right.
    pub const fn may(&self, scope: Scope) -> bool {
        self.scopes.include(scope)
    }

    /// How far their rights go.
    pub const fn queue_scope(&self) -> &QueueScope {
        &self.queue_scope
    }
}
