//! One consumer for many who bring results at once: requests, and partitions of a topic.

use crate::clock::Clock;
use crate::consumer::{Consumer, Taken, Totals};
use crate::sequencer::Hold;
use anyhow::{Context, Result};
use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::spawn_blocking;

/// Where results are brought. Cheap to clone.
#[derive(Clone)]
pub struct Intake {
    open: Arc<Mutex<Option<Open>>>,
    clock: Clock,
}

struct Open {
    consumer: Consumer,
    totals: Totals,
}

impl Intake {
    /// In front of a consumer.
    pub fn new(consumer: Consumer, clock: Clock) -> Self {
        let open = Open {
            consumer,
            totals: Totals::default(),
        };
        Self {
            open: Arc::new(Mutex::new(Some(open))),
            clock,
        }
    }

    /// Takes a batch, one after the other. Whoever waits for the answer may go away; what has begun
    /// is brought to its end.
    pub async fn take(&self, batch: Vec<Bytes>) -> Result<Taken> {
        let this = self.clone();
        spawn_blocking(move || {
            let mut open = this.lock();
            let Open { consumer, totals } = open.as_mut().context("no more results are taken")?;
            let taken = consumer.take(batch, this.clock.now_ms())?;
            totals.add(&taken);
            Ok(taken)
        })
        .await?
    }

    /// Takes nothing more, and says what came of it all. Must be called where blocking does no
    /// harm.
    pub fn close(&self, drain: bool) -> Result<(Totals, Option<Hold>)> {
        let Open {
            mut consumer,
            totals,
        } = self.lock().take().context("it is closed already")?;
        if drain {
            consumer.drain()?;
        }
        Ok((totals, consumer.finish()?))
    }

    /// A batch that panicked was not answered for, and comes again.
    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
