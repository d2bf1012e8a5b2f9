//! `docs/configuration.md` against the configuration itself: every key that is accepted is on the
//! page, with its default and an example, and nothing else is.

#![cfg(all(feature = "sqlite", feature = "http"))]
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "in a test, a panic is how to say no"
)]

use backstop::config::{Config, ConfigFile, ConfigOverrides, resolve};
use std::collections::{BTreeMap, BTreeSet};

/// A key that there is not.
const UNKNOWN: &str = "no_such_key";
/// Tables that have a section of their own wherever they stand.
const SHARED: [(&str, &str); 3] = [
    ("handler", "Handlers"),
    ("retry", "Retry policies"),
    ("strategy", "Retry policies"),
];
/// What an entry needs before anything else can be said in it.
const NEEDED: [(&str, &str); 3] = [
    ("[schedules.NAME]", "cron = \"30 8 * * *\"\nqueue = \"q\"\n"),
    (
        "[sweeps.NAME]",
        "url = \"sqlite:a\"\nquery = \"SELECT id FROM t WHERE at <= :cutoff\"\nqueue = \"q\"\nunique_key = \"{id}\"\n",
    ),
    ("[tables.NAME]", "url = \"sqlite:a\"\ntable = \"t\"\n"),
];
/// What keys need beside them.
const BESIDE: [(&str, &str); 5] = [
    (
        "source.kafka.properties",
        "key = \"/k\"\nposition = \"/p\"\nstep = \"1m\"\nsource.kafka.brokers = \"b\"\nsource.kafka.topic = \"t\"\nsource.kafka.group = \"g\"\n",
    ),
    ("overflow", "max_size = 5\n"),
    (
        "rate_limit.over",
        "rate_limit.count = 1\nrate_limit.per = \"1s\"\n",
    ),
    ("breaker.", "breaker.failure_threshold = 5\n"),
    ("dead.max", "max_size = 5\n"),
];

fn read(text: &str) -> Result<Config, String> {
    let written = ConfigFile {
        path: "backstop.toml",
        text,
    };
    resolve(
        Some(written),
        ConfigOverrides::default(),
        ConfigOverrides::default(),
    )
    .map_err(|error| error.to_string())
}

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    std::fs::read_to_string(path).expect("the page")
}

/// What the key at the end of a path may hold, by what is said about one that there is not; `None`
/// if it is no table with keys of its own.
fn keys_under(path: &[&str]) -> Option<Vec<String>> {
    let text = match path {
        [] => format!("{UNKNOWN} = 1\n"),
        path => format!("[{}]\n{UNKNOWN} = 1\n", path.join(".")),
    };
    let refused = [
        text.clone(),
        text.replacen('[', "[[", 1).replacen(']', "]]", 1),
    ]
    .map(|text| read(&text).err());
    let told = refused
        .into_iter()
        .flatten()
        .find(|told| told.contains(&format!("unknown field `{UNKNOWN}`")))?;
    let (_, expected) = told.split_once(", expected ")?;
    let line = expected.lines().next().unwrap_or_default();
    Some(
        line.split('`')
            .skip(1)
            .step_by(2)
            .map(ToOwned::to_owned)
            .collect(),
    )
}

/// Every key that is accepted, by the section it belongs to.
fn accepted() -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for key in keys_under(&[]).expect("keys at the top") {
        let section =
            ["queues", "streams", "sweeps", "schedules", "tables"].contains(&key.as_str());
        match keys_under(&[&key]) {
            // A name that nobody uses: what is under it says what there is.
            _ if section => walk(&format!("[{key}.NAME]"), &[&key, "n"], "", &mut found),
            Some(_) => walk(&format!("[{key}]"), &[&key], "", &mut found),
            None => drop(found.insert(("Top level".to_owned(), key))),
        }
    }
    found
}

fn walk(section: &str, path: &[&str], prefix: &str, found: &mut BTreeSet<(String, String)>) {
    for key in keys_under(path).unwrap_or_else(|| panic!("{path:?} has no keys")) {
        let below: Vec<&str> = path.iter().copied().chain([key.as_str()]).collect();
        let name = format!("{prefix}{key}");
        match (
            SHARED.iter().find(|(shared, _)| *shared == key),
            keys_under(&below),
        ) {
            (Some((_, shared)), Some(_)) => {
                found.insert((section.to_owned(), name));
                walk(shared, &below, "", found);
            }
            (None, Some(_)) if name == "bands" => {
                found.insert((section.to_owned(), name));
                walk(section, &below, "bands.", found);
            }
            (None, Some(_)) => walk(section, &below, &format!("{name}."), found),
            (_, None) => drop(found.insert((section.to_owned(), name))),
        }
    }
}

