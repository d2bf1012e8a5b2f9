//! Results from a file: one on each line, or the lines of a trace.

#[cfg(test)]
mod tests;

use crate::limits::RESULT_BYTES_MAX;
use crate::world::Arrival;
use bytes::Bytes;
use std::io::{self, BufRead, Read};

/// What is kept of a line: enough to see that it is too long to be a result, and room for what a
/// trace adds to one.
const LINE_BYTES_MAX: usize = 2 * RESULT_BYTES_MAX + 64;

/// Reads results line by line, in bounded memory whatever the lines are like.
pub struct Lines<R> {
    input: R,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// From the start of an input.
    pub const fn new(input: R) -> Self {
        Self { input, number: 0 }
    }

    /// Up to so many results, each with the number of its line. Empty lines are passed over;
    /// nothing is left at the end.
    pub fn batch(&mut self, max: usize) -> io::Result<Vec<(u64, Bytes)>> {
        let mut batch = Vec::new();
        while batch.len() < max {
            let Some(line) = self.line()? else { break };
            if !line.trim_ascii().is_empty() {
                batch.push((self.number, result(line)));
            }
        }
        Ok(batch)
    }

    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let limit = LINE_BYTES_MAX as u64;
        if (&mut self.input).take(limit).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() == LINE_BYTES_MAX {
            self.input.skip_until(b'\n')?;
        }
        Ok(Some(line))
    }
}

/// A line of a trace says when its result arrives; no result has that form.
fn result(line: Vec<u8>) -> Bytes {
    let arrival = str::from_utf8(&line)
        .ok()
        .and_then(|line| Arrival::from_line(line).ok());
    arrival.map_or_else(|| line.into(), |arrival| arrival.bytes)
}
