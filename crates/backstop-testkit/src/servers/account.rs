//! Who runs a server.

use super::process::NotStarted;
use super::program;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The account a server runs under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Account {
    /// The one the test runs under.
    Own,
    /// `postgres`: its servers refuse to run as root.
    Postgres,
}

impl Account {
    /// For a server that does not run as root.
    pub(super) fn not_root() -> Self {
        // The owner of our entry in /proc is the account we run under.
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        if is_root { Self::Postgres } else { Self::Own }
    }

    /// The words before a program that is to run under this account.
    pub(super) fn prefix(self) -> Vec<String> {
        let words: &[&str] = match self {
            Self::Own => &[],
            Self::Postgres => &[
                "setpriv",
                "--reuid=postgres",
                "--regid=postgres",
                "--clear-groups",
            ],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// A folder of its own.
    pub(super) fn folder(self) -> Result<PathBuf, NotStarted> {
        let made = self.run("mktemp", &["-d", "--tmpdir", "backstop-server-XXXXXXXX"])?;
        Ok(PathBuf::from(made.trim_end()))
    }

    /// Writes a file that only it can read.
    pub(super) fn write(self, path: &Path, content: &[u8]) -> Result<(), NotStarted> {
        let file = path.display().to_string();
        let mut child = self
            .command("sh", &["-c", r#"umask 077; cat >"$0""#, &file])
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|error| NotStarted::Failed(format!("sh: {error}")))?;
        let fed = child.stdin.take().expect("it is piped").write_all(content);
        let ended = fed.and_then(|()| child.wait());
        match ended {
            Ok(status) if status.success() => Ok(()),
            ended => Err(NotStarted::Failed(format!(
                "{file} could not be written: {ended:?}"
            ))),
        }
    }

    /// Runs a program to its end, and returns what it printed.
    pub(super) fn run(self, program: &str, arguments: &[&str]) -> Result<String, NotStarted> {
        program::output(&mut self.command(program, arguments))
    }

    fn command(self, program: &str, arguments: &[&str]) -> Command {
        let mut words = self.prefix();
        words.push(program.to_owned());
        words.extend(arguments.iter().map(|word| (*word).to_owned()));
        let mut command = Command::new(&words[0]);
        // Not where the test runs: that folder may be closed to this account.
        command.args(&words[1..]).current_dir("/");
        command
    }
}
