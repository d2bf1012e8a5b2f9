//! A sink within the test, and what it saw.

use async_trait::async_trait;
use backstop_kafka::{KafkaMessage, MessageSink, MessageSinkError};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;

/// Takes in what it lets through.
pub(crate) struct Recorder {
    seen: Mutex<Seen>,
    /// A permit for each batch that may be taken in.
    gate: Semaphore,
}

#[derive(Default)]
pub(crate) struct Seen {
    /// The first offset of each call, with its partition, whatever came of it.
    pub(crate) calls: Vec<(i32, i64)>,
    /// What was taken in, in that order: partition, offset, number.
    pub(crate) taken: Vec<(i32, i64, u64)>,
    /// Partitions of which nothing is taken in.
    pub(crate) refused: BTreeSet<i32>,
    pub(crate) refusals: usize,
}

impl Recorder {
    /// Everything is let through.
    pub(crate) fn open() -> Self {
        Self {
            seen: Mutex::default(),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
        }
    }

    /// Nothing is let through before [`Recorder::let_through`].
    pub(crate) fn closed() -> Self {
        Self {
            seen: Mutex::default(),
            gate: Semaphore::new(0),
        }
    }

    pub(crate) fn let_through(&self, batches: usize) {
        self.gate.add_permits(batches);
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn taken(&self) -> usize {
        self.seen().taken.len()
    }

    /// Every number of the range was taken in once, and each partition in its order.
    pub(crate) fn check_all_once(&self, numbers: std::ops::Range<u64>) {
        let seen = self.seen();
        let mut taken: Vec<u64> = seen.taken.iter().map(|(_, _, number)| *number).collect();
        taken.sort_unstable();
        assert_eq!(taken, numbers.collect::<Vec<u64>>());
        for partition in seen
            .taken
            .iter()
            .map(|(partition, ..)| *partition)
            .collect::<BTreeSet<_>>()
        {
            let offsets = seen
                .taken
                .iter()
                .filter(|(of, ..)| *of == partition)
                .map(|(_, offset, _)| offset);
            assert!(offsets.is_sorted(), "partition {partition}");
        }
    }

    fn answer(&self, batch: &[KafkaMessage]) -> Result<(), MessageSinkError> {
        let mut seen = self.seen();
        if seen.refused.contains(&batch[0].partition) {
            seen.refusals += 1;
            assert!(seen.refusals != 2, "a sink may panic, too");
            return Err(MessageSinkError::new("not now"));
        }
        let number = |message: &KafkaMessage| {
            let payload = message.payload.as_deref().expect("a payload");
            std::str::from_utf8(payload)
                .expect("text")
                .parse()
                .expect("a number")
        };
        seen.taken.extend(
            batch
                .iter()
                .map(|message| (message.partition, message.offset, number(message))),
        );
        Ok(())
    }
}

#[async_trait]
impl MessageSink for Recorder {
    async fn take_in(&self, batch: Vec<KafkaMessage>) -> Result<(), MessageSinkError> {
        self.seen()
            .calls
            .push((batch[0].partition, batch[0].offset));
        self.gate.acquire().await.expect("never closed").forget();
        self.answer(&batch)
    }
}
