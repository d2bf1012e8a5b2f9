//! Where the servers' programs are, and running one to its end.

use super::process::NotStarted;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The script that installs what is missing.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/servers");
/// Debian keeps each version of PostgreSQL in a folder of its own here.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";

/// The program of this name, installed if it has to be.
pub(super) fn find(name: &str) -> Result<String, NotStarted> {
    if let Some(path) = look_for(name) {
        return Ok(path);
    }
    let installed = install();
    look_for(name).ok_or_else(|| {
        NotStarted::Failed(format!("`{name}` is missing; run scripts/servers, which says: {installed}"))
    })
}

/// What a program printed, if it succeeded.
pub(super) fn output(command: &mut Command) -> Result<String, NotStarted> {
    let output = command.output().map_err(|error| NotStarted::Failed(format!("{command:?}: {error}")))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(NotStarted::Failed(format!("{command:?} failed: {printed}{complaint}")))
}

fn look_for(name: &str) -> Option<String> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Programs for administrators are not in everybody's path.
    let folders = postgres_folder().into_iter().chain(env::split_paths(&path)).chain(["/usr/sbin".into()]);
    let program = folders.map(|folder| folder.join(name)).find(|program| program.is_file())?;
    Some(program.display().to_string())
}

/// The programs of the newest PostgreSQL.
fn postgres_folder() -> Option<PathBuf> {
    let versions = Path::new(POSTGRES_VERSIONS).read_dir().ok()?;
    let newest = versions.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok()).max()?;
    Some(Path::new(POSTGRES_VERSIONS).join(newest.to_string()).join("bin"))
}

/// Runs the script once in this process, and returns what it had to say.
fn install() -> &'static str {
    static SAID: OnceLock<String> = OnceLock::new();
    SAID.get_or_init(|| match output(&mut Command::new(SCRIPT)) {
        Ok(said) => said,
        Err(failed) => failed.to_string(),
    })
}
