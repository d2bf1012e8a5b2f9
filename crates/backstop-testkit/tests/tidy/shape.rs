//! How long lines, functions and files are.

use crate::exceptions::Finding;
use crate::source::SourceFile;

const COLUMNS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 60;
const FILE_LINES_MAX: usize = 600;

pub(crate) fn long_lines(file: &SourceFile) -> Option<Finding> {
    let is_exempt = |line: &str| {
        let line = line.trim_start();
        file.is_markdown() && (line.starts_with('|') || line.contains("](") || line.contains("://"))
    };
    let too_long = |line: &&str| line.chars().count() > COLUMNS_MAX && !is_exempt(line);
    let long: Vec<usize> = numbers_of(file, too_long);
    finding("columns", file, &long, |line| {
        format!("line {line} has over {COLUMNS_MAX} columns")
    })
}

pub(crate) fn long_functions(file: &SourceFile) -> Option<Finding> {
    let lines: Vec<&str> = file.lines().collect();
    let starts = (0..lines.len()).filter(|&at| is_function_head(lines[at]));
    let long: Vec<usize> = starts
        .filter(|&at| function_lines(&lines[at..]) > FUNCTION_LINES_MAX)
        .map(|at| at + 1)
        .collect();
    let advice = |line| format!("the function in line {line} has over {FUNCTION_LINES_MAX} lines");
    finding("function", file, &long, advice)
}

/// Counts how many times a file is too long, so that a line more in one of the list is no finding.
pub(crate) fn long_file(file: &SourceFile) -> Option<Finding> {
    let lines = file.lines().count();
    let excess = lines.saturating_sub(1) / FILE_LINES_MAX;
    (excess > 0).then(|| Finding {
        rule: "file",
        subject: file.path.clone(),
        count: excess,
        example: format!("{lines} lines; split it by ideas, at most {FILE_LINES_MAX} lines each"),
    })
}

fn numbers_of(file: &SourceFile, mut keep: impl FnMut(&&str) -> bool) -> Vec<usize> {
    let numbered = file.lines().enumerate();
    numbered
        .filter(|(_, line)| keep(line))
        .map(|(at, _)| at + 1)
        .collect()
}

fn finding(
    rule: &'static str,
    file: &SourceFile,
    lines: &[usize],
    advice: impl Fn(usize) -> String,
) -> Option<Finding> {
    let first = *lines.first()?;
    let subject = file.path.clone();
    Some(Finding {
        rule,
        subject,
        count: lines.len(),
        example: advice(first),
    })
}

fn is_function_head(line: &str) -> bool {
    let mut words = line.trim_start().split([' ', '(', ')']);
    let qualifiers = ["pub", "const", "async", "unsafe", "crate", "super", ""];
    words.find(|word| !qualifiers.contains(word)) == Some("fn")
}

/// From the head to the brace that closes it, which rustfmt puts below the head's first letter.
fn function_lines(lines: &[&str]) -> usize {
    let head = lines[0];
    let indent = &head[..head.len() - head.trim_start().len()];
    let body = lines
        .iter()
        .position(|line| line.ends_with(['{', ';', '}']))
        .unwrap_or(0);
    if !lines[body].ends_with('{') {
        return body + 1;
    }
    let close = format!("{indent}}}");
    let end = lines[body..]
        .iter()
        .position(|line| *line == close)
        .unwrap_or(0);
    body + end + 1
}
