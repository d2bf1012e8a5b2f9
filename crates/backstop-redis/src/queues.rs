//! Queues as an operator sees them, and their gates.

use crate::base::{Base, readable};
use crate::keys::Part;
use crate::record::unsorted;
use crate::reply;
use crate::script::STATUS;
use backstop_core::port::{Answer, Counts, Gate, QueueStatus, Totals};
use backstop_core::{QueueName, State, Time};
use redis::Value;

const DOING: &str = "listing queues";
const PAUSED: &str = "paused";
const OPEN: &str = "open";

/// All queues, by name.
pub(crate) async fn queues(base: &Base) -> Answer<Vec<QueueStatus>> {
    let names = base.queues(DOING).await?;
    let calls = names.iter().map(|name| base.script(&STATUS, name)).collect();
    let mut queues = Vec::with_capacity(names.len());
    for (name, answer) in names.iter().zip(base.run_each(DOING, calls).await?) {
        queues.extend(status(name, answer)?);
    }
    Ok(queues)
}

/// Opens or pauses a queue.
pub(crate) async fn set_gate(base: &Base, queue: &QueueName, gate: Gate) -> Answer<()> {
    let doing = "pausing or resuming a queue";
    base.register(doing, &[queue]).await?;
    let word = if gate == Gate::Paused { PAUSED } else { OPEN };
    let mut command = redis::cmd("HSET");
    command.arg(base.keys.part(queue, Part::Meta)).arg("gate").arg(word);
    base.link.ask(doing, &command).await?;
    base.bell.ring();
    Ok(())
}

/// The status of an answer; nothing for a name that was registered and whose queue never came to be.
fn status(name: &QueueName, answer: Value) -> Answer<Option<QueueStatus>> {
    let parts = readable(DOING, reply::list(answer))?;
    if parts.is_empty() {
        return Ok(None);
    }
    readable(DOING, read(name, parts)).map(Some)
}

fn read(name: &QueueName, parts: Vec<Value>) -> Option<QueueStatus> {
    let mut parts = parts.into_iter();
    let gate = if reply::text(parts.next()?)? == PAUSED { Gate::Paused } else { Gate::Open };
    let mut number = || parts.next().and_then(reply::whole).and_then(|number| u64::try_from(number).ok());
    let totals = Totals { enqueued: number()?, done: number()?, dead: number()?, cancelled: number()? };
    let mut counts = Counts::default();
    for state in State::ALL {
        *counts.of_mut(state) = number()?;
    }
    let next_ready = parts.next().and_then(reply::bytes).and_then(|at| unsorted(&at)).map(Time::from_micros);
    Some(QueueStatus { name: name.clone(), gate, counts, totals, next_ready })
}
