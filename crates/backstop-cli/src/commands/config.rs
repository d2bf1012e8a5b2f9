//! `backstop config`: the configuration, as it would be used.

use crate::context::Context;
use crate::crew::Crew;
use crate::output::words::counted;
use crate::trouble::{Trouble, Verdict};
use backstop::config::{HandlerConfig, line_of};
use backstop::{Address, Backstop};
use backstop_server::serve::check_certificate;
use clap::Subcommand;
use serde::Serialize;
use serde_json::json;

/// The configuration.
#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// Whether it can be used: every key, every handler, schedule, sweep and table, the certificate
    #[command(after_help = "\
Examples:
  backstop config check
  backstop config check --config /etc/backstop.toml && systemctl reload backstop

Starts nothing, opens no store and calls nobody. Exits 1, with key and line, if an entry cannot be used: it makes no sense, or
its handler's program is not there or cannot be executed, looked for as a worker started here would, in PATH or from this folder.
Exits 2 if the file itself, or one that it names, cannot be read.")]
    Check,
}

/// Does what was asked for.
pub(crate) async fn run(command: &ConfigCommand, context: &Context) -> Result<Verdict, Trouble> {
    match command {
        ConfigCommand::Check => check(context).await,
    }
}

/// A handler that the file describes well, and that could not be started here.
#[derive(Serialize)]
struct Missing {
    file: String,
    key: String,
    line: Option<usize>,
    problem: String,
}

/// The handlers whose program is not there.
fn missing(context: &Context) -> Vec<Missing> {
    let path = context.file().unwrap_or_default();
    let (file, text) = (path.display().to_string(), std::fs::read_to_string(&path).unwrap_or_default());
    let mut missing = Vec::new();
    for ([section, name], handler) in context.config.handlers() {
        let HandlerConfig::Exec(exec) = handler else { continue };
        if let Err(problem) = exec.check() {
            missing.push(Missing {
                file: file.clone(),
                key: format!("{section}.{name}.handler.exec"),
                line: line_of(&text, &[section, name, "handler", "exec"]),
                problem: problem.to_string(),
            });
        }
    }
    missing
}

fn tell(missing: &[Missing], context: &Context) -> Result<Verdict, Trouble> {
    if context.output.is_json() {
        context.output.json(&json!({ "valid": false, "problems": missing }))?;
        return Ok(Verdict::FallsShort);
    }
    for Missing { file, key, line, problem } in missing {
        let line = line.map(|line| format!(", line {line}")).unwrap_or_default();
        context.output.line(format!("{file}{line}: {key}: {problem}"))?;
    }
    Ok(Verdict::FallsShort)
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
    let missing = missing(context);
    if !missing.is_empty() {
        return tell(&missing, context);
    }
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
