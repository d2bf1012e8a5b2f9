//! The one way out: results to stdout, notes and progress to stderr.

pub(crate) mod paint;
pub(crate) mod progress;
pub(crate) mod table;
pub(crate) mod words;

use crate::args::{GlobalArgs, LogFormat};
use crate::error::CliError;
use crate::logging::ANNOUNCED;
use backstop_core::terminal::escaped_json;
use paint::TextPaint;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use table::TextTable;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OutputFormat {
    Json,
    Text,
}

/// Where results, notes and progress go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CliOutput {
    format: OutputFormat,
    /// How logs are written. What goes between their lines is written as they are.
    logs: LogFormat,
    is_quiet: bool,
    results: TextPaint,
    notes: TextPaint,
}

#[expect(
    clippy::unused_self,
    reason = "writing takes the one handle that commands are given, whatever it needs of it"
)]
impl CliOutput {
    pub(crate) fn new(globals: &GlobalArgs) -> Self {
        let format = if globals.json {
            OutputFormat::Json
        } else {
            OutputFormat::Text
        };
        let results = TextPaint::new(io::stdout().is_terminal());
        let logs = globals.log_format;
        let notes = TextPaint::new(io::stderr().is_terminal() && logs == LogFormat::Text);
        Self {
            format,
            logs,
            is_quiet: globals.quiet,
            results,
            notes,
        }
    }

    /// Whether a program reads the results.
    pub(crate) fn is_json(self) -> bool {
        self.format == OutputFormat::Json
    }

    /// One line of results, cleaned of what a terminal would act on.
    pub(crate) fn line(self, text: impl Display) -> Result<(), CliError> {
        self.verbatim(format_args!("{}\n", paint::render_marks(text)))
    }

    /// Lines of ours that were put together before, each cleaned like one.
    pub(crate) fn lines(self, text: &str) -> Result<(), CliError> {
        text.split('\n').try_for_each(|line| self.line(line))
    }

    /// An empty line between results.
    pub(crate) fn blank(self) -> Result<(), CliError> {
        self.verbatim("\n")
    }

    /// A text as it is, its line ends included: no word of it may come from elsewhere, unless it is
    /// JSON by [`json_text`].
    pub(crate) fn verbatim(self, text: impl Display) -> Result<(), CliError> {
        Ok(write!(io::stdout().lock(), "{text}")?)
    }

    /// A result as JSON, on one line.
    pub(crate) fn json(self, value: &impl Serialize) -> Result<(), CliError> {
        self.verbatim(format_args!("{}\n", json_text(value)?))
    }

    /// A result as a table.
    pub(crate) fn table(self, table: &TextTable) -> Result<(), CliError> {
        self.verbatim(format_args!(
            "{}\n",
            table.render(io::stdout().is_terminal())
        ))
    }

    /// Something worth knowing that is not the result. A program that reads JSON is not told.
    pub(crate) fn note(self, text: impl Display) {
        if !self.is_json() {
            self.announce(text);
        }
    }

    /// What a long run says about itself, to people and to the logs of programs.
    pub(crate) fn announce(self, text: impl Display) {
        match (self.is_quiet, self.logs) {
            (true, _) => {}
            (false, LogFormat::Json) => tracing::info!(target: ANNOUNCED, "{text}"),
            (false, LogFormat::Text) => write_stderr(text),
        }
    }

    /// Something that went wrong on the way, told even to those who want quiet.
    pub(crate) fn warn(self, text: impl Display) {
        match self.logs {
            LogFormat::Json => tracing::warn!(target: ANNOUNCED, "{text}"),
            LogFormat::Text => write_stderr(text),
        }
    }

    pub(crate) fn paint(self) -> TextPaint {
        self.results
    }

    pub(crate) fn paint_notes(self) -> TextPaint {
        self.notes
    }

    /// Whether progress is to be shown.
    pub(crate) fn shows_progress(self) -> bool {
        !self.is_quiet && io::stderr().is_terminal()
    }
}

/// A line of stderr, for people, cleaned of what a terminal would act on.
pub(crate) fn write_stderr(text: impl Display) {
    let line = paint::render_marks(text);
    // Where stderr is closed there is nobody to tell, which is no reason to fail.
    let _ = progress::suspend_bars(|| writeln!(io::stderr(), "{line}"));
}

/// A question to whoever sits at the terminal, whose answer follows on the line.
pub(crate) fn ask(question: impl Display) -> io::Result<()> {
    write!(io::stderr(), "{} ", paint::render_marks(question))?;
    io::stderr().flush()
}

/// A value as JSON on one line, in which no character is left that a terminal acts on.
pub(crate) fn json_text(value: &impl Serialize) -> Result<String, CliError> {
    Ok(escaped_json(
        &serde_json::to_string(value).map_err(CliError::new)?,
    ))
}

pub(crate) fn stderr_has_colour() -> bool {
    TextPaint::new(io::stderr().is_terminal()).is_on()
}
