//! Tokens: made by an operator, shown once, kept as hashes in the store that all servers share.

use super::caller::{Caller, Scope, ScopeSet};
use super::queue_scope::QueueScope;
use super::secret::{Secret, SecretHash, random_version, short_id};
use backstop::audit::{AuditLog, AuditReason};
use backstop::{Backstop, QueueName, Span, Time};
use backstop_core::limits::CELLS_MAX;
use backstop_core::port::{CellSwap, ListCellsRequest, StoreError, StoreResult, SwapOutcome};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Tokens a store keeps: all are compared with one that comes.
pub const TOKENS_MAX: usize = 256;
/// Characters of a token's name.
const NAME_CHARS_MAX: usize = 64;
/// Queues a token can name.
const QUEUES_MAX: usize = 32;
/// The longest time a token can be good for.
const EXPIRES_MAX: Span = Span::days(3_650);
/// How tokens begin, so that they are recognised where they should not be.
pub(super) const PREFIX: &str = "backstop_";
/// How the names of their cells begin.
const CELL_PREFIX: &str = "token/";

/// A token as an operator sees it.
#[derive(Clone, Debug)]
pub struct Token {
    /// What it is revoked by.
    pub id: String,
    pub name: String,
    pub scopes: Vec<Scope>,
    /// Where; everywhere if it names none.
    pub queues: Vec<QueueName>,
    pub created_at: Time,
    /// When it ends by itself, if it does.
    pub expires_at: Option<Time>,
    pub(super) secret_hash: SecretHash,
}

/// What is to be made.
#[derive(Clone, Debug)]
pub struct NewToken {
    pub name: String,
    pub scopes: Vec<Scope>,
    /// Where; everywhere if it names none.
    pub queues: Vec<QueueName>,
    /// How long it is good for; `None` until it is revoked.
    pub expires_in: Option<Span>,
}

/// A token that was made. Its text is nowhere else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreatedToken {
    /// What it is revoked by.
    pub id: String,
    /// What lets its holder in.
    pub token: String,
}

/// A token that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateTokenError {
    #[error("a token without a scope allows nothing; give it push, work, read or admin")]
    NoScope,
    /// Its name is too long, or has characters that do not show.
    #[error("a token's name has at most {NAME_CHARS_MAX} characters, all of them visible")]
    Name,
    /// It names more queues than one does.
    #[error("a token is for at most {QUEUES_MAX} queues; make several, or one for all")]
    Queues,
    /// It would be good for no time, or for longer than anybody remembers it.
    #[error("a token is good for 1s to {EXPIRES_MAX}")]
    Expiry,
    #[error("there are {TOKENS_MAX} tokens, and no more are kept; revoke those nobody needs")]
    TooMany,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A token as its cell keeps it.
#[derive(Serialize, Deserialize)]
struct StoredToken {
    name: String,
    scopes: Vec<Scope>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    queues: Vec<QueueName>,
    sha256: String,
    created_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Time>,
}

impl Token {
    /// Whether its time is over.
    pub fn is_expired(&self, now: Time) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    pub(super) fn caller(&self) -> Caller {
        let scopes: ScopeSet = self.scopes.iter().copied().collect();
        let name = if self.name.is_empty() {
            &self.id
        } else {
            &self.name
        };
        Caller::new(&format!("token {name}"), scopes)
            .with_key(&self.id)
            .with_queue_scope(QueueScope::of(&self.queues))
    }
}

/// The tokens of a store, as operators use them.
#[derive(Clone, Debug)]
pub struct TokenRegistry<'a> {
    backstop: &'a Backstop,
    reason: Option<AuditReason>,
}

impl<'a> TokenRegistry<'a> {
    /// Those in the store of `backstop`.
    pub const fn of(backstop: &'a Backstop) -> Self {
        Self {
            backstop,
            reason: None,
        }
    }

    /// For this reason, if there is one: the audit says so.
    #[must_use]
    pub fn because(self, reason: Option<AuditReason>) -> Self {
        Self { reason, ..self }
    }

    fn audit(&self, who: &str) -> AuditLog {
        self.backstop.audit(who).because(self.reason.clone())
    }

    /// Makes one, in the name of `who`.
    pub async fn create(&self, who: &str, new: NewToken) -> Result<CreatedToken, CreateTokenError> {
        check(&new)?;
        let what = json!({ "name": new.name, "scopes": new.scopes, "queues": new.queues });
        let made = async { self.make(new).await.map(|minted| (1, minted)) };
        self.audit(who).record("token create", what, made).await
    }

