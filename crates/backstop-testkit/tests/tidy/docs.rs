//! Doc comments that say no more than the name below them.

use crate::exceptions::Finding;
use crate::source::SourceFile;

const WORDS_MIN: usize = 5;

/// Derives that show doc comments to users: as help of a command, or in the description of the API.
const SHOWN_BY: [&str; 7] = [
    "Parser",
    "Args",
    "Subcommand",
    "ValueEnum",
    "ToSchema",
    "IntoParams",
    "IntoResponses",
];

pub(crate) fn short_docs(file: &SourceFile) -> Option<Finding> {
    let lines = file.product_lines();
    if lines
        .iter()
        .any(|line| line.contains("derive(") && is_shown(line))
    {
        return None;
    }
    let (mut short, mut block) = (Vec::new(), String::new());
    for line in lines {
        match line.trim_start().strip_prefix("///") {
            Some(text) => block.push_str(text),
            None if block.is_empty() => {}
            None => {
                if block.split_whitespace().count() < WORDS_MIN {
                    short.push(block.trim().to_owned());
                }
                block.clear();
            }
        }
    }
    let example = format!(
        "`/// {}` repeats a name; say why, or leave it out",
        short.first()?
    );
    let (subject, count) = (file.path.clone(), short.len());
    Some(Finding {
        rule: "short-doc",
        subject,
        count,
        example,
    })
}

fn is_shown(derive: &str) -> bool {
    let mut words = derive.split(|c: char| !c.is_alphanumeric());
    words.any(|word| SHOWN_BY.contains(&word))
}

/// The crate that applications use.
pub(crate) const FACADE: &str = "crates/backstop/";

/// Public types and free functions without a doc comment. Fields, variants and methods explain
/// themselves, or have one where a question is left.
pub(crate) fn missing_docs(file: &SourceFile) -> Option<Finding> {
    let (mut bare, mut has_doc) = (Vec::new(), false);
    for line in file.product_lines() {
        let is_attribute = line.starts_with("#[") || line.starts_with([' ', ')', '}']);
        if line.starts_with("///") {
            has_doc = true;
        } else if !is_attribute {
            let kinds = ["struct", "enum", "trait", "type", "fn", "async"];
            let mut words = line.split(' ');
            let is_item =
                words.next() == Some("pub") && kinds.contains(&words.next().unwrap_or(""));
            if is_item && !has_doc {
                bare.push(line);
            }
            has_doc = false;
        }
    }
    let example = format!("`{}` has no doc comment", bare.first()?);
    let (subject, count) = (file.path.clone(), bare.len());
    Some(Finding {
        rule: "no-doc",
        subject,
        count,
        example,
    })
}
