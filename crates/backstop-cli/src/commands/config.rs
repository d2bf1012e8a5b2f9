//! `backstop config`: the configuration, as it would be used.

use crate::context::Context;
use crate::crew::Crew;
use crate::output::words::counted;
use crate::trouble::{Trouble, Verdict};
use backstop::{Address, Backstop};
use backstop_server::serve::check_certificate;
use clap::Subcommand;
use serde_json::json;

/// The configuration.
#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// Whether it can be used: every key, every handler, schedule, sweep and table, the certificate
    #[command(after_help = "\
Examples:
  backstop config check
  backstop config check --config /etc/backstop.toml && systemctl reload backstop

Starts nothing, opens no store and calls nobody. Exits 2 with line and column if something is wrong.")]
    Check,
}

/// Does what was asked for.
pub(crate) async fn run(command: &ConfigCommand, context: &Context) -> Result<Verdict, Trouble> {
    match command {
        ConfigCommand::Check => check(context).await,
    }
}

async fn check(context: &Context) -> Result<Verdict, Trouble> {
    let config = &context.config;
    check_certificate(&config.server).map_err(Trouble::misuse)?;
    if config.store.kind().is_none() {
        let form = "sqlite:FILE, postgres://…, redis://… or memory:; `backstop --help` shows their forms";
        return Err(Trouble::misuse(format!("{} is not the address of a store", config.store)).advise(form));
    }
    // What is checked knows no store; it only has to be given one.
    let nowhere: Backstop = context.open_at(&Address::new("memory:")).await?;
    Crew::check(&nowhere, config)?;
    let file = context.file().map(|path| path.display().to_string());
    let handled = config.queues.values().filter(|queue| queue.handler.is_some()).count();
    if context.output.is_json() {
        context.output.json(&json!({
            "valid": true,
            "file": file,
            "store": config.store.to_string(),
            "listen": config.server.listen,
            "queues": config.queues.len(),
            "handlers": handled,
            "streams": config.streams.len(),
            "tables": config.tables.len(),
            "schedules": config.schedules.len(),
            "sweeps": config.sweeps.len(),
        }))?;
        return Ok(Verdict::Fine);
    }
    let number = |count: usize, word| counted(count as u64, word);
    let parts = [
        number(config.queues.len(), "queue"),
        format!("{handled} with a handler"),
        number(config.streams.len(), "stream"),
        number(config.tables.len(), "table"),
        number(config.schedules.len(), "schedule"),
        number(config.sweeps.len(), "sweep"),
    ];
    let file = file.unwrap_or_else(|| "no file, so the defaults".to_owned());
    context.output.line(format!("{file}: can be used; {}", parts.join(", ")))?;
    Ok(Verdict::Fine)
}
