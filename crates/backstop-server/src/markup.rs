//! Text on its way into markup that is written by hand: charts, pictures, the page of a refusal.
//! Templates escape by themselves.

use crate::words::one_line;

/// Text that is text in markup and in an attribute, whatever it holds.
pub(crate) fn escape_markup(text: &str) -> String {
    one_line(text)
        .chars()
        .fold(String::with_capacity(text.len()), |mut escaped, c| {
            match c {
                '&' => escaped.push_str("&amp;"),
                '<' => escaped.push_str("&lt;"),
                '>' => escaped.push_str("&gt;"),
                '"' => escaped.push_str("&quot;"),
                '\'' => escaped.push_str("&#39;"),
                other => escaped.push(other),
            }
            escaped
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(
            escape_markup("<a b='c'>&\"\u{1b}"),
            "&lt;a b=&#39;c&#39;&gt;&amp;&quot;\\u001b"
        );
    }
}
