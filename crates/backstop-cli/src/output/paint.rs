//! Colours, where they are wanted: on terminals, unless `NO_COLOR` is set.

use std::fmt::Display;

/// Colours, or their absence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint(bool);

impl Paint {
    /// Colours for a terminal; none for anything else, or if the user wants none.
    pub(crate) fn new(is_terminal: bool) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self(is_terminal && !unwanted)
    }

    /// Whether there are colours.
    pub(crate) fn is_on(self) -> bool {
        self.0
    }

    fn wrap(self, code: &str, text: impl Display) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// To be seen first.
    pub(crate) fn bold(self, text: impl Display) -> String {
        self.wrap("1", text)
    }

    /// To be seen last.
    pub(crate) fn dim(self, text: impl Display) -> String {
        self.wrap("2", text)
    }

    /// As it should be.
    pub(crate) fn good(self, text: impl Display) -> String {
        self.wrap("32", text)
    }

    /// Somebody should know.
    pub(crate) fn warning(self, text: impl Display) -> String {
        self.wrap("33", text)
    }

    /// Falls short.
    pub(crate) fn bad(self, text: impl Display) -> String {
        self.wrap("31", text)
    }

    /// A command to type.
    pub(crate) fn command(self, text: impl Display) -> String {
        self.wrap("36", text)
    }
}
