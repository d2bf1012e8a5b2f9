//! Who may do what.
//!
//! A request passes, in this order and before any byte of its body is read:
//!
//! | asked | where | else |
//! |---|---|---|
//! | does it come from where it says, and not from a foreign web page? | `origin.rs` | 403 |
//! | who is it: a token, a session, or somebody on this machine? | `tokens.rs`, `remembered.rs`, `sessions.rs` | 401, or the login page |
//! | have too many wrong tokens come from that address? | `failures.rs` | 429 |
//! | may they do this? | `rules.rs` | 403 |
//! | if they are let into some queues only: does it keep to these? | `rules.rs`, and what its body says by `reach.rs` | 403 |
//!
//! Decisions are functions of values; `guard.rs` is the only file that sees requests, and `app.rs`
//! holds what is remembered.

mod caller;
mod failures;
mod guard;
mod headers;
mod login;
mod origin;
mod reach;
mod refusal;
mod remembered;
mod rules;
mod secret;
mod sessions;
mod tokens;

pub use caller::{Caller, NotAScope, Scope, Scopes};
pub(crate) use failures::{Failures, place};
pub use guard::Peer;
pub(crate) use guard::{Welcome, guard, inner_path};
pub(crate) use headers::fortify;
pub(crate) use login::{login_wait, routes};
pub use reach::Reach;
pub(crate) use refusal::{Audience, Refusal, seconds};
pub(crate) use remembered::Remembered;
pub(crate) use rules::is_expensive;
pub use rules::{Extent, Need, extent, need};
pub use tokens::{BadToken, Minted, NewToken, TOKENS_MAX, Token, Tokens};
