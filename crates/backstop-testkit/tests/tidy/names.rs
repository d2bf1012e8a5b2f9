//! What types and identifiers may be called.

use crate::exceptions::Finding;
use crate::source::SourceFile;
use std::collections::BTreeMap;

/// Names that the stores, or the shells above one library, may share, because they are one idea in
/// several places.
const MAY_REPEAT: &[&str] = &[
    // Each store has its hints, its page of a list, and its row of a job that may be damaged.
    "HintReceiver",
    "Notifier",
    "PageProgress",
    "PageWalk",
    "ReadJob",
    "JobColumns",
    "ClaimedRow",
    "EnqueueBatcher",
    // Two stores pick the jobs of a bulk change in steps; a third does it in one statement.
    "PickProgress",
    "PickScan",
    "PickedJobs",
];

/// Words that say nothing about a value when they stand alone as its type.
const BANNED: &[&str] = &[
    // Bare participles.
    "Added",
    "Asked",
    "Beaten",
    "Became",
    "Begun",
    "Brought",
    "Built",
    "Buried",
    "Called",
    "Claimed",
    "Counted",
    "Done",
    "Ended",
    "Expired",
    "Fitting",
    "Found",
    "Given",
    "Gone",
    "Handed",
    "Heard",
    "Held",
    "Judged",
    "Kept",
    "Known",
    "Leased",
    "Left",
    "Listed",
    "Looked",
    "Meant",
    "Missed",
    "Named",
    "Noted",
    "Numbered",
    "Opened",
    "Picked",
    "Placed",
    "Pushed",
    "Read",
    "Recovered",
    "Refused",
    "Running",
    "Said",
    "Seen",
    "Settled",
    "Shown",
    "Sought",
    "Standing",
    "Taken",
    "Told",
    "Waiting",
    "Wanted",
    "Written",
    // Pronouns, prepositions, question words, adverbs.
    "Ahead",
    "Alone",
    "Apart",
    "Aside",
    "At",
    "Beside",
    "For",
    "Here",
    "How",
    "Now",
    "Of",
    "Once",
    "Others",
    "Own",
    "Past",
    "Seldom",
    "Still",
    "Then",
    "There",
    "Until",
    "Way",
    "Went",
    "What",
    "When",
    "Where",
    "Which",
    "Why",
];

/// Words of the dialect this project once spoke. The field has better ones for each.
const DIALECT: &[&str] = &[
    "told",
    "asked",
    "said",
    "standing",
    "whereabouts",
    "adrift",
    "moored",
    "seat",
    "desk",
    "outlet",
];

fn types_of(file: &SourceFile) -> Vec<&str> {
    let lines = file.product_lines().into_iter();
    lines.filter_map(type_name).collect()
}

/// The name that a line defines, if it begins a type.
fn type_name(line: &str) -> Option<&str> {
    let words = line.trim_start().split([' ', '(', ')']);
    let mut words = words.skip_while(|word| matches!(*word, "pub" | "crate" | "super" | ""));
    if !matches!(words.next()?, "struct" | "enum" | "trait" | "type") {
        return None;
    }
    // Associated types of traits stand deeper and are no types of their own.
    if line.trim_start().starts_with("type ") && line.starts_with(' ') {
        return None;
    }
    let rest = words.next()?;
    rest.split(|c: char| !c.is_alphanumeric())
        .next()
        .filter(|name| !name.is_empty())
}

pub(crate) fn types_with_several_definitions(files: &[SourceFile]) -> Vec<Finding> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files {
        for name in types_of(file) {
            places.entry(name).or_default().push(&file.path);
        }
    }
    let several = places
        .into_iter()
        .filter(|(name, at)| at.len() > 1 && !MAY_REPEAT.contains(name));
    several
        .map(|(name, at)| Finding {
            rule: "type-twice",
            subject: name.to_owned(),
            count: at.len(),
            example: format!("defined in {}", at.join(", ")),
        })
        .collect()
}

pub(crate) fn banned_types(files: &[SourceFile]) -> Vec<Finding> {
    let in_file = |file: &SourceFile| {
        let names: Vec<&str> = types_of(file)
            .into_iter()
            .filter(|n| BANNED.contains(n))
            .collect();
        let example = format!("{} is no noun; name the value", names.first()?);
        let (subject, count) = (file.path.clone(), names.len());
        Some(Finding {
            rule: "banned-type",
            subject,
            count,
            example,
        })
    };
    files.iter().filter_map(in_file).collect()
}

pub(crate) fn dialect(files: &[SourceFile]) -> Vec<Finding> {
    let in_file = |file: &SourceFile| {
        let words = identifier_words(&code_outside_strings(&file.product_lines()));
        let found: Vec<&String> = words
            .iter()
            .filter(|word| DIALECT.contains(&word.as_str()))
            .collect();
        let example = format!(
            "`{}` in an identifier; use the field's word",
            found.first()?
        );
        Some(Finding {
            rule: "dialect",
            subject: file.path.clone(),
            count: found.len(),
            example,
        })
    };
    files.iter().filter_map(in_file).collect()
}

/// The lines without comments of their own and without strings, also those of several lines.
fn code_outside_strings(lines: &[&str]) -> String {
    let code = lines
        .iter()
        .filter(|line| !line.trim_start().starts_with("//"))
        // A quotation mark as a letter begins no string.
        .map(|line| line.replace(r#"'"'"#, "' '") + "\n");
    let code: String = code.collect();
    let (mut outside, mut is_in_string, mut is_escaped) = (String::new(), false, false);
    for letter in code.chars() {
        match letter {
            '"' if !is_escaped => is_in_string = !is_in_string,
            _ if !is_in_string => outside.push(letter),
            _ => {}
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    outside
}

fn identifier_words(code: &str) -> Vec<String> {
    let identifiers = code.split(|c: char| !c.is_alphanumeric());
    identifiers.flat_map(split_camel_case).collect()
}

fn split_camel_case(identifier: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for letter in identifier.chars() {
        match words.last_mut() {
            Some(word) if !letter.is_uppercase() => word.push(letter),
            _ => words.push(letter.to_lowercase().collect()),
        }
    }
    words
}

#[test]
fn identifiers_fall_into_words() {
    let lines = [
        r#"let was_asked = ToldBatch::new("said \" said","#,
        r#"    LEASE_MAX, "a text"#,
        r#"of two lines said");"#,
    ];
    let words = identifier_words(&code_outside_strings(&lines));
    for word in ["was", "asked", "told", "batch"] {
        assert!(
            words.iter().any(|found| found == word),
            "{word} in {words:?}"
        );
    }
    assert!(!words.iter().any(|found| found == "said"), "{words:?}");
}
