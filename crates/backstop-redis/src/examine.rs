//! Reports what can be relied on, read from the live settings of every master.

mod faults;

use crate::context::{StoreContext, readable};
use crate::link::field;
use crate::migrate;
use crate::repair::tallies;
use crate::reply;
use crate::streams;
use backstop_core::StreamName;
use backstop_core::port::{
    ExaminationReport, FindingSeverity, StoreError, StoreFinding, StoreResult,
};
use redis::Value;
use std::collections::BTreeMap;

const DOING: &str = "examining";

pub(crate) async fn examine(base: &StoreContext, shown: &str) -> StoreResult<ExaminationReport> {
    let (nodes, silent) = nodes(base).await?;
    let mut findings: Vec<StoreFinding> = silent.iter().map(|node| gone(node)).collect();
    for node in &nodes {
        findings.extend([
            version(node),
            eviction(node),
            log(node),
            snapshot(node),
            replication(node),
        ]);
        findings.extend(faults::known(node.version()).map(|fault| {
            node_finding(
                node,
                FindingSeverity::Warning,
                fault.what,
                Some(fault.advice),
            )
        }));
    }
    findings.extend(cluster(base, &nodes).await?);
    if silent.is_empty() {
        findings.push(schema(base).await?);
        findings.extend(stream_drift(base).await?);
        findings.push(drift(base).await?);
    } else {
        let advice = "run `backstop doctor` again when all masters answer";
        findings.push(finding(
            FindingSeverity::Warning,
            "jobs and lines were not compared",
            Some(advice),
        ));
    }
    let versions: Vec<&str> = nodes.iter().map(MasterInfo::version).collect();
    let store = format!(
        "Redis {} at {shown}",
        versions.first().copied().unwrap_or("of unknown version")
    );
    Ok(ExaminationReport {
        store,
        promise: promise(&nodes).to_owned(),
        findings,
    })
}

/// A master and its INFO.
struct MasterInfo {
    name: String,
    info: String,
    /// When its append-only file reaches the disk; `None` if the server does not say.
    append: Option<AppendLogMode>,
}

/// When the append-only file reaches the disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum AppendLogMode {
    Off,
    Whenever,
    /// Always, except while the file or a snapshot is being rewritten.
    NotOnRewrite,
    EverySecond,
    Always,
}

impl MasterInfo {
    fn get(&self, name: &str) -> &str {
        field(&self.info, name).unwrap_or_default()
    }

    fn version(&self) -> &str {
        self.get("redis_version")
    }
}

/// The masters that answer, and those that do not.
async fn nodes(base: &StoreContext) -> StoreResult<(Vec<MasterInfo>, Vec<String>)> {
    let infos = base
        .link
        .ask_reachable_masters(DOING, redis::cmd("INFO").arg("all"))
        .await?;
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("*append*");
    // Managed services forbid CONFIG; then only INFO is available.
    let configs = base
        .link
        .ask_reachable_masters(DOING, &config)
        .await
        .unwrap_or_default();
    let configs: BTreeMap<String, Value> = configs
        .into_iter()
        .filter_map(|(name, config)| Some((name, config?)))
        .collect();
    let silent = infos
        .iter()
        .filter(|(_, info)| info.is_none())
        .map(|(name, _)| name.clone())
        .collect();
    let node = |(name, info): (String, Value)| {
        let info = reply::text(info)?;
        let config = configs.get(&name).cloned().and_then(reply::pairs);
        let append = append(&info, config);
        Some(MasterInfo { name, info, append })
    };
    let infos = infos
        .into_iter()
        .filter_map(|(name, info)| Some((name, info?)));
    Ok((readable(DOING, infos.map(node).collect())?, silent))
}

/// The finding about a master that does not answer.
fn gone(node: &str) -> StoreFinding {
    let advice = "bring it back, or let a replica take its place; until then its queues take no jobs and give none out";
    finding(
        FindingSeverity::Bad,
        format!("{node}: it does not answer"),
        Some(advice),
    )
}

