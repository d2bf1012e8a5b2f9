//! Colours, where they are wanted: on terminals, unless `NO_COLOR` is set.
//!
//! Every text of a line is cleaned on its way out, so a colour cannot be an escape sequence before
//! that: it is a mark, of which [`render_marks`] makes one. The mark is drawn anew by each process,
//! and stands for colours only: a text that knew it could still do no more than that.

use super::words::one_line;
use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// Stands before the code of a colour: a character of a private plane, which no text has for a
/// meaning.
static MARK: LazyLock<char> = LazyLock::new(|| {
    let drawn = RandomState::new().hash_one("mark") % 0xfff0;
    char::from_u32(0x10_0000 + drawn as u32).unwrap_or('\u{10fffd}')
});

/// The codes of the colours that there are.
const CODES: [&str; 7] = ["0", "1", "2", "31", "32", "33", "36"];

/// One line of text as it goes out: nothing in it moves a terminal but our own colours.
pub(super) fn render_marks(text: impl Display) -> String {
    let clean = one_line(&text.to_string());
    if !clean.contains(*MARK) {
        return clean;
    }
    let mut parts = clean.split(*MARK);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_colour = part
            .split_once('m')
            .is_some_and(|(code, _)| CODES.contains(&code));
        shown.push_str(if is_colour { "\x1b[" } else { "" });
        shown.push_str(part);
    }
    shown
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TextPaint(bool);

impl TextPaint {
    /// Colours for a terminal; none for anything else, or if the user wants none.
    pub(crate) fn new(is_terminal: bool) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self(is_terminal && !unwanted)
    }

    pub(crate) fn is_on(self) -> bool {
        self.0
    }

    fn wrap(self, code: &str, text: impl Display) -> String {
        if self.0 {
            format!("{mark}{code}m{text}{mark}0m", mark = *MARK)
        } else {
            text.to_string()
        }
    }

    pub(crate) fn bold(self, text: impl Display) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn dim(self, text: impl Display) -> String {
        self.wrap("2", text)
    }

    pub(crate) fn good(self, text: impl Display) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn warning(self, text: impl Display) -> String {
        self.wrap("33", text)
    }

    pub(crate) fn bad(self, text: impl Display) -> String {
        self.wrap("31", text)
    }

    pub(crate) fn command(self, text: impl Display) -> String {
        self.wrap("36", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_colours_reach_the_terminal() {
        let paint = TextPaint(true);
        let hostile = "a\x1b]0;title\x07\u{9b}31m\nb";
        let expected = "\x1b[31ma\\u001b]0;title\\u0007\\u009b31m\\nb\x1b[0m";
        assert_eq!(render_marks(paint.bad(hostile)), expected);
        assert_eq!(
            render_marks(format!("{}2Jx", *MARK)),
            "2Jx",
            "a mark stands for a colour and nothing else"
        );
    }
}
