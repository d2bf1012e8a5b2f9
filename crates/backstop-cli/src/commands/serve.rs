//! `backstop serve`: the HTTP API, the dashboard, and everything the configuration gives a handler,
//! in one process.

use super::work::serve::StopSignals;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus, worker_refused};
use crate::services::ConfiguredServices;
use backstop::Backstop;
use backstop::config::{Config, ServerTransport};
use backstop_server::App;
use backstop_server::serve::{RunningServer, ServeError, Server};
use clap::Args;
use serde_json::json;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long after the store refused the worker another one is tried.
const RETRY_EVERY: Duration = Duration::from_mins(1);

/// Where.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  backstop serve                                       on 127.0.0.1:7007, for this machine
  backstop serve --store postgres://app@db/shop        several servers may share a store
  backstop serve --base /backstop                      under a path, behind a proxy

Serves the API under /v1, the dashboard at /, /metrics for Prometheus, /healthz and /readyz; runs the handlers, schedules, sweeps,
tables and streams of backstop.toml; makes due jobs ready and takes over what dead workers left, also those over HTTP.

For others than this machine:
  backstop token create --scope admin --name ada       a token, shown once; scopes: push, work, read, admin
  [server]
  listen = \"0.0.0.0:7007\"
  tls = { cert = \"cert.pem\", key = \"key.pem\" }         or plain_http = true, behind a proxy that has TLS
  origins = [\"https://jobs.example.org\"]               where browsers find it, if the proxy changes the Host header

SIGHUP reads the configuration and the certificate again; a bad one is refused and the old one stays in force. The worker is then another
one: what an operator asked of the one before, such as to be quiet, is over. If the store refuses the worker for good, the API and the
dashboard go on, and another worker is tried every minute; at the start it is an error. Ctrl-C or SIGTERM lets
running jobs end, for `grace` (30s) at most; meanwhile requests are answered, and `/readyz` says no. A second one calls all off and gives
the jobs back.")]
pub(crate) struct ServeArgs {
    /// Where to listen.
    #[arg(
        long,
        value_name = "ADDR",
        help = "Where to listen [default: 127.0.0.1:7007] [env: BACKSTOP_LISTEN]"
    )]
    listen: Option<String>,
    /// The path in front of every address.
    #[arg(
        long,
        value_name = "PATH",
        help = "The path in front of every address, such as /backstop [env: BACKSTOP_BASE]"
    )]
    base: Option<String>,
}

/// Serves until it is told to stop.
pub(crate) async fn run(args: &ServeArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let config = context.reload_config(args.listen.clone(), args.base.clone())?;
    let backstop = context.open_at(&config.store).await?;
    // From here on a signal ends things in good order.
    let (signals, hangups) = (StopSignals::listen()?, signal(SignalKind::hangup())?);
    let app = App::new(backstop.clone(), config.clone(), &config.server.base);
    let server = Server::bind(&app)
        .await
        .map_err(|error| serve_error(error, &config))?;
    let services = ConfiguredServices::start(&backstop, &config).await?;
    let serving = server.start();
    announce(&serving, &config, context)?;
    announce_services(&services, &config, context);
    let serve_loop = ServeLoop {
        args,
        context,
        backstop,
        app,
        serving,
        services: Some(services),
        was_served: false,
        start_at: None,
        retired: JoinSet::new(),
        force: CancellationToken::new(),
    };
    serve_loop.run(signals, hangups).await
}

struct ServeLoop<'a> {
    args: &'a ServeArgs,
    context: &'a CliContext,
    backstop: Backstop,
    app: App,
    serving: RunningServer,
    /// Who works by the configuration; nobody while the store refuses that.
    services: Option<ConfiguredServices>,
    /// Whether the store ever let somebody work.
    was_served: bool,
    /// When to try again, if nobody works.
    start_at: Option<Instant>,
    /// Those that work by configurations of before, until what they run has ended.
    retired: JoinSet<()>,
    force: CancellationToken,
}

