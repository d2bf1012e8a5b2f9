//! Trace context of a job: the W3C `traceparent` of the caller that pushed it, stored beside the
//! payload.
//!
//! Only the fields of version 00 of the recommendation are kept: the ids and the flags. A later
//! version is read as far as these go, as the recommendation demands.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The length of a `traceparent` of version 00.
pub const TRACEPARENT_LEN: usize = 55;
/// The most bytes of a later version; no real header is longer.
const TRACEPARENT_LEN_MAX: usize = 512;
/// The ranges of the four parts.
const VERSION: std::ops::Range<usize> = 0..2;
const TRACE: std::ops::Range<usize> = 3..35;
const SPAN: std::ops::Range<usize> = 36..52;
const FLAGS: std::ops::Range<usize> = 53..55;

/// A span of a trace: the caller that pushed a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace: [u8; 16],
    span: [u8; 8],
    flags: u8,
}

/// Text that is not a valid `traceparent`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a traceparent; write 00-TRACE-SPAN-FLAGS, with 32, 16 and 2 hexadecimal digits in lower case, and neither id all zeros"
)]
pub struct InvalidTraceparent;

impl TraceContext {
    /// The context of these ids; `None` if one of them is all zeros, which is invalid.
    pub fn new(trace: [u8; 16], span: [u8; 8], flags: u8) -> Option<Self> {
        (trace != [0; 16] && span != [0; 8]).then_some(Self { trace, span, flags })
    }

    /// The id that all spans of the trace share.
    pub const fn trace_id(&self) -> [u8; 16] {
        self.trace
    }

    /// The id of the caller's span.
    pub const fn span_id(&self) -> [u8; 8] {
        self.span
    }

    /// The flags; the lowest bit means that the trace is sampled.
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    /// Whether the caller records the trace.
    pub const fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }

    /// The id of the trace as 32 hexadecimal digits.
    pub fn trace_text(&self) -> String {
        HexBytes(&self.trace).to_string()
    }
}

impl FromStr for TraceContext {
    type Err = InvalidTraceparent;

    fn from_str(text: &str) -> Result<Self, InvalidTraceparent> {
        parse(text.as_bytes()).ok_or(InvalidTraceparent)
    }
}

fn parse(text: &[u8]) -> Option<TraceContext> {
    let [version] = digits(text.get(VERSION)?)?;
    let is_whole = match version {
        0 => text.len() == TRACEPARENT_LEN,
        0xff => false,
        _ => {
            text.len() <= TRACEPARENT_LEN_MAX
                && text.get(TRACEPARENT_LEN).is_none_or(|next| *next == b'-')
        }
    };
    let dashes = [VERSION.end, TRACE.end, SPAN.end];
    if !is_whole || dashes.iter().any(|at| text.get(*at) != Some(&b'-')) {
        return None;
    }
    let [flags] = digits(text.get(FLAGS)?)?;
    TraceContext::new(digits(text.get(TRACE)?)?, digits(text.get(SPAN)?)?, flags)
}

/// Decodes lower-case hexadecimal digits, two per byte.
fn digits<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    (text.len() == 2 * N).then_some(bytes)
}

const fn digit(letter: u8) -> Option<u8> {
    match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        _ => None,
    }
}

struct HexBytes<'a>(&'a [u8]);

impl fmt::Display for HexBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "00-{}-{}-{:02x}",
            HexBytes(&self.trace),
            HexBytes(&self.span),
            self.flags
        )
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceContext {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WHOLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_comes_back_as_it_was_written() {
        let context: TraceContext = WHOLE.parse().expect("a traceparent");
        assert_eq!(context.to_string(), WHOLE);
        assert_eq!(context.trace_text(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(context.is_sampled());
        assert_eq!(WHOLE.len(), TRACEPARENT_LEN);
    }

    #[test]
    fn a_later_version_reads_as_far_as_this_one_goes() {
        let later = format!("cc{}-what-comes-later", &WHOLE[2..]);
        assert_eq!(later.parse(), WHOLE.parse::<TraceContext>());
        assert_eq!(
            format!("01{}", &WHOLE[2..]).parse(),
            WHOLE.parse::<TraceContext>()
        );
    }

    #[test]
    fn what_is_no_traceparent_is_refused() {
        let zero_trace = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        let zero_span = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16));
        let upper = WHOLE.to_uppercase();
        let longer = format!("{WHOLE}-x");
        let later_joined = format!("cc{}x", &WHOLE[2..]);
        let endless = format!("cc{}-{}", &WHOLE[2..], "x".repeat(600));
        let forbidden = format!("ff{}", &WHOLE[2..]);
        let undashed = WHOLE.replace('-', "_");
        for text in [
            "",
            "00",
            &WHOLE[..54],
            &zero_trace,
            &zero_span,
            &upper,
            &longer,
            &later_joined,
            &endless,
            &forbidden,
            &undashed,
            "0é-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(
                text.parse::<TraceContext>(),
                Err(InvalidTraceparent),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_ids_read_back(trace: [u8; 16], span: [u8; 8], flags: u8) {
            if let Some(context) = TraceContext::new(trace, span, flags) {
                prop_assert_eq!(context.to_string().parse(), Ok(context));
            }
        }

        #[test]
        fn no_text_is_too_strange_to_be_looked_at(text: String) {
            let _ = text.parse::<TraceContext>();
        }
    }
}
