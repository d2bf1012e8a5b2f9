//! Tokens as a server remembers them, so that not every request asks the store, and none waits long
//! for one that hangs.
//!
//! | the store | an answer |
//! |---|---|
//! | answers | is as old as [`FRESH`] at most: a revoked token works for no longer |
//! | hangs | is waited for by everybody at once, and for as long as [`PATIENCE`] after it was asked for; then the last one counts |
//! | failed | is the last one, at once; the store is asked again after [`RETRY`] |

use super::secret::{Fingerprint, ID_CHARS, SECRET_BYTES};
use super::tokens::{PREFIX, Token, Tokens};
use backstop::Backstop;
use backstop_core::port::{Answer, StoreError};
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
const PATIENCE: Duration = Duration::from_secs(1);
/// How long after a failure the store is left alone.
const RETRY: Duration = Duration::from_secs(1);
/// The longest the store may take; it has deadlines of its own, and this one holds whatever they
/// are.
const ASKING_MAX: Duration = Duration::from_secs(30);

/// The tokens, as a server remembers them. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Remembered(Arc<Mutex<Memory>>);

#[derive(Default)]
struct Memory {
    known: Option<(Instant, Arc<[Token]>)>,
    failed: Option<(Instant, StoreError)>,
    asking: Option<Asking>,
}

/// The store is being asked.
#[derive(Clone)]
struct Asking {
    since: Instant,
    /// Ends with it.
    ended: watch::Receiver<()>,
}

/// What to do about a token that is not remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unknown {
    /// Look it up: it may have been made a moment ago.
    Ask,
    /// Nothing: whoever sends it has sent too many wrong ones to make the store work.
    Refuse,
}

/// What there is to go by.
enum Next {
    Go(Answer<Arc<[Token]>>),
    Wait(Asking),
    Ask,
}

impl Remembered {
    /// The token of this text, expired or not; `None` if there is none.
    pub(super) async fn find(
        &self,
        backstop: &Backstop,
        text: &str,
        unknown: Unknown,
    ) -> Answer<Option<Token>> {
        // A text that cannot be one is not worth a hash, or a look at the store.
        let Some(id) = id_of(text) else {
            return Ok(None);
        };
        let fingerprint = Fingerprint::of(text);
        let is_it = |token: &Token| token.fingerprint.is(&fingerprint);
        let tokens = self.tokens(backstop).await?;
        // All are looked at: how long it takes says nothing of which one it was.
        let found = tokens.iter().fold(None, |found, token| {
            if is_it(token) {
                Some(token.clone())
            } else {
                found
            }
        });
        match (found, unknown) {
            (None, Unknown::Ask) => Ok(Tokens::of(backstop).get(id).await?.filter(is_it)),
            (found, _) => Ok(found),
        }
    }

    /// The token of this id.
    pub(super) async fn by_id(&self, backstop: &Backstop, id: &str) -> Answer<Option<Token>> {
        let tokens = self.tokens(backstop).await?;
        match tokens.iter().find(|token| token.id == id) {
            Some(token) => Ok(Some(token.clone())),
            None => Tokens::of(backstop).get(id).await,
        }
    }

    async fn tokens(&self, backstop: &Backstop) -> Answer<Arc<[Token]>> {
        let mut asking = match self.next(backstop) {
            Ok(asking) => asking,
            Err(answer) => return answer,
        };
        let left = PATIENCE.saturating_sub(asking.since.elapsed());
        // An end of the sender is an end of the asking.
        let _ = timeout(left, asking.ended.changed()).await;
        self.memory().last()
    }

    /// The asking to wait for, be it a new one, or the answer that counts without.
    fn next(&self, backstop: &Backstop) -> Result<Asking, Answer<Arc<[Token]>>> {
        let mut memory = self.memory();
        match memory.next() {
            Next::Go(answer) => Err(answer),
            Next::Wait(asking) => Ok(asking),
            Next::Ask => {
                let (ending, ended) = watch::channel(());
                let asking = Asking {
                    since: Instant::now(),
                    ended,
                };
                memory.asking = Some(asking.clone());
                // Goes on when nobody waits any more: whoever comes next has its answer.
                tokio::spawn(self.clone().ask(backstop.clone(), ending));
                Ok(asking)
            }
        }
    }

    async fn ask(self, backstop: Backstop, ending: watch::Sender<()>) {
        let answer = timeout(ASKING_MAX, Tokens::of(&backstop).list()).await;
        self.memory()
            .end(answer.unwrap_or_else(|_| Err(unanswered())));
        drop(ending);
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Every critical section leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn next(&self) -> Next {
        let is_within =
            |at: Option<Instant>, span: Duration| at.is_some_and(|at: Instant| at.elapsed() < span);
        if is_within(self.known.as_ref().map(|(at, _)| *at), FRESH)
            || is_within(self.failed.as_ref().map(|(at, _)| *at), RETRY)
        {
            return Next::Go(self.last());
        }
        match &self.asking {
            Some(asking) if asking.since.elapsed() < PATIENCE => Next::Wait(asking.clone()),
            Some(_) => Next::Go(self.last()),
            None => Next::Ask,
        }
    }

    /// The last answer that counts.
    fn last(&self) -> Answer<Arc<[Token]>> {
        let known = self
            .known
            .as_ref()
            .filter(|(at, _)| at.elapsed() < STALE_MAX);
        let failed = || {
            self.failed
                .as_ref()
                .map_or_else(unanswered, |(_, error)| error.clone())
        };
        known
            .map(|(_, tokens)| Arc::clone(tokens))
            .ok_or_else(failed)
    }

    fn end(&mut self, answer: Answer<Vec<Token>>) {
        let now = Instant::now();
        self.asking = None;
        match answer {
            Ok(tokens) => (self.known, self.failed) = (Some((now, tokens.into())), None),
            Err(error) => self.failed = Some((now, error)),
        }
    }
}

fn unanswered() -> StoreError {
    StoreError::unavailable("reading tokens", "no answer in time")
}

/// The id in the text of a token, if it can be one.
fn id_of(text: &str) -> Option<&str> {
    let digits = text.strip_prefix(PREFIX)?;
    let is_token = digits.len() == ID_CHARS + 2 * SECRET_BYTES
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.get(..ID_CHARS).filter(|_| is_token)
}
