//! A stream that is served, with its requeued dead letters and its source.

use super::source::StreamSource;
use crate::error::CliError;
use backstop::config::{HandlerConfig, StreamConfig};
use backstop::streams::{JobStreamHandler, RunningStream, dead_letter_queue};
use backstop::{Backstop, RunningWorker, StreamName};
use std::sync::Arc;

/// A stream that is served, with its requeued dead letters and its source.
pub(crate) struct ServedStream {
    stream: Arc<RunningStream>,
    letters: RunningWorker,
    source: StreamSource,
}

impl ServedStream {
    /// Serves it as its entry says, which has a handler.
    pub(crate) fn start(
        backstop: &Backstop,
        name: &StreamName,
        config: StreamConfig,
    ) -> Result<Self, CliError> {
        let handler = handler(name, &config)?;
        let (wanted, fields) = (config.source, config.fields);
        let stream = backstop.stream(name.as_str()).map_err(CliError::misuse)?;
        let stream = Arc::new(
            stream
                .serve(config.settings, handler)
                .map_err(CliError::misuse)?,
        );
        let letters = backstop
            .worker()
            .handle_queue(
                dead_letter_queue(name).as_str(),
                stream.dead_letter_handler(),
            )
            .start()?;
        let source = StreamSource::start(wanted.zip(fields), &stream)?;
        Ok(Self {
            stream,
            letters,
            source,
        })
    }

    /// Whether what its handler needs is there; starts nothing.
    pub(crate) fn check(config: &StreamConfig) -> Result<(), CliError> {
        config.handler.clone().map(command).transpose().map(|_| ())
    }

    pub(crate) fn worker(&self) -> String {
        self.stream.worker().to_string()
    }

    /// The source first: what it brings must find the stream still there.
    pub(crate) async fn stop(self) {
        self.source.stop().await;
        self.letters.stop();
        self.letters.stopped().await;
        if let Some(stream) = Arc::into_inner(self.stream) {
            stream.stop().await;
        }
    }
}

fn handler(name: &StreamName, config: &StreamConfig) -> Result<JobStreamHandler, CliError> {
    let handler = config
        .handler
        .clone()
        .map(|handler| handler.within(config.settings.timeout));
    let handler = handler.ok_or_else(|| {
        CliError::misuse(format!("stream {name} has no handler in the configuration")).advise(
            format!("backstop stream serve {name} --exec CMD | --http URL"),
        )
    })?;
    command(handler)
}

fn command(handler: HandlerConfig) -> Result<JobStreamHandler, CliError> {
    Ok(match handler {
        HandlerConfig::Exec(exec) => JobStreamHandler::new(exec),
        HandlerConfig::Http(http) => {
            JobStreamHandler::new(http.handler().map_err(CliError::misuse)?)
        }
    })
}
