//! Addresses with their parameters: the filters of a list live in them, and stay through every
//! action.

use std::fmt;

/// An address under the base, and its parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageLink {
    path: String,
    pairs: Vec<(String, String)>,
}

impl PageLink {
    /// The address `path`, the base included, without parameters.
    pub fn to(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            pairs: Vec::new(),
        }
    }

    /// With a parameter, in place of any of this name.
    #[must_use]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "numbers and states are handed over as they are"
    )]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.pairs.retain(|(known, _)| known != name);
        self.pairs.push((name.to_owned(), value.to_string()));
        self
    }

    /// With one more parameter of this name.
    #[must_use]
    pub fn and(mut self, name: &str, value: &str) -> Self {
        self.pairs.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a parameter, if there is one.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Without the parameters of this name.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.pairs.retain(|(known, _)| known != name);
        self
    }

    /// The parameters, for a form that keeps them.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }
}

impl fmt::Display for PageLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if self.pairs.is_empty() {
            return Ok(());
        }
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&self.pairs);
        write!(f, "?{}", query.finish())
    }
}

/// One part of a path: whatever it says, it is one part. Only `.` and `..` are ways up to every
/// browser, however they are written; a queue of such a name is for the API and the command line.
pub fn part(text: &str) -> String {
    text.bytes()
        .fold(String::with_capacity(text.len()), |mut part, byte| {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    part.push(char::from(byte));
                }
                _ => {
                    let _ = fmt::Write::write_fmt(&mut part, format_args!("%{byte:02X}"));
                }
            }
            part
        })
}

/// The id of what has this name within a page, for a link to it and for the script: letters,
/// digits, `-`, `_` and `.` whatever the name says, and another one for every other name.
pub fn anchor(what: &str, name: &str) -> String {
    name.bytes().fold(format!("{what}-"), |mut id, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => id.push(char::from(byte)),
            _ => {
                let _ = fmt::Write::write_fmt(&mut id, format_args!(".{byte:02x}"));
            }
        }
        id
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_an_id_of_its_own() {
        let check = |name: &str, id: &str| assert_eq!(anchor("worker", name), id);
        check("said", "worker-said");
        check("a b", "worker-a.20b");
        check("a.b", "worker-a.2eb");
        check("é\"<", "worker-.c3.a9.22.3c");
    }

    #[test]
    fn what_a_parameter_says_stays_in_it() {
        let link = PageLink::to("/jobs")
            .with("kind", "a&b=c d\"<>é")
            .with("queue", "q");
        assert_eq!(
            link.to_string(),
            "/jobs?kind=a%26b%3Dc+d%22%3C%3E%C3%A9&queue=q"
        );
        assert_eq!(link.clone().without("kind").to_string(), "/jobs?queue=q");
        assert_eq!(
            link.with("queue", "r").without("kind").to_string(),
            "/jobs?queue=r"
        );
    }

    #[test]
    fn a_part_of_a_path_is_one_part() {
        assert_eq!(part("a/b?c#d é"), "a%2Fb%3Fc%23d%20%C3%A9");
        assert_eq!(part("emails.v2_x-1~"), "emails.v2_x-1~");
    }
}
