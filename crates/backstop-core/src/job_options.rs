//! What a job carries beside its payload: its own retry policy, and the trace context of its push.
//!
//! Stores keep it as opaque bytes. A job with neither has no bytes.
//!
//! | bytes | meaning |
//! |---|---|
//! | none | neither |
//! | `{…` | a policy, as JSON |
//! | `1`, 16 bytes, 8 bytes, 1 byte, maybe `{…` | trace id, span id and flags, maybe a policy |

use crate::job::NewJob;
use crate::retry::RetryPolicy;
use crate::trace::TraceContext;
use bytes::Bytes;

/// The first byte if a trace context follows. No JSON begins with it.
const TRACED: u8 = 1;
/// The length of the trace context: the first byte, both ids and the flags.
const TRACED_LEN: usize = 1 + 16 + 8 + 1;

/// The options of a job, encoded as a store keeps them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobOptions(Option<Bytes>);

impl JobOptions {
    /// Encodes the options of a new job.
    pub fn of(job: &NewJob) -> Self {
        Self::encode(job.retry.as_ref(), job.trace)
    }

    /// Encodes a retry policy and a trace context.
    pub fn encode(retry: Option<&RetryPolicy>, trace: Option<TraceContext>) -> Self {
        let policy = retry.map(RetryPolicy::to_json);
        let Some(trace) = trace else {
            return Self(policy.map(Bytes::from));
        };
        let policy = policy.unwrap_or_default();
        let mut bytes = Vec::with_capacity(TRACED_LEN + policy.len());
        bytes.push(TRACED);
        bytes.extend(trace.trace_id());
        bytes.extend(trace.span_id());
        bytes.push(trace.flags());
        bytes.extend(policy);
        Self(Some(bytes.into()))
    }

    pub fn from_stored(bytes: Option<Vec<u8>>) -> Self {
        Self(bytes.map(Bytes::from))
    }

    pub fn as_bytes(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }

    /// The job's own retry policy. `None` if it has none, or if the bytes cannot be read any more:
    /// the queue's policy then applies, and the job goes on.
    pub fn retry(&self) -> Option<RetryPolicy> {
        let bytes = self.0.as_deref()?;
        let policy = if bytes.first() == Some(&TRACED) {
            bytes.get(TRACED_LEN..)?
        } else {
            bytes
        };
        RetryPolicy::from_json(policy).ok()
    }

    /// The trace context of the push, if the job has one.
    pub fn trace(&self) -> Option<TraceContext> {
        let ids = self.0.as_deref()?.strip_prefix(&[TRACED])?;
        let (trace, rest) = ids.split_first_chunk::<16>()?;
        let (span, rest) = rest.split_first_chunk::<8>()?;
        TraceContext::new(*trace, *span, *rest.first()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy() -> RetryPolicy {
        RetryPolicy::from_json(br#"{"kind":"constant","every":"7s"}"#).expect("a policy")
    }

    fn trace() -> TraceContext {
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
            .parse()
            .expect("a traceparent")
    }

    #[test]
    fn what_went_in_comes_out_and_nothing_costs_nothing() {
        let table = [
            (None, None, None),
            (Some(policy()), None, Some(policy().to_json().len())),
            (None, Some(trace()), Some(26)),
            (
                Some(policy()),
                Some(trace()),
                Some(26 + policy().to_json().len()),
            ),
        ];
        for (retry, trace, bytes) in table {
            let terms = JobOptions::encode(retry.as_ref(), trace);
            assert_eq!(
                terms.as_bytes().map(<[u8]>::len),
                bytes,
                "{retry:?} {trace:?}"
            );
            let kept = JobOptions::from_stored(terms.as_bytes().map(<[u8]>::to_vec));
            assert_eq!((kept.retry(), kept.trace()), (retry, trace));
        }
    }

    #[test]
    fn a_policy_without_a_trace_is_its_json_alone() {
        assert_eq!(
            JobOptions::encode(Some(&policy()), None).as_bytes(),
            Some(policy().to_json().as_slice())
        );
    }

    #[test]
    fn what_cannot_be_read_is_as_good_as_none() {
        for bytes in [
            &b""[..],
            b"{",
            &[1],
            &[1; 25],
            &[0; 40],
            &[2; 40],
            &[1, 0, 0],
        ] {
            let kept = JobOptions::from_stored(Some(bytes.to_vec()));
            assert_eq!((kept.retry(), kept.trace()), (None, None), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange_to_be_looked_at(bytes: Vec<u8>) {
            let kept = JobOptions::from_stored(Some(bytes));
            let _ = (kept.retry(), kept.trace());
        }
    }
}
