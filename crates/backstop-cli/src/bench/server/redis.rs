//! Plain connections to Redis.

use anyhow::{Context, Result, bail};
use backstop::StoreAddress;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Client, cmd};
use std::time::{Duration, Instant};

/// A server that is busy with what is measured may take its time.
const ANSWER: Duration = Duration::from_mins(1);
/// How long a server's rewriting is waited for, and how often it is looked at.
const REWRITE_MAX: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Keys looked at in one step of a search.
const SCAN_STEP: usize = 1_000;

pub(in super::super) enum BenchRedisConnection {
    One(MultiplexedConnection),
    /// To all of a cluster.
    Cluster(ClusterConnection),
    /// To what only the store knows how to reach.
    Unknown,
}

pub(in super::super) async fn connect_redis(
    address: &StoreAddress,
) -> Result<BenchRedisConnection> {
    let cannot = || format!("{address} cannot be reached for a measurement");
    match RedisDeployment::of(address)? {
        RedisDeployment::One(url) => Ok(BenchRedisConnection::One(
            open(&url).await.with_context(cannot)?,
        )),
        RedisDeployment::Cluster(urls) => {
            let client = ClusterClientBuilder::new(urls)
                .response_timeout(ANSWER)
                .build();
            let connection = client.with_context(cannot)?.get_async_connection().await;
            Ok(BenchRedisConnection::Cluster(
                connection.with_context(cannot)?,
            ))
        }
        RedisDeployment::Unknown => Ok(BenchRedisConnection::Unknown),
    }
}

/// What became of keys that were to be removed.
pub(in super::super) enum UnlinkResult {
    All,
    /// They are where only the store finds them.
    Nothing,
}

/// Removes every key whose name has `part` in it.
pub(in super::super) async fn unlink_all(
    address: &StoreAddress,
    part: &str,
) -> Result<UnlinkResult> {
    let cannot =
        || format!("the keys with {part} in their names could not be removed from {address}");
    match RedisDeployment::of(address)? {
        RedisDeployment::One(url) => unlink_on(open(&url).await?, part)
            .await
            .with_context(cannot)?,
        RedisDeployment::Cluster(urls) => {
            for url in masters(&urls).await.with_context(cannot)? {
                unlink_on(open(&url).await?, part)
                    .await
                    .with_context(cannot)?;
            }
        }
        RedisDeployment::Unknown => return Ok(UnlinkResult::Nothing),
    }
    Ok(UnlinkResult::All)
}

/// Waits until no server rewrites its file beside its work: that takes a core, and copies whatever
/// is changed meanwhile.
pub(in super::super) async fn rewritten(address: &StoreAddress) -> Result<()> {
    let urls = match RedisDeployment::of(address)? {
        RedisDeployment::One(url) => vec![url],
        RedisDeployment::Cluster(urls) => masters(&urls).await?,
        RedisDeployment::Unknown => Vec::new(),
    };
    let began = Instant::now();
    for url in urls {
        let mut connection = open(&url).await?;
        while began.elapsed() < REWRITE_MAX {
            let info: String = cmd("INFO")
                .arg("persistence")
                .query_async(&mut connection)
                .await?;
            if !is_rewriting(&info) {
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    Ok(())
}

fn is_rewriting(info: &str) -> bool {
    let busy = [
        "aof_rewrite_in_progress:1",
        "aof_rewrite_scheduled:1",
        "rdb_bgsave_in_progress:1",
    ];
    info.lines().any(|line| busy.contains(&line.trim_end()))
}

/// What kind of set-up an address names.
enum RedisDeployment {
    One(String),
    Cluster(Vec<String>),
    /// A master behind sentinels, or a server with certificates of its own: not for us to find.
    Unknown,
}

impl RedisDeployment {
    fn of(address: &StoreAddress) -> Result<Self> {
        let Some((scheme, rest)) = address.as_written().split_once("://") else {
            bail!("{address} is not an address of Redis");
        };
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        Ok(match scheme {
            _ if options.split('&').any(|option| option.starts_with("ca=")) => Self::Unknown,
            "redis" | "rediss" => Self::One(format!("{scheme}://{place}")),
            "redis+cluster" | "rediss+cluster" => Self::Cluster(nodes(scheme, place)),
            _ => Self::Unknown,
        })
    }
}

/// The addresses of a cluster's nodes; the user before the first one is the user of all.
fn nodes(scheme: &str, place: &str) -> Vec<String> {
    let scheme = scheme.trim_end_matches("+cluster");
    let (user, hosts) = match place.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), place),
    };
    hosts
        .trim_end_matches('/')
        .split(',')
        .map(|host| format!("{scheme}://{user}{host}"))
        .collect()
}

async fn open(url: &str) -> Result<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER));
    Ok(Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await?)
}

/// The addresses of all masters, as the first node that answers knows them.
async fn masters(urls: &[String]) -> Result<Vec<String>> {
    let Some(url) = urls.first() else {
        bail!("a cluster has at least one node")
    };
    let known: String = cmd("CLUSTER")
        .arg("NODES")
        .query_async(&mut open(url).await?)
        .await?;
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    let user = rest
        .rsplit_once('@')
        .map_or(String::new(), |(user, _)| format!("{user}@"));
    let master = |line: &str| {
        let mut words = line.split(' ');
        let (_, place, flags) = (words.next()?, words.next()?, words.next()?);
        let is_master = flags.split(',').any(|flag| flag == "master");
        is_master.then(|| {
            format!(
                "{scheme}://{user}{}",
                place.split('@').next().unwrap_or(place)
            )
        })
    };
    Ok(known.lines().filter_map(master).collect())
}

/// One key at a time: in a cluster, those of one step belong to many slots.
async fn unlink_on(mut connection: MultiplexedConnection, part: &str) -> Result<()> {
    let mut cursor = 0_u64;
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(cursor)
            .arg("MATCH")
            .arg(format!("*{part}*"))
            .arg("COUNT")
            .arg(SCAN_STEP);
        let (next, keys): (u64, Vec<Vec<u8>>) = scan.query_async(&mut connection).await?;
        let mut unlinking = redis::pipe();
        for key in &keys {
            unlinking.cmd("UNLINK").arg(key).ignore();
        }
        if !keys.is_empty() {
            unlinking.query_async::<()>(&mut connection).await?;
        }
        if next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_server_that_rewrites_its_file_is_known_by_what_it_says() {
        let info_text = |rewriting: u8| {
            format!("# Persistence\r\naof_rewrite_in_progress:{rewriting}\r\naof_enabled:1\r\n")
        };
        assert_eq!(
            [0, 1].map(|rewriting| super::is_rewriting(&info_text(rewriting))),
            [false, true]
        );
    }
}
