//! `backstop serve`: the HTTP API, the dashboard, and everything the configuration gives a handler,
//! in one process.

use super::work::serve::Signals;
use crate::context::Context;
use crate::crew::Crew;
use crate::trouble::{Trouble, Verdict, refused};
use backstop::Backstop;
use backstop::config::{Config, Transport};
use backstop_server::App;
use backstop_server::serve::{CannotServe, Server, Serving};
use clap::Args;
use serde_json::json;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long after the store refused the worker another one is tried.
const AGAIN: Duration = Duration::from_mins(1);

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
pub(crate) async fn run(args: &ServeArgs, context: &Context) -> Result<Verdict, Trouble> {
    let config = context.read_again(args.listen.clone(), args.base.clone())?;
    let backstop = context.open_at(&config.store).await?;
    // From here on a signal ends things in good order.
    let (signals, hangups) = (Signals::listen()?, signal(SignalKind::hangup())?);
    let app = App::new(backstop.clone(), config.clone(), &config.server.base);
    let server = Server::bind(&app)
        .await
        .map_err(|error| unserved(error, &config))?;
    let crew = Crew::start(&backstop, &config).await?;
    let serving = server.start();
    announce(&serving, &config, context)?;
    announce_crew(&crew, &config, context);
    let house = House {
        args,
        context,
        backstop,
        app,
        serving,
        crew: Some(crew),
        was_served: false,
        start_at: None,
        retired: JoinSet::new(),
        force: CancellationToken::new(),
    };
    house.keep(signals, hangups).await
}

/// What is under way.
struct House<'a> {
    args: &'a ServeArgs,
    context: &'a Context,
    backstop: Backstop,
    app: App,
    serving: Serving,
    /// Who works by the configuration; nobody while the store refuses that.
    crew: Option<Crew>,
    /// Whether the store ever let somebody work.
    was_served: bool,
    /// When to try again, if nobody works.
    start_at: Option<Instant>,
    /// Those that work by configurations of before, until what they run has ended.
    retired: JoinSet<()>,
    force: CancellationToken,
}

