//! Who may do what.
//!
//! A request passes, in this order and before any byte of its body is read:
//!
//! | asked | where | else |
//! |---|---|---|
//! | does it come from where it says, and not from a foreign web page? | `origin.rs` | 403 |
//! | who is it: a token, a session, or somebody on this machine? | `tokens.rs`, `token_cache.rs`, `sessions.rs` | 401, or the login page |
//! | have too many wrong tokens come from that address? | `token_failures.rs` | 429 |
//! | may they do this? | `rules.rs` | 403 |
//! | if they are let into some queues only: does it keep to these? | `rules.rs`, and what its body says by `queue_scope.rs` | 403 |
//!
//! Decisions are functions of values; `guard.rs` is the only file that sees requests, and `app.rs`
//! holds what is remembered.

mod caller;
mod guard;
mod headers;
mod login;
mod origin;
mod queue_scope;
mod refusal;
mod rules;
mod secret;
mod sessions;
mod token_cache;
mod token_failures;
mod tokens;

pub use caller::{Caller, InvalidScope, Scope, ScopeSet};
pub use guard::ConnectionPeer;
pub(crate) use guard::{AdmissionFlag, guard, inner_path};
pub(crate) use headers::add_security_headers;
pub(crate) use login::{login_wait, routes};
pub use queue_scope::QueueScope;
pub(crate) use refusal::{RequestAudience, RequestRefusal, whole_seconds};
pub(crate) use rules::is_expensive;
pub use rules::{RequiredAccess, RouteScope, required_access, route_scope};
pub(crate) use token_cache::TokenCache;
pub(crate) use token_failures::{TokenFailures, client_network};
pub use tokens::{CreateTokenError, CreatedToken, NewToken, TOKENS_MAX, Token, TokenRegistry};
