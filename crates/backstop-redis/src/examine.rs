//! What can be relied on, read from the live settings of every master.

mod faults;

use crate::base::{Base, readable};
use crate::link::field;
use crate::migrate;
use crate::repair::tallies;
use crate::reply;
use crate::streams;
use backstop_core::StreamName;
use backstop_core::port::{Answer, Examination, Finding, Grade, StoreError};
use redis::Value;
use std::collections::BTreeMap;

const DOING: &str = "examining";

/// Looks at everything.
pub(crate) async fn examine(base: &Base, shown: &str) -> Answer<Examination> {
    let (nodes, silent) = nodes(base).await?;
    let mut findings: Vec<Finding> = silent.iter().map(|node| gone(node)).collect();
    for node in &nodes {
        findings.extend([
            version(node),
            eviction(node),
            log(node),
            snapshot(node),
            replication(node),
        ]);
        findings.extend(
            faults::known(node.version())
                .map(|fault| said(node, Grade::Warning, fault.what, Some(fault.advice))),
        );
    }
    findings.extend(cluster(base, &nodes).await?);
    if silent.is_empty() {
        findings.push(schema(base).await?);
        findings.extend(stream_drift(base).await?);
        findings.push(drift(base).await?);
    } else {
        let advice = "run `backstop doctor` again when all masters answer";
        findings.push(finding(
            Grade::Warning,
            "jobs and lines were not compared",
            Some(advice),
        ));
    }
    let versions: Vec<&str> = nodes.iter().map(Node::version).collect();
    let store = format!(
        "Redis {} at {shown}",
        versions.first().copied().unwrap_or("of unknown version")
    );
    Ok(Examination {
        store,
        promise: promise(&nodes).to_owned(),
        findings,
    })
}

/// A master and what it tells of itself.
struct Node {
    name: String,
    info: String,
    /// When its log of writes reaches the disk; `None` if it does not say.
    append: Option<Append>,
}

/// When the log of writes reaches the disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Append {
    Off,
    Whenever,
    /// Always, but not while the log or a snapshot is being rewritten.
    NotOnRewrite,
    EverySecond,
    Always,
}

impl Node {
    fn get(&self, name: &str) -> &str {
        field(&self.info, name).unwrap_or_default()
    }

    fn version(&self) -> &str {
        self.get("redis_version")
    }
}

/// The masters that answer, and those that do not.
async fn nodes(base: &Base) -> Answer<(Vec<Node>, Vec<String>)> {
    let infos = base
        .link
        .ask_masters_there(DOING, redis::cmd("INFO").arg("all"))
        .await?;
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("*append*");
    // Forbidden on managed services: then only INFO speaks.
    let configs = base
        .link
        .ask_masters_there(DOING, &config)
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
        Some(Node { name, info, append })
    };
    let infos = infos
        .into_iter()
        .filter_map(|(name, info)| Some((name, info?)));
    Ok((readable(DOING, infos.map(node).collect())?, silent))
}

/// What is to be said of a master that does not answer.
fn gone(node: &str) -> Finding {
    let advice = "bring it back, or let a replica take its place; until then its queues take no jobs and give none out";
    finding(
        Grade::Bad,
        format!("{node}: it does not answer"),
        Some(advice),
    )
}

fn append(info: &str, config: Option<Vec<(Vec<u8>, Vec<u8>)>>) -> Option<Append> {
    if field(info, "aof_enabled")? == "0" {
        return Some(Append::Off);
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
        b"always" if waits => Append::NotOnRewrite,
        b"always" => Append::Always,
        b"everysec" => Append::EverySecond,
        _ => Append::Whenever,
    })
}

/// What the weakest of the masters allows to promise.
fn promise(nodes: &[Node]) -> &'static str {
    let weakest = nodes.iter().filter_map(|node| node.append).min();
    let is_known = nodes.iter().all(|node| node.append.is_some()) || weakest == Some(Append::Off);
    match weakest.filter(|_| is_known) {
        None => {
            "Redis does not tell when its log of writes reaches the disk (CONFIG is forbidden): ask whoever runs it what \
             a crash may lose."
        }
        Some(Append::Off | Append::Whenever) => {
            "A crash of Redis may lose everything since its last snapshot, acknowledged or not."
        }
        Some(Append::NotOnRewrite) => {
            "An acknowledged enqueue survives a crash of Redis, and a power cut unless Redis rewrites its log or takes a \
             snapshot at that moment: then half a minute may be lost."
        }
        Some(Append::EverySecond) => {
            "An acknowledged enqueue survives a crash of Redis unless it is younger than about two seconds; a replica \
             that takes over may lack the last moments too."
        }
        Some(Append::Always) => {
            "Acknowledged work survives a crash of Redis and a power cut, if the disk honours fsync; a replica that \
             takes over may lack the last moments."
        }
    }
}

fn finding(grade: Grade, what: impl Into<String>, advice: Option<&str>) -> Finding {
    Finding {
        grade,
        what: what.into(),
        advice: advice.map(str::to_owned),
    }
}

fn said(node: &Node, grade: Grade, what: impl std::fmt::Display, advice: Option<&str>) -> Finding {
    finding(grade, format!("{}: {what}", node.name), advice)
}

fn version(node: &Node) -> Finding {
    said(
        node,
        Grade::Good,
        format_args!("Redis {}", node.version()),
        None,
    )
}