/// The rows of the page: section, key, type, default, meaning.
fn rows() -> Vec<(String, [String; 4])> {
    let (mut section, mut rows) = (String::new(), Vec::new());
    for line in page().lines() {
        if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut section);
        }
        let Some(row) = line.strip_prefix("| `") else {
            continue;
        };
        let cells: Vec<String> = format!("`{row}")
            .trim_end_matches('|')
            .split(" | ")
            .map(|c| c.trim().to_owned())
            .collect();
        let cells: [String; 4] = cells
            .try_into()
            .unwrap_or_else(|cells| panic!("{cells:?} are not four cells"));
        rows.push((section.clone(), cells));
    }
    rows
}

fn plain(cell: &str) -> String {
    cell.trim_matches('`').to_owned()
}

#[test]
fn every_key_is_on_the_page_and_nothing_else_is() {
    let told: BTreeSet<(String, String)> = rows()
        .into_iter()
        .map(|(section, [key, ..])| (section, plain(&key)))
        .collect();
    let accepted = accepted();
    assert!(accepted.len() > 100, "{accepted:#?}");
    let missing: Vec<_> = accepted.difference(&told).collect();
    let invented: Vec<_> = told.difference(&accepted).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "missing: {missing:#?}, invented: {invented:#?}"
    );
}

#[test]
fn every_key_has_a_type_a_default_and_a_meaning() {
    for (section, [key, kind, default, meaning]) in rows() {
        assert!(
            !kind.is_empty() && !default.is_empty() && meaning.len() > 5,
            "{section} {key}"
        );
    }
}

#[test]
fn the_defaults_on_the_page_are_those_in_force() {
    let needed: BTreeMap<&str, &str> = NEEDED.into_iter().collect();
    let mut tried = 0;
    for (section, [key, _, default, _]) in rows() {
        let (key, default) = (plain(&key), plain(&default));
        if default == "–" || section == "Retry policies" || section == "Handlers" {
            continue;
        }
        let beside = BESIDE
            .iter()
            .find(|(of, _)| key.starts_with(of))
            .map_or("", |(_, beside)| beside);
        let header = if section.starts_with('[') {
            section.replace("NAME", "n")
        } else {
            String::new()
        };
        let base = format!(
            "{header}\n{}{beside}",
            needed.get(section.as_str()).unwrap_or(&"")
        );
        let written = if beside.starts_with(&format!("{key} ")) {
            base.clone()
        } else {
            format!("{base}{key} = {default}\n")
        };
        let [silent, said] = [base, written]
            .map(|text| read(&text).unwrap_or_else(|error| panic!("{error}\n{text}")));
        assert_eq!(
            format!("{said:?}"),
            format!("{silent:?}"),
            "{section} {key} = {default}"
        );
        tried += 1;
    }
    assert!(tried > 50, "{tried}");
}

/// The examples: what stands between fences.
fn examples() -> Vec<String> {
    page()
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn every_key_has_an_example_that_works() {
    let mut shown = BTreeSet::new();
    for example in examples() {
        read(&example).unwrap_or_else(|error| panic!("{error}\n{example}"));
        let table: toml::Table = example.parse().expect("TOML");
        for (key, value) in &table {
            match (key.as_str(), value) {
                (
                    "queues" | "streams" | "sweeps" | "schedules" | "tables",
                    toml::Value::Table(entries),
                ) => {
                    for entry in entries.values() {
                        gather(&format!("[{key}.NAME]"), "", entry, &mut shown);
                    }
                }
                (_, toml::Value::Table(_)) => gather(&format!("[{key}]"), "", value, &mut shown),
                _ => drop(shown.insert(("Top level".to_owned(), key.clone()))),
            }
        }
    }
    let missing: Vec<_> = accepted()
        .into_iter()
        .filter(|key| !shown.contains(key))
        .collect();
    assert!(missing.is_empty(), "no example of {missing:#?}");
}

/// The keys of an example.
fn gather(
    section: &str,
    prefix: &str,
    value: &toml::Value,
    shown: &mut BTreeSet<(String, String)>,
) {
    let toml::Value::Table(table) = value else {
        return;
    };
    for (key, value) in table {
        let name = format!("{prefix}{key}");
        shown.insert((section.to_owned(), name.clone()));
        match (SHARED.iter().find(|(shared, _)| shared == key), value) {
            (Some((_, shared)), value) => gather(shared, "", value, shown),
            (None, toml::Value::Array(entries)) => {
                for entry in entries {
                    gather(section, &format!("{name}."), entry, shown);
                }
            }
            (None, value) => gather(section, &format!("{name}."), value, shown),
        }
    }
}
