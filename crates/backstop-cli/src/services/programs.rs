//! Whether the programs of handlers are there, asked before anything is started: one that is not
//! would take every job back, or to its death.

use crate::error::CliError;
use backstop::config::{Config, DEFAULT_FILE, HandlerConfig};

/// Refuses a handler whose program cannot be started; `what` is it for, such as `queue emails`.
pub(crate) fn check(what: &str, handler: &HandlerConfig) -> Result<(), CliError> {
    let HandlerConfig::Exec(exec) = handler else {
        return Ok(());
    };
    exec.check().map_err(|problem| {
        let mend = "correct the command, or start it where its program is";
        CliError::misuse(format!(
            "the handler of {what} cannot be started: {problem}"
        ))
        .advise(format!(
            "{mend}; backstop config check tells of every handler in {DEFAULT_FILE}"
        ))
    })
}

/// The same for all handlers of a configuration.
pub(super) fn check_all(config: &Config) -> Result<(), CliError> {
    check_handlers(config, |_| true)
}

/// The same for those of its tables.
pub(crate) fn check_tables(config: &Config) -> Result<(), CliError> {
    check_handlers(config, |section| section == "tables")
}

fn check_handlers(config: &Config, wanted: impl Fn(&str) -> bool) -> Result<(), CliError> {
    for ([section, name], handler) in config
        .handlers()
        .into_iter()
        .filter(|([section, _], _)| wanted(section))
    {
        check(
            &format!("{} {name}", section.trim_end_matches('s')),
            handler,
        )?;
    }
    Ok(())
}
