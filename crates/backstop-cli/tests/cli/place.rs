//! A folder of its own for every test, and the commands run in it.

use serde_json::Value;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than anything here takes, shorter than anybody's patience.
const PATIENCE: Duration = Duration::from_mins(1);

/// A folder with a store that no other test knows.
pub(crate) struct Place {
    folder: TempDir,
    /// The store of its commands; the usual file in the folder if there is none.
    store: Option<String>,
}

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            store: None,
        }
    }

    /// With commands that use the store at `address`.
    pub(crate) fn at(address: String) -> Self {
        Self {
            store: Some(address),
            ..Self::new()
        }
    }

    /// The address of its store.
    pub(crate) fn store(&self) -> String {
        self.store
            .clone()
            .unwrap_or_else(|| "sqlite:backstop.db".to_owned())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// A command that sees nothing of the environment the tests run in.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_backstop"));
        command
            .args(args)
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        for name in [
            "BACKSTOP_STORE",
            "BACKSTOP_DURABILITY",
            "BACKSTOP_LOG",
            "TRACEPARENT",
            "RUST_LOG",
            "NO_COLOR",
        ] {
            command.env_remove(name);
        }
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("OTEL_"))
        {
            command.env_remove(name);
        }
        command.envs(self.store.iter().map(|address| ("BACKSTOP_STORE", address)));
        command
    }

    pub(crate) fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Answer {
        answer(self.command(args).output().unwrap())
    }

    /// Runs with this on stdin.
    pub(crate) fn feed<A: AsRef<OsStr>>(
        &self,
        input: &[u8],
        args: impl IntoIterator<Item = A>,
    ) -> Answer {
        std::fs::write(self.path("stdin"), input).unwrap();
        let stdin = std::fs::File::open(self.path("stdin")).unwrap();
        answer(self.command(args).stdin(stdin).output().unwrap())
    }

    /// Runs with `--json`, expects success, answers what came out.
    pub(crate) fn json<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Value {
        self.run(json_args(args)).succeeded().json()
    }

    /// Starts without waiting for the end.
    pub(crate) fn start<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Child {
        self.command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// The number of jobs of a queue in a state.
    pub(crate) fn count(&self, queue: &str, state: &str) -> u64 {
        let list = self.json(["queue", "list"]);
        let queues = list["queues"].as_array().unwrap();
        let found = queues.iter().find(|entry| entry["name"] == queue);
        found.map_or(0, |entry| entry[state].as_u64().unwrap())
    }

    /// One job.
    pub(crate) fn job(&self, id: &str) -> Value {
        self.json(["job", "show", id])
    }
}

/// The same command, for a program to read.
pub(crate) fn json_args<A: AsRef<OsStr>>(
    args: impl IntoIterator<Item = A>,
) -> Vec<std::ffi::OsString> {
    std::iter::once("--json".into())
        .chain(args.into_iter().map(|arg| arg.as_ref().to_owned()))
        .collect()
}

fn answer(output: Output) -> Answer {
    Answer {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Answer {
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    pub(crate) fn succeeded(self) -> Self {
        self.exits(0)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// Refused, with the cause and the next step on stderr, and no dump.
    pub(crate) fn complains(self, code: i32, parts: &[&str]) -> Self {
        let answer = self.exits(code);
        for part in parts {
            assert!(
                answer.stderr.contains(part),
                "{part:?} is missing: {answer:#?}"
            );
        }
        for dump in ["panicked", "RUST_BACKTRACE", "Err(", "Some("] {
            assert!(
                !answer.stderr.contains(dump),
                "{dump:?} is a dump: {answer:#?}"
            );
        }
        answer
    }
}

/// So many lines, each a payload of its own.
pub(crate) fn lines(count: u64) -> String {
    (0..count)
        .map(|n| format!("{{\"n\":{n}}}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Looks again and again until it is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} did not come to pass");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for a process to end by itself.
pub(crate) fn ended(mut child: Child) -> Answer {
    wait_until("the end of the process", || {
        child.try_wait().unwrap().is_some()
    });
    answer(child.wait_with_output().unwrap())
}

/// Waits for a process that takes its time.
pub(crate) fn finished(child: Child) -> Answer {
    answer(child.wait_with_output().unwrap())
}

/// Sends a signal by its name.
pub(crate) fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}
