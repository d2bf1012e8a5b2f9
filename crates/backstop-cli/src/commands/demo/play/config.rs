//! What the demo runs by: a configuration as anybody would write it.

use crate::context::CliContext;
use crate::error::CliError;
use backstop::config::{self, Config, ConfigFile, ConfigOverrides};
use backstop::{Span, StoreAddress, Time};
use std::path::{Path, PathBuf};

const TEMPLATE: &str = include_str!("backstop.toml");

/// The tables of the demo's own application.
pub(super) fn app_file(folder: &Path) -> PathBuf {
    folder.join("app.db")
}

/// The demo's configuration; also left in `folder`, so that commands can be tried by it.
pub(in crate::commands::demo) fn config(
    folder: &Path,
    address: &StoreAddress,
    now: Time,
    context: &CliContext,
) -> Result<(Config, PathBuf), CliError> {
    let text = written(folder, address, now);
    let file = folder.join(config::DEFAULT_FILE);
    std::fs::write(&file, &text)?;
    let path = file.display().to_string();
    let flags = ConfigOverrides {
        store: Some(address.clone()),
        durability: Some(context.config.durability),
        ..ConfigOverrides::default()
    };
    let config = config::resolve(
        Some(ConfigFile {
            path: &path,
            text: &text,
        }),
        ConfigOverrides::default(),
        flags,
    )?;
    Ok((config, file))
}

fn written(folder: &Path, address: &StoreAddress, now: Time) -> String {
    let app = format!("sqlite:{}", app_file(folder).display());
    // Secrets are not left in files: then the store has to be named with every command.
    let store = if address.hides_something() { "#" } else { "" };
    TEMPLATE
        .replace("{store}", &format!("{store}url = \"{address}\""))
        .replace("{app}", &app)
        .replace("{minutes_ago}", &now.before(Span::minutes(40)).to_string())
        .replace("{days_ago}", &now.before(Span::days(6)).to_string())
}