fn append(info: &str, config: Option<Vec<(Vec<u8>, Vec<u8>)>>) -> Option<AppendLogMode> {
    if field(info, "aof_enabled")? == "0" {
        return Some(AppendLogMode::Off);
    }
    let config = config?;
    let get = |wanted: &[u8]| {
        config
            .iter()
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| &value[..])
    };
    let waits = get(b"no-appendfsync-on-rewrite") == Some(b"yes");
    Some(match get(b"appendfsync")? {
        b"always" if waits => AppendLogMode::NotOnRewrite,
        b"always" => AppendLogMode::Always,
        b"everysec" => AppendLogMode::EverySecond,
        _ => AppendLogMode::Whenever,
    })
}

/// The durability that the weakest of the masters allows to promise.
fn promise(nodes: &[MasterInfo]) -> &'static str {
    let weakest = nodes.iter().filter_map(|node| node.append).min();
    let is_known =
        nodes.iter().all(|node| node.append.is_some()) || weakest == Some(AppendLogMode::Off);
    match weakest.filter(|_| is_known) {
        None => {
            "Redis does not tell when its log of writes reaches the disk (CONFIG is forbidden): ask whoever runs it what \
             a crash may lose."
        }
        Some(AppendLogMode::Off | AppendLogMode::Whenever) => {
            "A crash of Redis may lose everything since its last snapshot, acknowledged or not."
        }
        Some(AppendLogMode::NotOnRewrite) => {
            "An acknowledged enqueue survives a crash of Redis, and a power cut unless Redis rewrites its log or takes a \
             snapshot at that moment: then half a minute may be lost."
        }
        Some(AppendLogMode::EverySecond) => {
            "An acknowledged enqueue survives a crash of Redis unless it is younger than about two seconds; a replica \
             that takes over may lack the last moments too."
        }
        Some(AppendLogMode::Always) => {
            "Acknowledged work survives a crash of Redis and a power cut, if the disk honours fsync; a replica that \
             takes over may lack the last moments."
        }
    }
}

fn finding(grade: FindingSeverity, what: impl Into<String>, advice: Option<&str>) -> StoreFinding {
    StoreFinding {
        severity: grade,
        what: what.into(),
        advice: advice.map(str::to_owned),
    }
}

fn node_finding(
    node: &MasterInfo,
    grade: FindingSeverity,
    what: impl std::fmt::Display,
    advice: Option<&str>,
) -> StoreFinding {
    finding(grade, format!("{}: {what}", node.name), advice)
}

fn version(node: &MasterInfo) -> StoreFinding {
    node_finding(
        node,
        FindingSeverity::Good,
        format_args!("Redis {}", node.version()),
        None,
    )
}

fn eviction(node: &MasterInfo) -> StoreFinding {
    let policy = node.get("maxmemory_policy");
    let what = format!("maxmemory-policy = {policy}");
    if policy == "noeviction" {
        return node_finding(node, FindingSeverity::Good, what, None);
    }
    let advice =
        "set it to noeviction; until then no job is taken in, and those there are may be deleted";
    node_finding(node, FindingSeverity::Bad, what, Some(advice))
}

fn log(node: &MasterInfo) -> StoreFinding {
    if node
        .append
        .is_some_and(|append| append > AppendLogMode::Off)
        && node.get("aof_last_write_status") == "err"
    {
        return node_finding(
            node,
            FindingSeverity::Bad,
            "the log of writes cannot be written",
            Some("free some space on its disk"),
        );
    }
    let (grade, what, advice) = match node.append {
        None => (
            FindingSeverity::Warning,
            "appendfsync is unknown",
            Some("allow CONFIG GET, or ask whoever runs this Redis"),
        ),
        Some(AppendLogMode::Off) => (
            FindingSeverity::Bad,
            "appendonly = no",
            Some(
                "set appendonly yes and appendfsync always: without a log a crash loses acknowledged jobs",
            ),
        ),
        Some(AppendLogMode::Whenever) => (
            FindingSeverity::Bad,
            "appendonly = yes, appendfsync = no",
            Some("set appendfsync always, or everysec"),
        ),
        Some(AppendLogMode::NotOnRewrite) => (
            FindingSeverity::Warning,
            "appendfsync = always, but no-appendfsync-on-rewrite = yes",
            Some(
                "set no-appendfsync-on-rewrite no: while the log is rewritten nothing reaches the disk for sure",
            ),
        ),
        Some(AppendLogMode::EverySecond) => (
            FindingSeverity::Warning,
            "appendonly = yes, appendfsync = everysec",
            Some("set appendfsync always if a crash must lose nothing"),
        ),
        Some(AppendLogMode::Always) => (
            FindingSeverity::Good,
            "appendonly = yes, appendfsync = always",
            None,
        ),
    };
    node_finding(node, grade, what, advice)
}

