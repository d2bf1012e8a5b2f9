//! Logs: to stderr, warnings unless asked for more, never through a progress bar, never with a
//! secret. And spans, to whoever collects them.

mod json;
#[cfg(feature = "otlp")]
mod otlp;

use crate::args::{GlobalArgs, LogFormat};
use crate::error::CliError;
use crate::output::progress;
use backstop::FAILED_RUNS;
use backstop::config::Config;
use backstop_core::redact::{REDACTED, Redaction};
use backstop_core::terminal::one_line;
use json::JsonFormatter;
use std::io::{self, Write};
use std::sync::Arc;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{JsonFields, Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// The target of what commands announce, where that is a line of the log.
pub(crate) const ANNOUNCED: &str = "backstop::announced";

type AnyLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// What must live as long as anything is logged. Dropping it sends what is left to be exported.
pub(crate) struct LoggingGuard {
    #[cfg(feature = "otlp")]
    _traces: Option<otlp::TracerGuard>,
}

/// Starts logging for the life of the process. `RUST_LOG` has the last word.
pub(crate) fn start(
    globals: &GlobalArgs,
    config: &Config,
    tells_failed_runs: bool,
) -> Result<LoggingGuard, CliError> {
    let logs = match globals.log_format {
        LogFormat::Text => text(config.redaction.clone()),
        LogFormat::Json => tracing_subscriber::fmt::layer()
            .fmt_fields(JsonFields::new())
            .event_format(JsonFormatter::new(config.redaction.clone()))
            .with_ansi(false)
            .with_writer(|| StderrWriter)
            .boxed(),
    };
    #[cfg_attr(
        not(feature = "otlp"),
        expect(unused_mut, reason = "there is only one")
    )]
    let mut layers: Vec<AnyLayer> =
        vec![logs.with_filter(filter(globals, tells_failed_runs)).boxed()];
    #[cfg(feature = "otlp")]
    let traces = otlp::start(&config.telemetry, |name| std::env::var(name).ok())?;
    #[cfg(feature = "otlp")]
    layers.extend(traces.as_ref().map(otlp::TracerGuard::layer));
    #[cfg(not(feature = "otlp"))]
    if config.telemetry.otlp.is_some() {
        return Err(CliError::misuse(
            "[telemetry] has an `otlp`, and this program was built without the feature `otlp`",
        ));
    }
    // Fails only if logging was started before, which is then as good.
    let _ = tracing_subscriber::registry().with(layers).try_init();
    Ok(LoggingGuard {
        #[cfg(feature = "otlp")]
        _traces: traces,
    })
}

/// Which logs are written. In JSON the run they belong to is written beside them, so its span is
/// made whatever the level; and what commands announce is among them.
fn filter(globals: &GlobalArgs, tells_failed_runs: bool) -> EnvFilter {
    // The Redis client and the pool of PostgreSQL's warn of every try of their own; what comes of
    // them is told by whoever made the call. Anybody who connects makes rustls warn, with a path of
    // the machine it was built on.
    let level = match (globals.quiet, globals.verbose) {
        (true, 0) => "error",
        (_, 0) => "warn,redis=error,deadpool=error,rustls=error",
        (_, 1) => "info,redis=error,deadpool=error,rustls=error",
        _ => "debug,rustls=error",
    };
    let more = match globals.log_format {
        LogFormat::Json => format!(",backstop::run=info,{ANNOUNCED}=info"),
        LogFormat::Text => String::new(),
    };
    let runs = if tells_failed_runs && !globals.quiet {
        format!(",{FAILED_RUNS}=info")
    } else {
        String::new()
    };
    EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(format!("{level}{more}{runs}")))
}

fn text(redaction: Redaction) -> AnyLayer {
    tracing_subscriber::fmt::layer()
        .with_ansi(crate::output::stderr_has_colour())
        .with_target(false)
        .fmt_fields(fields(Arc::new(redaction)))
        .with_writer(|| StderrWriter)
        .boxed()
}

/// Fields as people read them, on one line and without what must not be shown. This replaces the
/// escaping of the subscriber's own fields.
fn fields(redaction: Arc<Redaction>) -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    use tracing_subscriber::field::MakeExt;
    debug_fn(
        move |writer: &mut Writer<'_>, field, value| match field.name() {
            "message" => write!(
                writer,
                "{}",
                one_line(&redaction.text(&format!("{value:?}")))
            ),
            name if redaction.is_secret(name) => write!(writer, "{name}={REDACTED}"),
            name => write!(
                writer,
                "{name}={}",
                one_line(&redaction.text(&format!("{value:?}")))
            ),
        },
    )
    .delimited(" ")
}

/// Writes whole lines above the progress bars.
struct StderrWriter;

impl Write for StderrWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        progress::suspend_bars(|| io::stderr().write_all(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;
    use std::sync::Mutex;
    use tracing::Level;

    /// What a subscriber with our fields writes, shared with the test.
    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_field_of_a_log_line_moves_no_terminal_and_begins_no_line() {
        let hostile = "a\u{1b}[31m\u{9b}31m\nFORGED\r\n";
        let written = LogBuffer::default();
        let sink = written.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .fmt_fields(fields(Arc::new(Redaction::default())))
            .with_writer(move || sink.clone());
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(worker = hostile, debug = ?hostile, shown = %hostile, "ended: {hostile}");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches("FORGED").count(), 4, "{text:?}");
        assert_eq!(text.lines().count(), 1, "{text:?}");
        let is_bad = |c: char| c != '\n' && backstop_core::terminal::is_control(c);
        assert!(!text.contains(is_bad), "{text:?}");
    }

    #[test]
    fn warnings_of_the_tls_library_are_not_logged_at_any_level() {
        for flag in ["--quiet", "--log-format=text", "-v", "-vv", "-vvv"] {
            let cli = Cli::try_parse_from(["backstop", flag, "doctor"]).unwrap();
            let logs = tracing_subscriber::registry().with(filter(&cli.globals, true));
            tracing::subscriber::with_default(logs, || {
                // What anybody who connects can cause, as often as they like.
                let is_logged = tracing::enabled!(target: "rustls::conn", Level::WARN);
                assert!(!is_logged, "{flag}");
                assert!(tracing::enabled!(target: "rustls::conn", Level::ERROR));
            });
        }
    }
}
