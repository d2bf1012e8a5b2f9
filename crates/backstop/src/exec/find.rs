//! Whether a program is there, where the system looks for it when it is started: a path as it is, relative to where this process works; a
//! bare name in the folders of `PATH`.

use rustix::fs::{Access, access};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Where the system looks without a `PATH`.
const PATH_USUAL: &str = "/bin:/usr/bin";

/// A program that cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadExec {
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

pub(super) fn check(program: &OsStr, path: Option<&OsStr>) -> Result<(), BadExec> {
    let shown = |path: &Path| path.display().to_string();
    let written = Path::new(program);
    if program.as_encoded_bytes().contains(&b'/') {
        let here = || std::env::current_dir().map_or_else(|_| "here".to_owned(), |here| shown(&here));
        return match Standing::of(written) {
            Standing::Program => Ok(()),
            Standing::NoProgram => Err(BadExec::NotExecutable(shown(written))),
            Standing::Nothing => Err(BadExec::NoFile(shown(written), here())),
        };
    }
    let path = path.unwrap_or_else(|| OsStr::new(PATH_USUAL));
    // An empty part of it is where this process works.
    let candidates: Vec<PathBuf> = std::env::split_paths(path).map(|folder| folder.join(program)).collect();
    if candidates.iter().any(|file| Standing::of(file) == Standing::Program) {
        return Ok(());
    }
    match candidates.iter().find(|file| Standing::of(file) == Standing::NoProgram) {
        Some(file) => Err(BadExec::NotExecutable(shown(file))),
        None => Err(BadExec::NotInPath(shown(written), path.to_string_lossy().into_owned())),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Program,
    NoProgram,
    Nothing,
}

impl Standing {
    fn of(file: &Path) -> Self {
        match file.metadata() {
            Ok(found) if found.is_file() && access(file, Access::EXEC_OK).is_ok() => Self::Program,
            Ok(_) => Self::NoProgram,
            Err(_) => Self::Nothing,
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
        let found =
            |program: &Path| check(program.as_os_str(), Some(&path)).map_err(|error| error.to_string());
        assert_eq!(found(&program), Ok(()));
        assert_eq!(found(Path::new("run-me")), Ok(()));
        assert!(found(&text).unwrap_err().contains("read-me cannot be executed"));
        assert!(found(Path::new("read-me")).unwrap_err().contains("read-me cannot be executed"));
        assert!(found(folder.path()).unwrap_err().contains("cannot be executed"), "a folder is no program");
        assert!(found(Path::new("no-such")).unwrap_err().contains("`no-such` in PATH (/nowhere"));
        assert!(found(Path::new("./no-such")).unwrap_err().contains("no file ./no-such (looked for from /"));
        assert_eq!(check(OsStr::new("sh"), None), Ok(()));
    }
}