impl ServeLoop<'_> {
    async fn run(
        mut self,
        mut signals: StopSignals,
        mut hangups: Signal,
    ) -> Result<ExitStatus, CliError> {
        let result = loop {
            tokio::select! {
                () = signals.next() => break Ok(ExitStatus::Success),
                Some(()) = hangups.recv() => self.reload().await,
                () = services_ended(&mut self.services) => {
                    if let Some(end) = self.on_worker_end() {
                        break end;
                    }
                }
                () = sleep_until_retry(self.start_at) => self.restart_services().await,
                Some(_) = self.retired.join_next() => {}
            }
        };
        self.close(signals).await;
        result
    }

    /// Goes on without the crew that has ended, or ends with this.
    fn on_worker_end(&mut self) -> Option<Result<ExitStatus, CliError>> {
        let services = self.services.take()?;
        self.was_served |= services.was_served();
        let (by_operator, refused_by_store) =
            (services.was_stopped_by_operator(), services.refusal());
        self.retired.spawn(services.shut_down(self.force.clone()));
        let output = &self.context.output;
        match (by_operator, refused_by_store) {
            (true, _) if self.run_housekeeping_only() => None,
            (false, Some(error)) if self.was_served => {
                // The API and the dashboard have done nothing wrong, and rights come back.
                let cli_error = worker_refused(&error, &self.app.config().store);
                output.warn(format!(
                    "{}; the server goes on, and nothing of the configuration runs. It is tried again every minute, and at once on SIGHUP",
                    cli_error.cause()
                ));
                self.start_at = Some(Instant::now() + RETRY_EVERY);
                None
            }
            (_, error) => {
                output.warn("the worker ended unexpectedly; the server stops with it");
                let store = &self.app.config().store;
                Some(error.map_or(Ok(ExitStatus::Failure), |error| {
                    Err(worker_refused(&error, store))
                }))
            }
        }
    }

    /// Has the configuration worked on again, after the store refused that.
    async fn restart_services(&mut self) {
        self.start_at = None;
        match ConfiguredServices::start(&self.backstop, &self.app.config()).await {
            Ok(services) => self.services = Some(services),
            Err(error) => {
                self.context
                    .output
                    .warn(format!("the worker does not start: {}", error.cause()));
                self.start_at = Some(Instant::now() + RETRY_EVERY);
            }
        }
    }

    /// Runs nothing of the configuration any more, since an operator stopped its worker. House is
    /// kept on: workers elsewhere rely on it.
    fn run_housekeeping_only(&mut self) -> bool {
        match ConfiguredServices::start_housekeeping(&self.backstop, &self.app.config()) {
            Ok(services) => self.services = Some(services),
            Err(error) => {
                self.context
                    .output
                    .warn(format!("nobody would keep house: {}", error.cause()));
                return false;
            }
        }
        self.context.output.announce(
            "the worker was asked to stop: the server goes on, keeps house and fires schedules and sweeps; it runs no handlers, tables \
             and streams until SIGHUP or a restart",
        );
        true
    }

    /// Goes on by the configuration as it is written now, if that is good.
    async fn reload(&mut self) {
        match self.reload_services().await {
            Ok(()) => {
                self.context
                    .output
                    .announce("the configuration was read again and is in force");
                if let Some(services) = &self.services {
                    announce_services(services, &self.app.config(), self.context);
                }
            }
            Err(error) => self.context.output.warn(format!(
                "the configuration was read again and refused, the old one stays in force: {}",
                error.cause()
            )),
        }
    }

    async fn reload_services(&mut self) -> Result<(), CliError> {
        let file = self.context.file().map(|path| path.display().to_string());
        let audit = self.backstop.audit("SIGHUP");
        // Before it is read: that it was refused is to be known, too.
        let noted = audit
            .open_entry("config reload", json!({ "file": file }))
            .await?;
        let replaced = match self
            .context
            .reload_config(self.args.listen.clone(), self.args.base.clone())
        {
            Ok(config) => self.apply_config(config).await,
            Err(error) => Err(error),
        };
        let count = u64::from(replaced.is_ok());
        audit
            .record_end(
                noted,
                count,
                replaced
                    .as_ref()
                    .err()
                    .map(|error| error.cause().to_owned()),
            )
            .await;
        replaced
    }

    /// All of it or nothing.
    async fn apply_config(&mut self, config: Config) -> Result<(), CliError> {
        let current = self.app.config();
        let change = self
            .serving
            .prepare(config.clone())
            .await
            .map_err(|error| serve_error(error, &config))?;
        let services = ConfiguredServices::start(&self.backstop, &config).await?;
        self.serving.apply(change);
        self.start_at = None;
        if let Some(before) = self.services.replace(services) {
            self.was_served |= before.was_served();
            self.retired.spawn(before.shut_down(self.force.clone()));
        }
        for what in restart_only_changes(&current, &config) {
            self.context
                .output
                .warn(format!("{what} has changed; that takes a restart"));
        }
        Ok(())
    }

    /// Lets running jobs end, and then requests: workers elsewhere, whose beats and ends came to
    /// nobody meanwhile, would be given up. A second signal calls all of it off.
    async fn close(self, mut signals: StopSignals) {
        let Self {
            context,
            mut serving,
            services,
            mut retired,
            force,
            ..
        } = self;
        context.output.announce(format!(
            "stopping: waiting for running jobs ({} at most) and answering requests meanwhile; Ctrl-C again to give them back now",
            context.config.grace
        ));
        serving.leave();
        if let Some(services) = services {
            retired.spawn(services.shut_down(force.clone()));
        }
        loop {
            tokio::select! {
                () = async {
                    while retired.join_next().await.is_some() {}
                    serving.stop();
                    serving.wait_until_ended().await;
                } => return,
                () = signals.next() => {
                    context.output.announce("stopping at once: running jobs are called off and given back");
                    force.cancel();
                    serving.force();
                }
            }
        }
    }
}