fn eviction(node: &Node) -> Finding {
    let policy = node.get("maxmemory_policy");
    let what = format!("maxmemory-policy = {policy}");
    if policy == "noeviction" {
        return said(node, Grade::Good, what, None);
    }
    let advice =
        "set it to noeviction; until then no job is taken in, and those there are may be deleted";
    said(node, Grade::Bad, what, Some(advice))
}

fn log(node: &Node) -> Finding {
    if node.append.is_some_and(|append| append > Append::Off)
        && node.get("aof_last_write_status") == "err"
    {
        return said(
            node,
            Grade::Bad,
            "the log of writes cannot be written",
            Some("free some space on its disk"),
        );
    }
    let (grade, what, advice) = match node.append {
        None => (
            Grade::Warning,
            "appendfsync is unknown",
            Some("allow CONFIG GET, or ask whoever runs this Redis"),
        ),
        Some(Append::Off) => (
            Grade::Bad,
            "appendonly = no",
            Some(
                "set appendonly yes and appendfsync always: without a log a crash loses acknowledged jobs",
            ),
        ),
        Some(Append::Whenever) => (
            Grade::Bad,
            "appendonly = yes, appendfsync = no",
            Some("set appendfsync always, or everysec"),
        ),
        Some(Append::NotOnRewrite) => (
            Grade::Warning,
            "appendfsync = always, but no-appendfsync-on-rewrite = yes",
            Some(
                "set no-appendfsync-on-rewrite no: while the log is rewritten nothing reaches the disk for sure",
            ),
        ),
        Some(Append::EverySecond) => (
            Grade::Warning,
            "appendonly = yes, appendfsync = everysec",
            Some("set appendfsync always if a crash must lose nothing"),
        ),
        Some(Append::Always) => (Grade::Good, "appendonly = yes, appendfsync = always", None),
    };
    said(node, grade, what, advice)
}

fn snapshot(node: &Node) -> Finding {
    let status = node.get("rdb_last_bgsave_status");
    if node.get("loading") == "1" {
        return said(
            node,
            Grade::Warning,
            "it is loading its data",
            Some("wait until it is through"),
        );
    }
    let grade = if status == "err" {
        Grade::Warning
    } else {
        Grade::Good
    };
    let advice =
        (status == "err").then_some("look into its log: it could not write its last snapshot");
    said(node, grade, format_args!("last snapshot: {status}"), advice)
}

fn replication(node: &Node) -> Finding {
    if node.get("role") != "master" {
        let advice = "connect to the master; a replica takes no writes";
        return said(node, Grade::Bad, "it is a replica", Some(advice));
    }
    said(
        node,
        Grade::Good,
        format_args!("{} replicas", node.get("connected_slaves")),
        None,
    )
}

async fn cluster(base: &Base, nodes: &[Node]) -> Answer<Option<Finding>> {
    if !nodes.iter().any(|node| node.get("cluster_enabled") == "1") {
        return Ok(None);
    }
    let mut command = redis::cmd("CLUSTER");
    command.arg("INFO");
    let mut bad = Vec::new();
    for (node, info) in base.link.ask_masters_there(DOING, &command).await? {
        let info = info.and_then(reply::text).unwrap_or_default();
        if field(&info, "cluster_state") != Some("ok") {
            bad.push(node);
        }
    }
    if bad.is_empty() {
        let what = format!("cluster of {} masters, all slots served", nodes.len());
        return Ok(Some(finding(Grade::Good, what, None)));
    }
    let what = format!("the cluster is not whole, says {}", bad.join(", "));
    Ok(Some(finding(
        Grade::Bad,
        what,
        Some("run redis-cli --cluster check, and bring the missing slots back"),
    )))
}

async fn schema(base: &Base) -> Answer<Finding> {
    if migrate::is_new(base, DOING).await? {
        let what = "there is no store here yet: it comes into being with the first push";
        return Ok(finding(Grade::Good, what, None));
    }
    Ok(match migrate::version(base, DOING).await {
        Ok(migrate::VERSION) => finding(
            Grade::Good,
            format!("store version {}", migrate::VERSION),
            None,
        ),
        Ok(version) => {
            let what = format!("store version {version}");
            finding(Grade::Bad, what, Some("run `backstop migrate`"))
        }
        Err(StoreError::Misuse { cause, .. }) => finding(Grade::Bad, cause, None),
        Err(error) => return Err(error),
    })
}

async fn drift(base: &Base) -> Answer<Finding> {
    let tallies = tallies(base, DOING).await?;
    let records: i64 = tallies.iter().map(|tally| tally.records).sum();
    let wrong: Vec<&str> = tallies
        .iter()
        .filter(|tally| !tally.agrees())
        .map(|tally| tally.queue.as_str())
        .collect();
    if wrong.is_empty() {
        return Ok(finding(
            Grade::Good,
            format!("{records} jobs, each in one line"),
            None,
        ));
    }
    let what = format!("jobs and lines do not agree in {}", wrong.join(", "));
    Ok(finding(
        Grade::Bad,
        what,
        Some("run `backstop migrate`: it rebuilds the lines from the jobs"),
    ))
}

async fn stream_drift(base: &Base) -> Answer<Option<Finding>> {
    let wrong = streams::what_disagrees(base, DOING).await?;
    if wrong.is_empty() {
        return Ok(None);
    }
    let names: Vec<&str> = wrong.iter().map(StreamName::as_str).collect();
    let what = format!(
        "keys and records do not agree in stream {}",
        names.join(", ")
    );
    Ok(Some(finding(
        Grade::Bad,
        what,
        Some("run `backstop migrate`: it rebuilds the indexes"),
    )))
}

#[cfg(test)]
mod tests;
