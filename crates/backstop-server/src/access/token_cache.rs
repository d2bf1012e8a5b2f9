//! Tokens as a server remembers them, so that not every request asks the store, and none waits long
//! for one that hangs.
//!
//! | the store | an answer |
//! |---|---|
//! | answers | is as old as [`FRESH`] at most: a revoked token works for no longer |
//! | hangs | is waited for by everybody at once, and for as long as [`WAIT_MAX`] after it was asked for; then the last one counts |
//! | failed | is the last one, at once; the store is asked again after [`RETRY`] |

use super::secret::{ID_CHARS, SECRET_BYTES, SecretHash};
use super::tokens::{PREFIX, Token, TokenRegistry};
use backstop::Backstop;
use backstop_core::port::{StoreError, StoreResult};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// How old an answer may be while the store gives others.
const FRESH: Duration = Duration::from_secs(3);
/// How long the last answer counts while the store gives none: whoever looks at an outage must get
/// in.
const STALE_MAX: Duration = Duration::from_mins(1);
/// How long an answer is waited for.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How long after a failure the store is left alone.
const RETRY: Duration = Duration::from_secs(1);
/// The longest the store may take; it has deadlines of its own, and this one holds whatever they
/// are.
const READ_MAX: Duration = Duration::from_secs(30);

/// The tokens, as a server remembers them. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct TokenCache(Arc<Mutex<TokenCacheState>>);

#[derive(Default)]
struct TokenCacheState {
    known: Option<(Instant, Arc<[Token]>)>,
    failed: Option<(Instant, StoreError)>,
    pending: Option<PendingTokenRead>,
}

/// The store is being asked.
#[derive(Clone)]
struct PendingTokenRead {
    since: Instant,
    ended: watch::Receiver<()>,
}

/// What to do about a token that is not remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UnknownTokenRule {
    /// Look it up: it may have been made a moment ago.
    LookUp,
    /// Nothing: whoever sends it has sent too many wrong ones to make the store work.
    Refuse,
}

/// What there is to go by.
enum TokenCacheStep {
    Go(StoreResult<Arc<[Token]>>),
    Wait(PendingTokenRead),
    LookUp,
}

impl TokenCache {
    /// The token of this text, expired or not; `None` if there is none.
    pub(super) async fn find(
        &self,
        backstop: &Backstop,
        text: &str,
        unknown: UnknownTokenRule,
    ) -> StoreResult<Option<Token>> {
        // A text that cannot be one is not worth a hash, or a look at the store.
        let Some(id) = token_id_of(text) else {
            return Ok(None);
        };
        let fingerprint = SecretHash::of(text);
        let is_match = |token: &Token| token.secret_hash.matches(&fingerprint);
        let tokens = self.tokens(backstop).await?;
        // All are looked at: how long it takes says nothing of which one it was.
        let found = tokens.iter().fold(None, |found, token| {
            if is_match(token) {
                Some(token.clone())
            } else {
                found
            }
        });
        match (found, unknown) {
            (None, UnknownTokenRule::LookUp) => {
                Ok(TokenRegistry::of(backstop).get(id).await?.filter(is_match))
            }
            (found, _) => Ok(found),
        }
    }

    /// The token of this id.
    pub(super) async fn by_id(&self, backstop: &Backstop, id: &str) -> StoreResult<Option<Token>> {
        let tokens = self.tokens(backstop).await?;
        match tokens.iter().find(|token| token.id == id) {
            Some(token) => Ok(Some(token.clone())),
            None => TokenRegistry::of(backstop).get(id).await,
        }
    }

    async fn tokens(&self, backstop: &Backstop) -> StoreResult<Arc<[Token]>> {
        let mut pending = match self.next(backstop) {
            Ok(pending) => pending,
            Err(answer) => return answer,
        };
        let left = WAIT_MAX.saturating_sub(pending.since.elapsed());
        // An end of the sender is an end of the asking.
        let _ = timeout(left, pending.ended.changed()).await;
        self.state().last_answer()
    }

    /// The asking to wait for, be it a new one, or the answer that counts without.
    fn next(&self, backstop: &Backstop) -> Result<PendingTokenRead, StoreResult<Arc<[Token]>>> {
        let mut state = self.state();
        match state.next() {
            TokenCacheStep::Go(answer) => Err(answer),
            TokenCacheStep::Wait(pending) => Ok(pending),
            TokenCacheStep::LookUp => {
                let (ending, ended) = watch::channel(());
                let pending = PendingTokenRead {
                    since: Instant::now(),
                    ended,
                };
                state.pending = Some(pending.clone());
                // Goes on when nobody waits any more: whoever comes next has its answer.
                tokio::spawn(self.clone().read_tokens(backstop.clone(), ending));
                Ok(pending)
            }
        }
    }

    async fn read_tokens(self, backstop: Backstop, ending: watch::Sender<()>) {
        let answer = timeout(READ_MAX, TokenRegistry::of(&backstop).list()).await;
        self.state()
            .record_answer(answer.unwrap_or_else(|_| Err(no_answer_error())));
        drop(ending);
    }

    fn state(&self) -> MutexGuard<'_, TokenCacheState> {
        // Every critical section leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TokenCacheState {
    fn next(&self) -> TokenCacheStep {
        let is_within =
            |at: Option<Instant>, span: Duration| at.is_some_and(|at: Instant| at.elapsed() < span);
        if is_within(self.known.as_ref().map(|(at, _)| *at), FRESH)
            || is_within(self.failed.as_ref().map(|(at, _)| *at), RETRY)
        {
            return TokenCacheStep::Go(self.last_answer());
        }
        match &self.pending {
            Some(pending) if pending.since.elapsed() < WAIT_MAX => {
                TokenCacheStep::Wait(pending.clone())
            }
            Some(_) => TokenCacheStep::Go(self.last_answer()),
            None => TokenCacheStep::LookUp,
        }
    }

    /// The last answer that counts.
    fn last_answer(&self) -> StoreResult<Arc<[Token]>> {
        let known = self
            .known
            .as_ref()
            .filter(|(at, _)| at.elapsed() < STALE_MAX);
        let failed = || {
            self.failed
                .as_ref()
                .map_or_else(no_answer_error, |(_, error)| error.clone())
        };
        known
            .map(|(_, tokens)| Arc::clone(tokens))
            .ok_or_else(failed)
    }

    fn record_answer(&mut self, answer: StoreResult<Vec<Token>>) {
        let now = Instant::now();
        self.pending = None;
        match answer {
            Ok(tokens) => (self.known, self.failed) = (Some((now, tokens.into())), None),
            Err(error) => self.failed = Some((now, error)),
        }
    }
}

fn no_answer_error() -> StoreError {
    StoreError::unavailable("reading tokens", "no answer in time")
}

/// The id in the text of a token, if it can be one.
fn token_id_of(text: &str) -> Option<&str> {
    let digits = text.strip_prefix(PREFIX)?;
    let is_token = digits.len() == ID_CHARS + 2 * SECRET_BYTES
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.get(..ID_CHARS).filter(|_| is_token)
}
