//! Which crate may depend on which. Tests may use what they like.

use crate::exceptions::Finding;
use crate::source::root;
use std::fs;

const CORE: &str = "backstop-core";
const STORES: [&str; 4] = [
    "backstop-memory",
    "backstop-sqlite",
    "backstop-postgres",
    "backstop-redis",
];

/// The crates of this workspace that a crate may use outside of its tests.
fn allowed(name: &str) -> Vec<&'static str> {
    let above_stores = || [&[CORE], &STORES[..]].concat();
    match name {
        CORE => vec![],
        _ if STORES.contains(&name) => vec![CORE],
        "backstop" => above_stores(),
        "backstop-kafka" | "backstop-server" => vec![CORE, "backstop"],
        "backstop-cli" => vec![CORE, "backstop", "backstop-kafka", "backstop-server"],
        "backstop-testkit" => [above_stores(), vec!["backstop"]].concat(),
        _ => unreachable!("{name} has no place in the layers; give it one here"),
    }
}

pub(crate) fn violations() -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut names: Vec<String> = fs::read_dir(root().join("crates"))
        .expect("crates/ is readable")
        .map(|entry| entry.expect("an entry of crates/ is readable").file_name())
        .map(|name| name.into_string().expect("names of crates are UTF-8"))
        .collect();
    names.sort();
    for name in names {
        let path = root().join("crates").join(&name).join("Cargo.toml");
        let manifest = fs::read_to_string(path).expect("a crate has a manifest");
        let used = product_dependencies(&manifest);
        let wrong: Vec<_> = used
            .into_iter()
            .filter(|used| !allowed(&name).contains(used))
            .collect();
        if let Some(first) = wrong.first() {
            let example = format!("it may not use {first}");
            findings.push(Finding {
                rule: "layers",
                subject: name,
                count: wrong.len(),
                example,
            });
        }
    }
    findings
}

/// The crates of this workspace below `[dependencies]`.
fn product_dependencies(manifest: &str) -> Vec<&str> {
    let sections = manifest.split("\n[");
    let product = sections.filter(|section| section.starts_with("dependencies]"));
    let lines = product.flat_map(str::lines);
    let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
    names
        .filter(|name| *name == "backstop" || name.starts_with("backstop-"))
        .collect()
}
