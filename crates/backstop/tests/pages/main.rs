//! README and the pages of `docs/`: README is short, its program runs, and links lead somewhere.

#![cfg(feature = "sqlite")]
#![expect(clippy::expect_used, reason = "in a test, a panic is how to say no")]

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

const WORDS_MAX: usize = 1_200;
const PROGRAM_WITHIN: usize = 450;
const PROGRAM: &str = include_str!("program.rs");

/// The program of README as it stands there.
mod program {
    #![expect(clippy::print_stdout, reason = "README shows what a handler prints")]

    include!("program.rs");

    pub(super) fn run() -> Result<(), Box<dyn std::error::Error>> {
        main()
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("the page is there")
}

fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

#[test]
fn readme_is_short_and_begins_with_a_whole_program() {
    let readme = read(&root().join("README.md"));
    assert!(
        words(&readme) <= WORDS_MAX,
        "README has {} words",
        words(&readme)
    );
    let (before, rest) = readme
        .split_once("```rust\n")
        .expect("README has a program");
    let (program, _) = rest.split_once("```").expect("the program ends");
    assert_eq!(
        program, PROGRAM,
        "tests/pages/program.rs is the program of README"
    );
    let until = words(before) + words(program);
    assert!(
        until <= PROGRAM_WITHIN,
        "the program ends after {until} words"
    );
}

/// Started by the test below, in a process and a folder of its own.
#[test]
#[ignore = "runs until Ctrl-C"]
fn the_program() {
    // A Ctrl-C that comes before the program listens for it must not kill the process.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let listen = async { signal(SignalKind::interrupt()).map(drop) };
    runtime
        .expect("a runtime")
        .block_on(listen)
        .expect("signals can be heard");
    program::run().expect("the program of README runs");
}

#[test]
fn the_program_of_readme_runs_its_job_and_stops_on_ctrl_c() {
    let folder = tempfile::tempdir().expect("a folder");
    let this = std::env::current_exe().expect("this test has a path");
    let mut child = Command::new(this)
        .args(["--exact", "the_program", "--ignored", "--nocapture"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it has a stdout")).lines();
    let told = "attempt 1 for ada@example.org";
    let ran = lines.any(|line| line.is_ok_and(|line| line.contains(told)));
    assert!(ran, "the program ended before its handler ran");
    // Repeated, since one that comes before the program listens is lost.
    let status = loop {
        kill_process(Pid::from_child(&child), Signal::INT).expect("it is not reaped yet");
        std::thread::sleep(Duration::from_millis(20));
        if let Some(status) = child.try_wait().expect("it is ours") {
            break status;
        }
    };
    assert!(status.success(), "{status}");
}

/// Every page that people read.
fn pages() -> Vec<PathBuf> {
    let (root, mut pages) = (root(), Vec::new());
    for folder in [root.clone(), root.join("docs"), root.join("docs/workers")] {
        let entries = std::fs::read_dir(folder).expect("a folder");
        pages.extend(entries.map(|entry| entry.expect("an entry").path()));
    }
    pages.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    pages
}

/// A page without its examples.
fn prose(page: &str) -> String {
    page.split("```").step_by(2).collect()
}

/// What GitHub calls a heading in a link.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().replace(' ', "-")
}

fn anchors(page: &Path) -> Vec<String> {
    let prose = prose(&read(page));
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#')))
        .collect()
}

/// Whether a link of a page leads to a file, and to a heading in it if it names one.
fn leads_somewhere(page: &Path, link: &str) -> bool {
    let (file, heading) = link
        .split_once('#')
        .map_or((link, None), |(file, at)| (file, Some(at)));
    let folder = page.parent().expect("a page is in a folder");
    let target = if file.is_empty() {
        page.to_owned()
    } else {
        folder.join(file)
    };
    target.exists() && heading.is_none_or(|at| anchors(&target).iter().any(|known| known == at))
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let (mut seen, mut broken) = (0, Vec::new());
    for page in pages() {
        for rest in prose(&read(&page)).split("](").skip(1) {
            let link = rest.split(')').next().unwrap_or_default();
            if link.contains("://") {
                continue;
            }
            seen += 1;
            if !leads_somewhere(&page, link) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(seen > 40, "only {seen} links were found");
}
