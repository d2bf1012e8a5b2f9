//! Commands that texts tell people to run are commands there are.

use super::Cli;
use clap::Parser;
use clap::error::ErrorKind;
use std::path::{Path, PathBuf};

/// Files that name commands, from the root of the repository.
fn texts() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut ahead = vec![
        root.join("docs"),
        root.join("crates/backstop-server/templates"),
    ];
    let mut files = vec![
        root.join("README.md"),
        root.join("CONTRIBUTING.md"),
        root.join("crates/backstop-server/src/alerts/rules.yml"),
    ];
    while let Some(folder) = ahead.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_text = ["md", "html"]
                .iter()
                .any(|ending| path.extension().is_some_and(|known| known == *ending));
            if path.is_dir() {
                ahead.push(path);
            } else if is_text {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// What stands between marks, on one line.
fn between<'a>(text: &'a str, open: &str, close: &str) -> Vec<&'a str> {
    let parts = text.split(open).skip(1);
    parts
        .filter_map(|part| part.split(close).next())
        .filter(|part| !part.contains('\n'))
        .collect()
}

/// The commands a text names: in marks of code, and at the beginning of a line of an example.
fn commands(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let mut found: Vec<String> = Vec::new();
    for line in joined.lines() {
        let line = line.trim();
        let plain = line.strip_prefix("<pre class=\"quote\">").unwrap_or(line);
        found.push(plain.strip_prefix("$ ").unwrap_or(plain).to_owned());
        // Marks come in pairs: what is between two of them is every second part.
        found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    found.extend(
        between(&joined, "<code>", "</code>")
            .into_iter()
            .map(str::to_owned),
    );
    // A line of a Cargo.toml names the crate.
    found.retain(|command| command.starts_with("backstop ") && !command.starts_with("backstop = "));
    found
}

/// The words of a command as a shell takes them, up to where another one begins. What a template
/// fills in is `x`.
fn words(command: &str) -> Vec<String> {
    let mut text = command.to_owned();
    while let (Some(open), Some(close)) = (text.find("{{"), text.find("}}")) {
        if close < open {
            break;
        }
        text.replace_range(open..close + 2, "x");
    }
    for (coded, letter) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ] {
        text = text.replace(coded, letter);
    }
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in text.chars() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('|' | '>' | '<' | ';' | '&' | '#' | '…' | '(', None) => break,
            (' ', None) => words.extend(word.take()),
            ('[' | ']', None) => {}
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Why it is no command; a part of one, which lacks what is yet to be said, is one.
fn wrong(words: &[String]) -> Option<String> {
    let error = Cli::try_parse_from(words).err()?;
    let is_wrong = matches!(
        error.kind(),
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand
    );
    is_wrong.then(|| error.to_string())
}

#[test]
fn every_command_that_a_text_names_exists() {
    let (mut named, mut complaints) = (0, Vec::new());
    for file in texts() {
        for command in commands(&std::fs::read_to_string(&file).unwrap()) {
            named += 1;
            if let Some(why) = wrong(&words(&command)) {
                complaints.push(format!("{}: `{command}`: {why}", file.display()));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(
        named > 100,
        "only {named} commands were found: are they looked for where they are?"
    );
}

#[test]
fn a_flag_that_does_not_exist_is_found() {
    let command = "backstop stream keys {{ $labels.stream }} --waiting";
    assert_eq!(
        words(command),
        ["backstop", "stream", "keys", "x", "--waiting"]
    );
    assert!(wrong(&words(command)).unwrap().contains("--waiting"));
    assert_eq!(
        wrong(&words("backstop stream keys x --holding | jq .")),
        None
    );
    assert!(wrong(&words("backstop stream burn x")).is_some());
}

#[test]
fn paragraphs_of_help_are_wrapped_once() {
    fn check(command: &clap::Command) {
        let text = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        for (line, next) in text.lines().zip(text.lines().skip(1)) {
            let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
            assert!(
                !(is_prose(line) && is_prose(next)),
                "{}: {line:?} goes on",
                command.get_name()
            );
        }
        command.get_subcommands().for_each(check);
    }
    check(&super::command());
    let joined = super::join_lines("Examples:\n  a\n  b\n\none\ntwo\n\nthree");
    assert_eq!(joined, "Examples:\n  a\n  b\n\none two\n\nthree");
}