impl House<'_> {
    async fn keep(mut self, mut signals: Signals, mut hangups: Signal) -> Result<Verdict, Trouble> {
        let verdict = loop {
            tokio::select! {
                () = signals.next() => break Ok(Verdict::Fine),
                Some(()) = hangups.recv() => self.reload().await,
                () = broken(&mut self.crew) => {
                    if let Some(end) = self.do_without() {
                        break end;
                    }
                }
                () = time_of(self.start_at) => self.try_again().await,
                Some(_) = self.retired.join_next() => {}
            }
        };
        self.close(signals).await;
        verdict
    }

    /// Goes on without the crew that has ended, or ends with this.
    fn do_without(&mut self) -> Option<Result<Verdict, Trouble>> {
        let crew = self.crew.take()?;
        self.was_served |= crew.was_served();
        let (was_asked, refused_by_store) = (crew.was_asked_to_stop(), crew.refused());
        self.retired.spawn(crew.dismiss(self.force.clone()));
        let output = &self.context.output;
        match (was_asked, refused_by_store) {
            (true, _) if self.rest() => None,
            (false, Some(error)) if self.was_served => {
                // The API and the dashboard have done nothing wrong, and rights come back.
                let told = refused(&error, &self.app.config().store);
                output.warn(format!(
                    "{}; the server goes on, and nothing of the configuration runs. It is tried again every minute, and at once on SIGHUP",
                    told.cause()
                ));
                self.start_at = Some(Instant::now() + AGAIN);
                None
            }
            (_, error) => {
                output.warn("the worker ended unexpectedly; the server stops with it");
                let store = &self.app.config().store;
                Some(error.map_or(Ok(Verdict::FallsShort), |error| Err(refused(&error, store))))
            }
        }
    }

    /// Has the configuration worked on again, after the store refused that.
    async fn try_again(&mut self) {
        self.start_at = None;
        match Crew::start(&self.backstop, &self.app.config()).await {
            Ok(crew) => self.crew = Some(crew),
            Err(trouble) => {
                self.context
                    .output
                    .warn(format!("the worker does not start: {}", trouble.cause()));
                self.start_at = Some(Instant::now() + AGAIN);
            }
        }
    }

    /// Runs nothing of the configuration any more, since an operator stopped its worker. House is
    /// kept on: workers elsewhere rely on it.
    fn rest(&mut self) -> bool {
        match Crew::at_rest(&self.backstop, &self.app.config()) {
            Ok(crew) => self.crew = Some(crew),
            Err(trouble) => {
                self.context
                    .output
                    .warn(format!("nobody would keep house: {}", trouble.cause()));
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
        match self.replaced().await {
            Ok(()) => {
                self.context
                    .output
                    .announce("the configuration was read again and is in force");
                if let Some(crew) = &self.crew {
                    announce_crew(crew, &self.app.config(), self.context);
                }
            }
            Err(trouble) => self.context.output.warn(format!(
                "the configuration was read again and refused, the old one stays in force: {}",
                trouble.cause()
            )),
        }
    }

    async fn replaced(&mut self) -> Result<(), Trouble> {
        let file = self.context.file().map(|path| path.display().to_string());
        let audit = self.backstop.audit("SIGHUP");
        // Before it is read: that it was refused is to be known, too.
        let noted = audit.note("config reload", json!({ "file": file })).await?;
        let replaced = match self
            .context
            .read_again(self.args.listen.clone(), self.args.base.clone())
        {
            Ok(config) => self.replaced_by(config).await,
            Err(trouble) => Err(trouble),
        };
        let count = u64::from(replaced.is_ok());
        audit
            .note_end(
                noted,
                count,
                replaced
                    .as_ref()
                    .err()
                    .map(|trouble| trouble.cause().to_owned()),
            )
            .await;
        replaced
    }

    /// All of it or nothing.
    async fn replaced_by(&mut self, config: Config) -> Result<(), Trouble> {
        let standing = self.app.config();
        let change = self
            .serving
            .prepare(config.clone())
            .await
            .map_err(|error| unserved(error, &config))?;
        let crew = Crew::start(&self.backstop, &config).await?;
        self.serving.change(change);
        self.start_at = None;
        if let Some(before) = self.crew.replace(crew) {
            self.was_served |= before.was_served();
            self.retired.spawn(before.dismiss(self.force.clone()));
        }
        for what in fixed(&standing, &config) {
            self.context
                .output
                .warn(format!("{what} has changed; that takes a restart"));
        }
        Ok(())
    }

    /// Lets running jobs end, and then requests: workers elsewhere, whose beats and ends came to
    /// nobody meanwhile, would be given up. A second signal calls all of it off.
    async fn close(self, mut signals: Signals) {
        let Self {
            context,
            mut serving,
            crew,
            mut retired,
            force,
            ..
        } = self;
        context.output.announce(format!(
            "stopping: waiting for running jobs ({} at most) and answering requests meanwhile; Ctrl-C again to give them back now",
            context.config.grace
        ));
        serving.leave();
        if let Some(crew) = crew {
            retired.spawn(crew.dismiss(force.clone()));
        }
        loop {
            tokio::select! {
                () = async {
                    while retired.join_next().await.is_some() {}
                    serving.stop();
                    serving.ended().await;
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
async fn broken(crew: &mut Option<Crew>) {
    match crew {
        Some(crew) => crew.broken().await,
        None => std::future::pending().await,
    }
}

/// Waits for a time; for ever, if there is none.
async fn time_of(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// What cannot change while the server runs, and has.
fn fixed(standing: &Config, config: &Config) -> Vec<&'static str> {
    let kind = |config: &Config| std::mem::discriminant::<Transport>(&config.server.transport);
    let changes = [
        (
            "the store",
            standing.store != config.store || standing.durability != config.durability,
        ),
        (
            "`listen` of [server]",
            standing.server.listen != config.server.listen,
        ),
        (
            "`base` of [server]",
            standing.server.base != config.server.base,
        ),
        (
            "`connections_max` of [server]",
            standing.server.connections_max != config.server.connections_max,
        ),
        (
            "whether [server] has `tls` or `plain_http`",
            kind(standing) != kind(config),
        ),
    ];
    changes
        .into_iter()
        .filter(|(_, has_changed)| *has_changed)
        .map(|(what, _)| what)
        .collect()
}

/// Where it is. What can be relied on `doctor` says: repeated at each start, nobody reads it.
fn announce(serving: &Serving, config: &Config, context: &Context) -> Result<(), Trouble> {
    let scheme = if matches!(config.server.transport, Transport::Tls(_)) {
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
fn announce_crew(crew: &Crew, config: &Config, context: &Context) {
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
        crew.recovery_bound()
    ));
    crew.announce(config, context.output);
}

/// Why it does not start, with what to do.
pub(super) fn unserved(error: CannotServe, config: &Config) -> Trouble {
    let encrypt = "tls = { cert = \"cert.pem\", key = \"key.pem\" } in [server], or plain_http = true behind a proxy that has TLS";
    let is_encrypted = config.server.transport != Transport::Plain || config.server.is_loopback();
    match error {
        CannotServe::NoToken(_) => {
            let token = "backstop token create --scope admin, with the same store";
            let advice = if is_encrypted { token.to_owned() } else { format!("{token}; and {encrypt}") };
            let without = if config.server.is_loopback() {
                "leave `origins` and `plain_http` out of [server], for this machine alone"
            } else {
                "listen on 127.0.0.1, where none is needed"
            };
            Trouble::misuse(error).advise(format!("{advice}; or {without}"))
        }
        CannotServe::NotEncrypted(_) => {
            Trouble::misuse(error).advise(format!("{encrypt}; or listen on 127.0.0.1"))
        }
        CannotServe::Certificate(_) => {
            Trouble::misuse(error).advise("`tls` in [server] names two PEM files: the certificate with those that vouch for it, and its key")
        }
        CannotServe::Store(error) => error.into(),
        CannotServe::Address(..) => Trouble::new(error).advise("--listen with an address of this machine and a free port"),
        other => Trouble::new(other),
    }
}