/// Waits for the end of a crew; for ever, if there is none.
async fn services_ended(services: &mut Option<ConfiguredServices>) {
    match services {
        Some(services) => services.ended().await,
        None => std::future::pending().await,
    }
}

/// Waits for a time; for ever, if there is none.
async fn sleep_until_retry(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// What cannot change while the server runs, and has.
fn restart_only_changes(current: &Config, config: &Config) -> Vec<&'static str> {
    let kind =
        |config: &Config| std::mem::discriminant::<ServerTransport>(&config.server.transport);
    let changes = [
        (
            "the store",
            current.store != config.store || current.durability != config.durability,
        ),
        (
            "`listen` of [server]",
            current.server.listen != config.server.listen,
        ),
        (
            "`base` of [server]",
            current.server.base != config.server.base,
        ),
        (
            "`connections_max` of [server]",
            current.server.connections_max != config.server.connections_max,
        ),
        (
            "whether [server] has `tls` or `plain_http`",
            kind(current) != kind(config),
        ),
    ];
    changes
        .into_iter()
        .filter(|(_, has_changed)| *has_changed)
        .map(|(what, _)| what)
        .collect()
}

/// Where it is. What can be relied on `doctor` says: repeated at each start, nobody reads it.
fn announce(
    serving: &RunningServer,
    config: &Config,
    context: &CliContext,
) -> Result<(), CliError> {
    let scheme = if matches!(config.server.transport, ServerTransport::Tls(_)) {
        "https"
    } else {
        "http"
    };
    let (address, base) = (serving.address(), &config.server.base);
    let url = format!("{scheme}://{address}{base}");
    let store = config.store.to_string();
    if context.output.is_json() {
        context
            .output
            .json(&json!({ "url": url, "dashboard": format!("{url}/"), "store": store }))?;
    } else {
        context.output.line(format!(
            "backstop serves {store} at {url}/v1, dashboard at {url}/"
        ))?;
    }
    Ok(())
}

/// What is worked on here, and how soon a dead worker's job runs again. Workers over HTTP choose
/// their leases: no bound can be told for those.
fn announce_services(services: &ConfiguredServices, config: &Config, context: &CliContext) {
    let handled = config
        .queues
        .iter()
        .filter(|(_, queue)| queue.handler.is_some());
    let handled: Vec<&str> = handled.map(|(name, _)| name.as_str()).collect();
    if !handled.is_empty() {
        context.output.announce(format!(
            "handlers of the configuration serve {}",
            handled.join(", ")
        ));
    }
    context.output.announce(format!(
        "a dead worker's job runs again within {}, by the leases of the configuration; a worker over HTTP chooses its own, `lease_ms`",
        services.recovery_bound()
    ));
    services.announce(config, context.output);
}

/// Why it does not start, with what to do.
pub(super) fn serve_error(error: ServeError, config: &Config) -> CliError {
    let encrypt = "tls = { cert = \"cert.pem\", key = \"key.pem\" } in [server], or plain_http = true behind a proxy that has TLS";
    let is_encrypted =
        config.server.transport != ServerTransport::Plain || config.server.is_loopback();
    match error {
        ServeError::NoToken(_) => {
            let token = "backstop token create --scope admin, with the same store";
            let advice = if is_encrypted { token.to_owned() } else { format!("{token}; and {encrypt}") };
            let without = if config.server.is_loopback() {
                "leave `origins` and `plain_http` out of [server], for this machine alone"
            } else {
                "listen on 127.0.0.1, where none is needed"
            };
            CliError::misuse(error).advise(format!("{advice}; or {without}"))
        }
        ServeError::NotEncrypted(_) => {
            CliError::misuse(error).advise(format!("{encrypt}; or listen on 127.0.0.1"))
        }
        ServeError::Certificate(_) => {
            CliError::misuse(error).advise("`tls` in [server] names two PEM files: the certificate with those that vouch for it, and its key")
        }
        ServeError::Store(error) => error.into(),
        ServeError::Address(..) => CliError::new(error).advise("--listen with an address of this machine and a free port"),
        other => CliError::new(other),
    }
}
