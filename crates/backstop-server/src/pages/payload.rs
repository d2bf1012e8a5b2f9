//! A payload as people read it: one field a line, every number and every escape as it was written.

/// Characters shown of a payload; what is longer is for a program to read.
const CHARS_MAX: usize = 200_000;

/// A payload on a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PayloadView {
    pub text: String,
    /// Whether something of it is left out at the end.
    pub is_cut: bool,
    /// How many bytes the payload has.
    pub size: String,
}

impl PayloadView {
    /// These bytes, indented if they are JSON. Nothing but white space outside of strings is
    /// changed.
    pub fn of(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        let text = if is_json {
            indented(&text)
        } else {
            text.into_owned()
        };
        let is_cut = text.len() > CHARS_MAX && text.chars().count() > CHARS_MAX;
        let text = if is_cut {
            text.chars().take(CHARS_MAX).collect()
        } else {
            text
        };
        Self {
            text,
            is_cut,
            size: super::text::many(bytes.len() as u64, "byte", "bytes"),
        }
    }
}

/// The beginning of JSON with a line for each field and element, all of it unless it is longer than
/// is shown: a short list deep inside of others becomes a long text. An empty list or object stays
/// on its line.
fn indented(json: &str) -> String {
    let (mut out, mut depth, mut in_string, mut is_escaped) = (
        String::with_capacity(json.len().min(2 * CHARS_MAX)),
        0,
        false,
        false,
    );
    let mut rest = json.chars().peekable();
    while let Some(next) = rest.next() {
        if out.len() > 4 * CHARS_MAX {
            break;
        }
        if in_string {
            out.push(next);
            in_string = is_escaped || next != '"';
            is_escaped = next == '\\' && !is_escaped;
            continue;
        }
        match next {
            '"' => {
                out.push(next);
                in_string = true;
            }
            '{' | '[' => {
                out.push(next);
                while rest.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(end) = rest.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth -= 1;
                line(&mut out, depth);
                out.push(next);
            }
            ',' => {
                out.push(next);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            _ if next.is_ascii_whitespace() => {}
            _ => out.push(next),
        }
    }
    out
}

fn line(out: &mut String, depth: usize) {
    out.push('\n');
    for _ in 0..depth {
        out.push_str("  ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], text: &str) {
        assert_eq!(PayloadView::of(bytes).text, text);
    }

    #[test]
    fn numbers_and_escapes_are_shown_as_they_were_written() {
        check(
            br#"{"id":12345678901234567890123,"price":1.10,"far":1e400,"text":"a\"}, \u0041\\","none":[ ],"all":{}}"#,
            "{\n  \"id\": 12345678901234567890123,\n  \"price\": 1.10,\n  \"far\": 1e400,\n  \"text\": \"a\\\"}, \\u0041\\\\\",\n  \"none\": [],\n  \"all\": {}\n}",
        );
        check(
            b"[1,[2,{\"a\":3}]]",
            "[\n  1,\n  [\n    2,\n    {\n      \"a\": 3\n    }\n  ]\n]",
        );
    }

    #[test]
    fn what_is_no_json_is_shown_as_it_is() {
        check(b"{not json", "{not json");
        check(b"\xff<b>", "\u{fffd}<b>");
    }

    #[test]
    fn a_payload_without_end_is_cut_and_says_so() {
        let long = format!("\"{}\"", "x".repeat(CHARS_MAX));
        let shown = PayloadView::of(long.as_bytes());
        assert!(shown.is_cut);
        assert_eq!(shown.text.chars().count(), CHARS_MAX);
        assert_eq!(shown.size, "200,002 bytes");
        assert!(!PayloadView::of(b"null").is_cut);
        // At a depth of 128 each number has a line of more than 256 characters.
        let deep = format!(
            "{}{}{}",
            "[".repeat(128),
            "0,".repeat(400_000) + "0",
            "]".repeat(128)
        );
        assert!(
            indented(&deep).len() < 5 * CHARS_MAX,
            "no more is made than is shown"
        );
        let shown = PayloadView::of(deep.as_bytes());
        assert!(shown.is_cut && shown.text.chars().count() == CHARS_MAX);
    }
}
