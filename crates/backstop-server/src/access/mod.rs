//! Who may do what.

mod caller;

pub use caller::{Caller, Scope, Scopes};
