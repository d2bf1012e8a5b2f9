//! What whoever asks can do here.

use serde::Serialize;
use utoipa::ToSchema;

/// What this server is, and what the caller may do with it.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Capabilities)]
pub struct CapabilitiesShape<'a> {
    /// The path in front of every address; empty at the root.
    pub base: &'a str,
    /// The queues the caller's rights are for; null for all, and for what goes across them.
    pub queues: Option<Vec<&'a str>>,
    /// The caller's rights: push, work, read and admin, which includes all others.
    pub scopes: Vec<&'static str>,
    /// Where jobs are kept: memory, sqlite, postgres or redis.
    pub store: &'static str,
    /// The version of the server.
    pub version: &'static str,
}
