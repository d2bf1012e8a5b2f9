//! `backstop config`: the configuration, as it would be used.

use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::words::counted;
use crate::services::ConfiguredServices;
use backstop::config::{HandlerConfig, line_of};
use backstop::{Backstop, StoreAddress};
use backstop_server::serve::{check_certificate, check_encrypted};
use clap::Subcommand;
use serde::Serialize;
use serde_json::json;

/// The configuration.
#[derive(Subcommand, Debug)]
pub(crate) enum ConfigSubcommand {
    /// Whether it can be used: every key, the store's address, every handler, schedule, sweep and
    /// table, the certificate
    #[command(after_help = "\
Examples:
  backstop config check
  backstop config check --config /etc/backstop.toml && systemctl reload backstop

Starts nothing, opens no store and calls nobody. Exits 1, with key and line, if an entry cannot be used: it makes no sense, or
no store can be at its address, or what is listened on for others is not encrypted, or
its handler's program is not there or cannot be executed, looked for as a worker started here would, in PATH or from this folder.
Exits 2 if the file itself, or one that it names, cannot be read.")]
    Check,
}

/// Does what was asked for.
pub(crate) async fn run(
    command: &ConfigSubcommand,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    match command {
        ConfigSubcommand::Check => check(context).await,
    }
}

/// What the file describes well, and could not be used here.
#[derive(Serialize)]
struct ConfigProblem {
    file: String,
    key: String,
    line: Option<usize>,
    problem: String,
}

/// What could not be used: the store, the address that is listened on, handlers whose program is
/// not there.
fn problems(context: &CliContext) -> Vec<ConfigProblem> {
    let path = context.file().unwrap_or_default();
    let (file, text) = (
        path.display().to_string(),
        std::fs::read_to_string(&path).unwrap_or_default(),
    );
    let problem = |keys: &[&str], problem: String| ConfigProblem {
        file: file.clone(),
        key: keys.join("."),
        line: line_of(&text, keys),
        problem,
    };
    let mut problems = Vec::new();
    let config = &context.config;
    if let Err(error) = Backstop::check_address(config.store.as_written(), config.durability) {
        problems.push(problem(&["store", "url"], error.to_string()));
    }
    if let Err(error) = check_encrypted(&config.server) {
        problems.push(problem(&["server", "listen"], error.to_string()));
    }
    for ([section, name], handler) in config.handlers() {
        let HandlerConfig::Exec(exec) = handler else {
            continue;
        };
        if let Err(error) = exec.check() {
            problems.push(problem(
                &[section, name, "handler", "exec"],
                error.to_string(),
            ));
        }
    }
    problems
}

fn print_problems(
    problems: &[ConfigProblem],
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    if context.output.is_json() {
        context
            .output
            .json(&json!({ "valid": false, "problems": problems }))?;
        return Ok(ExitStatus::Failure);
    }
    for ConfigProblem {
        file,
        key,
        line,
        problem,
    } in problems
    {
        let line = line
            .map(|line| format!(", line {line}"))
            .unwrap_or_default();
        context
            .output
            .line(format!("{file}{line}: {key}: {problem}"))?;
    }
    Ok(ExitStatus::Failure)
}

async fn check(context: &CliContext) -> Result<ExitStatus, CliError> {
    let config = &context.config;
    check_certificate(&config.server).map_err(CliError::misuse)?;
    if config.store.kind().is_none() {
        let form =
            "sqlite:FILE, postgres://…, redis://… or memory:; `backstop --help` shows their forms";
        return Err(
            CliError::misuse(format!("{} is not the address of a store", config.store))
                .advise(form),
        );
    }
    // What is checked knows no store; it only has to be given one.
    let nowhere: Backstop = context.open_at(&StoreAddress::new("memory:")).await?;
    ConfiguredServices::check(&nowhere, config)?;
    let problems = problems(context);
    if !problems.is_empty() {
        return print_problems(&problems, context);
    }
    let file = context.file().map(|path| path.display().to_string());
    let handled = config
        .queues
        .values()
        .filter(|queue| queue.handler.is_some())
        .count();
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
        return Ok(ExitStatus::Success);
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
    context
        .output
        .line(format!("{file}: can be used; {}", parts.join(", ")))?;
    Ok(ExitStatus::Success)
}
