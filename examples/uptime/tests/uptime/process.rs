//! A consumer in a process of its own, and the world it is for.

use crate::program;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

/// A consumer at work. It is killed if a test ends before it does.
pub(crate) struct Consumer {
    process: Child,
    stderr: BufReader<ChildStderr>,
}

impl Consumer {
    /// Starts one, and waits until it says a line that begins so.
    pub(crate) fn start(folder: &Path, args: &[&str], says: &str) -> (Self, String) {
        let mut process = Command::new(program())
            .current_dir(folder)
            .args([
                "consume",
                "--directory",
                "directory.json",
                "--memory",
                "uptime.db",
                "--json",
            ])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let mut consumer = Self { process, stderr };
        let (mut said, mut line) = (String::new(), String::new());
        while consumer.stderr.read_line(&mut line).unwrap() > 0 {
            if line.starts_with(says) {
                return (consumer, line.trim_end().to_owned());
            }
            said.push_str(&std::mem::take(&mut line));
        }
        unreachable!("it never said `{says}`, but: {said}")
    }

    /// Asks it to end, and says what it counted.
    pub(crate) fn end(mut self) -> Value {
        let asked = Command::new("kill")
            .arg(self.process.id().to_string())
            .status()
            .unwrap();
        assert!(asked.success());
        let mut counted = String::new();
        self.process
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut counted)
            .unwrap();
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        let status = self.process.wait().unwrap();
        assert!(status.code().is_some(), "{status}: {said}");
        serde_json::from_str(&counted)
            .unwrap_or_else(|error| unreachable!("{error} in {counted}; {said}"))
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Makes a small world in which nothing is lost, and answers the results of one subscription in
/// order.
pub(crate) fn generate(folder: &Path) -> Vec<String> {
    let plan = [
        "--subscriptions",
        "12",
        "--minutes",
        "8",
        "--stall-s",
        "0",
        "--dropped",
        "0",
        "--late",
        "0",
    ];
    let made = Command::new(program())
        .current_dir(folder)
        .args([
            "generate",
            "--out",
            ".",
            "--broken",
            "0",
            "--duplicates",
            "0",
        ])
        .args(plan)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let watched = crate::foretold::watched(&crate::foretold::read(folder, "directory.json"));
    let mut by_key: BTreeMap<String, BTreeMap<i64, String>> = BTreeMap::new();
    for text in results(folder) {
        let result: Value = serde_json::from_str(&text).unwrap();
        let key = result["subscription_id"].as_str().unwrap().to_owned();
        let is_wanted =
            result["region"] != "ap-south" && result["status"] != "disallowed_by_robots";
        if watched.contains(&key) && is_wanted {
            let at = result["scheduled_check_time_ms"].as_i64().unwrap();
            by_key.entry(key).or_default().insert(at, text);
        }
    }
    let longest = by_key.into_values().max_by_key(BTreeMap::len).unwrap();
    longest.into_values().collect()
}

/// All results of a world, as they arrive.
pub(crate) fn results(folder: &Path) -> Vec<String> {
    let trace = fs::read_to_string(folder.join("trace.ndjson")).unwrap();
    let result = |line: &str| {
        let arrival: BTreeMap<String, Box<RawValue>> = serde_json::from_str(line).unwrap();
        arrival["result"].get().to_owned()
    };
    trace.lines().map(result).collect()
}

/// What went on to the analytics.
pub(crate) fn output(folder: &Path) -> String {
    let output = Command::new(program())
        .current_dir(folder)
        .args(["output", "--memory", "uptime.db"])
        .output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}
