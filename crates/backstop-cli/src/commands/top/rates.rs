//! Readings of the past minutes: what rates are made of.

use super::figures::TopFigures;
use backstop::core::port::QueueTotals;
use backstop::{QueueName, Span, Time};
use std::collections::{BTreeMap, VecDeque};

/// Readings kept; more than any terminal is wide.
const READINGS_MAX: usize = 512;
/// A rate is that of the last seconds: one reading alone would jump about.
const RATE_OVER: Span = Span::secs(10);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TopFlow {
    Pushed,
    Done,
    Dead,
}

/// What the queues had counted at one time.
#[derive(Clone, PartialEq, Debug)]
struct TotalsReading {
    at: Time,
    totals: BTreeMap<QueueName, QueueTotals>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct RateHistory(VecDeque<TotalsReading>);

impl RateHistory {
    /// Remembers a reading. One that is not newer than the last says nothing about rates.
    pub(super) fn push(&mut self, figures: &TopFigures) {
        if self.0.back().is_some_and(|last| last.at >= figures.at) {
            return;
        }
        let totals = figures
            .queues
            .iter()
            .map(|queue| (queue.name.clone(), queue.totals))
            .collect();
        self.0.push_back(TotalsReading {
            at: figures.at,
            totals,
        });
        if self.0.len() > READINGS_MAX {
            self.0.pop_front();
        }
    }

    /// How many a second lately, of one queue or of all; `None` before there are two readings.
    pub(super) fn rate(&self, queue: Option<&QueueName>, flow: TopFlow) -> Option<f64> {
        let last = self.0.back()?;
        let since = last.at.before(RATE_OVER);
        let within = self
            .0
            .iter()
            .find(|reading| reading.at >= since && reading.at < last.at);
        let first = within.or_else(|| self.0.iter().rev().nth(1))?;
        Some(per_second(first, last, queue, flow))
    }

    /// How many a second between each two readings, in thousandths, the newest last.
    pub(super) fn line(&self, queue: Option<&QueueName>, flow: TopFlow) -> Vec<u64> {
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        #[expect(
            clippy::cast_sign_loss,
            reason = "a count that grew, over time that passed"
        )]
        let thousandths = |rate: f64| (rate * 1_000.0) as u64;
        pairs
            .map(|(before, after)| thousandths(per_second(before, after, queue, flow)))
            .collect()
    }
}

fn per_second(
    before: &TotalsReading,
    after: &TotalsReading,
    queue: Option<&QueueName>,
    flow: TopFlow,
) -> f64 {
    let grown = after
        .count(queue, flow)
        .saturating_sub(before.count(queue, flow));
    #[expect(clippy::cast_precision_loss, reason = "a rate to look at")]
    let grown = grown as f64;
    grown / after.at.since(before.at).as_secs_f64().max(0.001)
}

impl TotalsReading {
    /// A queue that was not there yet had counted nothing.
    fn count(&self, queue: Option<&QueueName>, flow: TopFlow) -> u64 {
        let of = |totals: &QueueTotals| match flow {
            TopFlow::Pushed => totals.enqueued,
            TopFlow::Done => totals.done,
            TopFlow::Dead => totals.dead,
        };
        match queue {
            Some(queue) => self.totals.get(queue).map(of).unwrap_or_default(),
            None => self.totals.values().map(of).sum(),
        }
    }
}
