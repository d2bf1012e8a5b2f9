//! One dead letter as one line of text: a record and its checksum, so that what a crash tore is
//! recognised.
//!
//! `{"crc32":"1a2b3c4d","record":{…}}`. The checksum is over the bytes of the record as they stand
//! in the line. A payload is kept as a text: it comes back to the byte, and its line breaks do not
//! end the line.

use backstop_core::failure::FailureHistory;
use backstop_core::port::NewDeadLetter;
use backstop_core::verdict::EndReason;
use backstop_core::{
    JobId, Kind, NewJob, Payload, Priority, QueueName, RetryPolicy, Time, TraceContext,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A line, without the break at its end.
#[derive(Serialize, Deserialize)]
struct SpillLine<'a> {
    crc32: String,
    #[serde(borrow)]
    record: &'a RawValue,
}

/// A dead letter. What `with_retry` gives up has no unique key.
#[derive(Serialize, Deserialize)]
struct SpillRecord {
    id: JobId,
    queue: QueueName,
    kind: Kind,
    payload: String,
    priority: Priority,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<RetryPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<TraceContext>,
    attempts: u32,
    inserted_at: Time,
    finished_at: Time,
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    history: Option<Box<RawValue>>,
}

/// A line that is no dead letter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidSpillLine {
    /// Cut off, or not one of ours.
    #[error("it is not a whole record: {0}")]
    Torn(String),
    /// Changed since it was written.
    #[error("its checksum is {found}, not {written} as it says")]
    Changed { written: String, found: String },
    #[error("its record cannot be understood: {0}")]
    Unknown(String),
}

/// The dead letter as a line, without a break at its end.
pub(crate) fn encode(burial: &NewDeadLetter) -> String {
    let job = &burial.job;
    let record = SpillRecord {
        id: job.id,
        queue: job.queue.clone(),
        kind: job.kind.clone(),
        // Checked to be JSON, and so to be text, when the payload was made.
        payload: String::from_utf8_lossy(job.payload.as_bytes()).into_owned(),
        priority: job.priority,
        run_at: job.run_at,
        retry: job.retry.clone(),
        traceparent: job.trace,
        attempts: burial.attempts,
        inserted_at: burial.inserted_at,
        finished_at: burial.finished_at,
        reason: burial.reason.to_string(),
        history: burial
            .history
            .as_bytes()
            .and_then(|bytes| serde_json::from_slice(bytes).ok()),
    };
    let record = serde_json::value::to_raw_value(&record)
        .expect("a record has only text, numbers and lists");
    let line = SpillLine {
        crc32: checksum(record.get()),
        record: &record,
    };
    serde_json::to_string(&line).expect("a line has only texts")
}

/// The dead letter that a line holds.
pub(crate) fn decode(line: &[u8]) -> Result<NewDeadLetter, InvalidSpillLine> {
    let line: SpillLine<'_> =
        serde_json::from_slice(line).map_err(|error| InvalidSpillLine::Torn(error.to_string()))?;
    let found = checksum(line.record.get());
    if found != line.crc32 {
        return Err(InvalidSpillLine::Changed {
            written: line.crc32,
            found,
        });
    }
    burial(line.record.get()).map_err(InvalidSpillLine::Unknown)
}

fn burial(record: &str) -> Result<NewDeadLetter, String> {
    let record: SpillRecord = serde_json::from_str(record).map_err(|error| error.to_string())?;
    let payload = Payload::json(record.payload).map_err(|error| error.to_string())?;
    let reason: EndReason = record.reason.parse().map_err(|error| format!("{error}"))?;
    let history = record
        .history
        .map(|history| history.get().as_bytes().to_vec());
    let job = NewJob::new(record.id, record.queue, record.kind, payload);
    Ok(NewDeadLetter {
        job: NewJob {
            priority: record.priority,
            run_at: record.run_at,
            retry: record.retry,
            trace: record.traceparent,
            ..job
        },
        attempts: record.attempts,
        lost_leases: 0,
        requeues: 0,
        inserted_at: record.inserted_at,
        finished_at: record.finished_at,
        reason,
        history: FailureHistory::from_stored(history),
    })
}

/// CRC-32 as zip, PNG and Ethernet have it, in hexadecimal digits.
pub(crate) fn checksum(text: &str) -> String {
    let crc = text.bytes().fold(u32::MAX, |crc, byte| {
        CRC_TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ (crc >> 8)
    });
    format!("{:08x}", !crc)
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut crc, mut bit) = (at as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0xedb8_8320
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::failure::{ErrorReport, FailureCause, FailureRecord};
    use backstop_core::{Span, WorkerName};

    fn burial(payload: &str) -> NewDeadLetter {
        let queue = QueueName::new("detection_queue").unwrap();
        let job = NewJob::new(
            JobId::named("a"),
            queue,
            Kind::default(),
            Payload::json(payload.to_owned()).unwrap(),
        );
        let at = Time::from_micros(1_767_225_600_123_456);
        let mut failure = FailureRecord::new(
            at,
            1,
            FailureCause::Failed,
            &WorkerName::new("w"),
            ErrorReport::message("a\nb"),
        );
        failure.retry_in = Some(Span::millis(1_250));
        NewDeadLetter {
            job: NewJob {
                priority: Priority::High,
                run_at: Some(at),
                retry: Some(RetryPolicy::default()),
                trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
                    .parse()
                    .ok(),
                ..job
            },
            attempts: 3,
            lost_leases: 0,
            requeues: 0,
            inserted_at: at.before(Span::secs(3)),
            finished_at: at,
            reason: EndReason::AttemptsExhausted,
            history: FailureHistory::default().with_failure(failure),
        }
    }

    #[test]
    fn a_dead_letter_comes_back_to_the_byte() {
        for payload in [
            "null",
            " [1 ,\n\t2]\r\n",
            r#"{"a":"\u0000\n\"","b":1e400}"#,
            "\"\u{2028}é🙂\"",
        ] {
            let burial = burial(payload);
            let line = encode(&burial);
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(decode(line.as_bytes()), Ok(burial));
        }
    }

    #[test]
    fn a_line_cut_anywhere_is_recognised() {
        let line = encode(&burial("[1,2,3]"));
        for end in 0..line.len() {
            assert!(
                matches!(
                    decode(&line.as_bytes()[..end]),
                    Err(InvalidSpillLine::Torn(_))
                ),
                "cut at {end}"
            );
        }
    }

    #[test]
    fn a_line_changed_anywhere_is_recognised() {
        let line = encode(&burial("[1,2,3]"));
        for at in 0..line.len() {
            let mut bytes = line.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(
                decode(&bytes).is_err(),
                "{}",
                String::from_utf8_lossy(&bytes)
            );
        }
    }

    #[test]
    fn a_whole_record_of_something_else_is_not_understood() {
        let record = r#"{"id":"x"}"#;
        let line = format!(r#"{{"crc32":"{}","record":{record}}}"#, checksum(record));
        assert!(matches!(
            decode(line.as_bytes()),
            Err(InvalidSpillLine::Unknown(_))
        ));
    }

    #[test]
    fn the_checksum_is_the_usual_one() {
        assert_eq!(checksum("123456789"), "cbf43926");
    }
}
