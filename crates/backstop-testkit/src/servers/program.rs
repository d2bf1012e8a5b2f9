//! Where the servers' programs are, and running one to its end.
//!
//! | variable | what it names | instead of |
//! |---|---|---|
//! | `BACKSTOP_POSTGRES_BIN` | the folder with `postgres` and `initdb` | the newest PostgreSQL that is installed |
//! | `BACKSTOP_REDIS_SERVER` | the program `redis-server` | the one in the path |
//!
//! So the tests run on other versions than the installed ones (`scripts/oldest-servers`). The
//! clients stay: theirs is no behaviour that is tested.

use super::process::NotStarted;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The script that installs what is missing.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/servers");
/// Debian keeps each version of PostgreSQL in a folder of its own here.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";
/// Names the folder of the PostgreSQL to start.
const POSTGRES_VARIABLE: &str = "BACKSTOP_POSTGRES_BIN";
/// Names the Redis to start.
const REDIS_VARIABLE: &str = "BACKSTOP_REDIS_SERVER";

/// The program of this name, installed if it has to be.
pub(super) fn find(name: &str) -> Result<String, NotStarted> {
    if let Some((variable, program)) = chosen(name, env::var_os) {
        return absolute(variable, &program);
    }
    if let Some(path) = look_for(name) {
        return Ok(path);
    }
    let installed = install();
    look_for(name).ok_or_else(|| {
        NotStarted::Failed(format!(
            "`{name}` is missing; run scripts/servers, which says: {installed}"
        ))
    })
}

/// What a program printed, if it succeeded.
pub(super) fn output(command: &mut Command) -> Result<String, NotStarted> {
    let output = command
        .output()
        .map_err(|error| NotStarted::Failed(format!("{command:?}: {error}")))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(NotStarted::Failed(format!(
        "{command:?} failed: {printed}{complaint}"
    )))
}

/// The program that somebody chose for a server, and by which variable. There is no other then:
/// tests that quietly ran on another version would prove nothing.
fn chosen(
    name: &str,
    variable: impl Fn(&'static str) -> Option<OsString>,
) -> Option<(&'static str, PathBuf)> {
    match name {
        "postgres" | "initdb" => Some((
            POSTGRES_VARIABLE,
            Path::new(&variable(POSTGRES_VARIABLE)?).join(name),
        )),
        "redis-server" => Some((REDIS_VARIABLE, variable(REDIS_VARIABLE)?.into())),
        _ => None,
    }
}

/// Servers are started in another folder than the tests.
fn absolute(variable: &str, program: &Path) -> Result<String, NotStarted> {
    let found = program
        .canonicalize()
        .ok()
        .filter(|program| program.is_file());
    let missing = || {
        NotStarted::Failed(format!(
            "{variable}: there is no program {}",
            program.display()
        ))
    };
    Ok(found.ok_or_else(missing)?.display().to_string())
}

fn look_for(name: &str) -> Option<String> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Programs for administrators are not in everybody's path.
    let folders = postgres_folder()
        .into_iter()
        .chain(env::split_paths(&path))
        .chain(["/usr/sbin".into()]);
    let program = folders
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())?;
    Some(program.display().to_string())
}

/// The programs of the newest PostgreSQL.
fn postgres_folder() -> Option<PathBuf> {
    let versions = Path::new(POSTGRES_VERSIONS).read_dir().ok()?;
    let newest = versions
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .max()?;
    Some(
        Path::new(POSTGRES_VERSIONS)
            .join(newest.to_string())
            .join("bin"),
    )
}

/// Runs the script once in this process, and returns what it had to say.
fn install() -> &'static str {
    static SAID: OnceLock<String> = OnceLock::new();
    SAID.get_or_init(|| match output(&mut Command::new(SCRIPT)) {
        Ok(said) => said,
        Err(failed) => failed.to_string(),
    })
}

#[cfg(test)]
mod tests;
