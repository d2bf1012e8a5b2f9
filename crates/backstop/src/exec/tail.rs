//! The end of what a command writes, however much it writes.

use std::collections::VecDeque;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes kept; a stack trace in the store has as many characters.
const BYTES_MAX: usize = 4_096;

/// The last bytes of a stream.
#[derive(Debug, Default)]
pub(super) struct OutputTail {
    bytes: VecDeque<u8>,
    is_cut: bool,
}

impl OutputTail {
    /// Reads to the end, keeping the last of it. Dropped half-way it has what came so far.
    pub(super) async fn read(&mut self, mut stream: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut buffer = vec![0; BYTES_MAX];
        loop {
            match stream.read(&mut buffer).await? {
                0 => return Ok(()),
                count => self.push(&buffer[..count]),
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let over = self.bytes.len().saturating_sub(BYTES_MAX);
        self.is_cut |= over > 0;
        self.bytes.drain(..over);
    }

    /// What was kept, as text; a character that was cut in two is left out.
    pub(super) fn text(&self) -> String {
        let is_continuation = |byte: &&u8| self.is_cut && **byte & 0b1100_0000 == 0b1000_0000;
        let skipped = self
            .bytes
            .iter()
            .take(3)
            .take_while(is_continuation)
            .count();
        let bytes: Vec<u8> = self.bytes.iter().skip(skipped).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The last line with anything on it.
    pub(super) fn last_line(&self) -> Option<String> {
        self.text()
            .lines()
            .rev()
            .map(str::trim)
            .find(|line| !line.is_empty())
            .map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(chunks: &[&[u8]]) -> OutputTail {
        let mut tail = OutputTail::default();
        for chunk in chunks {
            tail.push(chunk);
        }
        tail
    }

    #[test]
    fn only_the_end_is_kept() {
        let tail = tail(&[&b"a".repeat(10_000), b"bc\n"]);
        assert_eq!(tail.text().len(), BYTES_MAX);
        assert!(tail.text().ends_with("abc\n"));
    }

    #[test]
    fn a_character_cut_in_two_is_left_out() {
        let text = "é".repeat(BYTES_MAX) + "x";
        let kept = tail(&[text.as_bytes()]).text();
        assert!(kept.starts_with('é') && kept.ends_with('x'), "{kept:.20}");
        assert_eq!(
            tail(&[b"\xa9 not cut, just wrong"]).text(),
            "\u{fffd} not cut, just wrong"
        );
    }

    #[test]
    fn the_last_line_is_one_with_words() {
        assert_eq!(
            tail(&[b"first\n  last \r\n\n \n"]).last_line().as_deref(),
            Some("last")
        );
        assert_eq!(tail(&[b" \n\n"]).last_line(), None);
        assert_eq!(tail(&[]).last_line(), None);
    }
}
