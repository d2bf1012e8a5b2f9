//! The whole of it: a server with its dashboard, and all four systems at work.

use super::play::{self, DemoSession};
use super::{DemoArgs, new_folder, short, show, store_in};
use crate::commands::serve::serve_error;
use crate::commands::work::serve::StopSignals;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::words::count;
use backstop::config::Config;
use backstop::{Backstop, JobState, StoreAddress};
use backstop_server::App;
use backstop_server::serve::{RunningServer, ServeError, Server};
use serde_json::json;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// Ports that are tried one after the other where none was asked for.
const PORTS: u16 = 50;

/// Serves and plays until it is told to stop, or for as long as was asked.
pub(super) async fn run(args: &DemoArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let folder = new_folder()?;
    let address = context
        .named_store
        .clone()
        .unwrap_or_else(|| store_in(&folder));
    let backstop = context.open_at(&address).await?;
    let (mut config, file) = play::config(&folder, &address, backstop.now(), context)?;
    short::refuse_used(&backstop, &address, config.queues.keys()).await?;
    let mut signals = StopSignals::listen()?;
    let mut serving = listen(args, &backstop, &mut config).await?;
    let play = DemoSession::start(&backstop, &address, &config, &folder, &file)?;
    announce(&serving, &address, &file, context)?;
    let enough = async {
        match args.seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = signals.next() => context.output.announce("stopping: what runs may end; once more to end at once"),
        () = enough => {}
    }
    serving.stop();
    let ended = async {
        play.stop().await;
        serving.wait_until_ended().await;
    };
    tokio::select! {
        () = ended => {}
        () = signals.next() => {}
    }
    summary(&backstop, &address, &config, context).await?;
    Ok(ExitStatus::Success)
}

/// Listens where it was asked to, or at the usual port, or at the next one that is free.
async fn listen(
    args: &DemoArgs,
    backstop: &Backstop,
    config: &mut Config,
) -> Result<RunningServer, CliError> {
    if let Some(listen) = args.listen {
        config.server.listen = listen;
    }
    let first = config.server.listen.port();
    let last = if args.listen.is_some() {
        first
    } else {
        first.saturating_add(PORTS)
    };
    loop {
        let app = App::new(backstop.clone(), config.clone(), "");
        match Server::bind(&app).await {
            Ok(server) => return Ok(server.start()),
            Err(ServeError::Address(at, error))
                if error.kind() == ErrorKind::AddrInUse && at.port() < last =>
            {
                config.server.listen.set_port(at.port() + 1);
            }
            Err(error) => return Err(serve_error(error, config)),
        }
    }
}

/// Where to look, and what to try beside it.
fn announce(
    serving: &RunningServer,
    address: &StoreAddress,
    file: &Path,
    context: &CliContext,
) -> Result<(), CliError> {
    let (output, paint) = (context.output, context.output.paint());
    let url = format!("http://{}/", serving.address());
    if output.is_json() {
        return output.json(&json!({ "url": url, "store": address.to_string(), "config": file }));
    }
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "backstop".to_owned());
    let commands = [
        ("top", "the same, in a terminal"),
        ("dead groups", "what was given up, by its cause"),
        ("stream keys uptime --holding", "what waits for its turn"),
        ("schedule runs minutely_report", "what was made up for"),
        (
            "sweep orders --dry-run",
            "what was lost before it was a job",
        ),
        ("table status invoices", "a backlog table, as it is"),
    ];
    let width = commands
        .iter()
        .map(|(arguments, _)| arguments.len())
        .max()
        .unwrap_or_default();
    output.blank()?;
    output.line(format!(
        "{}  {}",
        paint.bold("backstop demo"),
        paint.command(&url)
    ))?;
    output.blank()?;
    output.line("Jobs fail, are tried again and die; records wait for their turn; lost work is found. Ctrl-C ends it.")?;
    output.blank()?;
    output.line(paint.bold("Beside it, in another terminal:"))?;
    for (arguments, what) in commands {
        let command = paint.command(format!(
            "{program} --config {} {arguments:<width$}",
            file.display()
        ));
        output.line(format!("  {command}  {}", paint.dim(format!("# {what}"))))?;
    }
    if address.hides_something() {
        output.line(
            "  each with --store, or BACKSTOP_STORE, as here: who may use the store is not written down.",
        )?;
    }
    Ok(())
}

/// Sums up the demo's queues, and nobody else's.
async fn summary(
    backstop: &Backstop,
    address: &StoreAddress,
    config: &Config,
    context: &CliContext,
) -> Result<(), CliError> {
    let mut queues = backstop.store().queues(backstop.now()).await?;
    queues.retain(|queue| config.queues.contains_key(&queue.name));
    let done: u64 = queues.iter().map(|queue| queue.totals.done).sum();
    let dead: u64 = queues
        .iter()
        .map(|queue| queue.counts.of(JobState::Dead))
        .sum();
    let lost: u64 = queues.iter().map(show::lost).sum();
    if context.output.is_json() {
        return context
            .output
            .json(&json!({ "done": done, "dead": dead, "lost": lost }));
    }
    let (done, dead) = (count(done), count(dead));
    let lost = if lost == 0 {
        "none".to_owned()
    } else {
        count(lost)
    };
    context.output.blank()?;
    context.output.line(format!(
        "{done} jobs done, {dead} dead, {lost} lost. All of it is in {address}"
    ))
}