    async fn make(&self, new: NewToken) -> Result<CreatedToken, CreateTokenError> {
        if self.list().await?.len() >= TOKENS_MAX {
            return Err(CreateTokenError::TooMany);
        }
        let (id, now) = (short_id(), self.backstop.now());
        // With its id in front it can be looked up.
        let secret = Secret::generate(&format!("{PREFIX}{id}"));
        let stored = StoredToken {
            name: new.name,
            scopes: new.scopes,
            queues: new.queues,
            sha256: secret.hash().to_hex(),
            created_at: now,
            expires_at: new.expires_in.map(|span| now.after(span)),
        };
        let value = serde_json::to_vec(&stored)
            .map_err(|error| StoreError::misuse("making a token", error))?;
        let name = format!("{CELL_PREFIX}{id}");
        let swap = CellSwap {
            name,
            seen: None,
            version: random_version(),
            value: Some(value),
        };
        match self.backstop.store().swap(vec![swap]).await?.pop() {
            Some(SwapOutcome::Applied) => Ok(CreatedToken {
                id,
                token: secret.reveal().to_owned(),
            }),
            _ => Err(
                StoreError::unavailable("making a token", "its id is taken; try once more").into(),
            ),
        }
    }

    /// All of them, expired ones included, by id. One that cannot be read lets nobody in; it is
    /// left out, and logged.
    pub async fn list(&self) -> StoreResult<Vec<Token>> {
        let query = ListCellsRequest {
            prefix: CELL_PREFIX.to_owned(),
            after: None,
            limit: CELLS_MAX,
        };
        let cells = self.backstop.store().list_cells(query).await?;
        Ok(cells
            .iter()
            .filter_map(|cell| parse_token(&cell.name, &cell.value))
            .collect())
    }

    /// The one of this id.
    pub(super) async fn get(&self, id: &str) -> StoreResult<Option<Token>> {
        let cell = self
            .backstop
            .store()
            .cells(vec![format!("{CELL_PREFIX}{id}")])
            .await?
            .pop()
            .flatten();
        Ok(cell.and_then(|cell| parse_token(&cell.name, &cell.value)))
    }

    /// Ends one, in the name of `who`; answers whether there was one of this id.
    pub async fn revoke(&self, who: &str, id: &str) -> StoreResult<bool> {
        let revoked = async {
            self.remove(id)
                .await
                .map(|was_there| (was_there.then_some(1), was_there))
        };
        self.audit(who)
            .record_change("token revoke", json!({ "id": id }), revoked)
            .await
    }

    async fn remove(&self, id: &str) -> StoreResult<bool> {
        let name = format!("{CELL_PREFIX}{id}");
        if id.is_empty() || name.len() > backstop_core::limits::CELL_NAME_BYTES_MAX {
            return Ok(false);
        }
        let Some(cell) = self
            .backstop
            .store()
            .cells(vec![name.clone()])
            .await?
            .pop()
            .flatten()
        else {
            return Ok(false);
        };
        // Nobody changes a token: whoever was faster has removed it.
        let swap = CellSwap {
            name,
            seen: Some(cell.version),
            version: random_version(),
            value: None,
        };
        self.backstop.store().swap(vec![swap]).await?;
        Ok(true)
    }
}

fn check(new: &NewToken) -> Result<(), CreateTokenError> {
    if new.scopes.is_empty() {
        return Err(CreateTokenError::NoScope);
    }
    if new.name.chars().count() > NAME_CHARS_MAX || new.name.chars().any(char::is_control) {
        return Err(CreateTokenError::Name);
    }
    if new.queues.len() > QUEUES_MAX {
        return Err(CreateTokenError::Queues);
    }
    if new
        .expires_in
        .is_some_and(|span| span < Span::secs(1) || span > EXPIRES_MAX)
    {
        return Err(CreateTokenError::Expiry);
    }
    Ok(())
}

fn parse_token(cell: &str, value: &[u8]) -> Option<Token> {
    let token = serde_json::from_slice(value)
        .ok()
        .and_then(|stored: StoredToken| {
            Some(Token {
                id: cell.strip_prefix(CELL_PREFIX)?.to_owned(),
                name: stored.name,
                scopes: stored.scopes,
                queues: stored.queues,
                created_at: stored.created_at,
                expires_at: stored.expires_at,
                secret_hash: SecretHash::from_hex(&stored.sha256)?,
            })
        });
    if token.is_none() {
        tracing::error!(cell, "a token cannot be read; it lets nobody in");
    }
    token
}

#[cfg(test)]
mod tests;
