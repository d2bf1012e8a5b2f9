//! Lines of any input, none of them able to fill the memory.

use std::io::{self, BufRead, BufReader, Read};

/// Bytes of a line: the largest payload, and room for what stands around it.
pub(crate) const LINE_BYTES_MAX: usize = backstop_core::limits::PAYLOAD_BYTES_MAX + (64 << 10);

/// Reads lines one by one.
pub(crate) struct LineReader<R> {
    input: R,
    number: u64,
    bytes_read: u64,
}

/// What one line of input is.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum InputLine<'a> {
    /// Its bytes, without the end of line.
    Whole(&'a [u8]),
    /// Too long to be a job; it was read past.
    TooLong,
}

impl<R: Read> LineReader<BufReader<R>> {
    /// Whether a whole line was read already, so that [`Self::next`] answers without a wait. Blank
    /// lines do not count: `next` passes over them and would wait for what comes after.
    pub(crate) fn has_line(&self) -> bool {
        let buffer = self.input.buffer();
        let Some(end) = buffer.iter().rposition(|byte| *byte == b'\n') else {
            return false;
        };
        let mut is_first = self.number == 0;
        buffer[..end]
            .split(|byte| *byte == b'\n')
            .any(|line| !is_blank(line, std::mem::take(&mut is_first)))
    }
}

impl<R: BufRead> LineReader<R> {
    pub(crate) const fn new(input: R) -> Self {
        Self {
            input,
            number: 0,
            bytes_read: 0,
        }
    }

    /// The number of the line read last: 1 for the first.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of input up to the end of the line read last.
    pub(crate) const fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The next line that has anything on it, in `buffer`; `None` at the end.
    pub(crate) fn next<'a>(
        &mut self,
        buffer: &'a mut Vec<u8>,
    ) -> io::Result<Option<InputLine<'a>>> {
        loop {
            buffer.clear();
            let Some(is_whole) = self.read(buffer)? else {
                return Ok(None);
            };
            self.number += 1;
            if !is_whole {
                return Ok(Some(InputLine::TooLong));
            }
            if !is_blank(buffer, self.number == 1) {
                return Ok(Some(InputLine::Whole(strip(buffer, self.number == 1))));
            }
        }
    }

    /// Reads to the end of the line; whether all of it is in `buffer`, or `None` at the end of the
    /// input.
    fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<bool>> {
        let (mut any, mut is_whole) = (false, true);
        loop {
            let available = match self.input.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if available.is_empty() {
                return Ok(any.then_some(is_whole));
            }
            any = true;
            let end = available.iter().position(|byte| *byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            is_whole &= buffer.len() + part.len() <= LINE_BYTES_MAX;
            if is_whole {
                buffer.extend_from_slice(part);
            }
            let consumed = part.len() + usize::from(end.is_some());
            self.input.consume(consumed);
            self.bytes_read += consumed as u64;
            if end.is_some() {
                return Ok(Some(is_whole));
            }
        }
    }
}

/// Without what editors put at the end of a line, and at the start of a file.
fn strip(line: &[u8], is_first: bool) -> &[u8] {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if is_first {
        line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
    } else {
        line
    }
}

fn is_blank(line: &[u8], is_first: bool) -> bool {
    strip(line, is_first).iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &[u8], expected: &[(u64, &[u8])]) {
        let mut reader = LineReader::new(io::BufReader::with_capacity(3, input));
        let (mut buffer, mut seen) = (Vec::new(), Vec::new());
        while let Some(line) = reader.next(&mut buffer).unwrap() {
            let InputLine::Whole(bytes) = line else {
                panic!("too long")
            };
            let bytes = bytes.to_vec();
            seen.push((reader.number(), bytes));
        }
        let expected: Vec<_> = expected
            .iter()
            .map(|(number, line)| (*number, line.to_vec()))
            .collect();
        assert_eq!(seen, expected);
        assert_eq!(reader.bytes_read(), input.len() as u64);
    }

    #[test]
    fn lines_are_numbered_and_blank_ones_are_not_jobs() {
        check(b"", &[]);
        check(b"\n", &[]);
        check(b"1\n2", &[(1, b"1"), (2, b"2")]);
        check(
            b"1\r\n\n  \r\n{\"a\":\"b\"} \n",
            &[(1, b"1"), (4, b"{\"a\":\"b\"} ")],
        );
        check(
            b"\xef\xbb\xbf1\n\xef\xbb\xbf2\n",
            &[(1, b"1"), (2, b"\xef\xbb\xbf2")],
        );
    }

    #[test]
    fn a_line_too_long_is_read_past() {
        let mut input = vec![b'1'; LINE_BYTES_MAX + 1];
        input.extend_from_slice(b"\n2\n");
        let mut reader = LineReader::new(&input[..]);
        let mut buffer = Vec::new();
        assert_eq!(reader.next(&mut buffer).unwrap(), Some(InputLine::TooLong));
        assert_eq!(
            reader.next(&mut buffer).unwrap(),
            Some(InputLine::Whole(b"2"))
        );
        assert!(buffer.capacity() <= 2 * LINE_BYTES_MAX);
    }
}
