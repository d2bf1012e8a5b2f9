//! Plain connections to the servers that are measured: for the raw limits, for a held snapshot, and
//! to clean up.

mod postgres;
mod redis;

pub(super) use postgres::{connect, drop_schema};
pub(super) use redis::{BenchRedisConnection, UnlinkResult, connect_redis, rewritten, unlink_all};
