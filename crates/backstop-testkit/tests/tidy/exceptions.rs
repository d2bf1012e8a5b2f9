//! The list of what may break a rule for now, and how findings are held against it.

use std::collections::BTreeMap;

const LIST: &str = include_str!("exceptions.txt");

/// How often one subject (a file, a type, a crate) breaks a rule, and where.
pub(crate) struct Finding {
    pub(crate) rule: &'static str,
    pub(crate) subject: String,
    pub(crate) count: usize,
    pub(crate) example: String,
}

pub(crate) struct Exceptions(BTreeMap<(String, String), usize>);

impl Exceptions {
    /// Lines of `rule subject count`, and a reason behind `#` where the exception is to stay.
    pub(crate) fn load() -> Self {
        let entries = LIST.lines().filter_map(|line| {
            let line = line.split('#').next().unwrap_or_default().trim();
            let mut words = line.split_whitespace();
            let (rule, subject, count) = (words.next()?, words.next()?, words.next()?);
            let count = count.parse().expect("an exception ends with its count");
            Some(((rule.to_owned(), subject.to_owned()), count))
        });
        Self(entries.collect())
    }

    pub(crate) fn rules_beside(&self, known: &[&str]) -> Vec<&str> {
        let rules = self.0.keys().map(|(rule, _)| rule.as_str());
        rules.filter(|rule| !known.contains(rule)).collect()
    }

    /// What has become worse than the list allows, and what the list allows for no reason.
    pub(crate) fn compare(
        mut self,
        checked: &str,
        findings: impl IntoIterator<Item = Finding>,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        for finding in findings {
            let Finding {
                rule,
                subject,
                count,
                example,
            } = finding;
            let key = (rule.to_owned(), subject.clone());
            let allowed = self.0.remove(&key).unwrap_or(0);
            if count > allowed {
                problems.push(format!(
                    "{rule}: {subject}: {count}, allowed {allowed}: {example}"
                ));
            } else if count < allowed {
                problems.push(format!(
                    "{rule}: {subject}: better than its exception; write {count} into exceptions.txt"
                ));
            }
        }
        for (rule, subject) in self.0.into_keys().filter(|(rule, _)| rule == checked) {
            problems.push(format!(
                "{rule}: {subject}: mended; remove it from exceptions.txt"
            ));
        }
        problems
    }
}

#[test]
fn an_exception_is_used_up_neither_more_nor_less() {
    let finding = |subject: &str, count| Finding {
        rule: "file",
        subject: subject.to_owned(),
        count,
        example: String::new(),
    };
    let problems = |found: &[(&str, usize)]| {
        let allowed = [("a", 2), ("b", 1)].map(|(subject, count)| {
            let key = ("file".to_owned(), subject.to_owned());
            (key, count)
        });
        let findings = found
            .iter()
            .map(|(subject, count)| finding(subject, *count));
        Exceptions(allowed.into()).compare("file", findings).len()
    };
    assert_eq!(problems(&[("a", 2), ("b", 1)]), 0);
    assert_eq!(problems(&[("a", 3), ("b", 1)]), 1, "worse");
    assert_eq!(
        problems(&[("a", 1), ("b", 1)]),
        1,
        "better than its exception"
    );
    assert_eq!(problems(&[("a", 2)]), 1, "mended");
    assert_eq!(problems(&[("a", 2), ("b", 1), ("c", 1)]), 1, "new");
}
