//! Where in its file something stands.

use super::{ConfigFile, InvalidConfig};
use toml::de::DeTable;

/// The line that the key at the end of this path stands in, the first being 1: `["queues",
/// "emails", "handler"]`.
pub fn line_of(text: &str, keys: &[&str]) -> Option<usize> {
    let parsed = DeTable::parse(text).ok()?;
    let (mut table, mut at) = (Some(parsed.get_ref()), None);
    for key in keys {
        let (found, value) = table?
            .iter()
            .find(|(found, _)| found.get_ref().as_ref() == *key)?;
        at = Some(found.span().start);
        table = value.get_ref().as_table();
    }
    Some(text.get(..at?)?.matches('\n').count() + 1)
}

/// The line and the column of a byte of the text, the first being 1.
pub(super) fn position_of(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

impl InvalidConfig {
    /// With the line of what is wrong. A problem names its key first, or is about the whole entry.
    pub(super) fn with_location(mut self, file: Option<ConfigFile<'_>>) -> Self {
        let Some(file) = file else { return self };
        let (path, section, name, problem) = match &mut self {
            Self::Queue {
                path,
                queue,
                problem,
            } => (path, "queues", Some(&*queue), problem),
            Self::Stream {
                path,
                stream,
                problem,
            } => (path, "streams", Some(&*stream), problem),
            Self::Sweep {
                path,
                sweep,
                problem,
            } => (path, "sweeps", Some(&*sweep), problem),
            Self::Table {
                path,
                table,
                problem,
            } => (path, "tables", Some(&*table), problem),
            Self::Schedule {
                path,
                schedule,
                problem,
            } => (path, "schedules", Some(&*schedule), problem),
            Self::Server { path, problem } => (path, "server", None, problem),
            Self::Telemetry { path, problem } => (path, "telemetry", None, problem),
            Self::File { .. } | Self::Flag { .. } | Self::Environment { .. } => return self,
        };
        let entry: Vec<&str> = [section]
            .into_iter()
            .chain(name.map(String::as_str))
            .collect();
        let key = problem.split('`').nth(1).unwrap_or_default();
        let places = [&[key][..], &["handler", key], &["dead", key], &[]];
        let line = places
            .iter()
            .find_map(|keys| line_of(file.text, &[&entry[..], keys].concat()));
        if let Some(line) = line {
            *path = format!("{path}, line {line}");
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigOverrides, resolve};

    #[test]
    fn a_key_is_found_however_its_table_is_written() {
        let text = "# first\n[queues.a]\nhandler = { exec = [\"x\"] }\n\n[queues.b.handler]\nexec = [\n  \"y\",\n]\n";
        let line = |keys: &[&str]| line_of(text, keys);
        assert_eq!(line(&["queues", "a"]), Some(2));
        assert_eq!(line(&["queues", "a", "handler", "exec"]), Some(3));
        assert_eq!(line(&["queues", "b", "handler", "exec"]), Some(6));
        assert_eq!(line(&["queues", "b", "retry"]), None);
        assert_eq!(line_of("not toml", &["queues"]), None);
    }

    #[test]
    fn what_cannot_be_read_is_reported_on_one_line_with_its_place() {
        for (text, place) in [
            (
                "[queues.q]\nconcurrency = \"é\" x\n",
                "backstop.toml:2:19: ",
            ),
            ("[queues.q\n", "backstop.toml:1:10: "),
            (
                "# é\n[queues.q]\nno_such_key = 1\n",
                "backstop.toml:3:1: unknown field `no_such_key`, expected ",
            ),
        ] {
            let written = ConfigFile {
                path: "backstop.toml",
                text,
            };
            let bad = resolve(
                Some(written),
                ConfigOverrides::default(),
                ConfigOverrides::default(),
            )
            .unwrap_err();
            let message = bad.to_string();
            assert!(
                message.starts_with(place) && !message.contains('\n'),
                "{message}"
            );
            assert!(bad.is_about_the_file(), "{bad:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_reported_with_its_line() {
        for (text, line) in [
            ("[queues.q]\nlease = \"5s\"\nconcurrency = 0\n", 3),
            ("[queues.q]\nlease = \"5s\"\nhandler = { exec = [] }\n", 3),
            (
                "[queues.q]\n\n[queues.q.dead]\nmax = 5\n[queues.q.handler]\nhttp = \"ftp://x\"\n",
                6,
            ),
            (
                "\n[queues.q]\nhandler = { http = \"http://169.254.169.254/\" }\n",
                3,
            ),
            ("[schedules.s]\nqueue = \"q\"\ncron = \"often\"\n", 3),
            ("[server]\nbase = \"/x\"\nlisten = \"nowhere\"\n", 3),
        ] {
            let written = ConfigFile {
                path: "backstop.toml",
                text,
            };
            let bad = resolve(
                Some(written),
                ConfigOverrides::default(),
                ConfigOverrides::default(),
            )
            .unwrap_err()
            .to_string();
            assert!(
                bad.starts_with(&format!("backstop.toml, line {line}: [")),
                "{bad}"
            );
        }
    }
}