fn snapshot(node: &MasterInfo) -> StoreFinding {
    let status = node.get("rdb_last_bgsave_status");
    if node.get("loading") == "1" {
        return node_finding(
            node,
            FindingSeverity::Warning,
            "it is loading its data",
            Some("wait until it is through"),
        );
    }
    let grade = if status == "err" {
        FindingSeverity::Warning
    } else {
        FindingSeverity::Good
    };
    let advice =
        (status == "err").then_some("look into its log: it could not write its last snapshot");
    node_finding(node, grade, format_args!("last snapshot: {status}"), advice)
}

fn replication(node: &MasterInfo) -> StoreFinding {
    if node.get("role") != "master" {
        let advice = "connect to the master; a replica takes no writes";
        return node_finding(node, FindingSeverity::Bad, "it is a replica", Some(advice));
    }
    node_finding(
        node,
        FindingSeverity::Good,
        format_args!("{} replicas", node.get("connected_slaves")),
        None,
    )
}

async fn cluster(base: &StoreContext, nodes: &[MasterInfo]) -> StoreResult<Option<StoreFinding>> {
    if !nodes.iter().any(|node| node.get("cluster_enabled") == "1") {
        return Ok(None);
    }
    let mut command = redis::cmd("CLUSTER");
    command.arg("INFO");
    let mut bad = Vec::new();
    for (node, info) in base.link.ask_reachable_masters(DOING, &command).await? {
        let info = info.and_then(reply::text).unwrap_or_default();
        if field(&info, "cluster_state") != Some("ok") {
            bad.push(node);
        }
    }
    if bad.is_empty() {
        let what = format!("cluster of {} masters, all slots served", nodes.len());
        return Ok(Some(finding(FindingSeverity::Good, what, None)));
    }
    let what = format!("the cluster is not whole, says {}", bad.join(", "));
    Ok(Some(finding(
        FindingSeverity::Bad,
        what,
        Some("run redis-cli --cluster check, and bring the missing slots back"),
    )))
}

async fn schema(base: &StoreContext) -> StoreResult<StoreFinding> {
    if migrate::is_new(base, DOING).await? {
        let what = "there is no store here yet: it comes into being with the first push";
        return Ok(finding(FindingSeverity::Good, what, None));
    }
    Ok(match migrate::version(base, DOING).await {
        Ok(migrate::VERSION) => finding(
            FindingSeverity::Good,
            format!("store version {}", migrate::VERSION),
            None,
        ),
        Ok(version) => {
            let what = format!("store version {version}");
            finding(FindingSeverity::Bad, what, Some("run `backstop migrate`"))
        }
        Err(StoreError::Misuse { cause, .. }) => finding(FindingSeverity::Bad, cause, None),
        Err(error) => return Err(error),
    })
}

async fn drift(base: &StoreContext) -> StoreResult<StoreFinding> {
    let tallies = tallies(base, DOING).await?;
    let records: i64 = tallies.iter().map(|tally| tally.records).sum();
    let wrong: Vec<&str> = tallies
        .iter()
        .filter(|tally| !tally.agrees())
        .map(|tally| tally.queue.as_str())
        .collect();
    if wrong.is_empty() {
        return Ok(finding(
            FindingSeverity::Good,
            format!("{records} jobs, each in one line"),
            None,
        ));
    }
    let what = format!("jobs and lines do not agree in {}", wrong.join(", "));
    Ok(finding(
        FindingSeverity::Bad,
        what,
        Some("run `backstop migrate`: it rebuilds the lines from the jobs"),
    ))
}

async fn stream_drift(base: &StoreContext) -> StoreResult<Option<StoreFinding>> {
    let wrong = streams::find_mismatches(base, DOING).await?;
    if wrong.is_empty() {
        return Ok(None);
    }
    let names: Vec<&str> = wrong.iter().map(StreamName::as_str).collect();
    let what = format!(
        "keys and records do not agree in stream {}",
        names.join(", ")
    );
    Ok(Some(finding(
        FindingSeverity::Bad,
        what,
        Some("run `backstop migrate`: it rebuilds the indexes"),
    )))
}

#[cfg(test)]
mod tests;
