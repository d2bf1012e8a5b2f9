//! The schema version of the store, and the requirements on its servers.

use crate::context::{StoreContext, readable};
use crate::link::field;
use crate::repair::repair_damage;
use crate::reply;
use backstop_core::port::{MigrationResult, SchemaMark, StoreError, StoreResult};
use redis::Value;

const DOING: &str = "migrating";
/// The schema version of this program.
pub(crate) const VERSION: u32 = 1;
/// Prefix of a schema version. Pre-releases wrote a number without it.
const MARK: &str = "v";
const INSTEAD: &str = "another prefix or database";
/// The oldest Redis with all commands that our scripts use.
const REDIS_MIN: (u32, u32) = (6, 2);

/// Checks the servers, and writes the schema version.
pub(crate) async fn migrate(base: &StoreContext) -> StoreResult<MigrationResult> {
    check_servers(base).await?;
    base.eviction_check.check(&base.link, DOING).await?;
    let from = mark(base, DOING).await?.check(DOING, VERSION, INSTEAD)?;
    let mut set = redis::cmd("SET");
    base.link
        .ask(
            DOING,
            set.arg(base.keys.schema()).arg(format!("{MARK}{VERSION}")),
        )
        .await?;
    repair_damage(base).await?;
    Ok(MigrationResult { from, to: VERSION })
}

async fn check_servers(base: &StoreContext) -> StoreResult<()> {
    for (node, info) in base
        .link
        .ask_masters(DOING, redis::cmd("INFO").arg("server"))
        .await?
    {
        let info = readable(DOING, reply::text(info))?;
        let version = field(&info, "redis_version").unwrap_or_default();
        if release(version) < REDIS_MIN {
            let (major, minor) = REDIS_MIN;
            let cause =
                format!("Redis {version} ({node}) is too old; use {major}.{minor} or newer");
            return Err(StoreError::misuse(DOING, cause));
        }
    }
    Ok(())
}

/// The major and minor number of a version.
fn release(version: &str) -> (u32, u32) {
    let mut numbers = version
        .split('.')
        .map(|number| number.parse().unwrap_or_default());
    (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    )
}

async fn mark(base: &StoreContext, doing: &'static str) -> StoreResult<SchemaMark> {
    match base
        .link
        .ask(doing, redis::cmd("GET").arg(base.keys.schema()))
        .await?
    {
        Value::Nil => Ok(SchemaMark::Missing),
        mark => readable(doing, reply::text(mark).and_then(|mark| parse_mark(&mark))),
    }
}

fn parse_mark(mark: &str) -> Option<SchemaMark> {
    match mark.strip_prefix(MARK) {
        Some(version) => version.parse().ok().map(SchemaMark::Version),
        None => mark.parse::<u32>().ok().map(|_| SchemaMark::PreRelease),
    }
}

/// The version of a store; 0 if it is new. Refuses a store that this program does not know.
pub(crate) async fn version(base: &StoreContext, doing: &'static str) -> StoreResult<u32> {
    mark(base, doing).await?.check(doing, VERSION, INSTEAD)
}

/// Whether the store is empty. A store that has queues but lost its version is damaged, not new.
pub(crate) async fn is_new(base: &StoreContext, doing: &'static str) -> StoreResult<bool> {
    Ok(mark(base, doing).await? == SchemaMark::Missing && base.queues(doing).await?.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_is_the_mark_of_a_pre_release() {
        assert_eq!(parse_mark("v1"), Some(SchemaMark::Version(1)));
        assert_eq!(parse_mark("1"), Some(SchemaMark::PreRelease));
        assert_eq!(parse_mark("4"), Some(SchemaMark::PreRelease));
        for damaged in ["", "v", "v-1", "one"] {
            assert_eq!(parse_mark(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn versions_compare_by_their_numbers() {
        assert!(release("6.2.0") >= REDIS_MIN);
        assert!(release("7.0.15") >= REDIS_MIN);
        assert!(release("10.0") >= REDIS_MIN);
        assert!(release("6.0.16") < REDIS_MIN);
        assert!(release("") < REDIS_MIN);
    }
}
