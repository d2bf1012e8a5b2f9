//! Whether a program is there, where the system looks for it when it is started: a path as it is,
//! relative to where this process works; a bare name in the folders of `PATH`.

use rustix::fs::{Access, access};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the system looks without a `PATH`.
const PATH_USUAL: &str = "/bin:/usr/bin";

/// A program that cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidExec {
    /// It is in no folder of `PATH`.
    #[error("there is no program `{0}` in PATH ({1}); give its path, or install it")]
    NotInPath(String, String),
    /// There is no such file.
    #[error(
        "there is no file {0} (looked for from {1}); a relative path counts from where the worker is started"
    )]
    NoFile(String, String),
    /// It is there, and is no program.
    #[error("{0} cannot be executed; chmod +x it, or name the program that runs it in front")]
    NotExecutable(String),
}

pub(super) fn check(program: &OsStr, path: Option<&OsStr>) -> Result<(), InvalidExec> {
    let shown = |path: &Path| path.display().to_string();
    let written = Path::new(program);
    if program.as_encoded_bytes().contains(&b'/') {
        let here =
            || std::env::current_dir().map_or_else(|_| "here".to_owned(), |here| shown(&here));
        return match FileStatus::of(written) {
            FileStatus::Program => Ok(()),
            FileStatus::NotExecutable => Err(InvalidExec::NotExecutable(shown(written))),
            FileStatus::Missing => Err(InvalidExec::NoFile(shown(written), here())),
        };
    }
    let path = path.unwrap_or_else(|| OsStr::new(PATH_USUAL));
    // An empty part of it is where this process works.
    let candidates: Vec<PathBuf> = std::env::split_paths(path)
        .map(|folder| folder.join(program))
        .collect();
    if candidates
        .iter()
        .any(|file| FileStatus::of(file) == FileStatus::Program)
    {
        return Ok(());
    }
    match candidates
        .iter()
        .find(|file| FileStatus::of(file) == FileStatus::NotExecutable)
    {
        Some(file) => Err(InvalidExec::NotExecutable(shown(file))),
        None => Err(InvalidExec::NotInPath(
            shown(written),
            path.to_string_lossy().into_owned(),
        )),
    }
}

/// Checks what a line for the shell begins with, where that is plainly a program: a path as it is;
/// a bare name by asking the shell, which alone knows its own words. A line that begins with
/// anything else is the shell's affair.
pub(super) fn check_line(line: &OsStr) -> Result<(), InvalidExec> {
    let Some(word) = line.to_str().and_then(first_word) else {
        return Ok(());
    };
    if word.contains('/') {
        return check(OsStr::new(word), None);
    }
    let output = Command::new("sh")
        .args(["-c", "command -v \"$1\"", "sh", word])
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(answer) if !answer.status.success() => {
            let path = std::env::var_os("PATH").unwrap_or_else(|| PATH_USUAL.into());
            Err(InvalidExec::NotInPath(
                word.to_owned(),
                path.to_string_lossy().into_owned(),
            ))
        }
        // A shell that does not answer is no reason to refuse a line.
        _ => Ok(()),
    }
}

/// The first word of a line, unless the shell would make something else of it.
fn first_word(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-./+".contains(letter);
    let (word, rest) = line.split_at(line.find(|letter| !is_plain(letter)).unwrap_or(line.len()));
    let ends = rest
        .chars()
        .next()
        .is_none_or(|next| next.is_whitespace() || ";|&".contains(next));
    // `name ()` defines what it names.
    let is_defined = rest.trim_start().starts_with('(');
    (ends && !is_defined && word.starts_with(|letter: char| letter != '-')).then_some(word)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FileStatus {
    Program,
    NotExecutable,
    Missing,
}

impl FileStatus {
    fn of(file: &Path) -> Self {
        match file.metadata() {
            Ok(found) if found.is_file() && access(file, Access::EXEC_OK).is_ok() => Self::Program,
            Ok(_) => Self::NotExecutable,
            Err(_) => Self::Missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_program_is_looked_for_as_it_would_be_started() {
        let folder = tempfile::tempdir().unwrap();
        let (program, text) = (folder.path().join("run-me"), folder.path().join("read-me"));
        for (file, mode) in [(&program, 0o755), (&text, 0o644)] {
            std::fs::write(file, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = std::env::join_paths([Path::new("/nowhere"), folder.path()]).unwrap();
        let found = |program: &Path| {
            check(program.as_os_str(), Some(&path)).map_err(|error| error.to_string())
        };
        assert_eq!(found(&program), Ok(()));
        assert_eq!(found(Path::new("run-me")), Ok(()));
        assert!(
            found(&text)
                .unwrap_err()
                .contains("read-me cannot be executed")
        );
        assert!(
            found(Path::new("read-me"))
                .unwrap_err()
                .contains("read-me cannot be executed")
        );
        assert!(
            found(folder.path())
                .unwrap_err()
                .contains("cannot be executed"),
            "a folder is no program"
        );
        assert!(
            found(Path::new("no-such"))
                .unwrap_err()
                .contains("`no-such` in PATH (/nowhere")
        );
        assert!(
            found(Path::new("./no-such"))
                .unwrap_err()
                .contains("no file ./no-such (looked for from /")
        );
        assert_eq!(check(OsStr::new("sh"), None), Ok(()));
    }

    #[test]
    fn a_line_for_the_shell_is_checked_where_it_begins_with_a_program() {
        let found = |line: &str| check_line(OsStr::new(line)).map_err(|error| error.to_string());
        for good in [
            "",
            "exit 0",
            "true; no-such-program",
            "[ -e x ] && exit 0",
            "if true; then exit 3; fi",
            "NAME=value no-such-program",
            "no-such-program() { true; }; no-such-program",
            "no-such-program () { true; }",
            "\"./no such\" x",
            "$HOME/no-such",
            "> seen cat",
            "/bin/sh -c true",
        ] {
            assert_eq!(found(good), Ok(()), "{good}");
        }
        assert!(
            found("./no-such --flag")
                .unwrap_err()
                .contains("no file ./no-such (looked for from /")
        );
        assert!(
            found("/etc/passwd")
                .unwrap_err()
                .contains("cannot be executed")
        );
        assert!(
            found(" no-such-program | cat")
                .unwrap_err()
                .contains("`no-such-program` in PATH")
        );
    }
}
