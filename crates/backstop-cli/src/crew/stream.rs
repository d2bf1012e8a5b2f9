//! A stream that is served, with its requeued dead letters and its source.

use super::source::Source;
use crate::trouble::Trouble;
use backstop::config::{HandlerConfig, StreamConfig};
use backstop::streams::{Command, RunningStream, letters_queue};
use backstop::{Backstop, Running, StreamName};
use std::sync::Arc;

/// A stream that is served, with its requeued dead letters and its source.
pub(crate) struct ServedStream {
    stream: Arc<RunningStream>,
    letters: Running,
    source: Source,
}

impl ServedStream {
    /// Serves it as its entry says, which has a handler.
    pub(crate) fn start(
        backstop: &Backstop,
        name: &StreamName,
        config: StreamConfig,
    ) -> Result<Self, Trouble> {
        let handler = handler(name, &config)?;
        let (wanted, fields) = (config.source, config.fields);
        let stream = backstop.stream(name.as_str()).map_err(Trouble::misuse)?;
        let stream = Arc::new(
            stream
                .serve(config.settings, handler)
                .map_err(Trouble::misuse)?,
        );
        let letters = backstop
            .worker()
            .handle_queue(letters_queue(name).as_str(), stream.letters())
            .start()?;
        let source = Source::start(wanted.zip(fields), &stream)?;
        Ok(Self {
            stream,
            letters,
            source,
        })
    }

    /// Whether what its handler needs is there; starts nothing.
    pub(crate) fn check(config: &StreamConfig) -> Result<(), Trouble> {
        config.handler.clone().map(command).transpose().map(|_| ())
    }

    /// Who serves it.
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

fn handler(name: &StreamName, config: &StreamConfig) -> Result<Command, Trouble> {
    let handler = config
        .handler
        .clone()
        .map(|handler| handler.within(config.settings.timeout));
    let handler = handler.ok_or_else(|| {
        Trouble::misuse(format!("stream {name} has no handler in the configuration")).advise(
            format!("backstop stream serve {name} --exec CMD | --http URL"),
        )
    })?;
    command(handler)
}

fn command(handler: HandlerConfig) -> Result<Command, Trouble> {
    Ok(match handler {
        HandlerConfig::Exec(exec) => Command::new(exec),
        HandlerConfig::Http(http) => Command::new(http.handler().map_err(Trouble::misuse)?),
    })
}
